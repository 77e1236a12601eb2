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
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, NamedTuple

from pydantic import ValidationError

from cudaops.cuda.sanitizer_report import (
    Index,
    Other,
    SanitizerFinding,
    SanitizerLocation,
    SanitizerReport,
    parse_report,
)
from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import CheckerUnavailable, Misbehaved, MisbehaviourKind
from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.cuda.protocol import REPLY, FaultReply, RefusedReply, RunReply, RunTask
from cudaops.executors.cuda.toolchain import find_tool
from cudaops.executors.isolation.level import level_of, weaken
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import Finished, run_bounded
from cudaops.program.candidate import FILE as CANDIDATE_FILE

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
_DISPENSABLE: dict[str, str] = {
    "--padding": "an access that lands in the next allocation is not seen",
}
"""Options without which a tool still looks, and what it misses then."""
_REMEDIES = (
    (r"[Dd]evice not supported|WDDM", "use a compute-sanitizer that supports this GPU"),
    (r"terminated before first|No attachable|not connect",
     "run it by hand on a CUDA program; it needs the loopback interface and a driver"),
    (r"enough memory|memory to perform", "free GPU memory, or check a smaller workload"),
)  # fmt: skip


def find_compute_sanitizer() -> Path | None:
    """On PATH, in CUDA_HOME or CUDA_PATH, in /usr/local/cuda, or in NVIDIA's wheel; else None."""
    return find_tool(PROGRAM, inside=("bin", PROGRAM), homes=("/usr/local/cuda",))


class SanitizerRun(NamedTuple):
    """One tool went through a whole task."""

    tool: Tool
    found: tuple[SanitizerFault, ...]
    """Empty: nothing is wrong as far as this tool can see."""
    seconds: float
    missed: str = ""
    """What an option that this version lacks would have let it see."""


class Sanitizer:
    """One installed compute-sanitizer, asked once what it can do."""

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
        names: SanitizerNames,
        command: TaskCommand,
        folder: Path,
        timeout_s: float,
    ) -> SanitizerRun | CheckerUnavailable:
        """Run the task under one tool.

        Guard bands go, as the tool must see the true ends. What was found before the time was up
        counts; finding nothing counts only where the tool and the runner both came to their end.
        """
        if (lacking := self.lacks(tool)) is not None:
            return _unavailable(tool, lacking, "install a newer one")
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        log, reply = folder / f"{tool}.log", folder / f"{tool}.reply.json"
        for old in (log, reply):
            old.unlink(missing_ok=True)
        written = folder / f"{tool}.task.json"
        bare = {"guards": False, "dumps": {}, "global_dumps": {}}
        written.write_text(task.model_copy(update=bare).model_dump_json(), encoding="utf-8")
        inner, env = command(written, reply)
        options, missed = self._options(tool)
        line = [str(self.program), *_arguments(tool, log), *options, *inner]
        done = _run(line, folder, timeout_s, env, "S3")
        report = parse_report(_text_of(log))
        found = misbehaviours(report, names)
        if found:
            return SanitizerRun(tool, found, done.seconds, missed)
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
        if problem:
            return _unavailable(tool, *problem)
        return SanitizerRun(tool, found, done.seconds, missed)

    def lacks(self, tool: Tool) -> str | None:
        """The option without which this version's tool sees nothing of what it is asked; None where
        it has all of them."""
        missing = [o for o in self._missing(tool) if o not in _DISPENSABLE]
        if not missing:
            return None
        return f"{PROGRAM} {self.version or 'of unknown version'} has no option {missing[0]}"

    def _missing(self, tool: Tool) -> list[str]:
        return [o for o in _OPTIONS[tool] if o.startswith("--") and o not in self.options]

    def _options(self, tool: Tool) -> tuple[list[str], str]:
        """What this version is asked beside the common options, and what it misses."""
        missing = self._missing(tool)
        asked = _OPTIONS[tool]
        pairs = [p for p in zip(asked[::2], asked[1::2], strict=True) if p[0] not in missing]
        known = [word for pair in pairs for word in pair]
        return known, "; ".join(_DISPENSABLE[option] for option in missing)

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
    report: SanitizerReport, done: Finished, timeout_s: float, reply: Path
) -> tuple[str, str] | None:
    """Why what the tool says is no result, with the remedy; None where it is one."""
    problem = _why_not(report, done, timeout_s, reply) or _why_no_launch(reply)
    if problem is None and done.exit_code != 0:
        problem = f"what it ran ended with exit code {done.exit_code}", READ_LOG
    return problem


