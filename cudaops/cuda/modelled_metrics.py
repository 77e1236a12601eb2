"""The time model's result under ncu's metric names: what is counted or computed, and nothing
else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cudaops.cuda import metric_counters as c
from cudaops.cuda import metric_details as d
from cudaops.cuda.devices import Device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.sm_program import Costs
from cudaops.cuda.timing import Estimate
from cudaops.cuda.work import KernelWork, Site
from cudaops.domain.base import Dim3
from cudaops.domain.profile import Metric, MetricSource


@dataclass(frozen=True)
class Modelled:
    """One launch on one device with everything known about it."""

    work: KernelWork
    estimate: Estimate
    costs: Costs
    device: Device
    grid: Dim3
    block: Dim3

    def total(self, chosen: Callable[[Site], bool], value: Callable[[Site], float]) -> float:
        """Sum over the sites of this kind, whole launch."""
        return self.work.grid_blocks * sum(value(s) for s in self.work.sites if chosen(s))


def modelled_metrics(m: Modelled) -> dict[str, Metric]:
    """Every metric the model knows, by ncu's name; what is not here is not known."""
    known: dict[str, Metric] = {}
    groups: Sequence[tuple[MetricSource, Iterable[tuple[str, float]]]] = (
        ("launch", _launch(m)),
        ("modelled", _resources(m)),
        ("modelled", _throughput(m)),
        ("modelled", _instructions(m)),
        ("modelled", _operations(m)),
        ("modelled", _global_memory(m)),
        ("modelled", _shared_memory(m)),
        ("modelled", _beyond_l1(m)),
        ("modelled", _waiting(m)),
    )
    for source, pairs in groups:
        for name, value in pairs:
            known[name] = Metric(
                name=name, value=float(value), unit=METRICS[name].unit, source=source
            )
    return known


def _launch(m: Modelled) -> list[tuple[str, float]]:
    w = m.work
    return [
        (d.BLOCK_SIZE, w.block_threads), (d.GRID_SIZE, w.grid_blocks),
        (d.THREADS, w.block_threads * w.grid_blocks), (d.SM_COUNT, m.device.sm_count),
        (d.SHARED_DYNAMIC, w.dynamic_smem_bytes),
        (c.GRID_DIM_X, m.grid.x), (c.GRID_DIM_Y, m.grid.y), (c.GRID_DIM_Z, m.grid.z),
        (c.BLOCK_DIM_X, m.block.x), (c.BLOCK_DIM_Y, m.block.y), (c.BLOCK_DIM_Z, m.block.z),
    ]  # fmt: skip


def _resources(m: Modelled) -> list[tuple[str, float]]:
    w, e = m.work, m.estimate
    held = e.occupancy
    reserved = m.device.shared_reserved_per_block
    return [
        (d.REGISTERS, w.registers_per_thread), (d.SHARED_STATIC, w.static_smem_bytes),
        (d.SHARED_DRIVER, reserved),
        (c.SHARED_PER_BLOCK, w.static_smem_bytes + w.dynamic_smem_bytes + reserved),
        (c.BARRIERS_PER_BLOCK, 1 if w.barriers_per_block else 0), (d.WAVES, e.waves),
        (d.LIMIT_BLOCKS, held.limit_blocks), (d.LIMIT_REGISTERS, held.limit_registers),
        (d.LIMIT_SHARED, held.limit_shared_memory), (d.LIMIT_WARPS, held.limit_warps),
        (d.THEORETICAL_WARPS, held.warps_per_sm), (d.THEORETICAL_OCCUPANCY, held.theoretical_pct),
        (d.ACHIEVED_WARPS, e.achieved_warps),
        (d.ACHIEVED_OCCUPANCY, 100.0 * e.achieved_warps / m.device.max_warps_per_sm),
    ]  # fmt: skip


def _throughput(m: Modelled) -> list[tuple[str, float]]:
    e = m.estimate
    busy = e.busy_pct
    active = e.cycles / max(e.active_cycles, 1e-9)
    memory = max(busy["data_path"], busy["l2"], busy["dram"])
    instructions = max(busy[p] for p in ("issue", "fp32", "fp64", "alu", "sfu", "convert"))
    return [
        (d.DURATION, e.kernel_us), (d.SM_FREQUENCY, 1e6 * m.device.sm_clock_mhz),
        (d.ELAPSED_CYCLES, e.cycles), (d.SM_ACTIVE_CYCLES, e.active_cycles),
        (c.SMSP_CYCLES_ELAPSED, e.cycles), (d.L1_ACTIVE_CYCLES, e.active_cycles),
        (d.L1_THROUGHPUT, min(100.0, busy["data_path"] * active)), (d.L2_THROUGHPUT, busy["l2"]),
        (d.DRAM_THROUGHPUT, _dram_pct(m)), (d.MEMORY_THROUGHPUT, memory), (d.MEM_BUSY, memory),
        (d.SM_THROUGHPUT, max(instructions, busy["lsu"])), (d.SM_BUSY, instructions),
        (d.MEM_PIPES_BUSY, busy["lsu"]), (c.L1_DATA_PIPE, busy["data_path"]),
        (c.L1_LSUIN, busy["lsu"]),
    ]  # fmt: skip


