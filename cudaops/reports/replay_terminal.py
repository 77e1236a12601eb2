"""A replay on a terminal: the lines of progress as the run printed them, and between them the run,
questions to the model, candidates, the patch and the end."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.text import Text

from cudaops.domain.run import Event
from cudaops.reports import facts, model_use, terminal
from cudaops.reports.layout import Harmless, heading, indented
from cudaops.reports.progress import Progress, stamped
from cudaops.reports.quantities import Clock, dollars, one_line, plain_lines
from cudaops.reports.recording import Damage, RecordedCall, RecordedTool, Recording
from cudaops.reports.replay import Ending, Judged, Patch, Step, time_source

ANSWER_LINES = 12
"""Of a model's answer, where the whole was not asked for: title, reason and the first directives
of a rewrite."""

_PATCH_STYLE = {"+": "green", "-": "red", "@": "cyan"}


def show(
    recording: Recording, steps: Iterable[Step], console: Console, *, prompts: bool = False
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

    def __init__(self, recording: Recording, *, prompts: bool) -> None:
        self._recording = recording
        self._prompts = prompts
        options, record = recording.options, recording.record
        device = record.device if record else options.device if options else ""
        self._clock = Clock(time_source(recording) or "unrecorded", device)

    def __call__(self, step: Step) -> RenderableType:
        """The step, with no character in it that could act on a terminal."""
        return Harmless(*self._parts(step))

    def _parts(self, step: Step) -> list[RenderableType]:
        seconds = step.seconds or 0.0
        match step.content:
            case RecordedCall() as call:
                return [stamped(seconds, "model", _call(call), "magenta"), *self._said(call)]
            case RecordedTool() as told:
                scope, name = one_line(told.scope, 40), one_line(told.tool, 80)
                line = f"{name} ({scope}) tells the model {told.characters:,} characters"
                words = [_block(told.result)] if self._prompts and told.result else []
                return [stamped(seconds, "tool", line, "dim"), *words]
            case Judged() as judged:
                return self._judged(judged)
            case Recording():
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
            gone = f"({message.characters:,} characters, left out when the recording was exported)"
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

    def _judged(self, judged: Judged) -> list[RenderableType]:
        attempt, number = judged.iteration.attempt, judged.iteration.number
        if attempt is None:
            return [heading(f"Candidate {number}: only its folder is left")]
        clock = Clock(attempt.judgement.time_source or self._clock.source, self._clock.device)
        return [
            heading(f"Candidate {number}: {attempt.judgement.outcome}"),
            terminal.attempts_table([facts.attempt_row(attempt, clock.device)]),
            terminal.gate_table(attempt.judgement.gates, clock, every_number=True),
            Text(""),
        ]


def _call(recorded: RecordedCall) -> str:
    call = recorded.call
    took = f"{model_use.tokens_text(call.tokens)}, {dollars(call.cost_usd)}, {call.seconds:.1f} s"
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
