"""What limits the kernel: verdict, evidence, relief, the lines that cost, what ncu's rules say."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.profile import Finding, Profile, Verdict
from cudaops.domain.run import ProfileSummary, RunRecord
from cudaops.reports import content
from cudaops.reports.html.visible import Piece, pieces
from cudaops.reports.quantities import Clock, microseconds, one_line, quantity


class Hot(NamedTuple):
    """A line of source and its share of the cost."""

    share: str
    where: str
    code: list[Piece]
    note: str


class Also(NamedTuple):
    """A rule that fired after the one that decided."""

    severity: str
    subtype: str
    text: str
    relief: str
    evidence: str


class LimitsView(NamedTuple):
    """One kernel's verdict."""

    kernel: str
    bottleneck: str
    subtype: str
    sentence: str
    clock: str
    """Behind its numbers: `modelled for A10`."""
    relief: str
    evidence: list[content.EvidenceRow]
    thresholds: list[str]
    """Where each threshold comes from."""
    time: str
    roofline: str
    drawn_from: str
    also: list[Also]
    hot: list[Hot]
    rules: list[content.RuleRow]
    notes: list[str]


def view(record: RunRecord) -> list[LimitsView]:
    """Of the author's kernel, then of the best rewrite where that was profiled."""
    summary = record.profile
    if summary is None:
        return []
    found = [_view(summary.verdict_detail, summary.baseline, summary)]
    if summary.best is not None and summary.best_verdict is not None:
        best = summary.model_copy(update={"baseline": summary.best})
        found.append(_view(summary.best_verdict, summary.best, best))
    return found


def _view(verdict: Verdict, profile: Profile, summary: ProfileSummary) -> LimitsView:
    clock = Clock(verdict.source, profile.device)
    return LimitsView(
        one_line(profile.kernel),
        verdict.bottleneck_class.replace("_", " "),
        one_line(verdict.subtype),
        content.verdict_sentence(verdict, clock),
        str(clock),
        one_line(verdict.relief, 1000),
        content.evidence_rows(verdict, summary),
        [one_line(item.source) for item in verdict.evidence],
        microseconds(profile.duration_us, content.time_clock(profile)),
        content.roofline_sentence(verdict.roofline, clock),
        verdict.drawn_from,
        [_also(finding) for finding in verdict.findings[1:]],
        [
            Hot(f"{h.share_pct:.0f} %", str(h.location), pieces(h.text), one_line(h.note))
            for h in profile.hot_lines
        ],
        content.rule_rows(verdict),
        [one_line(note) for note in profile.notes],
    )


def _also(finding: Finding) -> Also:
    compared = (
        f"{one_line(e.label)} {quantity(e.value, e.unit)} {e.comparison} "
        f"{quantity(e.threshold, e.unit)}"
        for e in finding.evidence
    )
    return Also(
        finding.severity,
        one_line(finding.subtype),
        one_line(finding.text, 600),
        one_line(finding.relief, 600),
        "; ".join(compared),
    )
