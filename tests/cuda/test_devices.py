"""Device rows against what their makers publish and what a capture says."""

from __future__ import annotations

import csv
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from cudaops.cuda.architectures import ARCHITECTURES, SM_103, Architecture, microarchitecture
from cudaops.cuda.devices import DEFAULT_DEVICE_BY_ARCH, DEVICES, Device, bandwidth_gb_s, device
from cudaops.cuda.occupancy import occupancy
from cudaops.errors import InputError
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.timemodel.timing import estimate
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

RAW = Path(__file__).parents[1] / "data" / "ncu" / "h200_naive_matmul_1024.raw.csv"

PUBLISHED_TFLOPS = {
    "T4": 8.1, "A100": 19.5, "A100-40GB": 19.5, "A10": 31.2, "A40": 37.4, "A6000": 38.7, "L4": 30.3,
    "L40S": 91.6, "H100": 67.0, "H100-PCIe": 51.0, "H200": 67.0, "GH200": 67.0, "B200": 75.0,
    "RTX3060": 12.7, "RTX3070": 20.3, "RTX3080": 29.8, "RTX3090": 35.6, "RTX4080S": 52.0,
    "RTX4090": 82.6, "RTX5090": 104.8,
}  # fmt: skip
"""FP32 without tensor cores, from the datasheets and whitepapers named in the rows."""

UNPUBLISHED = {"GB10"}
"""NVIDIA names no FP32 figure; the clock is the driver's."""

MEMORY = {
    "T4": (5001, 256), "A100": (1593, 5120), "A100-40GB": (1215, 5120), "A40": (7251, 384),
    "L40S": (9001, 384), "H100-PCIe": (1593, 5120), "H200": (3201, 6016), "GH200": (2619, 6144),
    "B200": (3996, 7680), "A6000": (8001, 384), "RTX3060": (7501, 192), "RTX3070": (7001, 256),
    "RTX3080": (9501, 320), "RTX4080S": (11501, 256), "RTX5090": (14001, 512),
}  # fmt: skip
"""Memory clock in MHz and bus width in bits, as the driver reports them: sources of the rows."""


OUTRUN = {"B200"}
"""Its DRAM brings an SM 26 bytes a cycle: 2048 threads with 8 bytes in flight each wait 730 cycles
for theirs, and 26 times 730 bytes are more than that."""


@pytest.fixture(scope="module")
def attributes() -> dict[str, str]:
    with RAW.open(newline="") as file:
        header, _, values = list(csv.reader(file))
    return {name: value.replace(",", "") for name, value in zip(header, values, strict=True)}


def test_every_device_reaches_its_published_peak() -> None:
    assert set(PUBLISHED_TFLOPS) | UNPUBLISHED == set(DEVICES)
    for name, tflops in PUBLISHED_TFLOPS.items():
        assert DEVICES[name].peak_fp32_gflops / 1e3 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize("name", MEMORY)
def test_bandwidth_is_what_the_drivers_clock_and_width_give(name: str) -> None:
    """Over GDDR6, GDDR6X, GDDR7 and HBM2e to HBM3e: two bits a pin and reported clock."""
    assert bandwidth_gb_s(*MEMORY[name]) == pytest.approx(DEVICES[name].dram_bandwidth_gb_s, 0.002)


def test_rows_are_of_their_architecture() -> None:
    for row in DEVICES.values():
        architecture = ARCHITECTURES[row.compute_capability]
        for field in Architecture.__dataclass_fields__:
            assert getattr(row, field) == getattr(architecture, field), (row.name, field)


@pytest.mark.parametrize("row", ARCHITECTURES.values(), ids=lambda a: a.sm_arch)
def test_an_architectures_limits_agree_with_each_other(row: Architecture) -> None:
    """Rules that NVIDIA's tables keep on every compute capability since 7.5."""
    assert row.sm_arch == "sm_" + row.capability.replace(".", "")
    assert row.max_threads_per_sm == 32 * row.max_warps_per_sm
    reserved = row.shared_bytes_per_sm - row.shared_bytes_per_block_optin
    assert reserved == row.shared_reserved_per_block
    assert row.shared_carveouts_bytes[-1] == row.shared_bytes_per_sm < row.l1_shared_bytes_per_sm
    assert row.fp32_lanes_per_sm / row.fp64_lanes_per_sm in (2, 32, 64)


