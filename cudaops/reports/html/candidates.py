"""Every candidate with its time, in the order in which they came: tuner's trials and judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from cudaops.domain.judgement import Attempt
from cudaops.domain.run import Event, RunRecord
from cudaops.reports.content import clock_of
from cudaops.reports.html.scale import LogScale, Tick, log_scale, placeable
from cudaops.reports.quantities import Clock, microseconds, one_line
from cudaops.reports.recording import RecordedTrial

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 28, 66
_STRIP = 16
"""Height of the strip below the axis for candidates without a time."""
_TRIALS = TypeAdapter(tuple[RecordedTrial, ...])

Word = Literal["tried", "did not run", "accepted", "provisional", "rejected"]
SHAPES: dict[Word, str] = {
    "accepted": "diamond", "provisional": "diamond-open", "rejected": "cross", "tried": "dot",
    "did not run": "bar",
}  # fmt: skip
"""Each outcome has a shape of its own: colour alone says nothing."""


class ChartEntry(NamedTuple):
    """One candidate or one configuration of it."""

    order: int
    """From 1, over the whole run."""
    iteration: int
    what: str
    values: str
    """Tuned values: `BM=128 BN=64`."""
    word: Word
    time_us: float | None
    time: str
    """With its source."""
    why: str


class CandidateMark(NamedTuple):
    """An entry in the drawing."""

    x: float
    y: float
    shape: str
    word: Word


class Band(NamedTuple):
    """The entries of one candidate."""

    x: float
    """Where it begins."""
    middle: float
    label: str


class ReferenceLine(NamedTuple):
    """A horizontal line with its name."""

    y: float
    text: str
    kind: Literal["baseline", "bar"]
    text_y: float


class CandidatesLayout(NamedTuple):
    """All places of the chart."""

    y_ticks: list[Tick]
    marks: list[CandidateMark]
    bands: list[Band]
    lines: list[ReferenceLine]
    best: str
    """Points of the line of the fastest that was kept so far; empty where none was."""
    strip_y: float
    words: list[Word]
    """Outcomes that occur, for the legend."""
    summary: str


class CandidatesView(NamedTuple):
    """The chart and its table."""

    drawing: CandidatesLayout | None
    entries: list[ChartEntry]
    source: str
    missing: list[str]


def view(
    record: RunRecord, events: Sequence[Event], trials: Mapping[int, Sequence[RecordedTrial]]
) -> CandidatesView:
    """Every trial and every judged candidate."""
    told = _trials_told(events)
    tried = {n: trials.get(n) or told.get(n, ()) for n in {*trials, *told}}
    entries = _entries(record, tried)
    missing = []
    without = [
        a for a in record.attempts if a.configurations_tried > 1 and not tried.get(a.iteration)
    ]
    if without:
        numbers = ", ".join(str(a.iteration) for a in without)
        missing.append(f"The tuner's trials of candidate {numbers} are missing.")
    baseline_us = _baseline_us(record)
    if not entries:
        return CandidatesView(None, [], "", [*missing, "No candidate was tried."])
    if baseline_us is None and not any(placeable(e.time_us) for e in entries):
        return CandidatesView(None, entries, "", [*missing, "No candidate was timed."])
    source = str(clock_of(record))
    return CandidatesView(_drawing(record, entries, baseline_us), entries, source, missing)


def _trials_told(events: Sequence[Event]) -> dict[int, tuple[RecordedTrial, ...]]:
    """Trials by iteration, from the events of the stages that tune."""
    found: dict[int, tuple[RecordedTrial, ...]] = {}
    iteration = 1
    for event in events:
        if event.kind != "finished":
            continue
        if event.stage == "verify":
            iteration += 1
        given: Any = event.data.get("trials")
        if given:
            try:
                found[iteration] = _TRIALS.validate_python(given)
            except ValidationError:
                continue  # another version's: the table says that they are not at hand
    return found


def _entries(record: RunRecord, tried: Mapping[int, Sequence[RecordedTrial]]) -> list[ChartEntry]:
    clock = clock_of(record)
    found: list[ChartEntry] = []
    judged = {attempt.iteration: attempt for attempt in record.attempts}
    for number in sorted({*tried, *judged}):
        attempt = judged.get(number)
        title = one_line(attempt.title, 120) if attempt else "never judged"
        for trial in tried.get(number, ()):
            word: Word = "tried" if trial.time_us is not None else "did not run"
            values = _values(trial.values)
            why = one_line(trial.failure or "", 160)
            time = microseconds(trial.time_us, clock)
            found.append(
                ChartEntry(len(found) + 1, number, title, values, word, trial.time_us, time, why)
            )
        if attempt is not None:
            found.append(_judged(attempt, len(found) + 1, clock))
    return found


def _judged(attempt: Attempt, order: int, clock: Clock) -> ChartEntry:
    judgement = attempt.judgement
    # One that a later gate turned down may have a time all the same: by the clock of the run.
    time = microseconds(
        attempt.candidate_us, Clock(judgement.time_source or clock.source, clock.device)
    )
    why = one_line(judgement.reason, 240) if judgement.outcome == "rejected" else ""
    return ChartEntry(
        order, attempt.iteration, one_line(attempt.title, 120), _values(attempt.tuned),
        judgement.outcome, attempt.candidate_us, time, why,
    )  # fmt: skip


def _values(values: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _baseline_us(record: RunRecord) -> float | None:
    """Time of the author's kernel by the clock of the judgements."""
    whole = record.verify.baseline_kernel_ms
    times = (None if whole is None else whole * 1000, *(a.baseline_us for a in record.attempts))
    return next((time for time in times if placeable(time)), None)


