"""The rungs for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cudaops.doctor.records import Examination, Rung
from cudaops.reports.quantities import one_line

STYLES = {"ok": "green", "missing": "yellow", "failed": "red", "skipped": "dim"}


def table(examination: Examination) -> RenderableType:
    """One row a rung; those that were not tried for the same reason share one."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in range(3):
        rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for row in _rows(examination.rungs):
        rows.add_row(*row)
    return Group(rows, Text(""), *_verdict(examination))


def _rows(rungs: tuple[Rung, ...]) -> Iterator[tuple[Text, Text, Text, Text]]:
    for rung in rungs:
        if not rung.blocked_by:
            yield _row(rung)
            continue
        together = [other for other in rungs if other.blocked_by == rung.blocked_by]
        if together[0] is rung:
            yield _skipped(together)


def _skipped(together: list[Rung]) -> tuple[Text, Text, Text, Text]:
    names = ", ".join(rung.name for rung in together)
    several = len(together) > 1
    return (
        Text("skipped", style=STYLES["skipped"]),
        Text(f"{len(together)} rungs" if several else names, style="dim"),
        Text(""),
        Text(f"{together[0].detail}{f': {names}' if several else ''}", style="dim"),
    )


def _row(rung: Rung) -> tuple[Text, Text, Text, Text]:
    style = "bold red" if rung.needed and rung.status != "ok" else STYLES[rung.status]
    detail = Text(one_line(rung.detail))
    if rung.remedy:
        detail.append(f"\n{one_line(rung.remedy)}", style="cyan")
    return Text(rung.status, style=style), Text(rung.name), Text(_kind(rung), style="dim"), detail


def _kind(rung: Rung) -> str:
    if rung.needed:
        return "needed"
    return f"for {', '.join(rung.needed_by)}" if rung.needed_by else "optional"


def _verdict(examination: Examination) -> Iterator[Text]:
    if not examination.ready:
        yield Text("Not ready: mend the needed rungs that are not ok.", style="bold red")
        return
    yield Text("Ready: python -m cudaops run FILE.cu works here.", style="bold green")
    if "cuda" in examination.executors:
        yield Text("--executor cuda works here: times are measured.", style="bold green")
        return
    broken = [
        rung.name
        for rung in examination.rungs
        if "cuda" in rung.needed_by and rung.status in ("missing", "failed")
    ]
    yield Text(f"--executor cuda does not work here: {', '.join(broken)}.", style="yellow")