def test_turing_gives_shared_memory_in_two_sizes_and_keeps_none() -> None:
    turing = ARCHITECTURES[7, 5]
    assert turing.shared_carveouts_bytes == (32 * 1024, 64 * 1024)
    without = occupancy(turing, 256, 32, 0)
    assert (without.blocks_per_sm, without.limiter) == (4, "warps")
    assert without.limit_shared_memory == turing.max_blocks_per_sm
    assert occupancy(turing, 256, 32, 64 * 1024).blocks_per_sm == 1
    assert occupancy(turing, 256, 32, 64 * 1024 + 1).blocks_per_sm == 0


@pytest.mark.nvcc
def test_nvcc_builds_for_every_architecture() -> None:
    nvcc = find_nvcc()
    assert nvcc is not None
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True)
    assert {row.sm_arch for row in ARCHITECTURES.values()} <= set(listed.stdout.split())


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
        ("compute capability 8.6", "A10"), ("Tesla T4", "T4"), ("NVIDIA T4", "T4"),
        ("h100 pcie", "H100-PCIe"), ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("compute capability 12.0", "RTX5090"), ("sm_100f", "B200"),
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


def streaming(blocks: int) -> KernelWork:
    """c[i] = a[i] + b[i], 256 floats a block."""
    load = MemorySite("global", False, False, "k.cu", 1, 4, 16, 16, 256, 1.0, 1.0, 4.0, 0.0, 128.0)
    store = MemorySite("global", True, False, "k.cu", 2, 4, 8, 8, 256, 1.0, 1.0, 4.0, 0.0, 128.0)
    step = WorkStep((Use(0, 2.0),), Mix(3, fp32=1, alu=2), (Use(1, 1.0),), needs=(1,))
    moved = blocks * 1024.0
    return KernelWork(
        blocks, 256, 32, 0, 0, (Phase((Stretch((step,), 1.0),), 1.0, False),), (load, store),
        ThreadCounts(), Traffic(3 * moved, 2 * moved, moved, False),
    )  # fmt: skip


def arithmetic(blocks: int) -> KernelWork:
    """6400 FFMA a warp and nothing else."""
    step = WorkStep(mix=Mix(64.0, fp32=64.0))
    phase = Phase((Stretch((step,), 100.0),), 1.0, False)
    return KernelWork(blocks, 256, 32, 0, 0, (phase,), (), ThreadCounts(), Traffic(0, 0, 0, True))


@pytest.mark.parametrize("row", DEVICES.values(), ids=lambda d: d.name)
def test_modelled_times_follow_each_devices_bandwidth_and_lanes(row: Device) -> None:
    blocks = 65536
    floor_us = blocks * 3072 / (row.dram_bandwidth_gb_s * 1e3)
    most = 1.6 if row.name in OUTRUN else 1.3
    assert floor_us < estimate(streaming(blocks), row).duration_us < most * floor_us
    full = row.sm_count * row.max_warps_per_sm // 8
    floor_us = full * 8 * 32 * 6400 * 2 / (row.peak_fp32_gflops * 1e3)
    assert floor_us * 0.99 < estimate(arithmetic(full), row).duration_us < 1.2 * floor_us


def test_what_is_not_modelled_is_said_and_never_guessed() -> None:
    b300 = Device(**{**asdict(DEVICES["B200"]), **asdict(SM_103), "name": "B300"})
    with pytest.raises(InputError, match=r"not modelled for compute capability 10\.3"):
        estimate(arithmetic(64), b300)
    with pytest.raises(InputError, match="not modelled for B300: the width of its lsu unit"):
        b300.lanes("lsu")


def test_assumed_widths_and_latencies_say_so() -> None:
    for name in ("T4", "B200", "RTX5090", "GB10"):
        times = microarchitecture(DEVICES[name].compute_capability)
        assert not times.is_compared
        assert "Never measured here." in times.source
    assert (DEVICES["RTX5090"].lanes("int32"), DEVICES["T4"].lanes("lsu")) == (64, 16)
    assert DEVICES["RTX5090"].int32_lanes_per_sm is None
    assert microarchitecture((9, 0)).is_compared
    assert DEVICES["H200"].lanes("lsu") == 32
