"""Device rows against what their makers publish and what a capture says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cudaops.cuda.devices import DEFAULT_DEVICE_BY_ARCH, DEVICES, device
from cudaops.errors import InputError

RAW = Path(__file__).parents[1] / "data" / "ncu" / "h200_naive_matmul_1024.raw.csv"

PUBLISHED_TFLOPS = {
    "A10": 31.2, "A100": 19.5, "L4": 30.3, "RTX3090": 35.6, "RTX4090": 82.6, "H100": 67.0,
    "H200": 67.0,
}  # fmt: skip
"""FP32 without tensor cores, from the datasheets and whitepapers named in the rows."""


@pytest.fixture(scope="module")
def attributes() -> dict[str, str]:
    with RAW.open(newline="") as file:
        header, _, values = list(csv.reader(file))
    return {name: value.replace(",", "") for name, value in zip(header, values, strict=True)}


def test_every_device_reaches_its_published_peak() -> None:
    assert set(PUBLISHED_TFLOPS) == set(DEVICES)
    for name, tflops in PUBLISHED_TFLOPS.items():
        assert DEVICES[name].peak_fp32_gflops / 1e3 == pytest.approx(tflops, rel=0.01)


def test_every_row_names_its_source() -> None:
    for row in DEVICES.values():
        assert len(row.source) > 30
        assert len(row.arch_source) > 30


@pytest.mark.parametrize(
    ("field", "attribute", "scale"),
    [
        ("sm_count", "multiprocessor_count", 1),
        ("sm_clock_mhz", "clock_rate", 1000),
        ("schedulers_per_sm", "num_schedulers_per_multiprocessor", 1),
        ("max_warps_per_sm", "max_warps_per_multiprocessor", 1),
        ("max_blocks_per_sm", "max_blocks_per_multiprocessor", 1),
        ("max_threads_per_sm", "max_threads_per_multiprocessor", 1),
        ("max_threads_per_block", "max_threads_per_block", 1),
        ("registers_per_sm", "max_registers_per_multiprocessor", 1),
        ("max_registers_per_thread", "max_registers_per_thread", 1),
        ("shared_bytes_per_sm", "max_shared_memory_per_multiprocessor", 1),
        ("shared_bytes_per_block", "max_shared_memory_per_block", 1),
        ("shared_bytes_per_block_optin", "max_shared_memory_per_block_optin", 1),
        ("shared_reserved_per_block", "reserved_shared_memory_per_block", 1),
        ("l2_bytes", "l2_cache_size", 1),
        ("warp_size", "warp_size", 1),
    ],
)
def test_h200_row_is_what_the_device_reported(
    attributes: dict[str, str], field: str, attribute: str, scale: int
) -> None:
    reported = float(attributes[f"device__attribute_{attribute}"]) / scale
    assert getattr(DEVICES["H200"], field) == reported


def test_h200_lanes_and_bandwidths_are_what_the_counters_peak_at(
    attributes: dict[str, str],
) -> None:
    h200 = DEVICES["H200"]
    lanes = "sm__sass_thread_inst_executed_op_{}fma_pred_on.avg.peak_sustained"
    assert float(attributes[lanes.format("f")]) == h200.fp32_lanes_per_sm
    assert float(attributes[lanes.format("d")]) == h200.fp64_lanes_per_sm
    l2 = float(attributes["derived__lts__lts2xbar_bytes.sum.peak_sustained"])
    assert l2 * 1e3 == h200.l2_read_bytes_per_clk
    l2_mhz = float(attributes["lts__cycles_elapsed.avg"]) / float(
        attributes["gpu__time_duration.sum"]
    )
    assert h200.l2_clock_mhz == pytest.approx(l2_mhz, rel=0.001)
    bus_bytes = float(attributes["device__attribute_global_memory_bus_width"]) / 8
    dram_mhz = float(attributes["device__attribute_memory_clock_rate"]) / 1e3
    assert h200.dram_bandwidth_gb_s == pytest.approx(2 * bus_bytes * dram_mhz / 1e3, rel=0.001)
    assert h200.memory_gb * 1e9 == pytest.approx(
        float(attributes["device__attribute_total_memory"]), rel=0.001
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("A10", "A10"), ("a10", "A10"), ("NVIDIA H200", "H200"), ("rtx 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"), ("sm_86", "A10"), ("sm_90a", "H200"),
        ("compute capability 8.6", "A10"),
    ],
)  # fmt: skip
def test_a_device_is_found_by_any_of_its_names(asked: str, found: str) -> None:
    assert device(asked).name == found


def test_an_unknown_device_is_one_line_with_the_known_and_the_nearest() -> None:
    with pytest.raises(InputError) as raised:
        device("H20")
    assert "\n" not in str(raised.value)
    assert "did you mean H200" in str(raised.value)
    assert all(name in str(raised.value) for name in DEVICES)
    with pytest.raises(InputError):
        device("")


def test_defaults_are_of_their_architecture() -> None:
    for arch, name in DEFAULT_DEVICE_BY_ARCH.items():
        assert DEVICES[name].sm_arch == arch


def test_l2_bandwidth_without_a_source_is_unknown() -> None:
    assert DEVICES["A10"].l2_bandwidth_gb_s is None
    assert DEVICES["H200"].l2_bandwidth_gb_s == pytest.approx(10275, rel=0.001)
