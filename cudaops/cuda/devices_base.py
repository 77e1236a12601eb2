"""What is known of a chip's SM, and of a device made with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cudaops.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What every chip of one compute capability shares. Lane counts are results a cycle and SM.

    None means: no source, so nobody may compute with it.
    """

    compute_capability: tuple[int, int]
    sm_arch: str
    """nvcc target: `sm_86`."""
    schedulers_per_sm: int
    """Warp schedulers; each issues at most one warp instruction a cycle."""
    fp32_lanes_per_sm: int
    """32-bit FADD, FMUL, FFMA."""
    fp64_lanes_per_sm: int
    """64-bit DADD, DMUL, DFMA."""
    int32_lanes_per_sm: int | None = None
    """32-bit add, compare, logic, shift, where all of them run at one rate."""
    sfu_lanes_per_sm: int | None = None
    """Reciprocal, square root, exp2, log2, sin, cos (the XU pipe)."""
    lsu_lanes_per_sm: int | None = None
    """Threads whose load or store addresses the load/store units take a cycle: 32 lets one warp
    instruction through a cycle, 16 one every second cycle."""
    l1_bytes_per_clk_per_sm: int | None = None
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
    min_shared_bytes_per_sm: int = 0
    """Smallest shared part of it."""
    shared_bytes_per_block: int = 49152
    """Without opting in."""
    shared_bytes_per_block_optin: int
    """With cudaFuncAttributeMaxDynamicSharedMemorySize."""
    shared_reserved_per_block: int = 1024
    """What the driver takes from every block."""
    shared_allocation_unit: int = 128
    sector_bytes: int = 32
    cache_line_bytes: int = 128
    driver_tells_bandwidth: bool = True
    """Whether twice the memory clock times the bus width, as the driver reports them, is the peak
    bandwidth. Not so where the host's memory is used."""
    arch_source: str

    @property
    def shared_carveouts_bytes(self) -> tuple[int, ...]:
        """Sizes the shared part may take. Source: CUDA Programming Guide 13, table 'Shared Memory
        Capacity per Compute Capability'."""
        sizes = tuple(kb * 1024 for kb in (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
        return tuple(
            s for s in sizes if self.min_shared_bytes_per_sm <= s <= self.shared_bytes_per_sm
        )

    @property
    def capability(self) -> str:
        """Compute capability as NVIDIA writes it: `8.6`."""
        return "{}.{}".format(*self.compute_capability)


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

    def lanes(self, unit: Literal["int32", "sfu", "lsu"]) -> int:
        """Lanes of a unit whose width not every architecture's documents tell.

        Raises:
            InputError: no source.
        """
        found = {
            "int32": self.int32_lanes_per_sm,
            "sfu": self.sfu_lanes_per_sm,
            "lsu": self.lsu_lanes_per_sm,
        }[unit]
        if found is None:
            raise InputError(
                f"time is not modelled for {self.name}: the width of its {unit} unit has no source"
            )
        return found