def _drawing(
    record: RunRecord, entries: list[ChartEntry], baseline_us: float | None
) -> CandidatesLayout:
    clock, bar = clock_of(record), record.options.policy.min_speedup
    bar_us = baseline_us / bar if baseline_us is not None and placeable(bar) else None
    bar_us = bar_us if placeable(bar_us) else None
    times = [e.time_us for e in entries if placeable(e.time_us)]
    y = log_scale(
        [*times, *(t for t in (baseline_us, bar_us) if t)], HEIGHT - BOTTOM, TOP, margin=1.35
    )
    step = (WIDTH - RIGHT - LEFT) / len(entries)
    places = [round(LEFT + (i + 0.5) * step, 1) for i in range(len(entries))]
    strip = HEIGHT - BOTTOM + _STRIP
    marks = [
        CandidateMark(x, y(e.time_us) if placeable(e.time_us) else strip, SHAPES[e.word], e.word)
        for x, e in zip(places, entries, strict=True)
    ]
    words = [word for word in SHAPES if any(e.word == word for e in entries)]
    timed = [e for e in entries if placeable(e.time_us)]
    summary = f"{len(entries)} entries, {len(timed)} with a time. " + (
        f"Author's kernel {microseconds(baseline_us, clock)}. " if baseline_us else ""
    )
    if timed:
        fastest = min(timed, key=lambda e: e.time_us or 0.0)
        summary += f"Fastest: {fastest.what}, {fastest.word}, {fastest.time}."
    return CandidatesLayout(
        y.ticks(), marks, _bands(entries, step), _lines(baseline_us, bar_us, bar, y),
        _best_so_far(entries, places, y), strip, words, summary,
    )  # fmt: skip


def _lines(
    baseline_us: float | None, bar_us: float | None, bar: float, y: LogScale
) -> list[ReferenceLine]:
    found = []
    if baseline_us:
        found.append(
            ReferenceLine(y(baseline_us), "author's kernel", "baseline", y(baseline_us) - 5)
        )
    if bar_us:
        found.append(ReferenceLine(y(bar_us), f"bar, {bar:g}×", "bar", y(bar_us) + 13))
    return found


def _bands(entries: list[ChartEntry], step: float) -> list[Band]:
    """One a candidate; where they are too narrow only some carry their number."""
    found = []
    numbers = sorted({e.iteration for e in entries})
    shown_every = max(1, -(-len(numbers) * 18 // (WIDTH - LEFT - RIGHT)))
    for position, number in enumerate(numbers):
        own = [e.order for e in entries if e.iteration == number]
        start, end = LEFT + (own[0] - 1) * step, LEFT + own[-1] * step
        label = str(number) if position % shown_every == 0 else ""
        found.append(Band(round(start, 1), round((start + end) / 2, 1), label))
    return found


def _best_so_far(entries: list[ChartEntry], places: list[float], y: LogScale) -> str:
    """From each kept candidate to the next faster one, and on to the right edge."""
    points: list[str] = []
    for x, entry in zip(places, entries, strict=True):
        if entry.word in ("accepted", "provisional") and placeable(entry.time_us):
            if points:
                points.append(f"{x},{points[-1].split(',')[1]}")
            points.append(f"{x},{y(entry.time_us)}")
    if points:
        points.append(f"{WIDTH - RIGHT},{points[-1].split(',')[1]}")
    return " ".join(points)
