"""Register windows: what one iteration loads and the next ones load again stays in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    all_written_names,
    has_jump,
    is_pure,
    is_volatile,
    names_in,
    reads_memory,
    root_of,
    synchronises,
)
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import number
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Aliasing
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.interior import folded
from cudaops.transformations.loops import Counted, analysable_loops, counted, loop_of, scalars_of
from cudaops.transformations.scalar_replace import executes_unconditionally, marked, own_access
from cudaops.transformations.trees import changed, declared_in, renamed, swapped

_MOST_SETTINGS = 3
_LONGEST = 9
_WORDS = {2: ("here", "ahead"), 3: ("behind", "here", "ahead")}
_HELD = INTEGERS | {"float", "double"}


@dataclass(frozen=True)
class Window:
    """Loads of one array, each of what the one before it loads an iteration later."""

    places: tuple[Any, ...]
    """In the body's words, the last one ahead of the others."""
    plain: tuple[Any, ...]
    """In terms of the loop's variable and of what does not change in the loop."""
    type: str


class RegisterWindow:
    """Where a loop loads `a[k - 1]`, `a[k]` and `a[k + 1]`, only the one ahead is loaded; the
    others are what it was one and two iterations ago.

    Legal: offsets differ by whole steps of the loop for every launch; every iteration makes all of
    these loads in any case; the loop writes nothing of that array (see `aliasing`), nothing leaves
    it early, and no threads meet in it. The first ones are loaded before the loop where it runs at
    all, which are loads of its first iteration.
    """

    name = "register_window"
    title = "sliding window in registers"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "stall_long_scoreboard", "stall_lg_throttle", "l2_bandwidth",
        "dram_bandwidth", "shared_throughput", "stall_short_scoreboard", "issue_slots",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Loops with such loads, the hottest first."""
        found = (placed.setting for placed, _ in analysable_loops(draft, _read))
        return tuple(islice(found, _MOST_SETTINGS))

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All windows of one loop."""
        loop, windows = _read(draft, loop_of(draft.form.kernel, setting["loop"]))
        lines, names = _written(draft, loop, windows)
        body = swapped(draft.form.kernel.body, loop.node, lines)
        told = ", ".join(n for one in names for n in one)
        says = f"The loop over {loop.variable.partition('#')[0]} keeps a window in {told}."
        return draft.with_body(body).stepped(Step(self.name, setting, says))


# Reading


def _read(draft: Draft, node: s.For) -> tuple[Counted, tuple[Window, ...]]:
    form = draft.form
    if is_volatile(form.kernel, form):
        raise NotUnderstood("volatile memory or assembly")
    loop = counted(node, form)
    if not loop.is_own or loop.stride is None or not is_pure((loop.start, loop.bound)):
        raise NotUnderstood("a loop whose variable is declared outside")
    if has_jump(loop.body) or synchronises(loop.body, form):
        raise NotUnderstood("an early exit, a barrier or a warp collective in the loop")
    moved = all_written_names(loop.body, form) | declared_in(loop.body)
    known = _known(loop, moved)
    fixed = (set(scalars_of(form.kernel)) - moved) | s.BUILTINS | {loop.variable}
    places, plain = [], []
    for place in dict.fromkeys(x for x in s.below(loop.body) if isinstance(x, s.Index)):
        inlined = renamed(place, known)
        index = inlined.index
        steady = names_in(index) <= fixed and is_pure(index) and not reads_memory(index)
        if place.type in _HELD and steady and isinstance(inlined.base, s.Name) and (
            inlined.base.text not in moved
            and executes_unconditionally(loop.body, place, writes=False)
        ):  # fmt: skip
            places.append(place)
            plain.append(inlined)
    if len(places) < 2:
        raise NotUnderstood("no stencil loads")
    windows = _windows(draft, loop, places, plain)
    if not windows:
        raise NotUnderstood("no load that the next iteration reuses")
    return loop, windows


def _known(loop: Counted, moved: set[str]) -> dict[str, Any]:
    """Integers that the body declares and never changes, in terms of what is outside."""
    assigned = {x.target.text for x in s.below(loop.body)
                if isinstance(x, s.Assign | s.Step) and isinstance(x.target, s.Name)}  # fmt: skip
    found: dict[str, Any] = {}
    for x in loop.body:
        match x:
            case s.Declare(kind, name, pointer=False, extents=(), value=value) if (
                value is not None and kind in INTEGERS and name not in assigned
            ):
                plain = renamed(value, found)
                if is_pure(plain) and not reads_memory(plain) and not names_in(plain) & moved:
                    found[name] = plain if value.type == kind else s.Cast(kind, plain)
    return found


