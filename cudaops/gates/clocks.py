"""Other clocks beside the one that decides: what only one clock says has not been measured.

Launches are timed by CUDA events. Where a launch is short, what stands between two of them is a
good part of that, and the kernels' own durations by CUPTI decide instead: then events and the
host's clock must be those durations and what a kernel that does nothing takes, launched in the same
way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from cudaops.domain.execution import STEADY_US, Measurement, Timing
from cudaops.domain.judgement import Comparison, Gate

TOLERANCE = 0.15
"""Share by which the host clock's time of a launch may differ from the events' median. Chosen, not
measured: clocks and temperature move a few percent between the two, and work that is hidden from
the events (docs/verification.md) moves the host's time by a multiple."""
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
MOST_SHARED = 2.5
"""How many times as long as they should both sides may take by the host's clock. Chosen: another
process that has every second slice of the GPU doubles the time; where it is more, too much that a
candidate hides would fit into it."""
RESOLUTION_US = 0.5
"""Of an event pair. Source: CUDA Runtime API, cudaEventElapsedTime."""

NOT_TAKEN = "the host's clock was not taken"

Numbers = dict[str, float]


class _Side(NamedTuple):
    """Baseline or candidate on one workload."""

    measured: Measurement
    timing: Timing
    key: str


class _Bounds(NamedTuple):
    """What the host's clock may say of a launch, by what the events say."""

    least: float
    most: float


class _Problem(NamedTuple):
    """Why one side's clocks do not agree, or cannot be asked."""

    text: str
    of_the_machine: bool = False
    """Others use the GPU: nothing is said of the candidate."""
    of_baseline: bool = False
    slower: bool = False
    """What does not agree makes the side look slower than another clock says, or says nothing at
    all: a candidate gains nothing by it."""


class _Others(NamedTuple):
    """What was seen of others on the GPU, by what no candidate has a part in: the baseline, and the
    kernel that does nothing."""

    factor: float
    """How many times as long as events and gaps say a side may take by the host's clock."""
    seen: str
    """Empty where nothing was seen of others."""


def clocks_gate(comparisons: Sequence[Comparison]) -> Gate:
    """Whether every clock tells the same of baseline and candidate alike.

    - Every sample is a time: finite, above zero; in the middle longer than an event pair resolves.
    - The host's clock agrees with the events, both ways. A side for which it was not taken
      fails. Where a warm sample repeats its launch, the gap between launches is in both.
    - A launch on a cold L2, which no host clock is asked about, is no quicker than a warm one.
    - CUPTI, where it recorded one of the two sides, recorded the planned kernels of both, no longer
      than the events and, but for the gaps between them, no shorter.

    What a gap is was measured with a kernel that does nothing, in the same samples; where there is
    none it is a few microseconds. On a GPU that others use as well, the host may exceed what events
    say, by as much on both sides and up to `MOST_SHARED`: no candidate can slow its baseline down.

    A baseline that is slower by the host's clock than by the events makes no candidate look better:
    it is believed where CUPTI confirms the events. A candidate that is slower so hides work, unless
    others were seen on the GPU by what it has no part in: then it was not measured, and is
    quarantined. That the samples of a candidate alone do not agree is no sign of others.
    """
    numbers: Numbers = {
        "tolerance": TOLERANCE,
        "launch_gap_us": LAUNCH_GAP_US,
        "resolution_us": RESOLUTION_US,
    }
    problems = _all_problems(comparisons, numbers)
    told: list[str] = []
    for comparison in comparisons:
        others = _others(comparison)
        told += _told(comparison, others)
        numbers[f"busy_factor_{comparison.workload}"] = others.factor
    # What is wrong with a side comes before what could not be measured.
    worst = min(problems, key=lambda p: p.of_the_machine, default=None)
    agree = "host clock and CUDA events agree on every side"
    return Gate(
        name="clocks",
        passed=worst is None,
        quarantined=worst is not None and worst.of_the_machine,
        summary=worst.text if worst else "; ".join((agree, *told)),
        numbers=numbers,
    )


def is_disturbed(comparisons: Sequence[Comparison]) -> bool:
    """Whether the clocks disagree where no candidate has a part in it or gains by it, so that
    another measurement may tell more: on the baseline, because others use the GPU, or where all
    that is wrong with the candidate makes it look slower, which others do whose work falls into
    its samples alone. The measurement itself stays refused."""
    problems = _all_problems(comparisons, {})
    if any(p.of_the_machine or p.of_baseline for p in problems):
        return True
    return bool(problems) and all(p.slower for p in problems)


