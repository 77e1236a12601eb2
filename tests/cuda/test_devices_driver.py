"""Devices that the driver describes: exact matching, rows of their own, and rows in a record."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from cudaops.cuda.architectures import ARCHITECTURES
from cudaops.cuda.devices import (
    DEVICES,
    described,
    device,
    device_of,
    from_record,
    matching,
    register,
    to_record,
)
from cudaops.cuda.verdict import diagnose
from cudaops.domain.profile import Profile
from cudaops.errors import InputError
from cudaops.executors.cuda.protocol import DeviceFacts


@dataclass(frozen=True)
class Facts:
    """What deviceQuery prints."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    max_sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    memory_bus_bits: int | None
    l2_bytes: int


# SMs, clocks, bus, L2 and mostly memory as NVIDIA's deviceQuery sample prints them on each; of the
# B300 as PyTorch and nvidia-smi show them.
LAPTOP = Facts(
    "NVIDIA GeForce RTX 4090 Laptop GPU", (8, 9), 76, 17170956288, 1590, 9001, 256, 67108864
)
T4 = Facts("Tesla T4", (7, 5), 40, 15843721216, 1590, 5001, 256, 4194304)
RTX_5090 = Facts("NVIDIA GeForce RTX 5090", (12, 0), 170, 33668857856, 2407, 14001, 512, 100663296)
RTX_3080 = Facts("NVIDIA GeForce RTX 3080", (8, 6), 68, 10472390656, 1710, 9501, 320, 5242880)
H100_PCIE = Facts("NVIDIA H100 PCIe", (9, 0), 114, 85031321600, 1755, 1593, 5120, 52428800)
GB10 = Facts("NVIDIA GB10", (12, 1), 48, 128524312576, 2418, 8533, 256, 25165824)
B300 = Facts("NVIDIA B300 SXM6 AC", (10, 3), 148, 288400000000, 2032, 3996, 7680, 132644864)
ORIN = Facts("Orin", (8, 7), 8, 65893269504, 1300, 612, 256, 4194304)


@pytest.mark.parametrize(
    ("facts", "row"),
    [(T4, "T4"), (RTX_5090, "RTX5090"), (RTX_3080, "RTX3080"), (H100_PCIE, "H100-PCIe"),
     (GB10, "GB10")],
    ids=lambda v: v if isinstance(v, str) else v.name,
)  # fmt: skip
def test_a_gpu_of_the_table_gets_its_row(facts: Facts, row: str) -> None:
    assert device_of(facts) is DEVICES[row]


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", (8, 9)),
        ("NVIDIA GeForce RTX 4090 D", (8, 9)),
        ("nvidia h200", (9, 0)),
        ("H200", (9, 0)),
        ("NVIDIA H200", (10, 0)),
        ("NVIDIA H200 NVL", (9, 0)),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", (8, 0)),
        ("NVIDIA A10G", (8, 6)),
        ("", (8, 6)),
    ],
)
def test_names_are_matched_exactly_or_not_at_all(name: str, capability: tuple[int, int]) -> None:
    assert matching(name, capability) is None


def test_every_row_is_found_by_its_driver_name() -> None:
    for row in DEVICES.values():
        assert matching(row.full_name, row.compute_capability) is row


def test_two_models_of_one_name_are_told_apart() -> None:
    """RTX 3080 with 12 GB: 70 SMs, 384 bit, the same name (NVIDIA product page)."""
    other = replace(RTX_3080, sm_count=70, memory_bytes=12631212032, memory_bus_bits=384)
    row = device_of(other)
    assert row.name == "NVIDIA GeForce RTX 3080 (70 SMs, 13 GB)"
    assert row.dram_bandwidth_gb_s == pytest.approx(912, rel=0.001)
    assert device_of(replace(RTX_3080, memory_bytes=12631212032)).name.endswith("(68 SMs, 13 GB)")


