"""The time model: counts, geometry and a device in; cycles, microseconds, a breakdown and ncu's
metrics out. Pure.

Three things bound a kernel and all three are here: what an SM's parts can take a cycle, how long a
warp waits between barriers for lack of other warps, and how the blocks of a grid fall on the SMs.
Metrics are what is counted or computed, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cudaops.cuda import metrics as ncu
from cudaops.cuda.architectures import Microarchitecture, microarchitecture
from cudaops.cuda.devices import Device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.occupancy import Occupancy, occupancy
from cudaops.domain.base import Dim3
from cudaops.domain.profile import Metric, MetricSource
from cudaops.errors import InputError
from cudaops.timemodel.sm_simulation import (
    PIPES,
    Action,
    Costs,
    PipeRates,
    SmUsage,
    action_count,
    demand_of_block,
    program_of,
    simulate,
    stages_of,
)
from cudaops.timemodel.work import KernelWork, MemorySite

EVENT_BUDGET = 9000
"""Actions of warps played forward for one estimate; longer kernels are extrapolated from a part."""

BUSY_PCT = 60.0
"""Below this nobody calls a part the limit. Judgement; NVIDIA's own guided analysis uses the
same."""

GROWN = 1.25
"""Demand of the larger of two shares of a stage over the smaller's: where they are nearer, the line
through them says nothing of the whole. Chosen."""

UNEVEN = 1.05
"""Work of the heaviest block over the mean from which it is played by itself: the launch ends no
earlier than it does."""

ROUNDS = 4
"""Fillings of an SM that a kernel with short blocks is played for before it is extrapolated."""


@dataclass(frozen=True)
class Estimate:
    """Modelled time of one launch and where it goes. Percentages are of peak over the whole
    launch."""

    duration_us: float
    """What is judged, and what a profiler would show: `Device.launch_us` and `cycles`."""
    cycles: float
    """SM cycles of the busiest SM for its blocks."""
    elapsed_cycles: float
    """SM cycles of `duration_us`."""
    active_cycles: float
    """SM cycles with at least one warp, mean over all SMs."""
    limiter: str
    """The busiest part of `busy_pct`; `latency` where none is busy `BUSY_PCT` of the time;
    `atomics` where one address has to take too many; `launch` where launching takes longer than the
    work."""
    busy_pct: dict[str, float]
    """By part: `issue`, `fp32`, `fp64`, `alu`, `sfu`, `convert`, `data_path`, `lsu`, `l2`,
    `dram`."""
    waits: dict[str, float]
    """Warp cycles an issued instruction: `global`, `queue` (global loads waiting for the data
    path), `shared`, `barrier`, `issue`, `chain`."""
    occupancy: Occupancy
    blocks_per_sm: int
    """Blocks an SM holds at once in this launch: no more than the grid has for it."""
    achieved_warps: float
    """Warps resident while an SM is active, mean."""
    waves: float
    latency_bound: bool


def estimate(work: KernelWork, device: Device, *, cold: bool = False) -> Estimate:
    """Model one launch on a device.

    `cold`: nothing of its data is in L2 beforehand, as in a profile by ncu; otherwise what fits
    there is.

    Raises:
        InputError: a block of it does not fit on an SM of the device, or time is not modelled for
            the device's compute capability.
    """
    times = microarchitecture(device.compute_capability)
    held = occupancy(
        device, work.block_threads, work.registers_per_thread,
        work.static_smem_bytes + work.dynamic_smem_bytes,
    )  # fmt: skip
    if held.blocks_per_sm < 1:
        raise InputError(
            f"a block of {work.block_threads} threads with {work.registers_per_thread} registers "
            f"each and {work.static_smem_bytes + work.dynamic_smem_bytes} bytes of shared memory "
            f"does not fit on an SM of {device.name}"
        )
    busiest = math.ceil(work.grid_blocks / device.sm_count)
    slots = min(held.blocks_per_sm, busiest)
    costs = Costs.of(work, device, times, cold=cold)
    rates = _rates(device, times)
    cycles, usage = _cycles(work, costs, rates, slots, busiest)
    cycles = max(cycles, _busy_cycles(work, device, costs, rates, busiest))
    if max(work.heaviest_block, work.longest_warp) > UNEVEN:
        cycles = max(cycles, _cycles(work.heavier(), costs, rates, 1, 1)[0])
    cycles = max(cycles, _starting_cycles(work, device, times))
    floor = _atomic_floor(work, times)
    found = _report(work, device, costs, held, slots, busiest, max(cycles, floor), usage)
    return replace(found, limiter="atomics") if floor > cycles else found


def _starting_cycles(work: KernelWork, device: Device, times: Microarchitecture) -> float:
    """Cycles an SM takes to start its share of all blocks of the grid, idle ones among them."""
    blocks = math.ceil(max(work.launched_blocks, work.grid_blocks) / device.sm_count)
    return blocks * (times.block_start + work.warps_per_block * times.warp_start)


def _busy_cycles(
    work: KernelWork, device: Device, costs: Costs, rates: PipeRates, busiest: int
) -> float:
    """Cycles the busiest part of an SM needs for its blocks, were it never idle.

    A kernel that is played in parts and extrapolated never comes out below it. What all SMs share
    does not wait for the one with most blocks.
    """
    per_pipe = dict(zip(PIPES, rates.pipe_cycles, strict=True))
    mean = work.grid_blocks / min(device.sm_count, work.grid_blocks)
    needed = {"issue": busiest / rates.schedulers, "data_path": busiest, "lsu": busiest}
    needed |= {p: busiest * per_pipe[p] / rates.schedulers for p in PIPES}
    needed |= {"l2": mean, "dram": mean}
    demand = costs.demand(work)
    return max(demand[part] * factor for part, factor in needed.items())


def _rates(device: Device, times: Microarchitecture) -> PipeRates:
    schedulers = device.schedulers_per_sm
    lanes = (
        device.fp32_lanes_per_sm, device.fp64_lanes_per_sm, device.lanes("int32"),
        device.lanes("sfu"), times.convert_lanes,
    )  # fmt: skip
    return PipeRates(
        schedulers, tuple(32.0 * schedulers / n for n in lanes),
        times.barrier_latency, times.barrier_cycles_per_warp, times.first_use_penalty,
        times.block_launch,
    )  # fmt: skip


def _cycles(
    work: KernelWork, costs: Costs, rates: PipeRates, slots: int, blocks: int
) -> tuple[float, SmUsage]:
    """Cycles until one SM has worked off `blocks` blocks."""
    stages = stages_of(work)
    events = action_count(work, costs, stages) * slots
    if events * min(ROUNDS, math.ceil(blocks / slots)) <= EVENT_BUDGET:
        return _steady(program_of(work, costs, stages, {}, 1.0), rates, slots, blocks)
    full, rest = divmod(blocks, slots)
    at_full, usage = _long(work, costs, rates, slots)
    total = full * (at_full + rates.block_launch)
    if rest:
        total += _long(work, costs, rates, rest)[0] + rates.block_launch
    return total, usage


def _steady(
    programs: list[list[Action]], rates: PipeRates, slots: int, blocks: int
) -> tuple[float, SmUsage]:
    """Short blocks: played with replacement, then extrapolated at the rate of the second half."""
    if blocks <= ROUNDS * slots:
        usage = simulate(programs, slots, blocks, rates)
        return usage.cycles + rates.block_launch, usage
    early = simulate(programs, slots, slots * ROUNDS // 2, rates)
    late = simulate(programs, slots, slots * ROUNDS, rates)
    a_block = (late.cycles - early.cycles) / (slots * (ROUNDS - ROUNDS // 2))
    return late.cycles + (blocks - slots * ROUNDS) * a_block + rates.block_launch, late


def _long(work: KernelWork, costs: Costs, rates: PipeRates, slots: int) -> tuple[float, SmUsage]:
    """Long blocks: a few turns of each loop over barriers, a part of each loop inside."""
    total = longest = 0.0
    heaviest = SmUsage()
    for stage in stages_of(work):
        one = program_of(work, costs, [stage], {stage.first: 1}, 1.0)
        events = max(sum(len(p) for p in one) * slots, 1)
        turns = max(stage.times, 1.0)
        if events > EVENT_BUDGET:
            cycles, usage = _partial(work, costs, rates, slots, stage.first, EVENT_BUDGET / events)
            cycles *= turns
        elif turns <= 1.5:
            usage = simulate(one, slots, slots, rates)
            cycles = usage.cycles
        else:
            late = int(min(turns, max(2, min(6, EVENT_BUDGET // events))))
            early = max(late // 2, 1)
            runs = [
                simulate(
                    program_of(work, costs, [stage], {stage.first: n}, 1.0), slots, slots, rates
                )
                for n in (early, late)
            ]
            usage = runs[1]
            slope = (runs[1].cycles - runs[0].cycles) / max(late - early, 1)
            cycles = (
                usage.cycles + (turns - late) * slope
                if late > early
                else usage.cycles * turns / late
            )
        total += cycles
        if cycles > longest:
            longest, heaviest = cycles, usage
    return total, heaviest


def _partial(
    work: KernelWork, costs: Costs, rates: PipeRates, slots: int, stage: int, part: float
) -> tuple[float, SmUsage]:
    """One turn of a stage whose inner loops are too long, from two shares of their trips. What has
    no trips to share is in both: the larger share grows until the two differ by what they do."""
    chosen = [s for s in stages_of(work) if s.first == stage]

    def demand(share: float) -> float:
        return demand_of_block(work, costs, chosen, share)

    while part < 0.5 and demand(part) < GROWN * demand(part / 2):
        part *= 2
    early, late = (
        simulate(program_of(work, costs, chosen, {stage: 1}, share), slots, slots, rates)
        for share in (part / 2, part)
    )
    a_unit = (late.cycles - early.cycles) / max(demand(part) - demand(part / 2), 1e-9)
    return late.cycles + max(demand(1.0) - demand(part), 0.0) * a_unit, late


def _atomic_floor(work: KernelWork, times: Microarchitecture) -> float:
    """One address takes one operation at a time, whoever sends it, and so does one line."""
    each = times.integer_atomic_cycles if work.integer_atomics else times.atomic_cycles
    apart = work.same_line * times.atomic_cycles
    return (work.hottest_atomic * each + apart) * work.grid_blocks


def _report(
    work: KernelWork, device: Device, costs: Costs, held: Occupancy, slots: int, blocks: int,
    cycles: float, usage: SmUsage,
) -> Estimate:  # fmt: skip
    own_us = device.cycles_to_us(cycles)
    duration_us = device.launch_us + own_us
    elapsed = duration_us * device.sm_clock_mhz
    mean_blocks = work.grid_blocks / device.sm_count
    active = cycles * min(1.0, mean_blocks / blocks + 0.02) if blocks > 1 else cycles * mean_blocks
    width = dict.fromkeys(("issue", *PIPES), float(device.schedulers_per_sm))
    per_pipe = dict(zip(PIPES, _rates(device, costs.times).pipe_cycles, strict=True))
    busy = {
        part: 100.0
        * demand
        * per_pipe.get(part, 1.0)
        / width.get(part, 1.0)
        * mean_blocks
        / elapsed
        for part, demand in costs.demand(work).items()
        if part != "branch"
    }
    top = max((p for p in busy if p != "lsu"), key=lambda p: busy[p])
    latency_bound = busy[top] * elapsed / cycles < BUSY_PCT
    limiter = "launch" if own_us < device.launch_us else "latency" if latency_bound else top
    issued = max(usage.issued, 1.0)
    rounds = math.ceil(blocks / slots)
    share = mean_blocks / (rounds * slots) if mean_blocks > 1.0 else 1.0
    resident = slots * work.warps_per_block * min(share, 1.0)
    return Estimate(
        duration_us=duration_us,
        cycles=cycles,
        elapsed_cycles=elapsed,
        active_cycles=min(active, cycles),
        limiter=limiter,
        busy_pct=busy,
        waits={
            "global": usage.wait_global / issued, "shared": usage.wait_shared / issued,
            "queue": usage.wait_queue / issued,
            "barrier": usage.wait_barrier / issued, "issue": usage.wait_issue / issued,
            "chain": usage.wait_chain / issued,
        },
        occupancy=held,
        blocks_per_sm=slots,
        achieved_warps=resident,
        waves=work.grid_blocks / (held.blocks_per_sm * device.sm_count),
        latency_bound=latency_bound,
    )  # fmt: skip


@dataclass(frozen=True)
class Modelled:
    """One launch on one device with everything known about it."""

    work: KernelWork
    estimate: Estimate
    costs: Costs
    device: Device
    grid: Dim3
    block: Dim3

    def total(
        self, chosen: Callable[[MemorySite], bool], value: Callable[[MemorySite], float]
    ) -> float:
        """Sum over the sites of this kind, whole launch."""
        return self.work.grid_blocks * sum(value(s) for s in self.work.sites if chosen(s))


def modelled_metrics(m: Modelled) -> dict[str, Metric]:
    """Every metric the model knows, by ncu's name; what is not here is not known."""
    known: dict[str, Metric] = {}
    groups: Sequence[tuple[MetricSource, Iterable[tuple[str, float]]]] = (
        ("launch", _launch_metrics(m)),
        ("modelled", _resource_metrics(m)),
        ("modelled", _throughput_metrics(m)),
        ("modelled", _instruction_metrics(m)),
        ("modelled", _operation_metrics(m)),
        ("modelled", _global_memory_metrics(m)),
        ("modelled", _shared_memory_metrics(m)),
        ("modelled", _beyond_l1_metrics(m)),
        ("modelled", _waiting_metrics(m)),
    )
    for source, pairs in groups:
        for name, value in pairs:
            known[name] = Metric(
                name=name, value=float(value), unit=METRICS[name].unit, source=source
            )
    return known


