"""One SM, some blocks, steps of warps: the part of the time model that plays time forward.
 Pipes are servers that work off reservations in the order of time: four issue slots, the arithmetic
lanes behind them, the L1/shared data path, the port to L2, this SM's share of L2 and of DRAM. A
warp issues in order, sends a step's loads, and waits before the first work that needs them. A
barrier waits for all warps of its block. Nothing is random, so the same work always takes the same
time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cudaops.cuda.work import Mix

DATA_PATH_QUEUE = 512.0
"""Wavefronts that wait inside L1, where a warp counts as waiting for data; beyond them it counts as
held back at issue. Fitted to the stall reasons of the naive product in tests/data/ncu; no time
depends on it."""

PIPES = ("fp32", "fp64", "alu", "sfu", "convert")


class Load(NamedTuple):
    """The loads of one step of one warp, in cycles of what they occupy."""

    issue: float
    data_path: float
    """L1/shared wavefronts."""
    l2: float
    dram: float
    latency: float
    """From leaving the data path to the data being there, everything idle."""
    shared: bool
    """Whether all of it is shared memory."""


class Action(NamedTuple):
    """What a warp does next."""

    kind: str
    """`load`, `work`, `join` (wait for the arithmetic issued so far), `settle` (wait for every load
    still out) or `barrier`."""
    steps: tuple[int, ...] = ()
    """`load`: the number its data is waited for by. `work`: the numbers it waits for."""
    load: Load | None = None
    mix: Mix = Mix()
    chain: float = 0.0
    store_data_path: float = 0.0
    store_issue: float = 0.0
    store_l2: float = 0.0
    store_dram: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Cycles a warp instruction holds a scheduler's share of each pipe, and fixed delays."""

    schedulers: int
    pipe_cycles: tuple[float, ...]
    """In the order of `PIPES`."""
    alu_latency: float
    barrier_latency: float
    first_use_penalty: float
    block_launch: float


@dataclass
class Usage:
    """Busy cycles of an SM's parts, and where its warps spent their time (warp cycles)."""

    cycles: float = 0.0
    issued: float = 0.0
    data_path: float = 0.0
    l2: float = 0.0
    dram: float = 0.0
    pipes: list[float] = field(default_factory=lambda: [0.0] * len(PIPES))
    wait_global: float = 0.0
    wait_queue: float = 0.0
    wait_shared: float = 0.0
    wait_barrier: float = 0.0
    wait_issue: float = 0.0
    wait_chain: float = 0.0


class _Warp:
    __slots__ = ("block", "pending", "position", "program", "ready", "scheduler")

    def __init__(self, program: Sequence[Action], block: int, scheduler: int) -> None:
        self.program = program
        self.block = block
        self.scheduler = scheduler
        self.position = 0
        self.ready: dict[int, tuple[float, bool, float]] = {}
        self.pending = 0.0


