"""A patch, line by line, with the numbers of the lines in both files; and text of unknown origin.

What a reader cannot see is removed from prose and named in code: a right-to-left mark inside of a
kernel's source can make it read as another (CVE-2021-42574); the report shows such a character as
its code point.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from typing import Any, Literal, NamedTuple

from cudaops.reports.quantities import without_control

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories without a shape of their own: controls, directions, joiners, unassigned, line
and paragraph separators."""


class DiffSpan(NamedTuple):
    """Part of a text."""

    text: str
    """As it is, or `U+202E` for one character that has no shape."""
    hidden: bool


def hidden(character: str) -> bool:
    """Whether a character has no shape of its own. A tab has: it is expanded before."""
    return unicodedata.category(character) in _HIDDEN


def pieces(text: str) -> list[DiffSpan]:
    """One line of code in parts, characters without shape apart."""
    found = []
    for unseen, run in groupby(text.expandtabs(4), key=hidden):
        if unseen:
            found += [DiffSpan(f"U+{ord(character):04X}", True) for character in run]
        else:
            found.append(DiffSpan("".join(run), False))
    return found


def prose(value: Any) -> Any:
    """Jinja's `finalize`: whatever is printed loses what acts on a reader's eye; markup made by a
    template stays as it is, escaped already."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return without_control(value)
    return value


MOST_LINES = 4000
"""Lines that are shown; a patch is some hundred. What is left out is said."""
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")

Kind = Literal["file", "hunk", "add", "del", "same", "note"]


class DiffLine(NamedTuple):
    """One line of a patch or of a text."""

    kind: Kind
    number: str
    """Of the line in the new file, in the old one for a line that goes; empty for the rest."""
    sign: str
    pieces: list[DiffSpan]


class Diff(NamedTuple):
    """A patch that can be set."""

    lines: list[DiffLine]
    added: int
    removed: int
    left_out: int


def read_patch(text: str) -> Diff:
    """A unified patch; what is no part of one is shown as it is."""
    found: list[DiffLine] = []
    old = new = old_left = new_left = 0
    for line in _lines_of(text):
        hunk = _HUNK.match(line)
        sign = line[:1]
        if old_left <= 0 and new_left <= 0 and hunk is not None:
            old, new = int(hunk[1]), int(hunk[3])
            # A count that is not written is 1.
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
            found.append(DiffLine("hunk", "", "", pieces(line)))
        elif sign == "\\":
            found.append(DiffLine("note", "", "", pieces(line)))
        elif old_left <= 0 and new_left <= 0:
            found.append(DiffLine("file", "", "", pieces(line)))
        elif sign == "+":
            found.append(DiffLine("add", str(new), "+", pieces(line[1:])))
            new, new_left = new + 1, new_left - 1
        elif sign == "-":
            found.append(DiffLine("del", str(old), "−", pieces(line[1:])))
            old, old_left = old + 1, old_left - 1
        else:
            found.append(DiffLine("same", str(new), " ", pieces(line[1:])))
            old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
    return _cut(found)


def read_text(text: str) -> Diff:
    """A text that replaces nothing: every line numbered."""
    lines = [
        DiffLine("same", str(i), " ", pieces(x)) for i, x in enumerate(_lines_of(text), start=1)
    ]
    return _cut(lines)


def _lines_of(text: str) -> list[str]:
    """Lines as an editor has them; only a newline ends one, whatever Unicode says."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _cut(lines: list[DiffLine]) -> Diff:
    added = sum(line.kind == "add" for line in lines)
    removed = sum(line.kind == "del" for line in lines)
    return Diff(lines[:MOST_LINES], added, removed, max(0, len(lines) - MOST_LINES))
