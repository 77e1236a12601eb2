"""Elements of memory that a loop reads and writes again and again, held in registers meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    all_written_names,
    is_pure,
    is_volatile,
    names_in,
    reads_memory,
    root_of,
    synchronises,
    targets_in,
)
from cudaops.program.analysis.facts import Access, KernelFacts
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.values import is_in_memory
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Aliasing
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import analysable_loops, counted, loop_of, scalars_of
from cudaops.transformations.trees import changed, declared_in, swapped

_MOST_SETTINGS = 4
_HELD = INTEGERS | {"float", "double"}
_MARK = "cudaops-place"
Mode = Literal["read_only", "write_through", "write_back"]
"""Read only; every write goes to memory as well; or the value is written once, after the loop."""


@dataclass(frozen=True)
class Held:
    """One element that a register stands for while a loop runs."""

    place: Any
    type: str
    mode: Mode
    guard: Any
    """Condition under which the loop runs at all; None where the element may be touched in any
    case."""


class ScalarReplace:
    """What a loop re-reads or re-writes at one address stands in a register: loaded before it,
    stored behind it.

    Legal: the address is the same in every iteration, nothing else in the loop touches those bytes
    (see `aliasing`), no threads meet in it, and no atomic operation works on the array. It is
    loaded, or stored, only where the author's code does the same in any case: in every iteration of
    a loop that runs, or right beside the loop; what is written under a condition is still written
    there. Other threads that look at the element meanwhile race with the author's kernel too.
    """

    name = "scalar_replace"
    title = "scalar replacement"
    family: Family = "other"
    relieves = frozenset({
        "stall_long_scoreboard", "stall_lg_throttle", "l1_load_throughput", "l2_bandwidth",
        "issue_slots", "shared_throughput", "stall_short_scoreboard", "stall_mio_throttle",
        "dram_bandwidth", "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """The hottest loops that re-read something, outer ones first."""
        found = (placed.setting for placed, held in analysable_loops(draft, _held) if held)
        return tuple(islice(found, _MOST_SETTINGS))

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All elements of one loop."""
        loop = loop_of(draft.form.kernel, setting["loop"])
        held = _held(draft, loop)
        if not held:
            raise NotUnderstood("no access at a loop-invariant address")
        body, names = _replaced(draft, loop, held)
        printer = draft.printer()
        told = " and ".join(
            f"{printer.expression(x.place)} (as {name})"
            for x, name in zip(held, names, strict=True)
        )
        says = f"The loop keeps {told} in a register."
        return draft.with_body(body).stepped(Step(self.name, setting, says))


# Reading


def _held(draft: Draft, loop: s.For) -> tuple[Held, ...]:
    """What can be held while a loop runs. Raises NotUnderstood."""
    form = draft.form
    if is_volatile(form.kernel, form):
        raise NotUnderstood("volatile memory or assembly")
    inside = (loop.condition, loop.step, loop.body)
    parts = tuple(x for part in inside if part for x in (part if type(part) is tuple else (part,)))
    if synchronises(parts, form):
        raise NotUnderstood("a barrier or warp collective in the loop")
    if any(isinstance(x, s.Give) or x == s.Leave("return") for x in s.below(parts)):
        raise NotUnderstood("a return in a loop")
    moved = _moved(loop, parts, form)
    known = set(scalars_of(form.kernel)) | s.BUILTINS | {p.name for p in form.kernel.parameters}
    places = [p for p in _places(parts) if _is_steady(p, moved, known)]
    if not places:
        return ()
    facts = marked(form, loop, places)
    if facts.unmodelled:
        raise NotUnderstood(f"{', '.join(facts.unmodelled)} outside of the loop")
    aliasing = Aliasing(draft)
    found = []
    for nth, place in enumerate(places):
        if _is_alone(facts, aliasing, loop, nth, _touches(parts, place)):
            mode = _mode(draft, parts, place, loop)
            if mode is not None and (held := _reached(draft, loop, place, mode)) is not None:
                found.append(held)
    return tuple(found)


