"""A recorded run as steps, in the order and at the times at which they happened.

As JSON, one object a step; and on a terminal: the lines of progress as the run printed them, and
between them the run, questions to the model, candidates, the patch and the end.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.text import Text

from cudaops.domain.execution import TimeSource
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import InputError
from cudaops.reports import content, costs, terminal
from cudaops.reports.quantities import Clock, dollars, one_line, plain_lines
from cudaops.reports.recording import Damage, Iteration, RecordedCall, RecordedTool, RunRecording
from cudaops.reports.terminal import Harmless, Progress, heading, indented, stamped

LONGEST_WAIT = 3600.0
"""Seconds. A clock that was set forward while the run was recorded must not stop a replay."""

_ENDED = {"outcome", "reason", "verify", "model", "loop_time_seconds", "seconds_by_tool"}
_NUMBER = re.compile(r"iteration (\d{1,6}):")

StepKind = Literal[
    "run", "damage", "event", "model_call", "tool_result", "iteration", "patch", "end"
]


class JudgedCandidate(NamedTuple):
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


Content = (
    RunRecording | Damage | Event | RecordedCall | RecordedTool | JudgedCandidate | Patch | Ending
)


class ReplayStep(NamedTuple):
    """One thing that a replay shows."""

    kind: StepKind
    seconds: float | None
    """Since the first event, pauses between a kill and its resumption left out; None: no time of
    its own."""
    iteration: int | None
    """Candidate that it belongs to, from 1; None for what belongs to the whole run."""
    content: Content


def steps_of(recording: RunRecording) -> list[ReplayStep]:
    """Everything that can be shown, in order."""
    return [
        ReplayStep("run", None, None, recording),
        *(ReplayStep("damage", None, None, damage) for damage in recording.damage),
        *_timeline(recording),
        *_closing(recording),
    ]


def of_iteration(steps: Sequence[ReplayStep], number: int) -> list[ReplayStep]:
    """The way to one candidate: what it is about, and the steps that belong to it. Raises
    InputError where the recording has no such candidate."""
    known = sorted({step.iteration for step in steps if step.iteration is not None})
    if number not in known:
        there = ", ".join(map(str, known)) or "none"
        raise InputError(f"--iteration {number}: not in this recording, which has {there}")
    whole = ("run", "damage")
    return [step for step in steps if step.kind in whole or step.iteration == number]


def paced(
    steps: Sequence[ReplayStep], speed: float | None, sleep: Callable[[float], None]
) -> Iterator[ReplayStep]:
    """The steps, each after as long as the run took to get there, divided by `speed`; at once
    where `speed` is None."""
    before: float | None = None
    for step in steps:
        if speed is not None and step.seconds is not None:
            if before is not None and step.seconds > before:
                sleep(min((step.seconds - before) / speed, LONGEST_WAIT))
            before = step.seconds
        yield step


def time_source(recording: RunRecording) -> TimeSource | None:
    """Where the times in it come from; None where that is not recorded."""
    if recording.record is not None:
        return recording.record.time_source
    for iteration in recording.iterations:
        if iteration.attempt is not None and iteration.attempt.judgement.time_source is not None:
            return iteration.attempt.judgement.time_source
    on_cpu = recording.options is not None and recording.options.executor == "cpu"
    return "modelled" if on_cpu else None


def json_line(step: ReplayStep, *, prompts: bool) -> str:
    """One JSON object on one line, in ASCII: nothing in it acts on a terminal. A number that JSON
    has not, such as an infinite one, stands as text. `prompts`: with every word that the model was
    asked."""
    head = {"kind": step.kind, "seconds": step.seconds, "iteration": step.iteration}
    text = json.dumps(_plain(head | _content(step, prompts)), allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _timeline(recording: RunRecording) -> Iterator[ReplayStep]:
    """Events with the model's calls between them, each candidate after its judgement."""
    by_number = {iteration.number: iteration for iteration in recording.iterations}
    last, judged_at = max(by_number, default=0), _judgements(recording.events)
    current, verdict = 1, None
    for seconds, entry in _timed(recording):
        if not isinstance(entry, Event):
            number = re.match(r"\d{1,6}", entry.scope)
            kind: StepKind = "model_call" if isinstance(entry, RecordedCall) else "tool_result"
            yield ReplayStep(kind, seconds, int(number.group()) if number else None, entry)
            continue
        if entry.stage == "profiler" and entry.kind == "finished":
            verdict = entry.message
        belongs = current - 1 if entry.stage == "accepted" and current > 1 else current
        if recording.record is not None and belongs > last:
            yield ReplayStep("event", seconds, None, entry)
            continue
        yield ReplayStep("event", seconds, belongs, entry)
        if judged := judged_at.get(id(entry)):
            current = judged + 1
            if judged in by_number:
                content = JudgedCandidate(by_number.pop(judged), verdict)
                yield ReplayStep("iteration", seconds, judged, content)
    for rest, iteration in sorted(by_number.items()):
        yield ReplayStep("iteration", None, rest, JudgedCandidate(iteration, None))


