"""Pairs of a program and a rewrite through every gate at any speed: which are refused, and by what.

    python -m benchmarks.judge_pairs FOLDER... --executor cuda --gpus 2 --jobs 12 --seconds 560 \\
        --out pairs.jsonl

Each FOLDER is such a pair, or holds some: `base.cu` (the author's), `cand.cu` (a whole program, or
device source with `@launch`), what is said beside them (`authored.py`), and, where wanted, EXPECT
(`refuse` or `accept`). A pair has a process of its own. Writes a line of JSON for each as it ends,
then those that did not end as expected. A pair that is not reached in time is left out, and the
last line says how many.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.authored import authored
from benchmarks.pool import run_all
from cudaops.domain.judgement import Policy
from cudaops.domain.run import RunOptions
from cudaops.errors import CudaOpsError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.graph.events import EventLog
from cudaops.graph.services import open_bench
from cudaops.graph.verify_files import judge_candidate
from cudaops.settings import load_settings
from tests.exploits.cases import ANY_SPEED, DEVICE
from tests.exploits.suite import SPEED_GATES

SPEED = {*SPEED_GATES, "clocks"}
"""Gates at which an honest rewrite may end: it need not be faster here."""


class Pair(NamedTuple):
    """A folder, and what is expected of it."""

    folder: Path
    expected: str

    def ended_as_expected(self, row: dict[str, Any]) -> bool:
        """Whether gates of results refused it, or let it through, as EXPECT has it."""
        return not self.expected or row["found"] == self.expected


def pairs_in(folders: Sequence[Path]) -> Iterator[Pair]:
    """Those below these folders, by name."""
    for folder in folders:
        for base in sorted(folder.rglob("base.cu")):
            expected = base.with_name("EXPECT")
            yield Pair(base.parent, expected.read_text().strip() if expected.exists() else "")


def judge(folder: Path, executor: str) -> dict[str, Any]:
    """What becomes of one pair. Raises CudaOpsError where it is not judged at all."""
    os.chdir(folder)
    base = authored(Path("base.cu"))
    with tempfile.TemporaryDirectory() as place:
        options = RunOptions(
            source="base.cu",
            working_folder=str(folder),
            nvcc=base.nvcc or None,
            argument_lines=(base.args,) if base.args else (),
            kernel=base.kernel,
            policy=Policy(min_speedup=ANY_SPEED),
            out=place,
        )
        builds = load_settings().builds_folder
        runs_on: Executor = (
            CpuExecutor(DEVICE, builds, program_folder=folder)
            if executor == "cpu"
            else CudaExecutor(None, builds, driver="nvidia", program_folder=folder)
        )
        try:
            bench = open_bench(options, runs_on)
            events = EventLog(Path(place) / "events.jsonl", lambda event: None)
            state = judge_candidate(bench, Path("cand.cu"), events)
        finally:
            close_executor(runs_on)
    gates = state["attempts"][0]["judgement"]["gates"]
    stopped = next((g for g in gates if not g["passed"]), None)
    refused = stopped is not None and stopped["name"] not in SPEED
    row: dict[str, Any] = {"found": "refuse" if refused else "accept"}
    if stopped is not None:
        row |= {"gate": stopped["name"], "why": stopped["summary"]}
    row["seconds_by_gate"] = {g["name"]: round(g["seconds"], 1) for g in gates}
    domain = next((g for g in gates if g["name"] == "correctness_domain"), None)
    row["domain"] = "" if domain is None else domain["summary"]
    row["notices"] = state["notices"]
    return row


def judged(pair: Pair, executor: str, gpu: int, limit_s: float) -> dict[str, Any]:
    """The same in a process of its own, on one GPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "CUDAOPS_MEMORY": "off"}
    command = [sys.executable, "-m", "benchmarks.judge_pairs", "--one", str(pair.folder)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, "--executor", executor],
            capture_output=True, text=True, timeout=limit_s, env=environment,
            cwd=Path(__file__).parents[1], check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        row: dict[str, Any] = {"found": "time is up"}
    else:
        lines = done.stdout.splitlines()
        failed = {"found": f"exit {done.returncode}", "why": done.stderr.strip()[-600:]}
        row = failed if done.returncode or not lines else json.loads(lines[-1])
    seconds = round(time.monotonic() - began, 1)
    return {"pair": pair.folder.name, "expected": pair.expected, **row, "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--executor", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--each", type=float, default=400.0, help="seconds for one")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of them")
    parser.add_argument("--out", type=Path, default=Path("pairs.jsonl"))
    options = parser.parse_args()
    if options.one:
        try:
            row = judge(options.one.resolve(), options.executor)
        except CudaOpsError as error:
            row = {"found": "not judged", "why": str(error)}
        sys.stdout.write(json.dumps(row) + "\n")
        return 0
    pairs = list(pairs_in([f.resolve() for f in options.folders]))
    rows, others = 0, []
    ended = run_all(
        pairs,
        lambda pair, gpu, left_s: judged(pair, options.executor, gpu, min(options.each, left_s)),
        at_once=options.jobs, gpus=options.gpus, seconds=options.seconds,
    )  # fmt: skip
    with options.out.open("w") as out:
        for pair, row in ended:
            rows += 1
            out.write(json.dumps(row) + "\n")
            out.flush()
            if not pair.ended_as_expected(row):
                why = f"{row.get('gate', '')} {row.get('why', '')[:200]}"
                others.append(f"{row['pair']}: {row['expected']}, but {row['found']}: {why}")
    sys.stdout.write("\n".join([*others, ""]))
    sys.stdout.write(
        f"{rows - len(others)} of {rows} as expected; {len(pairs) - rows} not reached\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