def _windows(
    draft: Draft, loop: Counted, places: Sequence[Any], plain: Sequence[Any]
) -> tuple[Window, ...]:
    facts = marked(draft.form, loop.node, plain)
    if facts.unmodelled:
        raise NotUnderstood(f"{', '.join(facts.unmodelled)} outside of the loop")
    aliasing = Aliasing(draft)
    inside = [a for a in facts.accesses if any(o.where == loop.node.where for o in a.loops)]
    writes = [a for a in inside if a.kind != "read"]
    symbol = next((o.symbol for o in facts.loops if o.where == loop.node.where), None)
    if symbol is None:
        raise NotUnderstood("a loop that no captured launch executes")
    rest: list[tuple[Access, Any, Any]] = []
    for nth, (place, inlined) in enumerate(zip(places, plain, strict=True)):
        mine = own_access(facts, nth)
        if mine is not None and mine.space in ("global", "shared") and not any(
            x.array == mine.array or not aliasing.apart(x, mine) for x in writes
        ):  # fmt: skip
            rest.append((mine, place, inlined))
    found: list[Window] = []
    while rest:
        first, *others = rest
        apart = [(_apart(first[0], x[0], symbol.name), x) for x in others]
        near = [(0, first), *((m, x) for m, x in apart if m is not None)]
        rest = [x for x in others if not any(x is y for _, y in near)]
        run = _run(near)
        if len(run) >= 2:
            found.append(Window(tuple(x[1] for x in run), tuple(x[2] for x in run), run[0][1].type))
    return tuple(found)


def _apart(one: Access, other: Access, name: str) -> int | None:
    """By how many iterations the second load is ahead of the first."""
    step = one.stride_bytes(name)
    if (one.array, one.type, one.member) != (other.array, other.type, other.member):
        return None
    if step is None or not step.terms or other.stride_bytes(name) != step:
        return None
    assert one.offset_bytes is not None
    assert other.offset_bytes is not None
    between = other.offset_bytes - one.offset_bytes
    steps = (m for m in range(-_LONGEST, _LONGEST + 1) if m and between == step * number(m))
    return next(steps, None)


def _run(near: Sequence[tuple[int, Any]]) -> list[Any]:
    """The longest run of neighbours, in order."""
    at = dict(near)
    best: list[Any] = []
    for start in sorted(at):
        run: list[Any] = []
        while start + len(run) in at:
            run.append(at[start + len(run)])
        best = max(best, run, key=len)
    return best


# Writing


def _written(
    draft: Draft, loop: Counted, windows: Sequence[Window]
) -> tuple[tuple[Any, ...], list[list[str]]]:
    """The statements that stand for the loop, and the windows' names."""
    taken: set[str] = set()
    names: list[list[str]] = []
    for window in windows:
        own = []
        for word in _WORDS.get(len(window.places), tuple(map(str, range(len(window.places))))):
            wanted = f"{root_of(window.places[0])}_{word}".replace("#", "_")
            while (name := draft.fresh_name(wanted)) in taken:
                wanted += "_too"
            taken.add(name)
            own.append(name)
        names.append(own)
    lines: list[Any] = []
    body: Any = loop.body
    turns: list[Any] = []
    begin = {loop.variable: _begin(loop)}
    for window, own in zip(windows, names, strict=True):
        for place, name in list(zip(window.plain, own, strict=True))[:-1]:
            lines.append(s.Declare(window.type, name, value=folded(renamed(place, begin))))
        held = dict(zip(window.places, map(s.Name, own), strict=True))
        ahead = s.Declare(window.type, own[-1], value=window.places[-1])
        body = _with_load(body, held, ahead)
        turns += [s.Evaluate(s.Assign(s.Name(a), "", s.Name(b))) for a, b in pairwise(own)]
    step = loop.node.body[len(loop.body) :]
    lines.append(replace(loop.node, body=(*body, *turns, *step)))
    if loop.trips():
        return tuple(lines), names
    guard = s.Binary(loop.operator, begin[loop.variable], loop.bound)
    return (s.If(guard, tuple(lines)),), names


def _begin(loop: Counted) -> Any:
    start = loop.start
    return start if getattr(start, "type", loop.type) == loop.type else s.Cast(loop.type, start)


def _with_load(body: Any, held: Any, ahead: s.Declare) -> tuple[Any, ...]:
    """The body with registers for loads, and the one load that is left as early as it can be."""
    needs = names_in(ahead.value)
    at = 0
    for n, x in enumerate(body):
        if isinstance(x, s.Declare) and x.name in needs:
            at = n + 1
    made = changed(tuple(body), lambda x: held.get(x, x) if isinstance(x, s.Index) else x)
    return (*made[:at], ahead, *made[at:])
