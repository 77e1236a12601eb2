"""The child that opens a `.ncu-rep`: `python -m` this module with its path prints JSON.

NVIDIA's reader is native code: a damaged report, or a module of another version, may take the
process with it (seen 2026-11-20 on an H200: the module beside ncu 2025.3.1, in a threaded Python
3.12). So no process of ours that matters imports it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudaops.cuda.hot_spots import SassInstruction
from cudaops.cuda.ncu_pages import Cell, launch_of
from cudaops.domain.profile import NvidiaRule
from cudaops.errors import InputError, PrerequisiteError

_SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
_TYPES = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
"""`IAction.MsgType_*` as the CSV pages write them."""
_SCOPES: Mapping[int, Any] = {1: "local", 2: "global"}
"""`SpeedupType_*`."""
_MARKUP = re.compile(r"@(?P<kind>\w+):(?P<first>[^:@]*):(?P<second>[^@]*)@")


def main(path: Path) -> dict[str, Any]:
    """What `ncu_rep.read_report` takes apart again."""
    try:
        return {"launches": _read_all(path)}
    except InputError as error:
        return {"input": str(error)}
    except PrerequisiteError as error:
        return {"missing": error.problem, "remedy": error.remedy}


def _read_all(path: Path) -> list[dict[str, Any]]:
    launches = _launches(path)
    if not launches:
        raise InputError(f"{path} contains no profiled launch: is it a complete ncu report?")
    if not all(launch.name() for launch in launches):
        raise InputError(f"{path} is truncated: copy it again, or export it on a machine with ncu")
    try:
        return [_read(number, launch) for number, launch in enumerate(launches)]
    except AttributeError as error:
        raise InputError(
            f"{path} cannot be read with this ncu_report, which is too old: {_one_line(error)}"
        ) from error
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        # What the wheel and its records raise on names and numbers that no ncu wrote.
        raise InputError(f"{path} is damaged: copy it again ({_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    """What an exception says, short and printable."""
    said = "".join(c if c.isprintable() else " " for c in str(error))
    return " ".join(said.split())[:160]


def _launches(path: Path) -> list[Any]:
    try:
        import ncu_report
    except ImportError as error:
        raise PrerequisiteError(
            f"reading {path.name} needs the ncu-report package",
            "python -m pip install 'cudaops[ncu]', or export the report on a machine with ncu: "
            f"ncu --import {path.name} --page raw --csv > {path.stem}.csv",
        ) from error
    try:
        report = ncu_report.load_report(str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read as an ncu report: {_one_line(error)}") from error
    return [
        report.range_by_idx(i).action_by_idx(j)
        for i in range(report.num_ranges())
        for j in range(report.range_by_idx(i).num_actions())
    ]


def _read(number: int, launch: Any) -> dict[str, Any]:
    cells = []
    for name in launch.metric_names():
        # Lists of names behind ncu's own tables, not numbers.
        if name.startswith(("group:", "breakdown:")):
            continue
        metric = launch.metric_by_name(name)
        if metric is not None and not _only_a_series(metric) and metric.value() is not None:
            cells.append(Cell(name, metric.unit(), str(metric.value())))
    found = launch_of({"ID": str(number), "Kernel Name": launch.name()}, cells, _rules(launch))
    return {
        "id": found.id,
        "profile": found.profile.model_dump(mode="json"),
        "unknown_labels": found.unknown_labels,
        "symbol": launch.name(launch.NameBase_MANGLED),
        "instructions": [one._asdict() for one in _instructions(launch)],
        "sources": dict(launch.source_files()),
    }


def _only_a_series(metric: Any) -> bool:
    """A ratio sampled over time: the report has its course but no value, and the wheel says 0."""
    ratio = metric.metric_type() in (metric.MetricType_RATIO, metric.MetricType_THROUGHPUT)
    return ratio and metric.num_instances() > 0 and metric.value() == 0


def _rules(launch: Any) -> tuple[NvidiaRule, ...]:
    rules = []
    for result in launch.rule_results():
        if not result.has_rule_message():
            continue
        message = result.rule_message()
        speedup = result.speedup_estimation() if result.has_speedup_estimation() else {}
        rules.append(
            NvidiaRule(
                section=result.section_identifier(),
                name=result.rule_identifier(),
                type=_TYPES.get(message["type"], "INF"),
                text=" ".join(_MARKUP.sub(_plain, message["message"]).split()),
                estimated_speedup_pct=speedup.get("speedup"),
                speedup_scope=_SCOPES.get(speedup.get("type", 0)),
            )
        )
    return tuple(rules)


def _plain(marked: re.Match[str]) -> str:
    """`@section:Name:Shown@` as `Shown`, `@url:Shown:address@` as `Shown (address)`."""
    if marked["kind"] == "url":
        return f"{marked['first']} ({marked['second']})"
    return marked["second"]


def _instructions(launch: Any) -> tuple[SassInstruction, ...]:
    executed = _by_address(launch, "inst_executed")
    if not executed:
        return ()
    samples = _by_address(launch, "smsp__pcsamp_sample_count")
    sectors = _by_address(launch, "memory_l2_theoretical_sectors_global")
    wavefronts = _by_address(launch, "memory_l1_wavefronts_shared")
    stalls = {
        name.removeprefix(_SAMPLED): _by_address(launch, name)
        for name in launch.metric_names()
        if name.startswith(_SAMPLED) and not name.endswith("_not_issued")
    }
    first = min(executed)
    return tuple(
        SassInstruction(
            offset=address - first,
            sass=" ".join((launch.sass_by_pc(address) or "").split()),
            executed=executed.get(address, 0),
            samples=samples.get(address, 0),
            stalls={reason: at[address] for reason, at in stalls.items() if at.get(address)},
            global_sectors=sectors.get(address, 0),
            shared_wavefronts=wavefronts.get(address, 0),
            line=_line(launch, address),
        )
        for address in sorted({*executed, *samples})
    )


def _line(launch: Any, address: int) -> tuple[str, int] | None:
    info = launch.source_info(address)
    return None if info is None or info.line() <= 0 else (info.file_name(), info.line())


def _by_address(launch: Any, name: str) -> dict[int, int]:
    """Values of a metric that ncu has for single instructions, by their address."""
    metric = launch.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    return {ids.as_uint64(i): metric.as_uint64(i) for i in range(metric.num_instances())}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
