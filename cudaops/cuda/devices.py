"""Devices: the table, one row and one source each; by name; and from what a driver says of its GPU.

Sources are data sheets, whitepapers, and what a driver has printed. `deviceQuery` is NVIDIA's CUDA
sample of that name, run on such a device; its memory clock and bus width give the bandwidth,
`bandwidth_gb_s`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from cudaops.cuda.architectures import (
    ARCHITECTURES,
    BY_CAPABILITY,
    SM_75,
    SM_80,
    SM_86,
    SM_89,
    SM_90,
    SM_100,
    SM_120,
    SM_121,
    Architecture,
    Unit,
)
from cudaops.errors import InputError
from cudaops.plugins import plugins, unusable, wrong_type


@dataclass(frozen=True, kw_only=True)
class Device(Architecture):
    """One device model."""

    name: str
    full_name: str
    """As the driver and ncu report it."""
    sm_count: int
    sm_clock_mhz: float
    sm_clock_kind: Literal["boost", "measured", "driver"]
    """`boost`: published maximum under boost. `measured`: held in our own runs. `driver`: the
    highest clock that the driver names."""
    memory_gb: float
    dram_bandwidth_gb_s: float
    """Peak as published, or as the driver tells its parts; 10^9 bytes a second."""
    l2_bytes: int
    l2_read_bytes_per_clk: int | None = None
    """All slices together, L2 to SMs, in L2 clocks."""
    l2_clock_mhz: float | None = None
    """None: no source; L2 clocks differ from SM clocks."""
    launch_us: float = 1.75
    """What a launch takes beyond the kernel's own work, as ncu's `gpu__time_duration.sum` shows it.
    Measured: H200, driver 580.159.04, ncu 2025.3.1, 2026-11-23: an empty kernel takes 1.34 to 1.60
    in 12 launches. The rest, instructions and constants that are not in the SM's caches yet, is
    fitted to the smallest kernels of `docs/model.md`. Assumed elsewhere."""
    before_start_us: float = 0.9
    """Of `launch_us`, what passes before the clock that judges on a GPU starts: CUPTI's, by the
    kernel's own beginning. Measured: H200, driver 580.159.04, CUDA 13.0, 2026-11-30: ncu's durations
    of 12 kernels below 25 us are 0.02 to 1.18 longer than CUPTI's, 0.92 in the median."""
    source: str

    @property
    def peak_fp32_gflops(self) -> float:
        """Every FP32 lane doing an FMA (two operations) each cycle."""
        return 2e-3 * self.fp32_lanes_per_sm * self.sm_count * self.sm_clock_mhz

    @property
    def peak_fp64_gflops(self) -> float:
        """Every FP64 lane doing an FMA (two operations) each cycle."""
        return 2e-3 * self.fp64_lanes_per_sm * self.sm_count * self.sm_clock_mhz

    @property
    def l2_bandwidth_gb_s(self) -> float | None:
        """None where width or clock has no source."""
        if self.l2_read_bytes_per_clk is None or self.l2_clock_mhz is None:
            return None
        return 1e-3 * self.l2_read_bytes_per_clk * self.l2_clock_mhz

    def cycles_to_us(self, cycles: float) -> float:
        """SM cycles at `sm_clock_mhz`."""
        return cycles / self.sm_clock_mhz

    def lanes(self, unit: Unit) -> int:
        """Lanes of a unit whose width not every architecture's documents tell; the time model's
        assumption where they do not.

        Raises:
            InputError: neither.
        """
        found = {
            "int32": self.int32_lanes_per_sm,
            "sfu": self.sfu_lanes_per_sm,
            "lsu": self.lsu_lanes_per_sm,
        }[unit]
        if found is None and self.compute_capability in BY_CAPABILITY:
            assumed = BY_CAPABILITY[self.compute_capability].assumed_lanes
            found = dict(assumed).get(unit)
        if found is None:
            raise InputError(
                f"time is not modelled for {self.name}: the width of its {unit} unit has no source"
            )
        return found


_MB = 1024 * 1024

