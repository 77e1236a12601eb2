"""A step of a replay as a person reads it on a terminal."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from cudaops.domain.judgement import Attempt
from cudaops.domain.run import Event
from cudaops.reports import facts, model_use, terminal
from cudaops.reports.layout import Harmless, columns, heading, indented
from cudaops.reports.quantities import Clock, dollars, microseconds, one_line, plain_lines
from cudaops.reports.recorded_calls import Message, RecordedCall, RecordedTool
from cudaops.reports.recording import Damage, Iteration, Recording
from cudaops.reports.replay import Ending, Judged, Patch, Step, time_source

ANSWER_LINES = 12
"""Of a model's answer, where the whole was not asked for: title, reason and the first directives
of a rewrite."""

_EVENT_STYLE = {"started": "dim", "progress": "dim", "notice": "yellow", "failed": "red"}
_PATCH_STYLE = {"+": "green", "-": "red", "@": "cyan"}


class Shown:
    """Sets the steps of one recording."""

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
        match step.content:
            case Event():
                return [_event(step.content, step.seconds)]
            case RecordedCall():
                return self._call(step.content, step.seconds)
            case RecordedTool():
                return self._tool(step.content, step.seconds)
            case Judged():
                return self._judged(step.content)
            case Recording():
                return self._opening()
            case Damage():
                return [Text(f"not readable: {one_line(step.content.text)}", style="yellow")]
            case Patch():
                return _patch(step.content)
            case Ending():
                return self._ending(step.content)

    def _opening(self) -> list[RenderableType]:
        record, options = self._recording.record, self._recording.options
        name = record.run_id if record else self._recording.folder.name
        when = f", recorded {record.date} by cudaops {record.cudaops_version}" if record else ""
        said: list[RenderableType] = [Text(f"Replay of {one_line(name)}{when}", style="bold")]
        if options is not None:
            source = one_line(options.source, 4000)
            who = one_line(options.model) if options.model else options.optimizer
            said.append(Text(f"{source}, on {options.executor}, times {self._clock}, by {who}"))
        said.append(Text("Nothing is compiled, run or asked again.", style="dim"))
        return said

    def _call(self, recorded: RecordedCall, seconds: float | None) -> list[RenderableType]:
        call = recorded.call
        took = f"{model_use.tokens_text(call.tokens)}, {dollars(call.cost_usd)}"
        more = "" if call.tries == 1 else f", {call.tries} requests"
        problem = f"; {one_line(call.problem)}" if call.problem else ""
        ended = "" if call.outcome == "answered" else f", {call.outcome.replace('_', ' ')}"
        line = (
            f"{call.role} ({one_line(call.scope, 40)}) asks {one_line(call.model, 120)}: {took}, "
            f"{call.seconds:.1f} s{more}{ended}{problem}"
        )
        asked = ", ".join(f"{one_line(m.role, 20)} {m.characters:,}" for m in recorded.messages)
        parts: list[RenderableType] = [_stamped(seconds, "model", line, "magenta")]
        parts.append(indented(Text(f"asked, in characters: {asked or 'not recorded'}")))
        if self._prompts:
            parts += [part for message in recorded.messages for part in _message(message)]
        parts += [indented(Text(f"calls {one_line(tool)}")) for tool in recorded.tool_calls]
        return [*parts, *self._answer(recorded.answer)]

    def _tool(self, told: RecordedTool, seconds: float | None) -> list[RenderableType]:
        scope, name = one_line(told.scope, 40), one_line(told.tool, 80)
        line = f"{name} ({scope}) tells the model {told.characters:,} characters"
        parts: list[RenderableType] = [_stamped(seconds, "tool", line, "dim")]
        if self._prompts and told.result is not None:
            text = Text("\n".join(plain_lines(told.result)))
            parts.append(indented(indented(text)))
        return parts

    def _answer(self, answer: str) -> list[RenderableType]:
        said = plain_lines(answer.strip())
        if not answer.strip():
            return [indented(Text("no answer in words", style="dim"))]
        shown = said if self._prompts else said[:ANSWER_LINES]
        more = len(said) - len(shown)
        rest = f"... {more} more lines: --prompts shows them" if more else ""
        text = [*shown, rest] if rest else shown
        return [indented(Text("answered:")), indented(indented(Text("\n".join(text))))]

    def _judged(self, judged: Judged) -> list[RenderableType]:
        attempt, number = judged.iteration.attempt, judged.iteration.number
        if attempt is None:
            return [heading(f"Candidate {number}: only its folder is left")]
        outcome = attempt.judgement.outcome
        parts: list[RenderableType] = [heading(f"Candidate {number}: {outcome}")]
        parts.append(_table(self._about(judged, attempt)))
        if evidence := self._evidence(judged.verdict):
            parts += [_label("evidence for the verdict"), indented(indented(evidence))]
        if judged.iteration.trials:
            count = f"tuner, {len(judged.iteration.trials)} configurations"
            parts += [_label(count), indented(indented(self._trials(judged.iteration, attempt)))]
        clock = self._clock_of(attempt)
        gates = terminal.gate_table(attempt.judgement.gates, clock, every_number=True)
        return [*parts, _label("gates"), indented(gates), Text("")]

    def _about(self, judged: Judged, attempt: Attempt) -> list[tuple[str, str]]:
        row = facts.attempt_row(attempt, self._clock.device)
        failure = attempt.failure.placed if attempt.failure else None
        text = f"iterations/{judged.iteration.number:02d}/candidate.cu"
        given = [
            ("verdict", judged.verdict),
            ("tried", row.what),
            ("why", judged.iteration.why),
            ("author's", microseconds(attempt.baseline_us, self._clock_of(attempt))),
            ("candidate's", f"{row.time}, {row.speedup}"),
            ("failure", failure),
            ("judgement", f"{row.outcome}: {attempt.judgement.reason}"),
            ("lesson", attempt.lesson),
            ("text", text if judged.iteration.rewrite else None),
        ]
        return [(name, one_line(said, 1000)) for name, said in given if said]

    def _clock_of(self, attempt: Attempt) -> Clock:
        source = attempt.judgement.time_source or self._clock.source
        return Clock(source, self._clock.device)

    def _evidence(self, said: str | None) -> RenderableType | None:
        """What the verdict rests on, where the record has the verdict that was drawn then."""
        record = self._recording.record
        profile = record.profile if record else None
        if profile is None or said is None:
            return None
        verdict = profile.verdict_detail
        if not said.startswith(verdict.summary):
            if profile.best is None or profile.best_verdict is None:
                return None
            verdict = profile.best_verdict
            profile = profile.model_copy(update={"baseline": profile.best})
            if not said.startswith(verdict.summary):
                return None
        table = columns("metric", "value", "bar", "source")
        for row in facts.evidence_rows(verdict, profile):
            table.add_row(*map(Text, row))
        return table

    def _trials(self, iteration: Iteration, attempt: Attempt) -> RenderableType:
        """A row a configuration, in the order in which they were tried."""
        names = list(dict.fromkeys(name for trial in iteration.trials for name in trial.values))
        table = columns(*names, "time")
        table.add_row(*(Text(one_line(name), style="dim") for name in names), Text(""))
        clock = self._clock_of(attempt)
        for trial in iteration.trials:
            chosen = trial.values == attempt.tuned
            time = one_line(trial.failure) if trial.failure else microseconds(trial.time_us, clock)
            cells = [str(trial.values.get(name, "")) for name in names]
            style = "bold" if chosen else "dim"
            marked = f"{time}, chosen" if chosen else time
            table.add_row(*(Text(cell, style=style) for cell in (*cells, marked)))
        return table

    def _ending(self, ending: Ending) -> list[RenderableType]:
        record = ending.record
        if record is not None:
            used = terminal.model_parts(record.model) if record.model else []
            return [terminal.outcome(record), *used]
        where = ""
        if ending.under_way is not None:
            where = f" {ending.under_way.agent} was at it: {one_line(ending.under_way.message)}."
        return [
            Text(""),
            Text(
                f"The recording ends here: the run was killed, or is still under way.{where}",
                style="bold yellow",
            ),
        ]


def _event(event: Event, seconds: float | None) -> Text:
    line = one_line(event.message)
    took = event.data.get("seconds")
    if event.kind == "finished" and isinstance(took, float):
        line += f" ({took:.1f} s)"
    return _stamped(seconds, event.agent, line, _EVENT_STYLE.get(event.kind, ""))


def _stamped(seconds: float | None, who: str, line: str, style: str) -> Text:
    when = f"{seconds:7.1f} s  " if seconds is not None else " " * 11
    return Text.assemble((when, "dim"), (f"{who:<10}  ", "cyan"), (line, style))


def _message(message: Message) -> list[RenderableType]:
    title = Text(f"{one_line(message.role, 20)}:", style="bold")
    if message.text is None:
        gone = f"({message.characters:,} characters, left out when the recording was exported)"
        return [indented(title), indented(indented(Text(gone, style="dim")))]
    return [indented(title), indented(indented(Text("\n".join(plain_lines(message.text)))))]


def _patch(patch: Patch) -> list[RenderableType]:
    text = Text(overflow="ignore", no_wrap=True)
    for line in plain_lines(patch.text.rstrip("\n")):
        text.append(f"{line}\n", style=_PATCH_STYLE.get(line[:1], "dim"))
    return [heading("What it changes (best.patch)"), text]


def _label(text: str) -> RenderableType:
    return indented(Text(text, style="dim"))


def _table(rows: list[tuple[str, str]]) -> RenderableType:
    table = columns("name", "what")
    for name, what in rows:
        table.add_row(Text(name, style="dim"), Text(what))
    return indented(table)