def _launch_metrics(m: Modelled) -> list[tuple[str, float]]:
    w = m.work
    return [
        (ncu.BLOCK_SIZE, w.block_threads), (ncu.GRID_SIZE, m.grid.volume),
        (ncu.THREADS, w.block_threads * m.grid.volume), (ncu.SM_COUNT, m.device.sm_count),
        (ncu.SHARED_DYNAMIC, w.dynamic_smem_bytes),
        (ncu.GRID_DIM_X, m.grid.x), (ncu.GRID_DIM_Y, m.grid.y), (ncu.GRID_DIM_Z, m.grid.z),
        (ncu.BLOCK_DIM_X, m.block.x), (ncu.BLOCK_DIM_Y, m.block.y), (ncu.BLOCK_DIM_Z, m.block.z),
    ]  # fmt: skip


def _resource_metrics(m: Modelled) -> list[tuple[str, float]]:
    w, e = m.work, m.estimate
    held = e.occupancy
    reserved = m.device.shared_reserved_per_block
    return [
        (ncu.REGISTERS, w.registers_per_thread), (ncu.SHARED_STATIC, w.static_smem_bytes),
        (ncu.SHARED_DRIVER, reserved),
        (ncu.SHARED_PER_BLOCK, w.static_smem_bytes + w.dynamic_smem_bytes + reserved),
        (ncu.BARRIERS_PER_BLOCK, 1 if w.barriers_per_block else 0), (ncu.WAVES, e.waves),
        (ncu.LIMIT_BLOCKS, held.limit_blocks), (ncu.LIMIT_REGISTERS, held.limit_registers),
        (ncu.LIMIT_SHARED, held.limit_shared_memory), (ncu.LIMIT_WARPS, held.limit_warps),
        (ncu.THEORETICAL_WARPS, held.warps_per_sm),
        (ncu.THEORETICAL_OCCUPANCY, held.theoretical_pct),
        (ncu.ACHIEVED_WARPS, e.achieved_warps),
        (ncu.ACHIEVED_OCCUPANCY, 100.0 * e.achieved_warps / m.device.max_warps_per_sm),
    ]  # fmt: skip


