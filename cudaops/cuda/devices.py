"""What is published or measured about devices. One row a device, one source a row."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Literal

from cudaops.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What every chip of one compute capability shares. Lane counts are results a cycle and SM."""

    compute_capability: tuple[int, int]
    sm_arch: str
    """nvcc target: `sm_86`."""
    schedulers_per_sm: int
    """Warp schedulers; each issues at most one warp instruction a cycle."""
    fp32_lanes_per_sm: int
    """32-bit FADD, FMUL, FFMA."""
    fp64_lanes_per_sm: int
    """64-bit DADD, DMUL, DFMA."""
    int32_lanes_per_sm: int
    """32-bit add, compare, logic, shift."""
    sfu_lanes_per_sm: int
    """Reciprocal, square root, exp2, log2, sin, cos (the XU pipe)."""
    lsu_lanes_per_sm: int
    """Threads whose load or store addresses the load/store units take a cycle: 32 lets one warp
    instruction through a cycle, 16 one every second cycle."""
    l1_bytes_per_clk_per_sm: int
    """Width of the L1/shared data path: one wavefront a cycle."""
    max_warps_per_sm: int
    max_blocks_per_sm: int
    max_threads_per_sm: int
    max_threads_per_block: int = 1024
    warp_size: int = 32
    registers_per_sm: int = 65536
    """32-bit registers."""
    register_allocation_unit: int = 256
    """Registers are given to a warp in multiples of this."""
    warp_allocation_granularity: int = 4
    """Warps of a block are counted in multiples of this when registers are given out."""
    max_registers_per_thread: int = 255
    l1_shared_bytes_per_sm: int
    """Unified L1 and shared memory of an SM."""
    shared_bytes_per_sm: int
    """Largest shared part of it."""
    shared_bytes_per_block: int = 49152
    """Without opting in."""
    shared_bytes_per_block_optin: int
    """With cudaFuncAttributeMaxDynamicSharedMemorySize."""
    shared_reserved_per_block: int = 1024
    """What the driver takes from every block."""
    shared_allocation_unit: int = 128
    sector_bytes: int = 32
    cache_line_bytes: int = 128
    arch_source: str

    @property
    def shared_carveouts_bytes(self) -> tuple[int, ...]:
        """Sizes the shared part may take. Source: CUDA C++ Programming Guide, sections on each
        compute capability's shared memory."""
        sizes_kb = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
        return tuple(kb * 1024 for kb in sizes_kb if kb * 1024 <= self.shared_bytes_per_sm)


@dataclass(frozen=True, kw_only=True)
class Device(Architecture):
    """One device model. None means: no source, so nobody may compute with it."""

    name: str
    full_name: str
    """As the driver and ncu report it."""
    sm_count: int
    sm_clock_mhz: float
    sm_clock_kind: Literal["boost", "measured"]
    """`boost`: published maximum under boost. `measured`: held in our own runs."""
    memory_gb: float
    dram_bandwidth_gb_s: float
    """Published peak, 10^9 bytes a second."""
    l2_bytes: int
    l2_read_bytes_per_clk: int | None = None
    """All slices together, L2 to SMs, in L2 clocks."""
    l2_clock_mhz: float | None = None
    """None: no source; L2 clocks differ from SM clocks."""
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


_GUIDE = (
    "CUDA C++ Programming Guide 12: tables 'Technical Specifications per Compute Capability' and "
    "'Throughput of Native Arithmetic Instructions'; CUDA occupancy calculator: allocation units"
)

SM_80 = Architecture(
    compute_capability=(8, 0), sm_arch="sm_80", schedulers_per_sm=4,
    fp32_lanes_per_sm=64, fp64_lanes_per_sm=32, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=192 * 1024, shared_bytes_per_sm=164 * 1024,
    shared_bytes_per_block_optin=163 * 1024,
    arch_source=f"{_GUIDE}; load/store units: A100 whitepaper, figure of the GA100 SM (8 a quarter)",
)  # fmt: skip

SM_86 = Architecture(
    compute_capability=(8, 6), sm_arch="sm_86", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=48, max_blocks_per_sm=16, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * 1024, shared_bytes_per_sm=100 * 1024,
    shared_bytes_per_block_optin=99 * 1024,
    arch_source=f"{_GUIDE}; L1 width and load/store units: GA102 whitepaper, figure of the GA10x SM "
    "(4 a quarter), and consistent with a measured A10: naive product of size 1024, 2 load "
    "instructions a k and warp, 2 cycles each, are 1.864e6 cycles an SM, 93.9 % (the reported SM "
    "throughput) of 1.185 ms at 1675 MHz, next to the boost clock",
)  # fmt: skip

SM_89 = Architecture(
    compute_capability=(8, 9), sm_arch="sm_89", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=48, max_blocks_per_sm=24, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * 1024, shared_bytes_per_sm=100 * 1024,
    shared_bytes_per_block_optin=99 * 1024,
    arch_source=f"{_GUIDE}; load/store units: Ada whitepaper, figure of the AD10x SM (4 a quarter), not checked by a measurement",
)  # fmt: skip

SM_90 = Architecture(
    compute_capability=(9, 0), sm_arch="sm_90", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=64, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32, l1_bytes_per_clk_per_sm=128,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=256 * 1024, shared_bytes_per_sm=228 * 1024,
    shared_bytes_per_block_optin=227 * 1024,
    arch_source=f"{_GUIDE}; limits and lanes checked against the device__attribute_* and "
    "peak_sustained columns of tests/data/ncu (H200); load/store rate: same capture, 0.643 load "
    "instructions a cycle are 64.3 % of the pipe's peak",
)  # fmt: skip