def _all_problems(comparisons: Sequence[Comparison], numbers: Numbers) -> list[_Problem]:
    problems = [] if comparisons else [_Problem("nothing was timed")]
    for comparison in comparisons:
        others = _others(comparison)
        for name, side in (("baseline", comparison.baseline), ("candidate", comparison.candidate)):
            found = _problems(comparison, side, numbers, f"{name}_{comparison.workload}", others)
            where = f"{name} on {comparison.workload}"
            problems += [
                p._replace(text=f"{where}: {p.text}", of_baseline=name == "baseline") for p in found
            ]
    return problems


def _told(comparison: Comparison, others: _Others) -> list[str]:
    """Which time decides where there are two, and what was seen of others on the GPU."""
    baseline, candidate = comparison.baseline, comparison.candidate
    found = []
    if candidate.timing and candidate.timing.launched_us:
        own = f"{baseline.median_us:.1f} to {candidate.median_us:.1f} us by CUPTI"
        told = f"{comparison.workload} is judged by its kernels' own time ({own})"
        before, after = baseline.back_to_back_us, candidate.back_to_back_us
        if before is not None and after is not None:
            told += f"; as the program launches them they take {before:.1f} and {after:.1f} us"
        found.append(told)
    return [*found, f"other processes use the GPU: {others.seen}"] if others.seen else found


def _others(comparison: Comparison) -> _Others:
    both = min(_excess(side) for side in (comparison.baseline, comparison.candidate))
    factor = min(both, MOST_SHARED)
    if both > 1 + TOLERANCE:
        return _Others(factor, f"both sides take {both:.1f} times as long by the host")
    timing = comparison.baseline.timing
    if timing is None or not timing.warm_us:
        return _Others(factor, "")
    if timing.host_gap_us is not None and _steady_gap(timing) is None:
        shown = _by_host_clock(timing.host_gap_us, timing.host_gap_error_us)
        return _Others(factor, f"a kernel that does nothing takes {shown}")
    slow = timing.host_slope_us is not None and timing.host_slope_us > _bounds(timing).most
    if slow or not timing.host_is_steady:
        return _Others(factor, f"the baseline takes {_both_clocks(timing)}")
    return _Others(factor, "")


def _steady_gap(timing: Timing) -> float | None:
    """What a kernel that does nothing takes by the host's clock, where that can be believed."""
    return timing.host_gap_us if (timing.host_gap_error_us or 0.0) <= STEADY_US else None


def _excess(side: Measurement) -> float:
    """The host's time of a launch over what events and gaps account for; 1 where it is no more."""
    timing = side.timing
    if timing is None or timing.host_slope_us is None or not timing.warm_us:
        return 1.0
    gap = _steady_gap(timing)
    if gap is None or not timing.host_is_steady or not math.isfinite(timing.host_slope_us):
        return 1.0
    usual = statistics.median(timing.warm_us) + max(1, timing.launches_a_plan) * gap
    return max(1.0, timing.host_slope_us / usual) if usual > 0 else 1.0


def _problems(
    comparison: Comparison, measured: Measurement, numbers: Numbers, key: str, others: _Others
) -> list[_Problem]:
    timing = measured.timing
    if timing is None or not timing.warm_us:
        return [_Problem(NOT_TAKEN)]
    side = _Side(measured, timing, key)
    pair = (comparison.baseline, comparison.candidate)
    traced = any(one.timing and one.timing.cupti_us for one in pair)
    if (impossible := _impossible(side)) is not None:
        return [_Problem(impossible)]
    of_baseline = measured is comparison.baseline
    by_host = _by_host(side, numbers, others, of_baseline=of_baseline)
    found = (by_host, _by_regime(side, numbers), _by_cupti(side, numbers, traced=traced))
    return [problem for problem in found if problem is not None]


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


