"""Recomputes the tables of docs/model.md: modelled times and metrics beside the measured ones.

    python benchmarks/model_table.py            print the tables
    python benchmarks/model_table.py --write    put them into docs/model.md

Needs g++ and the captures under tests/data; no GPU. The measured numbers come from tests/data:
times by CUDA events and ncu captures of an H200 (driver 580.159.04, CUDA 13.0.88, 2026-11-20), and
two times of an A10 from the source write-up. Programs of others against their records, which
`benchmarks/model_records.py` describes, half of them never looked at while constants are fitted:

    python benchmarks/model_table.py --programs FOLDER --records FOLDER
    python benchmarks/model_table.py --programs FOLDER --records FOLDER --held-out
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.model_records import KEPT, Modelled, Run, half, modelled_of, read_runs  # noqa: E402
from cudaops.cuda import metrics as ncu  # noqa: E402
from cudaops.cuda.metrics import METRICS  # noqa: E402
from cudaops.cuda.ncu_pages import parse_raw  # noqa: E402
from cudaops.domain.execution import Captured, Compiled, Measurement, Unit  # noqa: E402
from cudaops.domain.profile import Profile  # noqa: E402
from cudaops.errors import CudaOpsError  # noqa: E402
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
SEED = 20261123
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
        limiter = next(n for n in profile.notes if n.startswith("limiter of the time model")).split(
            ": "
        )[1]
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


def spearman(left: list[float], right: list[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks."""

    def ranks(values: list[float]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]

    return statistics.correlation(ranks(left), ranks(right))


class Corpus(NamedTuple):
    """What others' programs are modelled from and compared with."""

    programs: Path
    rewrites: Path | None
    records: Path
    names: frozenset[str]
    """Of the half that is looked at."""
    timeout_s: float

    def has(self, run: Run) -> bool:
        """Whether it is looked at: with rewrites, whole programs; without, their hot kernels."""
        return run.program in self.names and run.timed == (self.rewrites is not None)


def model_corpus(corpus: Corpus, executor: CpuExecutor, folder: Path, save: Path) -> list[Modelled]:
    """Every recorded kernel of these programs that ends within the limit, as the `cpu` executor
    models it with the same arguments. Each is written to `save` as it comes; what stands there from
    a run before is not modelled again."""
    saved: list[dict[str, Any]] = json.loads(save.read_text("utf-8")) if save.exists() else []
    known = {tuple(one["of"]) for one in saved}
    for run in filter(corpus.has, read_runs(corpus.records)):
        source = _source(corpus, run)
        for kernel in run.worth_modelling():
            of = (run.program, run.size, run.version, kernel)
            if of in known:
                continue
            started = time.monotonic()
            try:
                rows = _model_kernel(executor, run, source, kernel, folder, corpus.timeout_s)
                why = "" if rows else "no launch of the recorded geometry was captured"
            except (CudaOpsError, NotModelled) as problem:
                rows, why = [], str(problem).splitlines()[0][:200]
            took_s = round(time.monotonic() - started)
            print(
                f"{' '.join(of)}: {len(rows)} rows, {took_s} s {why}", file=sys.stderr, flush=True
            )
            records = [row.as_record() for row in rows]
            saved.append({"of": of, "seconds": took_s, "why_not": why, "rows": records})
            save.write_text("[\n" + ",\n".join(json.dumps(one) for one in saved) + "\n]\n", "utf-8")
    return [modelled_of(row) for one in saved for row in one["rows"]]


class NotModelled(Exception):
    """A program that the executor could not run or model; says why."""


def _source(corpus: Corpus, run: Run) -> Path:
    folder = corpus.rewrites if corpus.rewrites and run.version == "rewrite" else corpus.programs
    sources = sorted((folder / run.program).glob("*.cu"))
    preferred = ("main.cu", f"{run.program}.cu")
    return next((s for name in preferred for s in sources if s.name == name), sources[0])


def _model_kernel(
    executor: CpuExecutor, run: Run, source: Path, kernel: str, folder: Path, timeout_s: float
) -> list[Modelled]:
    program = load_program(source)
    where = folder / f"{run.program}.{run.size}.{run.version}.{kernel}"
    executor.program_folder = source.parent
    argv = tuple(run.arguments.split())
    captured = executor.capture(program, kernel, argv, where, timeout_s, whole=run.size == "small")
    if not isinstance(captured, Captured):
        raise NotModelled(captured.message)
    rows: list[Modelled] = []
    for workload in captured.workloads:
        measured = run.of(kernel, workload.callee, workload.grid, workload.block)
        if measured is None or any(row.measured == measured for row in rows):
            continue  # launches that differ in arguments only: the first, as ncu's are the first
        unit = Unit(program=program, kernel=captured.kernel, callee=workload.callee)
        compiled = executor.compile(unit)
        if not isinstance(compiled, Compiled):
            raise NotModelled(compiled.message)
        cold = workload.model_copy(update={"l2_regime": "cold"})
        outcome = executor.measure(compiled, cold, baseline_plan(workload))
        if not isinstance(outcome, Measurement) or outcome.profile is None:
            raise NotModelled(str(getattr(outcome, "message", outcome)))
        rows.append(
            Modelled(
                run.program, run.size, run.version, measured, outcome.median_us,
                {m: outcome.profile.get(m) for m in KEPT},
            )
        )  # fmt: skip
    shutil.rmtree(where, ignore_errors=True)
    return rows


