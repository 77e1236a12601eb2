"""The one place where a candidate is accepted: pure, and in a process that never ran it (D6)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from cudaops.domain.execution import MEASURED
from cudaops.domain.judgement import Comparison, Gate, GateName, Judgement, Policy

REQUIRED_GATES: tuple[GateName, ...] = (
    "hygiene",
    "compile",
    "checker",
    "correctness_captured",
    "correctness_perturbed",
    "correctness_exact",
    "unchanged_inputs",
    "repeat",
    "physical_floor",
)
"""Gates without which nothing is accepted; one that is missing counts as failed (design D7)."""

REQUIRED_MEASURED_GATES: tuple[GateName, ...] = (*REQUIRED_GATES, "clocks", "whole_program")
"""Of what was measured on a GPU: a second clock and the author's whole program must agree too."""

BOOTSTRAP_RESAMPLES = 4000
"""Enough for a 95 % percentile interval to settle in its second digit.
Source: Efron and Tibshirani, An Introduction to the Bootstrap, section 13.3 (1000 or more)."""

MIN_MEASURED_SAMPLES = 10
"""Fewer pairs give no interval worth the name; a measured time then cannot be accepted."""

MEASURABLE_SPEEDUP = 1.02
"""No measured time is accepted below this, whatever the bar: two builds of one kernel differ by up
to 2 %. Source: the no-gain threshold of seed document 001. It also keeps two identical kernels from
being accepted at a bar of 1, where a 95 % interval alone would let 2.5 % of them through."""


class Speedup(NamedTuple):
    """Baseline time over candidate time, weighted over workloads."""

    value: float
    low: float | None
    """None for times that were not measured: a model has no sampling interval."""
    high: float | None


def judge(gates: Sequence[Gate], comparisons: Sequence[Comparison], policy: Policy) -> Judgement:
    """Decide about one candidate from its gates and its times.

    Rejected: a gate failed or is missing, no time was taken, or the speedup does not clear the
    bar. Provisional: all gates passed and the speedup clears it, by times that were not measured on
    a GPU (design D5: such a time never accepts). Accepted: the lower end of the interval of the
    measured speedup clears it.
    """
    failed = next((gate for gate in gates if not gate.passed), None)
    if failed is not None:
        return _rejected(f"{failed.name}: {failed.summary}", gates)
    if not comparisons:
        return _rejected(_missing_gate(gates, REQUIRED_GATES) or "no time was taken", gates)
    sources = {m.source for c in comparisons for m in (c.baseline, c.candidate)}
    if len(sources) > 1:
        return _rejected(
            f"baseline and candidate were timed by different clocks: {sorted(sources)}", gates
        )
    measured = sources <= MEASURED
    speedup = (
        measured_speedup(comparisons, policy)
        if measured
        else Speedup(weighted_speedup(comparisons), None, None)
    )
    gate = _speedup_gate(speedup, comparisons, policy, measured)
    # A candidate that is too slow needs no further gate; one that is fast needs every one.
    required = REQUIRED_MEASURED_GATES if measured else REQUIRED_GATES
    missing = _missing_gate(gates, required) if gate.passed else None
    if missing is not None:
        return _rejected(missing, gates)
    outcome = "rejected" if not gate.passed else "accepted" if measured else "provisional"
    return Judgement(
        outcome=outcome,
        reason=gate.summary,
        gates=(*gates, gate),
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        time_source=comparisons[0].candidate.source,
    )


def _rejected(reason: str, gates: Sequence[Gate]) -> Judgement:
    return Judgement(outcome="rejected", reason=reason, gates=tuple(gates))


def _missing_gate(gates: Sequence[Gate], required: Sequence[GateName]) -> str | None:
    present = {gate.name for gate in gates}
    missing = next((name for name in required if name not in present), None)
    return None if missing is None else f"{missing}: this gate did not run"


def _weighted(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """Speedup of the whole from per-workload time ratios candidate/baseline."""
    total = sum(weights)
    return total / sum(w * r for w, r in zip(weights, ratios, strict=True))


def weighted_speedup(comparisons: Sequence[Comparison]) -> float:
    """Ratio of the medians, weighted by each workload's share of the kernel's time."""
    ratios = [c.candidate.median_us / c.baseline.median_us for c in comparisons]
    return _weighted(ratios, [c.weight for c in comparisons])


def measured_speedup(comparisons: Sequence[Comparison], policy: Policy) -> Speedup:
    """Median paired ratio with a percentile bootstrap interval at `policy.confidence`.

    Samples are paired by position: the runner interleaves baseline and candidate, so drift of the
    clock or the temperature falls on both members of a pair.
    """
    pairs = [_log_ratios(c) for c in comparisons]
    weights = [c.weight for c in comparisons]
    value = _weighted([math.exp(median(p)) for p in pairs], weights)
    if min(len(p) for p in pairs) < MIN_MEASURED_SAMPLES:
        return Speedup(value, 0.0, math.inf)
    # The seed is fixed: the same samples must always give the same judgement.
    generator = random.Random(20240607)
    resampled = sorted(
        _weighted([math.exp(median(generator.choices(p, k=len(p)))) for p in pairs], weights)
        for _ in range(BOOTSTRAP_RESAMPLES)
    )
    tail = (1.0 - policy.confidence) / 2.0
    low = resampled[int(tail * (len(resampled) - 1))]
    high = resampled[math.ceil((1.0 - tail) * (len(resampled) - 1))]
    return Speedup(value, low, high)


def _log_ratios(comparison: Comparison) -> list[float]:
    """Logarithm of candidate over baseline time, pair by pair."""
    pairs = zip(comparison.candidate.samples_us, comparison.baseline.samples_us, strict=False)
    return [math.log(candidate / baseline) for candidate, baseline in pairs]


def _speedup_gate(
    speedup: Speedup, comparisons: Sequence[Comparison], policy: Policy, measured: bool
) -> Gate:
    decisive = speedup.value if speedup.low is None else speedup.low
    bar = max(policy.min_speedup, MEASURABLE_SPEEDUP) if measured else policy.min_speedup
    passed = math.isfinite(decisive) and decisive >= bar
    device = comparisons[0].candidate.device
    text = f"{speedup.value:.2f}x against a bar of {bar:.2f}x"
    if not measured:
        text += comparisons[0].candidate.provenance
    elif speedup.low is not None and speedup.high is not None:
        text += (
            f" ({policy.confidence:.0%} interval {speedup.low:.2f}-{speedup.high:.2f}x, {device})"
        )
    numbers = {"speedup": speedup.value, "min_speedup": bar}
    if speedup.low is not None and speedup.high is not None:
        numbers |= {"speedup_low": speedup.low, "confidence": policy.confidence}
    for comparison in comparisons:
        numbers[f"baseline_us_{comparison.workload}"] = comparison.baseline.median_us
        numbers[f"candidate_us_{comparison.workload}"] = comparison.candidate.median_us
    return Gate(name="speedup", passed=passed, summary=text, numbers=numbers)