_DATACENTER = (
    Device(
        **asdict(SM_75), name="T4", full_name="Tesla T4", sm_count=40,
        sm_clock_mhz=1590.0, sm_clock_kind="boost", memory_gb=16.0, dram_bandwidth_gb_s=320.0,
        l2_bytes=4 * _MB,
        source="NVIDIA T4 datasheet (8.1 TFLOPS FP32, 320 GB/s, 16 GB); deviceQuery: 40 SMs, 1590 "
        "MHz, 5001 MHz x 256 bit, L2 4194304 bytes",
    ),
    Device(
        **asdict(SM_80), name="A100", full_name="NVIDIA A100-SXM4-80GB", sm_count=108,
        sm_clock_mhz=1410.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=2039.0,
        l2_bytes=40 * _MB, l2_read_bytes_per_clk=5120,
        source="NVIDIA A100 whitepaper (108 SMs, 1410 MHz, 40 MB L2, 5120 bytes/clk) and A100 80 "
        "GB SXM datasheet (2039 GB/s); deviceQuery: 1593 MHz x 5120 bit, L2 41943040 bytes",
    ),
    Device(
        **asdict(SM_80), name="A100-40GB", full_name="NVIDIA A100-SXM4-40GB", sm_count=108,
        sm_clock_mhz=1410.0, sm_clock_kind="boost", memory_gb=40.0, dram_bandwidth_gb_s=1555.0,
        l2_bytes=40 * _MB, l2_read_bytes_per_clk=5120,
        source="NVIDIA A100 whitepaper (108 SMs, 1410 MHz, 1555 GB/s, 40 MB L2, 5120 bytes/clk); "
        "deviceQuery of the PCIe card with the same memory: 1215 MHz x 5120 bit",
    ),
    Device(
        **asdict(SM_86), name="A10", full_name="NVIDIA A10", sm_count=72,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=600.0,
        l2_bytes=6 * _MB,
        source="NVIDIA A10 datasheet (31.2 TFLOPS FP32, 600 GB/s, 24 GB); GA102 whitepaper (L2: "
        "512 KB for each of 12 memory controllers); 72 SMs: what a program on one reported",
    ),
    Device(
        **asdict(SM_86), name="A40", full_name="NVIDIA A40", sm_count=84,
        sm_clock_mhz=1740.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=696.0,
        l2_bytes=6 * _MB,
        source="NVIDIA A40 datasheet (37.4 TFLOPS FP32, 696 GB/s, 48 GB); deviceQuery: 84 SMs, "
        "1740 MHz, 7251 MHz x 384 bit, L2 6291456 bytes",
    ),
    Device(
        **asdict(SM_89), name="L4", full_name="NVIDIA L4", sm_count=58,
        sm_clock_mhz=2040.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=300.0,
        l2_bytes=48 * _MB,
        source="NVIDIA L4 datasheet (30.3 TFLOPS FP32, 300 GB/s, 24 GB); Ada whitepaper appendix "
        "on AD104 (48 MB L2)",
    ),
    Device(
        **asdict(SM_89), name="L40S", full_name="NVIDIA L40S", sm_count=142,
        sm_clock_mhz=2520.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=864.0,
        l2_bytes=96 * _MB,
        source="NVIDIA L40S datasheet (91.6 TFLOPS FP32, 864 GB/s, 48 GB); deviceQuery: 142 SMs, "
        "2520 MHz, 9001 MHz x 384 bit, L2 100663296 bytes",
    ),
    Device(
        **asdict(SM_90), name="H100", full_name="NVIDIA H100 80GB HBM3", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=3350.0,
        l2_bytes=50 * _MB,
        source="NVIDIA H100 SXM5 datasheet (67 TFLOPS FP32, 3.35 TB/s, 80 GB) and H100 whitepaper "
        "(132 SMs, 50 MB L2); 1980 MHz is what 67 TFLOPS of 132 SMs imply",
    ),
    Device(
        **asdict(SM_90), name="H100-PCIe", full_name="NVIDIA H100 PCIe", sm_count=114,
        sm_clock_mhz=1755.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=2039.0,
        l2_bytes=50 * _MB,
        source="NVIDIA H100 PCIe datasheet (51 TFLOPS FP32, 2 TB/s, 80 GB); deviceQuery: 114 SMs, "
        "1755 MHz, 1593 MHz x 5120 bit, L2 52428800 bytes",
    ),
    Device(
        **asdict(SM_90), name="H200", full_name="NVIDIA H200", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="measured", memory_gb=150.11, dram_bandwidth_gb_s=4814.0,
        l2_bytes=62914560, l2_read_bytes_per_clk=6016, l2_clock_mhz=1708.0,
        source="Measured: tests/data/ncu (H200, driver 580.159.04, 2026-11-20). SMs, L2, memory "
        "and SM clock: device__attribute_*. DRAM: 6016 bit x 2 x 3201 MHz. L2 width: "
        "derived__lts__lts2xbar_bytes.sum.peak_sustained; L2 clock: lts__cycles_elapsed.avg over "
        "gpu__time_duration",
    ),
    Device(
        **asdict(SM_90), name="GH200", full_name="NVIDIA GH200 480GB", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="boost", memory_gb=96.0, dram_bandwidth_gb_s=4023.0,
        l2_bytes=62914560,
        source="NVIDIA GH200 datasheet (67 TFLOPS FP32, 96 GB HBM3, 4 TB/s); deviceQuery: 132 SMs, "
        "1980 MHz, 2619 MHz x 6144 bit, L2 62914560 bytes",
    ),
    Device(
        **asdict(SM_100), name="B200", full_name="NVIDIA B200", sm_count=148,
        sm_clock_mhz=1965.0, sm_clock_kind="boost", memory_gb=180.0, dram_bandwidth_gb_s=7672.0,
        l2_bytes=132644864,
        source="NVIDIA HGX B200 datasheet (75 TFLOPS FP32 and 180 GB a GPU); driver: 148 SMs, L2 "
        "126.5 MiB, 3996 MHz x 7680 bit (pytorch/ao pull request 4002); 1965 MHz: nvidia-smi's "
        "highest SM clock",
    ),
)  # fmt: skip