def _places(parts: Sequence[Any]) -> Iterator[Any]:
    """Numbers in memory that it touches, each once."""
    seen = set()
    waiting: list[tuple[Any, bool]] = [(tuple(parts), False)]
    while waiting:
        node, inner = waiting.pop()
        is_place = isinstance(node, s.Index | s.Unary | s.Member) and is_in_memory(node)
        if is_place and not inner and node not in seen and node.type in _HELD:
            seen.add(node)
            yield node
        into = isinstance(node, s.Index | s.Member) or (
            isinstance(node, s.Unary) and node.operator in "*&"
        )
        for child in reversed(list(s.children(node))):
            part = into and child is getattr(node, "base", getattr(node, "operand", None))
            waiting.append((child, part))


def _moved(loop: s.For, parts: Sequence[Any], form: s.KernelForm) -> set[str]:
    """Variables that may be other ones in another iteration. Raises NotUnderstood."""
    changes = all_written_names(parts, form)
    through = set()
    for place in targets_in(parts):
        root = root_of(place)
        if root is not None and is_in_memory(place):
            through.add(root)
    direct = {_root(x) for x in targets_in(parts) if not is_in_memory(x)}
    taken = {
        _root(x.operand if isinstance(x, s.Unary) else x.target)
        for x in s.below(tuple(parts))
        if isinstance(x, s.Refer) or (isinstance(x, s.Unary) and x.operator == "&")
    }
    return (changes - through) | direct | taken | declared_in(loop)


def _is_steady(place: Any, moved: set[str], known: set[str]) -> bool:
    """Whether its address is the same in every iteration, and nothing in it is read from memory."""
    if names_in(place) & moved:
        return False
    indices: list[Any] = []
    while not isinstance(place, s.Name):
        match place:
            case s.Member(s.Unary("*", operand)) | s.Unary("*", operand):
                indices.append(operand)
                break
            case s.Member(base):
                place = base
            case s.Index(base, index):
                indices.append(index)
                if isinstance(base, s.Index) and not base.type.endswith("]"):
                    return False
                place = base
            case _:
                return False
    pointers = {x.text for x in indices if isinstance(x, s.Name)}
    fixed = all(is_pure(x) and not reads_memory(x) for x in indices)
    return fixed and all(names_in(x) - pointers <= known for x in indices)


def _root(place: Any) -> str:
    while isinstance(place, s.Member | s.Index):
        place = place.base
    return place.text if isinstance(place, s.Name) else ""


def marked(form: s.KernelForm, loop: s.For, places: Sequence[Any]) -> KernelFacts:
    """The kernel's facts, each place read once more at the loop's begin, where it can be told."""
    marks = tuple(
        s.Evaluate(place, where=s.Range((_MARK, nth, nth + 1))) for nth, place in enumerate(places)
    )
    marked = replace(loop, body=(*marks, *loop.body))
    kernel = replace(form.kernel, body=swapped(form.kernel.body, loop, marked))
    return analyse(replace(form, kernel=kernel))


def own_access(facts: KernelFacts, nth: int) -> Access | None:
    """Of a place that `marked` reads: its access, where its offset is known."""
    mark = s.Range((_MARK, nth, nth + 1))
    own = [a for a in facts.accesses if a.where == mark]
    return own[0] if len(own) == 1 and own[0].offset_bytes is not None else None


def _is_alone(
    facts: KernelFacts, aliasing: Aliasing, loop: s.For, nth: int, touches: tuple[int, int]
) -> bool:
    """Whether all that touches those bytes in the loop is what its text says of this place."""
    mine = own_access(facts, nth)
    if mine is None or mine.space == "local":
        return False
    if any(a.kind == "atomic" and a.array in (mine.array, "") for a in facts.accesses):
        return False
    found = {"read": 0, "write": 0, "atomic": 0}
    writes = any(_writes_in(facts, loop))
    for access in facts.accesses:
        is_mark = access.where is not None and access.where.file == _MARK
        if is_mark or not any(o.where == loop.where for o in access.loops):
            continue
        if _same(access, mine):
            found[access.kind] += 1
        elif (access.kind != "read" or touches[1]) and not aliasing.apart(mine, access):
            return False
    return writes and (found["read"], found["write"]) == touches and not found["atomic"]


def _writes_in(facts: KernelFacts, loop: s.For) -> Iterator[bool]:
    """Of each access in the loop, whether it writes memory that another thread can see."""
    for access in facts.accesses:
        if any(o.where == loop.where for o in access.loops):
            yield access.kind != "read" and access.space != "local"


