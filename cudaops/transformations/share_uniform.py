"""Loops that all threads of a warp go through alike, shared by them.

A thread that works out its row's maximum before it writes one element of the row does what every
other thread of the row does. Each takes a part of the iterations, and all get the whole result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    has_effects,
    has_jump,
    is_volatile,
    local_variables,
    names_in,
    pure_functions,
    reads_memory,
)
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import FULL, Sharing, ThreadGroup, choose, limits
from cudaops.transformations.splitting import Loops, Split
from cudaops.transformations.text import Raw
from cudaops.transformations.thread_communication import WARP
from cudaops.transformations.trees import declared_in, is_barrier

_NARROW = (16, 8)
"""Widths of blocks whose rows are a part of a warp each."""
_LEAST_TRIPS = 8
"""A shorter loop is as quick in every thread."""


@dataclass(frozen=True)
class _Alike:
    """A kernel as what leads to its loops, who is left out, the loops, and all the rest."""

    before: tuple[Any, ...]
    left_out: Any
    """The condition under which a thread has nothing to do; None where all have."""
    loops: tuple[Any, ...]
    rest: tuple[Any, ...]
    chosen: Mapping[int, Split]


class ShareUniform:
    """Threads that differ in `threadIdx.x` alone share the loops that come to the same for all.

    Legal where all of them come there: at the kernel's top, behind what each declares, and behind
    conditions under which a thread has nothing to do, which is put off until the loops are over: it
    helps as long as one thread of its team has something to do. What the loops read nobody stores
    to, and nothing in them depends on `threadIdx.x`.
    """

    name = "share_uniform"
    title = "uniform loops divided among threads"
    family: Family = "reduction"
    relieves = frozenset({
        "l1_load_throughput", "issue_slots", "sfu_pipe", "fma_pipe", "fp64_pipe", "stall_wait",
        "stall_long_scoreboard", "low_parallelism", "stall_lg_throttle", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All such loops at once."""
        lanes = _lanes(draft)
        if lanes is None:
            return ()
        _read(draft)
        return ({"lanes": lanes},)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guarded by the block's width."""
        lanes = _lanes(draft)
        if lanes is None or lanes != setting["lanes"]:
            raise NotUnderstood("blocks with another width")
        found = _read(draft)
        lane, guards, lines = draft.fresh_name("lane"), [], list[Any](found.before)
        x = draft.launch_expression("blockDim.x")
        if lanes == WARP:
            mask = FULL
            guards.append((x % WARP).equals(0))
            lines.append(Raw(f"const int {lane} = threadIdx.x % {WARP};  // of the warp"))
        else:
            mask = draft.fresh_name("row_lanes")
            guards += [x.equals(lanes), draft.launch_expression("blockDim.z").equals(1)]
            rows = f"threadIdx.y % {WARP // lanes} * {lanes}"
            lines.append(Raw(f"const int {lane} = threadIdx.x;  // of its row of the block"))
            lines.append(Raw(f"const unsigned {mask} = {hex((1 << lanes) - 1)}u << {rows};"))
        works = draft.fresh_name("works")
        if found.left_out is not None:
            left_out = s.Unary("!", found.left_out, type="bool")
            lines.append(s.Declare("const bool", works, value=left_out))
            lines.append(Raw(f"if (!__any_sync({mask}, {works})) return;"))
        team = ThreadGroup(draft, lanes, lane, mask)
        loops = Loops(draft)
        lines += Sharing(draft, loops, team, found.chosen, found.loops).shared(whole_kernel=False)
        if found.left_out is not None:
            lines.append(Raw(f"if (!{works}) return;"))
        lines += found.rest
        guards += limits(draft, found.chosen.values(), lanes)
        says = f"Divided the uniform loops of {lanes} threads among them."
        made = draft.with_body(tuple(lines)).requiring(*guards)
        return made.stepped(Step(self.name, setting, says))


def _lanes(draft: Draft) -> int | None:
    """How many threads in a row make up a team."""
    if all(w.block.x % WARP == 0 for w in draft.workloads):
        return WARP
    width = draft.value("blockDim.x")
    return int(width) if width in _NARROW and draft.value("blockDim.z") == 1 else None


