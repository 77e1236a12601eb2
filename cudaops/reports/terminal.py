"""The summary a person reads when a run ends: a rich renderable made from the record alone."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudaops.domain.judgement import Gate
from cudaops.domain.run import ProfileSummary, RunRecord
from cudaops.reports import facts, times
from cudaops.reports.quantities import Clock, microseconds, one_line

_OUTCOME_STYLE = {
    "accepted": "bold green",
    "provisional": "bold yellow",
    "nothing_found": "bold cyan",
    "failed": "bold red",
}
_MARK_STYLE = {"pass": "green", "HELD": "bold yellow", "FAIL": "bold red"}


def run_summary(record: RunRecord) -> RenderableType:
    """Outcome, verdict, attempts, gates, notices, files and next steps, in that order."""
    parts: list[RenderableType] = [_outcome(record)]
    if record.profile is not None:
        parts += profile_parts(record.profile)
    if record.research is not None and record.research.citations:
        parts += [_heading("Notes it leaned on"), _notes(record)]
    if record.attempts:
        parts += [_heading("What was tried"), _attempts(record)]
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    if gates:
        parts += [_heading("Gates"), gate_table(gates, facts.clock_of(record))]
    if oracle := facts.oracle_sentences(record):
        parts += [_heading("What the comparison can see"), _lines(oracle)]
    if record.notices:
        parts += [_heading("Notices"), _lines(record.notices)]
    parts += [
        Text(""),
        _unwrapped(f"Files in {one_line(record.options.out, 4000)}", "bold cyan"),
        _files(record),
    ]
    parts += [
        _heading("What to do next"),
        *(_unwrapped(f"  {one_line(step, 4000)}") for step in facts.next_steps(record)),
    ]
    return Group(*parts)


def profile_parts(summary: ProfileSummary) -> list[RenderableType]:
    """The verdict with its evidence, the roofline and the lines of source that cost most."""
    verdict, baseline = summary.verdict_detail, summary.baseline
    clock = Clock(baseline.source, baseline.device)
    parts: list[RenderableType] = [
        _heading(f"What limits {baseline.kernel}"),
        _indented(Text(facts.verdict_sentence(verdict, clock), style="bold")),
        _evidence(summary),
        _indented(
            Text(f"One launch: {microseconds(baseline.duration_us, facts.time_clock(baseline))}.")
        ),
        _indented(Text(facts.roofline_sentence(verdict.roofline, clock))),
        _indented(Text(f"What helps: {one_line(verdict.relief, 600)}")),
        _indented(Text(facts.metrics_sentence(summary))),
    ]
    if summary.best is not None and summary.best_verdict is not None:
        parts += _after(summary, clock)
    if baseline.hot_lines:
        parts += [_heading(f"Where the cost is ({clock})"), _hot_lines(summary)]
    if verdict.nvidia_rules:
        parts += [_heading("What Nsight Compute's own rules say"), _rules(summary)]
    return [*parts, *(_indented(Text(f"Note: {one_line(note)}")) for note in baseline.notes)]


def gate_table(gates: Sequence[Gate], clock: Clock) -> RenderableType:
    """Every gate, its numbers where its sentence has none or it failed; report.md has them all."""
    table = _columns("mark", "gate", "what came out")
    for row in facts.gate_rows(tuple(gates), clock):
        mark = Text(row.word, style=_MARK_STYLE[row.word])
        detail = Text(row.summary)
        said = any(character.isdigit() for character in row.summary.replace(str(clock), ""))
        if row.numbers and not (row.word == "pass" and said):
            detail.append(f"\n{row.numbers}", style="dim")
        table.add_row(mark, Text(row.name), detail)
    return _indented(table)


def _outcome(record: RunRecord) -> RenderableType:
    title = Text.assemble(
        (record.outcome.replace("_", " ").upper(), _OUTCOME_STYLE[record.outcome]),
        "  ",
        (facts.headline(record), "bold"),
    )
    lines = [title]
    if sentence := facts.times_sentence(record):
        lines.append(Text(sentence))
    took = f"{facts.meaning(record)}; took {record.loop_time_seconds:.1f} s"
    lines += [Text(f"  {line}", style="dim") for line in times.timing_sentences(record)]
    if program := times.program_sentence(record):
        lines.append(Text(program))
    return Group(Text(""), *lines, Text(took, style="dim"))


def _after(summary: ProfileSummary, clock: Clock) -> list[RenderableType]:
    best, verdict = summary.best, summary.best_verdict
    assert best is not None
    assert verdict is not None
    return [
        _heading("What limits the best rewrite"),
        _indented(Text(facts.verdict_sentence(verdict, clock))),
        _indented(Text(f"One launch: {microseconds(best.duration_us, clock)}.")),
        _indented(Text(facts.roofline_sentence(verdict.roofline, clock))),
    ]


def _evidence(summary: ProfileSummary) -> RenderableType:
    table = _columns("metric", "value", "bar", "source")
    for row in facts.evidence_rows(summary.verdict_detail, summary):
        table.add_row(
            Text(row.label), Text(row.value), Text(row.comparison), Text(row.source, style="dim")
        )
    return _indented(table)


def _hot_lines(summary: ProfileSummary) -> RenderableType:
    table = _columns("share", "where", "what")
    for line in summary.baseline.hot_lines[:5]:
        what = Text(one_line(line.text, 120))
        what.append(f"\n{one_line(line.note)}", style="dim")
        table.add_row(Text(f"{line.share_pct:.0f} %"), Text(str(line.location)), what)
    return _indented(table)


def _rules(summary: ProfileSummary) -> RenderableType:
    table = _columns("type", "rule", "what")
    for row in facts.rule_rows(summary.verdict_detail):
        if row.type == "INF" and not row.agrees:
            continue  # report.md and --json have them
        estimate = f"may save {row.estimate}" if row.estimate else ""
        what = Text("; ".join(part for part in (estimate, row.agrees) if part))
        what.append(f"\n{one_line(row.text, 110)}", style="dim")
        table.add_row(Text(row.type), Text(row.name), what)
    return _indented(table)


def _notes(record: RunRecord) -> RenderableType:
    table = _columns("note", "sections")
    for title, sections in facts.notes_read(record).items():
        table.add_row(Text(title), Text("; ".join(sections), style="dim"))
    return _indented(table)


def _attempts(record: RunRecord) -> RenderableType:
    table = _columns("no", "outcome", "what")
    for row in facts.attempt_rows(record):
        outcome = Text(row.outcome, style="green" if row.outcome != "rejected" else "red")
        what = Text(row.what)
        if row.time != "not timed":
            what.append(f"\n{row.time}, {row.speedup}")
        what.append(f"\n{row.why}", style="dim")
        table.add_row(Text(row.number), outcome, what)
    return _indented(table)


def _files(record: RunRecord) -> RenderableType:
    table = _columns("name", "purpose")
    for name, purpose in facts.files(record):
        table.add_row(Text(name), Text(purpose, style="dim"))
    return _indented(table)


def _columns(*names: str) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _heading(text: str) -> RenderableType:
    return Group(Text(""), Text(one_line(text), style="bold cyan"))


def _lines(lines: Sequence[str]) -> RenderableType:
    return _indented(Group(*(Text(one_line(line)) for line in lines)))


def _unwrapped(line: str, style: str = "") -> RenderableType:
    """For paths and commands, which someone will copy: never broken, whatever the width."""
    return Text(line, style, no_wrap=True, overflow="ignore")


def _indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2))
