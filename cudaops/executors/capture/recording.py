"""From one recorded run of a whole program to its Workloads, whoever ran it."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    CompileFailed,
    LaunchCount,
    Misbehaved,
    ProgramRan,
    RecordedLaunch,
)
from cudaops.domain.options import WarmUps
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.capture.report import (
    Configuration,
    Malformed,
    host_pointer,
    launch_counts,
    least_needed,
    names_of,
    other_launches,
    recorded,
    unseen,
)
from cudaops.executors.capture.workloads import CaptureFiles, NotCaptured, WorkloadReader
from cudaops.executors.cpu.report import (
    MOST_MESSAGE,
    CheckerReport,
    ReportNames,
    bad_report,
    find_warnings,
)
from cudaops.executors.isolation.view import HINT, hint_for
from cudaops.executors.process import Finished, last_words
from cudaops.executors.untrusted_files import UntrustedFileError, remove
from cudaops.program.splice import can_be_replaced
from cudaops.storage import raise_for_space

CAPTURE_BYTES = 2 * 1024**3
"""Contents kept while no target is known; one that does not fit is recorded in a second run."""
TARGET_BYTES = 24 * 1024**3
"""Contents of one kernel's launches, before and after, where nobody says how many; a child may
write 32 GiB in all (`isolation/phases.py`)."""
PAUSE_SHARE = 0.15
"""Of its time limit: for so long a program that is captured may launch nothing before what follows
is left out. Chosen: many a program launches for a second and then checks its results on the
processor for minutes; with the usual limit of 120 s it is waited for 18 s."""
LONG_PAUSE_SHARE = 0.45
"""The same while kernels that the program's text launches have not been launched: what takes most
of the time may come yet. Chosen: three times as long."""
DISK_SHARE = 0.6
"""Of the free disk, for contents: what is copied goes at once, and seldom is one of them more than
half of all."""
MEMORY_SHARE = 0.125
"""Of the memory that is free, where the folder is kept in memory: there a judged workload is held
some eight times, as it was captured, as drawn, as the author's kernel and the rewrite left it."""
_KERNEL_MS = re.compile(r"^KERNEL_MS:\s*([0-9.eE+-]+)", re.MULTILINE)


class Child(NamedTuple):
    """A program that ran and what its recorder reported."""

    executable: Path
    done: Finished
    report: CheckerReport
    unopened: str = ""
    """What to tell of files that it could not open; empty: nothing."""

    @property
    def said(self) -> str:
        """Its complaint, and that."""
        return "; ".join(one for one in (complaint(self.done), self.unopened) if one)


Record = Callable[[str | None, Path, int], Child | CompileFailed | Misbehaved]
"""Runs the program with this kernel (None: every kernel) recorded, contents put into a folder as
long as they fit into so many bytes. A program that ended badly is no Child."""


def room_for(most_bytes: int, folder: Path) -> int:
    """Bytes of contents that a capture may keep: as many as asked for, or so much of the free disk
    that each can be copied in turn. A folder in memory takes what everything else runs in."""
    most_bytes = min(most_bytes, int(DISK_SHARE * shutil.disk_usage(folder).free))
    if file_system(folder) in ("tmpfs", "ramfs"):
        most_bytes = min(most_bytes, int(MEMORY_SHARE * psutil.virtual_memory().available))
    return most_bytes


def file_system(folder: Path) -> str:
    """The kind of file system that holds it, as the mount table calls it; empty where none does."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    folder = folder.resolve()
    return next((mounts[one] for one in (folder, *folder.parents) if one in mounts), "")


def author_names(program: Program) -> ReportNames:
    """What the program's author calls the parameters of his kernels."""
    parameters = {k.name: tuple(p.name for p in k.parameters) for k in program.kernels}
    return ReportNames(tuple(f.path for f in program.files), parameters, {})


