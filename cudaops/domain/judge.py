"""The one place where a candidate is accepted: pure, and in a process that never ran it.

How sure a median is: intervals that hold for noise of any shape, without a random number.
Two bounds are computed for the median of paired log ratios, and the more careful one is taken.
The percentile bootstrap of the median, in closed form instead of by resampling: the median of n
draws with replacement is at most the k-th smallest value with the probability that at least half
of the draws fall among the k smallest. Source: Efron, Bootstrap methods: another look at the
jackknife (1979), section 3. And the order statistic whose coverage is exact whatever the noise
is, from the binomial distribution of the number of samples below the true median. Source: David
and Nagaraja, Order Statistics, section 7.1. In the far tails, where many candidates push us, the
first alone would be too narrow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from cudaops.domain.execution import MEASURED
from cudaops.domain.judgement import Comparison, Gate, GateName, IsolationLevel, Judgement, Policy


class ConfidenceInterval(NamedTuple):
    """Bounds of a median; infinite where there are too few samples for the level."""

    low: float
    high: float


def median_interval(values: Sequence[float], tail: float) -> ConfidenceInterval:
    """Bounds that the true median lies beyond with at most probability `tail` on either side.

    Args:
        values: Independent samples, at least one.
        tail: 0 < tail < 0.5.
    """
    ordered = sorted(values)
    place = _upper_place(len(ordered), tail)
    if place is None:
        return ConfidenceInterval(-math.inf, math.inf)
    return ConfidenceInterval(ordered[len(ordered) - place], ordered[place - 1])


def spent(tail: float, before: int) -> float:
    """What of the error probability `tail` the next decision may use after `before` others.

    tail / (i (i + 1)) for the i-th: however many follow, the sum stays below `tail`. So nobody
    has to say beforehand how many candidates there will be.
    """
    turn = before + 1
    return tail / (turn * (turn + 1))


@functools.lru_cache(maxsize=1024)
def _upper_place(count: int, tail: float) -> int | None:
    """1-based place, in order of size, of the sample that bounds the median from above."""
    middle = count // 2 + 1
    for place in range(middle, count + 1):
        sure = _at_most(count, place - 1, 0.5) >= 1.0 - tail
        if sure and 1.0 - _at_most(count, middle - 1, place / count) >= 1.0 - tail:
            return place
    return None


def _at_most(count: int, successes: int, chance: float) -> float:
    """P(X <= successes) of a binomial variable."""
    if chance >= 1.0:
        return 1.0 if successes >= count else 0.0
    odds, miss = math.log(chance), math.log1p(-chance)
    return math.fsum(
        math.exp(_log_choose(count, n) + n * odds + (count - n) * miss)
        for n in range(successes + 1)
    )


def _log_choose(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


REQUIRED_GATES: tuple[GateName, ...] = (
    "hygiene",
    "preprocessed",
    "compile",
    "object",
    "checker",
    "correctness_captured",
    "correctness_perturbed",
    "correctness_exact",
    "unchanged_inputs",
    "correctness_domain",
    "repeat",
    "physical_floor",
    "isolation",
)
"""Gates without which nothing is accepted; one that is missing counts as failed."""

REQUIRED_MEASURED_GATES: tuple[GateName, ...] = (
    *REQUIRED_GATES,
    "timed_outputs",
    "clocks",
    "whole_program",
)
"""Of what was measured on a GPU: what the timed launches wrote, a second clock and the author's
whole program must agree too."""

TRITON_REQUIRED: tuple[GateName, ...] = (
    "hygiene", "compile", "checker", "correctness_captured", "correctness_exact",
    "correctness_perturbed", "repeat", "unchanged_inputs", "correctness_domain", "isolation",
)  # fmt: skip
TRITON_REQUIRED_MEASURED: tuple[GateName, ...] = (
    *TRITON_REQUIRED,
    "timed_outputs",
    "clocks",
    "whole_program",
)
"""Of a Triton kernel, which is neither preprocessed nor an object of nvcc's."""

MIN_MEASURED_SAMPLES = 10
"""Fewer pairs give no interval worth the name; a measured time then cannot be accepted."""

MEASURABLE_SPEEDUP = 1.02
"""No measured time is accepted below this, whatever the bar: two builds of one kernel differ by up
to 2 %, which is no gain. It also keeps two identical kernels from being accepted at a bar of 1,
where the interval alone would let some of them through."""


class Speedup(NamedTuple):
    """Baseline time over candidate time, of all timed launches together."""

    value: float
    low: float | None
    """None for modelled times of blocks that do alike: see `Measurement.sampled_us`."""
    high: float | None


