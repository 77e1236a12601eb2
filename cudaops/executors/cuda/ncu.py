"""ncu around a runner that launches one kernel: counters, NVIDIA's rules and the hottest lines.

What is profiled is the replay of a captured launch, in the range the runner marks around it; the
author's program is not run. ncu itself saves memory, runs the launch some forty times for what
decides, and restores memory before each (`ncu_sets`: what that costs, and what a long launch gets).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from pydantic import ValidationError

from cudaops.cuda.hot_spots import Line, hot_instructions, hot_lines
from cudaops.cuda.ncu_pages import merged, parse_details, parse_raw
from cudaops.cuda.ncu_problem import NcuCause, NcuProblem, classify_ncu_failure, problem
from cudaops.domain.options import ClockControl
from cudaops.domain.profile import HotLine, Profile
from cudaops.errors import CudaOpsError, InputError, PrerequisiteError, SandboxUnavailable
from cudaops.executors.cuda.ncu_rep import ReportLaunch, line_of, read_report
from cudaops.executors.cuda.ncu_sets import LEFT_OUT, Sections, collected
from cudaops.executors.cuda.protocol import (
    REPLY,
    TASK,
    FaultReply,
    ProfileReply,
    ProfileTask,
    RefusedReply,
)
from cudaops.executors.cuda.toolchain import find_tool
from cudaops.executors.cuda.turns import GivenTurn
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import Finished, run_bounded
from cudaops.executors.stopping import Meanwhile

CacheControl = Literal["all", "none"]
"""`all`: caches are emptied before each pass, a cold launch. `none`: they are left, a warm one."""

TargetCommand = Callable[[Path, Path], tuple[Sequence[str], Mapping[str, str]]]
"""From a task file and a reply file to the runner's command and what it needs of an environment."""

_EXPORT_S = 60.0
_VERSION = re.compile(r"Version (\d[\d.]*)")


class Profiled(NamedTuple):
    """ncu measured the launch."""

    profile: Profile
    report: Path
    """The `.ncu-rep`, for ncu-ui and for whoever looks again."""
    seconds: float
    """In ncu, the runner's start and the launches included."""
    command: str


_Attempted = tuple[Finished, "NcuProblem | FaultReply | None", str]
"""How ncu ended, why there is nothing to read, and its command."""
_Kind = tuple[Sections, ClockControl, CacheControl]
BEGUN_TIMEOUT_S = 120.0
"""Of an ncu that was begun, from its task on: as `profile_task` has by default."""

NcuOutcome = Profiled | NcuProblem | FaultReply
"""A profile; why ncu could not make one; or what the launched kernel did wrong."""