class ProgramRecording:
    """Captures one program."""

    def __init__(
        self,
        program: Program,
        record: Record,
        timeout_s: float,
        warm_ups: WarmUps = "auto",
        most_bytes: int = TARGET_BYTES,
        remedy: str = "",
        *,
        has_textures: bool = True,
    ) -> None:
        """`timeout_s`: what one run may take; `warm_ups`: whether launches outside of what the
        program times count; `most_bytes`: contents of one kernel's launches that are kept;
        `remedy`: how the user raises it; `has_textures`: see `CaptureFiles`."""
        self.has_textures = has_textures
        self.program = program
        self.record = record
        self.timeout_s = timeout_s
        self.warm_ups = warm_ups
        self.most_bytes = most_bytes
        self.remedy = remedy
        self.names = author_names(program)
        self.named: tuple[str, ...] = ()
        """Kernels that are asked for: several where a name is overloaded."""

    def capture(self, kernel: str | None, folder: Path) -> CaptureOutcome:
        """Run once with every kernel recorded, or the target alone where it is known.

        One run serves both choice and capture: contents are written only around the first launch
        of a configuration, which costs less than a second run of the program. A program that wrote
        into the recorder's report or contents is misbehaved.
        """
        if kernel is not None:
            self.named = self._known(kernel)
            kernel = self.named[0] if len(self.named) == 1 else None
        folder = folder.absolute()
        blobs = folder / "contents"
        try:
            blobs.mkdir(parents=True, exist_ok=True)
            return self._captured(kernel, folder, blobs)
        except (Malformed, UntrustedFileError) as wrong:
            return bad_report(str(wrong))
        except OSError as problem:
            raise_for_space(problem, f"capturing to {folder}")
            raise
        finally:
            remove(blobs)

    def _captured(self, kernel: str | None, folder: Path, blobs: Path) -> CaptureOutcome:
        room = room_for(self.most_bytes, blobs)
        ran = self.record(kernel, blobs, min(CAPTURE_BYTES, room) if kernel is None else room)
        if not isinstance(ran, Child):
            return ran
        counts = launch_counts(ran.report, self.warm_ups)
        target = self._target(kernel, counts, ran.report, ran.said)
        if isinstance(target, Misbehaved):
            return target
        found = recorded(ran.report, self.program, target, self.warm_ups)
        if not found and kernel is None and least_needed(ran.report, target) <= room:
            ran = self.record(target, blobs, room)
            if not isinstance(ran, Child):
                return ran
            found = recorded(ran.report, self.program, target, self.warm_ups)
            counts = launch_counts(ran.report, self.warm_ups)
        if not found and ran.report.all("full"):
            most = f"{room / 1024**3:.3g} GiB before and after a launch"
            text = f"the buffers of {target} exceed {most}; run a smaller problem"
            raise InputError(text + self.remedy)
        if (fault := self._host_pointer(ran.report, target, found)) is not None:
            return fault
        executable = None if self.program.application else ran.executable
        source = CaptureFiles(executable, blobs, 2 * room, self.has_textures)
        passed_over: list[str] = []
        while True:
            known = self.program.kernel(target)
            reader = WorkloadReader(self.program, known, ran.report, source, folder)
            seconds = next((c.counted_seconds for c in counts if c.kernel == target), 0.0)
            try:
                workloads = reader.read(found, seconds)
                break
            except NotCaptured as problem:
                following = self._behind(target, counts, ran.report) if kernel is None else None
                if following is None:
                    others = any(c.kernel != target for c in counts)
                    remedy = "; choose another kernel with --kernel" if others else ""
                    raise InputError(f"{problem}{remedy}") from problem
                passed_over.append(f"{problem}; {following[0]} is optimized instead")
                target, found = following
        return Captured(
            kernel=target,
            workloads=workloads,
            counts=counts,
            stdout=ran.done.stdout,
            stderr=ran.done.stderr,
            exit_code=ran.done.exit_code,
            seconds=ran.done.seconds,
            kernel_ms=kernel_ms(ran.done.stderr),
            recorded=self._recorded_launches(ran.report, source, folder),
            others=() if known.template_parameters else other_launches(ran.report, known),
            cut=tuple(names_of(ran.report, "cut")),
            beyond=self._let_through(ran),
            alike=reader.alike,
            stopped=bool(ran.report.all("stopped")),
            paused=bool(ran.report.all("paused")),
            passed_over=tuple(passed_over),
        )

    def _let_through(self, ran: Child) -> tuple[str, ...]:
        """See `Captured.beyond`."""
        warnings = find_warnings(ran.report, ran.executable, self.names)
        return tuple(one.placed for one in warnings if one.what == "out_of_bounds")

    def _behind(
        self, target: str, counts: tuple[LaunchCount, ...], report: CheckerReport
    ) -> tuple[str, list[Configuration]] | None:
        """The next kernel that can be replaced, in the order of their time, with what was recorded
        of it."""
        ours = launched_here(self.program, [c.kernel for c in counts])
        ours = [k for k in ours if k in self.named] if self.named else ours
        for name in ours[ours.index(target) + 1 :]:
            found = recorded(report, self.program, name, self.warm_ups)
            if found and can_be_replaced(self.program, name):
                return name, found
        return None

    def _recorded_launches(
        self, report: CheckerReport, source: CaptureFiles, folder: Path
    ) -> tuple[RecordedLaunch, ...]:
        found: list[tuple[int, RecordedLaunch]] = []
        for kernel in {k.name: k for k in self.program.kernels}.values():
            configurations = recorded(report, self.program, kernel.name)
            if configurations:
                reader = WorkloadReader(self.program, kernel, report, source, folder)
                found += reader.launched(configurations)
        return tuple(launch for _, launch in sorted(found, key=lambda pair: pair[0]))

    def _known(self, kernel: str) -> tuple[str, ...]:
        """Names of those that are meant."""
        named = self.program.kernels_named(kernel)
        if not named:
            names = ", ".join(k.name for k in self.program.kernels) or "none"
            raise InputError(f"no kernel {kernel!r} in this program; its kernels: {names}")
        return tuple(dict.fromkeys(k.name for k in named))

    def _target(
        self, kernel: str | None, counts: tuple[LaunchCount, ...], report: CheckerReport, said: str
    ) -> str | Misbehaved:
        launched = [c.kernel for c in counts]
        if self.program.application is not None:
            _require_seen(kernel, launched, report, self.program)
        in_graph = names_of(report, "graph")
        if in_graph and (not launched or kernel in set(in_graph) - set(launched)):
            raise InputError(
                f"{kernel or in_graph[0]} is launched through a CUDA graph only, which cannot be "
                "captured; launch it directly as well, or choose another kernel with --kernel"
            )
        if not launched:
            for name, line in zip(names_of(report, "refused"), report.all("refused"), strict=True):
                text = f"{name}: CUDA refuses its launch: {' '.join(line[2:])}"[:MOST_MESSAGE]
                sites = (s for s in self.program.launches if str(s.index) == line[1])
                location = next((SourceLocation(file=s.file, line=s.line) for s in sites), None)
                return Misbehaved(what="launch_refused", message=text, location=location)
            if report.all("stopped"):
                raise InputError(
                    f"the program had launched no kernel when its {self.timeout_s:g} s were over; "
                    "--timeout raises the limit"
                )
            raise InputError(
                "the program launched no kernel; give it arguments, or input, with which it does, "
                "after -- or by --args" + (f"; it said: {said}" if said else "")
            )
        if kernel is None:
            ours = launched_here(self.program, launched)
            ours = [k for k in ours if k in self.named] if self.named else ours
            if not ours:
                raise InputError(self._launches_others(launched))
            return next((k for k in ours if can_be_replaced(self.program, k)), ours[0])
        if kernel not in launched:
            raise InputError(
                f"the program did not launch {kernel!r}; it launched {', '.join(launched[:20])}"
            )
        return kernel

    def _launches_others(self, launched: Sequence[str]) -> str:
        """Why none of them can be worked on."""
        unclear = [n for n in launched if any(k.plain_name == n for k in self.program.kernels)]
        if unclear and unclear[0] not in {k.name for k in self.program.kernels}:
            listed = ", ".join(k.name for k in self.program.kernels if k.plain_name == unclear[0])
            return (
                f"the kernel of a launch of `{unclear[0]}` is ambiguous: {listed}; launch "
                "it outside of macros and preprocessor conditions, or rename one"
            )
        if self.named:
            seen = ", ".join(launched[:20])
            return f"the program launched none of {', '.join(self.named)}; it launched {seen}"
        return f"the program launches {launched[0]}, which its files do not define"

    def _host_pointer(
        self, report: CheckerReport, kernel: str, found: list[Configuration]
    ) -> Misbehaved | None:
        for configuration in found:
            position = host_pointer(report, configuration.number)
            if position is not None:
                name = self.names.spell(f"@N{position}@", kernel)
                text = f"{kernel}: parameter {name} is given an address that is no device memory"
                return Misbehaved(what="out_of_bounds", message=text)
        return None


