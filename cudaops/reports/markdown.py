"""report.md: the same facts as the terminal's, for a repository or a mail."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudaops.cuda.metrics import METRICS
from cudaops.domain.run import ProfileSummary, ProgramSummary, RunRecord
from cudaops.reports import content, costs, profiles
from cudaops.reports.quantities import Clock, microseconds, one_line, quantity


def run_report(record: RunRecord) -> str:
    """The whole report as Markdown. Text of the author or a model never becomes markup."""
    sections = [_head(record)]
    if record.profile is not None:
        sections.append(_profile(record.profile))
    if record.program is not None and record.program.accesses:
        sections.append(_accesses(record.program))
    if record.research is not None:
        sections.append(_research(record))
    if record.attempts:
        rows = [tuple(row) for row in content.attempt_rows(record)]
        header = ("no.", "what", "outcome", "time", "speedup", "why")
        sections.append("## Candidates\n\n" + _table(header, rows))
    sections += [
        _transformations(record),
        _instructions(record),
        _model(record),
        _gates(record),
        _oracle(record),
        _rewrite(record),
    ]
    if record.notices:
        sections.append("## Notices\n\n" + _bullets(record.notices))
    sections += [_files(record), _how(record)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(record: RunRecord) -> str:
    lines = [
        f"# {_text(content.kernel_of(record))}: {content.outcome_word(record)}",
        f"**{_text(content.headline(record))}**",
        _text(
            f"{content.times_sentence(record) or 'No candidate was timed'}; "
            f"{content.meaning(record)}."
        ),
        _text(record.reason),
    ]
    if rows := content.configuration_rows(record):
        header = ("", "grid x block", "launches", "of the time", "baseline", "candidate", "ratio")
        lines += [_table(header, rows), content.configurations_sentence(record)]
    if program := content.program_sentence(record):
        lines.append(_text(program))
    lines += map(_text, content.outcome_sentences(record))
    if timing := content.timing_sentences(record):
        lines.append(_bullets(timing))
    if record.time_source == "standin":
        lines.append(
            "> The GPU was a **stand-in** on this machine's processor: its times say nothing of "
            "any GPU. Correctness was checked by running the kernels."
        )
    if record.time_source == "modelled" and record.options.is_triton:
        lines.append("> Results were compared in **Triton's interpreter**; no time was measured.")
    elif record.time_source == "modelled":
        lines.append(
            f"> Every time and speedup here is **modelled** for {record.device}, not measured: "
            "no GPU took part. Correctness was checked by running the kernels."
        )
    return "\n\n".join(lines)


def _profile(summary: ProfileSummary) -> str:
    verdict, baseline = summary.verdict_detail, summary.baseline
    clock = Clock(baseline.source, baseline.device)
    rows = [tuple(row) for row in profiles.evidence_rows(verdict, summary)]
    parts = [
        f"## What limits `{baseline.kernel}`",
        f"**{_text(profiles.verdict_sentence(verdict, clock))}**",
        _table(("metric", "value", "threshold", "source"), rows),
        f"One launch: {microseconds(baseline.duration_us, profiles.time_clock(baseline))}. "
        + _text(profiles.roofline_sentence(verdict.roofline, clock, content.AUTHORS)),
        f"What helps: {_text(profiles.relief_sentence(verdict))}",
    ]
    if summary.best is not None and summary.best_verdict is not None:
        best_clock = Clock(summary.best.source, summary.best.device)
        parts.append(
            "After the rewrite: "
            f"{_text(profiles.verdict_sentence(summary.best_verdict, best_clock))} "
            f"One launch: "
            f"{microseconds(summary.best.duration_us, profiles.time_clock(summary.best))}. "
            + _text(
                profiles.roofline_sentence(
                    summary.best_verdict.roofline, best_clock, content.REWRITE
                )
            )
        )
    if baseline.hot_lines:
        hot = [
            (f"{h.share_pct:.0f} %", str(h.location), one_line(h.text), one_line(h.note))
            for h in baseline.hot_lines
        ]
        parts.append(f"Hot lines ({clock}):\n\n" + _table(("share", "where", "line", "what"), hot))
    if verdict.nvidia_rules:
        rules = [tuple(row) for row in profiles.rule_rows(verdict)]
        header = ("type", "rule", "estimated speedup", "agrees with", "text")
        parts.append("Rules of Nsight Compute:\n\n" + _table(header, rules))
    return "\n\n".join([*parts, _metrics(summary), _bullets(baseline.notes)]).rstrip()


def _accesses(program: ProgramSummary) -> str:
    """As read from the kernel's source, with the sizes of its most expensive launch."""
    rows = content.access_rows(program.accesses)
    header = (
        "line",
        "access",
        "index in elements",
        "stride to the next thread in x",
        "loops around it",
    )
    where = ", where `at.x` is `blockIdx.x * blockDim.x + threadIdx.x`"
    note = f"Derived from its source{where if any('at.' in row[2] for row in rows) else ''}."
    title = f"## Memory accesses of `{_text(program.kernel)}`"
    return f"{title}\n\n{note}\n\n" + _table(header, rows)


