"""A loop in strips of a few iterations: their loads first, their stores last.

    for (int j = 0; j < n; ++j) sum += f(x[row * n + j]);

reads four neighbouring elements before it works on them, which `vectorise` makes one vector, and of
which `cooperate` gives each lane a strip. Iterations keep their order, so that nothing is rounded
otherwise.

Legal where the loop counts up by one, is never left early and runs a whole number of strips, which
is a condition of the launch; where every iteration makes the loads, of arrays that nothing in the
launch writes (`aliasing`); and where the loop touches what it stores nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from cudaops.program.analysis.polynomials import Symbol, number
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations, Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import (
    Counted,
    conditions,
    counted,
    hottest,
    is_innermost,
    loop_of,
)
from cudaops.transformations.scalar_replace import executes_unconditionally
from cudaops.transformations.splitting import WORDS
from cudaops.transformations.trees import changed, declared_in, renamed, swapped
from cudaops.transformations.variables import Variables

FACTORS = (4, 2)
_MOST_SETTINGS = 4
_MOST_ARRAYS = 6


class Strip:
    """The loads of a few iterations first, then their work, then their stores."""

    name = "strip"
    title = "loads of several iterations batched"
    family: Family = "vector_loads"
    relieves = frozenset({
        "issue_slots", "stall_lg_throttle", "stall_long_scoreboard", "dram_bandwidth",
        "l1_load_throughput", "l2_bandwidth", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All such loops at once, then the hottest ones alone."""
        loops = [x.setting for x in hottest(draft) if _can(draft, x.node)]
        alone = loops if len(loops) > 1 else []
        wanted = [{"loop": "all"} for _ in loops[:1]] + alone
        found = [{**one, "factor": f} for f in FACTORS for one in wanted]
        return tuple(found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One loop, or all."""
        factor = int(setting["factor"])
        body: Any = draft.form.kernel.body
        nodes = [x for x in s.below(body) if isinstance(x, s.For) and _can(draft, x)]
        if setting["loop"] != "all":
            nodes = [loop_of(draft.form.kernel, setting["loop"])]
        requires: list[LaunchExpression] = []
        for node in nodes:
            strip = _read(draft, node)
            requires += [*_whole(draft, strip.loop, factor), *conditions(draft, strip.loop, factor)]
            body = swapped(body, node, _written(draft, strip, factor))
        if not nodes:
            raise NotUnderstood("no loop over adjacent elements")
        made = draft.requiring(*requires).with_body(body)
        if not any(made.resolved):
            raise NotUnderstood("a trip count that is not a multiple of the strip length")
        says = f"Issues the loads of {factor} iterations first."
        return made.stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Strip:
    loop: Counted
    loads: tuple[s.Index, ...]
    stores: tuple[s.Evaluate, ...]


def _can(draft: Draft, node: s.For) -> bool:
    try:
        _whole(draft, _read(draft, node).loop, FACTORS[-1])
    except NotUnderstood:
        return False
    return True


# Reading


def _read(draft: Draft, node: s.For) -> _Strip:
    form = draft.form
    if is_volatile(form.kernel, form) or draft.facts.unmodelled or draft.facts.calls:
        raise NotUnderstood("volatile memory, or an unknown function")
    loop = counted(node, form)
    if not loop.is_own or loop.stride != 1 or loop.operator != "<" or loop.node.body != loop.body:
        raise NotUnderstood("a loop whose step is not 1")
    if not is_innermost(node) or has_jump(loop.body) or synchronises(loop.body, form):
        raise NotUnderstood("a loop with an early exit, a barrier or a warp collective")
    memory, variables = Memory(draft), Variables(draft)
    pointers = {p.name for p in form.kernel.parameters if p.is_pointer and p.type in WORDS}
    pointers = {n for n in pointers if not variables.is_changed(n)}
    moved = (all_written_names(loop.body, form) | declared_in(loop.body)) - {loop.variable}

    def is_next(place: Any) -> bool:
        """Whether each iteration's element is the neighbour of the one before."""
        if not isinstance(place, s.Index) or not isinstance(place.base, s.Name):
            return False
        at = variables.polynomial(place.index, loop.variable)
        parts = None if at is None else at.linear_in(Symbol(loop.variable))
        index = variables.inlined(place.index, {loop.variable: s.Name(loop.variable)})
        steady = not names_in(index) & moved and is_pure(index) and not reads_memory(index)
        near = parts is not None and parts[0] == number(1)
        return place.base.text in pointers and near and steady

    stores = tuple(_stores(draft, loop, is_next))
    places = dict.fromkeys(x for x in s.below(loop.body) if isinstance(x, s.Index))
    loads = tuple(
        x for x in places
        if is_next(x) and memory.is_read_only(x.base.text)  # type: ignore[union-attr]
        and executes_unconditionally(loop.body, x, writes=False)
    )  # fmt: skip
    if not loads or len(loads) + len(stores) > _MOST_ARRAYS:
        raise NotUnderstood("no stencil loads, or too many for registers")
    return _Strip(loop, loads, stores)


def _stores(draft: Draft, loop: Counted, is_next: Any) -> Iterator[s.Evaluate]:
    """Stores of every iteration, to where the loop does nothing else."""
    allocations = Allocations(draft)
    accesses = [a for a in draft.facts.accesses
                if any(o.where == loop.node.where for o in a.loops)]  # fmt: skip
    for x in loop.body:
        match x:
            case s.Evaluate(s.Assign(s.Index(s.Name(array)) as place, "", _)) if is_next(place):
                others = [a for a in accesses if a.space != "local" and not (
                    a.array != array and (a.space == "shared" or allocations.apart(a.array, array))
                )]  # fmt: skip
                if len(others) == 1 and others[0].kind == "write":
                    yield x


def _whole(draft: Draft, loop: Counted, factor: int) -> list[LaunchExpression]:
    """The condition that the loop runs a whole number of strips."""
    variables = Variables(draft)
    ends = [variables.polynomial(x) for x in (loop.bound, loop.start)]
    if ends[0] is None or ends[1] is None:
        raise NotUnderstood("an unknown trip count")
    turns = ends[0] - ends[1]
    parameters = {p.name for p in draft.form.kernel.parameters}
    names = {getattr(a, "name", "") for a in turns.atoms()}
    if not names <= parameters or any(map(variables.is_changed, names)):
        raise NotUnderstood("a trip count that differs between threads")
    if (count := turns.constant) is not None:
        if count % factor or count <= factor:
            raise NotUnderstood("a trip count that is not a multiple of the strip length")
        return []
    condition = (turns.launch_expression(draft.launch_expression) % factor).equals(0)
    if not any(draft.requiring(condition).resolved):
        raise NotUnderstood("a trip count that is not a multiple of the strip length")
    return [condition]


# Writing


def _written(draft: Draft, strip: _Strip, factor: int) -> s.For:
    loop, item = strip.loop, draft.fresh_name("item")
    ahead = s.Binary("+", s.Name(loop.variable, type=loop.type), s.Name(item, type="int"),
                     type=loop.type)  # fmt: skip
    names = _names(draft, strip)
    size = s.Number(str(factor), type="int")
    before: list[Any] = [
        s.Declare(x.type, names[x], extents=(size,)) for x in dict.fromkeys(_held(strip))
    ]

    def own(x: Any) -> Any:
        return s.Index(s.Name(names[x]), s.Name(item))

    def over(body: Sequence[Any]) -> s.For:
        start = s.Declare("int", item, value=s.Number("0"))
        test = s.Binary("<", s.Name(item), size)
        return s.For((start,), test, (s.Step(s.Name(item), 1),), tuple(body))

    moved = {loop.variable: ahead}
    variables = Variables(draft)

    def next_to(x: Any) -> Any:
        return replace(x, index=variables.inlined(x.index, moved))

    for x in strip.loads:
        before.append(over([s.Evaluate(s.Assign(own(x), "", next_to(x)))]))
    targets = {id(x.value.target): x.value.target for x in strip.stores}  # type: ignore[union-attr]
    work = changed(
        loop.body,
        lambda x: own(targets[id(x)]) if id(x) in targets
        else own(x) if isinstance(x, s.Index) and x in strip.loads else x,
    )  # fmt: skip
    work = renamed(work, moved)
    after = [over([s.Evaluate(s.Assign(next_to(t), "", own(t)))]) for t in targets.values()]
    step = s.Assign(s.Name(loop.variable), "+", size)
    return replace(loop.node, step=(step,), body=(*before, over(work), *after))


def _held(strip: _Strip) -> Iterator[Any]:
    yield from strip.loads
    for x in strip.stores:
        yield x.value.target  # type: ignore[union-attr]


def _names(draft: Draft, strip: _Strip) -> dict[Any, str]:
    """By element: the array that holds a strip of it."""
    found: dict[Any, str] = {}
    for x in _held(strip):
        wanted = f"{x.base.text}_strip".replace("#", "_")
        while (name := draft.fresh_name(wanted)) in found.values():
            wanted += "_too"
        found[x] = name
    return found
