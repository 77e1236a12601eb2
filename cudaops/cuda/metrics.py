"""THE metric table: every metric cudaops knows, by ncu's raw name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from cudaops.cuda.metric_counters import COUNTER_ROWS
from cudaops.cuda.metric_details import DETAILS_ROWS
from cudaops.cuda.metric_rows import MetricDef
from cudaops.domain.profile import Metric, MetricSource
from cudaops.errors import InputError

__all__ = ["BY_LABEL", "METRICS", "MetricDef", "metric_def", "nearest_names", "value_of"]

METRICS: Mapping[str, MetricDef] = MappingProxyType(
    {row.name: row for row in (*DETAILS_ROWS, *COUNTER_ROWS)}
)
"""By raw name. Constants for the names live in `metric_details` and `metric_counters`."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: row.name for row in METRICS.values() for alias in row.aliases}
)
"""What other ncu versions print under a label, to the name used here: same unit, same meaning, not
the same measurement."""

BY_LABEL: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        shown: row.name
        for row in DETAILS_ROWS
        for shown in ((row.section, row.label), *row.also_shown)
    }
)
"""(section, label) of ncu's details page to the raw name."""


def metric_def(name: str) -> MetricDef:
    """The row of a raw name or of an older version's name for it.

    Raises:
        InputError: unknown; names the nearest ones.
    """
    row = METRICS.get(ALIASES.get(name, name))
    if row is None:
        near = ", ".join(nearest_names(name))
        hint = f"; nearest: {near}" if near else ""
        raise InputError(f"unknown metric {name!r}{hint}")
    return row


def nearest_names(name: str, count: int = 3) -> tuple[str, ...]:
    """Raw names closest to a name or a label, closest first; empty where nothing is close."""
    by_text = {row.name.lower(): row.name for row in METRICS.values()}
    by_text.update({row.label.lower(): row.name for row in METRICS.values()})
    wanted = name.lower().strip()
    containing = [n for text, n in by_text.items() if wanted and wanted in text]
    close = difflib.get_close_matches(wanted, by_text, n=2 * count, cutoff=0.5)
    found = dict.fromkeys([*containing, *(by_text[text] for text in close)])
    return tuple(found)[:count]


def value_of(name: str, value: float, source: MetricSource) -> Metric:
    """A Metric of the table with the table's unit.

    Raises:
        InputError: the name is not in the table.
    """
    row = metric_def(name)
    return Metric(name=row.name, value=value, unit=row.unit, source=source)