def _throughput_metrics(m: Modelled) -> list[tuple[str, float]]:
    e = m.estimate
    busy = e.busy_pct
    active = e.elapsed_cycles / max(e.active_cycles, 1e-9)
    memory = max(busy["data_path"], busy["l2"], busy["dram"])
    instructions = max(busy[p] for p in ("issue", "fp32", "fp64", "alu", "sfu", "convert"))
    return [
        (ncu.DURATION, e.duration_us), (ncu.SM_FREQUENCY, 1e6 * m.device.sm_clock_mhz),
        (ncu.ELAPSED_CYCLES, e.elapsed_cycles), (ncu.SM_ACTIVE_CYCLES, e.active_cycles),
        (ncu.SMSP_CYCLES_ELAPSED, e.elapsed_cycles), (ncu.L1_ACTIVE_CYCLES, e.active_cycles),
        (ncu.L1_THROUGHPUT, min(100.0, busy["data_path"] * active)),
        (ncu.L2_THROUGHPUT, busy["l2"]),
        (ncu.DRAM_THROUGHPUT, _dram_pct(m)), (ncu.MEMORY_THROUGHPUT, memory),
        (ncu.MEM_BUSY, memory),
        (ncu.SM_THROUGHPUT, max(instructions, busy["lsu"])), (ncu.SM_BUSY, instructions),
        (ncu.MEM_PIPES_BUSY, busy["lsu"]), (ncu.L1_DATA_PIPE, busy["data_path"]),
        (ncu.L1_LSUIN, busy["lsu"]),
    ]  # fmt: skip


