"""A recorded run as steps, in the order and at the times at which they happened, and as JSON."""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from cudaops.domain.execution import TimeSource
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import InputError
from cudaops.reports.recording import Damage, Iteration, RecordedCall, RecordedTool, Recording

LONGEST_WAIT = 3600.0
"""Seconds. A clock that was set forward while the run was recorded must not stop a replay."""

_ENDED = {"outcome", "reason", "verify", "model", "loop_time_seconds", "seconds_by_tool"}
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
    """The way to one candidate: what it is about, and the steps that belong to it. Raises
    InputError where the recording has no such candidate."""
    known = sorted({step.iteration for step in steps if step.iteration is not None})
    if number not in known:
        there = ", ".join(map(str, known)) or "none"
        raise InputError(f"--iteration {number}: not in this recording, which has {there}")
    whole = ("run", "damage")
    return [step for step in steps if step.kind in whole or step.iteration == number]


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


def json_line(step: Step, *, prompts: bool) -> str:
    """One JSON object on one line, in ASCII: nothing in it acts on a terminal. A number that JSON
    has not, such as an infinite one, stands as text. `prompts`: with every word that the model was
    asked."""
    head = {"kind": step.kind, "seconds": step.seconds, "iteration": step.iteration}
    text = json.dumps(_plain(head | _content(step, prompts)), allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _timeline(recording: Recording) -> Iterator[Step]:
    """Events with the model's calls between them, each candidate after its judgement."""
    by_number = {iteration.number: iteration for iteration in recording.iterations}
    last, judged_at = max(by_number, default=0), _judgements(recording.events)
    current, verdict = 1, None
    for seconds, entry in _timed(recording):
        if not isinstance(entry, Event):
            number = re.match(r"\d{1,6}", entry.scope)
            kind: StepKind = "model_call" if isinstance(entry, RecordedCall) else "tool_result"
            yield Step(kind, seconds, int(number.group()) if number else None, entry)
            continue
        if entry.stage == "profiler" and entry.kind == "finished":
            verdict = entry.message
        belongs = current - 1 if entry.stage == "accepted" and current > 1 else current
        if recording.record is not None and belongs > last:
            yield Step("event", seconds, None, entry)
            continue
        yield Step("event", seconds, belongs, entry)
        if judged := judged_at.get(id(entry)):
            current = judged + 1
            if judged in by_number:
                content = Judged(by_number.pop(judged), verdict)
                yield Step("iteration", seconds, judged, content)
    for rest, iteration in sorted(by_number.items()):
        yield Step("iteration", None, rest, Judged(iteration, None))


def _timed(recording: Recording) -> Iterator[tuple[float, Event | RecordedCall | RecordedTool]]:
    """Events and calls in the order in which they ended, a tool's result after the call before it,
    with seconds since the first. A clock that was set back stands still, as does a run between a
    kill and its resumption."""
    ended, asked = math.inf, []
    for call in recording.calls:
        ended = _ended(call) if isinstance(call, RecordedCall) else ended
        asked.append((ended, call))
    asked.sort(key=lambda pair: pair[0])
    stamped = [(_stamp(event.time), event) for event in recording.events]
    happened = ((-math.inf if stamp is None else stamp, event) for stamp, event in stamped)
    seconds, before = 0.0, math.nan
    for stamp, entry in heapq.merge(asked, happened, key=lambda pair: pair[0]):
        if math.isfinite(stamp):
            resumed = isinstance(entry, Event) and (entry.kind, entry.message)
            if resumed != ("notice", "resumed") and stamp > before:
                seconds += stamp - before
            before = stamp
        yield round(seconds, 3), entry


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
    """`id` of the event that says what came of a candidate, to the candidate's number.

    A stage that was killed at its very end is run again: the last event for a candidate counts.
    """
    last: dict[int, int] = {}
    for event in events:
        found = _NUMBER.match(event.message)
        if event.stage == "verify" and event.kind == "finished" and found:
            last[int(found.group(1))] = id(event)
    return {event: number for number, event in last.items()}


def _ended(recorded: RecordedCall) -> float:
    """When the answer was there; infinity where no time is recorded."""
    stamp = _stamp(recorded.call.started)
    ended = math.inf if stamp is None else stamp + recorded.call.seconds
    return ended if math.isfinite(ended) else math.inf


def _stamp(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _content(step: Step, prompts: bool) -> dict[str, Any]:
    """What a step has beside its kind, its time and its candidate: plain values and records."""
    match step.content:
        case Event() as event:
            return {"event": event}
        case RecordedCall() as call:
            words = [_fields(m, *(() if prompts else ("text",))) for m in call.messages]
            return _fields(call, "entry") | {"messages": words}
        case RecordedTool() as told:
            return _fields(told, "entry", *(() if prompts else ("result",)))
        case Judged(iteration, verdict):
            kept = {"attempt": iteration.attempt, "why": iteration.why, "trials": iteration.trials}
            return {"verdict": verdict, **kept}
        case Recording() as recording:
            record, options = recording.record, recording.options
            return {
                "folder": str(recording.folder),
                "run_id": record.run_id if record else None,
                "date": record.date if record else None,
                "cudaops_version": record.cudaops_version if record else None,
                "device": record.device if record else options.device if options else None,
                "time_source": time_source(recording),
                "options": options,
            }
        case Ending(record, under_way):
            told_of = {"outcome", "reason", "verify", "model", "loop_time_seconds"}
            ended = (
                record.model_dump(mode="json", include=told_of | {"seconds_by_tool"})
                if record
                else {}
            )
            stage = under_way.stage if under_way else None
            return {"finished": record is not None, "under_way": stage, **ended}
        case Damage() | Patch() as plain:
            return plain._asdict()


def _fields(row: NamedTuple, *without: str) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in without}


def _plain(value: Any) -> Any:
    """As JSON has it; a number that it has not stands as text."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
