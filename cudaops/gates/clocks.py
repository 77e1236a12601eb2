"""Other clocks beside the one that decides: what only one clock says has not been measured.

Launches are timed by CUDA events. Where a launch is short, what stands between two of them is a
good part of that, and the kernels' own durations by CUPTI decide instead: then events and the
host's clock must be those durations and what a kernel that does nothing takes, launched in the same
way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cudaops.domain.execution import Measurement, Timing
from cudaops.domain.judgement import Comparison, Gate

TOLERANCE = 0.15
"""Share by which the host clock's time of a launch may differ from the events' median. Chosen, not
measured: clocks and temperature move a few percent between the two, and work that is hidden from
the events (verification.md, D1 to D7) moves the host's time by a multiple."""
LAUNCH_GAP_US = 3.0
"""Time between two launches that the host sees and events do not, where it was not measured.
Source: launch overhead of one kernel in a stream, a few microseconds (CUDA C++ Best Practices
Guide, on launch latency)."""
LEAST_GAP_US = 1.0
"""What is left of it where a sample repeats its launch, so that events see the gaps too; and what a
launch may take beyond one of a kernel that does nothing. Chosen: the host's clock over 64 launches
is good to some tenths of a microsecond a launch, and parameters and code are fetched beside."""
GAP_FACTOR = 1.25
"""How much more a launch may take than one of a kernel that does nothing. Chosen: the larger grid
and the parameters of a real one."""
RESOLUTION_US = 0.5
"""Of an event pair. Source: CUDA Runtime API, cudaEventElapsedTime."""

Numbers = dict[str, float]


class _Side(NamedTuple):
    """Baseline or candidate on one workload."""

    measured: Measurement
    timing: Timing
    key: str

    @property
    def short(self) -> bool:
        """Whether its samples are its kernels' own durations."""
        return bool(self.timing.launched_us)

    def gaps(self, measured_us: float | None, otherwise_us: float) -> float:
        """What the launches of a plan may take beyond their kernels."""
        if measured_us is None:
            return otherwise_us
        launches = max(1, self.timing.launches_a_plan)
        return max(otherwise_us, launches * (GAP_FACTOR * measured_us + LEAST_GAP_US))


def clocks_gate(comparisons: Sequence[Comparison]) -> Gate:
    """Whether every clock tells the same of baseline and candidate alike.

    - Every sample is a time: finite, above zero; in the middle longer than an event pair resolves.
    - The host's clock agrees with the events, both ways. A side for which it was not taken
      fails. Where a warm sample repeats its launch, the gap between launches is in both.
    - A launch on a cold L2, which no host clock is asked about, is no quicker than a warm one.
    - CUPTI, where it recorded one of the two sides, recorded the planned kernels of both, no longer
      than the events and, but for the gaps between them, no shorter.

    What a gap is was measured with a kernel that does nothing, in the same samples; where there is
    none it is a few microseconds. On a GPU that others use as well, host and events may exceed what
    they should be, by as much on both sides: no candidate can slow its baseline down by that.
    """
    numbers: Numbers = {
        "tolerance": TOLERANCE,
        "launch_gap_us": LAUNCH_GAP_US,
        "resolution_us": RESOLUTION_US,
    }
    problems = [] if comparisons else ["nothing was timed"]
    told: list[str] = []
    for comparison in comparisons:
        pair = (("baseline", comparison.baseline), ("candidate", comparison.candidate))
        traced = any(side.timing and side.timing.cupti_us for _, side in pair)
        busy = min(_excess(side) for _, side in pair)
        for name, side in pair:
            key = f"{name}_{comparison.workload}"
            problem = _disagreement(side, numbers, key, traced=traced, busy=busy)
            if problem is not None:
                problems.append(f"{name} on {comparison.workload}: {problem}")
        told += _told(comparison, busy)
        numbers[f"busy_factor_{comparison.workload}"] = busy
    agree = "host clock and CUDA events agree on every side"
    return Gate(
        name="clocks",
        passed=not problems,
        summary=problems[0] if problems else "; ".join((agree, *told)),
        numbers=numbers,
    )


def _told(comparison: Comparison, busy: float) -> list[str]:
    """Which time decides where there are two, and what was seen of others on the GPU."""
    baseline, candidate = comparison.baseline, comparison.candidate
    found = []
    launched = baseline.back_to_back_us, candidate.back_to_back_us
    if candidate.timing and candidate.timing.launched_us and None not in launched:
        own = f"{baseline.median_us:.1f} to {candidate.median_us:.1f} us by CUPTI"
        found.append(
            f"{comparison.workload} is judged by its kernels' own time ({own}); as the program "
            f"launches them they take {launched[0]:.1f} and {launched[1]:.1f} us"
        )
    if busy > 1 + TOLERANCE:
        found.append(f"others use the GPU: both sides take {busy:.1f} times as long by the host")
    return found


