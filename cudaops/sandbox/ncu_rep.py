"""NVIDIA's `.ncu-rep` read without a GPU, through NVIDIA's own `ncu-report` wheel."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from cudaops.errors import InputError, PrerequisiteError


def raw_pages(path: Path) -> tuple[str, ...]:
    """What `ncu --import PATH --page raw --csv` prints, one page a launch: for `parse_raw`.

    One page each, because launches of one report may hold different metrics.

    Raises PrerequisiteError where the wheel is not installed, InputError where the file is no
    report or holds no profiled launch.
    """
    try:
        import ncu_report
    except ImportError as error:
        raise PrerequisiteError(
            f"reading {path.name} needs the ncu-report package",
            "python -m pip install 'cudaops[ncu]', or export the report where ncu is: "
            f"ncu --import {path.name} --page raw --csv > {path.stem}.csv",
        ) from error
    try:
        report = ncu_report.load_report(str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read as an ncu report: {error}") from error
    launches = [
        report.range_by_idx(i).action_by_idx(j)
        for i in range(report.num_ranges())
        for j in range(report.range_by_idx(i).num_actions())
    ]
    if not launches:
        raise InputError(f"{path} holds no profiled launch: is it an ncu report, and whole?")
    if not all(launch.name() for launch in launches):
        raise InputError(f"{path} is cut short: copy it again, or export it where ncu is")
    return tuple(_page(number, launch) for number, launch in enumerate(launches))


def _page(number: int, launch: Any) -> str:
    """Header, units and values of one launch."""
    cells = [("ID", "", str(number)), ("Kernel Name", "", launch.name())]
    for name in sorted(launch.metric_names()):
        metric = launch.metric_by_name(name)
        if metric is not None and (value := metric.value()) is not None:
            cells.append((name, metric.unit(), str(value)))
    page = io.StringIO()
    csv.writer(page, quoting=csv.QUOTE_ALL).writerows(zip(*cells, strict=True))
    return page.getvalue()
