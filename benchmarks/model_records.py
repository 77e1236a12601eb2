"""What ncu said of programs of others on an H200, as small records that the time model is compared
with.

    python -m benchmarks.model_records NCU_FOLDER --out records.json

`NCU_FOLDER` has raw pages (`ncu --csv --page raw --print-units base`), NAME.SIZE.csv of the hot
kernels with all metrics and NAME.all-base-SIZE.csv, NAME.all-hand-SIZE.csv with the durations of
every launch of the author's program and of a rewrite of it by hand; log.json has the arguments.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.ncu_pages import number
from cudaops.domain.base import Dim3

KEPT = (
    ncu.REGISTERS, ncu.ACHIEVED_OCCUPANCY, ncu.GLOBAL_LD_SECTORS, ncu.GLOBAL_ST_SECTORS,
    ncu.INST_EXECUTED, ncu.FFMA, ncu.DFMA, ncu.DRAM_READ_BYTES,
)  # fmt: skip
"""Metrics of the records, beside the duration."""

_CAST = re.compile(r"\([a-z ]+\)(?=-?\d)")
_BOOL = {"(bool)1": "true", "(bool)0": "false"}


class Kernel(NamedTuple):
    """One kernel launched with one geometry."""

    kernel: str
    """Unqualified name."""
    instance: str
    """As ncu prints it, without parameters."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    launches: int
    """How many ncu looked at."""
    duration_us: float
    """`gpu__time_duration.sum`, median over them, each with empty caches."""
    metrics: dict[str, float]


class Run(NamedTuple):
    """One program with one set of arguments under ncu."""

    program: str
    size: str
    """`small` or `large`."""
    version: str
    """`author`, or `rewrite` by hand."""
    timed: bool
    """True: every launch, durations only. False: hot kernels with metrics."""
    arguments: str
    kernels: tuple[Kernel, ...]

    def worth_modelling(self) -> list[str]:
        """Kernels that take a twentieth of the recorded time or have metrics."""
        total = sum(k.launches * k.duration_us for k in self.kernels)
        return list(
            dict.fromkeys(
                k.kernel
                for k in self.kernels
                if k.metrics or k.launches * k.duration_us >= total / 20
            )
        )

    def of(self, kernel: str, callee: str, grid: Dim3, block: Dim3) -> Kernel | None:
        """The record of a captured launch; None where there is none, or several that cannot be told
        apart."""
        near = [
            k
            for k in self.kernels
            if (k.kernel, k.grid, k.block)
            == (kernel, (grid.x, grid.y, grid.z), (block.x, block.y, block.z))
        ]
        if len(near) > 1:
            near = [k for k in near if template_arguments(k.instance) == template_arguments(callee)]
        return near[0] if len(near) == 1 else None


class Modelled(NamedTuple):
    """A recorded launch and what the model makes of it."""

    program: str
    size: str
    version: str
    measured: Kernel
    modelled_us: float
    metrics: dict[str, float | None]

    @property
    def ratio(self) -> float:
        """Modelled over measured time."""
        return self.modelled_us / self.measured.duration_us

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        known = {name: value for name, value in self.metrics.items() if value is not None}
        measured = self.measured._asdict()
        return self._asdict() | {"measured": measured, "metrics": known}


def template_arguments(text: str) -> list[str]:
    """Of a kernel's name, written as nvcc's demangler or as the author does."""
    for theirs, ours in _BOOL.items():
        text = text.replace(theirs, ours)
    inside = re.search(r"<(.*)>", _CAST.sub("", text))
    return [a.strip() for a in inside.group(1).split(",")] if inside else []


def half(names: Iterable[str], seed: int) -> frozenset[str]:
    """The half of the programs that constants may be fitted to."""
    ordered = sorted(names)
    return frozenset(random.Random(seed).sample(ordered, len(ordered) // 2))


def read_runs(path: Path) -> list[Run]:
    """What `collect` wrote, small arguments first."""
    found = []
    for raw in json.loads(path.read_text("utf-8")):
        kernels = tuple(
            Kernel(**{**k, "grid": tuple(k["grid"]), "block": tuple(k["block"])})
            for k in raw["kernels"]
        )
        found.append(Run(**{**raw, "kernels": kernels}))
    return sorted(found, key=lambda run: (run.size == "large", run.program, run.version))


_FILES = re.compile(r"(?P<program>.+?)\.(?:(?P<all>all-(?:base|hand))-)?(?P<size>small|large)\.csv")


def collect(folder: Path) -> Iterator[Run]:
    """Every raw page of a folder that has launches."""
    log = json.loads((folder / "log.json").read_text("utf-8"))
    for path in sorted(folder.glob("*.csv")):
        named = _FILES.fullmatch(path.name)
        said = log.get(path.name.removesuffix(".csv"))
        if named is None or not isinstance(said, dict):
            continue
        kernels = tuple(_kernels(path))
        if kernels:
            version = "rewrite" if named["all"] == "all-hand" else "author"
            timed = named["all"] is not None
            yield Run(named["program"], named["size"], version, timed, said["args"], kernels)


def _kernels(path: Path) -> Iterator[Kernel]:
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line[:1] == '"']
    rows = list(csv.reader(lines))
    if len(rows) < 3 or "Kernel Name" not in rows[0] or ncu.DURATION not in rows[0]:
        return
    launches: dict[tuple[Any, ...], list[dict[str, str]]] = {}
    for cells in rows[2:]:
        row = dict(zip(rows[0], cells, strict=False))
        if number(row.get(ncu.DURATION, "")) is not None:
            key = tuple(row[c] for c in ("Kernel Name", "Grid Size", "Block Size"))
            launches.setdefault(key, []).append(row)
    for (name, grid, block), found in launches.items():
        instance = _without_parameters(name)
        yield Kernel(
            kernel=re.sub(r"<.*", "", instance).rpartition("::")[2],
            instance=instance,
            grid=_three(grid),
            block=_three(block),
            launches=len(found),
            duration_us=round(1e-3 * _median(found, ncu.DURATION), 3),
            metrics={m: _median(found, m) for m in KEPT if number(found[0].get(m, "")) is not None},
        )


def _without_parameters(name: str) -> str:
    """`void k<(bool)1, int>(int *, float)` as `k<(bool)1, int>`."""
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0:
            return text[:at].strip()
    return text.strip()


def _three(text: str) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in re.findall(r"\d+", text))
    return x, y, z


def _median(rows: list[dict[str, str]], metric: str) -> float:
    values = [v for row in rows if (v := number(row[metric])) is not None]
    return statistics.median(values)


def main() -> None:
    """Write the records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    runs = [
        run._asdict() | {"kernels": [k._asdict() for k in run.kernels]}
        for run in collect(wanted.folder)
    ]
    lines = ",\n".join(json.dumps(run) for run in runs)
    wanted.out.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
