"""Recomputes the tables of docs/model.md: modelled times and metrics beside the measured ones.

    python benchmarks/model_table.py            print the tables
    python benchmarks/model_table.py --write    put them into docs/model.md
 Needs g++ and the captures under tests/data; no GPU. The measured numbers come from tests/data:
times by CUDA events and ncu captures of an H200 (driver 580.159.04, CUDA 13.0.88, 2026-11-20), and
two times of an A10 from the source write-up.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudaops.cuda import metrics as ncu  # noqa: E402
from cudaops.cuda.metrics import METRICS  # noqa: E402
from cudaops.cuda.ncu_pages import parse_raw  # noqa: E402
from cudaops.domain.execution import Captured, Compiled, Measurement, Unit  # noqa: E402
from cudaops.domain.profile import Profile  # noqa: E402
from cudaops.executors.cpu.executor import CpuExecutor  # noqa: E402
from cudaops.program.parse import load_program  # noqa: E402
from cudaops.program.plans import baseline_plan  # noqa: E402

PROGRAMS = ("naive_matmul", "tiled_matmul", "reg128", "reg64", "reg64x8", "reg64b16")
H200_US = dict(zip(PROGRAMS, (416.1, 236.1, 178.0, 127.7, 125.2, 95.8), strict=True))
"""Events, mean of 20 launches. Source: tests/data/calibration."""
A10_US = {"naive_matmul": 1185.0, "tiled_matmul": 936.0}
"""Source: the source write-up; its tiling is another program with the same 32x32 tiles."""
REGISTERS = dict(zip(PROGRAMS, (32, 32, 128, 64, 90, 64), strict=True))
"""`nvcc -O3 -arch=sm_90 -Xptxas -v`, 13.0.88."""
CAPTURES = {"naive_matmul": "h200_naive_matmul_1024", "reg64": "h200_regtiled_matmul_1024"}
COMPARED = (
    ncu.DURATION, ncu.L1_THROUGHPUT, ncu.SM_THROUGHPUT, ncu.DRAM_THROUGHPUT, ncu.L2_THROUGHPUT,
    ncu.ISSUE_SLOTS_BUSY, ncu.ACHIEVED_OCCUPANCY, ncu.INST_EXECUTED, ncu.FFMA_PER_CYCLE,
    ncu.PIPE_FMA,
    ncu.PIPE_ALU, ncu.L1_HIT_RATE,
    ncu.GLOBAL_LD_REQUESTS, ncu.GLOBAL_LD_SECTORS, ncu.BYTES_PER_SECTOR_LD,
    ncu.SHARED_LD_WAVEFRONTS,
    ncu.SHARED_ST_WAVEFRONTS, ncu.BANK_CONFLICTS_ST, ncu.L2_READ_SECTORS, ncu.L2_HIT_RATE,
    ncu.DRAM_READ_BYTES,
    ncu.STALL_LONG, ncu.STALL_LG, ncu.STALL_SHORT, ncu.STALL_BARRIER, ncu.STALL_WAIT, ncu.BRANCHES,
)  # fmt: skip
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


class Result(NamedTuple):
    """One program on one device."""

    us: float
    profile: Profile


def model(folder: Path, name: str, devices: tuple[str, ...]) -> dict[str, Result]:
    """Capture one program and model its kernel for each device."""
    program = load_program(ROOT / "tests" / "data" / "calibration" / f"{name}.cu")
    executor = CpuExecutor(devices[0], folder / "cache")
    captured = executor.capture(program, None, (), folder / name, 300.0)
    if not isinstance(captured, Captured):
        raise SystemExit(f"{name}: {captured}")
    workload = captured.workloads[0]
    unit = Unit(program=program, kernel=captured.kernel, callee=workload.callee)
    compiled = executor.compile(unit)
    if not isinstance(compiled, Compiled):
        raise SystemExit(f"{name}: {compiled.message}")
    results = {}
    for device in devices:
        executor.device = device
        measured = executor.measure(compiled, workload, baseline_plan(workload))
        if not isinstance(measured, Measurement) or measured.profile is None:
            raise SystemExit(f"{name} on {device}: {measured}")
        results[device] = Result(measured.median_us, measured.profile)
    return results


def spearman(left: list[float], right: list[float]) -> float:
    """Rank correlation of two lists without ties."""
    first, second = ([sorted(v).index(x) for x in v] for v in (left, right))
    n = len(left)
    squares = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    return 1.0 - 6.0 * float(squares) / (n * (n * n - 1))


def times_table(results: dict[str, dict[str, Result]]) -> list[str]:
    """H200: all six programs."""
    lines = [
        (
            "| program | measured us | modelled us | modelled / measured "
            "| speedup measured | modelled | limited by |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    base = results["naive_matmul"]["H200"].us
    for name in PROGRAMS:
        us, profile = results[name]["H200"]
        limiter = next(n for n in profile.notes if n.startswith("time is limited")).split(": ")[1]
        measured = H200_US[name]
        lines.append(
            f"| {name} | {measured:.1f} | {us:.1f} | {us / measured:.2f} | "
            f"{H200_US['naive_matmul'] / measured:.2f} | {base / us:.2f} | {limiter} |"
        )
    rank = spearman([H200_US[n] for n in PROGRAMS], [results[n]["H200"].us for n in PROGRAMS])
    return [*lines, "", f"Spearman rank correlation over the six: {rank:.2f}."]


def a10_table(results: dict[str, dict[str, Result]]) -> list[str]:
    """A10: all six, two of them measured."""
    lines = ["| program | measured us | modelled us | modelled / measured |", "|---|---|---|---|"]
    for name in PROGRAMS:
        us = results[name]["A10"].us
        measured = A10_US.get(name)
        shown = (f"{measured:.0f}", f"{us / measured:.2f}") if measured else ("-", "-")
        lines.append(f"| {name} | {shown[0]} | {us:.0f} | {shown[1]} |")
    return lines


def metrics_table(results: dict[str, dict[str, Result]]) -> list[str]:
    """Modelled metrics beside the two H200 captures; `-`: not in the capture."""
    lines = [
        "| metric | naive: ncu | naive: model | reg64: ncu | reg64: model |",
        "|---|---|---|---|---|",
    ]
    measured = {}
    for name, file in CAPTURES.items():
        text = (ROOT / "tests" / "data" / "ncu" / f"{file}.raw.csv").read_text()
        measured[name] = parse_raw(text)[0].profile.metrics
    for metric in COMPARED:
        cells = []
        for name in CAPTURES:
            seen = measured[name].get(metric)
            own = results[name]["H200"].profile.get(metric)
            cells += [_shown(seen.value if seen else None), _shown(own)]
        unit = f" ({METRICS[metric].unit})" if METRICS[metric].unit else ""
        lines.append(f"| `{metric}`{unit} | {' | '.join(cells)} |")
    return lines


def registers_table(results: dict[str, dict[str, Result]]) -> list[str]:
    """Estimated registers beside ptxas."""
    lines = ["| program | ptxas | estimate |", "|---|---|---|"]
    for name in PROGRAMS:
        own = results[name]["H200"].profile.get(ncu.REGISTERS)
        lines.append(f"| {name} | {REGISTERS[name]} | {own:.0f} |")
    return lines


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def tables(folder: Path) -> str:
    """All tables as markdown."""
    results = {name: model(folder, name, ("H200", "A10")) for name in PROGRAMS}
    today = datetime.date.today().isoformat()
    head = f"Computed by `python benchmarks/model_table.py` on {today}."
    parts = [
        f"{head} All six are single-precision products of 1024 x 1024.",
        "### H200: time", *times_table(results), "### A10: time", *a10_table(results),
        "### H200: metrics against ncu", *metrics_table(results),
        "### Registers a thread", *registers_table(results),
    ]  # fmt: skip
    text = "\n".join(parts)
    for heading in (
        "### H200: time",
        "### A10: time",
        "### H200: metrics against ncu",
        "### Registers a thread",
    ):
        text = text.replace(f"{heading}\n", f"\n{heading}\n\n")
    return text


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/model.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudaops-model-") as folder:
        text = tables(Path(folder))
    if not wanted.write:
        print(text)
        return
    page = ROOT / "docs" / "model.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