def _same(one: Access, other: Access) -> bool:
    return (one.array, one.offset_bytes, one.type, one.member) == (
        other.array, other.offset_bytes, other.type, other.member,
    )  # fmt: skip


def _touches(parts: Sequence[Any], place: Any) -> tuple[int, int]:
    """How often the text reads it, and writes it."""
    total = sum(x == place for x in s.below(tuple(parts)))
    writes = plain = 0
    for x in s.below(tuple(parts)):
        if isinstance(x, s.Assign | s.Step) and x.target == place:
            writes += 1
            plain += isinstance(x, s.Assign) and not x.operator
    return total - plain, writes


def _mode(draft: Draft, parts: Sequence[Any], place: Any, loop: s.For) -> Mode | None:
    if not _touches(parts, place)[1]:
        return "read_only"
    beside = (x for x in _beside(draft, loop) if executes_unconditionally((x,), place, writes=True))
    if executes_unconditionally(loop.body, place, writes=True) or any(True for _ in beside):
        return "write_back"
    alone = {id(x.value) for x in s.below(loop.body) if isinstance(x, s.Evaluate)}
    for x in s.below(tuple(parts)):
        if isinstance(x, s.Step) and x.target == place and id(x) not in alone:
            return None
    return "write_through"


def executes_unconditionally(body: Sequence[Any], place: Any, *, writes: bool) -> bool:
    """Whether these statements, once begun, touch (or write) the place in any case."""
    for x in body:
        match x:
            case s.Evaluate(value) | s.Declare(value=value) if value is not None:
                if _at_once(value, place, writes=writes):
                    return True
            case s.If(condition):
                if not writes and _at_once(condition, place, writes=False):
                    return True
            case s.Block(inner):
                if executes_unconditionally(inner, place, writes=writes):
                    return True
            case s.For():
                trips = _trips(x)
                if trips and executes_unconditionally(x.body, place, writes=writes):
                    return True
        if any(isinstance(y, s.Leave | s.Give | s.Opaque) for y in s.below(x)):
            return False
    return False


def _at_once(value: Any, place: Any, *, writes: bool) -> bool:
    """Whether an expression touches the place whatever its parts are worth."""
    if isinstance(value, s.Assign | s.Step) and value.target == place:
        return True
    if value == place:
        return not writes
    match value:
        case s.Choice(condition):
            return _at_once(condition, place, writes=writes)
        case s.Binary("&&" | "||", left):
            return _at_once(left, place, writes=writes)
    return any(_at_once(x, place, writes=writes) for x in s.children(value))


def _trips(loop: s.For) -> int | None:
    """Of a loop whose ends are literals."""
    try:
        return counted(loop, s.KernelForm(_NOBODY)).trips()
    except NotUnderstood:
        return None


_NOBODY = s.Function("", "", "void", (), ())


def _reached(draft: Draft, loop: s.For, place: Any, mode: Mode) -> Held | None:
    """With what must hold for the element to be touched at all; None where that is not known."""
    beside = _beside(draft, loop)
    writes = mode == "write_back"
    if any(executes_unconditionally((x,), place, writes=writes) for x in beside):
        return Held(place, place.type, mode, None)
    if not executes_unconditionally(loop.body, place, writes=writes):
        return None
    if _trips(loop):
        return Held(place, place.type, mode, None)
    if loop.condition is None or not is_pure((*_beginnings(loop), loop.condition)):
        return None
    if not any(isinstance(x, s.Declare) for x in loop.first):
        return Held(place, place.type, mode, loop.condition)
    first = counted(loop, draft.form)
    guard = s.Binary(first.operator, _typed(first.start, first.type), first.bound)
    return Held(place, place.type, mode, guard)


def _beginnings(loop: s.For) -> tuple[Any, ...]:
    """What the loop's variables begin with."""
    found: list[Any] = []
    for x in loop.first:
        match x:
            case s.Evaluate(s.Assign(s.Name(), "", value)) | s.Declare(value=value) if (
                value is not None
            ):
                found.append(value)
            case _:
                found.append(x)
    return tuple(found)


def _typed(start: Any, kind: str) -> Any:
    return start if getattr(start, "type", kind) == kind else s.Cast(kind, start)


