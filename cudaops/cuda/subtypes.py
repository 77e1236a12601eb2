"""What can limit a kernel: the closed list of verdict subtypes, each with its usual relief."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from cudaops.domain.profile import BottleneckClass

Subtype = Literal[
    "atomic_contention", "divergence", "dram_bandwidth", "fma_pipe", "fp64_pipe", "integer_pipe",
    "issue_slots", "l1_load_throughput", "l2_bandwidth", "launch_bound", "low_parallelism",
    "many_waves", "near_peak", "occupancy_block_size", "occupancy_grid", "occupancy_registers",
    "occupancy_shared", "register_spills", "sfu_pipe", "shared_bank_conflicts",
    "shared_throughput", "stall_barrier", "stall_branch", "stall_lg_throttle",
    "stall_long_scoreboard", "stall_membar", "stall_mio_throttle", "stall_short_scoreboard",
    "stall_wait", "tail_effect", "tensor_pipe", "uncoalesced_access", "unknown",
]  # fmt: skip
"""Keys of SUBTYPES; a test holds the two together."""


class SubtypeInfo(NamedTuple):
    """Title and relief of a subtype, for people."""

    title: str
    """Completes "Limited by ..."."""
    bottleneck_class: BottleneckClass
    one_line: str
    """What happens in the hardware."""
    relief: str
    """What usually helps: what a rewrite can do, most effective first; then what only the user
    can, said as such."""
    relief_without_loads: str = ""
    """The same for a kernel that loads nothing; empty where that makes no difference."""


_COMPUTE: Mapping[Subtype, SubtypeInfo] = {
    "fma_pipe": SubtypeInfo(
        "the FMA pipe", "compute_bound",
        "The single-precision multiply-add units are busy nearly every cycle.",
        "Do less arithmetic: hoist invariants, fuse multiply and add, use an algorithm with fewer "
        "operations; what remains is the hardware's limit at this precision.",
    ),
    "fp64_pipe": SubtypeInfo(
        "the FP64 pipe", "compute_bound",
        "The double-precision units are busy; on consumer and inference chips they are few.",
        "Remove accidental doubles (1.0 for 1.0f, pow, sqrt for sqrtf) where the baseline's own "
        "precision is single; otherwise fewer double operations: what the inner loop computes or "
        "reads again once and in registers, FMA for multiply and add, no division in it.",
    ),
    "tensor_pipe": SubtypeInfo(
        "the tensor pipe", "compute_bound",
        "The matrix units are busy nearly every cycle.",
        "Larger warp tiles, and the next tile loaded during the arithmetic, keep them fed; beyond "
        "that the limit is the hardware's at this precision.",
    ),
    "sfu_pipe": SubtypeInfo(
        "the special-function pipe", "compute_bound",
        "Transcendental functions, reciprocals and conversions queue at the quarter-rate or "
        "slower XU units.",
        "Hoist or tabulate transcendental calls, replace division by a reciprocal computed once, "
        "avoid conversions between integer and floating point in the inner loop.",
    ),
    "integer_pipe": SubtypeInfo(
        "the integer pipe", "compute_bound",
        "Address arithmetic, comparisons or logic keep the ALU busy.",
        "Strength-reduce index arithmetic, use 32-bit indices, unroll so that addresses become "
        "immediate offsets, replace division and modulo by shifts or running counters.",
    ),
    "issue_slots": SubtypeInfo(
        "instruction issue", "compute_bound",
        "The schedulers issue nearly every cycle, and no single pipe explains it.",
        "Execute fewer instructions: vector loads and stores, unrolling, more outputs per thread.",
    ),
    "divergence": SubtypeInfo(
        "divergent warps", "compute_bound",
        "Threads of a warp take different paths, so that lanes idle while the warp is issued.",
        "Branch on warp-uniform values, sort or bin the work, replace branches by selects, give "
        "whole warps to irregular items.",
    ),
}  # fmt: skip

_MEMORY: Mapping[Subtype, SubtypeInfo] = {
    "l1_load_throughput": SubtypeInfo(
        "L1 load throughput", "memory_bound",
        "The load/store path into L1 is full while DRAM is not busy: the same data is loaded "
        "again and again from L1 instead of being reused from registers or shared memory.",
        "Shared-memory tiling with register tiling: load a tile once, keep several outputs per "
        "thread in registers, and use vector loads (float4) for the remaining global reads.",
    ),
    "shared_throughput": SubtypeInfo(
        "shared-memory throughput", "memory_bound",
        "The L1/shared data path is full of shared-memory wavefronts.",
        "Register tiling: more outputs per thread for each value read; wider shared loads "
        "(float4); broadcast reads.",
    ),
    "l2_bandwidth": SubtypeInfo(
        "L2 bandwidth", "memory_bound",
        "The L2 slices are busy while DRAM still has room: the working set is re-read across "
        "blocks.",
        "Larger tiles per block so that each byte crosses L2 fewer times; order blocks for L1 and "
        "L2 locality; vector accesses.",
    ),
    "dram_bandwidth": SubtypeInfo(
        "DRAM bandwidth", "memory_bound",
        "Device memory moves bytes at nearly its sustained peak.",
        "Move fewer bytes: keep intermediates on chip, tile for reuse, use every byte of a sector; "
        "outside of the kernel: fuse kernels.",
    ),
    "uncoalesced_access": SubtypeInfo(
        "uncoalesced global access", "memory_bound",
        "A warp's request touches more 32-byte sectors than its data fill.",
        "Let neighbouring threads touch neighbouring addresses: swap loop order or index roles, "
        "stage through shared memory; outside of the kernel: turn arrays of structures "
        "into structures of arrays.",
    ),
    "shared_bank_conflicts": SubtypeInfo(
        "shared-memory bank conflicts", "memory_bound",
        "Threads of a warp hit different words of one bank, so that an access takes several "
        "wavefronts.",
        "Pad the tile's row by one element, swizzle the column index, or change which thread "
        "reads which element.",
    ),
    "register_spills": SubtypeInfo(
        "local memory (spilled registers, or an array of a thread that is indexed by a value)",
        "memory_bound",
        "Values that do not fit into registers, and arrays that no register can hold because "
        "their index is a value, travel through L1 and below.",
        "Of spills: smaller register tile, shorter live ranges, looser __launch_bounds__; of an "
        "array: constant indices after full unrolling, a column of shared memory a thread, or "
        "small counters packed into a word; outside of the kernel: drop "
        "-maxrregcount from the build.",
    ),
    "atomic_contention": SubtypeInfo(
        "contended atomics", "memory_bound",
        "Many threads update few addresses, and the updates are serialised.",
        "Aggregate in registers, by warp shuffle and in shared memory first, then one global "
        "atomic per block; privatise histograms.",
    ),
}  # fmt: skip

_LATENCY: Mapping[Subtype, SubtypeInfo] = {
    "occupancy_registers": SubtypeInfo(
        "occupancy (registers)", "latency_bound",
        "Registers per thread let too few warps live on an SM to hide latency.",
        "__launch_bounds__ with a minimum of blocks, a smaller register tile, shorter live ranges; "
        "or more independent work per thread, so that fewer warps suffice.",
    ),
    "occupancy_shared": SubtypeInfo(
        "occupancy (shared memory)", "latency_bound",
        "Shared memory per block lets too few blocks live on an SM to hide latency.",
        "Smaller tiles or fewer stages, reuse of one buffer, more threads on the same tile; "
        "outside of the kernel: raise the shared-memory carve-out.",
    ),
    "occupancy_block_size": SubtypeInfo(
        "occupancy (block size)", "latency_bound",
        "The block size does not divide the SM's warps, or blocks are so small that the limit "
        "of blocks an SM is reached first.",
        "A block of 128 to 256 threads, a multiple of 32.",
    ),
    "occupancy_grid": SubtypeInfo(
        "a grid too small for the device", "latency_bound",
        "Fewer blocks are launched than the SMs could hold, so that SMs or warp slots stay empty.",
        "Smaller tiles or smaller blocks, a warp or a block for what one thread's loop does, the "
        "reduction dimension split over blocks (split-K); outside of the kernel: batch "
        "independent launches into one.",
    ),
    "low_parallelism": SubtypeInfo(
        "latency with too little parallelism", "latency_bound",
        "No unit is busy: warps wait, and there are too few ready ones to cover the wait.",
        "More independent work in flight: several loads before their first use, unrolling, more "
        "warps, double-buffered tiles.",
        "More independent arithmetic in flight: several items or accumulators per thread, "
        "unrolling, more warps; even work among the lanes of a warp and the warps of a block.",
    ),
    "stall_long_scoreboard": SubtypeInfo(
        "waiting for global memory", "latency_bound",
        "Warps wait for data from L1, L2 or DRAM (long scoreboard).",
        "Issue loads earlier and several at a time, prefetch the next tile, raise the hit rate by "
        "tiling, raise occupancy.",
    ),
    "stall_short_scoreboard": SubtypeInfo(
        "waiting for shared memory or special functions", "latency_bound",
        "Warps wait for a shared-memory load or a special-function result (short scoreboard).",
        "Remove bank conflicts, read wider, keep operands in registers, interleave independent "
        "arithmetic.",
    ),
    "stall_mio_throttle": SubtypeInfo(
        "a full MIO queue", "latency_bound",
        "Shared-memory, special-function and dynamic-branch instructions are issued faster than "
        "their queue drains.",
        "Fewer and wider shared accesses, register tiling, fewer transcendental calls.",
    ),
    "stall_lg_throttle": SubtypeInfo(
        "a full load/store queue", "latency_bound",
        "Global and local memory instructions are issued faster than the L1 queue drains.",
        "Fewer and wider global accesses (float4), reuse through registers or shared memory, no "
        "local memory.",
    ),
    "stall_barrier": SubtypeInfo(
        "waiting at barriers", "latency_bound",
        "Warps wait at __syncthreads for the slowest warp of their block.",
        "More work between barriers (deeper tiles), double buffering with one barrier per tile, "
        "smaller or more blocks an SM, even work among warps.",
    ),
    "stall_membar": SubtypeInfo(
        "memory fences", "latency_bound",
        "Warps wait until their earlier writes are visible.",
        "Fewer fences, the narrowest scope that is right (__threadfence_block), reductions "
        "without fences.",
    ),
    "stall_branch": SubtypeInfo(
        "resolving branches", "latency_bound",
        "Warps wait for branch targets.",
        "Unroll short loops, replace branches by selects, merge loops.",
    ),
    "stall_wait": SubtypeInfo(
        "fixed instruction latency", "latency_bound",
        "Warps wait for the fixed latency of their previous instruction: dependent chains.",
        "More independent operations per thread (unrolling, several accumulators), more warps.",
    ),
    "tail_effect": SubtypeInfo(
        "a partial last wave", "latency_bound",
        "The last wave of blocks leaves SMs idle while the others finish.",
        "Choose block and tile sizes whose grid is close to a whole number of waves, or a "
        "persistent grid-stride kernel of one wave.",
    ),
}  # fmt: skip

_OTHER: Mapping[Subtype, SubtypeInfo] = {
    "many_waves": SubtypeInfo(
        "blocks that do too little", "latency_bound",
        "Very many waves of very short blocks: starting and ending blocks takes much of the time.",
        "More work per thread: several outputs per thread, a grid-stride loop over one or a few "
        "waves of blocks, larger tiles.",
    ),
    "launch_bound": SubtypeInfo(
        "launch overhead", "launch_bound",
        "The kernel is about as short as launching it.",
        "One launch, no more blocks than fill the device, loads issued together; a rewrite can win "
        "little else. Outside of the kernel: fuse it with its neighbours, do more work "
        "per launch, batch launches in a CUDA graph.",
    ),
    "near_peak": SubtypeInfo(
        "the hardware itself", "near_peak",
        "The kernel runs close to the roofline for the work it does.",
        "Only less work helps: fewer operations, fewer bytes, another algorithm.",
    ),
    "unknown": SubtypeInfo(
        "nothing the metrics show", "unknown",
        "No rule fired: the metrics that would tell were not collected, or none is conspicuous.",
        "Collect a full profile (ncu --set full), or look at the hot source lines.",
    ),
}  # fmt: skip

SUBTYPES: Mapping[Subtype, SubtypeInfo] = MappingProxyType(
    {**_COMPUTE, **_MEMORY, **_LATENCY, **_OTHER}
)
"""Every subtype a Verdict may carry. Order is not significance: see `cudaops.cuda.verdict`."""
