"""The gate of physics: what would need a faster device than there is, is not believed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.cuda.ncu_pages import parse_csv
from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved, Timing
from cudaops.domain.judgement import Comparison
from cudaops.domain.profile import Profile
from cudaops.domain.workload import Allocation, Workload
from cudaops.gates.physical_floor import floor_gate

CAPTURE = Path(__file__).parents[1] / "data" / "ncu" / "h200_naive_matmul_1024.raw.csv"
NAIVE = parse_csv(CAPTURE.read_text("utf-8"))[0].profile
FLOOR_US = 2 * 1024**3 / (DEVICES["H200"].peak_fp32_gflops * 1e3)
"""A product of 1024 x 1024 matrices: its operations over the H200's FP32 peak."""


def workload(buffer_bytes: int = 4 << 20) -> Workload:
    allocations = tuple(
        Allocation(
            index=n, size_bytes=buffer_bytes, element="f32", role=role, before="b", after="a"
        )
        for n, role in enumerate(("in", "in", "out"))
    )
    return Workload(
        id="w0", kernel="k", callee="k", site=0, grid=Dim3(x=64, y=64), block=Dim3(x=16, y=16),
        dynamic_smem_bytes=0, arguments=(), allocations=allocations, launches=1, time_share=1.0,
        folder=".",
    )  # fmt: skip


def comparison(
    candidate_us: float,
    sm_clock_mhz: float | None = None,
    regime: Literal["cold", "warm"] = "warm",
) -> Comparison:
    def side(time_us: float) -> Measurement:
        clocks = () if sm_clock_mhz is None else (sm_clock_mhz,)
        timing = Timing(regime=regime, sm_clock_mhz=clocks)
        samples = (time_us,) * 10
        return Measurement(
            source="cuda_event", device="H200", samples_us=samples, workload="w0", timing=timing
        )

    return Comparison(workload="w0", weight=1, baseline=side(400), candidate=side(candidate_us))


@pytest.mark.parametrize(("times", "passed"), [(10.0, True), (1.01, True), (0.9, False)])
def test_arithmetic_over_the_peak(times: float, passed: bool) -> None:
    gate = floor_gate(NAIVE, comparison(times * FLOOR_US), workload())
    assert gate.passed == passed
    assert gate.numbers["floor_us"] == pytest.approx(FLOOR_US, rel=1e-3)


def test_a_boosted_clock_lowers_the_floor() -> None:
    boosted = DEVICES["H200"].sm_clock_mhz * 1.2
    assert floor_gate(NAIVE, comparison(0.9 * FLOOR_US, boosted), workload()).passed


def test_a_forged_time_of_almost_nothing() -> None:
    """verification.md, A14: 0.001 us."""
    assert not floor_gate(NAIVE, comparison(0.001), workload()).passed


def test_bytes_beyond_the_l2_must_come_from_memory() -> None:
    """One GiB in each of three buffers, and a profile that says so: 3 GiB over 4.8 TB/s."""
    moved = {"dram__bytes_read.sum": 2 * 1024**3, "dram__bytes_write.sum": 1024**3}
    metrics = dict(NAIVE.metrics)
    for name, value in moved.items():
        metrics[name] = NAIVE.metrics[name].model_copy(update={"value": float(value)})
    profile = NAIVE.model_copy(update={"metrics": metrics})
    least_us = 3 * 1024**3 / (DEVICES["H200"].dram_bandwidth_gb_s * 1e3)
    assert not floor_gate(profile, comparison(0.8 * least_us), workload(1 << 30)).passed
    assert floor_gate(profile, comparison(1.1 * least_us), workload(1 << 30)).passed


def test_a_cold_launch_reads_everything_from_memory() -> None:
    """40 MB read, which fit in L2: a warm launch may find them there, a cold one cannot."""
    metrics = dict(NAIVE.metrics)
    for name, value in {"dram__bytes_read.sum": 40e6, "dram__bytes_write.sum": 0.0}.items():
        metrics[name] = NAIVE.metrics[name].model_copy(update={"value": value})
    few = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    metrics[few] = NAIVE.metrics[few].model_copy(update={"value": 1.0})
    profile = NAIVE.model_copy(update={"metrics": metrics})
    least_us = 40e6 / (DEVICES["H200"].dram_bandwidth_gb_s * 1e3)
    time_us = 0.8 * least_us
    assert floor_gate(profile, comparison(time_us), workload(20 << 20)).passed
    assert not floor_gate(profile, comparison(time_us, regime="cold"), workload(20 << 20)).passed
    assert floor_gate(profile, comparison(least_us, regime="cold"), workload(20 << 20)).passed


def test_a_model_that_contradicts_itself_fails_the_measurement() -> None:
    """Time and counts are both ours then: the candidate has done nothing."""
    wrong = comparison(0.5 * FLOOR_US)
    modelled = wrong.candidate.model_copy(update={"source": "modelled", "timing": None})
    gate = floor_gate(NAIVE, wrong.model_copy(update={"candidate": modelled}), workload())
    assert not gate.passed
    assert gate.summary.startswith("not measured: the time model is below its own roofline for")


@pytest.mark.parametrize(
    "profile",
    [
        None,
        Misbehaved(what="timeout", message="did not end"),
        CompileFailed(message="refused", log=""),
        Profile(kernel="k", device="H200", source="measured", duration_us=10.0, metrics={}),
    ],
)
def test_without_counts_it_fails(profile: Profile | Misbehaved | CompileFailed | None) -> None:
    gate = floor_gate(profile, comparison(100.0), workload())
    assert not gate.passed
    assert "floor_us" not in gate.numbers
