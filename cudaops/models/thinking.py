"""What a reasoning model thinks aloud, told apart from what it answers."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "<think>", "</think>"
_PAIR = re.compile(r"<think>.*?</think>", re.DOTALL)


def without_thinking(text: str) -> str:
    """The answer alone.

    A closing mark with no opening one ends thoughts that the chat template had begun; an opening
    one with no end means that the answer was cut off in mid-thought.
    """
    if "think>" not in text:
        return text
    text = _PAIR.sub("", text)
    text = text.rpartition(_CLOSE)[2]
    return text.partition(_OPEN)[0]


class VisibleText:
    """The same for a text that comes in pieces, to show while it comes."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False

    def feed(self, piece: str) -> str:
        """What of everything given so far can be shown now and was not before."""
        self._pending += piece
        shown = ""
        while True:
            mark = _CLOSE if self._inside else _OPEN
            before, found, after = self._pending.partition(mark)
            if not found:
                break
            shown += "" if self._inside else before
            self._inside = not self._inside
            self._pending = after
        kept = _begun(self._pending, mark)
        if not self._inside:
            shown += self._pending[: len(self._pending) - kept]
        self._pending = self._pending[len(self._pending) - kept :]
        return shown

    def rest(self) -> str:
        """What was held back because a mark might have begun there."""
        rest, self._pending = ("" if self._inside else self._pending), ""
        return rest


def _begun(text: str, mark: str) -> int:
    """Length of the longest end of `text` that begins `mark`."""
    return next((n for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), 0)