MOST_GAPS = 12


def where_time_went(recording: RunRecording) -> list[RenderableType]:
    """Seconds by stage and by tool, as the record has them, and the longest stretches between two
    lines of progress, in the order in which they happened."""
    parts: list[RenderableType] = []
    record = recording.record
    for title, spent in (
        ("By stage", record.seconds_by_stage if record else {}),
        ("By what was at work (several at once count once each)",
         record.seconds_by_tool if record else {}),
    ):  # fmt: skip
        rows = sorted(spent.items(), key=lambda pair: -pair[1])
        shown = [
            Text(f"{seconds:7.1f} s  {one_line(name)}") for name, seconds in rows if seconds >= 0.05
        ]
        parts += [heading(title), *shown] if shown else []
    events = [(at, entry) for at, entry in _timed(recording) if isinstance(entry, Event)]
    gaps = [(there - at, at, entry) for (at, entry), (there, _) in itertools.pairwise(events)]
    longest = sorted(sorted(gaps, key=lambda gap: -gap[0])[:MOST_GAPS], key=lambda gap: gap[1])
    lines = [
        stamped(at, one_line(entry.agent), f"{gap:5.1f} s after: {_beginning(entry.message)}", "")
        for gap, at, entry in longest
        if gap >= 0.05
    ]
    return [*parts, heading("Longest without a line"), *lines]


def _beginning(message: str) -> str:
    line = one_line(message)
    return line if len(line) <= MOST_OF_LINE else f"{line[:MOST_OF_LINE]}…"


MOST_OF_LINE = 56


def _timed(recording: RunRecording) -> Iterator[tuple[float, Event | RecordedCall | RecordedTool]]:
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


def _closing(recording: RunRecording) -> Iterator[ReplayStep]:
    accepted = recording.record.verify.iteration_accepted if recording.record else None
    if recording.patch:
        yield ReplayStep("patch", None, accepted, Patch(recording.patch))
    under_way: dict[str, Event] = {}
    for event in recording.events:
        if event.kind == "started":
            under_way[event.stage] = event
        elif event.kind in ("finished", "failed"):
            under_way.pop(event.stage, None)
    unfinished = next(reversed(under_way.values()), None) if recording.record is None else None
    yield ReplayStep("end", None, None, Ending(recording.record, unfinished))


