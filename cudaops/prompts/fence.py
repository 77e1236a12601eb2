"""Material inside a prompt: set apart so that nothing in it can pass for an instruction."""

from __future__ import annotations

import hashlib
import re
import unicodedata

MARK_DIGITS = 6
"""Hex digits of a fence's mark: enough that a second try is rare, few enough to cost few tokens."""

_CONTROL = re.compile(
    r"<(?=[|\uff5c])|<(?=/?s>)|<(?=/?(?:start|end)_of_turn>)|<(?=SPECIAL_\d)|\[(?=/?INST\])"
    r"|/(?=(?:no_)?think\b)",
    re.IGNORECASE,
)
"""Beginnings of what chat templates and tokenizers take for control words of their own, wherever
they stand in a message: `<|eot_id|>`, `</s>`, `<start_of_turn>`, `[INST]`, and of Nemotron
`<SPECIAL_12>` and `/no_think`. None of them is needed in CUDA source."""


def visible(text: str) -> str:
    """The text as a model may see it: one kind of line end, no control or invisible characters,
    and a space inside of whatever a chat template would take for a control word."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = "".join(c for c in lines if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)
    return _CONTROL.sub(lambda found: found.group() + " ", shown)


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co"})
"""Control, format (direction marks, tag characters), surrogate and private-use characters."""


def fenced(text: str) -> str:
    """The text between `<data-X>` and `</data-X>`, X being hex digits that it does not hold.

    The same text has the same fence, so that a prompt's beginning stays the same from call to call.
    X comes from a digest of the text, so that whoever writes the text cannot know it either.
    """
    shown = visible(text).strip("\n")
    mark = _mark(shown)
    return f"<data-{mark}>\n{shown}\n</data-{mark}>"


def _mark(text: str) -> str:
    held = text.lower()
    mark = hashlib.sha256(text.encode()).hexdigest()
    while mark[:MARK_DIGITS] in held:
        mark = hashlib.sha256(mark.encode()).hexdigest()
    return mark[:MARK_DIGITS]


def line(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= most else flat[: most - 3].rstrip() + "..."
