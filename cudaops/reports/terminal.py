"""What a person reads on a terminal: a run's summary, a review's question, and progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from cudaops.domain.execution import LaunchCount
from cudaops.domain.judgement import Gate
from cudaops.domain.model_use import ModelUse
from cudaops.domain.run import Event, ProfileSummary, ReviewRequest, RunRecord
from cudaops.reports import content, costs, profiles
from cudaops.reports.next_steps import evidence_step, next_steps
from cudaops.reports.quantities import Clock, microseconds, one_line, without_control


def columns(*names: str) -> Table:
    """An empty table without borders."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def heading(text: str) -> RenderableType:
    """An empty line and a title."""
    return Group(Text(""), Text(one_line(text), style="bold cyan"))


def lines(given: Sequence[str]) -> RenderableType:
    """One printable line each, indented."""
    return indented(Group(*(Text(one_line(line)) for line in given)))


def unwrapped(line: str, style: str = "") -> RenderableType:
    """For paths and commands, which someone will copy: never broken, whatever the width."""
    return Text(line, style, no_wrap=True, overflow="ignore")


def indented(what: RenderableType) -> RenderableType:
    """Two columns to the right."""
    return Padding(what, (0, 0, 0, 2))


class Harmless:
    """What is set for a terminal without any character that could act on it, wherever in it a text
    of unknown origin stands."""

    def __init__(self, *parts: RenderableType) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._segments(console, options)

    def _segments(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(Group(*self._parts), options):
            if not segment.control:
                yield Segment(without_control(segment.text), segment.style)


_OUTCOME_STYLE = {
    "accepted": "bold green",
    "provisional": "bold yellow",
    "nothing_found": "bold cyan",
    "failed": "bold red",
}
_MARK_STYLE = {"pass": "green", "HELD": "bold yellow", "FAIL": "bold red"}


def _style_of(record: RunRecord) -> str:
    return _OUTCOME_STYLE["failed" if content.is_rejected(record) else record.outcome]


def run_summary(record: RunRecord) -> RenderableType:
    """Outcome, correctness, limits, attempts, model, gates, notices, files, next steps."""
    parts: list[RenderableType] = [outcome(record), *_correctness(record)]
    if record.profile is not None:
        parts += profile_parts(record.profile)
    if record.research is not None and record.research.citations:
        parts += [heading("Sources"), _notes(record)]
    if record.attempts:
        parts += [heading("Candidates"), attempts_table(content.attempt_rows(record))]
    if record.model is not None:
        parts += model_parts(record.model)
    if gates := content.gates_of(record):
        parts += [heading("Gates"), gate_table(gates, content.clock_of(record))]
    if record.notices:
        parts += [heading("Notices"), lines(record.notices)]
    parts += [
        Text(""),
        unwrapped(f"Files in {one_line(record.options.out, 4000)}", "bold cyan"),
        _files(record),
    ]
    parts += [
        heading("What to do next"),
        *(unwrapped(f"  {one_line(step, 4000)}") for step in next_steps(record)),
    ]
    return Harmless(*parts)


def short_summary(record: RunRecord) -> RenderableType:
    """Speedup, correctness, limit, next steps, then candidates, notices and files; `run_summary`
    has the evidence."""
    parts: list[RenderableType] = [outcome(record), *_correctness(record)]
    if missed := [gate for gate in content.gates_of(record) if not gate.passed]:
        parts += [heading("Gates not passed"), gate_table(missed, content.clock_of(record))]
    if record.profile is not None:
        parts += _limits(record.profile)
    steps = [*next_steps(record), *evidence_step(record)]
    parts += [
        heading("What to do next"),
        *(unwrapped(f"  {one_line(step, 4000)}") for step in steps),
    ]
    if record.attempts:
        rows = [
            row._replace(why=_first(row.why) if row.outcome == "rejected" else "")
            for row in content.attempt_rows(record)
        ]
        parts += [heading("Candidates"), attempts_table(rows)]
    if record.notices:
        parts += [heading("Notices"), lines(record.notices)]
    names = ", ".join(name for name, _ in content.files(record))
    folder = one_line(record.options.out, 4000)
    parts += [Text(""), unwrapped(f"Files in {folder}: {names}", "bold cyan")]
    return Harmless(*parts)


def _correctness(record: RunRecord) -> list[RenderableType]:
    """How the kept rewrite was compared with the baseline, and what the comparison can see; the
    latter alone where no rewrite was kept."""
    said = [*content.correctness_sentences(record), *content.oracle_sentences(record)]
    return [heading("Correctness"), lines(said)] if said else []


def _limits(summary: ProfileSummary) -> list[RenderableType]:
    """The limit of the kept rewrite, what helps against it, and the baseline's; the baseline's
    alone where no rewrite was kept."""
    if summary.best_verdict is None:
        return [*_verdict(summary), _what_helps(summary)]
    clock = _profiled_by(summary)
    return [
        heading(f"What limits {summary.baseline.kernel}"),
        lines(
            [
                f"Rewrite: {profiles.verdict_sentence(summary.best_verdict, clock)}",
                f"What helps: {profiles.relief_sentence(summary.best_verdict)}",
                f"Baseline: {profiles.verdict_sentence(summary.verdict_detail, clock)}",
            ]
        ),
    ]


def _profiled_by(summary: ProfileSummary) -> Clock:
    return Clock(summary.baseline.source, summary.baseline.device)


def _verdict(summary: ProfileSummary) -> list[RenderableType]:
    said = profiles.verdict_sentence(summary.verdict_detail, _profiled_by(summary))
    return [
        heading(f"What limits {summary.baseline.kernel}"),
        indented(Text(said, style="bold")),
    ]


def _what_helps(summary: ProfileSummary) -> RenderableType:
    return indented(Text(f"What helps: {profiles.relief_sentence(summary.verdict_detail)}"))


def _first(why: str) -> str:
    """So much of a reason as a line or two hold."""
    return why if len(why) <= _MOST_CHARACTERS else f"{why[:_MOST_CHARACTERS].rstrip()} ..."


def profile_parts(summary: ProfileSummary) -> list[RenderableType]:
    """The verdict with its evidence, the roofline and the lines of source that cost most."""
    verdict, baseline = summary.verdict_detail, summary.baseline
    clock = _profiled_by(summary)
    parts: list[RenderableType] = [
        *_verdict(summary),
        _evidence(summary),
        indented(
            Text(
                f"One launch: {microseconds(baseline.duration_us, profiles.time_clock(baseline))}."
            )
        ),
        indented(Text(profiles.roofline_sentence(verdict.roofline, clock, content.AUTHORS))),
        _what_helps(summary),
        indented(Text(profiles.metrics_sentence(summary))),
    ]
    if summary.best is not None and summary.best_verdict is not None:
        parts += _after(summary, clock)
    if baseline.hot_lines:
        parts += [heading(f"Hot lines ({clock})"), _hot_lines(summary)]
    if verdict.nvidia_rules:
        parts += [heading("Rules of Nsight Compute"), _rules(summary)]
    return [*parts, *(indented(Text(f"Note: {one_line(note)}")) for note in baseline.notes)]


def model_parts(use: ModelUse) -> list[RenderableType]:
    """What the run asked of its model, and what each role took of it."""
    table = columns("role", "calls", "tokens", "cost")
    for row in costs.role_rows(use):
        table.add_row(*map(Text, row))
    return [
        heading("Language model"),
        lines(costs.model_sentences(use)),
        indented(table),
    ]


def launch_lines(counts: Sequence[LaunchCount], files: Mapping[str, str]) -> Iterator[str]:
    """Kernel, file, launches and share of the time of each, in columns."""
    total = sum(c.counted_seconds for c in counts) or 1.0
    rows = [
        (
            one_line(c.kernel),
            one_line(files[c.kernel]),
            f"{c.launches:,}x",
            f"{100 * c.counted_seconds / total:.1f} %",
        )
        for c in counts
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for kernel, file, *numbers in rows:
        told = (kernel.ljust(widths[0]), file.ljust(widths[1]))
        right = (text.rjust(width) for text, width in zip(numbers, widths[2:], strict=True))
        yield "  ".join((*told, *right))


def attempts_table(rows: Sequence[content.AttemptRow]) -> RenderableType:
    """What was tried, how fast it was, and why it was kept or not."""
    table = columns("no", "outcome", "what")
    for row in rows:
        outcome = Text(row.outcome, style="green" if row.outcome != "rejected" else "red")
        what = Text(row.what)
        if row.time != "not timed":
            what.append(f"\n{row.time}, {row.speedup}")
        if row.why:
            what.append(f"\n{row.why}", style="dim")
        table.add_row(Text(row.number), outcome, what)
    return indented(table)


def gate_table(
    gates: Sequence[Gate], clock: Clock, *, every_number: bool = False
) -> RenderableType:
    """Every gate, its numbers where its sentence has none or it failed; report.md has them all."""
    table = columns("mark", "gate", "result")
    for row in content.gate_rows(tuple(gates), clock):
        mark = Text(row.word, style=_MARK_STYLE[row.word])
        detail = Text(row.summary)
        said = any(character.isdigit() for character in row.summary.replace(str(clock), ""))
        if row.numbers and (every_number or row.word != "pass" or not said):
            detail.append(f"\n{row.numbers}", style="dim")
        table.add_row(mark, Text(row.name), detail)
    return indented(table)


def outcome(record: RunRecord) -> RenderableType:
    """Outcome, speedup and times: the first lines of the summary."""
    title = Text.assemble(
        (content.outcome_word(record).upper(), _style_of(record)),
        "  ",
        (content.headline(record), "bold"),
    )
    said: list[RenderableType] = [title]
    if sentence := content.times_sentence(record):
        said.append(Text(sentence))
    if rows := content.configuration_rows(record):
        said += [
            _configurations(rows),
            indented(Text(content.configurations_sentence(record), style="dim")),
        ]
    took = f"{content.meaning(record)}; took {record.loop_time_seconds:.1f} s"
    said += [Text(f"  {line}", style="dim") for line in content.timing_sentences(record)]
    if program := content.program_sentence(record):
        said.append(Text(program))
    said += [Text(one_line(line, 600)) for line in content.background_sentences(record)]
    return Group(Text(""), *said, Text(took, style="dim"))


def _configurations(rows: Sequence[content.ConfigurationRow]) -> RenderableType:
    """Every launch configuration with its share, times and ratio."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("", "grid x block", "launches", "of the time", "baseline", "candidate", "ratio"):
        table.add_column(name, overflow="fold", justify="left" if "x" in name else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return indented(table)


def _after(summary: ProfileSummary, clock: Clock) -> list[RenderableType]:
    best, verdict = summary.best, summary.best_verdict
    assert best is not None
    assert verdict is not None
    return [
        heading("What limits the best rewrite"),
        indented(Text(profiles.verdict_sentence(verdict, clock))),
        indented(Text(f"One launch: {microseconds(best.duration_us, profiles.time_clock(best))}.")),
        indented(Text(profiles.roofline_sentence(verdict.roofline, clock, content.REWRITE))),
    ]


def _evidence(summary: ProfileSummary) -> RenderableType:
    table = columns("metric", "value", "bar", "source")
    for row in profiles.evidence_rows(summary.verdict_detail, summary):
        table.add_row(
            Text(row.label), Text(row.value), Text(row.comparison), Text(row.source, style="dim")
        )
    return indented(table)


def _hot_lines(summary: ProfileSummary) -> RenderableType:
    table = columns("share", "where", "what")
    for line in summary.baseline.hot_lines[:5]:
        what = Text(one_line(line.text, 120))
        what.append(f"\n{one_line(line.note)}", style="dim")
        table.add_row(Text(f"{line.share_pct:.0f} %"), Text(str(line.location)), what)
    return indented(table)


def _rules(summary: ProfileSummary) -> RenderableType:
    table = columns("type", "rule", "what")
    for row in profiles.rule_rows(summary.verdict_detail):
        if row.type == "INF" and not row.agrees:
            continue  # report.md and --json have them
        estimate = f"estimated speedup {row.estimate}" if row.estimate else ""
        what = Text("; ".join(part for part in (estimate, row.agrees) if part))
        what.append(f"\n{one_line(row.text, 110)}", style="dim")
        table.add_row(Text(row.type), Text(row.name), what)
    return indented(table)


def _notes(record: RunRecord) -> RenderableType:
    table = columns("note", "sections")
    for title, sections in content.notes_read(record).items():
        table.add_row(Text(title), Text("; ".join(sections), style="dim"))
    return indented(table)


def _files(record: RunRecord) -> RenderableType:
    table = columns("name", "purpose")
    for name, purpose in content.files(record):
        table.add_row(Text(name), Text(purpose, style="dim"))
    return indented(table)


def review_text(request: ReviewRequest) -> str:
    """Plain text, patch first, the question's facts last, where a terminal shows them."""
    lines = [request.patch.rstrip("\n"), "", f"{request.title}, proposed by {request.proposer}"]
    if request.why:
        lines.append(f"  why: {request.why}")
    lines += [f"  {line}" for line in request.gates]
    if request.quarantined:
        lines += ["", "a yes releases what is quarantined:"]
        lines += [f"  {line}" for line in request.quarantined]
    lines += ["", f"on a yes it is {request.outcome}: {request.reason}"]
    return "\n".join(lines)


_STYLES = {"finished": "", "progress": "dim", "started": "dim", "notice": "yellow", "failed": "red"}
_AGENT_WIDTH = 10
_MOST_CHARACTERS = 200
"""Of a message; events.jsonl has the rest."""


class Progress:
    """Prints events to a console. On a terminal a spinner stands for the agent at work; elsewhere
    every event is a plain line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without the spinner, while a person is asked."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def __call__(self, event: Event, seconds: float | None = None) -> None:
        """Show one event. `seconds`: since the run began; None: since this began to show it."""
        if event.kind == "started" and self._status is not None:
            self._status.update(Text(f"{event.agent}: {one_line(event.message, 120)}"))
            return
        elapsed = time.monotonic() - self._began if seconds is None else seconds
        message = one_line(event.message, _MOST_CHARACTERS)
        line = stamped(elapsed, event.agent, message, _STYLES[event.kind])
        self._console.print(line, soft_wrap=True)


def stamped(seconds: float, who: str, line: str, style: str) -> Text:
    """One line of progress: when, who, what."""
    return Text.assemble(
        (f"{seconds:7.1f} s  ", "dim"), (f"{who:<{_AGENT_WIDTH}}  ", "cyan"), (line, style)
    )
