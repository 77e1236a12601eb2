"""Occupancy against what ncu reported, and against hand-worked cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.ncu_pages import parse_raw
from cudaops.cuda.occupancy import occupancy, waves
from cudaops.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "ncu"


@pytest.mark.parametrize("kernel", ["naive", "regtiled"])
def test_limits_and_waves_are_what_ncu_reports(kernel: str) -> None:
    (launch,) = parse_raw((DATA / f"h200_{kernel}_matmul_1024.raw.csv").read_text("utf-8"))
    m = {name: metric.value for name, metric in launch.profile.metrics.items()}
    shared = m[ncu.SHARED_STATIC] + m[ncu.SHARED_DYNAMIC]
    found = occupancy(
        DEVICES["H200"], int(m[ncu.BLOCK_SIZE]), int(m[ncu.REGISTERS]), int(shared),
        shared_config_bytes=int(m[ncu.SHARED_CONFIG]),
    )  # fmt: skip
    assert found.limit_warps == m[ncu.LIMIT_WARPS]
    assert found.limit_blocks == m[ncu.LIMIT_BLOCKS]
    assert found.limit_registers == m[ncu.LIMIT_REGISTERS]
    assert found.limit_shared_memory == m[ncu.LIMIT_SHARED]
    assert found.theoretical_pct == m[ncu.THEORETICAL_OCCUPANCY]
    assert found.warps_per_sm == m[ncu.THEORETICAL_WARPS]
    laid = waves(DEVICES["H200"], int(m[ncu.GRID_SIZE]), found.blocks_per_sm)
    assert laid == pytest.approx(m[ncu.WAVES], abs=0.005)
    assert m[ncu.SHARED_PER_BLOCK] == shared + DEVICES["H200"].shared_reserved_per_block


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks", "limiter"),
    [
        ("A10", 1024, 32, 0, 1, "warps"),  # 48 warp slots hold one block of 32 warps
        ("A10", 256, 40, 0, 6, "warps"),  # 1280 registers a warp: 51 fit, 48 in fours
        ("A10", 256, 64, 0, 4, "registers"),  # 2048 a warp: 32 warps
        ("A10", 32, 16, 0, 16, "blocks"),
        ("A10", 128, 255, 0, 2, "registers"),  # 8192 a warp: 8 warps
        ("A10", 256, 32, 48 * 1024, 2, "shared_memory"),  # (48 + 1) KiB of 100
        ("A10", 256, 32, 99 * 1024, 1, "shared_memory"),
        ("A10", 256, 32, 99 * 1024 + 1, 0, "shared_memory"),  # beyond the opt-in
        ("A10", 1024, 128, 0, 0, "registers"),  # 4096 a warp: 16 warps, a block has 32
        ("H200", 1024, 32, 8192, 2, "warps"),
        ("A100", 96, 33, 0, 16, "registers"),  # 3 warps; 1280 a warp: 48 of 51 usable
    ],
)
def test_hand_worked(
    name: str, threads: int, registers: int, shared: int, blocks: int, limiter: str
) -> None:
    found = occupancy(DEVICES[name], threads, registers, shared)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.warps_per_sm == blocks * found.warps_per_block


@pytest.mark.parametrize(
    ("threads", "registers", "shared"), [(0, 32, 0), (1025, 32, 0), (32, 256, 0), (32, 32, -1)]
)
def test_impossible_launches_are_refused(threads: int, registers: int, shared: int) -> None:
    with pytest.raises(InputError):
        occupancy(DEVICES["A10"], threads, registers, shared)
    with pytest.raises(InputError):
        waves(DEVICES["A10"], 0, 1)
    with pytest.raises(InputError):
        waves(DEVICES["A10"], 8, 0)