def _excess(side: Measurement) -> float:
    """The host's time of a launch over what events and gaps account for; 1 where it is no more."""
    timing = side.timing
    if timing is None or timing.host_slope_us is None or not timing.warm_us:
        return 1.0
    if timing.host_gap_us is None or not math.isfinite(timing.host_slope_us):
        return 1.0
    launches = max(1, timing.launches_a_plan)
    usual = statistics.median(timing.warm_us) + launches * timing.host_gap_us
    return max(1.0, timing.host_slope_us / usual) if usual > 0 else 1.0


def _disagreement(
    measured: Measurement, numbers: Numbers, key: str, *, traced: bool, busy: float
) -> str | None:
    timing = measured.timing
    if timing is None or timing.host_slope_us is None or not timing.warm_us:
        return "the host's clock was not taken"
    side = _Side(measured, timing, key)
    rules: tuple[Callable[[], str | None], ...] = (
        lambda: _impossible(side),
        lambda: _by_host(side, numbers, busy),
        lambda: _by_regime(side, numbers),
        lambda: _by_cupti(side, numbers, traced=traced),
    )
    return next((problem for rule in rules if (problem := rule()) is not None), None)


def _impossible(side: _Side) -> str | None:
    timing = side.timing
    samples = (*side.measured.samples_us, *timing.launched_us)
    every = (*samples, *timing.warm_us, *timing.cold_us, *timing.cupti_us)
    bad = next((us for us in every if not (math.isfinite(us) and us > 0)), None)
    if bad is not None:
        return f"a sample of {bad:g} us, which is no time"
    whole = side.measured.events_us * timing.launches_a_sample
    if whole - (timing.event_overhead_us or 0.0) < RESOLUTION_US:
        return f"a sample takes {whole:.2f} us, no longer than events resolve"
    return None


def _by_host(side: _Side, numbers: Numbers, busy: float) -> str | None:
    timing = side.timing
    assert timing.host_slope_us is not None
    by_events = statistics.median(timing.warm_us)
    numbers |= {f"events_us_{side.key}": by_events, f"host_us_{side.key}": timing.host_slope_us}
    if timing.host_gap_us is not None:
        numbers[f"host_gap_us_{side.key}"] = timing.host_gap_us
    repeated = timing.launches_a_sample if timing.regime == "warm" else 1
    usual = max(LAUNCH_GAP_US / repeated, LEAST_GAP_US)
    gaps = side.gaps(timing.host_gap_us, usual)
    # What events hold of the launching is no part of what the host must see again.
    least = (1 - TOLERANCE) * by_events - max(usual, side.gaps(timing.warm_gap_us, usual))
    if not least <= timing.host_slope_us <= busy * ((1 + TOLERANCE) * by_events + gaps):
        return f"{by_events:.1f} us by events, {timing.host_slope_us:.1f} us by the host's clock"
    return None


def _by_regime(side: _Side, numbers: Numbers) -> str | None:
    timing = side.timing
    if not timing.cold_us:
        return None
    cold, warm = statistics.median(timing.cold_us), statistics.median(timing.warm_us)
    numbers[f"cold_us_{side.key}"] = cold
    if cold < (1 - TOLERANCE) * warm - LAUNCH_GAP_US:
        return f"{cold:.1f} us on a cold L2, {warm:.1f} us on a warm one"
    return None


def _by_cupti(side: _Side, numbers: Numbers, *, traced: bool) -> str | None:
    timing = side.timing
    if not timing.cupti_us:
        why = timing.cupti_problem or "it recorded nothing"
        return f"CUPTI gives no durations of this side alone: {why}" if traced else None
    by_events = side.measured.events_us
    kernels = numbers[f"cupti_us_{side.key}"] = statistics.median(timing.cupti_us)
    if kernels > (1 + TOLERANCE) * by_events + LAUNCH_GAP_US:
        return f"{by_events:.1f} us by events, {kernels:.1f} us by CUPTI's records"
    usual = LAUNCH_GAP_US * max(1, timing.launches_a_plan) + (timing.event_overhead_us or 0.0)
    gaps = side.gaps(timing.gap_us, usual)
    if timing.gap_us is not None:
        numbers |= {f"gap_us_{side.key}": timing.gap_us, f"launched_us_{side.key}": by_events}
    if by_events > (1 + TOLERANCE) * kernels + gaps:
        return f"{by_events:.1f} us by events, only {kernels:.1f} us by CUPTI's records"
    return None
