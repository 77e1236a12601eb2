"""How a report is set on a terminal: headings, indents, columns, texts of many lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cudaops.reports.quantities import one_line, without_control


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
