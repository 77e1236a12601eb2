"""A loop that makes the loads of a few iterations before it works on them, whatever their stride.

    for (int j = threadIdx.x; j < n; j += blockDim.x) work(x[j]);

waits for memory in every iteration where the compiler does not move the loads of the next ones up:
it does not past a branch, which a division or a function of the library holds. Here a thread sends
the loads of several iterations together and works on them in their order, so that nothing is
rounded otherwise; a second loop does the iterations that are left.

Legal where the loop counts and is never left early, where every iteration makes the loads, and
where their addresses are made of the loop's variable, of what the loop does not change and of such
loads (`x[column[j]]`), of arrays that nothing in the launch writes (`aliasing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    synchronises,
)
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import (
    Counted,
    analysable_loops,
    by_several,
    conditions,
    copy_of,
    counted,
    is_innermost,
    looks_ahead,
    loop_of,
    plainly_declared,
    scoped,
    size_of,
)
from cudaops.transformations.scalar_replace import executes_unconditionally
from cudaops.transformations.trees import changed, declared_in, swapped
from cudaops.transformations.variables import Variables

_FACTORS = (4, 8)
_MOST_SETTINGS = 4
_MOST_LOADS = 6
_MOST_HELD = 32
"""Elements that a thread holds in registers."""
_LARGEST = 150
"""Operations of an iteration, beyond which its own loads hide each other."""


class LoadsFirst:
    """The loads of a few iterations, then their work in its order."""

    name = "loads_first"
    title = "loads of several iterations first"
    family: Family = "unrolling"
    relieves = frozenset({
        "stall_long_scoreboard", "low_parallelism", "dram_bandwidth", "l2_bandwidth",
        "occupancy_grid", "occupancy_registers",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """The hottest loops past whose branches the compiler moves no load."""
        found: list[Setting] = []
        for placed, plan in analysable_loops(draft, _read):
            if _is_straight(plan.loop.body) and not plan.gathers:
                continue
            try:
                conditions(draft, plan.loop, 1)
            except NotUnderstood:
                continue
            trips = plan.loop.trips() or max(_FACTORS)
            most = _MOST_HELD // len(plan.loads)
            found += [placed.setting | {"factor": f} for f in _FACTORS if f <= min(trips, most)]
        return tuple(found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One loop."""
        factor = int(setting["factor"])
        plan = _read(draft, loop_of(draft.form.kernel, setting["loop"]))
        trips = plan.loop.trips()
        if trips is not None and trips < factor:
            raise NotUnderstood("a trip count below the factor")
        body = swapped(draft.form.kernel.body, plan.loop.node, _written(draft, plan, factor))
        needs = () if trips is not None else conditions(draft, plan.loop, factor - 1)
        says = (
            f"Issues the loads of {factor} iterations of the loop over "
            f"{plan.loop.variable.partition('#')[0]} first."
        )
        return draft.with_body(body).requiring(*needs).stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Load:
    place: s.Index
    """As the iteration says it."""
    meant: s.Index
    """With the values of the iteration's own variables in their places."""


@dataclass(frozen=True)
class _Plan:
    loop: Counted
    loads: tuple[_Load, ...]
    """Those whose elements others have in their addresses first."""

    @property
    def gathers(self) -> bool:
        """Whether an address stands in memory."""
        return any(reads_memory(x.meant.index) for x in self.loads)


# Reading


def _is_straight(body: Sequence[Any]) -> bool:
    """Whether it is without branches, those of divisions and of a library's functions included."""
    for x in s.below(tuple(body)):
        if isinstance(x, s.If | s.Choice | s.Switch | s.Call):
            return False
        if isinstance(x, s.Binary | s.Assign) and x.operator in ("/", "%", "&&", "||"):
            return False
    return True


def _read(draft: Draft, node: s.For) -> _Plan:
    form = draft.form
    if is_volatile(form.kernel, form) or draft.facts.unmodelled or draft.facts.calls:
        raise NotUnderstood("volatile memory, or an unknown function")
    loop = counted(node, form)
    looks_ahead(loop)
    if not is_innermost(node) or has_jump(loop.body) or synchronises(loop.body, form):
        raise NotUnderstood("a loop with an early exit, a barrier or a warp collective")
    if size_of(loop.body, form) > _LARGEST:
        raise NotUnderstood("a loop body too large to gain from it")
    loads = tuple(_loads(draft, loop))
    if not 0 < len(loads) <= _MOST_LOADS:
        raise NotUnderstood("no unconditional loads, or too many for registers")
    return _Plan(loop, loads)


