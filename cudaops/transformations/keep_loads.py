"""What several loops over one range load, kept in registers by the first of them.

A softmax goes through a row three times, a layer norm twice: for the largest, for a sum, for the
result. Where a thread's share of the row is short, the first loop keeps what it loads in an array
of constant length, in registers once the loops over it are unrolled, and the others read that.

Legal where the loops have one beginning, bound and step that nothing changes between them, where
the first loads the element in every iteration, and where nothing writes that memory from the first
loop to the end of the last: but for the last loop, which may write the very element. A launch whose
range is longer than the array has the author's kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_jump,
    is_pure,
    is_volatile,
    names_in,
    reads_memory,
    root_of,
    synchronises,
    targets_in,
)
from cudaops.program.analysis.facts import ELEMENT_BYTES, Access
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import Counted, counted
from cudaops.transformations.ranges import Proof, Ranges
from cudaops.transformations.serial import item_loop
from cudaops.transformations.trees import (
    bodies_of,
    changed,
    declared_in,
    lists_changed,
    renamed,
    statements,
)

MOST_TRIPS = 32
MOST_BYTES = 256
"""Of all that a thread keeps: a quarter of the registers that it may have."""
_VARIABLE = "@turn"
"""Stands for the variable of each loop where their elements are compared."""
_MOST_INDEX = 2**31 - 1


class KeepLoads:
    """Loads that loops over one range repeat."""

    name = "keep_loads"
    title = "loads of several loops kept in registers"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "dram_bandwidth", "stall_long_scoreboard",
        "stall_lg_throttle", "low_parallelism", "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """The shortest array that every captured launch keeps within."""
        return ({"trips": _plan(draft).trips},)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The first loops of the kernel that load something again."""
        plan = _plan(draft)
        if plan.trips != int(setting["trips"]):
            raise NotUnderstood("launches with other trip counts")
        names = [draft.fresh_name(f"{root_of(x.place) or 'value'}_kept") for x in plan.kept]
        item = draft.fresh_name("turn")
        lines = _kept(plan, names, item)
        body = lists_changed(draft.form.kernel.body, lambda x: lines if x is plan.within else x)
        told = " and ".join(dict.fromkeys(f"`{root_of(x.place)}`" for x in plan.kept))
        says = f"Values that several loops load from {told} are loaded once and kept in registers."
        done = draft.with_body(body).requiring(*plan.requires)
        return done.stepped(Step(self.name, setting, says))


# Which loops


@dataclass(frozen=True)
class _Kept:
    """An element that the loops have in common."""

    place: s.Index
    """As the first loop says it, its variable and those that hang on it spelled out."""
    shared: Any
    """The same of any loop."""


@dataclass(frozen=True)
class _Pass:
    """One of the loops."""

    loop: Counted
    values: Mapping[str, Any]
    """Of the variables of its body that are set once."""
    elements: frozenset[Any]
    """Of arrays that it mentions, as any loop over the range may say them."""

    @classmethod
    def of(cls, loop: Counted) -> _Pass:
        """A loop with what it mentions."""
        written = {root_of(x) for x in targets_in(loop.body)}
        values = {
            x.name: x.value for x in loop.body
            if isinstance(x, s.Declare) and not (x.pointer or x.extents or x.shared) and x.value
            and is_pure(x.value) and x.type == getattr(x.value, "type", "")
            and x.name not in written
        }  # fmt: skip
        begun = cls(loop, values, frozenset())
        found = (begun.shared(x) for x in s.below(loop.body) if isinstance(x, s.Index))
        return replace(begun, elements=frozenset(found))

    def spelled(self, node: Any) -> Any:
        """With values in place of the variables."""
        for _ in self.values:
            node = renamed(node, self.values)
        return node

    def shared(self, node: Any) -> Any:
        """An element as any loop over the range may say it."""
        turn = s.Name(_VARIABLE, type=self.loop.type)
        return renamed(self.spelled(node), {self.loop.variable: turn})


@dataclass(frozen=True)
class _Plan:
    """Loops of one list of statements, and what is kept."""

    within: tuple[Any, ...]
    passes: tuple[_Pass, ...]
    kept: tuple[_Kept, ...]
    trips: int
    requires: Proof


def _plan(draft: Draft) -> _Plan:
    """Raises NotUnderstood where no loops load anything twice."""
    form = draft.form
    if is_volatile(form.kernel, form) or draft.facts.unmodelled:
        raise NotUnderstood("volatile memory, or statements that are not modelled")
    why = "no two loops over one range with the same loads"
    ranges = Ranges(draft)
    body, memory = form.kernel.body, Memory(draft)
    for listed in (body, *(inner for x in statements(body) for inner in bodies_of(x))):
        for loops in _alike(draft, listed):
            try:
                return _of_loops(draft, ranges, memory, listed, tuple(map(_Pass.of, loops)))
            except NotUnderstood as refused:
                why = str(refused)
    raise NotUnderstood(why)