class _Sm:
    def __init__(
        self, rates: Rates, slots: int, blocks: int, programs: Sequence[Sequence[Action]]
    ) -> None:
        self.rates = rates
        self.waiting = blocks - slots
        self.issue = [0.0] * rates.schedulers
        self.pipe = [[0.0] * rates.schedulers for _ in PIPES]
        self.data_path = self.l2 = self.dram = 0.0
        self.usage = Usage()
        self.warps = [
            _Warp(p, b, (b * len(programs) + w) % rates.schedulers)
            for b in range(slots)
            for w, p in enumerate(programs)
        ]
        self.arrived: dict[int, list[tuple[float, int]]] = {}
        self.alive = [len(programs)] * slots
        self.size = len(programs)

    def run(self) -> Usage:
        queue = [(0.0, i) for i in range(len(self.warps))]
        heapq.heapify(queue)
        last = 0.0
        while queue:
            now, index = heapq.heappop(queue)
            warp = self.warps[index]
            if warp.position >= len(warp.program):
                last = max(last, now)
                self.alive[warp.block] -= 1
                self._release(warp.block, queue)
                if self.alive[warp.block] == 0 and self.waiting > 0:
                    self._start(warp.block, now, queue)
                continue
            action = warp.program[warp.position]
            if action.kind == "barrier":
                warp.position += 1
                self.arrived.setdefault(warp.block, []).append((now, index))
                self._release(warp.block, queue)
                continue
            if action.kind == "join":
                warp.position += 1
                then = max(now, warp.pending)
                self.usage.wait_chain += then - now
                heapq.heappush(queue, (then, index))
                continue
            wait = self._waits(warp, action, now)
            if wait > now:
                heapq.heappush(queue, (wait, index))
                continue
            if action.kind == "settle":
                warp.position += 1
                heapq.heappush(queue, (now, index))
                continue
            warp.position += 1
            then = (
                self._load(warp, action, now)
                if action.kind == "load"
                else self._work(warp, action, now)
            )
            heapq.heappush(queue, (then, index))
        self.usage.cycles = max(last, self.data_path, self.dram, self.l2)
        return self.usage

    def _start(self, slot: int, now: float, queue: list[tuple[float, int]]) -> None:
        self.waiting -= 1
        self.alive[slot] = self.size
        begin = now + self.rates.block_launch
        for index in range(slot * self.size, (slot + 1) * self.size):
            self.warps[index].position = 0
            heapq.heappush(queue, (begin, index))

    def _release(self, block: int, queue: list[tuple[float, int]]) -> None:
        here = self.arrived.get(block, [])
        if not here or len(here) < self.alive[block]:
            return
        leave = max(t for t, _ in here) + self.rates.barrier_latency
        for arrived, index in here:
            self.usage.wait_barrier += leave - arrived
            heapq.heappush(queue, (leave, index))
        self.arrived[block] = []

    def _waits(self, warp: _Warp, action: Action, now: float) -> float:
        """When the data this action reads is there; that wait is booked and not asked for again."""
        if action.kind == "work":
            wanted = [warp.ready.pop(s) for s in action.steps if s in warp.ready]
        elif action.kind == "settle":
            wanted = list(warp.ready.values())
            warp.ready.clear()
        else:
            return now
        ready, shared, queued = max(wanted, default=(now, False, 0.0))
        if ready <= now:
            return now
        ready += self.rates.first_use_penalty
        if shared:
            self.usage.wait_shared += ready - now
        else:
            in_queue = min(queued, ready - now)
            self.usage.wait_queue += in_queue
            self.usage.wait_global += ready - now - in_queue
        return ready

    def _issue(self, warp: _Warp, now: float, slots: float) -> float:
        start = max(now, self.issue[warp.scheduler])
        self.issue[warp.scheduler] = start + slots
        self.usage.issued += slots
        self.usage.wait_issue += start - now
        return start + slots

    def _load(self, warp: _Warp, action: Action, now: float) -> float:
        load = action.load
        assert load is not None
        issued = self._issue(warp, now, load.issue)
        queued = max(self.data_path - issued - DATA_PATH_QUEUE, 0.0)
        ready = self._through(issued, load.data_path, load.l2, load.dram) + load.latency
        warp.ready[action.steps[0]] = (ready, load.shared, queued)
        return issued

    def _through(self, now: float, data_path: float, l2: float, dram: float) -> float:
        usage = self.usage
        at = self.data_path = max(self.data_path, now) + data_path
        usage.data_path += data_path
        if l2:
            at = self.l2 = max(self.l2, at) + l2
            usage.l2 += l2
        if dram:
            at = self.dram = max(self.dram, at) + dram
            usage.dram += dram
        return at

    def _work(self, warp: _Warp, action: Action, now: float) -> float:
        slots = action.mix.issued + action.store_issue
        done = self._issue(warp, now, slots) if slots else now
        begun = done - slots
        mix = action.mix
        for p, wanted in enumerate((mix.fp32, mix.fp64, mix.alu, mix.sfu, mix.convert)):
            if not wanted:
                continue
            cycles = wanted * self.rates.pipe_cycles[p]
            servers = self.pipe[p]
            servers[warp.scheduler] = max(servers[warp.scheduler], begun) + cycles
            self.usage.pipes[p] += cycles
            done = max(done, servers[warp.scheduler])
        warp.pending = max(warp.pending, begun + action.chain * self.rates.alu_latency)
        if action.store_data_path:
            self._through(done, action.store_data_path, action.store_l2, action.store_dram)
        return done


def simulate(programs: Sequence[Sequence[Action]], slots: int, blocks: int, rates: Rates) -> Usage:
    """Play `blocks` equal blocks forward on one SM that holds `slots` at once.

    `programs` has one list of actions a warp. A block starts where another has ended.
    """
    return _Sm(rates, min(slots, blocks), blocks, programs).run()
