"""What a profile and its verdict say, for every form of a report."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.cuda.metrics import DURATION
from cudaops.cuda.ncu_pages import counted
from cudaops.domain.profile import NvidiaRule, Profile, Roofline, Verdict
from cudaops.domain.run import ProfileSummary
from cudaops.reports.quantities import (
    Clock,
    one_line,
    quantity,
    significant,
)


class EvidenceRow(NamedTuple):
    """One comparison of the verdict."""

    label: str
    value: str
    comparison: str
    source: str


class RuleRow(NamedTuple):
    """What one of Nsight Compute's own rules said."""

    type: str
    name: str
    estimate: str
    """ncu's estimate of the time that could be saved."""
    agrees: str
    """Finding of ours that says the same."""
    text: str


def evidence_rows(verdict: Verdict, summary: ProfileSummary) -> list[EvidenceRow]:
    """The comparisons a verdict rests on, each value with its source."""
    rows = []
    for item in verdict.evidence:
        metric = summary.baseline.metrics.get(item.metric)
        source = metric.source if metric is not None else verdict.source
        rows.append(
            EvidenceRow(
                one_line(item.label),
                quantity(item.value, item.unit),
                f"{item.comparison} {quantity(item.threshold, item.unit)}",
                str(Clock(source, summary.baseline.device)),
            )
        )
    return rows


def time_clock(profile: Profile) -> Clock:
    """Source of a profile's duration, which may be measured where its counts are modelled."""
    metric = profile.metrics.get(DURATION)
    return Clock(metric.source if metric is not None else profile.source, profile.device)


def metrics_sentence(summary: ProfileSummary) -> str:
    """How many metrics are known, in the words of whoever gave them."""
    profile = summary.baseline
    if profile.source != "measured":
        return f"{summary.metrics_parsed} metrics known; those not listed are unknown."
    count = counted(profile)
    more = f", and {count.others:,} more of its raw page" if count.others else ""
    return f"{count.details} metrics of ncu's details page{more}; those not listed are unknown."


def rule_rows(verdict: Verdict) -> list[RuleRow]:
    """Nsight Compute's own rules: those that agree with ours first, then by what they promise."""
    ordered = sorted(
        verdict.nvidia_rules,
        key=lambda rule: (rule.agrees_with is None, -(rule.estimated_speedup_pct or 0.0)),
    )
    return [
        RuleRow(
            rule.type,
            one_line(rule.name),
            _estimate(rule),
            f"agrees with {rule.agrees_with}" if rule.agrees_with else "",
            one_line(rule.text, 240),
        )
        for rule in ordered
    ]


def _estimate(rule: NvidiaRule) -> str:
    if rule.estimated_speedup_pct is None:
        return ""
    scope = "local " if rule.speedup_scope == "local" else ""
    return f"{scope}{significant(rule.estimated_speedup_pct, 3)} %"


def roofline_sentence(roofline: Roofline | None, clock: Clock, whose: str) -> str:
    """How far a kernel is from what the device allows for its own operations and bytes.

    `whose`: `the author's kernel`, `the rewrite`.
    """
    if roofline is None:
        return "Distance to the roofline unknown: operations or bytes were not counted."
    resource = "arithmetic" if roofline.bound == "compute" else "memory bandwidth"
    intensity = significant(roofline.arithmetic_intensity_flop_per_byte, 3)
    return (
        f"{significant(roofline.attained_pct, 3)} % of the {resource} roofline ({clock}): "
        f"{clock.device} needs at least {significant(roofline.floor_us)} µs by its published peaks "
        f"for the {significant(roofline.flops / 1e9, 3)} GFLOP and "
        f"{significant(roofline.dram_bytes / 1e6, 3)} MB of {whose} ({intensity} FLOP/byte)."
    )


def verdict_sentence(verdict: Verdict, clock: Clock) -> str:
    """The verdict's summary with the source of the numbers in it."""
    return f"{one_line(verdict.summary, 600).rstrip('.')} ({clock})."


def relief_sentence(verdict: Verdict) -> str:
    """What usually helps, and what removing the cause saves at most."""
    gain = f" {verdict.gain[0].upper()}{verdict.gain[1:]}." if verdict.gain else ""
    return f"{one_line(verdict.relief, 600)}{gain}"