def find_ncu() -> Path | None:
    """ncu on PATH, in CUDA_HOME or CUDA_PATH, beside nvcc, or the newest of Nsight Compute's own
    folders; else None."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    folders = [Path(home) / "bin" for home in homes if home]
    folders += [Path(nvcc).resolve().parent] if nvcc else []
    folders += [Path("/usr/local/cuda/bin")]
    for folder in folders:
        if (folder / "ncu").is_file():
            return folder / "ncu"
    installed = [
        *Path("/opt/nvidia/nsight-compute").glob("*/ncu"),
        *Path("/usr/local").glob("cuda*/nsight-compute*/ncu"),
    ]
    return max(installed, key=_version_in_path, default=None)


def find_reader(ncu: Path) -> Path | None:
    """Folder of the `ncu_report` module that is installed with this ncu; None where there is none.

    `bin/ncu` of a toolkit is a script beside Nsight Compute's own folder.
    """
    program = ncu.resolve()
    beside = [program.parent, *program.parent.parent.glob("nsight-compute*")]
    others = sorted(Path("/opt/nvidia/nsight-compute").glob("*"), key=_numbers, reverse=True)
    for home in (*beside, *others):
        if (home / "extras" / "python" / "ncu_report.py").is_file():
            return home / "extras" / "python"
    return None


def ncu_version(ncu: Path, folder: Path) -> str:
    """`2025.3.1.0`; empty where it does not say."""
    done = run_bounded([str(ncu), "--version"], cwd=folder, timeout_s=_EXPORT_S)
    found = _VERSION.search(done.stdout)
    return found[1] if found else ""


class _Begun:
    """An ncu whose runner waits for its task. For its first kernel ncu takes 2.2 s more than for
    others, after 1.2 s to start (H200, ncu 2025.3.1, 2026-12-01): both are spent before."""

    def __init__(self, run: Callable[[_Begun], _Attempted]) -> None:
        self.may_look = threading.Event()
        """Whether the kernel that does nothing may be looked at yet."""
        self.given_s: float | None = None
        """When its task was given, on the clock of `time.monotonic`."""
        self._started_s = time.monotonic()
        self.ended = Meanwhile(lambda: run(self))

    def waited_s(self) -> float:
        """Seconds until its task came."""
        return (self.given_s or time.monotonic()) - self._started_s

    def close(self) -> None:
        """End it where nobody wants it any more."""
        self.may_look.set()
        self.ended.end()


class NcuProfiler:
    """Runs one ncu. Safe to share; each call has a folder of its own."""

    def __init__(self, ncu: Path | None = None) -> None:
        """`ncu` None: the one of this machine, looked for at each call."""
        self._ncu = ncu
        self._begun: dict[_Kind, tuple[_Begun, Path]] = {}
        self._lock = threading.Lock()

    def begin(
        self, command: TargetCommand, folder: Path, *, clock_control: ClockControl = "none",
        cache_control: CacheControl = "all", sections: Sections = "deciding",
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext, at_once: bool = False,
    ) -> None:  # fmt: skip
        """Start an ncu for the next profile of this kind, as far as it comes without its task.

        `alone`, `beside`: hold the GPU while the task's launch is looked at, and meanwhile use it
        as others do. `at_once`: the kernel that does nothing is looked at now, and not only when
        the task comes, which spares the task 3.6 s and disturbs what is timed meanwhile.
        """
        ncu = self._ncu or find_ncu()
        kind = (sections, clock_control, cache_control)
        with self._lock:
            if ncu is None or not ncu.is_file() or kind in self._begun:
                return
            folder = folder.absolute()
            first = folder / "first"
            first.mkdir(parents=True)
            target, needed = _with_own_path(*command(folder / "task.json", folder / "reply.json"))
            options = _options(clock_control, cache_control, folder / "profile.ncu-rep")
            line = [str(ncu), *collected(sections), *options, *target, "--first", str(first)]

            def run(begun: _Begun) -> _Attempted:
                @contextmanager
                def look() -> Iterator[None]:
                    begun.may_look.wait()
                    with beside():
                        yield

                with GivenTurn(first, look):
                    try:
                        done, failed = _attempt(
                            line, needed, folder=folder, alone=alone, waited_s=begun.waited_s,
                            timeout_s=BEGUN_TIMEOUT_S,
                        )  # fmt: skip
                    finally:
                        begun.may_look.set()
                return done, failed, " ".join(line)

            begun = _Begun(run)
            self._begun[kind] = begun, folder
        if at_once:
            begun.may_look.set()

    def close(self) -> None:
        """End what was begun and has no task."""
        with self._lock:
            begun, self._begun = [*self._begun.values()], {}
        for one, _ in begun:
            one.close()

    def _by_begun(self, kind: _Kind, task: ProfileTask) -> tuple[_Attempted, Path] | None:
        """What an ncu that was begun makes of a task, and its folder; None where there is none, or
        it came to nothing."""
        with self._lock:
            begun, folder = self._begun.pop(kind, (None, Path()))
        if begun is None:
            return None
        begun.may_look.set()
        begun.given_s = time.monotonic()
        asked = folder / "asked.json"
        asked.write_bytes(TASK.dump_json(task.model_copy(update={"turn_folder": str(folder)})))
        asked.rename(folder / "task.json")
        try:
            found = begun.ended.result()
        except CudaOpsError:
            return None
        return None if isinstance(found[1], NcuProblem) else (found, folder)

    def profile_task(
        self,
        task: ProfileTask,
        command: TargetCommand,
        folder: Path,
        *,
        device: str,
        workload: str | None = None,
        clock_control: ClockControl = "none",
        cache_control: CacheControl = "all",
        sections: Sections = "full",
        sources: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> NcuOutcome:
        """Profile the launch `task` marks; files land under `folder` (created).

        Args:
            task: What the runner does; its module's line table tells lines apart.
            command: From task and reply file to the one-shot runner.
            device: Key in `cudaops.cuda.devices.DEVICES`.
            workload: `Workload.id`.
            sections: An ncu that does not know what decides by its name collects the full set; of
                a smaller set it says that it cannot.
            sources: Text of each source file under the name the program has for it.
            timeout_s: Without what it waits for the GPU.
            alone: Holds the GPU while the launch is looked at. Others under ncu may start and end
                meanwhile, none can be looked at.

        Raises:
            SandboxUnavailable: the runner itself could not do its work.
        """
        ncu = self._ncu or find_ncu()
        if ncu is None or not ncu.is_file():
            return problem("missing", "ncu is not on PATH, in CUDA_HOME or in NVIDIA's folders")
        begun = self._by_begun((sections, clock_control, cache_control), task)
        if begun is not None:
            (done, failed, ran), made = begun
            if failed is not None:
                return failed
            with suppress(InputError):
                profile = _read(ncu, made / "profile.ncu-rep", task, sources or {})
                return _profiled(profile, done, made, ran, device, workload, sections)
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        asked, reply, report = (
            folder / name for name in ("task.json", "reply.json", "profile.ncu-rep")
        )
        for left in (reply, report):
            left.unlink(missing_ok=True)
        task = task.model_copy(update={"turn_folder": str(folder)})
        asked.write_bytes(TASK.dump_json(task))
        attempt = partial(_attempt, folder=folder, timeout_s=timeout_s, alone=alone)
        target, needed = _with_own_path(*command(asked, reply))
        options = _options(clock_control, cache_control, report)
        line = [str(ncu), *collected(sections), *options, *target]
        done, failed = attempt(line, needed)
        if isinstance(failed, NcuProblem) and failed.cause == "lock":
            needed = {**needed, "TMPDIR": str(folder)}
            done, failed = attempt(line, needed)
        unknown = isinstance(failed, NcuProblem) and failed.cause in UNKNOWN_NAMES
        if unknown and sections == "deciding":
            sections, line = "full", [str(ncu), *collected("full"), *options, *target]
            done, failed = attempt(line, needed)
        if failed is not None:
            return failed
        try:
            profile = _read(ncu, report, task, sources or {})
        except InputError as error:
            said = classify_ncu_failure(f"{done.stdout}\n{done.stderr}")
            return said or problem("no_values", str(error))
        return _profiled(profile, done, folder, " ".join(line), device, workload, sections)


def _profiled(
    profile: Profile, done: Finished, folder: Path, command: str, device: str,
    workload: str | None, sections: Sections,
) -> Profiled:  # fmt: skip
    notes = (*profile.notes, *([LEFT_OUT[sections]] if LEFT_OUT[sections] else []))
    profile = profile.model_copy(update={"device": device, "workload": workload, "notes": notes})
    return Profiled(profile, folder / "profile.ncu-rep", done.seconds, command)


UNKNOWN_NAMES: frozenset[NcuCause] = frozenset(("metric", "unknown"))
"""Causes that may come of asking for a section or a metric by a name that this ncu has not."""


def _options(clocks: ClockControl, caches: CacheControl, report: Path) -> list[str]:
    return [
        "--import-source", "yes", "--profile-from-start", "off",
        "--clock-control", clocks, "--cache-control", caches, "--target-processes", "all",
        # ncu expands macros that begin with % in the name of a report.
        "-f", "-o", str(report.with_suffix("")).replace("%", "%%"),
    ]  # fmt: skip


def _with_own_path(
    target: Sequence[str], needed: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The target with its PYTHONPATH given to it alone: ncu's rules run in a Python of ncu's own,
    of another version, which must not find our modules, least of all the standard library's."""
    rest = dict(needed)
    path = rest.pop("PYTHONPATH", None)
    own = [] if path is None else ["/usr/bin/env", f"PYTHONPATH={path}"]
    return [*own, *target], rest