def launched_here(program: Program, launched: Sequence[str]) -> list[str]:
    """Those of these kernels that the program's files define."""
    names = {kernel.name for kernel in program.kernels}
    return [name for name in launched if name in names]


def _require_seen(
    kernel: str | None, launched: Sequence[str], report: CheckerReport, program: Program
) -> None:
    """Of a program that was watched at the driver: raise InputError where it launched nothing that
    could be recorded."""
    for lacks in names_of(report, "lacks"):
        raise InputError(
            f"the driver has no {lacks}; launches by the driver's API are captured with one of "
            "CUDA 12.3 or newer"
        )
    for name, why in unseen(report).items():
        if kernel == name or not launched:
            raise InputError(f"{name} cannot be captured: {why}")
    others = names_of(report, "other")
    if kernel in launched or (kernel is None and launched):
        return
    seen = ", ".join(dict.fromkeys([*launched, *others][:20]))
    if seen and not names_of(report, "graph"):
        wanted = f"no kernel of {program.main_path}" if kernel is None else f"not {kernel!r}"
        raise InputError(f"the program launches {wanted}; it launched {seen}")
    if not report.lines:
        raise InputError(
            "no launch by CUDA's driver was seen: the program launches nothing (give it arguments "
            "with which it does, after --), has no GPU, or does not meet a preloaded library: one "
            "that is linked statically, setuid, or starts another program for its launches"
        )


