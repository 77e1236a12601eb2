"""Techniques that a rewrite states, each behind a macro of its own:
`#define TECHNIQUE_FLOAT4_LOADS 1  // 16 bytes a load`."""

from __future__ import annotations

import re
from typing import NamedTuple

MOST = 6
"""Techniques of one rewrite that are switched off. Chosen: each is a build and a time; a rewrite
that states more lists its lines, not its ideas."""

_STATED = re.compile(
    r"^(?P<head>[ \t]*#[ \t]*define[ \t]+TECHNIQUE_(?P<name>[A-Z0-9_]{1,60})[ \t]+)1"
    r"(?P<tail>[ \t]*(?://[ \t]*(?P<says>[^\n]*))?)$",
    re.MULTILINE,
)


class StatedTechnique(NamedTuple):
    """One of them."""

    name: str
    """In lower case, without `TECHNIQUE_`."""
    says: str
    """The comment behind it; may be empty."""
    without: str
    """The text with this one switched off, and every line where it was."""


def stated_in(source: str) -> tuple[StatedTechnique, ...]:
    """The techniques that are on in a rewrite's text, in order, `MOST` at most."""
    found = list(_STATED.finditer(source))[:MOST]
    return tuple(
        StatedTechnique(
            m["name"].lower(),
            (m["says"] or "").strip(),
            source[: m.start()] + m["head"] + "0" + m["tail"] + source[m.end() :],
        )
        for m in found
    )
