"""Several outputs a thread along one part of an index that the kernel takes apart (`flat_index`).

    t = blockIdx.x * blockDim.x + threadIdx.x;  x = t % w;  y = t / w % h;  c = t / (w * h);

Neighbours in `t` share no operands; neighbours in one part may: the channels of a convolution have
one window, the rows of a product one column. With fewer threads, whose number `u` is taken apart as
`t` was but for the chosen part, which has an extent of `groups = ceil(extent / factor)` there:

    part = u / stride % groups * factor + item
    t = (u / (stride * groups) * extent + part) * stride + u % stride

Over all `u` below their count and all items, `t` is every index of the author's once, and where
sizes do not divide some that an item's guard leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, pure_functions
from cudaops.program.analysis.polynomials import Polynomial, number, symbol
from cudaops.program.expressions import folded
from cudaops.program.launch_expression import LaunchExpression, ceil_div, minimum, product
from cudaops.program.plans import GRID_MOST
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.blocks import without_unused
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.flat_index import FLAT, ONE, FlatIndex, Part, over
from cudaops.transformations.items import CoarsenedBody
from cudaops.transformations.places import AXES, threads_along
from cudaops.transformations.predication import without_returns
from cudaops.transformations.ranges import in_order
from cudaops.transformations.serial import continued, item_loop
from cudaops.transformations.text import with_parameters
from cudaops.transformations.thread_communication import refuse_exchange, thread_communication
from cudaops.transformations.trees import changed

_FACTORS = (4, 2, 8)
_MOST_SETTINGS = 6
_LARGEST = 2**31 - 1


class RegisterBlock:
    """Several outputs for each thread along one part of a flat index: rows, columns or channels.
    What does not depend on that part is computed and loaded once for them."""

    name = "register_block"
    title = "register blocking along one dimension"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "stall_lg_throttle", "stall_long_scoreboard",
        "issue_slots", "integer_pipe", "stall_wait", "many_waves", "dram_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Parts that the fewest loads depend on first; the one whose neighbours are adjacent in
        memory last."""
        thread_communication(draft)
        found: list[tuple[int, Setting]] = []
        for axis in AXES:
            try:
                flat = FlatIndex(draft, axis)
            except NotUnderstood:
                continue
            for nth, part in enumerate(sorted(flat.parts, key=flat.promise)):
                long = [f for f in _FACTORS if flat.may_hold(part, f)]
                found += [
                    (nth + rank, {"axis": axis, "part": flat.parts.index(part), "factor": f})
                    for rank, f in enumerate(long)
                ]
        found.sort(key=lambda ranked: ranked[0])
        return tuple(setting for _, setting in found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where the index is used otherwise, or threads deal with others."""
        flat = FlatIndex(draft, str(setting["axis"]))
        if not 0 <= int(setting["part"]) < len(flat.parts):
            raise NotUnderstood("no such index component")
        part, factor = flat.parts[int(setting["part"])], int(setting["factor"])
        for spread in (True, False):
            edited = _Blocking(flat, part, factor).draft(spread=spread)
            if edited is None:
                continue
            name = flat.name_of(part) or "a single index component"
            says = f"A thread computes {factor} outputs along {name}."
            done = edited.stepped(Step(self.name, setting, says))
            try:
                _ = done.form
            except NotUnderstood:
                continue
            return done
        raise NotUnderstood("the rewritten kernel cannot be analysed")


class _Blocking:
    """Several outputs along one part."""

    def __init__(self, flat: FlatIndex, part: Part, factor: int) -> None:
        self._flat, self._part, self._factor = flat, part, factor
        self._draft = flat.draft
        self._header = self._draft.printer().header
        self._arguments: list[LaunchExpression] = []
        self._requires: list[LaunchExpression] = []
        self._item = self._name("item", "int")
        self._thread = self._name("thread")
        self._first = self._name(f"{flat.name_of(part) or 'part'}_first")
        self._index = s.Name(flat.index or self._draft.fresh_name("index"), type=flat.type)
        self._index_first = self._name(f"{s.plain_name(self._index.text)}_first")
        self._measure()

    def _name(self, wanted: str, kind: str = "") -> s.Name:
        return s.Name(self._draft.fresh_name(wanted), type=kind or self._flat.type)

    # How much there is

    def _measure(self) -> None:
        """Sizes: groups of the part, and threads that have work."""
        flat, part, of = self._flat, self._part, self._flat.launch_expression
        for name in flat.names:
            self._requires.append(of(symbol(name)) >= 1)
        whole = threads_along(self._draft, flat.axis)
        limit, self._limit = flat.limit(), whole
        if flat.total is not None:
            self._requires.append(whole.equals(flat.total))
        if limit is not None:
            self._limit = of(limit)
            self._requires.append(self._limit >= 1)
        if limit is not None and flat.reach.loop is None:
            self._requires.append(whole >= self._limit)
        row = part.stride if part.extent is None else part.stride * part.extent
        self._is_whole = self._divides(limit, self._limit, row)
        length = self._quotient_of(limit, self._limit, part.stride, exact=self._is_whole)
        extent = over(limit, part.stride) if limit is not None else None
        if part.extent is not None:
            length, extent = of(part.extent), part.extent
        factor = number(self._factor)
        self._is_even = self._divides(extent, length, factor)
        self._groups = self._quotient_of(extent, length, factor, exact=self._is_even)
        count = [*([of(part.stride)] if part.stride != ONE else []), self._groups]
        if part.extent is not None:
            count.append(self._quotient_of(limit, self._limit, row, exact=self._is_whole))
        self._count = folded(product(count))
        self._requires.append(self._count * self._factor <= _LARGEST)

    def _quotient_of(
        self, size: Polynomial | None, value: LaunchExpression, by: Polynomial, *, exact: bool
    ) -> LaunchExpression:
        """A size over another, rounded up unless it is exact."""
        found = over(size, by) if size is not None else None
        if found is not None:
            return self._flat.launch_expression(found)
        divisor = self._flat.launch_expression(by)
        return folded(value / divisor if exact else ceil_div(value, divisor))

    def _divides(self, size: Polynomial | None, value: LaunchExpression, by: Polynomial) -> bool:
        """Whether a size is a multiple in all launches, by what it is or by a condition."""
        if size is not None and over(size, by) is not None:
            return True
        condition = (value % self._flat.launch_expression(by)).equals(0)
        if not self._draft.holds(*in_order([(*self._requires, condition)])):
            return False
        self._requires.append(condition)
        return True

    def _given(self, hint: str, value: LaunchExpression) -> s.Expression:
        """What the launch knows, in the kernel: a number, or a further parameter."""
        if value.integer is not None:
            return s.Number(str(value.integer), type="int")
        name = self._name(hint)
        if name.text not in self._header:
            self._header = with_parameters(self._header, [f"const {name.type} {name.text}"])
            self._arguments.append(value)
        return name

    # The body

    def draft(self, *, spread: bool) -> Draft | None:
        """The whole; None where it cannot be spread over the statements."""
        flat, draft = self._flat, self._draft
        self._groups_given = self._given("groups", self._groups)
        body = self._one_output()
        item, factor = self._item.text, self._factor
        refuse_exchange(draft)
        if spread:
            try:
                work = CoarsenedBody(
                    draft, without_returns(body), item, factor, pure_functions(draft.form),
                    growing=(self._index,),
                )  # fmt: skip
                lines = work.statements()
            except NotUnderstood:
                return None
        else:
            lines = item_loop(item, factor, continued(body))
        count = self._given("threads", self._count)
        edited = draft.with_body(self._for_threads(lines, count), self._header)
        at = AXES.index(flat.axis)
        grid = list(draft.launch.grid)
        width = draft.launch_expression(f"blockDim.{flat.axis}")
        blocks = ceil_div(self._count, width)
        grid[at] = blocks if flat.reach.loop is None else minimum(grid[at], blocks)
        if flat.places.literal_in(draft.form.kernel.body):
            self._requires.append(width.equals(flat.places.width or 0))
        if flat.axis != "x":
            self._requires.append(blocks <= GRID_MOST[at])
        if not draft.holds(*in_order([tuple(self._requires)])):
            raise NotUnderstood("launches that the original threads do not cover")
        edited = edited.launched(grid=tuple(grid), args=(*draft.launch.args, *self._arguments))
        return edited.requiring(*in_order([tuple(self._requires)]))

    def _for_threads(self, lines: Sequence[Any], count: s.Expression) -> tuple[Any, ...]:
        """What the threads do that have work."""
        reach, kind, thread = self._flat.reach, self._flat.type, self._thread
        if (loop := reach.loop) is not None:
            first = (s.Declare(kind, thread.text, value=self._flat.place),)
            (step,) = loop.step
            assert isinstance(step, s.Assign)
            step = replace(step, target=thread)
            if self._flat.total is not None:
                extents = (s.Member(s.Name(x), self._flat.axis) for x in ("blockDim", "gridDim"))
                step = replace(step, value=s.Binary("*", *extents))
            inside = s.Binary("<", thread, count)
            return (s.For(first, inside, (step,), tuple(lines)),)
        declared = s.Declare(f"const {kind}", thread.text, value=self._flat.place)
        if reach.is_left:
            leave = s.If(s.Binary(">=", thread, count), (s.Leave("return"),))
            return (declared, leave, *lines)
        return (declared, s.If(s.Binary("<", thread, count), tuple(lines)))

    def _one_output(self) -> tuple[Any, ...]:
        """What is done for one item."""
        flat = self._flat
        prelude = self._prelude()
        before = [x for x in flat.reach.before if x not in prelude]
        work = [x for x in flat.reach.work if x not in prelude]
        news: dict[int, Any] = {}
        for node, part in flat.taken_apart((*before, *work)):
            if (new := self._in_place_of(node, part)) is not None:
                news[id(node)] = new
        place = s.Binary("*", self._item, x) if (x := flat.expression(self._part.stride)) else (
            self._item
        )  # fmt: skip
        index = s.Declare(
            flat.type, self._index.text, value=s.Binary("+", self._index_first, place)
        )

        def own(x: Any) -> Any:
            if isinstance(x, s.Declare) and x.name == flat.index:
                return replace(x, value=index.value)
            return s.Name(self._index.text, type=x.type) if x == s.Name(FLAT) else x

        stands = any(isinstance(x, s.Declare) and x.name == flat.index for x in (*before, *work))
        before, work = (
            list(changed(changed(tuple(x), lambda x: news.get(id(x), x)), own))
            for x in (before, work)
        )
        lines = [*prelude, *self._firsts(), *([] if stands else [index]), *before]
        guards = self._guards()
        if not guards:
            return tuple(without_unused([*lines, *work]))
        condition = guards[0] if len(guards) == 1 else s.Binary("&&", *guards, type="bool")
        return tuple(without_unused([*lines, s.If(condition, tuple(without_unused(work)))]))

    def _prelude(self) -> list[Any]:
        """Declarations that sizes are said with."""
        flat = self._flat
        waiting = names_in(tuple(flat.spelled[name] for name in flat.names))
        if flat.reach.limit is not None:
            waiting |= names_in(flat.reach.limit)
        needed: set[str] = set()
        while waiting:
            name = waiting.pop()
            declared = flat.variables.declared(name)
            if declared is not None and name not in needed:
                needed.add(name)
                waiting |= names_in(declared.value)
        found = [x for x in flat.body if isinstance(x, s.Declare) and x.name in needed]
        if len(found) != len(needed):
            raise NotUnderstood("a size that is computed in an inner scope")
        return found

    def _firsts(self) -> tuple[s.Declare, s.Declare]:
        """The part and the index of the first item."""
        flat, part, kind = self._flat, self._part, f"const {self._flat.type}"
        own = self._quotient(part.stride)
        if part.extent is not None:
            own = self._binary("%", own, self._groups_given)
        own = self._binary("*", own, s.Number(str(self._factor), type="int"))
        index: s.Expression = self._first
        if part.extent is not None:
            above = self._quotient(part.stride, self._groups_given)
            above = self._binary("*", above, flat.expression(part.extent))
            index = self._binary("+", above, index)
        if (stride := flat.expression(part.stride)) is not None:
            index = self._binary("*", index, stride)
            index = self._binary("+", index, self._binary("%", self._thread, stride))
        return (
            s.Declare(kind, self._first.text, value=own),
            s.Declare(kind, self._index_first.text, value=index),
        )

    def _binary(self, operator: str, left: Any, right: Any) -> s.Expression:
        return s.Binary(operator, left, right, type=self._flat.type)

    def _quotient(self, size: Polynomial, groups: s.Expression | None = None) -> s.Expression:
        """The thread's number over a size, times as many groups."""
        if isinstance(groups, s.Number):
            size, groups = size * number(int(groups.text)), None
        by = self._flat.expression(size)
        if groups is not None:
            by = groups if by is None else self._binary("*", by, groups)
        return self._thread if by is None else self._binary("/", self._thread, by)

    def _in_place_of(self, node: Any, part: Part) -> s.Expression | None:
        """A part by the thread's number; None where it takes the whole index."""
        flat, mine = self._flat, self._part
        if part == mine:
            return self._binary("+", self._first, self._item)
        if part.extent is not None and over(mine.stride, part.stride * part.extent) is not None:
            if isinstance(node, s.Binary) and node.operator == "-":
                return self._binary("%", self._quotient(part.stride), flat.expression(part.extent))
            plain: s.Expression = flat.variables.inlined(node, {FLAT: self._thread})
            return plain
        if mine.extent is None:
            return None
        above = over(part.stride, mine.stride * mine.extent)
        if above is None:
            return None
        found = self._quotient(mine.stride * above, self._groups_given)
        if part.extent is not None:
            found = self._binary("%", found, flat.expression(part.extent))
        return found

    def _guards(self) -> list[s.Expression]:
        """Conditions under which there is an output for an item."""
        flat, part = self._flat, self._part
        found: list[s.Expression] = []
        if part.extent is not None and not self._is_even:
            own = self._binary("+", self._first, self._item)
            extent = flat.expression(part.extent)
            assert extent is not None
            found.append(s.Binary("<", own, extent, type="bool"))
        if self._is_whole and (part.extent is not None or self._is_even):
            return found
        if part.extent is None and flat.tests(part):
            own = self._binary("+", self._first, self._item)
            assert flat.reach.limit is not None
            return [s.Binary("<", own, flat.reach.limit, type="bool")]
        limit = flat.reach.limit
        if limit is None or flat.tests(None):
            limit = self._given("outputs", self._limit)
        found.append(s.Binary("<", self._index, limit, type="bool"))
        return found
