"""A thread does the work of several: their loads together, what they share once.

Which threads: those of neighbouring blocks with the same number in their block, so that a warp's
accesses stay as they were (`block`); or neighbours in the grid, whose elements are adjacent
(`neighbours`). CUDA lets blocks run one after the other in any order, and threads between barriers
too; a result that depended on the order would be a race of the author's. So blocks may always be
gone through one by one, with a barrier between where they use shared memory. Statement by statement
is right for threads that neither wait nor exchange anything. Where sizes divide, the items have no
bounds checks (`bounds_checks`).
"""

from __future__ import annotations

from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import pure_functions, synchronises
from cudaops.program.launch_expression import LaunchExpression, ceil_div
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.bounds_checks import within_bounds
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.items import CoarsenedBody
from cudaops.transformations.places import (
    AXES,
    GlobalThreadIndex,
    builtin,
    builtins_in,
    covering_bound,
)
from cudaops.transformations.predication import without_returns
from cudaops.transformations.serial import (
    continued,
    invariant,
    item_loop,
    own_parameters,
)
from cudaops.transformations.text import with_parameters
from cudaops.transformations.thread_communication import (
    ThreadCommunication,
    functions_say,
    refuse_exchange,
    require_converged_warps,
    thread_communication,
)
from cudaops.transformations.trees import changed
from cudaops.transformations.uniformity import Uniformity

FACTORS = (4, 2, 8)


class Coarsen:
    """Several threads' work for each thread, with fewer threads."""

    name = "coarsen"
    title = "several items per thread"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "issue_slots", "integer_pipe", "stall_long_scoreboard", "low_parallelism", "many_waves",
        "l1_load_throughput", "dram_bandwidth", "stall_wait", "tail_effect", "fma_pipe",
        "atomic_contention",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Axes with more than one block, the longest first; strided, then neighbours."""
        thread_communication(draft)
        used = builtins_in(draft.form.kernel.body)
        axes = [a for a in AXES if f"blockIdx.{a}" in used and _blocks(draft, a) > 1]
        axes.sort(key=lambda a: -_blocks(draft, a))
        first, *others = FACTORS
        found: list[Setting] = [{"factor": first, "by": "block", "axis": axis} for axis in axes]
        found += [{"factor": f, "by": "block", "axis": axes[0]} for f in others if axes]
        if axes and f"threadIdx.{axes[0]}" in used:
            found.append({"factor": 4, "by": "neighbours", "axis": axes[0]})
        return tuple(found)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Spread over the statements where that is proved, else one item after the other."""
        for spread in (True, False):
            one = _Coarsening(draft, int(setting["factor"]), str(setting["axis"]), spread)
            edited = one.by_block() if setting["by"] == "block" else one.by_neighbours()
            done = within_bounds(edited).stepped(Step(self.name, setting, one.says))
            try:
                _ = done.form
            except NotUnderstood:
                if not one.is_spread:
                    raise
            else:
                return done
        raise NotUnderstood("the rewritten kernel cannot be analysed")


def _blocks(draft: Draft, axis: str) -> int:
    return max(int(getattr(w.grid, axis)) for w in draft.workloads)