def test_a_described_device_is_the_drivers_figures_on_its_architecture() -> None:
    row = described(LAPTOP)
    assert (row.name, row.full_name, row.sm_count) == (LAPTOP.name, LAPTOP.name, 76)
    assert (row.sm_clock_mhz, row.sm_clock_kind) == (1590.0, "driver")
    assert row.dram_bandwidth_gb_s == 576.1
    assert (row.l2_bytes, row.memory_gb) == (67108864, 17.17)
    assert row.source == "driver attributes"
    assert row.max_warps_per_sm == ARCHITECTURES[8, 9].max_warps_per_sm
    assert row.peak_fp32_gflops == pytest.approx(2e-3 * 128 * 76 * 1590)


def test_a_datacenter_gpu_outside_of_the_table_is_described() -> None:
    row = device_of(B300)
    assert row.dram_bandwidth_gb_s == 7672.3
    assert row.peak_fp32_gflops / row.peak_fp64_gflops == 64


def test_the_runners_facts_are_facts() -> None:
    facts = DeviceFacts(
        real=True, name="Tesla T4", uuid="GPU-0", compute_capability=(7, 5), sm_count=40,
        memory_bytes=15843721216, l2_bytes=4194304, shared_bytes_per_block_optin=65536,
        max_sm_clock_mhz=1590.0, memory_clock_mhz=5001.0, memory_bus_bits=256,
        driver_version="", cuda_version="13.0",
    )  # fmt: skip
    assert device_of(facts) is DEVICES["T4"]
    own = DEVICES["T4"].dram_bandwidth_gb_s
    assert described(facts).dram_bandwidth_gb_s == pytest.approx(own, rel=0.001)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (ORIN, "compute capability 8.7 (Orin) is not known; known are 7.5, 8.0"),
        (replace(LAPTOP, compute_capability=(6, 1)), "compute capability 6.1 "),
        (
            replace(GB10, name="NVIDIA N1X"),
            "NVIDIA N1X (compute capability 12.1) shares the host's",
        ),
        (replace(LAPTOP, max_sm_clock_mhz=None), "does not tell the SM clock of NVIDIA GeForce"),
        (replace(LAPTOP, memory_clock_mhz=0.0), "does not tell memory clock and bus width"),
        (replace(LAPTOP, memory_bus_bits=None), "does not tell memory clock and bus width"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_described_is_one_line_with_a_way_out(facts: Facts, said: str) -> None:
    with pytest.raises(InputError) as raised:
        device_of(facts)
    assert said in str(raised.value)
    assert "docs/adding-a-device.md" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_registered_device_is_found_by_its_name_and_serves_a_verdict() -> None:
    name = "NVIDIA Registered 1"
    with pytest.raises(InputError):
        device(name)
    row = register(described(replace(LAPTOP, name=name)))
    assert device(name) is row
    profile = Profile(kernel="k", device=name, source="measured", duration_us=10.0, metrics={})
    assert diagnose(profile, device(profile.device)).subtype == "unknown"
    with pytest.raises(InputError, match="NVIDIA Registered 1"):
        device("nothing of the kind")


def test_the_table_cannot_be_registered_over() -> None:
    wrong = replace(DEVICES["H200"], dram_bandwidth_gb_s=1.0)
    register(wrong)
    assert device("H200") is DEVICES["H200"]


def test_a_row_survives_a_record() -> None:
    row = replace(described(LAPTOP), name="NVIDIA Recorded 1", l2_read_bytes_per_clk=2048)
    kept = to_record(row)
    assert kept is not None
    assert from_record(json.loads(json.dumps(kept))) == row
    assert device(register(from_record(kept)).name) == row
    assert to_record(DEVICES["H200"]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [({"sm_count": "many"}, "sm_count"), ({"sm_clock_kind": "dreamt"}, "sm_clock_kind"),
     ({"compute_capability": [8]}, "compute_capability")],
)  # fmt: skip
def test_a_damaged_row_is_one_line(change: dict[str, object], said: str) -> None:
    kept = to_record(described(LAPTOP))
    assert kept is not None
    with pytest.raises(InputError, match=f"the record's device cannot be read: {said}"):
        from_record(kept | change)
    del kept["l2_bytes"]
    with pytest.raises(InputError, match="l2_bytes"):
        from_record(kept)
