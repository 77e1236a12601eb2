"""A recorded run as steps, in the order and at the times at which they happened."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from cudaops.domain.execution import TimeSource
from cudaops.domain.run import Event, RunRecord
from cudaops.reports.recorded_calls import RecordedCall, RecordedTool
from cudaops.reports.recording import Damage, Iteration, Recording

LONGEST_WAIT = 3600.0
"""Seconds. A clock that was set forward while the run was recorded must not stop a replay."""

_NUMBER = re.compile(r"iteration (\d{1,6}):")

StepKind = Literal[
    "run", "damage", "event", "model_call", "tool_result", "iteration", "patch", "end"
]


class Judged(NamedTuple):
    """One candidate, where its judgement was drawn."""

    iteration: Iteration
    verdict: str | None
    """What the profiler had said before it; None where that is not recorded."""


class Patch(NamedTuple):
    """What the accepted candidate changes in the author's program."""

    text: str


class Ending(NamedTuple):
    """How the recording ends."""

    record: RunRecord | None
    """None where the run did not finish."""
    under_way: Event | None
    """Last stage that began and did not end, in a run that did not finish."""


Content = Recording | Damage | Event | RecordedCall | RecordedTool | Judged | Patch | Ending


class Step(NamedTuple):
    """One thing that a replay shows."""

    kind: StepKind
    seconds: float | None
    """Since the first event, pauses between a kill and its resumption left out; None: no time of
    its own."""
    iteration: int | None
    """Candidate that it belongs to, from 1; None for what belongs to the whole run."""
    content: Content


def steps_of(recording: Recording) -> list[Step]:
    """Everything that can be shown, in order."""
    return [
        Step("run", None, None, recording),
        *(Step("damage", None, None, damage) for damage in recording.damage),
        *_timeline(recording),
        *_closing(recording),
    ]


def of_iteration(steps: Sequence[Step], number: int) -> list[Step]:
    """The way to one candidate: what it is about, and the steps that belong to it."""
    whole = ("run", "damage")
    return [step for step in steps if step.kind in whole or step.iteration == number]


def iterations_in(steps: Sequence[Step]) -> list[int]:
    """Numbers of the candidates that steps belong to."""
    return sorted({step.iteration for step in steps if step.iteration is not None})


def paced(
    steps: Sequence[Step], speed: float | None, sleep: Callable[[float], None]
) -> Iterator[Step]:
    """The steps, each after as long as the run took to get there, divided by `speed`; at once
    where `speed` is None."""
    before: float | None = None
    for step in steps:
        if speed is not None and step.seconds is not None:
            if before is not None and step.seconds > before:
                sleep(min((step.seconds - before) / speed, LONGEST_WAIT))
            before = step.seconds
        yield step


def time_source(recording: Recording) -> TimeSource | None:
    """Where the times in it come from; None where that is not recorded."""
    if recording.record is not None:
        return recording.record.time_source
    for iteration in recording.iterations:
        if iteration.attempt is not None and iteration.attempt.judgement.time_source is not None:
            return iteration.attempt.judgement.time_source
    on_cpu = recording.options is not None and recording.options.executor == "cpu"
    return "modelled" if on_cpu else None


def _timeline(recording: Recording) -> Iterator[Step]:
    """Events with the model's calls between them, each candidate after its judgement."""
    waiting = _by_end(recording.calls)
    by_number = {iteration.number: iteration for iteration in recording.iterations}
    last, judged_at = max(by_number, default=0), _judgements(recording.events)
    clock = _Clock()
    current, verdict = 1, None
    for position, event in enumerate(recording.events):
        seconds = clock.at(event)
        while waiting and clock.stamp is not None and waiting[0].ended <= clock.stamp:
            yield from _asked(waiting.pop(0), clock)
        if event.stage == "profiler" and event.kind == "finished":
            verdict = event.message
        belongs = current - 1 if event.stage == "accepted" and current > 1 else current
        if recording.record is not None and belongs > last:
            yield Step("event", seconds, None, event)
            continue
        yield Step("event", seconds, belongs, event)
        number = judged_at.get(position)
        if number is not None:
            current = number + 1
            if number in by_number:
                judged = Judged(by_number.pop(number), verdict)
                yield Step("iteration", seconds, number, judged)
    for turn in waiting:
        yield from _asked(turn, clock)
    for number, iteration in sorted(by_number.items()):
        yield Step("iteration", None, number, Judged(iteration, None))


def _closing(recording: Recording) -> Iterator[Step]:
    accepted = recording.record.verify.iteration_accepted if recording.record else None
    if recording.patch:
        yield Step("patch", None, accepted, Patch(recording.patch))
    under_way: dict[str, Event] = {}
    for event in recording.events:
        if event.kind == "started":
            under_way[event.stage] = event
        elif event.kind in ("finished", "failed"):
            under_way.pop(event.stage, None)
    unfinished = next(reversed(under_way.values()), None) if recording.record is None else None
    yield Step("end", None, None, Ending(recording.record, unfinished))


def _judgements(events: Sequence[Event]) -> dict[int, int]:
    """Position of the event that says what came of a candidate, to the candidate's number.

    A stage that was killed at its very end is run again: the last event for a candidate counts.
    """
    last: dict[int, int] = {}
    for position, event in enumerate(events):
        found = _NUMBER.match(event.message)
        if event.stage == "verify" and event.kind == "finished" and found:
            last[int(found.group(1))] = position
    return {position: number for number, position in last.items()}


class _Clock:
    """Seconds since the first event. Never runs backwards, and stands still between a kill and the
    resumption."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.stamp: float | None = None

    def at(self, event: Event) -> float:
        """Move to an event."""
        stamp = _stamp(event.time)
        if stamp is not None:
            resumed = event.kind == "notice" and event.message == "resumed"
            if self.stamp is not None and not resumed:
                self.seconds += max(0.0, stamp - self.stamp)
            self.stamp = stamp
        return round(self.seconds, 3)


class _Turn(NamedTuple):
    """A call and the results of tools that the journal has after it."""

    ended: float
    """When the answer was there; infinity where no time is recorded."""
    entries: tuple[RecordedCall | RecordedTool, ...]


def _by_end(entries: Sequence[RecordedCall | RecordedTool]) -> list[_Turn]:
    turns: list[_Turn] = []
    for entry in entries:
        if isinstance(entry, RecordedTool) and turns:
            turns[-1] = turns[-1]._replace(entries=(*turns[-1].entries, entry))
        else:
            turns.append(_Turn(_ended(entry), (entry,)))
    return sorted(turns, key=lambda turn: turn.ended)


def _asked(turn: _Turn, clock: _Clock) -> Iterator[Step]:
    seconds = clock.seconds
    if clock.stamp is not None and math.isfinite(turn.ended):
        seconds = max(0.0, seconds - max(0.0, clock.stamp - turn.ended))
    for entry in turn.entries:
        found = re.match(r"\d{1,6}", entry.scope)
        kind: StepKind = "model_call" if isinstance(entry, RecordedCall) else "tool_result"
        yield Step(kind, round(seconds, 3), int(found.group()) if found else None, entry)


def _ended(entry: RecordedCall | RecordedTool) -> float:
    if isinstance(entry, RecordedTool):
        return math.inf
    stamp = _stamp(entry.call.started)
    ended = math.inf if stamp is None else stamp + entry.call.seconds
    return ended if math.isfinite(ended) else math.inf


def _stamp(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
