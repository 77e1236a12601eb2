"""Nsight Compute's CSV pages read into Profiles whose metrics carry the table's names and units."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from cudaops.cuda import metric_details
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import ALIASES, BY_LABEL, METRICS
from cudaops.domain.profile import Metric, Profile
from cudaops.errors import InputError


class NcuRule(NamedTuple):
    """What one of NVIDIA's own rules said about a launch."""

    section: str
    name: str
    kind: str
    """`INF`, `OPT` or `WRN`."""
    text: str
    speedup_kind: Literal["global", "local"] | None
    """`local`: of the part the rule looks at, not of the launch; None: no estimate."""
    estimated_speedup_pct: float | None


class NcuLaunch(NamedTuple):
    """One profiled launch."""

    id: int
    """ncu's number of the launch, from 0."""
    profile: Profile
    texts: Mapping[str, str]
    """Metrics that are words, by raw name: cache configuration, cluster policy."""
    rules: tuple[NcuRule, ...] = ()
    """From the details page; the raw page holds none."""
    unknown_labels: tuple[str, ...] = ()
    """Rows of the details page that the metric table does not know, as `section / label`."""


class _Row(NamedTuple):
    section: str
    label: str
    unit: str
    text: str


_PREFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SECONDS = {"s": 1e6, "second": 1e6, "ms": 1e3, "msecond": 1e3, "us": 1.0, "usecond": 1.0,
            "ns": 1e-3, "nsecond": 1e-3}  # fmt: skip
_HERTZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "cycle/second": 1.0,
          "cycle/usecond": 1e6, "cycle/nsecond": 1e9}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d[\d,]*)(\.\d+)?([eE][+-]?\d+)?")


