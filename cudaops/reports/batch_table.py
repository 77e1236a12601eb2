"""A batch as one table: what a row says, for the terminal and for the page."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from cudaops.domain.batch import Batch, BatchRow
from cudaops.reports.quantities import Clock, one_line, times_faster
from cudaops.reports.terminal import columns


class ProgramLine(NamedTuple):
    """One program as a person reads it."""

    program: str
    kernel: str
    kind: str
    """Outcome or status as the record spells it."""
    word: str
    speedup: str
    """With its source, and its interval where it was measured; empty where there is none."""
    reason: str
    report: str | None


def lines_of(batch: Batch) -> list[ProgramLine]:
    """The rows, in order."""
    return [
        ProgramLine(
            one_line(row.program),
            one_line(row.kernel or ""),
            row.outcome or row.status,
            (row.outcome or row.status).replace("_", " "),
            speedup_of(row),
            one_line(row.reason),
            row.report,
        )
        for row in batch.rows
    ]


def speedup_of(row: BatchRow) -> str:
    """`8.68× (modelled for A10)`; `6.12× (measured on H200, CUDA events), 5.98× to 6.30×`."""
    if row.speedup is None or row.time_source is None:
        return ""
    told = times_faster(row.speedup, Clock(row.time_source, row.device or "an unknown device"))
    if row.speedup_low is None:
        return told
    high = "not bounded above" if row.speedup_high is None else f"to {row.speedup_high:.2f}×"
    return f"{told}, {row.speedup_low:.2f}× {high}"


def counted(batch: Batch) -> str:
    """`4 programs: 2 provisional, 1 nothing found, 1 wrong input`."""
    count = len(batch.rows)
    parts = [f"{number} {word.replace('_', ' ')}" for word, number in batch.counts.items()]
    return f"{count} program{'' if count == 1 else 's'}: {', '.join(parts)}"


def table(batch: Batch) -> RenderableType:
    """The batch for a terminal."""
    found = columns("program", "kernel", "outcome", "result")
    for line in lines_of(batch):
        told = [text for text in (line.speedup, line.reason) if text]
        found.add_row(*map(Text, (line.program, line.kernel, line.word, "\n".join(told))))
    return Group(found, Text(""), Text(counted(batch)))