def judge(
    gates: Sequence[Gate],
    comparisons: Sequence[Comparison],
    policy: Policy,
    *,
    fresh: Sequence[Comparison] = (),
    judged_before: int = 0,
    released: bool = False,
    isolation: IsolationLevel | None = None,
    referenced: bool = False,
    required: Sequence[GateName] | None = None,
) -> Judgement:
    """Decide about one candidate from its gates and its times.

    Rejected: a gate failed or is missing, no time was measured, or the speedup does not clear the
    bar. Provisional: all gates passed and the lower end of the speedup clears it, by times that
    were not measured on a GPU (such a time never accepts). Accepted: the measured speedup clears
    it, and then the lower end of the interval of a fresh measurement, which no choice has favoured,
    does too.

    Args:
        fresh: The same comparisons, measured again when every other gate had passed.
        judged_before: Candidates that were put to this decision before; the more, the surer the
            interval must be.
        released: Treat quarantined gates as passed, to see what a person would release.
        isolation: How well the candidate was confined, for the record.
        referenced: A reference of the author's says what is right: its gate is needed as well.
        required: Gates without which nothing is accepted, of what is no CUDA C++ (a Triton kernel
            is neither preprocessed nor an object of nvcc's); None: those above.
    """
    if (stopped := _stopped(gates, released)) is not None:
        return _rejected(stopped, gates, isolation)
    if not comparisons:
        missing = _missing_gate(gates, required or REQUIRED_GATES) or "no time was measured"
        return _rejected(missing, gates, isolation)
    pairs = [(c.baseline.source, c.candidate.source) for c in (*comparisons, *fresh)]
    sources = {source for pair in pairs for source in pair}
    measured = sources <= MEASURED
    # Of one comparison: short launches of one workload may be timed by CUPTI, long ones by events.
    mixed = any(one != other for one, other in pairs) or (not measured and len(sources) > 1)
    if mixed:
        text = f"baseline and candidate were timed by different clocks: {sorted(sources)}"
        return _rejected(text, gates, isolation)
    speedup = speedup_of(comparisons, policy, measured, judged_before)
    decided = [_speedup_gate("speedup", speedup, comparisons, policy, measured)]
    # A candidate that is too slow needs no further gate; one that is fast needs every one.
    if decided[0].passed:
        needed = (*(required or _required(measured, referenced)),)
        needed = (*needed, "review") if policy.review else needed
        missing_gate = _missing_gate(gates, needed)
        if missing_gate is None and measured and not fresh:
            missing_gate = "remeasured: this gate did not run"
        if missing_gate is not None:
            return _rejected(missing_gate, gates, isolation)
        if measured:
            speedup = speedup_of(fresh, policy, measured, judged_before)
            decided.append(_speedup_gate("remeasured", speedup, fresh, policy, measured))
    passed = all(gate.passed for gate in decided)
    reason = decided[-1].summary
    if not passed and _missing_gate(gates, ("correctness_captured",)):
        reason += "; its correctness was not checked"
    return Judgement(
        outcome="rejected" if not passed else "accepted" if measured else "provisional",
        reason=reason,
        gates=(*gates, *decided),
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high if math.isfinite(speedup.high or 0.0) else None,
        time_source=comparisons[0].candidate.source,
        isolation=isolation,
    )


def _stopped(gates: Sequence[Gate], released: bool) -> str | None:
    """The gate that ends it; what a person cannot release counts first. None: no gate does."""
    released = released or any(g.name == "review" and g.passed for g in gates)
    stopped = [g for g in gates if not g.passed and not (g.quarantined and released)]
    if not stopped:
        return None
    worst = min(stopped, key=lambda g: g.quarantined)
    reason = f"{worst.name}: {worst.summary}"
    if worst.quarantined:
        reason += " (quarantined: `--review` asks you to decide)"
    return reason


def _required(measured: bool, referenced: bool) -> tuple[GateName, ...]:
    gates = REQUIRED_MEASURED_GATES if measured else REQUIRED_GATES
    return (*gates, "reference") if referenced else gates


def _rejected(reason: str, gates: Sequence[Gate], isolation: IsolationLevel | None) -> Judgement:
    return Judgement(outcome="rejected", reason=reason, gates=tuple(gates), isolation=isolation)


def _missing_gate(gates: Sequence[Gate], required: Sequence[GateName]) -> str | None:
    present = {gate.name for gate in gates}
    missing = next((name for name in required if name not in present), None)
    return None if missing is None else f"{missing}: this gate did not run"


