"""Other blocks for threads that go through their work in strides, and none that only watch.

    for (int j = m + threadIdx.y + blockIdx.y * blockDim.y; j < end; j += gridDim.y * blockDim.y)
    for (int k = threadIdx.x; k < n; k += blockDim.x)
    if (threadIdx.x == 0) { ... }

Along such an axis a block of any width goes through the same iterations: every place where the
kernel asks for the axis is the head of such a loop, whose iterations leave each other nothing, or a
test for the first thread, which then is the only one. What stands outside of these loops every
thread along the axis does alike, so that it may only store what none reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_early_exit,
    has_effects,
    local_variables,
    names_in,
    pure_functions,
    root_of,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import Symbol, number, symbol
from cudaops.program.launch_expression import LaunchExpression, build, ceil_div
from cudaops.program.plans import BLOCK_MOST, GRID_MOST, MAX_THREADS
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.geometry import bounded_header
from cudaops.transformations.places import AXES, builtin, builtins_in, threads_along
from cudaops.transformations.ranges import launch_expression
from cudaops.transformations.thread_communication import (
    functions_say,
    refuse_exchange,
    thread_communication,
)
from cudaops.transformations.variables import Variables

_THREADS = (128, 256, 64, 512, 1024, 32)
_INNER = (32, 8, 1)
"""Threads along the first of two free axes."""
_MOST_SETTINGS = 8
_MORE = (16, 4)
"""Times as many blocks along an axis that has few threads. Chosen: a warp or two become a wave."""
_FEW, _SMALL = 64, 1 << 18
"""Threads along such an axis, and of a grid that does not fill a GPU: 132 SMs hold 270,336."""


class Strides:
    """Another block for loops in strides of the block or the grid; no threads along an axis of
    which the first alone works."""

    name = "strides"
    title = "block shape of strided loops"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "divergence", "low_parallelism", "occupancy_block_size", "occupancy_grid", "tail_effect",
        "stall_long_scoreboard", "stall_wait", "issue_slots", "launch_bound", "uncoalesced_access",
        "dram_bandwidth", "stall_lg_throttle",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Of all axes that may change, what they may be; idle ones have one thread."""
        axes = _Axes(draft)
        idle = [a for a in AXES if axes.kinds[a] == "idle" and axes.width(a) != 1]
        free = [a for a in AXES if axes.kinds[a] in ("block", "grid")]
        fixed = [axes.width(a) for a in AXES if a not in (*idle, *free)]
        if not (idle or free) or None in fixed:
            return ()
        kept = math.prod(n or 1 for n in fixed)
        found: list[Setting] = []
        for shape in _shapes(len(free), kept) if free else [()]:
            setting = {**dict.fromkeys(idle, 1), **dict(zip(free, shape, strict=True))}
            if setting.get("z", 1) > BLOCK_MOST[2]:
                continue
            if any(axes.width(a) != n for a, n in setting.items()):
                found.append({a: setting[a] for a in AXES if a in setting})
        more = [{**one, f"blocks_{a}": n} for one in found[:2] for a in axes.short() for n in _MORE]
        return tuple([*found[:2], *more[:4], *found[2:]][:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where a thread does what it would not do in another block."""
        axes = _Axes(draft)
        shape = {a: int(setting[a]) for a in AXES if a in setting}
        grid, block = list(draft.launch.grid), list(draft.launch.block)
        requires: list[LaunchExpression] = []
        for axis, width in shape.items():
            kind, at = axes.kinds[axis], AXES.index(axis)
            if kind == "fixed" or (kind == "idle" and width != 1):
                raise NotUnderstood(f"a block whose extent along {axis} matters")
            if kind == "grid":
                grid[at] = ceil_div(threads_along(draft, axis), width)
                if more := setting.get(f"blocks_{axis}"):
                    grid[at] = grid[at] * int(more)
                requires += [grid[at] <= GRID_MOST[at]] if at else []
            block[at] = build(width)
        requires += axes.conditions(shape)
        extents = [shape.get(a) or axes.width(a) for a in AXES]
        if shape.get("z", 1) > BLOCK_MOST[2]:
            raise NotUnderstood(f"more than {BLOCK_MOST[2]} threads along z")
        threads = math.prod(n or 1 for n in extents)
        if None in extents or not 1 <= threads <= MAX_THREADS:
            raise NotUnderstood("a block that is too large, or of unknown size")
        for axis in AXES:
            if axis not in shape:
                width = axes.width(axis) or 0
                requires.append(draft.launch_expression(f"blockDim.{axis}").equals(width))
        if not draft.holds(*requires):
            raise NotUnderstood("launches of other shapes")
        edited = draft
        if draft.form.kernel.launch_bounds:
            edited = draft.with_body(draft.form.kernel.body, bounded_header(draft, threads))
        edited = edited.launched(grid=tuple(grid), block=tuple(block)).requiring(*requires)
        shown = " x ".join(str(n) for n in extents)
        done = edited.stepped(
            Step(self.name, setting, f"Blocks of {shown} threads run the same iterations.")
        )
        _ = done.form
        return done


def _shapes(free: int, kept: int) -> Iterator[tuple[int, ...]]:
    """Widths of so many free axes, the others of a block taking `kept` threads."""
    for threads in _THREADS:
        left = threads // kept
        if left < 1 or threads % kept:
            continue
        if free == 1:
            yield (left,)
            continue
        for inner in _INNER:
            if left % inner == 0:
                yield (inner, left // inner, *([1] * (free - 2)))


@dataclass(frozen=True)
class _Strided:
    """A loop in strides along an axis."""

    loop: s.For
    axis: str
    of_grid: bool
    """Strides of all threads of the grid along the axis, not of the block's."""
    begin: tuple[s.Expression, ...]
    """What is added to the thread's place for its first iteration."""


@dataclass
class _Axes:
    """How a kernel uses each axis of its threads."""

    draft: Draft
    kinds: dict[str, str] = field(default_factory=dict)
    """`block` and `grid`: in strides of these; `idle`: all but the first thread along it do
    nothing that counts; `fixed`: any other way."""

    def __post_init__(self) -> None:
        draft = self.draft
        found = thread_communication(draft)
        if not found.is_alone or functions_say(draft):
            raise NotUnderstood("a barrier or shared-memory communication within the block")
        refuse_exchange(draft)
        self.body: Any = tuple(draft.form.kernel.body)
        if builtins_in(self.body) & s.BUILTINS:
            raise NotUnderstood("an undecomposed index")
        self.variables = Variables(draft)
        self._single: dict[str, list[_Strided]] = {}
        """Loops of an axis that may store to one place in two iterations."""
        self._read = {a.array for a in draft.facts.accesses if a.kind != "write"}
        for axis in AXES:
            self.kinds[axis] = self._kind(axis)

    def width(self, axis: str) -> int | None:
        """Threads along it, where all launches agree."""
        value = self.draft.value(f"blockDim.{axis}")
        return value if isinstance(value, int) else None

    def short(self) -> list[str]:
        """Axes in strides of the grid that have few threads, of grids that do not fill a GPU."""
        found = []
        for axis in AXES:
            along = max(
                getattr(w.grid, axis) * getattr(w.block, axis) for w in self.draft.workloads
            )
            if self.kinds[axis] == "grid" and along <= _FEW:
                found.append(axis)
        most = max(w.grid.volume * w.block.volume for w in self.draft.workloads)
        return found if most <= _SMALL else []

    def conditions(self, axes: Mapping[str, int]) -> list[LaunchExpression]:
        """That no thread of the author's has two iterations of a loop that needs it."""
        said = []
        for axis in axes:
            for one in self._single.get(axis, ()):
                assert isinstance(one.loop.condition, s.Binary)
                limit = launch_expression(
                    self.draft, one.loop.condition.right, self.variables.value
                )
                threads = self.draft.launch_expression(f"blockDim.{axis}")
                wide = threads_along(self.draft, axis) if one.of_grid else threads
                if limit is None or one.begin:
                    raise NotUnderstood("iterations that may store to the same address")
                least = limit if one.loop.condition.operator == "<" else limit + 1
                said.append(wide >= least)
        return said

    # One axis

    def _kind(self, axis: str) -> str:
        carriers = self._carriers(axis)
        every = [x for x in s.below(self.body) if isinstance(x, s.For)]
        loops = [x for x in (self._strided(loop, axis) for loop in every) if x is not None]
        tests = [x for x in s.below(self.body) if isinstance(x, s.If) and _first_of(x, axis)]
        heads = tuple((x.loop.first, x.loop.step) for x in loops)
        declared = tuple(
            x.value for x in s.below(self.body)
            if isinstance(x, s.Declare) and x.name in carriers
        )  # fmt: skip
        terms = tuple(term for x in tests for term in _first_of(x, axis))
        analysable_loops = sum(self._uses(x, axis, carriers) for x in (heads, declared, terms))
        if analysable_loops != self._uses(self.body, axis, carriers) or (loops and tests):
            return "fixed"
        if not self._counts_once([x.loop for x in loops] or tests):
            return "fixed"
        if not loops:
            return "idle"
        if not self._go_together(loops) or (
            loops[0].of_grid and not self._asks_for_the_grid_in((heads, declared), axis)
        ):
            return "fixed"
        self._single[axis] = [x for x in loops if not self._stores_apart(x)]
        return "grid" if loops[0].of_grid else "block"

    def _go_together(self, loops: Sequence[_Strided]) -> bool:
        """Whether one thread has the same iterations of each, and none is within another, whose
        pairs of iterations would change."""
        exchanged = self._read & {a.array for a in self.draft.facts.accesses if a.kind == "write"}
        if len({x.of_grid for x in loops}) > 1 or (
            exchanged and len({x.begin for x in loops}) > 1
        ):  # fmt: skip
            return False
        inner = [x for one in loops for x in s.below(one.loop.body)]
        return not any(x is one.loop for x in inner for one in loops)

    def _carriers(self, axis: str) -> set[str]:
        """Variables that are computed from the thread's place along the axis, and never change."""
        found: set[str] = set()
        while True:
            more = {
                x.name for x in s.below(self.body)
                if isinstance(x, s.Declare) and x.name not in found
                and self.variables.value(x.name) is not None
                and self._uses(x.value, axis, found)
            }  # fmt: skip
            if not more:
                return found
            found |= more

    @staticmethod
    def _uses(node: Any, axis: str, carriers: set[str]) -> int:
        """How often it asks for the thread's place along the axis, or the block's width."""
        asked = {f"threadIdx.{axis}", f"blockDim.{axis}"}
        return sum(
            1 for x in s.below(node)
            if builtin(x) in asked or (isinstance(x, s.Name) and x.text in carriers)
        )  # fmt: skip

    def _asks_for_the_grid_in(self, places: Any, axis: str) -> bool:
        """Whether the grid's place and size along the axis are asked for here and nowhere else."""
        asked = {f"blockIdx.{axis}", f"gridDim.{axis}"}

        def uses(node: Any) -> int:
            return sum(1 for x in s.below(node) if builtin(x) in asked)

        return uses(places) == uses(self.body)

    def _strided(self, loop: s.For, axis: str) -> _Strided | None:
        """Of a loop over `place, place + stride, ...` below a limit; None for any other."""
        match loop.first, loop.condition, loop.step:
            case (
                (s.Declare(_, name, value=first),),
                s.Binary("<" | "<=", s.Name(tested), limit),
                (s.Assign(s.Name(stepped), "+", stride),),
            ) if name == tested == stepped and first is not None:
                pass
            case _:
                return None
        begin = tuple(self._terms(first))
        step = self.variables.polynomial(stride)
        if step is None or not self._is_independent(loop, name, limit):
            return None
        thread, wide = symbol(f"threadIdx.{axis}"), symbol(f"blockDim.{axis}")
        for of_grid, own, strides in (
            (False, thread, wide),
            (True, symbol(f"blockIdx.{axis}") * wide + thread, symbol(f"gridDim.{axis}") * wide),
        ):
            names = {x.name for x in own.atoms() if isinstance(x, Symbol)}
            placed = [x for x in begin if names & {builtin(y) for y in s.below(x)}]
            worth = [x for x in map(self.variables.polynomial, placed) if x is not None]
            rest = tuple(x for x in begin if x not in placed)
            whole = len(worth) == len(placed) and sum(worth, number(0)) == own
            if step == strides and whole:
                return _Strided(loop, axis, of_grid, rest)
        return None

    def _terms(self, node: Any) -> Iterator[Any]:
        """What a sum adds up, with the values of variables that do not change."""
        value = self.variables.value(node.text) if isinstance(node, s.Name) else None
        if value is not None:
            yield from self._terms(value)
        elif isinstance(node, s.Binary) and node.operator == "+":
            yield from self._terms(node.left)
            yield from self._terms(node.right)
        elif isinstance(node, s.Cast) and node.type in INTEGERS:
            yield from self._terms(node.operand)
        else:
            yield node

    def _is_independent(self, loop: s.For, name: str, limit: Any) -> bool:
        """Whether an iteration leaves the others nothing in variables, and all of them happen."""
        inside = {x.name for x in s.below(loop.body) if isinstance(x, s.Declare | s.Refer)}
        outside = (names_in(loop.body) | names_in(limit) | {name}) - inside
        if changed_variables(loop.body, self.draft.form) & outside or has_early_exit(
            loop.body, "continue"
        ):
            return False
        own = set(local_variables(self.body)) - inside
        for x in s.below(loop.body):
            if isinstance(x, s.Unmodelled | s.Opaque | s.Refer):
                return False
            if isinstance(x, s.Assign | s.Step) and root_of(x.target) in {None, *own}:
                return False
        return True

    def _counts_once(self, within: Sequence[s.For | s.If]) -> bool:
        """Whether all that counts happens within these, or is a store that each thread along the
        axis does alike and none reads."""
        local, pure = set(local_variables(self.body)), pure_functions(self.draft.form)

        def counts(node: Any) -> bool:
            if any(node is x for x in within) or not has_effects(node, local, pure):
                return False
            if isinstance(node, s.Evaluate):
                return not self._is_plain_store(node.value, local)
            if isinstance(node, s.Expression):
                return True
            return any(map(counts, s.children(node)))

        return not any(map(counts, self.body))

    def _is_plain_store(self, node: Any, local: set[str]) -> bool:
        if not isinstance(node, s.Assign) or node.operator or not isinstance(node.target, s.Index):
            return False
        if has_effects((node.target.base, node.target.index, node.value), local, ()):
            return False
        return root_of(node.target) not in self._read

    def _stores_apart(self, one: _Strided) -> bool:
        """Whether two iterations never store to one place: the index grows with the iteration."""
        first = one.loop.first[0]
        assert isinstance(first, s.Declare)
        inside = {x.name for x in s.below(one.loop.body) if isinstance(x, s.Declare)}
        arrays = {
            x.name for x in s.below(one.loop.body)
            if isinstance(x, s.Declare) and x.extents and not x.pointer
        }  # fmt: skip
        pure = pure_functions(self.draft.form)
        functions = {f.name for f in self.draft.form.functions} - pure
        for x in s.below(one.loop.body):
            if isinstance(x, s.Call) and x.function in functions:
                return False
            if not isinstance(x, s.Assign | s.Step):
                continue
            target = x.target
            if isinstance(target, s.Name) and target.text in inside:
                continue
            if not isinstance(target, s.Index):
                return False
            if root_of(target) in arrays:
                continue
            at = self.variables.polynomial(target.index, first.name)
            parts = None if at is None else at.linear_in(Symbol(first.name))
            if parts is None or parts[0].constant in (0, None):
                return False
        return True


def _first_of(node: s.If, axis: str) -> list[Any]:
    """Terms of a condition that only the first thread along the axis passes."""
    found = []
    for term in s.joined_by(node.condition, "&&"):
        match term:
            case s.Binary("==", left, right):
                sides = {builtin(left) or s.integer_of(left), builtin(right) or s.integer_of(right)}
                if sides == {f"threadIdx.{axis}", 0} and not node.no:
                    found.append(term)
    return found