def parse_details(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of `ncu --csv --page details`, in the file's order.

    Numbers are as printed, so rounded to two decimals; the raw page has more. A value that is not
    a number (`n/a`, `no data`) stays missing.

    Raises:
        InputError: not that page, or no launch in it.
    """
    header, rows = _table(text, "Metric Name")
    launches: dict[str, list[list[str]]] = {}
    for row in rows:
        launches.setdefault(row[0], []).append(row)
    if not launches:
        raise InputError("the details page holds no launch: was a kernel profiled?")
    column = {name: i for i, name in enumerate(header)}
    return tuple(_from_details(rows, column) for rows in launches.values())


def parse_raw(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of `ncu --csv --page raw`, in the file's order; metrics of the table only.

    Raises:
        InputError: not that page, or no launch in it.
    """
    header, rows = _table(text, "Kernel Name")
    units = next(rows, None)
    launches = tuple(_from_raw(header, units or [], row) for row in rows)
    if not launches:
        raise InputError("the raw page holds no launch: was a kernel profiled?")
    return launches


def parse_csv(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of either page.

    Raises:
        InputError: neither page, or no launch in it.
    """
    header, _ = _table(text, "Kernel Name")
    return parse_details(text) if "Metric Name" in header else parse_raw(text)


def to_canonical(value: float, unit: str, wanted: str) -> float:
    """A printed value in the table's unit: `415.3 us`, `20.21 Gbyte/s`, `3.20 Ghz`, `4.10 Kbyte`.

    Raises:
        InputError: the unit cannot be turned into the wanted one.
    """
    if unit == wanted or not unit or not wanted:
        return value
    if wanted == "us" and unit in _SECONDS:
        return value * _SECONDS[unit]
    if wanted == "hz" and unit.lower() in _HERTZ:
        return value * _HERTZ[unit.lower()]
    plain = unit.replace("/second", "/s")
    if plain == wanted:
        return value
    if plain[1:] == wanted and plain[0] in _PREFIX:
        return value * _PREFIX[plain[0]]
    if _same_quantity(plain, wanted):
        return value
    raise InputError(f"cannot read unit {unit!r} as {wanted!r}: the metric table needs this unit")


def _same_quantity(unit: str, wanted: str) -> bool:
    # ncu's versions differ in what a mere count is called; only a scaled unit changes the number.
    scaled = {"%", "us", "hz", "byte", "byte/s", "byte/block", "byte/sector"}
    return wanted not in scaled and unit[:1] not in _PREFIX


def _table(text: str, needed: str) -> tuple[list[str], Iterator[list[str]]]:
    """The header that holds `needed` and the rows under it; lines before it are ncu's chatter."""
    rows = csv.reader(io.StringIO(text))
    for row in rows:
        if needed in row and "ID" in row:
            return row, (r for r in rows if len(r) > 1)
    raise InputError(
        f"no column {needed!r} found: give the output of `ncu --import REPORT --csv --page "
        "details` or `--page raw`"
    )


def _from_details(rows: list[list[str]], column: Mapping[str, int]) -> NcuLaunch:
    cells: dict[str, _Row] = {}
    unknown: list[str] = []
    rules: list[NcuRule] = []
    for row in rows:

        def cell(name: str, row: list[str] = row) -> str:
            place = column.get(name)
            return row[place].strip() if place is not None and place < len(row) else ""

        label, section = cell("Metric Name"), cell("Section Name")
        if cell("Rule Name"):
            rules.append(_rule(section, cell))
        elif label:
            name = BY_LABEL.get((section, label))
            if name is None:
                unknown.append(f"{section} / {label}")
            else:
                cells[name] = _Row(section, label, cell("Metric Unit"), cell("Metric Value"))
    first = rows[0]
    facts = {n: first[i] for n, i in column.items() if i < len(first)}
    return _launch(facts, cells, tuple(rules), tuple(unknown))


def _rule(section: str, get: Callable[[str], str]) -> NcuRule:
    kind = get("Estimated Speedup Type")
    return NcuRule(
        section=section,
        name=get("Rule Name"),
        kind=get("Rule Type"),
        text=" ".join(get("Rule Description").split()),
        speedup_kind="global" if kind == "global" else "local" if kind == "local" else None,
        estimated_speedup_pct=_number(get("Estimated Speedup")),
    )


def _from_raw(header: list[str], units: list[str], row: list[str]) -> NcuLaunch:
    cells: dict[str, _Row] = {}
    for name, unit, text in zip(header, units, row, strict=False):
        known = METRICS.get(ALIASES.get(name, name))
        if known is not None and (name == known.name or known.name not in cells):
            cells[known.name] = _Row(known.section, known.label, unit, text.strip())
    facts = dict(zip(header, row, strict=False))
    return _launch(facts, cells, (), ())


def _launch(
    facts: Mapping[str, str],
    cells: Mapping[str, _Row],
    rules: tuple[NcuRule, ...],
    unknown: tuple[str, ...],
) -> NcuLaunch:
    metrics: dict[str, Metric] = {}
    texts: dict[str, str] = {}
    for name, row in cells.items():
        wanted = METRICS[name].unit
        if wanted == "text":
            texts[name] = row.text
        elif (number := _number(row.text)) is not None:
            value = to_canonical(number, row.unit, wanted)
            metrics[name] = Metric(name=name, value=value, unit=wanted, source="ncu")
    duration = metrics.get(metric_details.DURATION)
    if duration is None:
        raise InputError(
            f"{facts.get('Kernel Name', 'the launch')} has no Duration: profile with `--set full` "
            "or add `--section SpeedOfLight`"
        )
    profile = Profile(
        kernel=kernel_name(facts.get("Kernel Name", "")),
        device=_device_key(facts),
        source="measured",
        duration_us=duration.value,
        metrics=metrics,
    )
    return NcuLaunch(int(facts.get("ID") or 0), profile, texts, rules, unknown)


def kernel_name(shown: str) -> str:
    """The unqualified name in what ncu prints: `void ns::reg<64, 64>(const float *)` is `reg`."""
    bare = re.sub(r"\(anonymous namespace\)|<unnamed>", "", shown)
    head = re.split(r"[<(]", bare, maxsplit=1)[0]
    return re.split(r"[\s:]+", head.strip())[-1]


def _device_key(facts: Mapping[str, str]) -> str:
    """The short name where the page tells the device, else what it tells."""
    full = facts.get("device__attribute_display_name", "")
    for known in DEVICES.values():
        if full == known.full_name:
            return known.name
    return full or f"compute capability {facts.get('CC', 'unknown')}"


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    return float(text.replace(",", ""))


def merged(details: Iterable[NcuLaunch], raw: Iterable[NcuLaunch]) -> tuple[NcuLaunch, ...]:
    """Launches of both pages of one report, joined by ncu's number: the raw page's precise numbers
    where both know a metric, the details page's rules and words."""
    by_id = {launch.id: launch for launch in details}
    joined = []
    for launch in raw:
        other = by_id.get(launch.id)
        if other is None:
            joined.append(launch)
            continue
        metrics = {**other.profile.metrics, **launch.profile.metrics}
        profile = launch.profile.model_copy(update={"metrics": metrics})
        joined.append(other._replace(profile=profile, texts={**other.texts, **launch.texts}))
    return tuple(joined)