_WORKSTATION = (
    Device(
        **asdict(SM_86), name="A6000", full_name="NVIDIA RTX A6000", sm_count=84,
        sm_clock_mhz=1800.0, sm_clock_kind="boost", memory_gb=48.0, dram_bandwidth_gb_s=768.0,
        l2_bytes=6 * _MB,
        source="NVIDIA RTX A6000 datasheet (38.7 TFLOPS FP32, 768 GB/s, 48 GB); deviceQuery: 84 "
        "SMs, 1800 MHz, 8001 MHz x 384 bit, L2 6291456 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3060", full_name="NVIDIA GeForce RTX 3060", sm_count=28,
        sm_clock_mhz=1777.0, sm_clock_kind="boost", memory_gb=12.0, dram_bandwidth_gb_s=360.0,
        l2_bytes=2359296,
        source="NVIDIA product page, GeForce RTX 3060 12 GB (3584 cores, 1.78 GHz, 192 bit); "
        "deviceQuery: 28 SMs, 1777 MHz, 7501 MHz x 192 bit, L2 2359296 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3070", full_name="NVIDIA GeForce RTX 3070", sm_count=46,
        sm_clock_mhz=1725.0, sm_clock_kind="boost", memory_gb=8.0, dram_bandwidth_gb_s=448.0,
        l2_bytes=4 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3070 (46 SMs, 1725 MHz, 20.3 "
        "TFLOPS FP32, 448 GB/s, 4096 KB L2); deviceQuery: 7001 MHz x 256 bit, L2 4194304 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3080", full_name="NVIDIA GeForce RTX 3080", sm_count=68,
        sm_clock_mhz=1710.0, sm_clock_kind="boost", memory_gb=10.0, dram_bandwidth_gb_s=760.0,
        l2_bytes=5 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3080 10 GB (68 SMs, 1710 MHz, 29.8 "
        "TFLOPS FP32, 760 GB/s, 5120 KB L2); deviceQuery: 9501 MHz x 320 bit, L2 5242880 bytes",
    ),
    Device(
        **asdict(SM_86), name="RTX3090", full_name="NVIDIA GeForce RTX 3090", sm_count=82,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=936.0,
        l2_bytes=6 * _MB,
        source="GA102 whitepaper, comparison table: GeForce RTX 3090 (82 SMs, 1695 MHz, 35.6 "
        "TFLOPS FP32, 936 GB/s, 6144 KB L2)",
    ),
    Device(
        **asdict(SM_89), name="RTX4080S", full_name="NVIDIA GeForce RTX 4080 SUPER", sm_count=80,
        sm_clock_mhz=2550.0, sm_clock_kind="boost", memory_gb=16.0, dram_bandwidth_gb_s=736.0,
        l2_bytes=64 * _MB,
        source="NVIDIA product page, GeForce RTX 4080 SUPER (10240 cores, 2.55 GHz, 52 TFLOPS, 256 "
        "bit); deviceQuery: 80 SMs, 2550 MHz, 11501 MHz x 256 bit, L2 67108864 bytes",
    ),
    Device(
        **asdict(SM_89), name="RTX4090", full_name="NVIDIA GeForce RTX 4090", sm_count=128,
        sm_clock_mhz=2520.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=1008.0,
        l2_bytes=72 * _MB,
        source="Ada whitepaper, comparison table: GeForce RTX 4090 (128 SMs, 2520 MHz, 82.6 TFLOPS "
        "FP32, 1008 GB/s, 73728 KB L2)",
    ),
    Device(
        **asdict(SM_120), name="RTX5090", full_name="NVIDIA GeForce RTX 5090", sm_count=170,
        sm_clock_mhz=2407.0, sm_clock_kind="boost", memory_gb=32.0, dram_bandwidth_gb_s=1792.0,
        l2_bytes=96 * _MB,
        source="RTX Blackwell whitepaper, comparison table: GeForce RTX 5090 (170 SMs, 2407 MHz, "
        "104.8 TFLOPS FP32, 1792 GB/s); deviceQuery: 14001 MHz x 512 bit, L2 100663296 bytes",
    ),
    Device(
        **asdict(SM_121), name="GB10", full_name="NVIDIA GB10", sm_count=48,
        sm_clock_mhz=2418.0, sm_clock_kind="driver", memory_gb=128.0, dram_bandwidth_gb_s=273.0,
        l2_bytes=24 * _MB,
        source="NVIDIA DGX Spark data sheet (128 GB LPDDR5x, 273 GB/s, shared with the processor); "
        "deviceQuery: 48 SMs, 2418 MHz, L2 25165824 bytes",
    ),
)  # fmt: skip

DEVICES: Mapping[str, Device] = MappingProxyType(
    {row.name: row for row in (*_DATACENTER, *_WORKSTATION)}
)
"""Known devices by short name. `docs/adding-a-device.md` says how a row is added."""

DEFAULT_DEVICE_BY_ARCH: Mapping[str, str] = MappingProxyType(
    {
        "sm_75": "T4", "sm_80": "A100", "sm_86": "A10", "sm_89": "L4", "sm_90": "H200",
        "sm_100": "B200", "sm_120": "RTX5090", "sm_121": "GB10",
    }
)  # fmt: skip
"""The device meant where only an nvcc target is known."""


_met: dict[str, Device] = {}


def device(name: str) -> Device:
    """The device of this short name, full name, nvcc target or compute capability, in any case;
    or exactly the name of one that was registered.

    A target (`sm_86`) or capability (`compute capability 8.6`, all that ncu's details page tells)
    stands for the architecture's device in DEFAULT_DEVICE_BY_ARCH.

    Raises:
        InputError: no such device; names the known ones and the nearest.
    """
    if name in _met:
        return _met[name]
    wanted = _folded(name)
    for row in (*DEVICES.values(), *plugged_devices()):
        if wanted in (_folded(row.name), _folded(row.full_name)):
            return row
    arch = re.sub(r"^compute capability (\d+)\.(\d)$", r"sm_\1\2", name.lower()).rstrip("af")
    by_arch = DEFAULT_DEVICE_BY_ARCH.get(arch)
    if by_arch is not None:
        return DEVICES[by_arch]
    near = difflib.get_close_matches(wanted, {_folded(n): n for n in DEVICES}, n=1, cutoff=0.4)
    hint = f", did you mean {next(n for n in DEVICES if _folded(n) == near[0])}" if near else ""
    more = (row.name for row in plugged_devices())
    raise InputError(f"unknown device {name!r}{hint}; known: {', '.join((*DEVICES, *_met, *more))}")


def plugged_devices() -> tuple[Device, ...]:
    """Of installed packages. Raises InputError where one is none, or has a name of the table's."""
    found = plugins("devices")
    for one in found:
        if not isinstance(one.value, Device):
            raise wrong_type(one, "a cudaops.cuda.devices.Device")
        if one.value.name in DEVICES:
            raise unusable(one, f"{one.value.name} is a device of cudaops' own; name it otherwise")
    return tuple(one.value for one in found)


def register(row: Device) -> Device:
    """Make `device` know this row by its name, in this process; a row of the table needs it not.

    Whoever opens a GPU registers what `device_of` made of it; whoever reads a record that names a
    device outside of the table registers the record's row.
    """
    if row.name not in DEVICES:
        _met[row.name] = row
    return row


def to_record(row: Device) -> dict[str, Any] | None:
    """The row for a record in JSON, None where the table has it: its name is enough then."""
    return None if DEVICES.get(row.name) == row else _adapter().dump_python(row, mode="json")


def from_record(kept: Mapping[str, Any]) -> Device:
    """The row that `to_record` wrote.

    Raises:
        InputError: it is not such a row.
    """
    try:
        return _adapter().validate_python(dict(kept))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InputError(
            f"the record's device cannot be read: {where}: {error.errors()[0]['msg']}"
        ) from error


@cache
def _adapter() -> TypeAdapter[Device]:
    return TypeAdapter(Device)


def _folded(name: str) -> str:
    words = name.lower().replace("-", " ").split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))


MEMORY_TOLERANCE = 0.15
"""Share by which the driver's memory may differ from a row's and still be the same model: rows
hold the advertised size, drivers count GiB and take ECC and their own share away (3 to 7 % on the
devices of the table), while two models of one name differ by 20 % and more (RTX 3080: 10 and 12
GB)."""


class DriverFacts(Protocol):
    """What is asked of the driver; `executors.cuda.protocol.DeviceFacts` is such."""

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
