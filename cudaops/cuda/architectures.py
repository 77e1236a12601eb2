"""One row a compute capability, each number with its source: the SM's lanes and limits, and the
latencies and rates that only the time model needs.

`docs/model.md` tells what each number of the time model does and how far it is from measured times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
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


_GUIDE = (
    "CUDA C++ Programming Guide 12: tables 'Technical Specifications per Compute Capability' and "
    "'Throughput of Native Arithmetic Instructions'; CUDA occupancy calculator: allocation units"
)
_GUIDE_13 = (
    "Limits, carve-outs and the ratio of FP32 to FP64: CUDA Programming Guide 13, appendix Compute "
    "Capabilities, tables 30 to 32; allocation units and schedulers: cuda_occupancy.h of CUDA 13.0"
)
_KB = 1024

SM_75 = Architecture(
    compute_capability=(7, 5), sm_arch="sm_75", schedulers_per_sm=4,
    fp32_lanes_per_sm=64, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    max_warps_per_sm=32, max_blocks_per_sm=16, max_threads_per_sm=1024,
    l1_shared_bytes_per_sm=96 * _KB, shared_bytes_per_sm=64 * _KB,
    min_shared_bytes_per_sm=32 * _KB, shared_bytes_per_block_optin=64 * _KB,
    shared_reserved_per_block=0, shared_allocation_unit=256,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Programming Guide 12, section Compute Capability "
    "7.x",
)  # fmt: skip

SM_80 = Architecture(
    compute_capability=(8, 0), sm_arch="sm_80", schedulers_per_sm=4,
    fp32_lanes_per_sm=64, fp64_lanes_per_sm=32, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=192 * _KB, shared_bytes_per_sm=164 * _KB,
    shared_bytes_per_block_optin=163 * _KB,
    arch_source=f"{_GUIDE}; load/store units: A100 whitepaper, figure of the GA100 SM (8 a "
    "quarter)",
)  # fmt: skip

SM_86 = Architecture(
    compute_capability=(8, 6), sm_arch="sm_86", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16,
    max_warps_per_sm=48, max_blocks_per_sm=16, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE}; L1 width and load/store units: GA102 whitepaper, figure of the GA10x "
    "SM (4 a quarter), and consistent with a measured A10: naive product of size 1024, 2 load "
    "instructions a k and warp, 2 cycles each, are 1.864e6 cycles an SM, 93.9 % (the reported SM "
    "throughput) of 1.185 ms at 1675 MHz, next to the boost clock",
)  # fmt: skip

SM_89 = Architecture(
    compute_capability=(8, 9), sm_arch="sm_89", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=16,
    max_warps_per_sm=48, max_blocks_per_sm=24, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE}; load/store units: Ada whitepaper, figure of the AD10x SM (4 a quarter)"
    ", not checked by a measurement",
)  # fmt: skip

SM_90 = Architecture(
    compute_capability=(9, 0), sm_arch="sm_90", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=64, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=256 * _KB, shared_bytes_per_sm=228 * _KB,
    shared_bytes_per_block_optin=227 * _KB,
    arch_source=f"{_GUIDE}; limits and lanes checked against the device__attribute_* and "
    "peak_sustained columns of tests/data/ncu (H200); load/store rate: same capture, 0.643 load "
    "instructions a cycle are 64.3 % of the pipe's peak",
)  # fmt: skip

SM_100 = Architecture(
    compute_capability=(10, 0), sm_arch="sm_100", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=64, int32_lanes_per_sm=64, sfu_lanes_per_sm=16,
    max_warps_per_sm=64, max_blocks_per_sm=32, max_threads_per_sm=2048,
    l1_shared_bytes_per_sm=256 * _KB, shared_bytes_per_sm=228 * _KB,
    shared_bytes_per_block_optin=227 * _KB,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Programming Guide 12.9, section Compute Capability "
    "10.0",
)  # fmt: skip

SM_103 = replace(
    SM_100, compute_capability=(10, 3), sm_arch="sm_103", fp64_lanes_per_sm=2,
    int32_lanes_per_sm=None, sfu_lanes_per_sm=None,
    arch_source=f"{_GUIDE_13}; FP32 lanes: CUDA C++ Best Practices Guide 13, table 'Throughput of "
    "Native Arithmetic Instructions'; no source for integer and special function lanes",
)  # fmt: skip

SM_120 = Architecture(
    compute_capability=(12, 0), sm_arch="sm_120", schedulers_per_sm=4,
    fp32_lanes_per_sm=128, fp64_lanes_per_sm=2,
    max_warps_per_sm=48, max_blocks_per_sm=24, max_threads_per_sm=1536,
    l1_shared_bytes_per_sm=128 * _KB, shared_bytes_per_sm=100 * _KB,
    shared_bytes_per_block_optin=99 * _KB,
    arch_source=f"{_GUIDE_13}; lanes: CUDA C++ Best Practices Guide 13, table 'Throughput of "
    "Native Arithmetic Instructions', column 12.0/12.1, where integer additions (128) and shifts "
    "(64) have no common rate",
)  # fmt: skip

SM_121 = replace(
    SM_120, compute_capability=(12, 1), sm_arch="sm_121", driver_tells_bandwidth=False,
    arch_source=f"As 12.0, in the same columns. {SM_120.arch_source}. Bandwidth: the 8533 MHz that "
    "a GB10's driver reports (deviceQuery) are its LPDDR5X's data rate already",
)  # fmt: skip

ARCHITECTURES: Mapping[tuple[int, int], Architecture] = MappingProxyType(
    {
        row.compute_capability: row
        for row in (SM_75, SM_80, SM_86, SM_89, SM_90, SM_100, SM_103, SM_120, SM_121)
    }
)
"""By compute capability, oldest first."""


Unit = Literal["int32", "sfu", "lsu"]
"""Units whose width not every architecture's documents tell."""


