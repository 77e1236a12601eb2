"""The time model against a search on a GPU: drafts that `cudaops run --executor cuda` timed are
written again, modelled, and compared.

    python benchmarks/improve.py FOLDER --executor cuda ... --out RUNS     (on a GPU)
    python benchmarks/model_trials.py FOLDER RUNS/runs.tar.xz --each 12 --jobs 2 --out OUT

FOLDER as for improve.py; no GPU is needed. Of each run up to `--each` drafts, evenly over their
measured times, or settings of a recipe's tune names, the author's kernel and the last candidate.
Writes OUT/trials.jsonl (a row a program, kept as it comes and not made again) and prints the table:
median error of a time and of a speedup, share of speedups within twice, rank correlation of the
drafts of each program.

A draft's time in a search holds what launching it takes; that is taken off, as the run's last
candidate was timed both ways.

Order is judged by pairs of drafts that differ by more than `NOISE`: pairs in the right order less
those in the wrong one, over all such pairs (Kendall's tau over them; equal modelled times are
neither). Spearman's over all drafts stands beside it. With `--again RUNS2`, a second search over
the same programs, nothing is modelled: what two measurements of one draft differ by is printed,
and how well the one ranks as the other does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.authored import authored_in  # noqa: E402
from benchmarks.model_table import spearman  # noqa: E402
from benchmarks.pool import run_all  # noqa: E402
from cudaops.domain.execution import CompileFailed, Measurement  # noqa: E402
from cudaops.domain.rewrite import Rewrite  # noqa: E402
from cudaops.domain.run import RunOptions  # noqa: E402
from cudaops.errors import CudaOpsError  # noqa: E402
from cudaops.executors.cpu.executor import CpuExecutor  # noqa: E402
from cudaops.graph.services import open_bench  # noqa: E402
from cudaops.program.syntax import NotUnderstood  # noqa: E402
from cudaops.sandbox.workbench import Workbench  # noqa: E402
from cudaops.settings import load_settings  # noqa: E402
from cudaops.transformations.draft import Draft, Step, Subject  # noqa: E402
from cudaops.transformations.search import remade  # noqa: E402

NOISE = 0.225
"""Log of the ratio of two measured times, launching included, up to which they are equal. Measured:
95 % of 261 drafts of seven programs that two searches on H200s timed, one with up to eleven other
jobs on two GPUs, one with a GPU to itself, differ by less, less the median of each program (driver
580.159.04, 2026-12-01, `--again`); half of them by less than 0.013."""

_STEP = re.compile(r"(?P<name>\w+)(?: in (?P<kernel>\w+))?(?: \((?P<settings>.*)\))?")


class NotModelled(Exception):
    """What is in the way; a draft of a recipe has no steps to be made of again."""


def read_steps(title: str) -> list[Step]:
    """Of a draft as `search.spelled` names it."""
    found = []
    for text in title.split(" > "):
        said = _STEP.fullmatch(text)
        if said is None:
            raise NotModelled(f"not a step: {text!r}")
        words = [word.split(" ", 1) for word in (said["settings"] or "").split(", ") if word]
        setting = {name: int(value) if value.isdigit() else value for name, value in words}
        found.append(Step(said["name"], setting, "", said["kernel"] or ""))
    return found


def evenly(rows: Sequence[Any], most: int) -> list[Any]:
    """So many of them, first and last among these."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(n * (len(rows) - 1) / (most - 1))] for n in range(most)]


def modelled_us(bench: Workbench, rewrite: Rewrite | None) -> float:
    """Of a launch, in the mean over all that are timed. Raises NotModelled."""
    total = launches = 0.0
    for workload, count in bench.timed_launches:
        measured = bench.measure(rewrite, workload, draft=True)
        if isinstance(measured, CompileFailed):
            raise NotModelled(measured.message)
        if not isinstance(measured, Measurement):
            raise NotModelled(measured.message)
        total += measured.median_us * count
        launches += count
    return total / launches


def launching(last: Mapping[str, Any]) -> float:
    """What launching the last candidate took, us: of the hottest of its launch configurations, the
    one that was timed both ways."""
    hottest = max(last["times"], key=lambda one: one["share"])
    return max(0.0, last["candidate_launched_us"] - hottest["candidate_us"])


