"""How the run was made: what was asked, with which tools, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from cudaops.domain.run import RunRecord
from cudaops.reports import content
from cudaops.reports.html.beside import Beside
from cudaops.reports.quantities import one_line, significant

_BAR = 160.0
"""Length of the bar of the longest time."""


class Spent(NamedTuple):
    """Where seconds went."""

    name: str
    seconds: str
    bar: float
    """Length in the drawing, of `_BAR` for the longest."""


class HowView(NamedTuple):
    """Tables of the last section."""

    run: list[tuple[str, str]]
    options: list[tuple[str, str]]
    tools: list[tuple[str, str]]
    stages: list[Spent]
    by_tool: list[Spent]
    files: list[tuple[str, str]]
    notices: list[str]


def view(record: RunRecord, beside: Beside) -> HowView:
    """Options as they were in force, defaults included."""
    judgement, program = record.judgement, record.program
    run = [
        ("run", record.run_id),
        ("date", record.date),
        ("cudaops", record.cudaops_version),
        ("executor", f"{record.executor}, times {content.clock_of(record)}"),
        ("target", f"{record.device}, {record.sm_arch}"),
        ("isolation", (judgement and judgement.isolation) or "nothing was judged"),
        ("took", f"{significant(record.loop_time_seconds)} s"),
    ]
    if program is not None:
        run += [
            ("program", f"SHA-256 {program.source_sha256}"),
            ("captured", (f"{program.launches:,} launches of {program.callee}, of which "
                          f"{program.workloads} stand for the rest")),
            *(("not captured", limit) for limit in program.limits),
        ]  # fmt: skip
    notices = [*record.notices, *(f"Cannot be read: {one}" for one in beside.damage)]
    return HowView(
        _lines(run),
        _lines(_options(record)),
        _lines(sorted(record.tools.items())),
        _spent(record.seconds_by_stage),
        _spent(record.seconds_by_tool),
        content.files(record),
        [one_line(notice, 1000) for notice in notices],
    )


def _options(record: RunRecord) -> list[tuple[str, str]]:
    options, policy, search = record.options, record.options.policy, record.options.search
    no_limit = "no limit"
    rows: list[tuple[str, object]] = [
        ("program", options.source),
        ("its arguments", " ".join(options.argv) or "none"),
        ("kernel", options.kernel or "the one with most time"),
        ("optimizer", options.optimizer),
        ("model", options.model or options.no_model or "none"),
        ("search", f"{search.strategy}, width {search.width}, rounds {search.rounds}"),
        ("candidates at most", options.max_iterations),
        ("trials of the tuner", f"{options.max_trials} a rewrite"),
        ("bar", f"{policy.min_speedup:g}×"),
        ("confidence", f"{significant(100 * policy.confidence)} % of a whole run"),
        ("error allowed", f"{policy.max_error_factor:g} times the baseline's own"),
        ("precision allowed", policy.allow_precision or "the baseline's own alone"),
        ("device libraries", "allowed" if policy.allow_libraries else "not allowed"),
        ("review by a person", "yes" if policy.review else "no"),
        ("seed of the inputs", "drawn, secret" if policy.seed is None else policy.seed),
        ("limit of one run", f"{options.timeout_seconds:g} s"),
        ("most cost", no_limit if options.max_cost_usd is None else f"${options.max_cost_usd:g}"),
        ("most tokens", no_limit if options.max_tokens is None else f"{options.max_tokens:,}"),
        ("most minutes", no_limit if options.budget_minutes is None else options.budget_minutes),
        ("memory of earlier runs", "used" if options.use_memory else "not used"),
        ("confinement", "lifted: trusted source" if options.trust_source else "in force"),
    ]
    return [(name, str(value)) for name, value in rows]


def _lines(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(one_line(name), one_line(value)) for name, value in rows]


def _spent(seconds: Mapping[str, float]) -> list[Spent]:
    longest = max((s for s in seconds.values() if s < math.inf), default=0.0)
    return [
        Spent(one_line(name), f"{significant(value)} s",
              round(_BAR * value / longest, 1) if 0 < value <= longest else 0.0)
        for name, value in seconds.items()
    ]  # fmt: skip