def _attempt(
    line: Sequence[str],
    needed: Mapping[str, str],
    *,
    folder: Path,
    timeout_s: float,
    alone: Callable[[], AbstractContextManager[None]],
    waited_s: Callable[[], float] = float,
) -> tuple[Finished, NcuProblem | FaultReply | None]:
    # Sections come from where ncu is installed: a home folder may be read-only or missing.
    env = {"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}
    if "HOME" in os.environ:
        env["HOME"] = os.environ["HOME"]
    with GivenTurn(folder, alone) as turn:
        done = run_bounded(
            line,
            cwd=folder,
            timeout_s=timeout_s,
            env={**env, **needed},
            confine=Confinement("profiler", writes=(folder,)),
            uncounted_s=lambda: waited_s() + turn.waited_s(),
        )
    report, reply = folder / "profile.ncu-rep", folder / "reply.json"
    return done, _failure(done, report, reply, timeout_s)


def _failure(
    done: Finished, report: Path, reply: Path, timeout_s: float
) -> NcuProblem | FaultReply | None:
    """Why there is nothing to read; the runner's own answer goes before what ncu says of it."""
    if done.timed_out:
        return problem("timeout", f"ncu had not finished after {timeout_s:.0f} s")
    answer = _answer(reply)
    if isinstance(answer, FaultReply):
        return answer
    if isinstance(answer, RefusedReply):
        raise SandboxUnavailable(answer.problem, answer.remedy)
    if report.is_file() and isinstance(answer, ProfileReply):
        return None
    said = classify_ncu_failure(f"{done.stdout}\n{done.stderr}")
    if said is not None:
        return said
    tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
    return problem("unknown", f"ncu ended with {done.exit_code}: {' '.join(tail)}")


def _answer(reply: Path) -> FaultReply | RefusedReply | ProfileReply | None:
    """What the runner wrote; None where it came to no answer."""
    try:
        answer = REPLY.validate_json(reply.read_bytes())
    except (OSError, ValidationError):
        return None
    return answer if isinstance(answer, (FaultReply, RefusedReply, ProfileReply)) else None


def _read(ncu: Path, report: Path, task: ProfileTask, sources: Mapping[str, str]) -> Profile:
    """The report through NVIDIA's wheel; where that is not there or older than ncu, through ncu.

    Raises InputError where neither finds a launch with values.
    """
    _offer_reader(ncu)
    try:
        launches = read_report(report)
        symbol = task.side.launches[task.launch].kernel.symbol
        asked = next((one for one in launches if one.symbol == symbol), launches[0])
        return _with_hot_lines(asked, task, sources)
    except (PrerequisiteError, InputError) as error:
        why = str(error)
    details_page, raw_page = (_page(ncu, report, page) for page in ("details", "raw"))
    launch = merged(parse_details(details_page), parse_raw(raw_page))[-1]
    note = f"no hot lines: {why}"
    return launch.profile.model_copy(update={"notes": (*launch.profile.notes, note)})


def _offer_reader(ncu: Path) -> None:
    """Where the wheel is not installed, the same module lies beside ncu."""
    if importlib.util.find_spec("ncu_report") is None and (folder := find_reader(ncu)) is not None:
        sys.path.append(str(folder))


def _page(ncu: Path, report: Path, page: str) -> str:
    command = [str(ncu), "--import", str(report), "--csv", "--page", page]
    return run_bounded(command, cwd=report.parent, timeout_s=_EXPORT_S).stdout


def _with_hot_lines(read: ReportLaunch, task: ProfileTask, sources: Mapping[str, str]) -> Profile:
    profile = read.launch.profile
    hot: tuple[HotLine, ...] = ()
    notes = profile.notes
    if read.instructions:
        told = any(each.line for each in read.instructions)
        symbol = task.side.launches[task.launch].kernel.symbol
        lines = {} if told else lines_of(Path(task.side.module), symbol)
        names = {PurePosixPath(name).name: name for name in sources}
        texts = {**read.sources, **sources}
        hot = hot_lines(
            read.instructions,
            lines,
            lambda place: line_of(texts, place),
            lambda file: names.get(PurePosixPath(file).name, PurePosixPath(file).name),
        )
        if not hot:
            hot = hot_instructions(profile.kernel, read.instructions)
            notes = (*notes, "the module has no line information, so instructions are shown")
    return profile.model_copy(update={"hot_lines": hot, "notes": notes})


def _version_in_path(path: Path) -> tuple[int, ...]:
    return _numbers(path.parent)


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-fA-F]{4,})\*/\s+(.*?)\s*;?\s*$")
_SECONDS = 30.0


