"""Cells of ncu's pages made into a Profile: every metric once, under one name and in one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cudaops.cuda import metric_details as details
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import ALIASES, BY_LABEL, METRICS
from cudaops.cuda.ncu_units import number, scale, to_canonical
from cudaops.domain.profile import Metric, NvidiaRule, Profile
from cudaops.errors import InputError

DISPLAY_NAME = "device__attribute_display_name"
_MISSING = {"", "n/a", "no data", "nan", "-nan", "inf", "-inf", "(null)", "none"}
"""What ncu prints, in any case, where it has no value."""


class Cell(NamedTuple):
    """One metric as a page prints it."""

    name: str
    """ncu's name; `section / label` for a row of the details page that the table does not know."""
    unit: str
    text: str


class NcuLaunch(NamedTuple):
    """One profiled launch."""

    id: int
    """ncu's number of the launch, from 0."""
    profile: Profile
    unknown_labels: tuple[str, ...] = ()
    """Rows of the details page that the metric table does not know, as `section / label`; they are
    in the profile under that name."""


class _Read(NamedTuple):
    metrics: dict[str, Metric]
    texts: dict[str, str]
    left_out: list[str]


def launch_of(
    facts: Mapping[str, str], cells: Iterable[Cell], rules: Sequence[NvidiaRule] = ()
) -> NcuLaunch:
    """The launch of these cells; `facts` are the page's own columns (`ID`, `Kernel Name`, `CC`).

    A value that is no number stays missing, and so does one that the page prints twice and
    differently. Metrics that the table does not know stay, under ncu's name, unscaled.

    Raises:
        InputError: no name or no duration, without which nothing can be said of a launch.
    """
    cells = list(cells)
    read = _read(cells)
    kernel = kernel_name(facts.get("Kernel Name", ""))
    duration = read.metrics.get(details.DURATION)
    if not kernel:
        raise InputError("a launch has no Kernel Name: export the page again, with all its columns")
    if duration is None or duration.value <= 0:
        raise InputError(
            f"{kernel} has no Duration: profile with `--set full` or add `--section SpeedOfLight`"
        )
    notes: tuple[str, ...] = ()
    if read.left_out:
        notes = (f"left out, their units cannot be read: {', '.join(sorted(read.left_out)[:10])}",)
    profile = Profile(
        kernel=kernel,
        device=_device(facts, read.texts),
        source="measured",
        duration_us=duration.value,
        metrics=read.metrics,
        texts=read.texts,
        nvidia_rules=tuple(rules),
        notes=notes,
    )
    unknown = tuple(dict.fromkeys(c.name for c in cells if " / " in c.name))
    return NcuLaunch(_identity(facts), profile, unknown)


class MetricCount(NamedTuple):
    """How many metrics a profile holds, words included."""

    details: int
    """Rows ncu's details page would show of them; it prints some metrics twice."""
    others: int
    """Metrics beyond that page."""


def counted(profile: Profile) -> MetricCount:
    """Count what a profile holds as ncu's own pages would."""
    held = {*profile.metrics, *profile.texts}
    named = [name for name in BY_LABEL.values() if name in held]
    unknown = sum(1 for name in held if " / " in name)
    return MetricCount(len(named) + unknown, len(held) - len(set(named)) - unknown)


def metrics_parsed(profile: Profile) -> int:
    """What a record gives as its number of metrics: the rows of ncu's details page where ncu
    measured the launch, else every metric that is known."""
    return counted(profile).details if profile.source == "measured" else len(profile.metrics)


def kernel_name(shown: str) -> str:
    """The unqualified name in what ncu prints: `void ns::reg<64, 64>(const float *)` is `reg`."""
    bare = re.sub(r"\(anonymous namespace\)|<unnamed>", "", shown)
    head = re.split(r"[<(]", bare, maxsplit=1)[0]
    return re.split(r"[\s:]+", head.strip())[-1]


def _read(cells: Iterable[Cell]) -> _Read:
    read = _Read({}, {}, [])
    contradicted: set[str] = set()
    for cell in cells:
        if cell.text.lower() in _MISSING:
            continue
        before = read.metrics.get(cell.name) or read.texts.get(cell.name)
        _take(cell, read)
        after = read.metrics.get(cell.name) or read.texts.get(cell.name)
        if before is not None and before != after:
            contradicted.add(cell.name)
    for name in contradicted:
        read.metrics.pop(name, None)
        read.texts.pop(name, None)
    return read


def _take(cell: Cell, read: _Read) -> None:
    row = METRICS.get(ALIASES.get(cell.name, cell.name))
    value = number(cell.text)
    if row is not None and row.unit == "text":
        read.texts[cell.name] = cell.text
    elif value is not None:
        # ncu prints no unit for the stack size.
        unit = cell.unit or ("byte" if cell.name == details.STACK_SIZE else "")
        found = scale(unit)
        wanted, value = found.unit, value * found.factor
        if row is not None:
            try:
                wanted, value = row.unit, to_canonical(value, found.unit, row.unit)
            except InputError:
                read.left_out.append(cell.name)
                return
        read.metrics[cell.name] = Metric(name=cell.name, value=value, unit=wanted, source="ncu")
    elif row is None:
        read.texts[cell.name] = cell.text


def _device(facts: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The short name where the page tells the device, else what it tells."""
    full = texts.get(DISPLAY_NAME, "")
    for known in DEVICES.values():
        if full == known.full_name:
            return known.name
    return full or f"compute capability {facts.get('CC') or 'unknown'}"


def _identity(facts: Mapping[str, str]) -> int:
    text = facts.get("ID", "")
    return int(text) if text.isdecimal() else 0