def redirected(argv: Sequence[str], folder: Path) -> tuple[tuple[str, ...], Path | None]:
    """The program's arguments, and what it reads on stdin where they end in `< FILE`, relative to
    `folder`. Raises InputError where there is no such file."""
    given = tuple(argv)
    if given and given[-1].startswith("<") and len(given[-1]) > 1:
        given = (*given[:-1], "<", given[-1][1:])
    if len(given) < 2 or given[-2] != "<":
        return given, None
    path = folder / given[-1]
    if not path.is_file():
        raise InputError(f"< {given[-1]}: no such file for the program's stdin in {folder}")
    return given[:-2], path


def exit_fault(done: Finished, expected: int, unopened: str = "") -> Misbehaved | None:
    """A program that says by its exit code that something went wrong is captured no further.
    `expected`: its code where all went well; `unopened`: see `Child`."""
    if done.exit_code == expected:
        return None
    said = complaint(done)
    tail = f": {said}" if said else ""
    hint = "" if HINT in unopened else hint_for(done.stderr + done.stdout)
    tail += "".join(f" ({one})" for one in (unopened, hint) if one)
    if done.exit_code > 0 and expected == 0:
        tail += f"; if that is how it ends well: --exit-code {done.exit_code}"
    message = f"the program exits with code {done.exit_code}{tail}"
    return Misbehaved(what="exit_code", message=message, log=done.stderr[-4096:])


def complaint(done: Finished) -> str:
    """The last line that a program printed to say what was wrong."""
    return last_words(_KERNEL_MS.sub("", done.stderr)) or last_words(done.stdout)


def program_ran(done: Finished) -> ProgramRan:
    """The record of a program that came to its end."""
    return ProgramRan(
        stdout=done.stdout,
        stderr=done.stderr,
        exit_code=done.exit_code,
        seconds=done.seconds,
        kernel_ms=kernel_ms(done.stderr),
    )


def kernel_ms(stderr: str) -> float | None:
    """The `KERNEL_MS: x` line that some programs print."""
    found = _KERNEL_MS.search(stderr)
    try:
        value = float(found[1]) if found else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