def find_nvdisasm() -> Path | None:
    """nvdisasm on PATH, in CUDA_HOME or CUDA_PATH, or in NVIDIA's wheels; else None."""
    return find_tool("nvdisasm")


def lines_of(cubin: Path, symbol: str) -> dict[int, Line]:
    """Byte offset of each instruction of a kernel to the line it was compiled from.

    Empty where nvdisasm is not here or refuses, or the cubin was built without `-lineinfo`.
    """
    disassembler = find_nvdisasm()
    if disassembler is None:
        return {}
    command = [str(disassembler), "-g", "-c", str(cubin)]
    confine = Confinement("compile", reads=(cubin,))
    done = run_bounded(command, cwd=cubin.parent, timeout_s=_SECONDS, confine=confine)
    return {} if done.exit_code else parse_listing(done.stdout).get(symbol, {})


def parse_listing(listing: str) -> dict[str, dict[int, Line]]:
    """Kernels of `nvdisasm -g -c` with the line of each of their instructions."""
    kernels: dict[str, dict[int, Line]] = {}
    current: dict[int, Line] | None = None
    place: Line | None = None
    for text in listing.splitlines():
        if found := _SECTION.match(text):
            current, place = kernels.setdefault(found[1], {}), None
        elif found := _PLACE.match(text):
            place = (found[1], int(found[2]))
        elif (found := _INSTRUCTION.match(text)) and current is not None and place is not None:
            current[int(found[1], 16)] = place
    return kernels