def _metrics(summary: ProfileSummary) -> str:
    device = summary.baseline.device
    rows = [
        (name, quantity(metric.value, metric.unit), str(Clock(metric.source, device)))
        for name, metric in sorted(summary.baseline.metrics.items())
        if name in METRICS
    ]
    title = f"{len(rows):,} metrics"
    if (more := len(summary.baseline.metrics) - len(rows)) > 0:
        title += f" with a known meaning; {more:,} more in run.json"
    title = f"<details><summary>{title}</summary>\n\n"
    return title + _table(("metric", "value", "source"), rows) + "\n\n</details>"


def _research(record: RunRecord) -> str:
    assert record.research is not None
    findings = record.research
    parts = ["## Sources", _text(findings.summary)]
    if findings.digest:
        parts.append(_text(findings.digest))
    if findings.degraded:
        parts.append(f"Fallback: {_text(findings.degraded)}")
    parts.append(
        _bullets(
            [f"{c.title}, {c.heading} ({c.note}). Source: {c.source}" for c in findings.citations]
        )
    )
    if findings.searched_with:
        parts.append(f"Searched with {_text(findings.searched_with)}.")
    return "\n\n".join(part for part in parts if part)


def _instructions(record: RunRecord) -> str:
    """What changed in SASS; that nothing is known, where nothing is."""
    title = "## What changed in SASS"
    if missing := content.instructions_missing(record):
        return f"{title}\n\nNot known: {_text(missing)}."
    rows = content.instruction_rows(record)
    table = _table(("class", "author's", "best"), rows)
    return f"{title}\n\n{content.INSTRUCTIONS}\n\n{table}" if rows else ""


def _transformations(record: RunRecord) -> str:
    """What the search took, and what each step of the winner brings."""
    if not record.transformations:
        return ""
    parts = ["## Transformations", _bullets(content.search_sentences(record))]
    if rows := content.share_rows(record):
        parts += [content.SHARES, _table(("step", "setting", "speedup"), rows)]
    return "\n\n".join(parts)


def _model(record: RunRecord) -> str:
    if record.model is None:
        return ""
    said = _bullets(costs.model_sentences(record.model))
    table = _table(("role", "calls", "tokens", "cost"), costs.role_rows(record.model))
    return f"## Language model\n\n{said}\n\n{table}"


def _gates(record: RunRecord) -> str:
    rows = [
        (row.word, row.name, row.summary, row.numbers)
        for row in content.gate_rows(content.gates_of(record), content.clock_of(record))
    ]
    return "## Gates\n\n" + _table(("", "gate", "result", "numbers"), rows) if rows else ""


def _oracle(record: RunRecord) -> str:
    said = content.oracle_sentences(record)
    if record.qualification is None:
        return ""
    rows = [
        (c.buffer, c.name + (f" {c.of}" if c.of else ""), c.outcome, c.caught_by or "", c.why)
        for c in record.qualification.controls
    ]
    table = _table(("buffer", "mutant", "outcome", "rejected by", "difference"), rows)
    return "## Sensitivity of the correctness check\n\n" + _bullets(said) + "\n\n" + table


def _rewrite(record: RunRecord) -> str:
    if record.best is None:
        return ""
    tuned = ", ".join(f"{name}={value}" for name, value in sorted(record.best.values().items()))
    longest = max((len(run) for run in re.findall("`+", record.best.source)), default=0)
    fence = "`" * max(3, longest + 1)
    language = "python" if record.options.is_triton else "cuda"
    return (
        f"## The rewrite\n\n{_text(record.best.title)}, proposed by {_text(record.best.proposer)}"
        f"{f', tuned {tuned}' if tuned else ''}. {_text(record.best.why)}\n\n"
        f"{fence}{language}\n{record.best.source.rstrip()}\n{fence}"
    )


def _files(record: RunRecord) -> str:
    return "## Files\n\n" + _table(("file", "what it is"), content.files(record))


def _how(record: RunRecord) -> str:
    interpreted = record.options.is_triton and record.time_source == "modelled"
    times = "Triton's interpreter, no times" if interpreted else f"times {content.clock_of(record)}"
    facts_of_run = [
        ("run", record.run_id),
        ("date", record.date),
        ("cudaops", record.cudaops_version),
        ("executor", f"{record.executor}, {times}"),
        *([] if interpreted else [("target", f"{record.device}, {record.sm_arch}")]),
        ("isolation", (record.judgement and record.judgement.isolation) or "not judged"),
        ("run time", f"{record.loop_time_seconds:.1f} s"),
        *(
            (f"time: {stage}", f"{seconds:.1f} s")
            for stage, seconds in record.seconds_by_stage.items()
        ),
        *(
            (f"tool time: {tool}", f"{seconds:.1f} s")
            for tool, seconds in sorted(record.seconds_by_tool.items())
        ),
        *sorted(record.tools.items()),
    ]
    return "## Run details\n\n" + _table(("", ""), facts_of_run)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_text(line)}" for line in lines)


def _text(text: str) -> str:
    escaped = one_line(text, 2000)
    for character in ("\\", "`", "*", "_", "|", "[", "#"):
        escaped = escaped.replace(character, "\\" + character)
    return escaped.replace("<", "&lt;")