def _read(draft: Draft) -> _Alike:
    """Raises NotUnderstood where there is no such loop."""
    if is_volatile(draft.form.kernel, draft.form):
        raise NotUnderstood("volatile memory or assembly")
    body = draft.form.kernel.body
    local, pure = set(local_variables(body)), pure_functions(draft.form)
    local |= {p.name for p in draft.form.kernel.parameters if not p.is_pointer}

    def is_quiet(x: Any) -> bool:
        return not has_effects(x, local, pure) and not any(
            isinstance(y, s.Give | s.Refer | s.Opaque | s.Unmodelled)
            or (isinstance(y, s.Leave) and y.word not in ("break", "continue"))
            or (isinstance(y, s.Declare) and (y.shared or y.extents))
            or is_barrier(y)
            for y in s.below(x)
        )

    before, left_out, inner = _opened(body, is_quiet)
    same = {p.name for p in draft.form.kernel.parameters} | s.BUILTINS
    for x in before:
        if _is_alike(x, same):
            same.add(x.name)
    loops, chosen, end = Loops(draft), dict[int, Split](), 0
    trips = {o.where: o.trips.high for o in draft.facts.loops}

    def wanted(loop: s.For) -> bool:
        most = trips.get(loop.where, 0)
        return (most is None or most >= _LEAST_TRIPS) and not has_jump(loop.body)

    for at, x in enumerate(inner):
        alike = is_quiet(x) and _is_alike(x, same)
        if not alike and not (isinstance(x, s.Declare) and _is_plain(x, is_quiet)):
            break
        if alike and isinstance(x, s.Declare):
            same.add(x.name)
        if alike and (more := choose(loops, (x,), wanted)):
            chosen, end = chosen | more, at + 1
    if not chosen:
        raise NotUnderstood("no uniform loop")
    _refuse_stored(draft, loops, inner[:end])
    return _Alike(before, left_out, tuple(inner[:end]), tuple(inner[end:]), chosen)


def _is_alike(x: Any, same: Collection[str]) -> bool:
    """Whether threads that differ in `threadIdx.x` alone do the same, and leave the same in
    variables; `same`: those in which they find the same. Memory that is read stays as it is."""
    known = {*same, *declared_in((x,))} - {"threadIdx"}

    def visit(node: Any) -> bool:
        match node:
            case s.Member(s.Name("threadIdx"), axis):
                return axis != "x"
            case s.Name(text):
                return text in known
            case s.Unary("&"):
                return False
        return all(map(visit, s.children(node)))

    return visit(x)


def _is_plain(x: Any, is_quiet: Callable[[Any], bool]) -> bool:
    """Whether any thread may work it out: it changes no variable, and reads no memory."""
    changes = any(isinstance(y, s.Assign | s.Step) for y in s.below(x))
    return is_quiet(x) and not changes and not reads_memory(x)


def _opened(
    body: Sequence[Any], is_quiet: Callable[[Any], bool]
) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    """What each thread declares, the condition under which it does no more, and what follows."""
    conditions: list[Any] = []
    begin = 0
    for at, x in enumerate(body):
        match x:
            case s.Declare() if _is_plain(x, is_quiet):
                continue
            case s.If(condition, (s.Leave("return"),), ()) if _is_plain(condition, is_quiet):
                conditions.append(condition)
                begin = at + 1
                continue
            case s.If(condition, yes, ()) if at == len(body) - 1 and _is_plain(condition, is_quiet):
                conditions.append(s.Unary("!", condition, type="bool"))
                return _declared(body[:at]), _any_of(conditions), tuple(yes)
        break
    return _declared(body[:begin]), _any_of(conditions), tuple(body[begin:])


def _declared(body: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(x for x in body if isinstance(x, s.Declare))


def _any_of(conditions: Sequence[Any]) -> Any:
    if not conditions:
        return None
    return reduce(lambda a, b: s.Binary("||", a, b, type="bool"), conditions)


def _refuse_stored(draft: Draft, loops: Loops, body: Sequence[Any]) -> None:
    """Raise NotUnderstood where what the body reads may be stored to by the kernel: their
    iterations look at it in another order."""
    facts = draft.facts
    if facts.unmodelled or facts.calls:
        raise NotUnderstood(f"what {(*facts.unmodelled, *facts.calls)[0]} does")
    where = [x.where for x in body if x.where is not None]
    reads = [a for a in facts.accesses if any(w.holds(a.where) for w in where)]
    stores = [a for a in facts.accesses if a.kind != "read" and a.space != "local"]
    for read in reads:
        if read.space not in ("global", "constant", "module", "local"):
            raise NotUnderstood(f"{read.array} in {read.space} memory")
        if any(loops.may_meet(store, read) for store in stores):
            raise NotUnderstood(f"{read.array}, which the kernel stores to")
    if names_in(tuple(body)) & {"warpSize"}:
        raise NotUnderstood("a loop that reads warpSize")
