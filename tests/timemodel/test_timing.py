"""The time model on hand-made kernels whose time can be computed on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.metrics import METRICS
from cudaops.domain.base import Dim3
from cudaops.errors import InputError
from cudaops.timemodel.sm_simulation import Costs
from cudaops.timemodel.timing import Estimate, Modelled, estimate, modelled_metrics
from cudaops.timemodel.work import (
    KernelWork,
    MemorySite,
    Mix,
    Phase,
    Stretch,
    ThreadCounts,
    Traffic,
    Use,
    WorkStep,
)

H200, A10 = DEVICES["H200"], DEVICES["A10"]
GLOBAL_LOAD = MemorySite(
    "global", False, False, "k.cu", 1, 4, 8, 8, 256, 1.0, 1.0, 4.0, useful_bytes=128.0
)
GLOBAL_STORE = MemorySite(
    "global", True, False, "k.cu", 1, 4, 8, 8, 256, 1.0, 1.0, 4.0, useful_bytes=128.0
)
SHARED_LOAD = MemorySite("shared", False, False, "k.cu", 2, 4, 8, 8, 256, 1.0, 1.0)
IN_L2 = Traffic(1e6, 1e6, 0.0, True)


def kernel(
    phases: Sequence[Phase], sites: Sequence[MemorySite], *, blocks: int, threads: int = 256,
    registers: int = 32, traffic: Traffic = IN_L2, smem: int = 0, hottest_atomic: float = 0.0,
) -> KernelWork:  # fmt: skip
    return KernelWork(
        blocks, threads, registers, smem, 0, tuple(phases), tuple(sites), ThreadCounts(), traffic,
        hottest_atomic=hottest_atomic,
    )  # fmt: skip


def loop(step: WorkStep, repeats: float, *, barrier: bool = False, times: float = 1.0) -> Phase:
    return Phase((Stretch((step,), repeats),), times, barrier)


def arithmetic(instructions: float, chain: float = 0.0) -> WorkStep:
    return WorkStep(mix=Mix(instructions, fp32=instructions), chain=chain)


def load_and_use(site: int, *, chain: float = 0.0, work: float = 1.0) -> WorkStep:
    token = 0 if site == 1 else 1
    return WorkStep((Use(site, 1.0),), Mix(work, fp32=work), (), chain, 1.0, needs=(token,))


def streaming(blocks: int) -> KernelWork:
    """c[i] = a[i] + b[i], 256 floats a block."""
    step = WorkStep((Use(0, 2.0),), Mix(3, fp32=1, alu=2), (Use(1, 1.0),), needs=(1,))
    loads = replace(GLOBAL_LOAD, requests_per_block=16.0, instructions_per_block=16.0)
    moved = blocks * 1024.0
    traffic = Traffic(3 * moved, 2 * moved, moved, False)
    return kernel([loop(step, 1.0)], [loads, GLOBAL_STORE], blocks=blocks, traffic=traffic)


@pytest.mark.parametrize("device", [H200, A10], ids=lambda d: d.name)
def test_streaming_kernel_runs_near_the_published_bandwidth(device: Device) -> None:
    found = estimate(streaming(65536), device)
    floor_us = 65536 * 3072 / (device.dram_bandwidth_gb_s * 1e3)
    assert floor_us < found.duration_us < 1.3 * floor_us
    assert found.limiter == "dram"


def test_time_grows_with_the_grid_once_the_device_is_full() -> None:
    once, twice = (estimate(streaming(n), H200).duration_us for n in (65536, 131072))
    assert twice / once == pytest.approx(2.0, rel=0.05)


def test_tiny_kernel_costs_a_launch_and_its_own_time() -> None:
    tiny, longer = (
        estimate(kernel([loop(arithmetic(64.0, 64.0), repeats)], [], blocks=4), H200)
        for repeats in (1.0, 2.0)
    )
    assert tiny.limiter == longer.limiter == "launch"
    own_us = longer.duration_us - tiny.duration_us
    assert own_us == pytest.approx(H200.cycles_to_us(longer.cycles - tiny.cycles))
    assert own_us > 0.1
    assert H200.launch_us < tiny.duration_us < H200.launch_us + 1.0


def test_fp32_work_is_bound_by_the_lanes() -> None:
    work = kernel([loop(arithmetic(64.0), 100.0)], [], blocks=132 * 8)
    found = estimate(work, H200)
    warps, instructions = 8 * 8, 6400
    assert found.cycles == pytest.approx(warps * instructions / 4, rel=0.05)
    assert found.busy_pct["fp32"] > 90.0


def test_double_precision_shows_the_lanes_of_each_device() -> None:
    step = WorkStep(mix=Mix(64.0, fp64=64.0))
    ratio = {}
    for device in (H200, A10):
        double = kernel([loop(step, 50.0)], [], blocks=device.sm_count * 8)
        single = kernel([loop(arithmetic(64.0), 50.0)], [], blocks=device.sm_count * 8)
        ratio[device.name] = estimate(double, device).cycles / estimate(single, device).cycles
    assert ratio["H200"] == pytest.approx(2.0, rel=0.1)
    assert ratio["A10"] == pytest.approx(64.0, rel=0.1)


def test_bank_conflicts_multiply_the_time_of_a_shared_bound_kernel() -> None:
    def cycles(wavefronts: float) -> float:
        sites = [GLOBAL_LOAD, replace(SHARED_LOAD, wavefronts=wavefronts)]
        return estimate(kernel([loop(load_and_use(1), 400.0)], sites, blocks=132 * 8), H200).cycles

    assert cycles(32.0) / cycles(2.0) == pytest.approx(16.0, rel=0.1)


def test_narrow_load_store_units_take_two_cycles_a_load() -> None:
    def share(device: Device) -> float:
        sites = [GLOBAL_LOAD, SHARED_LOAD]
        work = kernel([loop(load_and_use(1), 200.0)], sites, blocks=device.sm_count * 6)
        return estimate(work, device).cycles / (6 * 8 * 200)

    assert share(H200) == pytest.approx(1.0, rel=0.1)
    assert share(A10) == pytest.approx(2.0, rel=0.1)


def test_latency_between_barriers_is_not_hidden_by_throughput() -> None:
    """Eight warps that load, wait and meet: a turn costs at least one L2 round trip."""
    work = kernel(
        [loop(load_and_use(0), 1.0, barrier=True, times=100.0)], [GLOBAL_LOAD], blocks=132
    )
    found = estimate(work, H200)
    times = microarchitecture(H200.compute_capability)
    assert found.cycles > 100 * times.l2_latency
    assert max(found.busy_pct.values()) < 20.0
    assert found.limiter == "latency"


def test_resident_blocks_hide_each_others_latency() -> None:
    phases = [loop(load_and_use(0), 1.0, barrier=True, times=100.0)]
    alone = estimate(kernel(phases, [GLOBAL_LOAD], blocks=132), H200)
    eight = estimate(kernel(phases, [GLOBAL_LOAD], blocks=132 * 8), H200)
    assert eight.cycles < 2.0 * alone.cycles
    assert eight.blocks_per_sm == 8


def test_registers_that_halve_occupancy_cost_a_latency_bound_kernel() -> None:
    phases = [loop(load_and_use(0, chain=8.0), 64.0)]
    few = estimate(kernel(phases, [GLOBAL_LOAD], blocks=132 * 8, registers=32), H200)
    many = estimate(kernel(phases, [GLOBAL_LOAD], blocks=132 * 8, registers=128), H200)
    assert many.blocks_per_sm == 2
    assert many.cycles > 1.5 * few.cycles


def test_prefetched_data_is_waited_for_where_it_is_used() -> None:
    work, end = arithmetic(100.0), arithmetic(1.0)
    early = (WorkStep((Use(0, 1.0),), Mix(1, alu=1), needs=(1,)), work, end)
    late = (WorkStep((Use(0, 1.0),), Mix(1, alu=1)), work, replace(end, needs=(1,)))

    def cycles(steps: tuple[WorkStep, ...]) -> float:
        phase = Phase((Stretch(steps, 1.0),), 50.0, True)
        return estimate(kernel([phase], [GLOBAL_LOAD], blocks=132), H200).cycles

    assert cycles(late) < 0.8 * cycles(early)


def test_one_block_beyond_a_wave_costs_a_whole_round() -> None:
    phases = [loop(arithmetic(64.0), 200.0)]
    full = estimate(kernel(phases, [], blocks=132, threads=1024), H200)
    beyond = estimate(kernel(phases, [], blocks=133, threads=1024), H200)
    assert beyond.cycles == pytest.approx(2 * full.cycles, rel=0.1)


def test_half_the_processors_idle_where_the_grid_is_too_small() -> None:
    phases = [loop(arithmetic(64.0), 200.0)]
    found = estimate(kernel(phases, [], blocks=66), H200)
    assert found.active_cycles == pytest.approx(found.cycles / 2, rel=0.05)


def test_warps_that_take_no_part_do_not_add_work() -> None:
    whole = Phase((Stretch((arithmetic(64.0),), 100.0),), 1.0, False)
    half = Phase((Stretch((arithmetic(64.0),), 100.0, 0.5),), 1.0, False)
    cycles = [estimate(kernel([p], [], blocks=132 * 8), H200).cycles for p in (whole, half)]
    assert cycles[1] == pytest.approx(cycles[0] / 2, rel=0.1)


def test_long_loops_are_extrapolated_to_the_same_rate() -> None:
    def cycles(repeats: float) -> float:
        return estimate(
            kernel([loop(load_and_use(0), repeats)], [GLOBAL_LOAD], blocks=132 * 8), H200
        ).cycles

    assert cycles(100_000.0) / cycles(100.0) == pytest.approx(1000.0, rel=0.1)


def test_a_stage_of_many_short_loops_is_extrapolated_from_shares_that_differ_in_them() -> None:
    """The dear loops are longer than the cheap ones: in a small share they alone go round twice."""
    cheap, dear = Stretch((arithmetic(1.0),), 12.0), Stretch((arithmetic(64.0),), 32.0)
    phase = Phase((*[cheap] * 300, *[dear] * 5), 1.0, True)
    found = estimate(kernel([phase], [], blocks=132 * 4), H200)
    warps, instructions = 4 * 8, 300 * 12 + 5 * 32 * 64
    assert found.cycles == pytest.approx(warps * instructions / 4, rel=0.15)


def test_one_hot_address_bounds_the_kernel() -> None:
    found = estimate(
        kernel([loop(arithmetic(1.0), 1.0)], [], blocks=1000, hottest_atomic=256.0), H200
    )
    assert found.cycles >= 256_000
    assert found.limiter == "atomics"


def test_a_block_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit on an SM of A10"):
        estimate(kernel([loop(arithmetic(1.0), 1.0)], [], blocks=1, smem=120_000), A10)


def test_the_same_work_always_takes_the_same_time() -> None:
    work = streaming(5000)
    assert estimate(work, H200) == estimate(work, H200)


def modelled(work: KernelWork, device: Device) -> tuple[Modelled, Estimate]:
    found = estimate(work, device)
    costs = Costs.of(work, device, microarchitecture(device.compute_capability))
    return Modelled(
        work, found, costs, device, Dim3(x=work.grid_blocks), Dim3(x=work.block_threads)
    ), found


def test_metrics_carry_ncus_names_and_units() -> None:
    metrics = modelled_metrics(modelled(streaming(4096), H200)[0])
    assert len(metrics) >= 40
    for name, metric in metrics.items():
        assert metric.name == name
        assert metric.unit == METRICS[name].unit
        assert math.isfinite(metric.value)
        assert metric.source in ("modelled", "launch")
        if metric.unit == "%":
            assert 0.0 <= metric.value <= 100.0, name


def test_a_ratio_of_nothing_stays_missing() -> None:
    metrics = modelled_metrics(
        modelled(kernel([loop(arithmetic(8.0), 4.0)], [], blocks=132), H200)[0]
    )
    for absent in ("l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"):
        assert absent not in metrics


def test_dependent_doubles_wait_longer_and_longest_where_the_lanes_are_few() -> None:
    """One warp, 1,000 instructions of which each needs the one before."""
    cycles = {}
    for device in (H200, A10):
        for kind in ("fp32", "fp64"):
            step = WorkStep(mix=Mix(10.0, **{kind: 10.0}), chain=10.0)
            work = kernel([loop(step, 100.0)], [], blocks=1, threads=32)
            cycles[device.name, kind] = estimate(work, device).cycles
    assert cycles["H200", "fp64"] == pytest.approx(2.0 * cycles["H200", "fp32"], rel=0.15)
    assert cycles["A10", "fp64"] > 10.0 * cycles["A10", "fp32"]


def test_a_barrier_costs_more_the_more_warps_meet() -> None:
    def cycles(threads: int) -> float:
        work = kernel([loop(arithmetic(1.0), 1.0, barrier=True, times=100.0)], [], blocks=1,
                      threads=threads)  # fmt: skip
        return estimate(work, H200).cycles

    times = microarchitecture(H200.compute_capability)
    each = (cycles(1024) - cycles(128)) / 100
    assert each >= 28 * times.barrier_cycles_per_warp
    assert each < 2 * 28 * times.barrier_cycles_per_warp


def test_no_time_is_below_what_the_busiest_part_needs() -> None:
    """Loops so long, and so unequal, that only parts of them are played."""
    phases = [
        loop(arithmetic(64.0), 3.0), loop(WorkStep(mix=Mix(40.0, alu=40.0)), 5000.0),
        loop(arithmetic(7.0, 2.0), 40000.0),
    ]  # fmt: skip
    found = estimate(kernel(phases, [], blocks=132 * 3, threads=1024), H200)
    warps = 3 * 32
    alu = warps * 40.0 * 5000.0 * 2.0 / 4
    fp32 = warps * (64.0 * 3.0 + 7.0 * 40000.0) / 4
    assert found.cycles >= alu + fp32 * 0.99


def test_the_heaviest_block_bounds_the_launch() -> None:
    work = kernel([loop(arithmetic(64.0, 64.0), 100.0)], [], blocks=40)
    even = estimate(work, H200)
    uneven = estimate(replace(work, heaviest_block=8.0), H200)
    assert uneven.cycles == pytest.approx(8.0 * even.cycles, rel=0.1)


def test_a_cold_launch_fetches_what_a_warm_one_finds_in_l2() -> None:
    moved = 1024 * 1024.0
    step = WorkStep((Use(0, 1.0),), Mix(1, fp32=1), needs=(1,))
    work = kernel([loop(step, 1.0)], [GLOBAL_LOAD], blocks=1024,
                  traffic=Traffic(moved, moved, 0.0, True))  # fmt: skip
    warm, cold = estimate(work, H200), estimate(work, H200, cold=True)
    times = microarchitecture(H200.compute_capability)
    assert cold.cycles - warm.cycles >= times.dram_latency - times.l2_latency
    assert (warm.busy_pct["dram"], cold.busy_pct["dram"] > 0) == (0.0, True)


def test_sums_of_integers_at_one_address_take_less_than_of_floats() -> None:
    work = kernel([loop(arithmetic(1.0), 1.0)], [], blocks=1000, hottest_atomic=8.0)
    floats, integers = estimate(work, H200), estimate(replace(work, integer_atomics=True), H200)
    assert floats.limiter == integers.limiter == "atomics"
    assert floats.cycles == pytest.approx(2.0 * integers.cycles, rel=0.1)
