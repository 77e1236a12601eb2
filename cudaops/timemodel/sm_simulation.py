"""One SM, some blocks, steps of warps: the part of the time model that plays time forward.

First a kernel's steps become what each warp of a block does on one device, with costs in cycles.

Pipes are servers that work off reservations in the order of time: four issue slots, the arithmetic
lanes behind them, the L1/shared data path, the port to L2, this SM's share of L2 and of DRAM. A
warp issues in order, sends a step's loads, and waits before the first work that needs them. A
barrier waits for all warps of its block. Nothing is random, so the same work always takes the same
time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cudaops.cuda.architectures import PREFETCH_REGISTERS, Microarchitecture
from cudaops.cuda.devices import Device
from cudaops.timemodel.work import KernelWork, MemorySite, Mix, Phase, Use, WorkStep

DATA_PATH_QUEUE = 512.0
"""Wavefronts that wait inside L1, where a warp counts as waiting for data; beyond them it counts as
held back at issue. Fitted to the stall reasons of the naive product in tests/data/ncu; no time
depends on it."""

PIPES = ("fp32", "fp64", "alu", "sfu", "convert")


class StepLoads(NamedTuple):
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
    """`load`, `work`, `join` (wait for the arithmetic issued so far, and `chain_cycles`), `settle`
    (wait for every load still out) or `barrier`."""
    steps: tuple[int, ...] = ()
    """`load`: the number its data is waited for by. `work`: the numbers it waits for."""
    load: StepLoads | None = None
    mix: Mix = Mix()
    chain_cycles: float = 0.0
    store_data_path: float = 0.0
    store_issue: float = 0.0
    store_l2: float = 0.0
    store_dram: float = 0.0


@dataclass(frozen=True)
class PipeRates:
    """Cycles a warp instruction holds a scheduler's share of each pipe, and fixed delays."""

    schedulers: int
    pipe_cycles: tuple[float, ...]
    """In the order of `PIPES`."""
    barrier_latency: float
    barrier_cycles_per_warp: float
    first_use_penalty: float
    block_launch: float


@dataclass
class SmUsage:
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
        self, rates: PipeRates, slots: int, blocks: int, programs: Sequence[Sequence[Action]]
    ) -> None:
        self.rates = rates
        self.waiting = blocks - slots
        self.issue = [0.0] * rates.schedulers
        self.pipe = [[0.0] * rates.schedulers for _ in PIPES]
        self.data_path = self.l2 = self.dram = 0.0
        self.usage = SmUsage()
        self.warps = [
            _Warp(p, b, (b * len(programs) + w) % rates.schedulers)
            for b in range(slots)
            for w, p in enumerate(programs)
        ]
        self.arrived: dict[int, list[tuple[float, int]]] = {}
        self.alive = [len(programs)] * slots
        self.size = len(programs)

    def run(self) -> SmUsage:
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
                then = max(now, warp.pending) + action.chain_cycles
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
        cost = self.rates.barrier_latency + self.rates.barrier_cycles_per_warp * len(here)
        leave = max(t for t, _ in here) + cost
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
        warp.pending = max(warp.pending, begun + action.chain_cycles)
        if action.store_data_path:
            self._through(done, action.store_data_path, action.store_l2, action.store_dram)
        return done


def simulate(
    programs: Sequence[Sequence[Action]], slots: int, blocks: int, rates: PipeRates
) -> SmUsage:
    """Play `blocks` equal blocks forward on one SM that holds `slots` at once.

    `programs` has one list of actions a warp. A block starts where another has ended.
    """
    return _Sm(rates, min(slots, blocks), blocks, programs).run()


class PhaseLoop(NamedTuple):
    """Phases that follow each other round a loop, or one phase by itself."""

    first: int
    """Index of its first phase in `KernelWork.phases`."""
    phases: tuple[Phase, ...]
    times: float


def stages_of(work: KernelWork) -> list[PhaseLoop]:
    """Neighbouring phases that a block goes through equally often belong to one loop."""
    stages: list[PhaseLoop] = []
    for index, phase in enumerate(work.phases):
        last = stages[-1] if stages else None
        if last and phase.times > 1.5 and abs(phase.times - last.times) <= 0.1 * last.times:
            stages[-1] = PhaseLoop(last.first, (*last.phases, phase), last.times)
        else:
            stages.append(PhaseLoop(index, (phase,), phase.times))
    return stages


