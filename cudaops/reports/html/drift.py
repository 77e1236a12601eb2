"""Bottleneck drift: what limited each incumbent in turn, and how busy each unit was before and
after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.metrics import METRICS
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.run import Event, ProfileSummary, RunRecord
from cudaops.reports.html.scale import LinearScale, Tick
from cudaops.reports.profiles import time_clock
from cudaops.reports.quantities import Clock, microseconds, one_line, quantity

WIDTH, LEFT, RIGHT, TOP, ROW = 640, 16, 16, 28, 42

UNITS = (
    ncu.SM_THROUGHPUT, ncu.PIPE_FMA, ncu.ISSUE_SLOTS_BUSY, ncu.PIPE_LSU,
    ncu.L1_THROUGHPUT, ncu.SHARED_DATA_PIPE, ncu.L2_THROUGHPUT,
    ncu.DRAM_THROUGHPUT, ncu.ACHIEVED_OCCUPANCY,
)  # fmt: skip
"""What the rules of a verdict look at first, each a share of its peak: arithmetic, issue, the way
of the data from the SM outwards, warps in flight."""


class KernelStage(NamedTuple):
    """One kernel and what limited it."""

    who: str
    bottleneck: str
    """Class, in words: `memory bound`."""
    subtype: str
    summary: str
    numbers: list[str]
    """Time and evidence, each with its value."""


class DriftRow(NamedTuple):
    """One unit before and after."""

    label: str
    before: str
    after: str
    short: str
    """`12.4 → 50.4`; a dash for what was not collected."""
    y: int
    before_x: float | None
    after_x: float | None


class DriftLayout(NamedTuple):
    """All places of the chart."""

    height: int
    ticks: list[Tick]
    rows: list[DriftRow]
    source: str
    summary: str


class DriftView(NamedTuple):
    """Verdicts in order, the chart, and what is missing."""

    stages: list[KernelStage]
    drawing: DriftLayout | None
    missing: list[str]


def view(record: RunRecord, events: Sequence[Event]) -> DriftView:
    """From the author's kernel to the last incumbent that was profiled."""
    summary = record.profile
    if summary is None:
        return DriftView([], None, ["The kernel was not profiled."])
    stages = _told(record, events) or _recorded(record, summary)
    missing = []
    kept = sum(a.judgement.outcome != "rejected" for a in record.attempts)
    # The last incumbent of a run that has used up its candidates is not profiled again.
    if kept and len(stages) <= kept:
        missing.append(
            f"No verdict was reached for {kept + 1 - len(stages)} of {kept} kept candidates."
        )
    rows, unknown = _rows(summary)
    if unknown:
        missing.append(f"Not collected: {', '.join(unknown)}.")
    return DriftView(stages, _drawing(summary, rows) if rows else None, missing)


def _recorded(record: RunRecord, summary: ProfileSummary) -> list[KernelStage]:
    stages = [_stage("author's kernel", summary.verdict_detail, summary.baseline)]
    if summary.best is not None and summary.best_verdict is not None:
        title = one_line(record.best.title, 120) if record.best is not None else "best rewrite"
        stages.append(_stage(title, summary.best_verdict, summary.best))
    return stages


def _stage(who: str, verdict: Verdict, profile: Profile) -> KernelStage:
    clock = Clock(verdict.source, profile.device)
    evidence = [f"{one_line(e.label)} {quantity(e.value, e.unit)}" for e in verdict.evidence]
    return KernelStage(
        who,
        verdict.bottleneck_class.replace("_", " "),
        one_line(verdict.subtype),
        f"{one_line(verdict.summary, 600).rstrip('.')} ({clock}).",
        [microseconds(profile.duration_us, time_clock(profile)), *_once(evidence)],
    )


def _told(record: RunRecord, events: Sequence[Event]) -> list[KernelStage]:
    """From the events, which tell of every incumbent; empty for runs before they did."""
    stages: list[KernelStage] = []
    incumbent = "author's kernel"
    for event in events:
        if event.kind != "finished":
            continue
        data = event.data
        if event.stage == "verify" and data.get("outcome") in ("accepted", "provisional"):
            incumbent = f"{data.get('iteration', '?')}, {one_line(str(data.get('title', '')), 120)}"
        if event.stage == "profiler" and isinstance(data.get("subtype"), str):
            told = _told_stage(incumbent, data, record)
            # A resumed run may have profiled the same incumbent twice.
            if stages and stages[-1].who == told.who:
                stages.pop()
            stages.append(told)
    return stages


def _told_stage(who: str, data: dict[str, Any], record: RunRecord) -> KernelStage:
    source = record.profile.baseline.source if record.profile is not None else "unrecorded"
    given = data.get("provenance")
    words = (
        one_line(given) if isinstance(given, str) and given else str(Clock(source, record.device))
    )
    numbers = []
    if isinstance(time_us := data.get("time_us"), int | float):
        numbers.append(f"{microseconds(float(time_us), Clock(source, record.device))}")
    evidence = data.get("evidence")
    for item in evidence if isinstance(evidence, list) else ():
        if isinstance(item, dict) and isinstance(value := item.get("value"), int | float):
            label, unit = str(item.get("label", "")), str(item.get("unit", ""))
            numbers.append(f"{one_line(label)} {quantity(float(value), one_line(unit))}")
    return KernelStage(
        who,
        one_line(str(data.get("bottleneck_class", ""))).replace("_", " "),
        one_line(str(data["subtype"])),
        f"{one_line(str(data.get('summary', '')), 600).rstrip('.')} ({words}).",
        _once(numbers),
    )


def _once(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _rows(summary: ProfileSummary) -> tuple[list[DriftRow], list[str]]:
    """Units of which at least one side is known, and the names of the others."""
    rows: list[DriftRow] = []
    unknown = []
    x = LinearScale(0.0, 100.0, LEFT, WIDTH - RIGHT)
    for name in UNITS:
        before = summary.baseline.get(name)
        after = summary.best.get(name) if summary.best is not None else None
        label = METRICS[name].label
        if before is None and after is None:
            unknown.append(label)
            continue
        rows.append(
            DriftRow(
                label,
                "not collected" if before is None else quantity(before, "%"),
                "not collected" if after is None else quantity(after, "%"),
                " → ".join("–" if v is None else f"{v:.1f}" for v in (before, after)),
                TOP + ROW * len(rows) + 32,
                _placed(before, x),
                _placed(after, x),
            )
        )
    return rows, unknown


def _placed(value: float | None, x: LinearScale) -> float | None:
    """A share on the axis; above 100 % at its end, as rounding in a counter may give."""
    if value is None or not 0.0 <= value < math.inf:
        return None
    return x(min(value, 100.0))


def _drawing(summary: ProfileSummary, rows: list[DriftRow]) -> DriftLayout:
    x = LinearScale(0.0, 100.0, LEFT, WIDTH - RIGHT)
    said = "; ".join(f"{row.label}: {row.before} before, {row.after} after" for row in rows)
    clock = Clock(summary.baseline.source, summary.baseline.device)
    return DriftLayout(TOP + ROW * len(rows) + 30, x.ticks(20.0), rows, str(clock), said)