def _dram_pct(m: Modelled) -> float:
    moved = m.work.traffic.dram_read_bytes + m.work.traffic.first_write_bytes
    return min(100.0, moved / (m.estimate.duration_us * m.device.dram_bandwidth_gb_s * 10.0))


def _instruction_metrics(m: Modelled) -> list[tuple[str, float]]:
    e, blocks = m.estimate, m.work.grid_blocks
    demand = m.costs.demand(m.work)
    issued = demand["issue"] * blocks
    schedulers = m.device.sm_count * m.device.schedulers_per_sm
    per_cycle = issued / m.device.sm_count / e.elapsed_cycles
    active = e.elapsed_cycles / max(e.active_cycles, 1e-9)
    share = min(100.0, e.busy_pct["issue"] * active)
    return [
        (ncu.INST_EXECUTED, issued), (ncu.INST_EXECUTED_AVG, issued / schedulers),
        (ncu.EXECUTED_IPC_ELAPSED, per_cycle), (ncu.EXECUTED_IPC_ACTIVE, per_cycle * active),
        (ncu.ISSUE_SLOTS_BUSY, e.busy_pct["issue"]), (ncu.ONE_OR_MORE_ELIGIBLE, share),
        (ncu.ISSUED_WARP, share / 100.0), (ncu.NO_ELIGIBLE, 100.0 - share),
        (ncu.ACTIVE_WARPS_SCHEDULER, e.achieved_warps / m.device.schedulers_per_sm),
        (ncu.PIPE_FMA, min(100.0, e.busy_pct["fp32"] * active)),
        (ncu.PIPE_ALU, min(100.0, e.busy_pct["alu"] * active)),
        (ncu.PIPE_FP64, min(100.0, e.busy_pct["fp64"] * active)),
        (ncu.PIPE_XU, min(100.0, e.busy_pct["sfu"] * active)),
        (ncu.PIPE_LSU, min(100.0, e.busy_pct["lsu"] * active)),
        (ncu.INST_FMA, demand["fp32"] * blocks), (ncu.INST_ALU, demand["alu"] * blocks),
        (ncu.INST_FP64, demand["fp64"] * blocks),
        (ncu.INST_LSU, demand["lsu"] / m.costs.lsu_cycles * blocks),
        (ncu.BRANCHES, demand["branch"] * blocks),
    ]  # fmt: skip