@dataclass(frozen=True)
class Costs:
    """What one memory instruction of each site costs on a device."""

    sites: tuple[MemorySite, ...]
    lsu_cycles: float
    """Cycles the load/store units need for one warp instruction."""
    l2_cycles_per_byte: float
    dram_cycles_per_byte: float
    store_cycles_per_byte: float
    dram_read_share: float
    """Of what misses L1, 0-1."""
    waiting_share: float
    """Likewise, what is waited for as long as DRAM takes; not less."""
    dram_write_share: float
    times: Microarchitecture

    @staticmethod
    def of(
        work: KernelWork, device: Device, times: Microarchitecture, *, cold: bool = False
    ) -> Costs:
        """Costs where all SMs that have work share L2 and DRAM evenly; `cold` as in `estimate`."""
        active = min(device.sm_count, work.grid_blocks)
        if device.l2_read_bytes_per_clk is None:
            fabric = times.l2_fabric_bytes_per_clk * device.sm_count / active
        else:
            clock = (device.l2_clock_mhz or device.sm_clock_mhz) / device.sm_clock_mhz
            fabric = device.l2_read_bytes_per_clk * clock / active
        dram = (
            1e3 * device.dram_bandwidth_gb_s * times.dram_efficiency / device.sm_clock_mhz / active
        )
        missed = sum(s.missed_bytes_per_block for s in work.sites) * work.grid_blocks
        written = sum(_written_bytes(s) for s in work.sites) * work.grid_blocks
        resident = work.traffic.resident
        fetched = 0.0 if resident and not cold else 1.0
        written_back = 0.0 if resident else work.traffic.dram_write_bytes
        if cold:
            written_back = work.traffic.first_write_bytes
        read_share = min(work.traffic.dram_read_bytes / missed, 1.0) if missed else 0.0
        return Costs(
            sites=work.sites,
            lsu_cycles=32.0 / device.lanes("lsu"),
            l2_cycles_per_byte=1.0 / min(times.l2_bytes_per_clk, fabric),
            dram_cycles_per_byte=1.0 / dram,
            store_cycles_per_byte=1.0 / min(times.store_bytes_per_clk, fabric),
            dram_read_share=fetched * read_share,
            waiting_share=fetched * max(read_share, work.traffic.waiting_share),
            dram_write_share=min(written_back / written, 1.0) if written else 0.0,
            times=times,
        )

    def load(self, uses: Sequence[Use]) -> StepLoads:
        """The loads of one step, one warp."""
        issue = path = l2 = dram = 0.0
        latency = 0.0
        all_hit_l1 = all_hit_l2 = 1.0
        for use in uses:
            site = self.sites[use.site]
            issue += use.instructions
            path += use.instructions * self.wavefronts(site)
            if site.space in ("shared", "constant"):
                latency = max(latency, self.times.shared_latency)
                continue
            missed = use.instructions * site.sectors * 32.0 * (1.0 - site.l1_hit)
            l2 += missed * self.l2_cycles_per_byte
            dram += missed * self.dram_read_share * self.dram_cycles_per_byte
            all_hit_l1 *= site.l1_hit ** max(use.instructions, 1.0)
            all_hit_l2 *= (1.0 - self.waiting_share * (1.0 - site.l1_hit)) ** max(
                use.instructions, 1.0
            )
            latency = max(latency, self.times.l1_latency)
        if latency > self.times.shared_latency or l2:
            beyond = self.times.l2_latency * self.times.under_load
            latency += (1.0 - all_hit_l1) * (beyond - self.times.l1_latency)
            further = (self.times.dram_latency - self.times.l2_latency) * self.times.under_load
            latency += (1.0 - all_hit_l2) * further
        shared = all(self.sites[u.site].space == "shared" for u in uses)
        return StepLoads(issue, path, l2, dram, latency, shared)

    def store(self, uses: Sequence[Use]) -> tuple[float, float, float, float]:
        """Issue slots, data path, L2 and DRAM cycles of a step's stores, one warp."""
        issue = path = l2 = dram = 0.0
        for use in uses:
            site = self.sites[use.site]
            issue += use.instructions
            path += use.instructions * self.wavefronts(site)
            if site.space != "shared":
                sent = use.instructions * site.sectors * 32.0 * (1.0 - site.l1_hit)
                l2 += self._sent(site, use.instructions, sent)
                dram += sent * self.dram_write_share * self.dram_cycles_per_byte
        return issue, path, l2, dram

    def _sent(self, site: MemorySite, instructions: float, size_bytes: float) -> float:
        """Cycles of this SM's port to L2 for stores or atomics of a site, one warp."""
        moved = size_bytes * self.store_cycles_per_byte
        if not site.atomic:
            return moved
        return max(moved, instructions * site.lanes / self.times.atomic_lanes_per_clk)

    def chain_cycles(self, step: WorkStep) -> float:
        """How long the step's longest run of dependent instructions takes; of its floating-point
        part as many are double as in the whole step."""
        floating = step.mix.fp32 + step.mix.fp64
        double = step.mix.fp64 / floating if floating else 0.0
        plain = self.times.alu_latency
        return step.chain * (plain + double * (self.times.fp64_latency - plain))

    def wavefronts(self, site: MemorySite) -> float:
        """Cycles of the data path one instruction holds: its wavefronts, or the time its addresses
        take to get through the load/store units."""
        if site.space == "constant":
            return max(site.wavefronts * self.times.constant_word_cycles, self.lsu_cycles)
        serial = site.same_address if site.atomic and site.space == "shared" else 1.0
        return max(site.wavefronts * serial, self.lsu_cycles)

    def demand(self, work: KernelWork) -> dict[str, float]:
        """Cycles a block holds each part of its SM, were the part never idle."""
        mix, path, lsu, l2, dram = Mix(), 0.0, 0.0, 0.0, 0.0
        for phase in work.phases:
            for stretch in phase.stretches:
                times = phase.times * stretch.repeats * stretch.warps * work.warps_per_block
                for step in stretch.steps:
                    load, store = self.load(step.loads), self.store(step.stores)
                    mix += step.mix.times(times)
                    mix += Mix(issued=times * (load.issue + store[0]))
                    lsu += times * (load.issue + store[0]) * self.lsu_cycles
                    path += times * (load.data_path + store[1])
                    l2 += times * (load.l2 + store[2])
                    dram += times * (load.dram + store[3])
        return {
            "issue": mix.issued, "fp32": mix.fp32, "fp64": mix.fp64, "alu": mix.alu, "sfu": mix.sfu,
            "convert": mix.convert, "branch": mix.branch, "data_path": path, "lsu": lsu, "l2": l2,
            "dram": dram,
        }  # fmt: skip


