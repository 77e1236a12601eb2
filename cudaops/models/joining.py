"""An answer that was cut off, and its continuation, made one text again."""

from __future__ import annotations

import re

CONTINUE = (
    "Your answer was cut off at the limit of its length. Continue exactly where it stopped: begin "
    "with the very next character, repeat nothing, open no new code fence inside an open one, and "
    "write no introduction."
)
"""Asks for the rest."""

LEAST_OVERLAP = 16
"""Characters that end one piece and begin the next before they count as repeated. Chosen: a closing
brace and its line break occur twice rightly, a whole statement hardly ever does."""

LONGEST_OVERLAP = 2000
"""Characters of a repetition looked for."""

_RESTART = 60
"""Characters that a continuation shares with the answer's beginning where it starts over."""

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:[^\n`~]{0,120}:[ \t]*\n\s*)?(?:```|~~~)([\w+#.-]*)[ \t]*\n")


def join(text: str, rest: str) -> str:
    """`text` with its continuation, what was said twice left out.

    A continuation that starts over replaces what it repeats, if it got at least as far.
    """
    if not text:
        return rest
    begun = text.lstrip()[:_RESTART]
    if len(begun) == _RESTART and rest.lstrip().startswith(begun):
        return rest if len(rest) >= len(text) else text
    if _inside_fence(text):
        rest = _without_opening(rest)
    return text + rest[_overlap(text, rest) :]


def _inside_fence(text: str) -> bool:
    return len(_FENCE.findall(text)) % 2 == 1


def _without_opening(rest: str) -> str:
    """The rest of a fenced text without a fence that opens it again.

    One with a language does; a bare one closes, unless fences come in pairs after it.
    """
    found = _OPENING.match(rest)
    if found is None or not (found[1] or len(_FENCE.findall(rest)) % 2 == 0):
        return rest
    return rest[found.end() :]


def _overlap(text: str, rest: str) -> int:
    """Characters at the start of `rest` that `text` already ends with."""
    longest = min(len(text), len(rest), LONGEST_OVERLAP)
    return next(
        (n for n in range(longest, LEAST_OVERLAP - 1, -1) if text.endswith(rest[:n])),
        0,
    )