def _judgements(events: Sequence[Event]) -> dict[int, int]:
    """`id` of the event that reports a candidate's result, to the candidate's number.

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


def _content(step: ReplayStep, prompts: bool) -> dict[str, Any]:
    """What a step has beside its kind, its time and its candidate: plain values and records."""
    match step.content:
        case Event() as event:
            return {"event": event}
        case RecordedCall() as call:
            words = [_fields(m, *(() if prompts else ("text",))) for m in call.messages]
            return _fields(call, "entry") | {"messages": words}
        case RecordedTool() as told:
            return _fields(told, "entry", *(() if prompts else ("result",)))
        case JudgedCandidate(iteration, verdict):
            kept = {"attempt": iteration.attempt, "why": iteration.why, "trials": iteration.trials}
            return {"verdict": verdict, **kept}
        case RunRecording() as recording:
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


ANSWER_LINES = 12
"""Of a model's answer, where the whole was not asked for: title, reason and the first directives
of a rewrite."""

_PATCH_STYLE = {"+": "green", "-": "red", "@": "cyan"}


def show(
    recording: RunRecording, steps: Iterable[ReplayStep], console: Console, *, prompts: bool = False
) -> None:
    """Print steps as they come: events as the run did, by `Progress`. No character of a recording
    acts on a terminal. `prompts`: with every word that the model was asked and answered."""
    between = _Between(recording, prompts=prompts)
    with Progress(console) as progress:
        for step in steps:
            if isinstance(step.content, Event):
                progress(step.content, step.seconds)
            elif console.is_terminal or step.kind == "patch":
                console.print(between(step), crop=False, soft_wrap=step.kind == "patch")
            else:
                with console.capture() as capture:
                    console.print(between(step), crop=False)
                # Tables pad their last column.
                console.out("\n".join(map(str.rstrip, capture.get()[:-1].split("\n"))))


class _Between:
    """Sets the steps of one recording that are no event."""

    def __init__(self, recording: RunRecording, *, prompts: bool) -> None:
        self._recording = recording
        self._prompts = prompts
        options, record = recording.options, recording.record
        device = record.device if record else options.device if options else ""
        self._clock = Clock(time_source(recording) or "unrecorded", device)

    def __call__(self, step: ReplayStep) -> RenderableType:
        """The step, with no character in it that could act on a terminal."""
        return Harmless(*self._parts(step))

    def _parts(self, step: ReplayStep) -> list[RenderableType]:
        seconds = step.seconds or 0.0
        match step.content:
            case RecordedCall() as call:
                return [stamped(seconds, "model", _call(call), "magenta"), *self._said(call)]
            case RecordedTool() as told:
                scope, name = one_line(told.scope, 40), one_line(told.tool, 80)
                line = f"{name} ({scope}) tells the model {told.characters:,} characters"
                words = [_block(told.result)] if self._prompts and told.result else []
                return [stamped(seconds, "tool", line, "dim"), *words]
            case JudgedCandidate() as judged:
                return self._judged(judged)
            case RunRecording():
                return self._opening()
            case Damage() as damage:
                return [Text(f"not readable: {one_line(damage.text)}", style="yellow")]
            case Patch(text):
                return _patch(text)
            case Ending() as ending:
                return _ending(ending)
            case Event():
                raise TypeError("events are shown by Progress")

    def _opening(self) -> list[RenderableType]:
        record, options = self._recording.record, self._recording.options
        name = record.run_id if record else self._recording.folder.name
        when = f", recorded {record.date} by cudaops {record.cudaops_version}" if record else ""
        said: list[RenderableType] = [Text(f"Replay of {one_line(name)}{when}", style="bold")]
        if options is not None:
            source = one_line(options.source, 4000)
            who = one_line(options.model) if options.model else options.optimizer
            said.append(Text(f"{source}, on {options.executor}, times {self._clock}, by {who}"))
        return [*said, Text("Nothing is compiled, run or asked again.", style="dim")]

    def _said(self, call: RecordedCall) -> list[RenderableType]:
        """What was asked and answered: sizes and the first lines, or every word."""
        asked = ", ".join(f"{one_line(m.role, 20)} {m.characters:,}" for m in call.messages)
        parts = [indented(Text(f"asked, in characters: {asked or 'not recorded'}"))]
        for message in call.messages if self._prompts else ():
            gone = f"({message.characters:,} characters, removed by --export)"
            parts.append(indented(Text(f"{one_line(message.role, 20)}:", style="bold")))
            parts.append(_block(gone if message.text is None else message.text))
        parts += [indented(Text(f"calls {one_line(tool)}")) for tool in call.tool_calls]
        if not call.answer.strip():
            return [*parts, indented(Text("no answer in words", style="dim"))]
        lines = plain_lines(call.answer.strip())
        if not self._prompts and len(lines) > ANSWER_LINES:
            more = f"... {len(lines) - ANSWER_LINES} more lines: --prompts shows them"
            lines = [*lines[:ANSWER_LINES], more]
        return [*parts, indented(Text("answered:")), _block("\n".join(lines))]

    def _judged(self, judged: JudgedCandidate) -> list[RenderableType]:
        attempt, number = judged.iteration.attempt, judged.iteration.number
        if attempt is None:
            return [heading(f"Candidate {number}: only its folder is left")]
        clock = Clock(attempt.judgement.time_source or self._clock.source, self._clock.device)
        return [
            heading(f"Candidate {number}: {attempt.judgement.outcome}"),
            terminal.attempts_table([content.attempt_row(attempt, clock.device)]),
            terminal.gate_table(attempt.judgement.gates, clock, every_number=True),
            Text(""),
        ]


def _call(recorded: RecordedCall) -> str:
    call = recorded.call
    took = f"{costs.tokens_text(call.tokens)}, {dollars(call.cost_usd)}, {call.seconds:.1f} s"
    more = "" if call.tries == 1 else f", {call.tries} requests"
    ended = "" if call.outcome == "answered" else f", {call.outcome.replace('_', ' ')}"
    problem = f"; {one_line(call.problem)}" if call.problem else ""
    asks = f"{call.role} ({one_line(call.scope, 40)}) asks {one_line(call.model, 120)}"
    return f"{asks}: {took}{more}{ended}{problem}"


def _ending(ending: Ending) -> list[RenderableType]:
    record, at = ending.record, ending.under_way
    if record is not None:
        used = terminal.model_parts(record.model) if record.model else []
        return [terminal.outcome(record), *used]
    where = f" {at.agent} was at it: {one_line(at.message)}." if at else ""
    said = f"The recording ends here: the run was killed, or is still under way.{where}"
    return [Text(""), Text(said, style="bold yellow")]


def _patch(patch: str) -> list[RenderableType]:
    text = Text(overflow="ignore", no_wrap=True)
    for line in plain_lines(patch.rstrip("\n")):
        text.append(f"{line}\n", style=_PATCH_STYLE.get(line[:1], "dim"))
    return [heading("What it changes (best.patch)"), text]


def _block(text: str) -> RenderableType:
    return indented(indented(Text("\n".join(plain_lines(text)))))
