"""How rows of the metric table are written: one row, one constant, no name typed twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class MetricDef(NamedTuple):
    """One metric: ncu's name for it and what it says."""

    name: str
    """ncu's raw name, the key everywhere in cudaops."""
    label: str
    """As a person reads it; for rows of the details page exactly as ncu prints it."""
    unit: str
    """Canonical: %, us, byte, byte/s, hz, cycle, inst, ...; `text` for words, empty for counts."""
    section: str
    """Section of ncu's details page; for raw-only metrics the topic."""
    meaning: str
    on_details_page: bool = False
    aliases: tuple[str, ...] = ()
    """What other versions of ncu print under this label. Another counter or another denominator,
    so a value under such a name stays there and is never taken for this metric's."""
    also_shown: tuple[tuple[str, str], ...] = ()
    """Further (section, label) pairs of the details page that print this metric."""
    not_on: str = ""
    """Where the metric is known to be missing; empty: it is in the captures of tests/data/ncu."""


Row = Callable[..., str]


def section_rows(rows: list[MetricDef], section: str, *, on_details_page: bool = True) -> Row:
    """A function that appends a row of this section to `rows` and returns the row's name."""

    def row(
        name: str,
        label: str,
        unit: str,
        meaning: str,
        *,
        aliases: tuple[str, ...] = (),
        also_shown: tuple[tuple[str, str], ...] = (),
        not_on: str = "",
    ) -> str:
        rows.append(
            MetricDef(
                name, label, unit, section, meaning, on_details_page, aliases, also_shown, not_on
            )
        )
        return name

    return row