def _alike(draft: Draft, listed: Sequence[Any]) -> Iterator[tuple[Counted, ...]]:
    """Loops of a list with one header, at least two, in the text's order."""
    groups: list[list[Counted]] = []
    for x in listed:
        if not isinstance(x, s.For):
            continue
        try:
            loop = counted(x, draft.form)
        except NotUnderstood:
            continue
        if not loop.is_own or loop.operator != "<" or has_jump(loop.body):
            continue
        if synchronises(loop.body, draft.form) or not is_pure((loop.start, loop.bound, loop.step)):
            continue
        group = next((g for g in groups if _header(g[0]) == _header(loop)), None)
        groups.append([loop]) if group is None else group.append(loop)
    yield from (tuple(g) for g in groups if len(g) > 1)


def _header(loop: Counted) -> tuple[Any, ...]:
    return loop.type, loop.start, loop.bound, loop.step


def _of_loops(
    draft: Draft, ranges: Ranges, memory: Memory, listed: tuple[Any, ...],
    passes: tuple[_Pass, ...],
) -> _Plan:  # fmt: skip
    """From the first loop that loads what a later one loads again. Raises NotUnderstood."""
    for at, first in enumerate(passes[:-1]):
        later = passes[at + 1 :]
        again = {x for one in later for x in one.elements}
        kept = {x.shared: x for x in _loaded(first) if x.shared in again}
        found = tuple(x for x in kept.values() if _stays(draft, memory, listed, first, later, x))
        if found:
            wanted = {x.shared for x in found}
            used = tuple(one for one in later if wanted & one.elements)
            trips, requires = _length(draft, ranges, first.loop, found)
            return _Plan(listed, (first, *used), found, trips, requires)
    raise NotUnderstood("no unconditional load that a later loop repeats")


def _loaded(one: _Pass) -> Iterator[_Kept]:
    """Elements that every iteration loads, whatever happens in it."""
    loop, inside = one.loop, declared_in(one.loop.body)

    def always(node: Any) -> Iterator[Any]:
        match node:
            case s.If(condition) | s.Choice(condition):
                yield from always(condition)
            case s.Binary("&&" | "||", left):
                yield from always(left)
            case s.For() | s.Do() | s.Switch():
                return
            case s.Evaluate(s.Assign(s.Index(base, index), "", value)):
                for x in (base, index, value):
                    yield from always(x)
            case _:
                yield from (node,) if isinstance(node, s.Index) else ()
                for child in s.children(node):
                    yield from always(child)

    for statement in loop.body:
        for x in always(statement):
            place = one.spelled(x)
            named = names_in(place)
            plain = isinstance(place.base, s.Name) and is_pure(place.index)
            if plain and loop.variable in named and not (
                named & inside or reads_memory(place.index)
            ):  # fmt: skip
                yield _Kept(place, one.shared(x))


# What may be kept


def _stays(
    draft: Draft, memory: Memory, listed: tuple[Any, ...], first: _Pass, later: Sequence[_Pass],
    kept: _Kept,
) -> bool:  # fmt: skip
    """Whether the element holds the same from the first loop to its last use."""
    loop, last = first.loop, [one for one in later if kept.shared in one.elements][-1]
    begin, end = (next(n for n, x in enumerate(listed) if x is one.loop.node)
                  for one in (first, last))  # fmt: skip
    part = listed[begin : end + 1]
    steady = names_in((kept.place, loop.start, loop.bound, loop.step)) - {loop.variable}
    if changed_variables(part, draft.form) & steady or declared_in(part) & steady:
        return False
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    if not 0 < sizes.get(getattr(kept.place, "type", ""), 0) <= 16:
        return False
    array = _array(draft, root_of(kept.place) or "")
    if memory.is_unclear or not array or not memory.is_followed:
        return False
    return all(
        _is_harmless(draft, a, loop, last, kept)
        for a in draft.facts.accesses
        if a.kind != "read" and a.space in ("global", "module")
        and not memory.are_apart(a.array, array)
    )  # fmt: skip


def _array(draft: Draft, name: str) -> str:
    """The kernel's pointer that a name leads to; empty where that is not one for sure."""
    if any(p.name == name and p.is_pointer for p in draft.form.kernel.parameters):
        return name
    body = draft.form.kernel.body
    found = [x for x in s.below(body) if isinstance(x, s.Declare) and x.name == name]
    if len(found) != 1 or not found[0].pointer or changed_variables(body, draft.form) & {name}:
        return ""
    match found[0].value:
        case s.Binary("+" | "-", s.Name(text)) | s.Name(text):
            return _array(draft, text)
        case s.Unary("&", s.Index(s.Name(text))):
            return _array(draft, text)
    return ""