_ROWS = (
    Device(
        **asdict(SM_86), name="A10", full_name="NVIDIA A10", sm_count=72,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=600.0,
        l2_bytes=6 * 1024 * 1024,
        source="NVIDIA A10 datasheet (31.2 TFLOPS FP32, 600 GB/s, 24 GB); GA102 whitepaper (L2: "
        "512 KB for each of 12 memory controllers); 72 SMs: run in seed document 000",
    ),
    Device(
        **asdict(SM_80), name="A100", full_name="NVIDIA A100-SXM4-80GB", sm_count=108,
        sm_clock_mhz=1410.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=2039.0,
        l2_bytes=40 * 1024 * 1024, l2_read_bytes_per_clk=5120,
        source="NVIDIA A100 whitepaper (108 SMs, 1410 MHz, 40 MB L2, 5120 bytes/clk) and A100 80 GB "
        "SXM datasheet (2039 GB/s)",
    ),
    Device(
        **asdict(SM_89), name="L4", full_name="NVIDIA L4", sm_count=58,
        sm_clock_mhz=2040.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=300.0,
        l2_bytes=48 * 1024 * 1024,
        source="NVIDIA L4 datasheet (30.3 TFLOPS FP32, 300 GB/s, 24 GB); Ada whitepaper appendix on "
        "AD104 (48 MB L2)",
    ),
    Device(
        **asdict(SM_86), name="RTX3090", full_name="NVIDIA GeForce RTX 3090", sm_count=82,
        sm_clock_mhz=1695.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=936.0,
        l2_bytes=6 * 1024 * 1024,
        source="GA102 whitepaper, comparison table: GeForce RTX 3090 (82 SMs, 1695 MHz, 35.6 TFLOPS "
        "FP32, 936 GB/s, 6144 KB L2)",
    ),
    Device(
        **asdict(SM_89), name="RTX4090", full_name="NVIDIA GeForce RTX 4090", sm_count=128,
        sm_clock_mhz=2520.0, sm_clock_kind="boost", memory_gb=24.0, dram_bandwidth_gb_s=1008.0,
        l2_bytes=72 * 1024 * 1024,
        source="Ada whitepaper, comparison table: GeForce RTX 4090 (128 SMs, 2520 MHz, 82.6 TFLOPS "
        "FP32, 1008 GB/s, 73728 KB L2)",
    ),
    Device(
        **asdict(SM_90), name="H100", full_name="NVIDIA H100 80GB HBM3", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="boost", memory_gb=80.0, dram_bandwidth_gb_s=3350.0,
        l2_bytes=50 * 1024 * 1024,
        source="NVIDIA H100 SXM5 datasheet (67 TFLOPS FP32, 3.35 TB/s, 80 GB) and H100 whitepaper "
        "(132 SMs, 50 MB L2); 1980 MHz is what 67 TFLOPS of 132 SMs imply",
    ),
    Device(
        **asdict(SM_90), name="H200", full_name="NVIDIA H200", sm_count=132,
        sm_clock_mhz=1980.0, sm_clock_kind="measured", memory_gb=150.11, dram_bandwidth_gb_s=4814.0,
        l2_bytes=62914560, l2_read_bytes_per_clk=6016, l2_clock_mhz=1708.0,
        source="Measured: tests/data/ncu (H200, driver 580.159.04, 2026-11-20). SMs, L2, memory and "
        "SM clock: device__attribute_*. DRAM: 6016 bit x 2 x 3201 MHz. L2 width: "
        "derived__lts__lts2xbar_bytes.sum.peak_sustained; L2 clock: lts__cycles_elapsed.avg over "
        "gpu__time_duration",
    ),
)  # fmt: skip

DEVICES: Mapping[str, Device] = MappingProxyType({row.name: row for row in _ROWS})
"""Known devices by short name. `docs/adding-a-device.md` says how a row is added."""

DEFAULT_DEVICE_BY_ARCH: Mapping[str, str] = MappingProxyType(
    {"sm_80": "A100", "sm_86": "A10", "sm_89": "L4", "sm_90": "H200"}
)
"""The device modelled where only an nvcc target is known."""


def device(name: str) -> Device:
    """The device of this short name, full name, nvcc target or compute capability, in any case.

    A target (`sm_86`) or capability (`compute capability 8.6`, all that ncu's details page tells)
    stands for the architecture's device in DEFAULT_DEVICE_BY_ARCH.

    Raises:
        InputError: no such device; names the known ones and the nearest.
    """
    wanted = _folded(name)
    for row in DEVICES.values():
        if wanted in (_folded(row.name), _folded(row.full_name)):
            return row
    arch = re.sub(r"^compute capability (\d+)\.(\d)$", r"sm_\1\2", name.lower()).rstrip("a")
    by_arch = DEFAULT_DEVICE_BY_ARCH.get(arch)
    if by_arch is not None:
        return DEVICES[by_arch]
    near = difflib.get_close_matches(wanted, {_folded(n): n for n in DEVICES}, n=1, cutoff=0.4)
    hint = f", did you mean {next(n for n in DEVICES if _folded(n) == near[0])}" if near else ""
    raise InputError(f"unknown device {name!r}{hint}; known: {', '.join(DEVICES)}")


def _folded(name: str) -> str:
    words = name.lower().replace("-", " ").split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))
