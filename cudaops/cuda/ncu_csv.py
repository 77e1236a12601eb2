"""Nsight Compute's CSV pages read into Profiles whose metrics carry the table's names and units.

Pages come from other machines and other versions of ncu, cut, edited and concatenated: what cannot
be read is missing or refused in one line, and never a number from another cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cudaops.cuda.metrics import BY_LABEL
from cudaops.cuda.ncu_launch import Cell, NcuLaunch, launch_of
from cudaops.cuda.ncu_units import has_decimal_comma, number
from cudaops.domain.profile import NvidiaRule
from cudaops.errors import InputError

FACTS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
         "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
"""Columns of both pages that are no metrics."""

_AGAIN = "export it again: `ncu --import REPORT --csv --page details` or `--page raw`"


def parse_details(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of `ncu --csv --page details`, in the file's order.

    Numbers are as printed, so rounded to two decimals; the raw page has more. A value that is not
    a number (`n/a`, `no data`) stays missing.

    Raises:
        InputError: not that page, not whole, or no launch in it.
    """
    header, rows = _table(text, "Metric Name")
    column = {name: i for i, name in enumerate(header)}
    for needed in ("Kernel Name", "Section Name", "Metric Unit", "Metric Value"):
        if needed not in column:
            raise InputError(f"the details page has no column {needed!r}; {_AGAIN}")
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
    header, rows = _table(text, "Kernel Name")
    units = next(rows, None)
    if units is None or len(units) != len(header) or units[header.index("ID")].strip():
        raise InputError(f"the raw page has no line of units under its header; {_AGAIN}")
    launches = tuple(_from_raw(header, units, row) for row in rows)
    if not launches:
        raise InputError("the raw page holds no launch: was a kernel profiled?")
    return launches


def parse_csv(text: str) -> tuple[NcuLaunch, ...]:
    """Launches of either page.

    Raises:
        InputError: neither page, not whole, or no launch in it.
    """
    header, _ = _table(text, "Kernel Name")
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


def _table(text: str, needed: str) -> tuple[list[str], Iterator[list[str]]]:
    """The header that holds `needed` and the rows under it; lines before it are ncu's chatter."""
    rows = _rows(text)
    for row in rows:
        if needed in row and "ID" in row:
            if len(set(row)) != len(row):
                raise InputError(f"the page names a column twice; {_AGAIN}")
            return row, (r for r in rows if len(r) > 1)
    raise InputError(
        f"no column {needed!r} found: give the output of `ncu --import REPORT --csv --page "
        "details` or `--page raw`"
    )


def _rows(text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        raise InputError(f"the page is cut short or no CSV ({error}); {_AGAIN}") from error


def _from_details(rows: Sequence[list[str]], column: Mapping[str, int]) -> NcuLaunch:
    cells: list[Cell] = []
    rules: list[NvidiaRule] = []
    for row in rows:

        def cell(name: str, row: list[str] = row) -> str:
            place = column.get(name)
            return row[place].strip() if place is not None and place < len(row) else ""

        label, section = cell("Metric Name"), cell("Section Name")
        if cell("Rule Name"):
            rules.append(_rule(section, cell))
        elif label:
            name = BY_LABEL.get((section, label), f"{section} / {label}")
            cells.append(Cell(name, cell("Metric Unit"), cell("Metric Value")))
    _refuse_decimal_commas(cells)
    first = rows[0]
    return launch_of({n: first[i] for n, i in column.items() if i < len(first)}, cells, rules)


def _rule(section: str, get: Callable[[str], str]) -> NvidiaRule:
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
        raise InputError(f"a line of the raw page has {len(row)} of {len(header)} cells; {_AGAIN}")
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
