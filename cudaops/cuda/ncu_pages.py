"""Nsight Compute's pages read into Profiles: every metric once, under the table's name and in one
unit.

Pages come from other machines and other versions of ncu, cut, edited and concatenated: what cannot
be read is missing or refused in one line, and never a number from another cell.

ncu scales what it prints by itself (`20.21 Gbyte/s`, `415.30 us`, `0.77 %/Kbyte`); a report file
holds the same numbers unscaled. Both end in the same number here.

The details page names no device, only the compute capability, which several share. What it measured
tells them apart: the number of SMs, and the DRAM bandwidth that its two DRAM rows imply.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.metrics import ALIASES, BY_LABEL, METRICS
from cudaops.domain.profile import Metric, NvidiaRule, Profile
from cudaops.errors import InputError

_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,(\d{1,2}|\d{4,})|[+-]?\d{1,3}(\.\d{3})+,\d+", re.ASCII)
"""What no page with decimal points holds: `96,50`, `1,234567`, `821.629,12`."""

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MICROSECONDS = {"s": 1e6, "second": 1e6, "ms": 1e3, "msecond": 1e3, "us": 1.0, "usecond": 1.0,
                 "ns": 1e-3, "nsecond": 1e-3}  # fmt: skip
_HERTZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "cycle/second": 1.0, "cycle/s": 1.0,
          "cycle/usecond": 1e6, "cycle/us": 1e6, "cycle/nsecond": 1e9, "cycle/ns": 1e9}  # fmt: skip
_BYTES = re.compile(r"([KMGT]?)bytes?")
_SCALED = {"%", "us", "hz", "byte", "byte/s", "byte/block", "byte/sector", "byte/cycle"}


class Scale(NamedTuple):
    """Unit and factor of a printed unit."""

    unit: str
    factor: float
    """Of the printed number."""


def number(text: str) -> float | None:
    """The number in a cell, thousands separated or not; None for words, `n/a`, `nan`, `inf` and
    what no float can hold."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def has_decimal_comma(text: str) -> bool:
    """Whether this cell can only be a number with a decimal comma."""
    return _DECIMAL_COMMA.fullmatch(text) is not None


def scale(unit: str) -> Scale:
    """The unscaled unit a printed one stands for: times in us, clocks in hz, data in byte, rates a
    second. A unit that is not known stands for itself."""
    if unit in _MICROSECONDS:
        return Scale("us", _MICROSECONDS[unit])
    if unit.lower() in _HERTZ:
        return Scale("hz", _HERTZ[unit.lower()])
    above, _, below = unit.partition("/")
    if found := _BYTES.fullmatch(above):
        above, factor = "byte", _PREFIX[found[1]]
    else:
        factor = 1.0
    if below in _MICROSECONDS:
        below, factor = "s", factor * 1e6 / _MICROSECONDS[below]
    elif found := _BYTES.fullmatch(below):
        # As ncu means it: `2.614 %/Kbyte` stands for 2614 %/byte (raw page against report file).
        below, factor = "byte", factor * _PREFIX[found[1]]
    return Scale(f"{above}/{below}" if below else above, factor)


def to_canonical(value: float, unit: str, wanted: str) -> float:
    """A printed value in the table's unit: `415.3 us`, `20.21 Gbyte/s`, `3.20 Ghz`, `4.10 Kbyte`.

    Raises:
        InputError: the unit cannot be turned into the wanted one.
    """
    if not wanted or unit == wanted:
        return value
    known = scale(unit)
    if known.unit == wanted:
        return value * known.factor
    # ncu's versions differ in what a mere count is called; only a scaled unit changes the number.
    if wanted not in _SCALED and known.unit not in _SCALED and known.factor == 1.0:
        return value
    raise InputError(
        f"cannot read unit {unit!r} as {wanted!r}: export the page again with the ncu that made it"
    )


DISPLAY_NAME = "device__attribute_display_name"
_NO_VALUE = {"", "n/a", "no data", "nan", "-nan", "inf", "-inf", "(null)", "none"}
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
    read = _read_cells(cells)
    kernel = kernel_name(facts.get("Kernel Name", ""))
    duration = read.metrics.get(ncu.DURATION)
    if not kernel:
        raise InputError("a launch has no Kernel Name: export the page again, with all its columns")
    if duration is None or duration.value <= 0:
        raise InputError(
            f"{kernel} has no Duration: profile with `--set full` or add `--section SpeedOfLight`"
        )
    notes: tuple[str, ...] = ()
    if read.left_out:
        notes = (f"skipped, unknown units: {', '.join(sorted(read.left_out)[:10])}",)
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