@dataclass(frozen=True, kw_only=True)
class Microarchitecture:
    """Cycles are SM cycles; rates are a cycle and SM unless said otherwise."""

    alu_latency: float = 4.0
    """Dependent arithmetic, issue to issue. Source: arXiv:2208.11174 (Ampere), table of instruction
    clock cycles: FFMA, FADD, IADD3 4; 4.5 with the loop around it on an H200 (`_H200`)."""
    fp64_latency: float = 8.0
    """Dependent DADD, DMUL, DFMA, issue to issue, where the chip has a full FP64 pipe. Measured:
    H200, 8.3 (`_H200`); assumed elsewhere."""
    branch_latency: float = 17.0
    """From a branch back to a loop's top to what is there, of one warp. Measured: H200, driver
    580.159.04, 2026-11-30: a loop that nvcc 13.0 does not unroll (12 instructions of SASS, 22
    cycles of them in a row, of which one thread goes round 16,384 times) takes 39.7 cycles a turn;
    assumed elsewhere."""
    constant_word_cycles: float = 2.0
    """Of the L1/shared data path, for each word of constant memory that lanes of one instruction
    ask for. Assumed; one measurement allows at most 2.4: H200, driver 580.159.04, 2026-11-30, a
    block of 32 warps looks up 354 thousand words in tables in 866 thousand cycles, with all else
    that it does."""
    shared_latency: float
    """Load from shared memory without conflict."""
    l1_latency: float
    """Load that hits L1."""
    l2_latency: float
    """Load that misses L1 and hits L2."""
    dram_latency: float
    """Load that misses both."""
    l2_bytes_per_clk: float = 64.0
    """What one SM gets out of L2. Source: NVIDIA A100 whitepaper (64 B/clk/SM); assumed
    elsewhere."""
    l2_fabric_bytes_per_clk: float = 20.0
    """L2 bandwidth the whole chip gives, an SM's share, where the device table has no width.
    Assumed: what published bandwidth tests of the RTX 3090 and RTX 4090 come to."""
    dram_efficiency: float = 0.92
    """Share of the published bandwidth that streaming code reaches; 0.90 to 0.93 in published
    STREAM runs on A100 and H100."""
    store_bytes_per_clk: float = 32.0
    """Stores leaving an SM; assumed half the read width."""
    convert_lanes: float = 64.0
    """Conversions between 32-bit types. Source: CUDA C++ Programming Guide, table of native
    arithmetic throughput."""
    under_load: float = 1.3
    """What L2 and DRAM latency become with every SM asking; the others are of one thread, alone.
    Fitted to the six products of `docs/model.md`, assumed elsewhere."""
    barrier_latency: float = 13.0
    """A barrier of a block alone on its SM, without what `barrier_cycles_per_warp` adds. Measured:
    H200, 14.9 of one warp, 77.0 of 32 (`_H200`); assumed elsewhere."""
    barrier_cycles_per_warp: float = 2.0
    """What each warp of the block adds to it. Same measurement."""
    first_use_penalty: float = 12.0
    """Cycles between data arriving and the waiting warp issuing again (scoreboard, dispatch).
    Fitted to the H200 points of `docs/model.md`."""
    block_launch: float = 500.0
    """Cycles from a block's end to useful work of the one that takes its place: scheduling, index
    set-up, first constant loads. Assumed."""
    block_start: float = 111.0
    warp_start: float = 5.1
    """Cycles an SM takes to start a block that does nothing, and to see it end: of the block, and
    of each of its warps. Measured: H200, driver 580.159.04, 2026-11-30: 65,280 idle blocks of 8
    warps beside 256 that work take 38 us (152 cycles a block), and 6,400 blocks of one thread 2.5
    us more than the same work in 800 (116 cycles); assumed elsewhere."""
    atomic_cycles: float = 3.5
    """SM cycles between two operations on one address in L2. Measured: H200, 1.05 million additions
    of floats to one address in 1842 us (`_H200`); assumed elsewhere."""
    integer_atomic_cycles: float = 1.7
    """The same for 32-bit integers. Measured: H200, 33 thousand additions, one a warp, to one
    address in 28.9 us (`_H200`); assumed elsewhere."""
    atomic_lanes_per_clk: float = 2.0
    """Operations on distinct addresses an SM gets through L2 with all SMs asking. Measured: H200,
    8.4 million additions to as many addresses as threads in 16.7 us (`_H200`); assumed
    elsewhere."""
    assumed_lanes: tuple[tuple[Unit, int], ...] = ()
    """Widths that the architecture's documents do not tell (`Architecture`: None), taken from the
    one that it comes from. `source` says so."""
    is_compared: bool = False
    """Whether modelled times of such a chip were compared with measured ones (docs/model.md)."""
    source: str


