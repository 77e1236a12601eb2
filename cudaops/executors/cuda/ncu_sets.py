"""What ncu is asked for, and what that costs: a long launch gets a set that ends in time.

ncu runs the launch once a pass and puts back before each what it wrote. Metrics of instructions
(`smsp__sass_*`, the table of source lines) are counted by code that is patched into the kernel,
which makes a pass take many times as long as the launch; hardware counters cost the launch alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cudaops.cuda import metrics

Sections = Literal["least", "brief", "deciding", "full"]
"""What ncu collects: limits and occupancy alone; all that needs no patched code; what rules,
roofline, floors and hot lines read; or all that it can."""

DECIDING: tuple[str, ...] = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats",
    "InstructionStats", "LaunchStats", "Occupancy", "SourceCounters",
)  # fmt: skip
"""Sections of the full set, by ncu's identifiers (those of the report in tests/data/ncu)."""
BRIEF: tuple[str, ...] = (
    "SpeedOfLight", "MemoryWorkloadAnalysis", "SchedulerStats", "WarpStateStats", "LaunchStats",
    "Occupancy",
)  # fmt: skip
LEAST: tuple[str, ...] = ("SpeedOfLight", "LaunchStats", "Occupancy")
_COUNTED = (
    "Pipe utilisation", "DRAM", "L1", "Shared memory", "L2", "Memory instructions", "Cycles",
)  # fmt: skip
COUNTERS: tuple[str, ...] = (
    *(
        row.name
        for row in metrics.COUNTER_ROWS
        if row.section in _COUNTED and not row.not_on and not row.name.startswith("memory_")
    ),
    metrics.HFMA_PER_CYCLE, metrics.HADD_PER_CYCLE, metrics.HMUL_PER_CYCLE,
)  # fmt: skip
"""Counters that rules read beside them: the full set has them in tables, charts and breakdowns."""
BRIEF_COUNTERS: tuple[str, ...] = (
    metrics.DRAM_READ_BYTES, metrics.DRAM_WRITE_BYTES, metrics.SMSP_CYCLES_ELAPSED,
    metrics.PIPE_FMA, metrics.PIPE_ALU, metrics.PIPE_FP64, metrics.PIPE_TENSOR, metrics.PIPE_XU,
    metrics.GLOBAL_LD_REQUESTS, metrics.GLOBAL_LD_SECTORS, metrics.GLOBAL_ST_REQUESTS,
    metrics.GLOBAL_ST_SECTORS, metrics.LOCAL_LD_SECTORS, metrics.LOCAL_ST_SECTORS,
)  # fmt: skip
"""Of hardware: what tells pipes, coalescing and spills apart."""
LEAST_COUNTERS: tuple[str, ...] = (
    metrics.DRAM_READ_BYTES, metrics.DRAM_WRITE_BYTES, metrics.SMSP_CYCLES_ELAPSED,
    metrics.PIPE_TENSOR,
)  # fmt: skip
"""What floors and the roofline read of hardware."""

MOST_S = 15.0
"""For which a profile may keep the GPU to itself. Chosen: others wait for it meanwhile, and a run
of a few minutes takes several profiles."""
DEVICE_BYTES_PER_S = 1e12
"""Copies of what is put back, where they fit into device memory beside it. Chosen: a third of the
bandwidth of an H100 (`devices`), since each byte is read and written."""
HOST_BYTES_PER_S = 10e9
"""The same where ncu keeps them in host memory. Chosen: pageable copies over PCIe 4 or 5."""


class _Cost(NamedTuple):
    passes: int
    launches: int
    """So many times the launch's own time do all passes take together."""


_COSTS: dict[Sections, _Cost] = {
    "least": _Cost(14, 14),
    "brief": _Cost(24, 24),
    "deciding": _Cost(40, 600),
    "full": _Cost(45, 650),
}
"""Passes of the full set: 38 on an H200 (`profiler__replayer_passes` in tests/data/ncu), and a few
of `COUNTERS`; of the two small sets chosen, not measured. Launches: what the deciding set took
beyond a short kernel's 5.4 s and a load of the buffers at 2 to 3 GB/s, over the launch's time, was
350 for `page-rank`, 600 for `lrn` and 700 for `epistasis` (H200, benchmarks/results/
2026-11-23-h200-capture-costs and 2026-11-24-h200-capture-costs)."""

LEFT_OUT: dict[Sections, str] = {
    "deciding": "ncu collected the sections that decide; sampling over time, distribution over "
    "units, NUMA, NVLink and the hierarchical rooflines were not asked for (--every-metric)",
    "brief": "ncu collected what hardware counts of limits, memory, schedulers and warp states; "
    "lines of the source, instructions by kind and the tables of memory were not asked for",
    "least": "ncu collected limits, occupancy and traffic with device memory; warp states, memory "
    "below L2, lines of the source and instructions were not asked for",
    "full": "",
}
"""What a profile says of what is not in it."""


class LaunchCost(NamedTuple):
    """What a set's cost depends on."""

    seconds: float
    size_bytes: int
    """Of all buffers: at most this is put back before a pass."""
    memory_bytes: int
    """Of the device."""


def profile_s(sections: Sections, launch: LaunchCost) -> float:
    """Seconds, about, that the GPU is taken for by all passes of a set."""
    cost = _COSTS[sections]
    on_device = 2 * launch.size_bytes <= launch.memory_bytes
    rate = DEVICE_BYTES_PER_S if on_device else HOST_BYTES_PER_S
    return cost.launches * launch.seconds + cost.passes * 2 * launch.size_bytes / rate


def affordable(wanted: Sections, launch: LaunchCost) -> Sections | None:
    """The largest set, `wanted` at most, whose passes end within `MOST_S`; None: not even the
    least does."""
    order: tuple[Sections, ...] = ("full", "deciding", "brief", "least")
    smaller = order[order.index(wanted) :]
    return next((s for s in smaller if profile_s(s, launch) <= MOST_S), None)


def collected(sections: Sections) -> list[str]:
    """The set as options of ncu."""
    if sections == "full":
        return ["--set", "full"]
    names, counters = {
        "deciding": (DECIDING, COUNTERS),
        "brief": (BRIEF, BRIEF_COUNTERS),
        "least": (LEAST, LEAST_COUNTERS),
    }[sections]
    named = [word for section in names for word in ("--section", section)]
    return [*named, "--metrics", ",".join(counters)]
