"""The record's summary of how times were measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from cudaops.domain.judgement import Comparison
from cudaops.domain.run import RegimeSummary, TimingSummary


def timing_summary(comparisons: Sequence[Comparison]) -> TimingSummary | None:
    """Of the most expensive workload; None where its times are modelled."""
    if not comparisons:
        return None
    baseline, candidate = comparisons[0].baseline, comparisons[0].candidate
    if baseline.timing is None or candidate.timing is None:
        return None
    ours, theirs = candidate.timing, baseline.timing
    return TimingSummary(
        regime=ours.regime,
        cold=_regime(theirs.cold_us, ours.cold_us),
        warm=_regime(theirs.warm_us, ours.warm_us),
        cupti=_regime(theirs.cupti_us, ours.cupti_us),
        samples=min(len(baseline.samples_us), len(candidate.samples_us)),
        blocks_redone=ours.blocks_redone,
        sm_clock_mhz=_range(ours.sm_clock_mhz),
        temperature_c=_range(ours.temperature_c),
        notices=ours.notices,
    )


def _regime(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> RegimeSummary | None:
    if not baseline_us or not candidate_us:
        return None
    before, after = median(baseline_us) / 1000, median(candidate_us) / 1000
    return RegimeSummary(baseline_ms=before, candidate_ms=after, speedup=before / after)


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
