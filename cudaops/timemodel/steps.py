"""Orders the work of straight code into steps: loads that go out together, then what waits for
them.
 How nvcc schedules, read off its SASS (13.0.88, sm_86 and sm_90): loads from global memory are
hoisted to the top of straight code as far as their addresses and earlier stores allow; loads from
shared memory stay close to their use; an innermost loop with an unknown trip count is unrolled, by
4, by 16 if small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cudaops.timemodel import costs as cost
from cudaops.timemodel.aliasing import GlobalAccesses
from cudaops.timemodel.gimple import (
    GimpleFunction,
    GimpleStatement,
    array_base,
    bytes_of,
    is_reference,
    ssa_names,
)
from cudaops.timemodel.instructions import Op
from cudaops.timemodel.work import NOTHING, MemorySite, Mix, Use, WorkStep

SMALL_BODY = 14.0
LARGE_BODY = 32.0
"""Instructions of a loop body: up to the first unrolled 16 times, up to the second 4 times. One of
39 with an exponential in double precision stays as it is."""

MOST_LOADS = 16
"""Loads of one thread in flight at once, in registers. In a loop unrolled 16 times with two loads
an iteration, nvcc 13.0 (sm_90) sends 18 before the first work that waits for one."""


@dataclass
class _Draft:
    loads: dict[int, float] = field(default_factory=dict)
    stores: dict[int, float] = field(default_factory=dict)
    mix: Mix = NOTHING
    chain: float = 0.0
    registers: float = 0.0
    shared: bool = False
    consumed: bool = False
    follows: bool = False
    behind: bool = False
    joins: bool = False
    needs: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Value:
    depth: int
    """Step of the last load it comes from; -1: none in this run."""
    home: int
    """Step whose work makes it."""
    chain: float
    loads: frozenset[int]
    """`WorkStep.needs` of work on it: loads it is made of with nothing but renaming in between."""


@dataclass
class _Unread:
    """A load from global memory that no work has read yet."""

    op: Op
    share: float
    step: int
    names: set[str]
    """Its value and what only renames it."""


class Scheduler:
    """Turns the operations of one straight run into steps."""

    def __init__(
        self,
        function: GimpleFunction,
        sites: Sequence[MemorySite],
        weight: Callable[[int, float], float],
        aliasing: GlobalAccesses,
        branching: frozenset[Mix] = cost.BRANCHING,
        sinks: bool = False,
    ) -> None:
        """`weight(site, threads)`: warp instructions of a site where `threads` lanes' worth of
        accesses fall on one pass of the run. `branching`: work that nothing is moved past.
        `sinks`: a loop's body without stores (`_sink`)."""
        self._function = function
        self._sites = sites
        self._weight = weight
        self._aliasing = aliasing
        self._branching = branching
        self._sinks = sinks
        self._drafts: list[_Draft] = [_Draft()]
        self._values: dict[str, _Value] = {}
        self._loaded: list[GimpleStatement] = []
        self._unread: list[_Unread] = []
        self._stored: list[tuple[GimpleStatement, int]] = []
        self._shared_loads: list[GimpleStatement] = []
        self._shared_stores: list[GimpleStatement] = []
        self._shared_at = 0
        self._now = 0
        self._decided = -1
        self._joined = 0

    def under(self, conditions: Sequence[GimpleStatement]) -> None:
        """What is added next only happens where these hold: it is loaded once they are known."""
        for condition in conditions:
            self._use(condition)
        read = [v for condition in conditions for v in self._read(condition)]
        self._decided = max((v.depth for v in read), default=-1)

    def add(self, op: Op, share: float) -> None:
        """The next operation, which `share` (0-1) of the passes execute."""
        needs = self._read(op.statement)
        depth = max((v.depth for v in needs), default=-1)
        if op.loads:
            depth = self._load(op, share, depth)
        home = max(depth, self._now)
        chain = max((v.chain for v in needs if v.home == home), default=0.0)
        waits: frozenset[int] = frozenset().union(*(v.loads for v in needs))
        if op.loads:
            waits = frozenset((2 * depth + (not self._shared(op)),))
        if op.stores or (op.mix.issued and not op.loads):
            self._work(op, home, waits)
            chain += op.latency
            waits = frozenset()
        for site in op.stores:
            self._store(op.statement, site, share, home)
        draft = self._draft(home)
        draft.chain = max(draft.chain, chain)
        if op.mix in self._branching:
            draft.joins = True
            self._now = self._joined = home + 1
            self._shared_at = max(self._shared_at, home + 1)
        name = self._written(op.statement)
        if name:
            self._values[name] = _Value(depth, home, 0.0 if op.loads else chain, waits)
        self._note(op, share, depth, name)
        if self._sinks and op.mix in self._branching:
            self._sink(home + 1)

    def _note(self, op: Op, share: float, step: int, name: str | None) -> None:
        """Keep track of the loads from global memory that nothing has read."""
        if op.loads or op.stores or op.mix.issued:
            self._use(op.statement)
        elif name:
            for load in self._unread:
                if not load.names.isdisjoint(op.statement.uses):
                    load.names.add(name)
        if op.loads and not op.stores and name and self._decided < 0 and not self._shared(op):
            self._unread.append(_Unread(op, share, step, {name}))

    def _use(self, statement: GimpleStatement) -> None:
        self._unread = [u for u in self._unread if u.names.isdisjoint(statement.uses)]

    def _sink(self, step: int) -> None:
        """nvcc moves loads that are first read behind a branching call behind it, in the body of a
        loop; not in straight code, not guarded loads, not in a body that stores. Measured: SASS of
        16 kernels that load four elements and then divide or take roots (nvcc 13.0.88, sm_90, nine
        of them on sm_80 too, 2026-12-01)."""
        for load in self._unread:
            source, draft = self._drafts[load.step], self._draft(step)
            for site in load.op.loads:
                count = self._weight(site, load.share)
                source.loads[site] -= count
                if source.loads[site] < count / 1024:
                    del source.loads[site]
                draft.loads[site] = draft.loads.get(site, 0.0) + count
                registers = load.share * max(load.op.loaded_bytes, 4) / 4
                source.registers -= registers
                draft.registers += registers
            source.mix += load.op.mix.times(-1.0)
            draft.mix += load.op.mix
            draft.follows = draft.follows or source.follows
            load.step = step
            for name in load.names:
                self._values[name] = _Value(step, step, 0.0, frozenset((2 * step + 1,)))

    def merge(self, target: str, sources: Sequence[str]) -> None:
        """A value that comes from one of several arms of the run."""
        self._unread = [u for u in self._unread if u.names.isdisjoint(sources)]
        found = [self._values[s] for s in sources if s in self._values]
        if found:
            self._values[target] = _Value(
                max(v.depth for v in found), max(v.home for v in found),
                max(v.chain for v in found), frozenset().union(*(v.loads for v in found)),
            )  # fmt: skip

    def _read(self, statement: GimpleStatement) -> list[_Value]:
        """Values it reads: SSA names, and local variables that stayed whole."""
        found = [self._values[n] for n in statement.uses if n in self._values]
        variable = self._local(statement.value) if is_reference(statement.value) else None
        if variable:
            found += [
                v
                for n, v in self._values.items()
                if n.startswith(variable) or variable.startswith(n)
            ]
        return found

    def _written(self, statement: GimpleStatement) -> str | None:
        if statement.target_name or statement.target is None:
            return statement.target_name
        return self._local(statement.target)

    def _local(self, reference: str) -> str | None:
        """`$v` or `$v[0][1]` for a variable of the function itself; None for memory."""
        base = array_base(reference)
        if base is None or base not in self._function.types or base in self._function.statics:
            return None
        return f"${base}" + "".join(re.findall(r"\[\d+\]", reference))

    def _load(self, op: Op, share: float, depends_on: int) -> int:
        shared = self._shared(op)
        step = max(max(depends_on, self._decided) + 1, self._joined)
        step = step if shared else max(step, self._behind(op.statement))
        if shared:
            step = max(step, self._shared_at)
            if step == self._shared_at and step < len(self._drafts) and self._drafts[step].consumed:
                step += 1
            self._shared_at = step
            self._shared_loads.append(op.statement)
        while step < len(self._drafts) and sum(self._drafts[step].loads.values()) >= MOST_LOADS:
            step += 1
        draft = self._draft(step)
        for site in op.loads:
            draft.loads[site] = draft.loads.get(site, 0.0) + self._weight(site, share)
            draft.registers += share * max(op.loaded_bytes, 4) / 4
        draft.shared = draft.shared or shared
        draft.follows = draft.follows or depends_on >= 0
        draft.behind = draft.behind or (
            shared and not all(self._apart(op.statement, s) for s in self._shared_stores)
        )
        draft.mix += op.mix
        return step

    def _behind(self, load: GimpleStatement) -> int:
        """The first step that comes after the stores it may not pass."""
        if self._aliasing.read_only(load):
            return 0
        self._loaded.append(load)
        return max(
            (at + 1 for store, at in self._stored if not self._aliasing.apart(load, store)),
            default=0,
        )

    def _apart(self, load: GimpleStatement, store: GimpleStatement) -> bool:
        """Whether the two never touch one place in shared memory: in two arrays, or a constant
        distance from each other."""
        arrays = array_base(load.value), array_base(store.target or "")
        known = all(a in self._function.statics for a in arrays)
        return (known and arrays[0] != arrays[1]) or self._aliasing.apart(load, store)

    def shared_behind(self, made: set[str]) -> bool:
        """Whether a loop's next iterations' loads from shared memory may read what this one stores
        there. `made` as in `stores_block_loads`."""
        return any(
            not (
                self._apart(load, store)
                if array_base(load.value) != array_base(store.target or "")
                else self._aliasing.apart_later(load, store, made)
            )
            for load in self._shared_loads
            for store in self._shared_stores
        )

    def _shared(self, op: Op) -> bool:
        return all(self._sites[s].space == "shared" for s in op.loads)

    def _work(self, op: Op, home: int, loaded: frozenset[int]) -> None:
        """Work stays in the order of the program; it waits for the loads it reads first."""
        draft = self._draft(home)
        draft.mix += op.mix
        for token in loaded:
            source = self._drafts[token // 2]
            source.consumed = source.consumed or token % 2 == 0
            if not any(token in d.needs for d in self._drafts[:home]):
                draft.needs.add(token)
        self._now = home

    def _store(self, statement: GimpleStatement, site: int, share: float, step: int) -> None:
        draft = self._draft(step)
        draft.stores[site] = draft.stores.get(site, 0.0) + self._weight(site, share)
        if self._sites[site].space == "shared":
            self._shared_at = max(self._shared_at, step + 1)
            self._shared_stores.append(statement)
        elif self._sites[site].space == "global":
            self._stored.append((statement, step))

    def _draft(self, step: int) -> _Draft:
        while len(self._drafts) <= step:
            self._drafts.append(_Draft())
        return self._drafts[step]

    def steps(self) -> list[WorkStep]:
        """What has been added, in order; empty steps left out."""
        kept = [i for i, d in enumerate(self._drafts) if d.loads or d.stores or d.mix.issued]
        place = {old: new for new, old in enumerate(kept)}
        made = []
        for index in kept:
            d = self._drafts[index]
            made.append(
                WorkStep(
                    tuple(Use(s, n) for s, n in d.loads.items()), d.mix,
                    tuple(Use(s, n) for s, n in d.stores.items()), d.chain, d.registers, d.follows,
                    d.behind, d.joins,
                    tuple(sorted(2 * place[n // 2] + n % 2 for n in d.needs)),
                )
            )  # fmt: skip
        return made

    def stores_block_loads(self, made: set[str]) -> bool:
        """Whether a store to global memory keeps a loop's next iterations' loads behind it.

        `made`: SSA names that the loop makes.
        """
        return any(
            not self._aliasing.apart_later(load, store, made)
            for load in self._loaded
            for store, _ in self._stored
        )

    def feeds_address(self, names: set[str]) -> bool:
        """Whether one of these loop-carried values comes out of a load: a chase of pointers."""
        return any(self._values[n].depth >= 0 for n in names if n in self._values)


def unroll_factor(steps: Sequence[WorkStep], trips: float, most: int, asked: int | None) -> int:
    """How often nvcc repeats an innermost loop's body that goes round `trips` times.

    Args:
        steps: Of one iteration.
        trips: Mean number of iterations.
        most: What the way in which the loop counts allows (`loops.most_copies`).
        asked: What a pragma asks for; None where there is none.
    """
    if asked is not None:
        # Behind the test of an iteration that may be the last nothing of the next one is hoisted;
        # fewer iterations than asked for are all left to the loop of the remainder.
        return asked if most > 1 and trips >= asked else 1
    size = sum(s.mix.issued + sum(u.instructions for u in (*s.loads, *s.stores)) for s in steps)
    factor = 16 if size <= SMALL_BODY else 4 if size <= LARGE_BODY else 1
    while factor > 1 and factor > trips:
        factor //= 4 if factor == 16 else 2
    return max(min(factor, most), 1)


class LoopOverhead(NamedTuple):
    """What an innermost loop does besides its body's steps."""

    merge: bool
    """Whether the loads of several iterations may go out together."""
    overhead: Mix
    """Counter, comparison and branch, an iteration."""
    carried: float
    """Dependent instructions from one iteration's values to the next one's."""
    behind: bool = False
    """Whether an iteration's loads from shared memory wait for the stores of the one before."""


def unrolled(
    steps: Sequence[WorkStep], factor: int, sites: Sequence[MemorySite], loop: LoopOverhead
) -> list[WorkStep]:
    """`factor` iterations as one: their chains overlap but for what is carried round the loop."""
    if factor == 1:
        return list(steps)
    once = _without(steps, loop.overhead.times(1 - 1 / factor))
    if loop.behind:
        once = [replace(s, behind=bool(s.loads)) for s in once]
    shared_only = all(sites[u.site].space == "shared" for s in steps for u in s.loads)
    if not loop.merge:
        return _in_a_row(once, factor)
    if shared_only and any(s.loads for s in steps):
        last = len(once) - 1
        shared_out = [
            replace(s, chain=max(s.chain / factor, loop.carried if i == last else 0.0))
            for i, s in enumerate(once)
        ]
        return _in_a_row(shared_out, factor)
    loads = sum(u.instructions for s in steps for u in s.loads)
    together = factor
    while together > 1 and together * loads > MOST_LOADS:
        together //= 2
    return _in_a_row(_at_once(once, together, loop.carried), factor // together)


def _at_once(once: Sequence[WorkStep], copies: int, carried: float) -> list[WorkStep]:
    """Iterations whose loads go out together, before the work of the first."""
    return [
        replace(
            s, mix=s.mix.times(copies),
            loads=tuple(Use(u.site, u.instructions * copies) for u in s.loads),
            stores=tuple(Use(u.site, u.instructions * copies) for u in s.stores),
            chain=max(s.chain, carried * copies if i == len(once) - 1 else 0.0),
            registers=s.registers * copies,
        )
        for i, s in enumerate(once)
    ]  # fmt: skip


def _in_a_row(once: Sequence[WorkStep], factor: int) -> list[WorkStep]:
    return [
        replace(s, needs=tuple(n + 2 * copy * len(once) for n in s.needs))
        for copy in range(factor)
        for s in once
    ]


def _without(steps: Sequence[WorkStep], shared_out: Mix) -> list[WorkStep]:
    left = shared_out
    result: list[WorkStep] = []
    for step in reversed(steps):
        taken = Mix(*(min(a, b) for a, b in zip(step.mix, left, strict=True)))
        left += taken.times(-1.0)
        result.append(replace(step, mix=step.mix + taken.times(-1.0)))
    return result[::-1]


_AFFINE = re.compile(r"^(?:\(.*\) \S+|-?\S+|&?\S+ [-+*] \S+|\S+ << \d+)$")
_INTEGER = re.compile(r"\b(int|long|short|char|sizetype|unsigned|size_t)\b|\*$")


def address_only(function: GimpleFunction) -> set[str]:
    """SSA names whose every use ends in the address of a memory access."""
    candidates: set[str] = set()
    users: dict[str, list[tuple[GimpleStatement | None, str]]] = {}
    for block in function.blocks.values():
        for phi in block.phis:
            for source, _ in phi.sources:
                users.setdefault(source, []).append((None, ""))
        for s in block.statements:
            if s.target_name and not is_reference(s.value) and _is_integer(function, s.target_name):
                candidates.add(s.target_name)
            for name in s.uses:
                users.setdefault(name, []).append((s, _role(s, name)))
    changed = True
    while changed:
        changed = False
        for name in list(candidates):
            if not all(
                user is not None and (role == "address" or user.target_name in candidates)
                for user, role in users.get(name, [])
            ):
                candidates.discard(name)
                changed = True
    return candidates


def _is_integer(function: GimpleFunction, name: str) -> bool:
    kind = function.type_of(name)
    return bool(_INTEGER.search(kind)) or (
        bytes_of(kind) in (4, 8) and kind not in ("float", "double")
    )


def _role(s: GimpleStatement, name: str) -> str:
    if s.target and s.target_name is None and name in ssa_names(s.target):
        return "address"
    if is_reference(s.value) and name in ssa_names(s.value):
        return "address"
    if s.target_name is None and re.search(r"atomic\w* \(" + re.escape(name) + r"\b", s.value):
        return "address"
    return "value"


def reduced_addresses(
    ops: list[Op], function: GimpleFunction, body: set[int], only_address: set[str]
) -> None:
    """Take affine address arithmetic out of a loop's block; nvcc keeps a running pointer instead.

    What is left is one addition an access whose step is not a constant. Changes `ops` in place.
    """
    inside = {
        s.target_name: s
        for n in body
        for s in function.blocks[n].statements
        if s.target_name is not None
    }
    counters = {phi.target for n in body for phi in function.blocks[n].phis}
    affine: dict[str, tuple[bool, bool]] = {}
    for op in ops:
        name = op.statement.target_name
        if name in only_address and _walk(name, inside, counters, affine)[0]:
            op.mix, op.latency = cost.FREE, 0.0
    charged: set[str] = set()
    for op in ops:
        if not (op.loads or op.stores):
            continue
        for name in _address_names(op.statement):
            straight, variable_step = _walk(name, inside, counters, affine)
            if straight and variable_step and name not in charged:
                op.mix += cost.ONE_IMAD
                charged.add(name)


def _address_names(s: GimpleStatement) -> list[str]:
    places = [s.target] if s.target and s.target_name is None else []
    places += [s.value] if is_reference(s.value) else []
    return [n for p in places for n in ssa_names(p)]


def _walk(
    name: str,
    inside: dict[str, GimpleStatement],
    counters: set[str],
    known: dict[str, tuple[bool, bool]],
) -> tuple[bool, bool]:
    """Whether a value is affine in the loop's counters, and whether its step is not a constant."""
    if name in counters or name not in inside:
        return True, False
    if name in known:
        return known[name]
    known[name] = (False, False)
    s = inside[name]
    if is_reference(s.value) or not _AFFINE.match(s.value):
        return known[name]
    parts = [_walk(n, inside, counters, known) for n in s.uses]
    straight = all(p[0] for p in parts)
    moving = [n for n in s.uses if _moves(n, inside, counters, set())]
    product = " * " in s.value and len(s.uses) == 2
    if product and len(moving) == 2:
        straight = False
    step = any(p[1] for p in parts) or (product and len(moving) == 1)
    known[name] = (straight, straight and step)
    return known[name]


def _moves(
    name: str, inside: dict[str, GimpleStatement], counters: set[str], seen: set[str]
) -> bool:
    if name in counters:
        return True
    if name not in inside or name in seen:
        return False
    seen.add(name)
    return any(_moves(n, inside, counters, seen) for n in inside[name].uses)
