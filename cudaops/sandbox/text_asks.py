"""What a program's text asks of its numbers: which it compares with, and what it tells apart."""

from __future__ import annotations

import math
import re

from cudaops.program.lexing import without_comments

_NUMBER = re.compile(
    r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?=[uUlLfF]*\b|[^\w.]|$)"
)
_ASKS_NAN = re.compile(r"\b(?:__)?isn(?:an|umber)|\bisfinite\b|\b(\w+)\s*!=\s*\1\b")
_MOST_NUMBERS = 64


def numbers_in(text: str) -> tuple[float, ...]:
    """Finite numbers that are in a text, each once; few enough to draw from."""
    found: dict[float, None] = {}
    for one in _NUMBER.findall(without_comments(text)):
        found[_value(one)] = None
    return tuple(filter(math.isfinite, found))[:_MOST_NUMBERS]


def _value(number: str) -> float:
    """Infinite beyond a double's range, as the digits of a long number in a string are."""
    if number[:2] not in ("0x", "0X"):
        return float(number)
    try:
        return float(int(number, 16))
    except OverflowError:
        return math.inf


def asks_for_nan(text: str) -> bool:
    """Whether a text says what happens to a value that is no number."""
    return bool(_ASKS_NAN.search(without_comments(text)))


def tells_apart(text: str, name: str) -> bool:
    """Whether the text does one thing or another by an integer of this name: `switch (border)`,
    `kind == 2`. Comments are gone."""
    switch = rf"switch\s*\(\s*(?:\w+\.)?{name}\b"
    equal = rf"\b{name}\s*[!=]=|[!=]=\s*(?:\w+\.)?{name}\b"
    return bool(re.search(f"{switch}|{equal}", text))


def only_divides(text: str, name: str) -> bool:
    """Whether a kernel does nothing with a parameter of this name but divide by it: the larger it
    is, the less is reached."""
    body = without_comments(text).partition("{")[2]
    uses = re.findall(rf"(/?)\s*\b{name}\b", body)
    return bool(uses) and all(uses)