class _Coarsening:
    def __init__(self, draft: Draft, factor: int, axis: str, spread: bool) -> None:
        self._wants_spread, self.is_spread = spread, False
        self._draft, self._factor, self._axis = draft, factor, axis
        self._communication: ThreadCommunication = thread_communication(draft)
        self._item = draft.fresh_name("item")
        self._body = draft.form.kernel.body
        self._header = draft.printer().header
        self._arguments: list[LaunchExpression] = []
        self.says = ""

    # Blocks

    def by_block(self) -> Draft:
        """Neighbouring blocks' threads of one number."""
        axis, draft = self._axis, self._draft
        if {"blockIdx", "gridDim"} & functions_say(draft):
            raise NotUnderstood("a device function that reads blockIdx or blockDim")
        said = builtins_in(self._body)
        if f"blockIdx.{axis}" not in said or said & s.BUILTINS:
            raise NotUnderstood(f"blockIdx.{axis} is not used")
        block = s.Member(s.Name("blockIdx"), axis, type="unsigned")
        number = s.Number(str(self._factor), type="int")
        mine = s.Binary("*", block, number, type="unsigned")
        new: Any = s.Binary("+", mine, s.Name(self._item, type="int"), type="unsigned")
        count = f"gridDim.{axis}"
        named: Any = s.Name(draft.fresh_name("blocks"), type="unsigned")
        uses = sum(1 for x in s.below(self._body) if builtin(x) == f"blockIdx.{axis}")

        def change(x: Any) -> Any:
            said = builtin(x)
            return new if said == f"blockIdx.{axis}" else named if said == count else x

        tail = self._tail()
        body = changed(self._body, change)
        if count in said or tail is None:
            self._add_argument(f"const unsigned {named.text}", draft.launch_expression(count))
        if tail is None:
            body = self._kept_within(body, new, named)
        lines = self._spread(body) if self._may_spread() else None
        if lines is None:
            if uses > 1:
                name = s.Name(draft.fresh_name("block"), type="unsigned")
                body = renamed_node(body, new, name)
                body = (s.Declare("const unsigned", name.text, value=new), *body)
            lines = self._one_by_one(body)
        self._tell("the same thread of as many neighbouring blocks")
        requires = [] if tail is None else [tail]
        return self._launched(lines).requiring(*requires)

    def _kept_within(self, body: Any, block: Any, blocks: Any) -> tuple[Any, ...]:
        """The body for blocks of the author's alone."""
        if self._communication.returns:
            return (s.If(s.Binary(">=", block, blocks), (s.Leave("return"),)), *body)
        return (s.If(s.Binary("<", block, blocks), tuple(body)),)

    def _tail(self) -> LaunchExpression | None:
        """A condition under which blocks beyond the author's do nothing; None where there is none
        and they must be kept from it."""
        draft, axis = self._draft, self._axis
        if not self._communication.barriers and not self._communication.shared:
            found = covering_bound(draft, axis)
            if found is not None:
                return found.covered
        if all(getattr(w.grid, axis) % self._factor == 0 for w in draft.workloads):
            return self._divided()
        return None

    def _divided(self) -> LaunchExpression:
        blocks = self._draft.launch_expression(f"gridDim.{self._axis}")
        return (blocks % self._factor).equals(0)

    # Neighbours

    def by_neighbours(self) -> Draft:
        """Threads next to each other in the grid."""
        draft, axis = self._draft, self._axis
        if functions_say(draft) or not self._communication.is_alone:
            raise NotUnderstood("a barrier or shared-memory communication within the block")
        places = GlobalThreadIndex.of(draft, self._body, axis)
        number, item = s.Number(str(self._factor)), s.Name(self._item, type="int")

        def new(place: Any) -> Any:
            return s.Binary("+", s.Binary("*", place, number), item, type=place.type)

        body = places.replaced(self._body, new)
        found = covering_bound(draft, axis)
        requires = []
        if found is not None:
            requires.append(found.covered)
        elif all(getattr(w.grid, axis) % self._factor == 0 for w in draft.workloads):
            requires.append(self._divided())
        else:
            raise NotUnderstood("extra threads would have side effects")
        if places.literal_in(self._body):
            requires.append(draft.launch_expression(f"blockDim.{axis}").equals(places.width or 0))
        whole = None
        if found is not None:
            even = (found.limit % self._factor).equals(0)
            if all(x is not None for x in draft.requiring(even).resolved):
                requires.append(even)
                whole = True
        lines = self._spread(body, whole=bool(whole)) if self._may_spread() else None
        if lines is None:
            refuse_exchange(draft)
            lines = self._one_by_one(body)
        self._tell("that many neighbours")
        return self._launched(lines).requiring(*requires)

    # Bodies

    def _may_spread(self) -> bool:
        if not self._wants_spread or not self._communication.is_alone:
            return False
        try:
            refuse_exchange(self._draft)
        except NotUnderstood:
            return False
        return True

    def _spread(self, body: Any, *, whole: bool = False) -> tuple[Any, ...] | None:
        """Statement by statement; None where that cannot be."""
        try:
            spread = CoarsenedBody(
                self._draft, without_returns(own_parameters(self._draft, body)), self._item,
                self._factor, pure_functions(self._draft.form),
                (lambda _: True) if whole else None,
            )  # fmt: skip
            lines = spread.statements()
            self._draft.with_body(lines)
        except NotUnderstood:
            return None
        self.is_spread = True
        return lines

    def _one_by_one(self, body: Any) -> tuple[Any, ...]:
        """Every item after the one before it, with its own parameters."""
        synchronised = (
            self._communication.barriers
            or self._communication.collectives
            or self._communication.shared
        )
        if self._communication.collectives:
            require_converged_warps(self._draft)
        if self._communication.returns:
            waits = synchronised or self._communication.calls_other
            if waits:
                _refuse_left(self._draft)
            body = without_returns(body) if waits else continued(body)
        body = own_parameters(self._draft, body)
        kept = [x for x in body if isinstance(x, s.Declare) and x.shared]
        rest = [x for x in body if not (isinstance(x, s.Declare) and x.shared)]
        if self._communication.shared:
            rest.append(s.Evaluate(s.Call("__syncthreads", ())))
        early, rest = invariant(self._draft, rest, self._item)
        loop = item_loop(self._item, self._factor, rest)
        if synchronised:
            loop = loop[1:]
        return (*kept, *early, *loop)

    # Launch

    def _add_argument(self, declaration: str, expression: LaunchExpression) -> None:
        self._header = with_parameters(self._header, [declaration])
        self._arguments.append(expression)

    def _launched(self, lines: tuple[Any, ...]) -> Draft:
        draft, at = self._draft, AXES.index(self._axis)
        grid = list(draft.launch.grid)
        grid[at] = ceil_div(grid[at], self._factor)
        edited = draft.with_body(lines, self._header)
        return edited.launched(grid=tuple(grid), args=(*draft.launch.args, *self._arguments))

    def _tell(self, which: str) -> None:
        self.says = f"A thread does the work of {self._factor} threads: {which}."


def _refuse_left(draft: Draft) -> None:
    """Raise NotUnderstood where a thread may have left that others wait for: with conditions for
    its returns, all threads of a block come by each place where they meet."""
    whole = without_returns(draft.form.kernel.body)
    same = Uniformity(draft.facts)
    for statement in (x for x in s.below(whole) if isinstance(x, s.Statement)):
        own = tuple(x for x in s.children(statement) if not isinstance(x, s.Statement))
        calls = tuple(s.Evaluate(x) for x in s.below(own) if isinstance(x, s.Call))
        if synchronises(calls, draft.form) and not same.together(whole, statement):
            raise NotUnderstood("threads that return before a barrier")


def renamed_node(body: Any, old: Any, new: Any) -> Any:
    """The tree with one expression, wherever it stands, in place of another."""
    return changed(body, lambda x: new if x is old else x)
