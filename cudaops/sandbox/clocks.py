"""Other clocks beside the CUDA events: what only events say has not been measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from cudaops.domain.execution import Measurement
from cudaops.domain.judgement import Comparison, Gate

TOLERANCE = 0.15
"""Share by which the host clock's time of a launch may differ from the events' median. Chosen, not
measured: clocks and temperature move a few percent between the two, and work that is hidden from
the events (verification.md, D1 to D7) moves the host's time by a multiple."""
LAUNCH_GAP_US = 3.0
"""Time between two launches that the host sees and events do not. Source: launch overhead of one
kernel in a stream, a few microseconds (CUDA C++ Best Practices Guide, on launch latency)."""


def clocks_gate(comparisons: Sequence[Comparison]) -> Gate:
    """Whether the host's clock agrees with the events, for baseline and candidate alike, and CUPTI,
    where it is there, saw no longer kernels than the events did.

    A side for which the host's clock was not taken fails it (design D7).
    """
    numbers: dict[str, float] = {"tolerance": TOLERANCE, "launch_gap_us": LAUNCH_GAP_US}
    problems = []
    for comparison in comparisons:
        for name, side in (("baseline", comparison.baseline), ("candidate", comparison.candidate)):
            problem = _disagreement(side, numbers, f"{name}_{comparison.workload}")
            if problem is not None:
                problems.append(f"{name} on {comparison.workload}: {problem}")
    if not comparisons:
        problems.append("nothing was timed")
    agree = "host clock and CUDA events agree on every side"
    return Gate(
        name="clocks",
        passed=not problems,
        summary=problems[0] if problems else agree,
        numbers=numbers,
    )


def _disagreement(side: Measurement, numbers: dict[str, float], key: str) -> str | None:
    timing = side.timing
    if timing is None or timing.host_slope_us is None or not timing.warm_us:
        return "the host's clock was not taken"
    by_events = statistics.median(timing.warm_us)
    numbers |= {f"events_us_{key}": by_events, f"host_us_{key}": timing.host_slope_us}
    if abs(timing.host_slope_us - by_events) > TOLERANCE * by_events + LAUNCH_GAP_US:
        return f"{by_events:.1f} us by events, {timing.host_slope_us:.1f} us by the host's clock"
    if not timing.cupti_us:
        return None
    kernels = numbers[f"cupti_us_{key}"] = statistics.median(timing.cupti_us)
    if kernels > (1 + TOLERANCE) * side.median_us + LAUNCH_GAP_US:
        return f"{side.median_us:.1f} us by events, {kernels:.1f} us by CUPTI's records"
    return None