def _operation_metrics(m: Modelled) -> list[tuple[str, float]]:
    counts, blocks = m.work.counts, m.work.grid_blocks
    pairs = (
        (ncu.FFMA, ncu.FFMA_PER_CYCLE, counts.ffma), (ncu.FADD, ncu.FADD_PER_CYCLE, counts.fadd),
        (ncu.FMUL, ncu.FMUL_PER_CYCLE, counts.fmul), (ncu.DFMA, ncu.DFMA_PER_CYCLE, counts.dfma),
        (ncu.DADD, ncu.DADD_PER_CYCLE, counts.dadd), (ncu.DMUL, ncu.DMUL_PER_CYCLE, counts.dmul),
    )  # fmt: skip
    result: list[tuple[str, float]] = []
    for total, per_cycle, count in pairs:
        result += [(total, count * blocks), (per_cycle, count * blocks / m.estimate.elapsed_cycles)]
    return result


def _global_memory_metrics(m: Modelled) -> list[tuple[str, float]]:
    loads = m.total(_global_load, lambda s: s.instructions_per_block)
    stores = m.total(_global_store, lambda s: s.instructions_per_block)
    load_sectors = m.total(_global_load, _sectors)
    store_sectors = m.total(_global_store, _sectors)
    hits = m.total(_global_load, lambda s: _sectors(s) * s.l1_hit)
    asked = _sites_whose_result_is_used(m.work)
    atomics = [
        (i, s.requests_per_block * m.work.grid_blocks)
        for i, s in enumerate(m.work.sites)
        if s.space == "global" and s.atomic
    ]
    result = [
        (ncu.GLOBAL_LD_REQUESTS, loads), (ncu.GLOBAL_LD_SECTORS, load_sectors),
        (ncu.GLOBAL_ST_REQUESTS, stores), (ncu.GLOBAL_ST_SECTORS, store_sectors),
        (ncu.GLOBAL_LD_INST, loads), (ncu.GLOBAL_ST_INST, stores),
        (ncu.GLOBAL_RED_REQUESTS, sum(n for i, n in atomics if i not in asked)),
        (ncu.GLOBAL_ATOM_REQUESTS, sum(n for i, n in atomics if i in asked)),
        (ncu.LOCAL_LD_SECTORS, m.total(_local(write=False), _sectors)),
        (ncu.LOCAL_ST_SECTORS, m.total(_local(write=True), _sectors)),
    ]  # fmt: skip
    if load_sectors + store_sectors:
        result.append((ncu.L1_HIT_RATE, 100.0 * hits / (load_sectors + store_sectors)))
    if load_sectors:
        result.append((ncu.GLOBAL_LD_HIT_RATE, 100.0 * hits / load_sectors))
        result.append(
            (ncu.BYTES_PER_SECTOR_LD, m.total(_global_load, _useful_bytes) / load_sectors)
        )
    if store_sectors:
        result.append(
            (ncu.BYTES_PER_SECTOR_ST, m.total(_global_store, _useful_bytes) / store_sectors)
        )
    return result