def _is_harmless(
    draft: Draft, write: Access, first: Counted, last: _Pass, kept: _Kept
) -> bool:  # fmt: skip
    """Whether a write stands before or behind the loops, or is the last one's of the element, which
    it does not read again."""
    at, whole = write.where, draft.form.kernel.where
    begin, end = first.node.where, last.loop.node.where
    if at is None or whole is None or begin is None or end is None or at.file != whole.file:
        return False
    if not whole.start <= at.start < whole.end:  # of a function that is called somewhere
        return False
    if at.end <= begin.start or at.start >= end.end:
        return True
    if write.kind != "write" or not _is_plain(kept):
        return False
    for n, x in enumerate(last.loop.body):
        match x:
            case s.Evaluate() as only:
                pass
            case s.If(_, (s.Evaluate() as only,), ()):
                pass
            case _:
                continue
        match only.value:
            case s.Assign(s.Index() as target, _, value) if only.where == at and is_pure(value):
                again = any(last.shared(y) == kept.shared for z in last.loop.body[n + 1 :]
                            for y in s.below(z) if isinstance(y, s.Index))  # fmt: skip
                return last.shared(target) == kept.shared and not again
    return False


def _is_plain(kept: _Kept) -> bool:
    """Whether another iteration is another element: `p[i]`, `p[row * n + i]`."""
    turn = s.Name(_VARIABLE)
    index = kept.shared.index
    match index:
        case s.Name(text):
            return text == turn.text
        case s.Binary("+", left, right):
            one, other = (left, right) if left == turn else (right, left)
            return one == turn and turn.text not in names_in((other, kept.shared.base))
    return False


def _length(
    draft: Draft, ranges: Ranges, loop: Counted, kept: Sequence[_Kept]
) -> tuple[int, Proof]:
    """Iterations of a thread at most, and what a launch must meet for it: blocks are small enough
    for any index. Raises NotUnderstood."""
    bound, step = ranges.launched(loop.bound), ranges.launched(loop.step)
    low, high = ranges.nonnegative(loop.start), ranges.upper(loop.start)
    least = ranges.most(loop.step, 1)
    if bound is None or step is None or low is None or high is None or least is None:
        raise NotUnderstood("loop bounds that are not launch constants")
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    each = sum(max(sizes[getattr(x.place, "type", "")], 4) for x in kept)
    small = all(x.startswith("blockDim.") for x in high[0].names() | step.names())
    for trips in range(1, min(MOST_TRIPS, MOST_BYTES // each) + 1):
        ends = () if small else (*least, high[0] + trips * step <= _MOST_INDEX)
        requires = (*low, *high[1], *ends, bound <= trips * step)
        if draft.holds(*requires):
            return trips, requires
    raise NotUnderstood("more iterations than registers can hold")


# The text


def _kept(plan: _Plan, names: Sequence[str], item: str) -> tuple[Any, ...]:
    """The list of statements with arrays before the first loop, and loops over them."""
    new: dict[int, tuple[Any, ...]] = {}
    number: Any = s.Number(str(plan.trips))
    for one in plan.passes:
        lines = _turn(plan, one, names, item)
        new[id(one.loop.node)] = item_loop(item, plan.trips, lines)
    arrays = tuple(
        s.Declare(getattr(x.place, "type", ""), name, extents=(number,))
        for x, name in zip(plan.kept, names, strict=True)
    )
    found: list[Any] = []
    for x in plan.within:
        found += (*arrays, *new[id(x)]) if x is plan.passes[0].loop.node else new.get(id(x), (x,))
    return tuple(found)


def _turn(plan: _Plan, one: _Pass, names: Sequence[str], item: str) -> tuple[Any, ...]:
    """One iteration, where there is one."""
    loop = one.loop
    turn = s.Name(item, type="int")
    own = {x.shared: s.Index(s.Name(name), turn) for x, name in zip(plan.kept, names, strict=True)}
    targets = {id(x) for x in targets_in(loop.body)}

    def change(x: Any) -> Any:
        if not isinstance(x, s.Index) or id(x) in targets:
            return x
        return own.get(one.shared(x), x)

    body = changed(loop.body, change)
    if one is plan.passes[0]:
        loads = (
            s.Evaluate(s.Assign(own[x.shared], "", replace(x.place, where=None))) for x in plan.kept
        )
        body = (*loads, *body)
    place = s.Binary("+", loop.start, s.Binary("*", turn, loop.step), type=loop.type)
    variable = s.Name(loop.variable, type=loop.type)
    inside = s.Binary("<", variable, loop.bound)
    return (s.Declare(f"const {loop.type}", loop.variable, value=place), s.If(inside, tuple(body)))