def _read_cells(cells: Iterable[Cell]) -> _Read:
    read = _Read({}, {}, [])
    contradicted: set[str] = set()
    for cell in cells:
        if cell.text.lower() in _NO_VALUE:
            continue
        before = read.metrics.get(cell.name) or read.texts.get(cell.name)
        _take_cell(cell, read)
        after = read.metrics.get(cell.name) or read.texts.get(cell.name)
        if before is not None and before != after:
            contradicted.add(cell.name)
    for name in contradicted:
        read.metrics.pop(name, None)
        read.texts.pop(name, None)
    return read


def _take_cell(cell: Cell, read: _Read) -> None:
    row = METRICS.get(ALIASES.get(cell.name, cell.name))
    value = number(cell.text)
    if row is not None and row.unit == "text":
        read.texts[cell.name] = cell.text
    elif value is not None:
        # ncu prints no unit for the stack size.
        unit = cell.unit or ("byte" if cell.name == ncu.STACK_SIZE else "")
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


FACTS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
         "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
"""Columns of both pages that are no metrics."""

_EXPORT_AGAIN = "export it again: `ncu --import REPORT --csv --page details` or `--page raw`"


def parse_details(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of `ncu --csv --page details`, in the file's order.

    Numbers are as printed, so rounded to two decimals; the raw page has more. A value that is not
    a number (`n/a`, `no data`) stays missing.

    Raises:
        InputError: not that page, not whole, or no launch in it.
    """
    header, rows = _csv_table(text, "Metric Name")
    column = {name: i for i, name in enumerate(header)}
    for needed in ("Kernel Name", "Section Name", "Metric Unit", "Metric Value"):
        if needed not in column:
            raise InputError(f"the details page has no column {needed!r}; {_EXPORT_AGAIN}")
    launches: dict[str, list[list[str]]] = {}
    for row in rows:
        identity = row[column["ID"]] if len(row) > column["ID"] else ""
        if identity.isdecimal():  # anything else is what ncu says around the table
            launches.setdefault(identity, []).append(row)
    if not launches:
        raise InputError("the details page holds no launch: was a kernel profiled?")
    return tuple(_from_details(rows, column) for rows in launches.values())


def parse_raw(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of `ncu --csv --page raw`, in the file's order, with every metric of the page.

    Raises:
        InputError: not that page, not whole, or no launch in it.
    """
    header, rows = _csv_table(text, "Kernel Name")
    units = next(rows, None)
    if units is None or len(units) != len(header) or units[header.index("ID")].strip():
        raise InputError(f"the raw page has no line of units under its header; {_EXPORT_AGAIN}")
    launches = tuple(_from_raw(header, units, row) for row in rows)
    if not launches:
        raise InputError("the raw page holds no launch: was a kernel profiled?")
    return launches


def parse_csv(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of either page.

    Raises:
        InputError: neither page, not whole, or no launch in it.
    """
    header, _ = _csv_table(text, "Kernel Name")
    return parse_details(text) if "Metric Name" in header else parse_raw(text)


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
        profile = launch.profile.model_copy(
            update={
                "metrics": {**other.profile.metrics, **launch.profile.metrics},
                "texts": {**other.profile.texts, **launch.profile.texts},
                "nvidia_rules": other.profile.nvidia_rules,
            }
        )
        joined.append(other._replace(profile=profile))
    return tuple(joined)


def _csv_table(text: str, needed: str) -> tuple[list[str], Iterator[list[str]]]:
    """The header that holds `needed` and the rows under it; lines before it are ncu's chatter."""
    rows = _csv_rows(text)
    for row in rows:
        if needed in row and "ID" in row:
            if len(set(row)) != len(row):
                raise InputError(f"the page names a column twice; {_EXPORT_AGAIN}")
            return row, (r for r in rows if len(r) > 1)
    raise InputError(
        f"no column {needed!r} found: give the output of `ncu --import REPORT --csv --page "
        "details` or `--page raw`"
    )


def _csv_rows(text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        raise InputError(f"the page is cut short or no CSV ({error}); {_EXPORT_AGAIN}") from error


def _from_details(rows: Sequence[list[str]], column: Mapping[str, int]) -> NcuLaunch:
    cells: list[Cell] = []
    rules: list[NvidiaRule] = []
    for row in rows:

        def cell(name: str, row: list[str] = row) -> str:
            place = column.get(name)
            return row[place].strip() if place is not None and place < len(row) else ""

        label, section = cell("Metric Name"), cell("Section Name")
        if cell("Rule Name"):
            rules.append(_nvidia_rule(section, cell))
        elif label:
            name = BY_LABEL.get((section, label), f"{section} / {label}")
            cells.append(Cell(name, cell("Metric Unit"), cell("Metric Value")))
    _refuse_decimal_commas(cells)
    first = rows[0]
    return launch_of({n: first[i] for n, i in column.items() if i < len(first)}, cells, rules)


def _nvidia_rule(section: str, get: Callable[[str], str]) -> NvidiaRule:
    scope = get("Estimated Speedup Type")
    return NvidiaRule(
        section=section,
        name=get("Rule Name"),
        type=get("Rule Type"),
        text=" ".join(get("Rule Description").split()),
        speedup_scope="global" if scope == "global" else "local" if scope == "local" else None,
        estimated_speedup_pct=number(get("Estimated Speedup")),
    )


def _from_raw(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> NcuLaunch:
    if len(row) != len(header):
        raise InputError(
            f"a line of the raw page has {len(row)} of {len(header)} cells; {_EXPORT_AGAIN}"
        )
    cells = [
        Cell(name, unit.strip(), text.strip())
        for name, unit, text in zip(header, units, row, strict=True)
        if name not in FACTS
    ]
    _refuse_decimal_commas(cells)
    return launch_of(dict(zip(header, row, strict=True)), cells)


def _refuse_decimal_commas(cells: Iterable[Cell]) -> None:
    """In such a page `1,234` may be either number: none of it can be trusted."""
    odd = next((cell for cell in cells if has_decimal_comma(cell.text)), None)
    if odd is not None:
        raise InputError(
            f"{odd.name} is {odd.text!r}, a decimal comma: export the page with LC_ALL=C"
        )


_HALF_DIGIT_PCT = 0.005
"""The details page prints percentages with two decimals."""
_BANDWIDTH_TOLERANCE = 0.10
"""judgement: memory clocks below their maximum, and `gpu__dram_throughput` counting other cycles
than those that move bytes; devices of one capability lie 15 % and more apart, or cannot be told."""


class Likely(NamedTuple):
    """Devices that agree with the page, and the values that identify them."""

    devices: tuple[Device, ...]
    signs: str


def likely_devices(profile: Profile) -> Likely:
    """Devices with the profile's compute capability, SM count and DRAM bandwidth.

    Empty where the profile names no capability, or none that is known.
    """
    found = re.fullmatch(r"compute capability (\d+)\.(\d+)", profile.device)
    if found is None:
        return Likely((), "")
    capability = (int(found[1]), int(found[2]))
    devices = [d for d in DEVICES.values() if d.compute_capability == capability]
    signs = [profile.device]
    count = profile.get(ncu.SM_COUNT)
    if count is not None:
        signs.append(f"{count:.0f} SMs")
        devices = [d for d in devices if d.sm_count == count]
    peak = _implied_bandwidth_gb_s(profile)
    if peak is not None:
        low, high = peak
        signs.append(f"a DRAM peak of about {(low + high) / 2:,.0f} GB/s")
        devices = [
            d
            for d in devices
            if low * (1 - _BANDWIDTH_TOLERANCE)
            <= d.dram_bandwidth_gb_s
            <= high * (1 + _BANDWIDTH_TOLERANCE)
        ]
    return Likely(tuple(devices), ", ".join(signs))


def _implied_bandwidth_gb_s(profile: Profile) -> tuple[float, float] | None:
    """Between what limits the peak lies, from bytes a second and their share of the peak."""
    rate, share = profile.get(ncu.DRAM_BYTES_PER_SECOND), profile.get(ncu.DRAM_THROUGHPUT)
    if rate is None or share is None or share <= 4 * _HALF_DIGIT_PCT:
        return None
    high, low = (1e-7 * rate / (share + half) for half in (-_HALF_DIGIT_PCT, _HALF_DIGIT_PCT))
    return low, high