def _loads(draft: Draft, loop: Counted) -> Iterator[_Load]:
    memory, variables = Memory(draft), Variables(draft)
    own = {
        x.name: x for x in loop.body
        if isinstance(x, s.Declare) and x.value is not None and not variables.is_changed(x.name)
        and not (x.pointer or x.shared or x.extents)
    }  # fmt: skip
    moved = all_written_names(loop.body, draft.form) | declared_in(loop.body)

    def meant(node: Any) -> Any:
        def value(x: Any) -> Any:
            if not isinstance(x, s.Name) or x.text not in own:
                return x
            kind, held = own[x.text].type, meant(own[x.text].value)
            return held if getattr(held, "type", "") == kind else s.Cast(kind, held)

        return changed(node, value)

    def is_known(place: Any) -> bool:
        return (
            isinstance(place, s.Index)
            and isinstance(place.base, s.Name)
            and memory.is_read_only(place.base.text)
            and not variables.is_changed(place.base.text)
            and place.base.text not in moved
        )

    def is_address(index: Any) -> bool:
        """Whether it is known some iterations before."""
        names = names_in(index)
        pointed = any(isinstance(x, s.Unary) and x.operator in "*&" for x in s.below(index))
        followed = all(is_known(x) for x in s.below(index) if isinstance(x, s.Index))
        return (
            loop.variable in names and not names & (moved - {loop.variable})
            and is_pure(index) and followed and not pointed
        )  # fmt: skip

    places = dict.fromkeys(x for x in s.below(loop.body) if isinstance(x, s.Index))
    found = [
        _Load(x, replace(x, index=meant(x.index))) for x in places
        if is_known(x) and x.type in ELEMENT_BYTES
        and executes_unconditionally(loop.body, x, writes=False)
    ]  # fmt: skip
    yield from sorted(
        (x for x in found if is_address(x.meant.index)), key=lambda x: _depth(x.meant)
    )


def _depth(place: Any) -> int:
    """How many loads follow each other to it."""
    return sum(isinstance(x, s.Index) for x in s.below(place))


# Writing


def _written(draft: Draft, plan: _Plan, factor: int) -> tuple[Any, ...]:
    """The loop with loads first, and one for what is left."""
    loop, stems = plan.loop, _stems(plan.loads)
    before: list[Any] = []
    turns: list[tuple[Any, ...]] = []
    names: list[dict[Any, Any]] = []
    taken: set[str] = set()
    for nth in range(factor):
        held: dict[Any, Any] = {}
        for x, stem in zip(plan.loads, stems, strict=True):
            held[x] = s.Name(draft.fresh_name_beside(f"{stem}_{nth}", taken))
        names.append(held)
    for x in plan.loads:
        for nth in range(factor):
            known = {y.meant: names[nth][y] for y in plan.loads if y is not x}
            place = replace(x.meant, index=_with(x.meant.index, known))
            at = copy_of((s.Evaluate(place),), {s.Name(loop.variable): loop.after(nth)})
            before.append(s.Declare("const auto", names[nth][x].text, value=at[0].value))
    for nth in range(factor):
        work = _without_unused(_with(loop.body, {x.place: names[nth][x] for x in plan.loads}))
        moved = {s.Name(loop.variable): loop.after(nth)}
        turns += scoped(copy_of(work, moved) if nth else work)
    lines = by_several(loop, factor, (*before, *turns))
    own = loop.is_own and not plainly_declared(draft.form.kernel, loop.variable)
    return (s.Block(lines),) if own and len(lines) > 1 else lines


def _without_unused(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without variables for what now has another name."""
    used = names_in(body)
    return tuple(
        x for x in body
        if not (isinstance(x, s.Declare) and x.name not in used and is_pure(x.value))
    )  # fmt: skip


def _with(node: Any, known: Mapping[Any, Any]) -> Any:
    """With names for these places, in whose addresses others of them may stand."""
    outer = dict(known)
    for place, name in known.items():
        others = {p: n for p, n in known.items() if p is not place}
        outer[_named(place, others)] = name
    return _named(node, outer)


def _named(node: Any, known: Mapping[Any, Any]) -> Any:
    return changed(node, lambda x: known.get(x, x) if isinstance(x, s.Index) else x)


def _stems(loads: Sequence[_Load]) -> list[str]:
    """What the held elements are called: `x`, or `x_too` of a second place."""
    found: list[str] = []
    for x in loads:
        stem = x.place.base.text.partition("#")[0]  # type: ignore[union-attr]
        while stem in found:
            stem += "_too"
        found.append(stem)
    return found