def of_run(folder: Path, run: Path, each: int, work: Path, timeout_s: float) -> dict[str, Any]:
    """One program's row."""
    record = json.loads((run / "run.json").read_text())
    trials = json.loads((run / _TRIALS).read_text())
    last = next(a for a in reversed(record["attempts"]) if a.get("times"))
    profile = record["profile"]["baseline"]
    launching_us = launching(last)
    os.chdir(folder)
    source = authored_in(Path())
    options = RunOptions(
        source=source.path.name, working_folder=str(folder), out=str(work),
        kernel=profile["kernel"], nvcc=source.nvcc or None, device=record["device"],
        argument_lines=(source.args,) if source.args else (), timeout_seconds=timeout_s,
    )  # fmt: skip
    executor = CpuExecutor(record["device"], load_settings().builds_folder, program_folder=folder)
    bench = open_bench(options, executor)
    root = Draft.of(Subject(bench.program, bench.kernel, bench.workloads))
    row: dict[str, Any] = {
        "kernel": profile["kernel"], "device": record["device"], "launching_us": launching_us,
        "author": [last["baseline_us"], modelled_us(bench, None)], "drafts": [], "left_out": [],
    }  # fmt: skip
    timed = sorted((t for t in trials if t["time_us"]), key=lambda t: t["time_us"])
    for trial in evenly(timed, each):
        try:
            rewrite = _rewrite(root, record["best"], trial)
            times = [trial["time_us"] - launching_us, modelled_us(bench, rewrite)]
            row["drafts"].append([named(trial), *times, rewrite.id])
        except (CudaOpsError, NotModelled, NotUnderstood) as problem:
            row["left_out"].append([named(trial), str(problem)[:200]])
    return row


def named(trial: Mapping[str, Any]) -> str:
    """A draft's steps, or the values of a recipe's tune names."""
    return trial["title"] or ", ".join(f"{k}={v}" for k, v in trial["values"].items())


def _rewrite(root: Draft, best: Any, trial: Mapping[str, Any]) -> Rewrite:
    """Of a draft; of a recipe's setting where its rewrite was kept. Raises NotModelled."""
    if trial["title"]:
        return remade(root, read_steps(trial["title"])).rewrite()
    if not best:
        raise NotModelled("a recipe's rewrite that was not kept")
    return Rewrite.model_validate(best).tuned_with(trial["values"])


class Order(NamedTuple):
    """Pairs of drafts whose measured times differ by more than `NOISE`."""

    right: int
    wrong: int
    pairs: int

    @property
    def tau(self) -> float | None:
        """Kendall's over these pairs, -1 to 1; None where there are none."""
        return (self.right - self.wrong) / self.pairs if self.pairs else None


def ordered(measured: Sequence[float], modelled: Sequence[float], launching_us: float) -> Order:
    """What the model makes of the pairs. Measured times are without `launching_us`."""
    right = wrong = pairs = 0
    for (a, x), (b, y) in itertools.combinations(zip(measured, modelled, strict=True), 2):
        apart = math.log((a + launching_us) / (b + launching_us))
        if abs(apart) > NOISE:
            pairs += 1
            right += apart * (x - y) > 0.0
            wrong += apart * (x - y) < 0.0
    return Order(right, wrong, pairs)


