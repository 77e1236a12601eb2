"""The author's whole program with the rewrite in it: compiled by nvcc where it is, and run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.cuda.nvcc_line import folders_outside, nvcc_words
from cudaops.domain.execution import ProgramRan
from cudaops.domain.judgement import Gate
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.arrays import UNIT_ROUNDOFF, sample, stored
from cudaops.executors.cuda.toolchain import (
    finds_driver_library,
    nvcc_command,
    nvcc_for,
    nvcc_version,
    words_of_author,
)
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import Finished, last_words, run_bounded
from cudaops.sandbox.captures import CapturedRun
from cudaops.sandbox.printed import AuthorsOutput, compare_printed
from cudaops.sandbox.workbench import Workbench
from cudaops.storage import Facts, entry_of, make_once, raise_if_full

NVCC_TIMEOUT_S = 180.0
"""A small program takes 0.7-1.1 s, one with thrust or cub up to 8 s on 2 slow cores."""
ROUNDINGS = 1024
"""Of the largest result: an error that a program prints of itself may be so large. Chosen: what a
million numbers added in another order may be off by, each as much as the sum. Results themselves
are compared with much less on every captured launch (`gates.accuracy`)."""
LOOKED_AT = 1 << 20
"""Elements of a result among which the largest is sought."""


def whole_program_gates(bench: Workbench, rewrite: Rewrite) -> Iterator[Gate]:
    """`whole_program` always, `nvcc_compile` where nvcc and the libraries that the program includes
    are there (else there is no such gate).

    On a GPU the program that ran was built by nvcc, so running it says both.
    """
    if why := _held(bench, rewrite):
        yield Gate(name="whole_program", passed=False, quarantined=True, summary=why, seconds=0.0)
        return
    started = time.monotonic()
    try:
        spliced = bench.runnable(rewrite)
    except InputError as problem:
        seconds = time.monotonic() - started
        yield Gate(name="whole_program", passed=False, summary=str(problem), seconds=seconds)
        return
    ran = run_gate(bench, rewrite.id, spliced)
    yield ran
    nvcc = nvcc_for(bench.program)
    if ran.passed and nvcc is not None and bench.executor.name == "cpu":
        yield _nvcc_gate(bench, spliced, nvcc)


def _held(bench: Workbench, rewrite: Rewrite) -> str:
    """Why a whole run would not tell enough; empty where it does."""
    if bench.stopped:
        return bench.stopped
    alone = bench.served_alone(rewrite)
    missing = [one for one in alone.plan.requires if one not in rewrite.plan.requires]
    lines = "; ".join(f"// @requires {one}" for one in missing)
    return f"{bench.paused}; it lacks {lines}" if missing else ""


class _Printed(NamedTuple):
    """What both programs say in one run."""

    matches: bool
    summary: str
    numbers: dict[str, float]


def prints_the_same(bench: Workbench, name: str, program: Program) -> Gate:
    """Whether a program that somebody handed in, with host code of its own, prints what the
    author's does, but for the times that it takes of itself. `name`: of its file."""
    gate = run_gate(bench, f"{name} {program.sha256}", program, times_itself=True)
    text = f"{name} as submitted: {gate.summary}"
    return gate.model_copy(update={"name": "handed_in", "summary": text})


def run_gate(bench: Workbench, name: str, spliced: Program, *, times_itself: bool = False) -> Gate:
    """Both programs in every judged run; the numbers are those of the first, which is timed where
    one is, or of the one that fails. `times_itself`: see `compare_printed`."""
    started = time.monotonic()
    runs = [one for one in bench.captured.runs if one.is_judged]
    runs.sort(key=lambda one: not one.is_timed)
    found: list[_Printed] = []
    for run in runs:
        found.append(_printed(bench, name, spliced, run, times_itself=times_itself))
        if not found[-1].matches:
            break
    told = found[0] if found[-1].matches else found[-1]
    which = ""
    if len(runs) > 1:
        shown = " ".join(runs[len(found) - 1].run.argv)
        which = f"{len(runs)} runs: " if told.matches else f"run with {shown!r}: "
    return Gate(
        name="whole_program",
        passed=told.matches,
        summary=which + told.summary,
        numbers=told.numbers,
        seconds=time.monotonic() - started,
    )