def _written_bytes(site: MemorySite) -> float:
    if site.space != "global" or not site.write:
        return 0.0
    return site.instructions_per_block * site.sectors * 32.0


class _Part(NamedTuple):
    """What some warps of a block do in one turn of a stage."""

    warps: int
    first: tuple[Action, ...]
    actions: tuple[Action, ...]
    """Of one repeat."""
    repeats: int

    @property
    def length(self) -> int:
        """Actions of each of the warps."""
        return len(self.first) + len(self.actions) * self.repeats


def program_of(
    work: KernelWork,
    costs: Costs,
    stages: Sequence[PhaseLoop],
    turns: Mapping[int, int],
    share: float,
) -> list[list[Action]]:
    """The actions of each warp of a block.

    `turns` says how often to go round a stage, by its first phase; missing: as often as the kernel.
    `share` (0-1] shortens every inner loop.
    """
    programs: list[list[Action]] = [[] for _ in range(work.warps_per_block)]
    for stage in stages:
        turn: list[list[Action]] = [[] for _ in programs]
        for part in _parts(work, costs, stage, share):
            whole = part.first + part.actions * part.repeats
            for actions in turn[: part.warps]:
                actions += whole
        for program, actions in zip(programs, turn, strict=True):
            program += actions * turns.get(stage.first, _turns(stage))
    return programs