def _dram_pct(m: Modelled) -> float:
    moved = m.work.traffic.dram_read_bytes + m.work.traffic.dram_write_bytes
    return min(100.0, moved / (m.estimate.kernel_us * m.device.dram_bandwidth_gb_s * 10.0))


def _instructions(m: Modelled) -> list[tuple[str, float]]:
    e, blocks = m.estimate, m.work.grid_blocks
    demand = m.costs.demand(m.work)
    issued = demand["issue"] * blocks
    schedulers = m.device.sm_count * m.device.schedulers_per_sm
    per_cycle = issued / m.device.sm_count / e.cycles
    active = e.cycles / max(e.active_cycles, 1e-9)
    share = min(100.0, e.busy_pct["issue"] * active)
    return [
        (d.INST_EXECUTED, issued), (d.INST_EXECUTED_AVG, issued / schedulers),
        (d.EXECUTED_IPC_ELAPSED, per_cycle), (d.EXECUTED_IPC_ACTIVE, per_cycle * active),
        (d.ISSUE_SLOTS_BUSY, e.busy_pct["issue"]), (d.ONE_OR_MORE_ELIGIBLE, share),
        (d.ISSUED_WARP, share / 100.0), (d.NO_ELIGIBLE, 100.0 - share),
        (d.ACTIVE_WARPS_SCHEDULER, e.achieved_warps / m.device.schedulers_per_sm),
        (c.PIPE_FMA, min(100.0, e.busy_pct["fp32"] * active)),
        (c.PIPE_ALU, min(100.0, e.busy_pct["alu"] * active)),
        (c.PIPE_FP64, min(100.0, e.busy_pct["fp64"] * active)),
        (c.PIPE_XU, min(100.0, e.busy_pct["sfu"] * active)),
        (c.PIPE_LSU, min(100.0, e.busy_pct["lsu"] * active)),
        (c.INST_FMA, demand["fp32"] * blocks), (c.INST_ALU, demand["alu"] * blocks),
        (c.INST_FP64, demand["fp64"] * blocks),
        (c.INST_LSU, demand["lsu"] / m.costs.lsu_cycles * blocks),
        (d.BRANCHES, demand["branch"] * blocks),
    ]  # fmt: skip


def _operations(m: Modelled) -> list[tuple[str, float]]:
    counts, blocks = m.work.counts, m.work.grid_blocks
    pairs = (
        (c.FFMA, c.FFMA_PER_CYCLE, counts.ffma), (c.FADD, c.FADD_PER_CYCLE, counts.fadd),
        (c.FMUL, c.FMUL_PER_CYCLE, counts.fmul), (c.DFMA, c.DFMA_PER_CYCLE, counts.dfma),
        (c.DADD, c.DADD_PER_CYCLE, counts.dadd), (c.DMUL, c.DMUL_PER_CYCLE, counts.dmul),
    )  # fmt: skip
    result: list[tuple[str, float]] = []
    for total, per_cycle, count in pairs:
        result += [(total, count * blocks), (per_cycle, count * blocks / m.estimate.cycles)]
    return result


def _global_memory(m: Modelled) -> list[tuple[str, float]]:
    loads = m.total(_global_load, lambda s: s.requests_per_block)
    stores = m.total(_global_store, lambda s: s.requests_per_block)
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
        (c.GLOBAL_LD_REQUESTS, loads), (c.GLOBAL_LD_SECTORS, load_sectors),
        (c.GLOBAL_ST_REQUESTS, stores), (c.GLOBAL_ST_SECTORS, store_sectors),
        (c.GLOBAL_LD_INST, loads), (c.GLOBAL_ST_INST, stores),
        (c.GLOBAL_RED_REQUESTS, sum(n for i, n in atomics if i not in asked)),
        (c.GLOBAL_ATOM_REQUESTS, sum(n for i, n in atomics if i in asked)),
    ]  # fmt: skip
    if load_sectors + store_sectors:
        result.append((d.L1_HIT_RATE, 100.0 * hits / (load_sectors + store_sectors)))
    if load_sectors:
        result.append((c.GLOBAL_LD_HIT_RATE, 100.0 * hits / load_sectors))
        result.append((c.BYTES_PER_SECTOR_LD, m.total(_global_load, _useful_bytes) / load_sectors))
    if store_sectors:
        result.append(
            (c.BYTES_PER_SECTOR_ST, m.total(_global_store, _useful_bytes) / store_sectors)
        )
    return result


