"""JSON as models write it: with sentences around it, raw line ends in strings, a comma too many."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_STARTS = 16
"""Places at which JSON is looked for; each costs one pass over the text."""
MAX_MENDED = 4
"""Of these, how many are mended where they cannot be read as they are: 0.15 s a megabyte (one core
of the development machine, 2026-11-20)."""

_DECODER = json.JSONDecoder(strict=False)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_OUTSIDE = re.compile(r",(?=\s{0,200}[}\]])|\b(?:None|True|False)\b")
_LITERALS = {",": "", "None": "null", "True": "true", "False": "false"}
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<other>.))', re.DOTALL)
_PROMISING = re.compile(r'\{\s*"|\[\s*[{"]')
_START = re.compile(r"[{\[]")


def json_values(text: str) -> tuple[Any, ...]:
    """The JSON objects and lists in a text, outermost only, in order. Never fails.

    Mended: raw line ends and unknown escapes in strings, commas before a closing bracket, Python's
    spelling of constants. A value that is cut off is left out.
    """
    found: list[Any] = []
    at = tries = mended = 0
    while tries < MAX_STARTS and (start := _START.search(text, at)):
        tries += 1
        at = start.start()
        value, length = _decoded(text[at:])
        if not length and mended < MAX_MENDED and _PROMISING.match(text, at):
            mended += 1
            value, length = _decoded_mended(text[at:])
        if length:
            found.append(value)
        at += length or 1
    return tuple(found)


def _decoded(text: str) -> tuple[Any, int]:
    """The value at the beginning and its length; length 0 where there is none."""
    try:
        return _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None, 0


def _decoded_mended(text: str) -> tuple[Any, int]:
    """As `_decoded`, of the text as JSON would have it."""
    pieces = list(_mended(text))
    value, end = _decoded("".join(new for _, new in pieces))
    taken = length = 0
    for old, new in pieces:
        if taken >= end:
            break
        taken, length = taken + len(new), length + len(old)
    return value, length - max(0, taken - end)


def _mended(text: str) -> Iterator[tuple[str, str]]:
    """The text in pieces, each as it was and as JSON wants it."""
    at = 0
    for string in _STRING.finditer(text):
        yield from _outside(text[at : string.start()])
        yield string.group(), _ESCAPE.sub(_escape, string.group())
        at = string.end()
    yield from _outside(text[at:])


def _outside(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for match in _OUTSIDE.finditer(text):
        yield text[at : match.start()], text[at : match.start()]
        yield match.group(), _LITERALS[match.group()]
        at = match.end()
    yield text[at:], text[at:]


def _escape(match: re.Match[str]) -> str:
    """A backslash before what JSON does not escape can only mean itself, or the quote it guards."""
    other = match["other"]
    if other is None:
        return match.group()
    return other if other == "'" else "\\\\" + other
