"""Why transformations could not be made, with the line of the kernel that stands in their way."""

from __future__ import annotations

import re
from collections import Counter

from cudaops.domain.program import Kernel

_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_NAMED = re.compile(r"^what (\w+) does$|^([A-Za-z_]\w*)(?:, which\b| in the loop$| is read while\b)"
                    r"|^([A-Za-z_]\w*) reads threadIdx$|\bof (\w+) do not fit")  # fmt: skip
"""What refusals call by its name: a function, an array, a variable."""
_WORDS = (
    (re.compile(r"\bvolatile\b"), r"\bvolatile\b"),
    (re.compile(r"\bassembly\b"), r"\basm\b"),
    (re.compile(r"\breturn\b"), r"\breturn\b"),
    (re.compile(r"\b(warp collective|shuffle)"), r"\b__(shfl|ballot|any|all|match|reduce)\w*"),
    (re.compile(r"\bbarrier\b"), r"\b(__syncthreads\w*|__syncwarp)\b"),
    (re.compile(r"\bearly exit\b"), r"\b(break|return|goto)\b"),
    (re.compile(r"\baddress is taken\b"), r"&\s*[A-Za-z_]"),
)
"""Constructs that refusals describe, and how C spells them."""


def in_the_way(refused: Counter[str], kernel: Kernel) -> str:
    """The most frequent refusal, with `file:line` of what it names; one that names something in the
    kernel before one that only misses a pattern. Empty where nothing was refused."""
    ordered = [text for text, _ in refused.most_common()]
    for text in ordered:
        if place := place_of(text, kernel):
            return f"{text} ({place})"
    return ordered[0] if ordered else ""


def place_of(reason: str, kernel: Kernel) -> str:
    """`file:line` of the first thing in the kernel that a refusal speaks of; empty where it names
    none."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), kernel.text)
    body = code.find("{") + 1
    for pattern in _patterns(reason):
        at = re.compile(pattern)
        if found := at.search(code, body) or at.search(code):
            return f"{kernel.file}:{kernel.first_line + code.count(chr(10), 0, found.start())}"
    return ""


def _patterns(reason: str) -> list[str]:
    named = _NAMED.search(reason)
    found = [rf"\b{re.escape(x)}\b" for x in (named.groups() if named else ()) if x]
    return found + [spelled for says, spelled in _WORDS if says.search(reason)]