_H200 = "H200, driver 580.159.04, CUDA 13.0.88, 2026-11-23"
_GEFORCE_FP64_LATENCY = 64.0
"""Two FP64 lanes an SM take 16 cycles for a warp's instruction; a dependent one waits for four such
passes. Assumed: no source that could be checked."""

_LUO = (
    "arXiv:2402.13499 (Hopper dissected against Ada and Ampere), table of memory latencies; values "
    "read from the paper's preprint"
)

SM_80_TIMES = Microarchitecture(
    shared_latency=29.0,
    l1_latency=38.0,
    l2_latency=262.0,
    dram_latency=466.0,
    source=f"A100 in {_LUO}",
)
SM_86_TIMES = Microarchitecture(
    shared_latency=30.0, l1_latency=43.0, l2_latency=273.0, dram_latency=542.0,
    is_compared=True, fp64_latency=_GEFORCE_FP64_LATENCY,
    source=f"No source for GA102 itself: the RTX 4090 in {_LUO}, whose SM is its successor's",
)  # fmt: skip
SM_89_TIMES = Microarchitecture(
    shared_latency=30.0, l1_latency=43.0, l2_latency=273.0, dram_latency=542.0,
    fp64_latency=_GEFORCE_FP64_LATENCY,
    source=f"RTX 4090 in {_LUO}",
)  # fmt: skip
SM_90_TIMES = Microarchitecture(
    shared_latency=29.0, l1_latency=41.0, l2_latency=287.0, dram_latency=600.0, under_load=1.2,
    is_compared=True,
    source="shared memory, L1, L2: pointer chases of one thread on an H200 (29.3, 41.3, 287.4; "
    f"{_H200}), where the H100 PCIe in {_LUO}, has 29, 41, 263; DRAM: fitted with the kernels of "
    "docs/model.md",
)  # fmt: skip

