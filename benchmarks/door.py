"""Every form of tests/door through `cudaops profile`, and through `verify` with a trivial rewrite.

    python -m benchmarks.door --executor cuda --gpus 2 --jobs 8 --seconds 540 --out door.jsonl
    python -m benchmarks.door --executor cuda --jobs 15 --commands reproduce --seconds 205
    python -m benchmarks.door --programs FOLDER --commands profile

With `--programs` the programs below FOLDER instead: a folder each, with one .cu that has a `main`,
what that includes and reads, and what is said beside it (`authored.py`).

`reproduce` captures a form and runs its launches again on their own, which must give what they gave
in the program: on one GPU that takes 2 s a form, a profile by ncu 9 s. Writes a line of JSON for
each as it ends, and a table. A form that is not reached in time is left out of both, and the last
line says how many.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.authored import authored_below
from benchmarks.pool import run_all
from cudaops.executors.base import close_executor
from cudaops.sandbox.roles import confirm_reproduces
from cudaops.settings import load_settings
from tests.door.test_forms import REWRITE, SUMS_ROWS, Form, opened, placed, read_forms

ROOT = Path(__file__).parents[1]
LIMIT_S = 150.0
"""Of one command, unless it is said otherwise."""


class Job(NamedTuple):
    """One command on one form."""

    form: Form
    command: str


def read_programs(folder: Path) -> list[Form]:
    """The programs below a folder, in the order of their names."""
    return [
        Form(one.path, {k: x for k, x in (("args", one.args), ("nvcc", one.nvcc)) if x}, one.text)
        for one in authored_below(folder.resolve(), "*/*.cu")
    ]


def reproduce(form: Form, executor: str) -> None:
    """Capture a form and run up to two of its launches again. Raises InputError."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.chdir(folder)
        bench = opened(form, executor, folder, load_settings().builds_folder)
        told = []
        for workload in bench.workloads[:2]:
            plain = bench.compiled_baseline(workload)
            confirm_reproduces(bench.executor, plain, workload, folder / "confirm", LIMIT_S)
            told.append(f"{workload.callee}, launched {workload.launches} times")
        close_executor(bench.executor)
        print(json.dumps({"verdict": "; ".join(told)}))


class Result(NamedTuple):
    """One job's outcome."""

    form: str
    command: str
    exit_code: int | None
    """None where it did not end."""
    seconds: float
    said: str
    """The verdict, the failed gate, or the error."""


def run(job: Job, executor: str, gpu: int, limit_s: float, programs: Path | None) -> Result:
    """One command in a folder of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = placed(job.form, Path(folder))
        words = ["-m", "cudaops", "profile", source.name, *job.form.words]
        if job.command == "verify":
            rewrite = ["-m", "cudaops", "verify", source.name, str(REWRITE)]
            words = [*rewrite, *job.form.words, "--min-speedup", "1"]
        if job.command == "reproduce":
            words = ["-m", "benchmarks.door", "--one", job.form.name]
            words += ["--programs", str(programs.resolve())] if programs else []
        command = [sys.executable, *words, "--executor", executor]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        env |= {"CUDA_VISIBLE_DEVICES": str(gpu)} if executor == "cuda" else {}
        try:
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return Result(job.form.name, job.command, None, limit_s, "did not end")
    seconds = round(time.monotonic() - started, 1)
    return Result(job.form.name, job.command, done.returncode, seconds, told(done))


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that matters."""
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return " ".join(line for line in lines if line.startswith("cudaops"))[:300] or (
            lines[-1][:300] if lines else ""
        )
    if "verdict" in answer:
        return str(answer["verdict"])[:200]
    attempts = answer.get("attempts") or []
    gates = attempts[-1]["judgement"]["gates"] if attempts else []
    failed = [f"{g['name']}: {g['summary']}" for g in gates if not g["passed"]]
    return (failed or [str(answer.get("outcome"))])[0][:300]


def is_right(result: Result) -> bool:
    """Taken; a rewrite that is only not faster passed every gate of results."""
    return result.exit_code == 0 or (
        result.command == "verify" and result.exit_code == 1
        and result.said.startswith(("speedup", "remeasured"))
    )  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--each", type=float, default=LIMIT_S, help="seconds for one")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--commands", nargs="*", default=["profile", "verify"])
    parser.add_argument("--out", type=Path, default=Path("door.jsonl"))
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--one", help="reproduce this form here")
    given = parser.parse_args()
    all_forms = read_programs(given.programs) if given.programs else read_forms()
    if given.one is not None:
        reproduce(next(f for f in all_forms if f.name == given.one), given.executor)
        return
    forms = [f for f in all_forms if not given.only or f.name in given.only]
    jobs = [Job(f, c) for c in ("profile", "reproduce") for f in forms if c in given.commands]
    if "verify" in given.commands:
        jobs += [Job(f, "verify") for f in forms if SUMS_ROWS.search(f.text)]
    ended = run_all(
        jobs,
        lambda job, gpu, left_s: run(
            job, given.executor, gpu, min(given.each, left_s), given.programs
        ),
        at_once=given.jobs, gpus=given.gpus, seconds=given.seconds,
    )  # fmt: skip
    done: list[Result] = []
    with given.out.open("w", encoding="utf-8") as out:
        for _, result in ended:
            done.append(result)
            out.write(json.dumps(result._asdict()) + "\n")
            out.flush()
            mark = "ok " if is_right(result) else "NOT"
            print(mark, result.command, result.form, result.seconds, result.said[:160], flush=True)
    right = sum(map(is_right, done))
    print(f"{right} of {len(done)} right; {len(jobs) - len(done)} not reached")


if __name__ == "__main__":
    main()
