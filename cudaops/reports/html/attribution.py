"""Attribution: which kept change brought which factor, and what it did to the kernel's metrics."""

from __future__ import annotations

import math
from typing import NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.metrics import METRICS
from cudaops.domain.judgement import Attempt
from cudaops.domain.profile import Profile
from cudaops.domain.run import RunRecord
from cudaops.reports.content import clock_of
from cudaops.reports.html.scale import Tick, log_scale, placeable
from cudaops.reports.quantities import Clock, one_line, quantity, significant, times_faster

WIDTH, LEFT, RIGHT, TOP, ROW = 640, 16, 16, 48, 46

METRIC_NAMES = (
    ncu.DURATION, ncu.DRAM_THROUGHPUT, ncu.DRAM_READ_BYTES, ncu.DRAM_WRITE_BYTES,
    ncu.L2_HIT_RATE, ncu.L2_READ_SECTORS, ncu.L2_WRITE_SECTORS,
    ncu.L1_THROUGHPUT, ncu.L1_HIT_RATE, ncu.GLOBAL_LD_REQUESTS,
    ncu.GLOBAL_LD_SECTORS, ncu.GLOBAL_ST_REQUESTS, ncu.GLOBAL_ST_SECTORS,
    ncu.SHARED_WAVEFRONTS, ncu.BANK_CONFLICTS, ncu.PIPE_FMA,
    ncu.SM_THROUGHPUT, ncu.INST_EXECUTED, ncu.FFMA, ncu.EXECUTED_IPC_ACTIVE,
    ncu.ACHIEVED_OCCUPANCY, ncu.REGISTERS, ncu.SHARED_PER_BLOCK, ncu.GRID_SIZE,
    ncu.BLOCK_SIZE, ncu.WAVES,
)  # fmt: skip
"""What changes when a kernel is rewritten: its time, the way of its data from DRAM to the SM, its
arithmetic, what it takes of an SM."""


class KeptCandidate(NamedTuple):
    """One kept candidate."""

    iteration: int
    title: str
    factor: str
    """Against the incumbent before it."""
    total: str
    """Against the author's kernel."""
    share: str
    """Of the logarithm of the whole speedup; shares add up to 100 %."""


class Bar(NamedTuple):
    """A step in the drawing."""

    label: str
    text: str
    x: float
    width: float
    y: float


class AttributionLayout(NamedTuple):
    """All places of the chart."""

    height: int
    ticks: list[Tick]
    bars: list[Bar]
    summary: str


class MetricChange(NamedTuple):
    """One metric before and after."""

    label: str
    name: str
    before: str
    after: str
    change: str
    meaning: str


class AttributionView(NamedTuple):
    """Steps, chart and metrics."""

    steps: list[KeptCandidate]
    drawing: AttributionLayout | None
    changes: list[MetricChange]
    source: str
    metrics_source: str
    missing: list[str]


def view(record: RunRecord) -> AttributionView:
    """Kept candidates in order; the metrics of the author's kernel beside the best rewrite's."""
    clock, missing = clock_of(record), []
    kept = [a for a in record.attempts if a.judgement.outcome != "rejected"]
    timed = [a for a in kept if placeable(a.judgement.speedup)]
    if not kept:
        missing.append("No candidate was kept, so there is nothing to attribute.")
    elif len(timed) < len(kept):
        missing.append(f"{len(kept) - len(timed)} kept candidates have no speedup.")
    steps = _steps(timed, clock)
    changes: list[MetricChange] = []
    metrics_source = ""
    if record.profile is None:
        missing.append("The kernel was not profiled.")
    elif record.profile.best is None:
        missing.append("No rewrite was profiled.")
    else:
        changes = _changes(record.profile.baseline, record.profile.best)
        metrics_source = str(Clock(record.profile.baseline.source, record.profile.baseline.device))
    drawing = _drawing(timed, steps) if timed else None
    return AttributionView(steps, drawing, changes, str(clock), metrics_source, missing)


def _factors(kept: list[Attempt]) -> list[float]:
    """Each speedup over the one before it."""
    totals = [a.judgement.speedup or 1.0 for a in kept]
    return [now / before for now, before in zip(totals, [1.0, *totals], strict=False)]


def _steps(kept: list[Attempt], clock: Clock) -> list[KeptCandidate]:
    if not kept:
        return []
    whole = math.log(kept[-1].judgement.speedup or 1.0)
    return [
        KeptCandidate(
            attempt.iteration,
            one_line(attempt.title, 120),
            times_faster(factor, clock),
            times_faster(attempt.judgement.speedup, clock),
            f"{100 * math.log(factor) / whole:.0f} %" if whole > 0 else "",
        )
        for attempt, factor in zip(kept, _factors(kept), strict=True)
    ]


def _drawing(kept: list[Attempt], steps: list[KeptCandidate]) -> AttributionLayout:
    totals = [attempt.judgement.speedup or 1.0 for attempt in kept]
    x = log_scale([1.0, *totals], LEFT, WIDTH - RIGHT, margin=1.0)
    bars, before = [], 1.0
    for row, (total, factor, step) in enumerate(zip(totals, _factors(kept), steps, strict=True)):
        low, high = sorted((x(before), x(total)))
        bars.append(
            Bar(
                f"{step.iteration}  {one_line(step.title, 40)}",
                f"{factor:.2f}×, {step.share}" if step.share else f"{factor:.2f}×",
                low,
                round(max(high - low, 1.5), 1),
                TOP + ROW * row,
            )
        )
        before = total
    said = "; ".join(f"candidate {s.iteration}, {s.title}: {s.factor}, {s.share}" for s in steps)
    return AttributionLayout(TOP + ROW * len(bars) + 10, x.ticks(), bars, said)


def _changes(before: Profile, after: Profile) -> list[MetricChange]:
    rows = []
    for name in METRIC_NAMES:
        first, second = before.metrics.get(name), after.metrics.get(name)
        row = METRICS[name]
        if first is None and second is None:
            change = ""
        elif first is None or second is None:
            change = "cannot be compared"
        else:
            change = _change(first.value, second.value, first.unit)
        rows.append(
            MetricChange(
                row.label,
                name,
                "not collected" if first is None else _amount(first.value, first.unit),
                "not collected" if second is None else _amount(second.value, second.unit),
                change,
                row.meaning,
            )
        )
    return [row for row in rows if row.change]


_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def _amount(value: float, unit: str) -> str:
    """`44.1 MB`, `134 M sector`, `1,113 µs`: large counts by their prefix."""
    if unit == "us":
        return quantity(value, "µs")
    for size, prefix in _PREFIXES if unit == "byte" else _PREFIXES[:2]:
        if value >= size:
            return quantity(
                value / size, f"{prefix}B" if unit == "byte" else f"{prefix} {one_line(unit)}"
            )
    return quantity(value, one_line(unit))


def _change(before: float, after: float, unit: str) -> str:
    """Points for a share, a factor for anything else."""
    if before == after:
        return "same"
    if unit == "%":
        points = after - before
        return f"{'+' if points > 0 else '−'}{significant(abs(points), 3)} points"
    if before <= 0 or after <= 0:
        difference = after - before
        return f"{'+' if difference > 0 else '−'}{significant(abs(difference), 3)}"
    return (
        f"× {significant(after / before, 3)}"
        if after > before
        else (f"÷ {significant(before / after, 3)}")
    )
