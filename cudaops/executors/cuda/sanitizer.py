"""compute-sanitizer around a runner: one tool, one task, bounded, its findings as records.

It opens TCP ports on the loopback interface (49152 and up) between itself and the program, so it
needs one; and it cannot look at a program that CUPTI or ncu looks at (its manual, "Known
limitations"): a task under it takes no times.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from cudaops.cuda.sanitizer_report import Report, parse_report
from cudaops.domain.execution import CheckerUnavailable
from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.cuda.protocol import REPLY, Fault, Refused, RunReply, RunTask
from cudaops.executors.cuda.sanitizer_faults import Blamed, Extent, Names, misbehaviours
from cudaops.executors.cuda.toolchain import find_tool
from cudaops.executors.isolation.level import level_of, weaken
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import Finished, run_bounded

Tool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
TaskCommand = Callable[[Path, Path], tuple[Sequence[str], Mapping[str, str]]]
"""Command line and environment of a runner that does the task in one file and writes its reply to
another."""

PROGRAM = "compute-sanitizer"
PADDING_BYTES = 64 * 1024
"""Put behind every allocation: without it an access that lands in the next allocation is no error
(manual, "Padding"). As wide as the widest guard band that evaluators use."""
FOUND_EXIT_CODE = 86
"""Told to the tool for "there were findings"; no exit code of a Python runner."""
TOOL_TIMEOUT_S = 20.0
READ_LOG = "read its log in the folder of the check"
STRAY = "CUDAOPS_CHECK_RUN"
"""Environment variable by which a runner that outlived its sanitizer is known."""
INSTALL = (
    "install the CUDA toolkit's compute-sanitizer, or "
    "`python -m pip install nvidia-cuda-sanitizer-api`"
)

_COMMON = (
    "--print-limit", "100", "--show-backtrace", "device", "--demangle", "no",
    "--target-processes", "all",
)  # fmt: skip
_OPTIONS: dict[Tool, tuple[str, ...]] = {
    # Failed calls are the runner's to report; cuda-bindings asks for functions a driver lacks.
    "memcheck": ("--padding", str(PADDING_BYTES), "--report-api-errors", "no"),
    "racecheck": ("--racecheck-report", "analysis"),
    "synccheck": (),
    # Global memory is written by the runner before every launch: only shared memory can be unset.
    "initcheck": ("--initcheck-address-space", "shared"),
}
_REMEDIES = (
    (r"[Dd]evice not supported|WDDM", "use a compute-sanitizer that supports this GPU"),
    (r"terminated before first|No attachable|not connect",
     "run it by hand on a CUDA program; it needs the loopback interface and a driver"),
    (r"enough memory|memory to perform", "free GPU memory, or check a smaller workload"),
)  # fmt: skip


def find_compute_sanitizer() -> Path | None:
    """On PATH, in CUDA_HOME or CUDA_PATH, in /usr/local/cuda, or in NVIDIA's wheel; else None."""
    return find_tool(PROGRAM, inside=("bin", PROGRAM), homes=("/usr/local/cuda",))


class Looked(NamedTuple):
    """One tool went through a whole task."""

    tool: Tool
    found: tuple[Blamed, ...]
    """Empty: nothing is wrong as far as this tool can see."""
    seconds: float


class Sanitizer:
    """One installed compute-sanitizer."""

    def __init__(self, program: Path) -> None:
        self.program = program

    @cached_property
    def version(self) -> str:
        """`2026.4.0.0`; empty where it does not say."""
        found = re.search(r"Version (\S+)", self._ask("--version"))
        return found[1] if found else ""

    @cached_property
    def options(self) -> frozenset[str]:
        """Every option it knows; empty where it does not run."""
        return frozenset(re.findall(r"--[a-z][a-z0-9-]+", self._ask("--help")))

    def look(
        self,
        tool: Tool,
        task: RunTask,
        names: Names,
        command: TaskCommand,
        folder: Path,
        timeout_s: float,
    ) -> Looked | CheckerUnavailable:
        """Run the task under one tool.

        Guard bands go, as the tool must see the true ends. What was found before the time was up
        counts; finding nothing counts only where the tool and the runner both came to their end.
        """
        missing = [o for o in _OPTIONS[tool] if o.startswith("--") and o not in self.options]
        if missing:
            version = self.version or "of unknown version"
            return _unavailable(
                tool, f"{PROGRAM} {version} has no option {missing[0]}", "install a newer one"
            )
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        log, reply = folder / f"{tool}.log", folder / f"{tool}.reply.json"
        for old in (log, reply):
            old.unlink(missing_ok=True)
        written = folder / f"{tool}.task.json"
        bare = {"guards": False, "dumps": {}, "global_dumps": {}}
        written.write_text(task.model_copy(update=bare).model_dump_json(), encoding="utf-8")
        inner, env = command(written, reply)
        line = [str(self.program), *_arguments(tool, log), *inner]
        done = _run(line, folder, timeout_s, env, "S3")
        report = parse_report(_text_of(log))
        found = misbehaviours(report, names)
        if found:
            return Looked(tool, found, done.seconds)
        problem = _problem(report, done, timeout_s, reply)
        if problem and not done.timed_out and level_of("sanitizer") not in ("S0", "S1"):
            for old in (log, reply):
                old.unlink(missing_ok=True)
            done = _run(line, folder, timeout_s, env, "S1")
            report = parse_report(_text_of(log))
            found = misbehaviours(report, names)
            again = None if found else _problem(report, done, timeout_s, reply)
            if again is None:
                weaken("sanitizer", "S1", f"{PROGRAM} {tool} gave no result at S2: {problem[0]}")
            problem = again
        return _unavailable(tool, *problem) if problem else Looked(tool, found, done.seconds)

    def _ask(self, option: str) -> str:
        done = run_bounded([str(self.program), option], cwd=Path.cwd(), timeout_s=TOOL_TIMEOUT_S)
        return done.stdout + done.stderr