def compared(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The table, and what it comes to."""
    yield (
        "| program | author, measured us | modelled us | ratio | drafts | rank, all drafts | "
        "pairs beyond noise | rank of these |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    times, speedups, ranks, orders = [], [], [], []
    for row in rows:
        theirs, modelled = row["author"]
        measured = [us for _, us, *_ in row["drafts"]]
        ours = [us for _, _, us, *_ in row["drafts"]]
        rank = spearman(measured, ours) if len(set(measured)) > 3 and len(set(ours)) > 1 else None
        ranks += [] if rank is None else [rank]
        order = ordered(measured, ours, row["launching_us"])
        orders += [order] if order.pairs else []
        times += [modelled / theirs, *(b / a for a, b in zip(measured, ours, strict=True))]
        speedups += [(modelled / b) / (theirs / a) for a, b in zip(measured, ours, strict=True)]
        told, beyond = ("-" if x is None else f"{x:.2f}" for x in (rank, order.tau))
        yield (
            f"| {row['program']} | {theirs:.2f} | {modelled:.2f} | {modelled / theirs:.2f} | "
            f"{len(measured)} | {told} | {order.pairs} | {beyond} |"
        )
    if not ranks or not orders:
        return
    taus = [order.tau or 0.0 for order in orders]
    every = Order(*(sum(column) for column in zip(*orders, strict=True)))
    yield ""
    yield (
        f"{len(rows)} programs, {len(speedups)} drafts: median error of a time "
        f"{100 * _error(times):.0f} %, of a speedup {100 * _error(speedups):.0f} %; "
        f"{100 * sum(0.5 <= s <= 2.0 for s in speedups) / len(speedups):.0f} % of speedups within "
        f"2x; rank correlation of a program's drafts {statistics.mean(ranks):.2f} in the mean, "
        f"{statistics.median(ranks):.2f} in the median; over pairs beyond noise "
        f"{statistics.mean(taus):.2f} and {statistics.median(taus):.2f}, "
        f"{100 * every.right / every.pairs:.0f} % of {every.pairs} pairs in the right order."
    )


def repeated(first: Path, second: Path) -> Iterator[str]:
    """What two searches measured of the same drafts, in two folders of runs."""
    yield "| program | drafts of both | second over first | half differ by less than | rank |"
    yield "|---|---|---|---|---|"
    differences: list[float] = []
    for path in sorted(second.glob(f"*/{_TRIALS}")):
        name = path.parts[-4].removeprefix("out-")
        if not (first / name / _TRIALS).is_file():
            continue
        times = [
            {named(t): t["time_us"] for t in json.loads(one.read_text()) if t["time_us"]}
            for one in (first / name / _TRIALS, path)
        ]
        both = [(times[0][title], us) for title, us in times[1].items() if title in times[0]]
        if len(both) < 4:
            continue
        logs = [math.log(b / a) for a, b in both]
        middle = statistics.median(logs)
        apart = [abs(x - middle) for x in logs]
        differences += apart
        rank = spearman([a for a, _ in both], [b for _, b in both])
        yield (
            f"| {name} | {len(both)} | {math.exp(middle):.2f} | "
            f"{100 * math.expm1(statistics.median(apart)):.1f} % | {rank:.2f} |"
        )
    ordered_differences = sorted(differences)
    yield ""
    for share in (0.5, 0.8, 0.9, 0.95):
        found = ordered_differences[int(share * (len(differences) - 1))]
        yield f"{100 * share:.0f} % of {len(differences)} drafts differ by less than {found:.3f}"


def _error(ratios: Sequence[float]) -> float:
    """Median factor by which a ratio is off 1, less 1."""
    return math.exp(statistics.median(abs(math.log(r)) for r in ratios)) - 1.0


_TRIALS = "iterations/01/trials.json"


def _unpacked(runs: Path, folder: Path) -> Path:
    with tarfile.open(runs) as packed:
        packed.extractall(folder, filter="data")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, help="runs.tar.xz of improve.py")
    parser.add_argument("--each", type=int, default=12, help="drafts of one program")
    parser.add_argument("--jobs", type=int, default=2, help="programs at once")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of them")
    parser.add_argument("--timeout", type=float, default=100.0, help="seconds of one run")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # of the process of one program
    parser.add_argument("--again", type=Path, help="runs of a second search over the programs")
    options = parser.parse_args()
    if options.again:
        with tempfile.TemporaryDirectory() as work:
            folders = [
                _unpacked(runs, Path(work, n))
                for n, runs in (("1", options.runs), ("2", options.again))
            ]
            sys.stdout.write("\n".join(repeated(*folders)) + "\n")
        return 0
    if options.one:
        with tempfile.TemporaryDirectory() as work:
            row = of_run(
                (options.folder / options.one).resolve(), options.runs / options.one, options.each,
                Path(work), options.timeout,
            )  # fmt: skip
        sys.stdout.write(json.dumps(row) + "\n")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "trials.jsonl"
    rows = [json.loads(x) for x in kept.read_text().splitlines()] if kept.exists() else []
    with tempfile.TemporaryDirectory() as unpacked:
        _unpacked(options.runs, Path(unpacked))
        names = sorted(p.parts[-4] for p in Path(unpacked).glob(f"*/{_TRIALS}"))
        known = {row["program"] for row in rows}
        names = [n for n in names if n not in known and n in (options.only or names)]

        def one(name: str, gpu: int, left_s: float) -> str:
            command = [
                sys.executable, __file__, str(options.folder), unpacked, "--one", name,
                "--each", str(options.each), "--timeout", str(options.timeout), "--out", ".",
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=left_s, check=False
                )
            except subprocess.TimeoutExpired:
                return ""
            if done.returncode:
                sys.stderr.write(f"{name}: {done.stderr.strip().splitlines()[-1][:300]}\n")
            return done.stdout if not done.returncode else ""

        for name, said in run_all(names, one, at_once=options.jobs, seconds=options.seconds):
            if said:
                rows.append({"program": name} | json.loads(said))
                with kept.open("a") as out:
                    out.write(json.dumps(rows[-1]) + "\n")
                sys.stderr.write(f"{name}: {len(rows[-1]['drafts'])} drafts\n")
    sys.stdout.write("\n".join(compared(sorted(rows, key=lambda r: str(r["program"])))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