def _shared_memory(m: Modelled) -> list[tuple[str, float]]:
    def waves(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block * s.wavefronts)

    def ideal(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block * s.ideal_wavefronts)

    def count(write: bool) -> float:
        return m.total(_shared(write), lambda s: s.instructions_per_block)

    reads, writes = waves(False), waves(True)
    whole = m.device.sm_count * m.estimate.cycles
    held = m.total(
        lambda s: s.space == "shared", lambda s: s.instructions_per_block * m.costs.wavefronts(s)
    )
    return [
        (c.SHARED_WAVEFRONTS, reads + writes), (c.SHARED_LD_WAVEFRONTS, reads),
        (c.SHARED_ST_WAVEFRONTS, writes), (c.SHARED_WAVEFRONTS_IDEAL, ideal(False) + ideal(True)),
        (c.SHARED_DATA_PIPE, 100.0 * held / whole),
        (c.BANK_CONFLICTS_LD, reads - ideal(False)), (c.BANK_CONFLICTS_ST, writes - ideal(True)),
        (c.BANK_CONFLICTS, reads + writes - ideal(False) - ideal(True)),
        (c.SHARED_LD_INST, count(False)), (c.SHARED_ST_INST, count(True)),
        (c.SHARED_ATOMICS, m.total(_shared_atomic, lambda s: s.instructions_per_block)),
    ]  # fmt: skip


def _beyond_l1(m: Modelled) -> list[tuple[str, float]]:
    missed = m.total(_global_load, lambda s: _sectors(s) * (1.0 - s.l1_hit))
    stored = m.total(_global_store, _sectors)
    t = m.work.traffic
    seconds = m.estimate.kernel_us * 1e-6
    result = [
        (c.L2_READ_SECTORS, missed), (c.L2_WRITE_SECTORS, stored), (c.L2_SECTORS, missed + stored),
        (c.DRAM_READ_BYTES, t.dram_read_bytes), (c.DRAM_WRITE_BYTES, t.dram_write_bytes),
        (d.DRAM_BYTES_PER_SECOND, (t.dram_read_bytes + t.dram_write_bytes) / seconds),
    ]  # fmt: skip
    if missed + stored:
        fetched = min(t.dram_read_bytes / 32.0, missed)
        result.append((d.L2_HIT_RATE, 100.0 * (1.0 - fetched / (missed + stored))))
    return result


def _waiting(m: Modelled) -> list[tuple[str, float]]:
    """Where the played warps spent their cycles; reasons the model does not tell apart are
    absent."""
    waits = m.estimate.waits
    return [
        (c.STALL_LONG, waits["global"]), (c.STALL_SHORT, waits["shared"]),
        (c.STALL_LG, waits["queue"]),
        (c.STALL_BARRIER, waits["barrier"]), (c.STALL_WAIT, waits["chain"]),
        (c.STALL_NOT_SELECTED, waits["issue"]), (c.STALL_SELECTED, 1.0),
        (d.CYCLES_PER_ISSUE, 1.0 + sum(waits.values())),
    ]  # fmt: skip


def _sectors(s: Site) -> float:
    return s.requests_per_block * s.sectors


def _useful_bytes(s: Site) -> float:
    return min(s.requests_per_block * s.useful_bytes, 32.0 * _sectors(s))


def _global_load(s: Site) -> bool:
    return s.space == "global" and not s.write and not s.atomic


def _global_store(s: Site) -> bool:
    return s.space == "global" and s.write and not s.atomic


def _shared_atomic(s: Site) -> bool:
    return s.space == "shared" and s.atomic


def _sites_whose_result_is_used(work: KernelWork) -> set[int]:
    steps = (step for p in work.phases for stretch in p.stretches for step in stretch.steps)
    return {use.site for step in steps for use in step.loads}


def _shared(write: bool) -> Callable[[Site], bool]:
    return lambda s: s.space == "shared" and s.write == write and not s.atomic