def _shared_memory_metrics(m: Modelled) -> list[tuple[str, float]]:
    def waves(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block * s.wavefronts)

    def ideal(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block * s.ideal_wavefronts)

    def conflicts(write: bool) -> float:
        return m.total(
            _shared(write), lambda s: s.instructions_per_block * (s.wavefronts - s.ideal_wavefronts)
        )

    def count(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block)

    reads, writes = waves(False), waves(True)
    whole = m.device.sm_count * m.estimate.elapsed_cycles
    held = m.total(
        lambda s: s.space == "shared", lambda s: s.instructions_per_block * m.costs.wavefronts(s)
    )
    return [
        (ncu.SHARED_WAVEFRONTS, reads + writes), (ncu.SHARED_LD_WAVEFRONTS, reads),
        (ncu.SHARED_ST_WAVEFRONTS, writes),
        (ncu.SHARED_WAVEFRONTS_IDEAL, ideal(False) + ideal(True)),
        (ncu.SHARED_DATA_PIPE, 100.0 * held / whole),
        (ncu.BANK_CONFLICTS_LD, conflicts(False)), (ncu.BANK_CONFLICTS_ST, conflicts(True)),
        (ncu.BANK_CONFLICTS, conflicts(False) + conflicts(True)),
        (ncu.SHARED_LD_INST, count(False)), (ncu.SHARED_ST_INST, count(True)),
        (ncu.SHARED_ATOMICS, m.total(_shared_atomic, lambda s: s.instructions_per_block)),
    ]  # fmt: skip