def names_for(task: RunTask, buffers: Mapping[int, str], files: Sequence[str]) -> SanitizerNames:
    """What a task's sizes and symbols are called.

    Args:
        task: What is run.
        buffers: Allocation index to the author's name of it.
        files: Paths of the program's own files.
    """
    extents = [Extent(buffers.get(b.index, f"#{b.index}"), b.size_bytes) for b in task.buffers]
    extents += [Extent(s.name, s.size_bytes) for s in task.side.scratch]
    kernels = {launch.kernel.symbol: launch.kernel.shown for launch in task.side.launches}
    return SanitizerNames(tuple(files), kernels, tuple(extents))


def _arguments(tool: Tool, log: Path) -> list[str]:
    """The log goes to a file: what the kernel prints cannot be taken for the tool's words."""
    escaped = str(log).replace("%", "%%")
    head = ["--tool", tool, "--log-file", escaped, "--error-exitcode", str(FOUND_EXIT_CODE)]
    return [*head, *_COMMON]


def _text_of(log: Path) -> str:
    try:
        return log.read_text("utf-8", "replace")
    except OSError:
        return ""


def _why_not(
    report: SanitizerReport, done: Finished, timeout_s: float, reply: Path
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
    if isinstance(said, RefusedReply):
        return f"the runner under it could not work: {said.problem}", said.remedy
    return None


def _why_no_launch(reply: Path) -> tuple[str, str] | None:
    """A clean log counts only with the runner's own word that every launch was made."""
    try:
        said = REPLY.validate_json(reply.read_bytes())
    except (OSError, ValidationError):
        return "the runner left no reply", "run again"
    if isinstance(said, RunReply):
        return None
    if isinstance(said, FaultReply):
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


MAX_FINDINGS = 16
UNNAMED = "an allocation of"
"""Stands in messages where only an allocation's size is known."""


class Extent(NamedTuple):
    """An allocation of the task."""

    name: str
    size_bytes: int


class SanitizerNames(NamedTuple):
    """What the author calls the things that the tool numbers or mangles."""

    author_files: tuple[str, ...]
    kernels: Mapping[str, str]
    """Mangled symbol to what was launched."""
    extents: tuple[Extent, ...]


class SanitizerFault(NamedTuple):
    """A finding in words."""

    misbehaved: Misbehaved
    block: Index | None
    """Where it was seen."""


def misbehaviours(report: SanitizerReport, names: SanitizerNames) -> tuple[SanitizerFault, ...]:
    """Findings that speak against the launched code, each once, errors of access first.

    What this module has no words for is left out; `SanitizerReport.clean` does not forget it.
    """
    found: dict[tuple[str, str, str], SanitizerFault] = {}
    for finding in report.counted:
        for one in _spelled(finding, names):
            said = "" if one.what != "shared_race" else one.message
            found.setdefault(
                (one.what, str(one.location), said), SanitizerFault(one, finding.block)
            )
    ranked = sorted(found.values(), key=lambda b: b.misbehaved.what != "out_of_bounds")
    return tuple(ranked[:MAX_FINDINGS])


def _spelled(finding: SanitizerFinding, names: SanitizerNames) -> list[Misbehaved]:
    if finding.kind == "race":
        return _race(finding, names)
    what, text = _what(finding, names)
    if what is None:
        return []
    return [_misbehaved(what, text, finding, _located(finding.places, names), names)]


def _what(finding: SanitizerFinding, names: SanitizerNames) -> tuple[MisbehaviourKind | None, str]:
    if finding.kind == "access":
        return _access(finding, names)
    if finding.kind == "uninitialised":
        if finding.space == "shared":
            return (
                "uninitialised_read",
                f"reads shared memory that no thread of {_block(finding.block)} has written",
            )
        return "uninitialised_read", f"reads {finding.space} uninitialized memory"
    if finding.kind == "barrier":
        return "divergent_barrier", _barrier(finding)
    if finding.kind == "deadlock":
        return "deadlock", f"waits for ever in {finding.trouble}"
    if finding.kind == "heap":
        return "crash", f"misuses device memory: {finding.trouble.lower()}"
    if finding.kind == "hardware":
        return "crash", finding.text.rstrip(".")
    return None, ""


def _access(finding: SanitizerFinding, names: SanitizerNames) -> tuple[MisbehaviourKind, str]:
    verb = {"read": "read", "write": "write", "atomic": "atomic write"}.get(
        finding.access, "access"
    )
    head = f"{verb} of {finding.size_bytes} bytes"
    if finding.address is None:
        return "crash", f"an invalid {head}"
    if "misaligned" in finding.trouble:
        return "crash", f"{head} at the misaligned address 0x{finding.address:x}"
    if finding.space != "global":
        where = f"{finding.space} memory (address 0x{finding.address:x})"
        return "out_of_bounds", f"{head} outside of {where}"
    return "out_of_bounds", f"{head}{_position(finding, finding.address, names)}"


def _position(finding: SanitizerFinding, address: int, names: SanitizerNames) -> str:
    """Distances come from the addresses: the tool counts the byte behind the end as 1."""
    near = finding.nearest
    if address < 1 << 16:
        return f" through a null pointer (address {address})"
    if near is None:
        return f" at address 0x{address:x}, which belongs to no allocation"
    name = _allocation(near.size_bytes, names)
    end = near.begin + near.size_bytes
    if address < near.begin:
        return f", {near.begin - address} bytes before the start of {name}"
    if address >= end:
        return f", {address - end} bytes past the end of {name}"
    if finding.size_bytes is not None and address + finding.size_bytes > end:
        return f", across the end of {name}, {address + finding.size_bytes - end} bytes past it"
    return f" in {name}: {finding.trouble}"


def _allocation(size_bytes: int, names: SanitizerNames) -> str:
    """By its size, where only one has it: the tool prints addresses, which nobody else knows."""
    known = [e.name for e in names.extents if e.size_bytes == size_bytes]
    if len(known) == 1:
        return f"allocation {known[0]} (size {size_bytes} bytes)"
    return f"{UNNAMED} {size_bytes} bytes"


def _barrier(finding: SanitizerFinding) -> str:
    if finding.trouble.startswith("Divergent thread(s) in block"):
        return f"not all threads of {_block(finding.block)} reach this barrier"
    if finding.trouble.startswith("Divergent thread(s) in warp"):
        return f"not all threads of a warp of {_block(finding.block)} reach this barrier"
    return f"a barrier is used wrongly: {finding.trouble.lower() or 'no reason'}"


def _race(finding: SanitizerFinding, names: SanitizerNames) -> list[Misbehaved]:
    """One record a line that takes part, each naming the line it races with."""
    if finding.access not in ("read", "write") or not finding.others:
        text = "threads race on shared memory with no barrier between them"
        place = _located(finding.places, names)
        return [_misbehaved("shared_race", text, finding, place, names)]
    first = Other("read" if finding.access == "read" else "write", finding.places[0])
    pairs = [(first, other) for other in finding.others]
    pairs += [(b, a) for a, b in pairs if a.place != b.place]
    spelled = []
    for here, there in pairs:
        whom = _located((there.place,), names)
        text = (
            f"{here.access} of shared memory that another thread {there.access}s at "
            f"{whom or 'an unknown line'} with no barrier between them"
        )
        place = _located((here.place,), names)
        spelled.append(_misbehaved("shared_race", text, finding, place, names))
    return spelled


def _misbehaved(
    what: MisbehaviourKind,
    text: str,
    finding: SanitizerFinding,
    place: SourceLocation | None,
    names: SanitizerNames,
) -> Misbehaved:
    known = [names.kernels[p.function] for p in finding.places if p.function in names.kernels]
    if not known and len(set(names.kernels.values())) == 1:
        known = list(names.kernels.values())
    head = f"{known[-1]}: " if known else ""
    tail = ""
    if finding.kind == "access" and finding.thread is not None:
        tail = f", thread {_triple(finding.thread)} of {_block(finding.block)}"
    return Misbehaved(what=what, message=head + text + tail, location=place, log=finding.text)


def _located(places: Collection[SanitizerLocation], names: SanitizerNames) -> SourceLocation | None:
    """The innermost place in the author's own text; None where a name could mean two files."""
    for place in places:
        if place.file is None or place.line is None:
            continue
        file = _own_file(place.file, {*names.author_files, CANDIDATE_FILE})
        if file is not None:
            return SourceLocation(file=file, line=place.line)
    return None


def _own_file(printed: str, known: Collection[str]) -> str | None:
    """The tool prints bare names by default, and whole paths before 2022."""
    path = PureWindowsPath(printed).as_posix().removeprefix("./")
    if path in known and ("/" in path or _alone(path, known)):
        return path
    matches = [k for k in known if path.endswith("/" + k)]
    if matches:
        return max(matches, key=len)
    if "/" in path:
        return None
    named = [k for k in known if PurePosixPath(k).name == path]
    return named[0] if len(named) == 1 else None


def _alone(name: str, known: Collection[str]) -> bool:
    return sum(PurePosixPath(k).name == name for k in known) == 1


def _triple(index: Index) -> str:
    return f"({index[0]},{index[1]},{index[2]})"


def _block(index: Index | None) -> str:
    return "a block" if index is None else f"block {_triple(index)}"