_NEVER = "Never measured here."
SM_75_TIMES = Microarchitecture(
    shared_latency=23.0, l1_latency=32.0, l2_latency=236.0, dram_latency=505.0,
    fp64_latency=_GEFORCE_FP64_LATENCY, assumed_lanes=(("lsu", 16),),
    source=f"{_NEVER} Shared memory, L1, L2: pointer chases on an RTX 2070, the same SM "
    "(github.com/sjfeng1999/gpu-arch-microbenchmark, README). DRAM: assumed, what it adds to L2 on "
    "the RTX 4090 of 8.9. Load/store units: assumed as in 8.6",
)  # fmt: skip
SM_100_TIMES = Microarchitecture(
    shared_latency=29.0, l1_latency=39.0, l2_latency=295.0, dram_latency=608.0, under_load=1.2,
    l2_fabric_bytes_per_clk=39.0, assumed_lanes=(("lsu", 32),),
    source=f"{_NEVER} L1 (19.6 ns) and L2 (150 ns, the near half) at 1965 MHz: "
    "chipsandcheese.com, 'Nvidia's B200: Keeping the CUDA Juggernaut Rolling', as retold at "
    "besthub.dev. Shared memory, load/store units and what DRAM adds to L2: assumed as in 9.0; L2 "
    "bandwidth an SM: assumed, the H200's",
)  # fmt: skip
SM_120_TIMES = Microarchitecture(
    shared_latency=30.0, l1_latency=43.0, l2_latency=313.0, dram_latency=582.0,
    fp64_latency=_GEFORCE_FP64_LATENCY, l2_fabric_bytes_per_clk=17.8,
    assumed_lanes=(("int32", 64), ("sfu", 16), ("lsu", 16)),
    source=f"{_NEVER} L2 (130 ns at 2407 MHz, and 8.7 TB/s of 188 SMs at 2.6 GHz): "
    "chipsandcheese.com, 'Blackwell: Nvidia's Massive GPU' (RTX PRO 6000), as retold at "
    "every.news. Shared memory, L1, lanes and what DRAM adds to L2: assumed as in 8.9; integer "
    "lanes at the rate of shifts, additions are faster",
)  # fmt: skip
SM_121_TIMES = replace(
    SM_120_TIMES,
    source=f"As 12.0; its LPDDR5X, slower than GDDR7, is not in the DRAM latency. "
    f"{SM_120_TIMES.source}",
)

BY_CAPABILITY: Mapping[tuple[int, int], Microarchitecture] = MappingProxyType({
    (7, 5): SM_75_TIMES, (8, 0): SM_80_TIMES, (8, 6): SM_86_TIMES, (8, 9): SM_89_TIMES,
    (9, 0): SM_90_TIMES, (10, 0): SM_100_TIMES, (12, 0): SM_120_TIMES, (12, 1): SM_121_TIMES,
})  # fmt: skip

PREFETCH_REGISTERS = 8.0
"""Registers of loaded shared-memory data that nvcc keeps ahead of their use. Read off the SASS of
the calibration programs (nvcc 13.0.88, sm_90): one 4x4 step (8 registers) ahead, 4 to 8 scalars
ahead."""


def microarchitecture(capability: tuple[int, int]) -> Microarchitecture:
    """The row of a compute capability.

    Raises:
        InputError: there is none, so that time is not modelled for it.
    """
    found = BY_CAPABILITY.get(capability)
    if found is None:
        known = ", ".join("{}.{}".format(*c) for c in BY_CAPABILITY)
        raise InputError(
            "time is not modelled for compute capability {}.{}".format(*capability)
            + f", whose latencies have no source here; it is for {known}"
        )
    return found
