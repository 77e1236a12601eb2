"""The summary a person reads when a run ends: a rich renderable made from the record alone."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cudaops.domain.judgement import Gate
from cudaops.domain.model_use import ModelUse
from cudaops.domain.run import ProfileSummary, RunRecord
from cudaops.reports import facts, model_use, times
from cudaops.reports.layout import Harmless, columns, heading, indented, lines, unwrapped
from cudaops.reports.quantities import Clock, microseconds, one_line

_OUTCOME_STYLE = {
    "accepted": "bold green",
    "provisional": "bold yellow",
    "nothing_found": "bold cyan",
    "failed": "bold red",
}
_MARK_STYLE = {"pass": "green", "HELD": "bold yellow", "FAIL": "bold red"}


def run_summary(record: RunRecord) -> RenderableType:
    """Outcome, verdict, attempts, model, gates, notices, files, next steps, in that order."""
    parts: list[RenderableType] = [outcome(record)]
    if record.profile is not None:
        parts += profile_parts(record.profile)
    if record.research is not None and record.research.citations:
        parts += [heading("Notes it leaned on"), _notes(record)]
    if record.attempts:
        parts += [heading("What was tried"), attempts_table(facts.attempt_rows(record))]
    if record.model is not None:
        parts += model_parts(record.model)
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    if gates:
        parts += [heading("Gates"), gate_table(gates, facts.clock_of(record))]
    if oracle := facts.oracle_sentences(record):
        parts += [heading("What the comparison can see"), lines(oracle)]
    if record.notices:
        parts += [heading("Notices"), lines(record.notices)]
    parts += [
        Text(""),
        unwrapped(f"Files in {one_line(record.options.out, 4000)}", "bold cyan"),
        _files(record),
    ]
    parts += [
        heading("What to do next"),
        *(unwrapped(f"  {one_line(step, 4000)}") for step in facts.next_steps(record)),
    ]
    return Harmless(*parts)


def profile_parts(summary: ProfileSummary) -> list[RenderableType]:
    """The verdict with its evidence, the roofline and the lines of source that cost most."""
    verdict, baseline = summary.verdict_detail, summary.baseline
    clock = Clock(baseline.source, baseline.device)
    parts: list[RenderableType] = [
        heading(f"What limits {baseline.kernel}"),
        indented(Text(facts.verdict_sentence(verdict, clock), style="bold")),
        _evidence(summary),
        indented(
            Text(f"One launch: {microseconds(baseline.duration_us, facts.time_clock(baseline))}.")
        ),
        indented(Text(facts.roofline_sentence(verdict.roofline, clock))),
        indented(Text(f"What helps: {one_line(verdict.relief, 600)}")),
        indented(Text(facts.metrics_sentence(summary))),
    ]
    if summary.best is not None and summary.best_verdict is not None:
        parts += _after(summary, clock)
    if baseline.hot_lines:
        parts += [heading(f"Where the cost is ({clock})"), _hot_lines(summary)]
    if verdict.nvidia_rules:
        parts += [heading("What Nsight Compute's own rules say"), _rules(summary)]
    return [*parts, *(indented(Text(f"Note: {one_line(note)}")) for note in baseline.notes)]


def model_parts(use: ModelUse) -> list[RenderableType]:
    """What the run asked of its model, and what each role took of it."""
    table = columns("role", "calls", "tokens", "cost")
    for row in model_use.role_rows(use):
        table.add_row(*map(Text, row))
    return [
        heading("What the model was asked"),
        lines(model_use.model_sentences(use)),
        indented(table),
    ]


def attempts_table(rows: Sequence[facts.AttemptRow]) -> RenderableType:
    """What was tried, how fast it was, and why it was kept or not."""
    table = columns("no", "outcome", "what")
    for row in rows:
        outcome = Text(row.outcome, style="green" if row.outcome != "rejected" else "red")
        what = Text(row.what)
        if row.time != "not timed":
            what.append(f"\n{row.time}, {row.speedup}")
        what.append(f"\n{row.why}", style="dim")
        table.add_row(Text(row.number), outcome, what)
    return indented(table)


def gate_table(
    gates: Sequence[Gate], clock: Clock, *, every_number: bool = False
) -> RenderableType:
    """Every gate, its numbers where its sentence has none or it failed; report.md has them all."""
    table = columns("mark", "gate", "what came out")
    for row in facts.gate_rows(tuple(gates), clock):
        mark = Text(row.word, style=_MARK_STYLE[row.word])
        detail = Text(row.summary)
        said = any(character.isdigit() for character in row.summary.replace(str(clock), ""))
        if row.numbers and (every_number or row.word != "pass" or not said):
            detail.append(f"\n{row.numbers}", style="dim")
        table.add_row(mark, Text(row.name), detail)
    return indented(table)


def outcome(record: RunRecord) -> RenderableType:
    """What came of the run, with its times: the first lines of the summary."""
    title = Text.assemble(
        (record.outcome.replace("_", " ").upper(), _OUTCOME_STYLE[record.outcome]),
        "  ",
        (facts.headline(record), "bold"),
    )
    said = [title]
    if sentence := facts.times_sentence(record):
        said.append(Text(sentence))
    took = f"{facts.meaning(record)}; took {record.loop_time_seconds:.1f} s"
    said += [Text(f"  {line}", style="dim") for line in times.timing_sentences(record)]
    if program := times.program_sentence(record):
        said.append(Text(program))
    return Group(Text(""), *said, Text(took, style="dim"))


def _after(summary: ProfileSummary, clock: Clock) -> list[RenderableType]:
    best, verdict = summary.best, summary.best_verdict
    assert best is not None
    assert verdict is not None
    return [
        heading("What limits the best rewrite"),
        indented(Text(facts.verdict_sentence(verdict, clock))),
        indented(Text(f"One launch: {microseconds(best.duration_us, clock)}.")),
        indented(Text(facts.roofline_sentence(verdict.roofline, clock))),
    ]


def _evidence(summary: ProfileSummary) -> RenderableType:
    table = columns("metric", "value", "bar", "source")
    for row in facts.evidence_rows(summary.verdict_detail, summary):
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
    for row in facts.rule_rows(summary.verdict_detail):
        if row.type == "INF" and not row.agrees:
            continue  # report.md and --json have them
        estimate = f"may save {row.estimate}" if row.estimate else ""
        what = Text("; ".join(part for part in (estimate, row.agrees) if part))
        what.append(f"\n{one_line(row.text, 110)}", style="dim")
        table.add_row(Text(row.type), Text(row.name), what)
    return indented(table)


def _notes(record: RunRecord) -> RenderableType:
    table = columns("note", "sections")
    for title, sections in facts.notes_read(record).items():
        table.add_row(Text(title), Text("; ".join(sections), style="dim"))
    return indented(table)


def _files(record: RunRecord) -> RenderableType:
    table = columns("name", "purpose")
    for name, purpose in facts.files(record):
        table.add_row(Text(name), Text(purpose, style="dim"))
    return indented(table)