def _printed(
    bench: Workbench, name: str, spliced: Program, run: CapturedRun, *, times_itself: bool = False
) -> _Printed:
    runs = bench.program_runs
    author, ran = runs.author(run), runs.rewritten(name, spliced, run)
    if not isinstance(ran, ProgramRan):
        return _Printed(False, ran.placed, {})
    if bench.program.application is not None and (why := _not_launched(ran)):
        return _Printed(False, why, {})
    wanted = author.exit_code
    if ran.exit_code != wanted:
        text = f"exits with {ran.exit_code} where the author's program exits with {wanted}"
        said = last_words(ran.stderr + ran.stdout)
        text += f", and ends with: {said}" if said else ""
        return _Printed(False, text, {})
    rtol = bench.policy.rtol_program
    compare = partial(compare_printed, author.stdout, ran.stdout, rtol, times_itself=times_itself)
    others = () if run.captured.paused else (run.captured.stdout,)
    beside = AuthorsOutput(others=others, clocked=runs.sets_clocks)
    printed = compare(beside)
    further = runs.others(run)
    while not printed.matches and (other := next(further, "")):
        beside = beside._replace(others=(*beside.others, other))
        printed = compare(beside)
    if not printed.matches and beside.clocked and len(beside.others) <= 1:
        beside = beside._replace(clocked=False)
        printed = compare(beside)
    if not printed.matches and math.isfinite(printed.worst_relative_difference):
        beside = beside._replace(unfused=runs.unfused(run) or "", rounding=_rounding(run))
        printed = compare(beside)
    if ran.replaced is not None:
        kept = ran.replaced.by_author
        words = f"{ran.replaced.by_rewrite} launches by the rewrite, {kept} by the author's kernel"
        printed = printed._replace(summary=f"{printed.summary}; {words}")
    numbers = {
        "numbers_compared": float(printed.numbers_compared),
        "worst_relative_difference": printed.worst_relative_difference,
        "rtol": rtol,
    }
    if not bench.models_time:
        numbers |= _program_times(author, ran)
    until = ""
    if author.paused:
        until = f", until it launches no more: the whole of it takes over {bench.timeout_s:g} s"
    return _Printed(printed.matches, printed.summary + until, numbers)


def _rounding(run: CapturedRun) -> float:
    """How far results of single and double precision are apart that differ by rounding."""
    found = 0.0
    for workload in run.captured.workloads:
        for a in workload.allocations:
            if a.role != "in" and a.element in ("f32", "f64"):
                values = np.abs(
                    sample(stored(Path(workload.folder) / a.after, a.element), LOOKED_AT)
                )
                largest = float(values[np.isfinite(values)].max(initial=0.0))
                found = max(found, ROUNDINGS * UNIT_ROUNDOFF[a.element] * largest)
    return found


def _not_launched(ran: ProgramRan) -> str:
    """Why what an application printed says nothing of the rewrite; empty where it does."""
    counted = ran.replaced
    if counted is None:
        return (
            "the program ended without saying how often it launched the rewrite; let it end by "
            "returning from main or by exit()"
        )
    if counted.by_rewrite:
        return ""
    why = f": {counted.reason}" if counted.reason else ""
    return f"the program never launched the rewrite ({counted.by_author} launches by its own{why})"


def _program_times(author: ProgramRan, ran: ProgramRan) -> dict[str, float]:
    """Of both programs, one run each: for the record, never for the verdict."""
    times = {"author_program_seconds": author.seconds, "candidate_program_seconds": ran.seconds}
    if author.kernel_ms is not None:
        times["author_printed_kernel_ms"] = author.kernel_ms
    if ran.kernel_ms is not None:
        times["candidate_printed_kernel_ms"] = ran.kernel_ms
    return times


def _nvcc_gate(bench: Workbench, spliced: Program, nvcc: Path) -> Gate:
    """Compile the spliced program as its user will; of a build the file that changed."""
    started = time.monotonic()
    files = {f.path: f.text for f in spliced.files}
    options = spliced.code_options
    extra = words_of_author(spliced)
    lacks_driver = False
    if spliced.build is not None:
        extra = (*nvcc_words(options), "-dc")
    elif lacks_driver := "-lcuda" in extra and not finds_driver_library(nvcc):
        extra = (*extra, "-c")
    command = nvcc_command(nvcc, Path(spliced.main_path), Path("program"), bench.sm_arch, extra)
    content = (nvcc_version(nvcc), command[1:], sorted(files.items()))
    entry = entry_of(bench.executor.cache, "nvcc", *content)

    def make(folder: Path) -> Facts | Finished:
        confine = Confinement("compile", folders_outside(options), (folder,))
        done = run_bounded(command, cwd=folder, timeout_s=NVCC_TIMEOUT_S, confine=confine)
        if done.exit_code != 0:
            raise_if_full(done.stderr, folder)
            return done
        (folder / "program").unlink()  # that nvcc takes it is all that is asked
        return {}

    made = make_once(entry, files, make)
    summary = f"nvcc -O3 -arch={bench.sm_arch}"
    summary += ", not linked: libcuda is not here" if lacks_driver else ""
    if isinstance(made, Finished):
        errors = [line for line in (made.stderr + made.stdout).splitlines() if "error" in line]
        summary += f" refuses it: {errors[0] if errors else f'exit code {made.exit_code}'}"
    return Gate(
        name="nvcc_compile",
        passed=not isinstance(made, Finished),
        summary=summary,
        seconds=time.monotonic() - started,
    )