def corpus_table(rows: list[Modelled]) -> list[str]:
    """Measured and modelled, the shortest first, and what they come to."""
    head = "| program | arguments | kernel | H200 us | modelled us | ratio | registers | "
    lines = [
        head + "occupancy % | load sectors | instructions | FFMA |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    authors = [r for r in rows if r.version == "author"]
    for r in sorted(authors, key=lambda r: r.measured.duration_us):
        cells = [_pair(r, m) for m in (ncu.REGISTERS, ncu.ACHIEVED_OCCUPANCY)]
        cells += [_quotient(r, m) for m in (ncu.GLOBAL_LD_SECTORS, ncu.INST_EXECUTED, ncu.FFMA)]
        lines.append(
            f"| {r.program} | {r.size} | {r.measured.kernel} | {r.measured.duration_us:.2f} | "
            f"{r.modelled_us:.2f} | {r.ratio:.2f} | {' | '.join(cells)} |"
        )
    errors = [abs(r.ratio - 1.0) for r in authors]
    if len(authors) > 2:
        rank = spearman([r.measured.duration_us for r in authors], [r.modelled_us for r in authors])
        summary = (
            f"{len(authors)} launches of {len({r.program for r in authors})} programs: Spearman "
            f"rank correlation of durations {rank:.3f}, median error "
            f"{100 * statistics.median(errors):.0f} %, {sum(e <= 0.3 for e in errors)} within 30 %."
        )
        lines += ["", summary]
    return lines


def _pair(row: Modelled, metric: str) -> str:
    measured, own = row.measured.metrics.get(metric), row.metrics.get(metric)
    return " / ".join("-" if v is None else f"{v:.0f}" for v in (measured, own))


def _quotient(row: Modelled, metric: str) -> str:
    """Modelled over measured."""
    measured, own = row.measured.metrics.get(metric), row.metrics.get(metric)
    return f"{own / measured:.2f}" if measured and own is not None else "-"


def speedups_table(rows: list[Modelled], runs: list[Run], names: frozenset[str]) -> list[str]:
    """Rewrites by hand of whole programs: time of all recorded launches of kernels that both the
    record and the model know, the author's over the rewrite's."""
    lines = [
        "| program | arguments | H200 | modelled | same side of 1 |",
        "|---|---|---|---|---|",
    ]
    right = compared = 0
    for program, size in sorted({(r.program, r.size) for r in runs if r.version == "rewrite"}):
        sides = [_total(rows, runs, program, size, version) for version in ("author", "rewrite")]
        if program not in names or None in sides:
            continue
        (theirs, their_model), (ours, our_model) = (s for s in sides if s is not None)
        measured, modelled = theirs / ours, their_model / our_model
        same = (measured > 1.0) == (modelled > 1.0)
        right, compared = right + same, compared + 1
        lines.append(
            f"| {program} | {size} | {measured:.2f} | {modelled:.2f} | {'yes' if same else 'no'} |"
        )
    return [*lines, "", f"{right} of {compared} on the right side of 1."] if compared else []


def _total(
    rows: list[Modelled], runs: list[Run], program: str, size: str, version: str
) -> tuple[float, float] | None:
    """Microseconds measured and modelled of all recorded launches that were modelled; None where
    less than nine tenths of the recorded time was."""
    here = [r for r in rows if (r.program, r.size, r.version) == (program, size, version)]
    every = [
        k
        for run in runs
        if (run.program, run.size, run.version) == (program, size, version) and run.timed
        for k in run.kernels
        if k.launches
    ]
    known = {(r.measured.instance, r.measured.grid, r.measured.block): r for r in here}
    measured = modelled = 0.0
    for k in every:
        found = known.get((k.instance, k.grid, k.block))
        if found is not None:
            measured += k.launches * k.duration_us
            modelled += k.launches * found.modelled_us
    whole = sum(k.launches * k.duration_us for k in every)
    return (measured, modelled) if whole and measured >= 0.9 * whole else None


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/model.md")
    parser.add_argument("--programs", type=Path, help="folder of programs, one folder each")
    parser.add_argument(
        "--rewrites", type=Path, help="rewrites of some, likewise: their speedups instead"
    )
    parser.add_argument("--records", type=Path, help="records.json of `model_records.py`")
    parser.add_argument("--seed", type=int, default=SEED, help="chooses the half that is fitted")
    parser.add_argument("--held-out", action="store_true", help="the other half; fit nothing then")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a program may run")
    parser.add_argument("--work", type=Path, help="folder to keep builds in")
    parser.add_argument("--save", type=Path, help="what was modelled, as JSON; goes on there")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudaops-model-") as folder:
        where = wanted.work or Path(folder)
        if wanted.programs:
            print(_corpus(wanted, where))
            return
        text = tables(where)
    if not wanted.write:
        print(text)
        return
    page = ROOT / "docs" / "model.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def _corpus(wanted: argparse.Namespace, where: Path) -> str:
    runs = read_runs(wanted.records)
    every = {folder.name for folder in wanted.programs.iterdir() if folder.is_dir()}
    fitted = half(every, wanted.seed)
    names = every - fitted if wanted.held_out else fitted
    corpus = Corpus(
        wanted.programs, wanted.rewrites, wanted.records, frozenset(names), wanted.limit
    )
    save = wanted.save or where / "modelled.json"
    rows = model_corpus(corpus, CpuExecutor("H200", where / "cache"), where, save)
    which = "Held out" if wanted.held_out else "Fitted"
    title = f"{which} half (seed {wanted.seed}), {datetime.date.today().isoformat()}."
    table = speedups_table(rows, runs, corpus.names) if wanted.rewrites else corpus_table(rows)
    return "\n".join([title, "", *table])


if __name__ == "__main__":
    main()
