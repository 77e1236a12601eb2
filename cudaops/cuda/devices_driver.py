"""A Device from what the driver says about the GPU that is there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Protocol

from cudaops.cuda.devices_arch import ARCHITECTURES
from cudaops.cuda.devices_base import Architecture, Device
from cudaops.cuda.devices_table import DEVICES
from cudaops.errors import InputError

MEMORY_TOLERANCE = 0.15
"""Share by which the driver's memory may differ from a row's and still be the same model: rows
hold the advertised size, drivers count GiB and take ECC and their own share away (3 to 7 % on the
devices of the table), while two models of one name differ by 20 % and more (RTX 3080: 10 and 12
GB)."""


class DriverFacts(Protocol):
    """What is asked of the driver; `sandbox.gpu.protocol.DeviceFacts` is such."""

    @property
    def name(self) -> str:
        """As the driver spells it: `NVIDIA H200`."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """`(9, 0)`."""

    @property
    def sm_count(self) -> int:
        """Of this GPU, or of the part of it that the process was given."""

    @property
    def memory_bytes(self) -> int:
        """All of it, used or not."""

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""

    @property
    def max_sm_clock_mhz(self) -> float | None:
        """None: not told."""

    @property
    def memory_clock_mhz(self) -> float | None:
        """Highest, as `CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE` has it. None: not told."""

    @property
    def memory_bus_bits(self) -> int | None:
        """None: not told."""


def device_of(facts: DriverFacts) -> Device:
    """The table's row of this GPU where it has one, else one made of what the driver says.

    Raises:
        InputError: as `described`.
    """
    row = matching(
        facts.name,
        facts.compute_capability,
        sm_count=facts.sm_count,
        memory_bytes=facts.memory_bytes,
    )
    return described(facts) if row is None else row


def matching(
    name: str,
    compute_capability: tuple[int, int],
    *,
    sm_count: int | None = None,
    memory_bytes: int | None = None,
) -> Device | None:
    """The row of exactly this driver name and compute capability, None where there is none.

    Names are never matched loosely: `NVIDIA GeForce RTX 4090 Laptop GPU` is another chip than the
    RTX 4090. And one name may stand for several models (RTX 3060 with 8 and 12 GB) or a part of a
    GPU, so what else is given must agree: the number of SMs, and the memory within
    MEMORY_TOLERANCE.
    """
    for row in DEVICES.values():
        if row.full_name != name or row.compute_capability != compute_capability:
            continue
        if sm_count is not None and sm_count != row.sm_count:
            continue
        size = 1e9 * row.memory_gb
        if memory_bytes is None or abs(memory_bytes - size) <= MEMORY_TOLERANCE * size:
            return row
    return None


def described(facts: DriverFacts) -> Device:
    """A device made of the driver's attributes on top of its architecture's row.

    It goes by the driver's name, with SMs and memory behind it where the table's row of that name
    is another model.

    Raises:
        InputError: no row for the compute capability, or the driver does not tell the clock or
            what the bandwidth is computed from.
    """
    architecture = _architecture(facts)
    clock = facts.max_sm_clock_mhz
    if not clock:
        raise InputError(_untold(facts, "the SM clock"))
    gigabytes = facts.memory_bytes / 1e9
    taken = any(facts.name in (row.name, row.full_name) for row in DEVICES.values())
    own = f"{facts.name} ({facts.sm_count} SMs, {gigabytes:.0f} GB)" if taken else facts.name
    return Device(
        **asdict(architecture),
        name=own,
        full_name=facts.name,
        sm_count=facts.sm_count,
        sm_clock_mhz=float(clock),
        sm_clock_kind="driver",
        memory_gb=round(gigabytes, 2),
        dram_bandwidth_gb_s=round(_bandwidth(facts, architecture), 1),
        l2_bytes=facts.l2_bytes,
        source="driver attributes",
    )


def bandwidth_gb_s(memory_clock_mhz: float, bus_bits: int) -> float:
    """Peak bandwidth of DRAM that moves two bits a pin and clock (GDDR and HBM as drivers report
    their clock), 10^9 bytes a second.

    Source: NVIDIA developer blog, 'How to Query Device Properties and Handle Errors in CUDA C/C++';
    agrees with the published figure of every row of the table whose clock is known, from GDDR6
    (T4: 5001 MHz x 256 bit) over GDDR7 (RTX 5090) to HBM3e (B200).
    """
    return 2.0 * memory_clock_mhz * bus_bits / 8.0 / 1e3


def _architecture(facts: DriverFacts) -> Architecture:
    found = ARCHITECTURES.get(facts.compute_capability)
    if found is None:
        known = ", ".join(row.capability for row in ARCHITECTURES.values())
        raise InputError(
            "compute capability {}.{}".format(*facts.compute_capability)
            + f" ({facts.name}) is not known; known are {known}: docs/adding-a-device.md says how "
            "one is added"
        )
    return found


def _bandwidth(facts: DriverFacts, architecture: Architecture) -> float:
    if not architecture.driver_tells_bandwidth:
        raise InputError(
            f"{facts.name} (compute capability {architecture.capability}) shares the host's memory,"
            " whose bandwidth its driver does not tell: add its row, docs/adding-a-device.md"
        )
    if not facts.memory_clock_mhz or not facts.memory_bus_bits:
        raise InputError(_untold(facts, "memory clock and bus width"))
    return bandwidth_gb_s(facts.memory_clock_mhz, facts.memory_bus_bits)


def _untold(facts: DriverFacts, what: str) -> str:
    return (
        f"the driver does not tell {what} of {facts.name}, and cudaops has no row for it: add one, "
        "docs/adding-a-device.md"
    )
