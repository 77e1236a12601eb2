"""Latencies and rates that only the time model needs, one row a compute capability.

`docs/model.md` tells what each number does in the model and how far it is from measured times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cudaops.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Microarchitecture:
    """Cycles are SM cycles; rates are a cycle and SM unless said otherwise."""

    alu_latency: float = 4.0
    """Dependent arithmetic, issue to issue. Source: arXiv:2208.11174 (Ampere), table of instruction
    clock cycles: FFMA, FADD, IADD3 4; unchanged in published Hopper measurements."""
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
    """What L2 and DRAM latency become with every SM asking. The published ones are of one thread,
    alone. Fitted to the H200 points of `docs/model.md`, assumed elsewhere."""
    barrier_latency: float = 30.0
    """Last warp's arrival to first issue after it. Fitted to the H200 points of `docs/model.md`."""
    first_use_penalty: float = 12.0
    """Cycles between data arriving and the waiting warp issuing again (scoreboard, dispatch).
    Fitted to the H200 points of `docs/model.md`."""
    block_launch: float = 500.0
    """Cycles from a block's end to useful work of the one that takes its place: scheduling, index
    set-up, first constant loads. Assumed."""
    atomic_l2_cycles: float = 2.0
    """L2 cycles between two operations on one address. Assumed."""
    source: str


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
    source=f"No source for GA102 itself: the RTX 4090 in {_LUO}, whose SM is its successor's",
)  # fmt: skip
SM_89_TIMES = Microarchitecture(
    shared_latency=30.0, l1_latency=43.0, l2_latency=273.0, dram_latency=542.0,
    source=f"RTX 4090 in {_LUO}",
)  # fmt: skip
SM_90_TIMES = Microarchitecture(
    shared_latency=29.0, l1_latency=41.0, l2_latency=263.0, dram_latency=479.0,
    source=f"H100 PCIe in {_LUO}",
)  # fmt: skip

BY_CAPABILITY: Mapping[tuple[int, int], Microarchitecture] = MappingProxyType(
    {(8, 0): SM_80_TIMES, (8, 6): SM_86_TIMES, (8, 9): SM_89_TIMES, (9, 0): SM_90_TIMES}
)

KERNEL_GAP_US = 0.8
"""Between one kernel's end and the next one's start in a stream. Measured: H200, 2026-11-20, naive
product of tests/data: 416.1 us a launch by events, 415.3 us by ncu."""

SMALLEST_LAUNCH_US = 2.2
"""A launch that does nothing, by events around launches queued back to back; 2 to 2.5 us in
published measurements on A100 and H100."""

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
