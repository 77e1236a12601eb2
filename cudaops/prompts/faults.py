"""What a compiler or a gate complained about, cut to what helps to mend it."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_LOG_LINES = 40
MOST_LOG_CHARACTERS = 3000
"""Of a log in a prompt. Judgement: several errors with their notes; later ones follow from them."""
_AROUND = 3
"""Source lines shown before and after the one that a message names."""
_MOST_PLACES = 5

_PLACE = re.compile(r"candidate\.cu[:(](\d{1,6})|\bline (\d{1,6})\b|(?<![\w:.])(\d{1,6}):\d{1,6}: ")
"""A line of the rewrite, as compilers, hygiene and plan errors name it."""
_TELLING = re.compile(r"error|fatal|fault|undefined|mismatch|race|refused", re.IGNORECASE)


def named_lines(*texts: str) -> tuple[int, ...]:
    """Lines of the rewrite that messages name, in order of appearance, each once."""
    found = (int(next(filter(None, m.groups()))) for t in texts for m in _PLACE.finditer(t))
    return tuple(dict.fromkeys(found))[:_MOST_PLACES]


def excerpt(source: str, lines: Iterable[int]) -> str:
    """Those lines with some around them, numbered, `>` before the ones named; empty where none of
    them is in the source."""
    texts = source.splitlines()
    named = {n for n in lines if 1 <= n <= len(texts)}
    shown = sorted(
        {near for n in named for near in range(n - _AROUND, n + _AROUND + 1)}
        & set(range(1, len(texts) + 1))
    )
    rows = []
    for before, n in zip([0, *shown], shown, strict=False):
        if n != before + 1 and before:
            rows.append("...")
        rows.append(f"{'>' if n in named else ' '} {n:4} {texts[n - 1]}")
    return "\n".join(rows)


def bounded_log(log: str) -> str:
    """The lines of a log that tell something, with those around them; else its end.

    Says how many lines were left out.
    """
    lines = [line.rstrip()[:300] for line in log.splitlines() if line.strip()]
    telling = [i for i, line in enumerate(lines) if _TELLING.search(line)]
    if telling:
        near = {j for i in telling for j in range(i - 1, i + 4) if 0 <= j < len(lines)}
        kept = [lines[i] for i in sorted(near)][:MOST_LOG_LINES]
    else:
        kept = lines[-MOST_LOG_LINES:]
    while kept and sum(map(len, kept)) > MOST_LOG_CHARACTERS:
        kept.pop()
    left_out = len(lines) - len(kept)
    return "\n".join([*kept, f"[{left_out} lines left out]"] if left_out else kept)