def _beside(draft: Draft, loop: s.For) -> list[Any]:
    """Statements that run whenever the loop is met, with no barrier in between."""
    siblings = _siblings(draft.form.kernel.body, loop)
    at = next(n for n, x in enumerate(siblings) if x is loop)
    fixed = names_in(loop) | {x.name for x in s.below(loop) if isinstance(x, s.Declare)}
    found: list[Any] = []
    for side in (reversed(siblings[:at]), siblings[at + 1 :]):
        for x in side:
            changes = {y.text for t in s.below(x) if isinstance(t, s.Assign | s.Step)
                       for y in (t.target,) if isinstance(y, s.Name)}  # fmt: skip
            declares = isinstance(x, s.Declare | s.Refer) and x.name in fixed
            ends = any(isinstance(y, s.Leave | s.Give | s.Opaque) for y in s.below(x))
            if changes & fixed or declares or ends or synchronises((x,), draft.form):
                break
            found.append(x)
    return found


def _siblings(body: Sequence[Any], loop: s.For) -> Sequence[Any]:
    for x in body:
        if x is loop:
            return body
        for inner in (getattr(x, "body", ()), getattr(x, "yes", ()), getattr(x, "no", ())):
            if inner and (found := _siblings(inner, loop)):
                return found
    return ()


# Writing


def _replaced(draft: Draft, loop: s.For, held: Sequence[Held]) -> tuple[Any, list[str]]:
    """The kernel's body, and the registers' names."""
    names: list[str] = []
    for x in held:
        stem = s.plain_name(root_of(x.place) or "held")
        field = x.place.name if isinstance(x.place, s.Member) else "value"
        wanted = f"{stem}_{field}"
        wanted = f"{wanted}{len(names)}" if wanted in names else wanted
        names.append(draft.fresh_name(wanted))
    new: Any = loop
    for x, name in zip(held, names, strict=True):
        new = _with_register(new, x, name)
    guards = [x.guard for x in held if x.guard is not None]
    begun = {} if guards else _begun(draft, loop, held)
    lines: list[Any] = []
    for x, name in zip(held, names, strict=True):
        old = begun.get(x.place)
        value = x.place if old is None else old.value.value
        lines.append(s.Declare(x.type, name, value=value, where=old and old.where))
    before: tuple[Any, ...] = ()
    if guards and not any(isinstance(x, s.Declare) for x in loop.first):
        before, new = loop.first, replace(new, first=())
    lines.append(new)
    lines += [
        s.Evaluate(s.Assign(x.place, "", s.Name(name)))
        for x, name in zip(held, names, strict=True)
        if x.mode == "write_back"
    ]
    made = (*before, s.If(guards[0], tuple(lines))) if guards else tuple(lines)
    body = swapped(draft.form.kernel.body, loop, made)
    for old in begun.values():
        body = swapped(body, old, ())
    return body, names


def _begun(draft: Draft, loop: s.For, held: Sequence[Held]) -> dict[Any, Any]:
    """Right above the loop, by the place: `place = value` for what the loop then writes back."""
    places = {x.place for x in held if x.mode == "write_back"}
    found: dict[Any, Any] = {}
    if reads_memory(loop.first) or not is_pure(_beginnings(loop)):
        return {}
    siblings = _siblings(draft.form.kernel.body, loop)
    for x in reversed(siblings[: _index(siblings, loop)]):
        match x:
            case s.Evaluate(s.Assign(target, "", value)) if (
                target in places - set(found) and is_pure(value) and not reads_memory(value)
            ):
                found[target] = x
            case _:
                break
    return found


def _index(items: Sequence[Any], item: Any) -> int:
    return next(n for n, x in enumerate(items) if x is item)


def _with_register(loop: Any, held: Held, name: str) -> Any:
    """The loop with the register for the element, in all but what begins it."""
    register = s.Name(name, type=held.type)

    def change(x: Any) -> Any:
        if x == held.place:
            return register
        if (
            held.mode == "write_through"
            and isinstance(x, s.Assign | s.Step)
            and x.target == register
        ):
            return s.Assign(held.place, "", _old(x))
        return x

    def _old(x: Any) -> Any:
        if isinstance(x, s.Step):
            x = s.Assign(register, "+" if x.by > 0 else "-", s.Number("1", type="int"))
        return x

    parts = changed((loop.condition, loop.step, loop.body), change)
    return replace(loop, condition=parts[0], step=parts[1], body=parts[2])
