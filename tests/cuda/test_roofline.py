"""Rooflines of the captures, whose work is known by hand: 2 x 1024^3 operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import value_of
from cudaops.cuda.ncu_pages import parse_csv
from cudaops.cuda.roofline import dram_bytes, floors, flops, least_us, roofline
from cudaops.domain.profile import Profile

DATA = Path(__file__).parents[1] / "data" / "ncu"
H200 = DEVICES["H200"]


def captured(kernel: str, page: str = "raw") -> Profile:
    path = DATA / f"h200_{kernel}_matmul_1024.{page}.csv"
    return parse_csv(path.read_text("utf-8"))[0].profile


def made(duration_us: float, **values: float) -> Profile:
    """A modelled profile; keywords are names of constants in `cudaops.cuda.metrics`."""
    names = {getattr(ncu, key): value for key, value in values.items()}
    return Profile(
        kernel="k", device="H200", source="modelled", duration_us=duration_us,
        metrics={name: value_of(name, value, "modelled") for name, value in names.items()},
    )  # fmt: skip


@pytest.mark.parametrize("kernel", ["naive", "regtiled"])
def test_a_matrix_product_has_the_operations_it_must(kernel: str) -> None:
    assert flops(captured(kernel), "f") == pytest.approx(2 * 1024**3, rel=1e-6)
    assert flops(captured(kernel), "d") == 0


def test_the_naive_product_under_the_h200s_roofline() -> None:
    line = roofline(captured("naive"), H200)
    assert line is not None
    assert line.bound == "compute"
    assert line.floor_us == pytest.approx(2 * 1024**3 / 66908.16e3, rel=1e-4)
    # ncu's own SOLFPRoofline rule says 8 % of the FP32 peak, and 21 % for the tiled one.
    assert line.attained_pct == pytest.approx(8, abs=0.5)
    tiled = roofline(captured("regtiled"), H200)
    assert tiled is not None
    assert tiled.attained_pct == pytest.approx(21, abs=1)
    assert line.dram_bytes == 8394496


def test_without_counts_there_is_no_roofline() -> None:
    assert roofline(captured("naive", "details"), H200) is None
    assert roofline(made(10, FFMA=1e6, FADD=0), H200) is None
    assert roofline(made(10, FFMA=1e6, FADD=0, FMUL=0), H200) is None
    assert roofline(made(10, DRAM_READ_BYTES=1e6, DRAM_WRITE_BYTES=1e6), H200) is None


def test_adds_and_products_count_once_multiply_adds_twice() -> None:
    assert flops(made(10, FFMA=3, FADD=5, FMUL=7), "f") == 18
    assert flops(made(10, FFMA=3, FADD=5), "f") is None


def test_dram_bytes_from_counts_or_from_the_rate() -> None:
    assert dram_bytes(made(10, DRAM_READ_BYTES=6, DRAM_WRITE_BYTES=4)) == 10
    assert dram_bytes(made(10, DRAM_READ_BYTES=6)) is None
    shown = captured("naive", "details")
    assert dram_bytes(shown) == pytest.approx(8394496, rel=0.001)
    assert shown.get(ncu.DRAM_BYTES_PER_SECOND) is not None


def test_double_precision_is_held_against_its_own_peak() -> None:
    a10 = DEVICES["A10"]
    both = {"FFMA": 0.0, "FADD": 0.0, "FMUL": 0.0, "DFMA": 1e6, "DADD": 0.0, "DMUL": 0.0}
    line = roofline(made(10, **both, DRAM_READ_BYTES=0, DRAM_WRITE_BYTES=0), a10)
    assert line is not None
    assert line.peak_gflops == a10.peak_fp64_gflops
    assert line.floor_us == pytest.approx(2e6 / (a10.peak_fp64_gflops * 1e3))
    assert line.arithmetic_intensity_flop_per_byte == 2e6 / 32


def test_a_copy_is_bound_by_memory() -> None:
    none = {"FFMA": 0.0, "FADD": 0.0, "FMUL": 0.0}
    line = roofline(made(100, **none, DRAM_READ_BYTES=2e8, DRAM_WRITE_BYTES=2e8), H200)
    assert line is not None
    assert line.bound == "memory"
    assert line.floor_us == pytest.approx(4e8 / 4814e3)
    assert line.attained_pct == pytest.approx(83.1, abs=0.1)


def test_matrix_units_in_use_have_no_scalar_roofline() -> None:
    counts = {"FFMA": 1.0, "FADD": 0.0, "FMUL": 0.0, "DRAM_READ_BYTES": 1, "DRAM_WRITE_BYTES": 1}
    assert roofline(made(10, **counts, PIPE_TENSOR=40), H200) is None
    assert roofline(made(10, **counts, PIPE_TENSOR=0.02), H200) is not None


def test_floors_name_the_resource_that_needs_longest() -> None:
    naive = floors(captured("naive"), H200)
    assert naive[0].resource == "lsu"
    # 2 loads a k and warp, 32768 warps, one a cycle on 132 SMs at 1980 MHz.
    assert naive[0].us == pytest.approx(2 * 1024 * 32768 / 132 / 1980, rel=0.001)
    assert all(f.us <= 415.3 for f in naive)
    tiled = floors(captured("regtiled"), H200)
    assert tiled[0].resource == "shared"
    assert tiled[0].us < 148.5
    assert floors(made(10), H200) == ()


def test_half_precision_has_no_peak_in_the_table_and_so_no_roofline() -> None:
    bytes_of = {"DRAM_READ_BYTES": 1e6, "DRAM_WRITE_BYTES": 0.0}
    single = {"FFMA": 1e6, "FADD": 0.0, "FMUL": 0.0}
    half = {"HFMA": 1e6, "HADD": 0.0, "HMUL": 0.0}
    assert roofline(made(10, **single, **bytes_of), H200) is not None
    assert roofline(made(10, **single, **half, **bytes_of), H200) is None
    stray = {**half, "HFMA": 1e3}
    assert roofline(made(10, **single, **stray, **bytes_of), H200) is not None
    # A transpose computes nothing; its constants are made by HFMA2.
    none = {"FFMA": 0.0, "FADD": 0.0, "FMUL": 0.0}
    moving = made(10, **none, **{**half, "HFMA": 16 * 1024.0}, **bytes_of)
    assert roofline(moving, H200) is None
    threads = {ncu.THREADS: value_of(ncu.THREADS, 1024.0, "modelled")}
    moving = moving.model_copy(update={"metrics": {**moving.metrics, **threads}})
    assert roofline(moving, H200) is not None
    assert least_us(made(10, **none, **half, **bytes_of), H200, 4.8e6) == pytest.approx(1, rel=0.02)