def _run(
    line: Sequence[str],
    folder: Path,
    timeout_s: float,
    env: Mapping[str, str],
    at_most: IsolationLevel,
) -> Finished:
    token = secrets.token_hex(16)
    done = run_bounded(
        line,
        cwd=folder,
        timeout_s=timeout_s,
        env={**env, STRAY: token},
        confine=Confinement("sanitizer", writes=(folder,), at_most=at_most),
    )
    if done.timed_out or done.flooded:
        _end_strays(token)
    return done


def _problem(
    report: Report, done: Finished, timeout_s: float, reply: Path
) -> tuple[str, str] | None:
    """Why what the tool says is no result, with the remedy; None where it is one."""
    problem = _why_not(report, done, timeout_s, reply) or _why_no_launch(reply)
    if problem is None and done.exit_code != 0:
        problem = f"what it ran ended with exit code {done.exit_code}", READ_LOG
    return problem


def names_for(task: RunTask, buffers: Mapping[int, str], files: Sequence[str]) -> Names:
    """What a task's sizes and symbols are called.

    Args:
        task: What is run.
        buffers: Allocation index to the author's name of it.
        files: Paths of the program's own files.
    """
    extents = [Extent(buffers.get(b.index, f"#{b.index}"), b.size_bytes) for b in task.buffers]
    extents += [Extent(s.name, s.size_bytes) for s in task.side.scratch]
    kernels = {launch.kernel.symbol: launch.kernel.shown for launch in task.side.launches}
    return Names(tuple(files), kernels, tuple(extents))


def _arguments(tool: Tool, log: Path) -> list[str]:
    """The log goes to a file: what the kernel prints cannot be taken for the tool's words."""
    escaped = str(log).replace("%", "%%")
    head = ["--tool", tool, "--log-file", escaped, "--error-exitcode", str(FOUND_EXIT_CODE)]
    return [*head, *_COMMON, *_OPTIONS[tool]]


def _text_of(log: Path) -> str:
    try:
        return log.read_text("utf-8", "replace")
    except OSError:
        return ""


def _why_not(
    report: Report, done: Finished, timeout_s: float, reply: Path
) -> tuple[str, str] | None:
    """Why a log without findings proves nothing, with the remedy; None where it does."""
    if done.timed_out:
        return f"did not finish within {timeout_s:g} s", "give it more time or a smaller workload"
    if done.flooded:
        return "wrote more output than is kept", "remove what the kernel prints"
    if reply.is_file() and (refused := _refused(reply)):
        return refused
    if report.problems:
        return _with_remedy(report.problems[0])
    if report.errors is None:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = f": {said[-1].strip()[:200]}" if said else ""
        return _with_remedy(f"it ended with exit code {done.exit_code} and no summary{last}")
    if not report.clean:
        first = next((f.text for f in report.findings), "")
        text = f"it counts {report.errors} errors that cannot be read: {first[:200]}"
        return text, READ_LOG
    return None


def _refused(reply: Path) -> tuple[str, str] | None:
    """What the runner itself could not do, which explains whatever the tool says then."""
    try:
        said = REPLY.validate_json(reply.read_bytes())
    except (OSError, ValidationError):
        return None
    if isinstance(said, Refused):
        return f"the runner under it could not work: {said.problem}", said.remedy
    return None


def _why_no_launch(reply: Path) -> tuple[str, str] | None:
    """A clean log counts only with the runner's own word that every launch was made."""
    try:
        said = REPLY.validate_json(reply.read_bytes())
    except (OSError, ValidationError):
        return "the runner under it left no reply", "run again"
    if isinstance(said, RunReply):
        return None
    if isinstance(said, Fault):
        return f"the launch fails only under it: {said.message}", "free GPU memory and run again"
    return f"the runner under it answered {type(said).__name__}", "report it"


def _with_remedy(problem: str) -> tuple[str, str]:
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, problem):
            return problem, remedy
    return problem, READ_LOG


def _unavailable(tool: Tool, problem: str, remedy: str) -> CheckerUnavailable:
    return CheckerUnavailable(checker=f"{PROGRAM} {tool}", problem=problem, remedy=remedy)


def _end_strays(token: str) -> None:
    """Kill what carries the token: the tool starts its target in a session of its own."""
    mark = f"{STRAY}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