def _beyond_l1_metrics(m: Modelled) -> list[tuple[str, float]]:
    missed = m.total(_global_load, lambda s: _sectors(s) * (1.0 - s.l1_hit))
    stored = m.total(_global_store, _sectors)
    t = m.work.traffic
    seconds = m.estimate.duration_us * 1e-6
    result = [
        (ncu.L2_READ_SECTORS, missed), (ncu.L2_WRITE_SECTORS, stored),
        (ncu.L2_SECTORS, missed + stored),
        (ncu.DRAM_READ_BYTES, t.dram_read_bytes), (ncu.DRAM_WRITE_BYTES, t.first_write_bytes),
        (ncu.DRAM_BYTES_PER_SECOND, (t.dram_read_bytes + t.first_write_bytes) / seconds),
    ]  # fmt: skip
    if missed + stored:
        fetched = min(t.dram_read_bytes / 32.0, missed)
        result.append((ncu.L2_HIT_RATE, 100.0 * (1.0 - fetched / (missed + stored))))
    return result


def _waiting_metrics(m: Modelled) -> list[tuple[str, float]]:
    """Where the played warps spent their cycles; reasons the model does not tell apart are
    absent."""
    waits = m.estimate.waits
    return [
        (ncu.STALL_LONG, waits["global"]), (ncu.STALL_SHORT, waits["shared"]),
        (ncu.STALL_LG, waits["queue"]),
        (ncu.STALL_BARRIER, waits["barrier"]), (ncu.STALL_WAIT, waits["chain"]),
        (ncu.STALL_NOT_SELECTED, waits["issue"]), (ncu.STALL_SELECTED, 1.0),
        (ncu.CYCLES_PER_ISSUE, 1.0 + sum(waits.values())),
    ]  # fmt: skip


def _sectors(s: MemorySite) -> float:
    return s.instructions_per_block * s.sectors


def _useful_bytes(s: MemorySite) -> float:
    return min(s.instructions_per_block * s.useful_bytes, 32.0 * _sectors(s))


def _global_load(s: MemorySite) -> bool:
    return s.space == "global" and not s.write and not s.atomic


def _global_store(s: MemorySite) -> bool:
    return s.space == "global" and s.write and not s.atomic


def _local(*, write: bool) -> Callable[[MemorySite], bool]:
    return lambda s: s.space == "local" and s.write == write


def _shared_atomic(s: MemorySite) -> bool:
    return s.space == "shared" and s.atomic


def _sites_whose_result_is_used(work: KernelWork) -> set[int]:
    steps = (step for p in work.phases for stretch in p.stretches for step in stretch.steps)
    return {use.site for step in steps for use in step.loads}


def _shared(write: bool) -> Callable[[MemorySite], bool]:
    return lambda s: s.space == "shared" and s.write == write and not s.atomic
