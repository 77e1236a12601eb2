"""The next tile's elements on their way from global memory while a block works on this one.

A loop that fills a tile in shared memory, waits at a barrier and works on the tile waits for global
memory in every iteration. Here each thread prefetches its part of the next tile into registers:
it loads that after the barrier, and the work on the tile stands between the load and its use.

Legal where the loop counts and is never left early, where what is put into the tile is made of
arrays that nothing in the launch writes (`aliasing`) and of variables that the loop does not
change, and where the next iteration's loads are made only if there is one: they are its own.

With two buffers an iteration fills the tile that the one before it does not work on, so that one
barrier is enough; legal where the work on a tile does nothing but read it and what nobody writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
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
    writes_memory,
)
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.interior import folded
from cudaops.transformations.loops import (
    Counted,
    analysable_loops,
    conditions,
    copy_of,
    counted,
    looks_ahead,
    loop_of,
    scoped,
)
from cudaops.transformations.shared_memory import extent, is_only_indexed, room_for
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed, declared_in, renamed, swapped

_MOST_SETTINGS = 4
_MOST_HELD = 16
"""Elements that a thread holds in registers."""
_BARRIER = s.Evaluate(s.Call("__syncthreads", ()))


class Prefetch:
    """The next tile is loaded into registers while the block works on this one."""

    name = "prefetch"
    title = "next tile prefetched into registers"
    family: Family = "tiling"
    relieves = frozenset({
        "stall_long_scoreboard", "stall_barrier", "stall_wait", "low_parallelism",
        "l2_bandwidth", "dram_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Loops over tiles, the hottest first."""
        found = (
            {**placed.setting, **more}
            for placed, _ in analysable_loops(draft, _read)
            for more in ({}, {"buffers": 2})
        )
        return tuple(islice(found, _MOST_SETTINGS))

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All tiles that one loop fills."""
        plan = _read(draft, loop_of(draft.form.kernel, setting["loop"]))
        names = " and ".join(f"`{x}`" for x in dict.fromkeys(h.array for h in plan.held))
        says = f"Prefetches the next {names} while the block works on the current one."
        made = draft.requiring(*conditions(draft, plan.loop, 1))
        body: Any = draft.form.kernel.body
        if setting.get("buffers") == 2:
            _refuse_second(draft, plan)
            says += " Double buffering needs one barrier per iteration."
            body = swapped(body, plan.loop.node, _twice(draft, plan, _written(draft, plan)))
            body = changed(body, lambda x: _doubled(x, {h.array for h in plan.held}))
        else:
            body = swapped(body, plan.loop.node, _written(draft, plan))
        return made.with_body(body).stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Held:
    """An element that a thread puts into a tile."""

    statement: s.Evaluate
    array: str
    target: s.Index


@dataclass(frozen=True)
class _Plan:
    loop: Counted
    before: tuple[Any, ...]
    """Barriers that the iteration begins with."""
    filling: tuple[Any, ...]
    """Up to the next barrier."""
    rest: tuple[Any, ...]
    held: tuple[_Held, ...]


# Reading


def _read(draft: Draft, node: s.For) -> _Plan:
    form = draft.form
    if is_volatile(form.kernel, form) or draft.facts.unmodelled:
        raise NotUnderstood("volatile memory or assembly")
    loop = counted(node, form)
    if not loop.is_own or loop.stride is None or has_jump(loop.body):
        raise NotUnderstood("a loop with an early exit, or whose variable is declared before it")
    if not is_pure((loop.start, loop.bound)) or reads_memory((loop.start, loop.bound)):
        raise NotUnderstood("a loop bound in memory")
    looks_ahead(loop)
    at = 0
    while at < len(loop.body) and loop.body[at] == _BARRIER:
        at += 1
    end = next((n for n, x in enumerate(loop.body) if n > at and x == _BARRIER), None)
    if end is None:
        raise NotUnderstood("no barrier between a tile and its use")
    before, filling, rest = loop.body[:at], loop.body[at:end], loop.body[end + 1 :]
    if not any(x == _BARRIER for x in (*before, *rest)):
        raise NotUnderstood("one barrier per two iterations")
    shared = {x.name for x in s.below(form.kernel.body) if isinstance(x, s.Declare) and x.shared}
    held = tuple(_held(filling, shared, draft))
    _is_known_ahead(draft, loop, filling, held)
    if not 0 < len(held) <= _MOST_HELD:
        raise NotUnderstood("no data to keep in registers, or too much")
    return _Plan(loop, before, filling, rest, held)


def _held(filling: Sequence[Any], shared: set[str], draft: Draft) -> list[_Held]:
    """What is loaded and put into tiles. Raises NotUnderstood for anything else that is done."""
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    found: list[_Held] = []
    for node in filling:
        match node:
            case s.Declare(pointer=False, shared=False, extents=(), value=value) if (
                value is not None and is_pure(value)
            ):
                continue
            case s.If(condition, yes, no) if is_pure(condition) and not reads_memory(condition):
                found += _held((*yes, *no), shared, draft)
            case s.Evaluate(s.Assign(s.Index() as target, "", value)) if (
                root_of(target) in shared and is_pure(value) and is_pure(target)
            ):
                if target.type not in sizes:
                    raise NotUnderstood("elements of unknown type")
                found.append(_Held(node, root_of(target) or "", target))
            case _:
                raise NotUnderstood("work besides loads before the barrier")
    return found


def _is_known_ahead(
    draft: Draft, loop: Counted, filling: Sequence[Any], held: Sequence[_Held]
) -> None:
    """Raises NotUnderstood unless what goes into the tiles can be loaded an iteration before."""
    memory = Memory(draft)
    own = declared_in(tuple(filling))
    plain = {x.name for x in filling if isinstance(x, s.Declare)}
    changing = all_written_names(loop.body, draft.form)
    if own != plain or changing & own or not memory.is_followed or draft.facts.calls:
        raise NotUnderstood("variables that change before the barrier")
    values = [h.statement.value.value for h in held]  # type: ignore[union-attr]
    inits = [x.value for x in filling if isinstance(x, s.Declare)]
    if not any(map(reads_memory, (*values, *inits))):
        raise NotUnderstood("a tile that is not loaded from global memory")
    conditions_of = [x.condition for x in s.below(tuple(filling)) if isinstance(x, s.If)]
    ahead = (*values, *inits, *conditions_of)
    moved = changing | (declared_in(loop.body) - own)
    if names_in(ahead) & (moved - {loop.variable}) or loop.variable in changing:
        raise NotUnderstood("a load whose address changes in the loop")
    for node in s.below(ahead):
        if isinstance(node, s.Index) or (isinstance(node, s.Unary) and node.operator in "*&"):
            root = root_of(node.operand if isinstance(node, s.Unary) else node)
            if root is None or not memory.is_read_only(root):
                raise NotUnderstood("a load that may alias a store")


def _refuse_second(draft: Draft, plan: _Plan) -> None:
    """Raises NotUnderstood unless two of each tile take the place of a barrier: what the block
    works on is the tiles and what nobody writes, and nobody else looks at the tiles."""
    body, memory = draft.form.kernel.body, Memory(draft)
    arrays = {h.array for h in plan.held}
    shared = {x.name: x for x in s.below(body) if isinstance(x, s.Declare) and x.shared}
    work = _without_last(plan.rest)
    if writes_memory(work, draft.form) or synchronises(work, draft.form):
        raise NotUnderstood("a tile that is not only read")
    for name in arrays:
        node = shared[name]
        if node.unsized or not is_only_indexed(draft, name, len(node.extents)):
            raise NotUnderstood(f"{name}, which is not an array of elements")
        inside = _mentions(plan.loop.node, name)
        if _mentions(body, name) != inside:
            raise NotUnderstood(f"{name}, which is used outside of the loop")
    for node in s.below(plan.rest):
        if isinstance(node, s.Name) and node.text in shared.keys() - arrays:
            raise NotUnderstood(f"{node.text}, which is not a tile of the loop")
        if isinstance(node, s.Index) or (isinstance(node, s.Unary) and node.operator == "*"):
            root = root_of(node)
            private = root is not None and any(
                isinstance(x, s.Declare) and x.name == root and x.extents and not x.shared
                for x in s.below(body)
            )
            if not private and root not in arrays and not (root and memory.is_read_only(root)):
                raise NotUnderstood("work that reads memory which may be written")
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    counts = [[extent(e) for e in shared[name].extents] for name in arrays]
    if any(None in c for c in counts):
        raise NotUnderstood("tiles of unknown size")
    more = sum(
        sizes[shared[name].type] * math.prod(e or 0 for e in c)
        for name, c in zip(arrays, counts, strict=True)
    )
    if more > room_for(draft):
        raise NotUnderstood("no room for a second tile")


def _without_last(rest: tuple[Any, ...]) -> tuple[Any, ...]:
    return rest[:-1] if rest and rest[-1] == _BARRIER else rest


def _mentions(node: Any, name: str) -> int:
    return sum(isinstance(x, s.Name) and x.text == name for x in s.below(node))


# Writing


def _twice(draft: Draft, plan: _Plan, lines: tuple[Any, ...]) -> tuple[Any, ...]:
    """The loop with one barrier, and tiles by turns."""
    *before, loop = lines
    which, arrays = draft.fresh_name("turn"), {h.array for h in plan.held}
    body = list(loop.body[len(plan.before) :])
    if body[-1] == _BARRIER:
        body.pop()
    names = {a: s.Index(s.Name(a), s.Name(which)) for a in arrays}
    body = [*renamed(tuple(body), names), Raw(f"{which} ^= 1;")]
    return (*before, Raw(f"int {which} = 0;"), replace(loop, body=tuple(body)))


def _doubled(node: Any, arrays: set[str]) -> Any:
    """The declaration of a tile, of two of them."""
    if isinstance(node, s.Declare) and node.shared and node.name in arrays:
        return replace(node, extents=(s.Number("2", type="int"), *node.extents))
    return node


def _written(draft: Draft, plan: _Plan) -> tuple[Any, ...]:
    """What stands for the loop."""
    names: dict[int, str] = {}
    places: dict[Any, str] = {}
    taken: set[str] = set()
    for one in plan.held:
        if one.target in places:
            names[id(one.statement)] = places[one.target]
            continue
        wanted = f"{one.array.partition('#')[0]}_next"
        while (name := draft.fresh_name(wanted)) in taken:
            wanted += "_too"
        taken.add(name)
        names[id(one.statement)] = places[one.target] = name
    loop = plan.loop
    begin: Any = loop.start
    if getattr(begin, "type", loop.type) != loop.type:
        begin = s.Cast(loop.type, begin)
    used = names_in((plan.rest, _stored(plan.filling, names)))
    filled = tuple(
        x for x in _stored(plan.filling, names)
        if not isinstance(x, s.Declare) or x.name in used
    )  # fmt: skip
    ahead = s.If(
        s.Binary(loop.operator, loop.after(1), loop.bound), _loads(plan, names, loop.after(1))
    )
    body = (*plan.before, *filled, _BARRIER, ahead, *plan.rest)
    step = loop.node.body[len(loop.body) :]
    declared = [s.Declare(target.type, name) for target, name in places.items()]
    first = _loads(plan, names, begin)
    if not loop.trips():
        first = (s.If(s.Binary(loop.operator, begin, loop.bound), first),)
    else:
        first = scoped(first)
    return (*declared, *first, replace(loop.node, body=(*body, *step)))


def _stored(filling: Sequence[Any], names: dict[int, str]) -> tuple[Any, ...]:
    """What puts registers into the tiles."""
    found: list[Any] = []
    for node in filling:
        match node:
            case s.If(_, yes, no):
                found.append(replace(node, yes=_stored(yes, names), no=_stored(no, names)))
            case s.Evaluate(s.Assign() as assign):
                value = s.Name(names[id(node)])
                found.append(replace(node, value=replace(assign, value=value)))
            case _:
                found.append(node)
    return tuple(found)


def _loads(plan: _Plan, names: dict[int, str], at: Any) -> tuple[Any, ...]:
    """What loads the registers in the iteration that begins with this value of the variable."""
    made = copy_of(_loading(plan.filling, names), {s.Name(plan.loop.variable): at})
    return tuple(map(folded, made))


def _loading(filling: Sequence[Any], names: dict[int, str]) -> tuple[Any, ...]:
    found: list[Any] = []
    for node in filling:
        match node:
            case s.If(_, yes, no):
                found.append(replace(node, yes=_loading(yes, names), no=_loading(no, names)))
            case s.Evaluate(s.Assign() as assign):
                held = replace(assign, target=s.Name(names[id(node)]))
                found.append(replace(node, value=held))
            case _:
                found.append(node)
    return tuple(found)
