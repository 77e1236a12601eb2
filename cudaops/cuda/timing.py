"""The time model: counts, geometry and a device in; cycles, microseconds and a breakdown out. Pure.
 Three things bound a kernel and all three are here: what an SM's parts can take a cycle, how long a
warp waits between barriers for lack of other warps, and how the blocks of a grid fall on the SMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cudaops.cuda.devices import Device
from cudaops.cuda.microarch import (
    KERNEL_GAP_US,
    SMALLEST_LAUNCH_US,
    Microarchitecture,
    microarchitecture,
)
from cudaops.cuda.occupancy import Occupancy, occupancy
from cudaops.cuda.sm_program import Costs, demand_of_block, program_of, stages_of
from cudaops.cuda.sm_simulation import PIPES, Action, Rates, Usage, simulate
from cudaops.cuda.work import KernelWork
from cudaops.errors import InputError

EVENT_BUDGET = 9000
"""Actions of warps played forward for one estimate; longer kernels are extrapolated from a part."""

BUSY_PCT = 60.0
"""Below this nobody calls a part the limit. Judgement; NVIDIA's own guided analysis uses the
same."""

ROUNDS = 4
"""Fillings of an SM that a kernel with short blocks is played for before it is extrapolated."""


@dataclass(frozen=True)
class Estimate:
    """Modelled time of one launch and where it goes. Percentages are of peak over the whole
    launch."""

    duration_us: float
    """As events around back-to-back launches would show it."""
    kernel_us: float
    """The kernel alone, as a profiler would show it."""
    cycles: float
    """SM cycles of the busiest SM."""
    active_cycles: float
    """SM cycles with at least one warp, mean over all SMs."""
    limiter: str
    """The busiest part of `busy_pct`; `latency` where none is busy `BUSY_PCT` of the time;
    `atomics` where one address has to take too many; `launch` where the launch itself is longer."""
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


def estimate(work: KernelWork, device: Device) -> Estimate:
    """Model one launch on a device.

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
    costs = Costs.of(work, device, times)
    rates = _rates(device, times)
    cycles, usage = _cycles(work, costs, rates, slots, busiest)
    floor = _atomic_floor(work, times)
    found = _report(work, device, costs, held, slots, busiest, max(cycles, floor), usage)
    return replace(found, limiter="atomics") if floor > cycles else found


def _rates(device: Device, times: Microarchitecture) -> Rates:
    schedulers = device.schedulers_per_sm
    lanes = (
        device.fp32_lanes_per_sm, device.fp64_lanes_per_sm, device.lanes("int32"),
        device.lanes("sfu"), times.convert_lanes,
    )  # fmt: skip
    return Rates(
        schedulers, tuple(32.0 * schedulers / n for n in lanes), times.alu_latency,
        times.barrier_latency, times.first_use_penalty, times.block_launch,
    )  # fmt: skip


def _cycles(
    work: KernelWork, costs: Costs, rates: Rates, slots: int, blocks: int
) -> tuple[float, Usage]:
    """Cycles until one SM has worked off `blocks` blocks."""
    stages = stages_of(work)
    whole = program_of(work, costs, stages, {}, 1.0)
    events = sum(len(p) for p in whole) * slots
    if events * min(ROUNDS, math.ceil(blocks / slots)) <= EVENT_BUDGET:
        return _steady(whole, rates, slots, blocks)
    full, rest = divmod(blocks, slots)
    at_full, usage = _long(work, costs, rates, slots)
    total = full * (at_full + rates.block_launch)
    if rest:
        total += _long(work, costs, rates, rest)[0] + rates.block_launch
    return total, usage


def _steady(
    programs: list[list[Action]], rates: Rates, slots: int, blocks: int
) -> tuple[float, Usage]:
    """Short blocks: played with replacement, then extrapolated at the rate of the second half."""
    if blocks <= ROUNDS * slots:
        usage = simulate(programs, slots, blocks, rates)
        return usage.cycles + rates.block_launch, usage
    early = simulate(programs, slots, slots * ROUNDS // 2, rates)
    late = simulate(programs, slots, slots * ROUNDS, rates)
    a_block = (late.cycles - early.cycles) / (slots * (ROUNDS - ROUNDS // 2))
    return late.cycles + (blocks - slots * ROUNDS) * a_block + rates.block_launch, late


def _long(work: KernelWork, costs: Costs, rates: Rates, slots: int) -> tuple[float, Usage]:
    """Long blocks: a few turns of each loop over barriers, a part of each loop inside."""
    total = longest = 0.0
    heaviest = Usage()
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
    work: KernelWork, costs: Costs, rates: Rates, slots: int, stage: int, part: float
) -> tuple[float, Usage]:
    """One turn of a stage whose inner loops are too long, from two shares of their trips."""
    chosen = [s for s in stages_of(work) if s.first == stage]
    shares = (part / 2, part)
    runs = [
        simulate(program_of(work, costs, chosen, {stage: 1}, share), slots, slots, rates)
        for share in shares
    ]
    done = [demand_of_block(work, costs, chosen, share) for share in shares]
    everything = demand_of_block(work, costs, chosen, 1.0)
    a_unit = (runs[1].cycles - runs[0].cycles) / max(done[1] - done[0], 1e-9)
    return runs[1].cycles + max(everything - done[1], 0.0) * a_unit, runs[1]


def _atomic_floor(work: KernelWork, times: Microarchitecture) -> float:
    """One address takes one operation at a time, whoever sends it."""
    return work.hottest_atomic * work.grid_blocks * times.atomic_l2_cycles


def _report(
    work: KernelWork, device: Device, costs: Costs, held: Occupancy, slots: int, blocks: int,
    cycles: float, usage: Usage,
) -> Estimate:  # fmt: skip
    kernel_us = device.cycles_to_us(cycles)
    mean_blocks = work.grid_blocks / device.sm_count
    active = cycles * min(1.0, mean_blocks / blocks + 0.02) if blocks > 1 else cycles * mean_blocks
    width = dict.fromkeys(("issue", *PIPES), float(device.schedulers_per_sm))
    per_pipe = dict(zip(PIPES, _rates(device, costs.times).pipe_cycles, strict=True))
    busy = {
        part: 100.0 * demand * per_pipe.get(part, 1.0) / width.get(part, 1.0) * mean_blocks / cycles
        for part, demand in costs.demand(work).items()
        if part != "branch"
    }
    top = max((p for p in busy if p != "lsu"), key=lambda p: busy[p])
    duration = max(kernel_us + KERNEL_GAP_US, SMALLEST_LAUNCH_US)
    latency_bound = busy[top] < BUSY_PCT
    limiter = (
        "launch" if kernel_us < SMALLEST_LAUNCH_US / 2 else "latency" if latency_bound else top
    )
    issued = max(usage.issued, 1.0)
    rounds = math.ceil(blocks / slots)
    resident = slots * work.warps_per_block * min(mean_blocks / (rounds * slots), 1.0)
    return Estimate(
        duration_us=duration,
        kernel_us=kernel_us,
        cycles=cycles,
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