def _weighted(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """Speedup of the whole from per-workload time ratios candidate/baseline."""
    part = sum(w * r for w, r in zip(weights, ratios, strict=True))
    return sum(weights) / part if part > 0 else math.inf


def mean_us(times: Sequence[tuple[float, float]]) -> float:
    """Time of a launch, mean over the launches that the workloads stand for.

    Args:
        times: The author's time in us and its share of the author's time, a workload each; at
            least one, with a share above 0.
    """
    return sum(share for _, share in times) / sum(share / us for us, share in times)


def mean_times_us(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """Baseline and candidate time of a launch, mean over all timed launches: their ratio is
    `weighted_speedup`. At least one comparison."""
    before = mean_us([(c.baseline.median_us, c.weight) for c in comparisons])
    return before, before / weighted_speedup(comparisons)


def weighted_speedup(comparisons: Sequence[Comparison]) -> float:
    """The author's time over the candidate's, by medians, of all timed launches together."""
    ratios = [c.candidate.median_us / c.baseline.median_us for c in comparisons]
    return _weighted(ratios, [c.weight for c in comparisons])


def speedup_of(
    comparisons: Sequence[Comparison], policy: Policy, measured: bool, judged_before: int = 0
) -> Speedup:
    """What is compared with the bar: by medians where times are modelled, by pairs of samples where
    they are measured."""
    if not measured:
        return _modelled_speedup(comparisons)
    return measured_speedup(comparisons, policy, judged_before)


def _modelled_speedup(comparisons: Sequence[Comparison]) -> Speedup:
    """With the ends that come of the sampled blocks of both sides."""
    value = weighted_speedup(comparisons)
    if not any(c.baseline.sampled_us or c.candidate.sampled_us for c in comparisons):
        return Speedup(value, None, None)
    weights = [c.weight for c in comparisons]
    least, most = (
        _weighted(
            [c.candidate.ends_us[1 - end] / c.baseline.ends_us[end] for c in comparisons], weights
        )
        for end in (0, 1)
    )
    return Speedup(value, least, most)


def measured_speedup(
    comparisons: Sequence[Comparison], policy: Policy, judged_before: int = 0
) -> Speedup:
    """Median paired ratio with its interval, at `policy.confidence` for the run as a whole.

    Samples are paired by position: the runner interleaves baseline and candidate, so drift of the
    clock or the temperature falls on both members of a pair. What error the confidence leaves is
    shared by all candidates (`spent`), and by the workloads of one.
    """
    pairs = [_log_ratios(c) for c in comparisons]
    weights = [c.weight for c in comparisons]
    value = _weighted([math.exp(median(p)) for p in pairs], weights)
    if min(len(p) for p in pairs) < MIN_MEASURED_SAMPLES:
        return Speedup(value, 0.0, math.inf)
    tail = spent((1.0 - policy.confidence) / 2.0, judged_before) / len(pairs)
    intervals = [median_interval(p, tail) for p in pairs]
    low = _weighted([math.exp(i.high) for i in intervals], weights)
    high = _weighted([math.exp(i.low) for i in intervals], weights)
    return Speedup(value, low, high)


def is_left_open(comparisons: Sequence[Comparison], policy: Policy, judged_before: int) -> bool:
    """Whether the bar lies between what was measured and what is certain of it, so that more
    samples may decide."""
    found = measured_speedup(comparisons, policy, judged_before)
    return (found.low or 0.0) < _bar(policy) <= found.value


def _bar(policy: Policy) -> float:
    """Of a measured time."""
    return max(policy.min_speedup, MEASURABLE_SPEEDUP)


def _log_ratios(comparison: Comparison) -> list[float]:
    """Logarithm of candidate over baseline time, pair by pair."""
    pairs = zip(comparison.candidate.samples_us, comparison.baseline.samples_us, strict=False)
    return [math.log(candidate / baseline) for candidate, baseline in pairs]


def _speedup_gate(
    name: GateName,
    speedup: Speedup,
    comparisons: Sequence[Comparison],
    policy: Policy,
    measured: bool,
) -> Gate:
    decisive = speedup.value
    if speedup.low is not None and (name == "remeasured" or not measured):
        decisive = speedup.low
    bar = _bar(policy) if measured else policy.min_speedup
    passed = math.isfinite(decisive) and decisive >= bar
    device = comparisons[0].candidate.device
    text = f"{speedup.value:.2f}x, threshold {bar:.2f}x"
    if not measured:
        text += comparisons[0].candidate.provenance
        if speedup.low is not None and speedup.high is not None:
            text += f", {speedup.low:.2f}-{speedup.high:.2f}x by the sampled blocks (95 %)"
    elif speedup.low is not None and speedup.high is not None:
        interval = f"{policy.confidence:.0%} interval {speedup.low:.2f}-{speedup.high:.2f}x"
        if speedup.low == 0.0 or math.isinf(speedup.high):
            interval = f"too few samples for a {policy.confidence:.0%} interval"
        text += f" ({interval}, {device})"
    numbers = {"speedup": speedup.value, "min_speedup": bar}
    if speedup.low is not None and speedup.high is not None:
        numbers["speedup_low"] = speedup.low
        if measured:
            numbers["confidence"] = policy.confidence
    for comparison in comparisons:
        numbers[f"baseline_us_{comparison.workload}"] = comparison.baseline.median_us
        numbers[f"candidate_us_{comparison.workload}"] = comparison.candidate.median_us
    return Gate(name=name, passed=passed, summary=text, numbers=numbers)
