"""Text of unknown origin: what a reader cannot see is removed from prose and named in code.

A right-to-left mark inside of a kernel's source can make it read as another (CVE-2021-42574); the
report shows such a character as its code point.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Any, NamedTuple

from cudaops.reports.quantities import without_control

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories without a shape of their own: controls, directions, joiners, unassigned, line
and paragraph separators."""


class Piece(NamedTuple):
    """Part of a text."""

    text: str
    """As it stands, or `U+202E` for one character that has no shape."""
    hidden: bool


def hidden(character: str) -> bool:
    """Whether a character has no shape of its own. A tab has: it is expanded before."""
    return unicodedata.category(character) in _HIDDEN


def pieces(text: str) -> list[Piece]:
    """One line of code in parts, characters without shape apart."""
    found = []
    for unseen, run in groupby(text.expandtabs(4), key=hidden):
        if unseen:
            found += [Piece(f"U+{ord(character):04X}", True) for character in run]
        else:
            found.append(Piece("".join(run), False))
    return found


def prose(value: Any) -> Any:
    """Jinja's `finalize`: whatever is printed loses what acts on a reader's eye; markup made by a
    template stays as it is, escaped already."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return without_control(value)
    return value