def _by_host(
    side: _Side, numbers: Numbers, others: _Others, *, of_baseline: bool
) -> _Problem | None:
    timing, host_us, bounds = side.timing, side.timing.host_slope_us, _bounds(side.timing)
    _note_host(side, numbers)
    steady = timing.host_is_steady
    if host_us is None and steady:
        return _Problem(NOT_TAKEN)
    disagree = _Problem(_both_clocks(timing))
    text = f"not measured, other processes use the GPU ({others.seen}): run again on an idle one"
    not_measured = _Problem(text, of_the_machine=True)
    if host_us is not None and not math.isfinite(host_us):
        return disagree
    if steady and host_us is not None and bounds.least <= host_us <= others.factor * bounds.most:
        return None
    if of_baseline:
        if steady and host_us is not None and host_us < bounds.least:
            return disagree
        return None if timing.cupti_us else not_measured
    if others.seen:
        return not_measured
    return disagree._replace(slower=host_us is not None and host_us <= bounds.most)


def _note_host(side: _Side, numbers: Numbers) -> None:
    timing = side.timing
    found = {
        "events_us": statistics.median(timing.warm_us),
        "host_us": timing.host_slope_us,
        "host_error_us": timing.host_error_us,
        "host_gap_us": timing.host_gap_us,
        "host_gap_error_us": timing.host_gap_error_us,
    }
    numbers |= {f"{name}_{side.key}": us for name, us in found.items() if us is not None}


def _bounds(timing: Timing) -> _Bounds:
    by_events = statistics.median(timing.warm_us)
    repeated = timing.launches_a_sample if timing.regime == "warm" else 1
    usual = max(LAUNCH_GAP_US / repeated, LEAST_GAP_US)
    gaps = _gaps(timing, _steady_gap(timing), usual)
    # What events hold of the launching is no part of what the host must see again.
    least = (1 - TOLERANCE) * by_events - max(usual, _gaps(timing, timing.warm_gap_us, usual))
    return _Bounds(least, (1 + TOLERANCE) * by_events + gaps)


def _gaps(timing: Timing, measured_us: float | None, otherwise_us: float) -> float:
    """What the launches of a plan may take beyond their kernels."""
    if measured_us is None:
        return otherwise_us
    launches = max(1, timing.launches_a_plan)
    return max(otherwise_us, launches * (GAP_FACTOR * measured_us + LEAST_GAP_US))


def _both_clocks(timing: Timing) -> str:
    by_host = _by_host_clock(timing.host_slope_us, timing.host_error_us)
    return f"{statistics.median(timing.warm_us):.1f} us by events, {by_host}"


def _by_host_clock(us: float | None, error_us: float | None) -> str:
    shown = "nothing to go by" if us is None else f"{us:.1f} us"
    give_or_take = f" (give or take {error_us:.1f} us)" if (error_us or 0.0) >= STEADY_US else ""
    return f"{shown} by the host's clock{give_or_take}"


def _by_regime(side: _Side, numbers: Numbers) -> _Problem | None:
    timing = side.timing
    if not timing.cold_us:
        return None
    cold, warm = statistics.median(timing.cold_us), statistics.median(timing.warm_us)
    numbers[f"cold_us_{side.key}"] = cold
    if cold < (1 - TOLERANCE) * warm - LAUNCH_GAP_US:
        text = f"{cold:.1f} us on a cold L2, {warm:.1f} us on a warm one"
        return _Problem(text, slower=side.measured.median_us >= warm)
    return None


def _by_cupti(side: _Side, numbers: Numbers, *, traced: bool) -> _Problem | None:
    timing = side.timing
    if not timing.cupti_us:
        why = timing.cupti_problem or "it recorded nothing"
        text = f"CUPTI gives no durations of this side alone: {why}"
        return _Problem(text) if traced else None
    by_events = side.measured.events_us
    kernels = numbers[f"cupti_us_{side.key}"] = statistics.median(timing.cupti_us)
    if kernels > (1 + TOLERANCE) * by_events + LAUNCH_GAP_US:
        return _Problem(f"{by_events:.1f} us by events, {kernels:.1f} us by CUPTI's records")
    usual = LAUNCH_GAP_US * max(1, timing.launches_a_plan) + (timing.event_overhead_us or 0.0)
    gaps = _gaps(timing, timing.gap_us, usual)
    if timing.gap_us is not None:
        numbers |= {f"gap_us_{side.key}": timing.gap_us, f"launched_us_{side.key}": by_events}
    if by_events > (1 + TOLERANCE) * kernels + gaps:
        text = f"{by_events:.1f} us by events, only {kernels:.1f} us by CUPTI's records"
        return _Problem(text, slower=side.measured.median_us >= by_events)
    return None