def action_count(work: KernelWork, costs: Costs, stages: Sequence[PhaseLoop]) -> int:
    """How many actions the warps of a block have altogether."""
    return sum(
        part.warps * part.length * _turns(stage)
        for stage in stages
        for part in _parts(work, costs, stage, 1.0)
    )


def _turns(stage: PhaseLoop) -> int:
    return max(round(stage.times), 1)


def _parts(work: KernelWork, costs: Costs, stage: PhaseLoop, share: float) -> Iterator[_Part]:
    """Loads have one number in all repeats: a warp waits for none but those of the same one."""
    warps, number = work.warps_per_block, 0
    for phase in stage.phases:
        for stretch in phase.stretches:
            taking_part = round(stretch.warps * warps)
            if taking_part == 0 and stretch.warps * warps > 0.2:
                taking_part = 1
            if taking_part:
                first = (Action("settle"),) if stretch.settles else ()
                repeats = max(round(stretch.repeats * share), 1)
                actions = tuple(_flatten(stretch.steps, costs, number))
                if stretch.turns_back:
                    actions = _closed(actions, costs.times.branch_latency)
                yield _Part(taking_part, first, actions, repeats)
                number += 2 * len(stretch.steps)
        if phase.barrier:
            yield _Part(warps, (Action("barrier"),), (), 0)


def _flatten(steps: Sequence[WorkStep], costs: Costs, number: int) -> list[Action]:
    """Loads ahead of work: those of shared memory as far as registers for their data reach."""
    order: list[tuple[int, bool]] = []
    sent = 0
    for at in range(len(steps)):
        while sent < len(steps) and sent <= at + _ahead(steps, sent, at, costs):
            if steps[sent].loads:
                order.append((sent, True))
            sent += 1
        order.append((at, False))
    actions: list[Action] = []
    for index, is_load in order:
        step = steps[index]
        if is_load:
            if step.follows:
                actions.append(Action("work", tuple(range(number, number + 2 * index))))
                actions.append(Action("join"))
            for place, uses in enumerate(_by_space(step, costs)):
                if uses:
                    actions.append(Action("load", (number + 2 * index + place,), costs.load(uses)))
            continue
        issue, path, l2, dram = costs.store(step.stores)
        waits = tuple(number + needed for needed in step.needs)
        chain = costs.chain_cycles(step)
        actions.append(Action("work", waits, None, step.mix, chain, path, issue, l2, dram))
        if step.joins:
            actions.append(Action("join"))
    if any(step.chain for step in steps) and actions[-1].kind != "join":
        actions.append(Action("join"))
    return actions


def _closed(actions: tuple[Action, ...], latency: float) -> tuple[Action, ...]:
    """The same with a branch behind it, which waits for what it is decided by."""
    begun = actions[:-1] if actions and actions[-1].kind == "join" else actions
    return (*begun, Action("join", chain_cycles=latency))


def _by_space(step: WorkStep, costs: Costs) -> tuple[list[Use], list[Use]]:
    """Loads from shared memory and from global memory: each is waited for on its own."""
    shared = [u for u in step.loads if costs.sites[u.site].space == "shared"]
    return shared, [u for u in step.loads if costs.sites[u.site].space != "shared"]


def _ahead(steps: Sequence[WorkStep], index: int, at: int, costs: Costs) -> int:
    """How many steps before its own the loads of a step go out, seen from step `at`."""
    step = steps[index]
    stored = (u for s in steps[at:index] for u in s.stores)
    if step.behind and any(costs.sites[u.site].space == "shared" for u in stored):
        return 0
    if any(s.joins for s in steps[at:index]):
        return 0
    if step.follows or any(costs.sites[u.site].space == "global" for u in step.loads):
        return 0
    return int(PREFETCH_REGISTERS // max(step.registers, 1.0))


def demand_of_block(
    work: KernelWork, costs: Costs, stages: Sequence[PhaseLoop], share: float
) -> float:
    """Repeats of all inner loops one turn of the stages goes through: how much of it is done."""
    done = 0.0
    for stage in stages:
        for phase in stage.phases:
            for stretch in phase.stretches:
                done += max(round(stretch.repeats * share), 1) * len(stretch.steps)
    return done
