"""Modelled times and metrics against what ncu and CUDA events measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.ncu_pages import parse_raw
from cudaops.domain.profile import Profile
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cpu.profile_cases import Case, measured, profiled

DATA = Path(__file__).parents[2] / "data"


CALIBRATION: dict[str, tuple[str, tuple[int, int], tuple[int, ...], float]] = {
    "naive_matmul": ("naive_matmul", (64, 64), (16, 16), 416.1),
    "tiled_matmul": ("naive_matmul", (32, 32), (32, 32), 236.1),
    "reg128": ("reg_matmul<128, 128, 8, 8, 8>", (8, 8), (256,), 178.0),
    "reg64": ("reg_matmul<64, 64, 8, 4, 4>", (16, 16), (256,), 127.7),
    "reg64x8": ("reg_matmul<64, 64, 8, 8, 4>", (16, 16), (128,), 125.2),
    "reg64b16": ("reg_matmul<64, 64, 16, 4, 4>", (16, 16), (256,), 95.8),
}
"""Callee, grid, block and measured microseconds on an H200. Source: tests/data/calibration."""


def calibration(case: Callable[..., Case], name: str) -> Case:
    callee, grid, block, _ = CALIBRATION[name]
    source = DATA / "calibration" / f"{name}.cu"
    made: Case = case(source, grid, block, 1024 * 1024, {"N": 1024}, callee)
    return made._replace(workload=made.workload.model_copy(update={"l2_regime": "warm"}))


def close_to_ncu(own: Profile, capture: str, expected: dict[str, float]) -> None:
    """Each metric within its relative tolerance of the capture."""
    text = (DATA / "ncu" / f"{capture}.raw.csv").read_text()
    measured_by_ncu = parse_raw(text)[0].profile
    for name, tolerance in expected.items():
        value, truth = own.get(name), measured_by_ncu.get(name)
        assert value is not None, name
        assert truth is not None, name
        assert value == pytest.approx(truth, rel=tolerance), name


def test_naive_product_matches_the_capture(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    own = profiled(executor, calibration(case, "naive_matmul"))
    close_to_ncu(
        own, "h200_naive_matmul_1024",
        {
            ncu.GLOBAL_LD_REQUESTS: 0, ncu.GLOBAL_LD_SECTORS: 0, ncu.GLOBAL_ST_REQUESTS: 0,
            ncu.BYTES_PER_SECTOR_LD: 0, ncu.BYTES_PER_SECTOR_ST: 0, ncu.L1_HIT_RATE: 0.01,
            ncu.GLOBAL_LD_HIT_RATE: 0.01, ncu.L2_WRITE_SECTORS: 0, ncu.L2_READ_SECTORS: 0.1,
            ncu.DRAM_READ_BYTES: 0.01, ncu.FFMA_PER_CYCLE: 0.1, ncu.L1_THROUGHPUT: 0.05,
            ncu.SM_THROUGHPUT: 0.1, ncu.DURATION: 0.1, ncu.INST_EXECUTED: 0.2, ncu.REGISTERS: 0,
            ncu.THEORETICAL_OCCUPANCY: 0,
            ncu.ACHIEVED_OCCUPANCY: 0.1, ncu.WAVES: 0.01, ncu.L2_HIT_RATE: 0.02,
        },
    )  # fmt: skip
    assert len(own.metrics) >= 40
    assert own.source == "modelled"
    assert "acc +=" in own.hot_lines[0].text


def test_register_tiling_matches_the_capture(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    own = profiled(executor, calibration(case, "reg64"))
    close_to_ncu(
        own, "h200_regtiled_matmul_1024",
        {
            ncu.GLOBAL_LD_REQUESTS: 0, ncu.GLOBAL_LD_SECTORS: 0, ncu.SHARED_LD_INST: 0,
            ncu.SHARED_ST_INST: 0, ncu.SHARED_WAVEFRONTS_IDEAL: 0, ncu.SHARED_LD_WAVEFRONTS: 0.01,
            ncu.SHARED_ST_WAVEFRONTS: 0.05,
            ncu.BANK_CONFLICTS_ST: 0.1, ncu.INST_EXECUTED: 0.2, ncu.REGISTERS: 0.15,
            ncu.SHARED_STATIC: 0,
            ncu.ACHIEVED_OCCUPANCY: 0.1, ncu.BARRIERS_PER_BLOCK: 0, ncu.DRAM_READ_BYTES: 0.01,
        },
    )  # fmt: skip


def test_six_products_are_near_their_measured_times(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    modelled = {n: measured(executor, calibration(case, n)).median_us for n in CALIBRATION}
    truth = {name: row[3] for name, row in CALIBRATION.items()}
    for name in CALIBRATION:
        assert modelled[name] == pytest.approx(truth[name], rel=0.3), name
        speedup = modelled["naive_matmul"] / modelled[name]
        real = truth["naive_matmul"] / truth[name]
        assert real / 2 < speedup < real * 2, name
    order = [sorted(t.values()).index(v) for t in (modelled, truth) for v in t.values()]
    squares = sum((a - b) ** 2 for a, b in zip(order[:6], order[6:], strict=True))
    assert 1 - 6 * squares / (6 * 35) >= 0.8


@pytest.mark.parametrize(("name", "truth_us"), [("naive_matmul", 1185.0), ("tiled_matmul", 936.0)])
def test_a10_times_come_out_sensibly(
    executor: CpuExecutor, case: Callable[..., Case], name: str, truth_us: float
) -> None:
    executor.device = "A10"
    assert measured(executor, calibration(case, name)).median_us == pytest.approx(truth_us, rel=0.3)
