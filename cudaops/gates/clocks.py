"""Other clocks beside the CUDA events: what only events say has not been measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from cudaops.domain.execution import Measurement, Timing
from cudaops.domain.judgement import Comparison, Gate

TOLERANCE = 0.15
"""Share by which the host clock's time of a launch may differ from the events' median. Chosen, not
measured: clocks and temperature move a few percent between the two, and work that is hidden from
the events (verification.md, D1 to D7) moves the host's time by a multiple."""
LAUNCH_GAP_US = 3.0
"""Time between two launches that the host sees and events do not. Source: launch overhead of one
kernel in a stream, a few microseconds (CUDA C++ Best Practices Guide, on launch latency)."""
LEAST_GAP_US = 1.0
"""What is left of it where a sample repeats its launch, so that events see the gaps too. Chosen:
the host's clock over 64 launches is good to some tenths of a microsecond a launch."""
RESOLUTION_US = 0.5
"""Of an event pair. Source: CUDA Runtime API, cudaEventElapsedTime."""

Numbers = dict[str, float]


def clocks_gate(comparisons: Sequence[Comparison]) -> Gate:
    """Whether every clock tells the same of baseline and candidate alike.

    - Every sample is a time: finite, above zero; in the middle longer than an event pair resolves.
    - The host's clock agrees with the events, both ways. A side for which it was not taken
      fails. Where a warm sample repeats its launch, the gap between launches is in both.
    - A launch on a cold L2, which no host clock is asked about, is no quicker than a warm one.
    - CUPTI, where it recorded one of the two sides, recorded the planned kernels of both, no longer
      than the events and, but for the gaps between them, no shorter.
    """
    numbers: Numbers = {
        "tolerance": TOLERANCE,
        "launch_gap_us": LAUNCH_GAP_US,
        "resolution_us": RESOLUTION_US,
    }
    problems = [] if comparisons else ["nothing was timed"]
    for comparison in comparisons:
        pair = (("baseline", comparison.baseline), ("candidate", comparison.candidate))
        traced = any(side.timing and side.timing.cupti_us for _, side in pair)
        for name, side in pair:
            key = f"{name}_{comparison.workload}"
            problem = _disagreement(side, numbers, key, traced=traced)
            if problem is not None:
                problems.append(f"{name} on {comparison.workload}: {problem}")
    agree = "host clock and CUDA events agree on every side"
    return Gate(
        name="clocks",
        passed=not problems,
        summary=problems[0] if problems else agree,
        numbers=numbers,
    )


def _disagreement(side: Measurement, numbers: Numbers, key: str, *, traced: bool) -> str | None:
    timing = side.timing
    if timing is None or timing.host_slope_us is None or not timing.warm_us:
        return "the host's clock was not taken"
    rules: tuple[Callable[[], str | None], ...] = (
        lambda: _impossible(side, timing),
        lambda: _by_host(timing, numbers, key),
        lambda: _by_regime(timing, numbers, key),
        lambda: _by_cupti(side, timing, numbers, key, traced=traced),
    )
    return next((problem for rule in rules if (problem := rule()) is not None), None)


def _impossible(side: Measurement, timing: Timing) -> str | None:
    every = (*side.samples_us, *timing.warm_us, *timing.cold_us, *timing.cupti_us)
    bad = next((us for us in every if not (math.isfinite(us) and us > 0)), None)
    if bad is not None:
        return f"a sample of {bad:g} us, which is no time"
    whole = side.median_us * timing.launches_a_sample
    if whole - (timing.event_overhead_us or 0.0) < RESOLUTION_US:
        return f"a sample takes {whole:.2f} us, no longer than events resolve"
    return None


def _by_host(timing: Timing, numbers: Numbers, key: str) -> str | None:
    assert timing.host_slope_us is not None
    by_events = statistics.median(timing.warm_us)
    numbers |= {f"events_us_{key}": by_events, f"host_us_{key}": timing.host_slope_us}
    repeated = timing.launches_a_sample if timing.regime == "warm" else 1
    gap = max(LAUNCH_GAP_US / repeated, LEAST_GAP_US)
    if abs(timing.host_slope_us - by_events) > TOLERANCE * by_events + gap:
        return f"{by_events:.1f} us by events, {timing.host_slope_us:.1f} us by the host's clock"
    return None


def _by_regime(timing: Timing, numbers: Numbers, key: str) -> str | None:
    if not timing.cold_us:
        return None
    cold, warm = statistics.median(timing.cold_us), statistics.median(timing.warm_us)
    numbers[f"cold_us_{key}"] = cold
    if cold < (1 - TOLERANCE) * warm - LAUNCH_GAP_US:
        return f"{cold:.1f} us on a cold L2, {warm:.1f} us on a warm one"
    return None


def _by_cupti(
    side: Measurement, timing: Timing, numbers: Numbers, key: str, *, traced: bool
) -> str | None:
    if not timing.cupti_us:
        why = timing.cupti_problem or "it recorded nothing"
        return f"CUPTI gives no durations of this side alone: {why}" if traced else None
    kernels = numbers[f"cupti_us_{key}"] = statistics.median(timing.cupti_us)
    if kernels > (1 + TOLERANCE) * side.median_us + LAUNCH_GAP_US:
        return f"{side.median_us:.1f} us by events, {kernels:.1f} us by CUPTI's records"
    gaps = LAUNCH_GAP_US * max(1, timing.launches_a_plan) + (timing.event_overhead_us or 0.0)
    if side.median_us > (1 + TOLERANCE) * kernels + gaps:
        return f"{side.median_us:.1f} us by events, only {kernels:.1f} us by CUPTI's records"
    return None
