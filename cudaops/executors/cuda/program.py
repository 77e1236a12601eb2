"""Whole programs on a GPU: for their outputs, and with the recorder on."""

from __future__ import annotations

import os
from pathlib import Path

from cudaops.domain.execution import CaptureOutcome, CompileFailed, Misbehaved, ProgramOutcome
from cudaops.domain.options import WarmUps
from cudaops.domain.program import Program
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.capture.recording import (
    LONG_PAUSE_SHARE,
    PAUSE_SHARE,
    TARGET_BYTES,
    Child,
    ProgramRecording,
    author_names,
    exit_fault,
    program_ran,
    redirected,
    room_for,
)
from cudaops.executors.cpu.report import CheckerReport, find_fault, read_report
from cudaops.executors.cuda.driver_recorder import KERNELS, kernel_list
from cudaops.executors.cuda.platform import Executable, Platform
from cudaops.executors.cuda.session import settle_gpu_level
from cudaops.executors.isolation.phases import GIB, Confinement, PhaseLimits, limits_of
from cudaops.executors.isolation.places import interpreter
from cudaops.executors.isolation.view import ProgramView
from cudaops.executors.preload.counts import COUNTS_VARIABLE, PAUSE_VARIABLE, read_counts
from cudaops.executors.process import PRINTED_BYTES, run_bounded
from cudaops.executors.untrusted_files import discard, temporary_folder
from cudaops.storage import SPACE_REMEDY

STOPPING_S = 30.0
"""What a program that is stopped gets to write down what was recorded, at the least."""
WRITTEN_BYTES_PER_S = 300e6
"""At which contents are written down at the least. Chosen: an ordinary disk, its cache full."""
REPORT = "report.tsv"
COUNTS = "counts.jsonl"
RUNTIME_REPORT = "runtime.tsv"
"""Faults, where what runs the kernels names them itself."""
CACHES = ("CUPY_CACHE_DIR", "XDG_CACHE_HOME")
"""Where CuPy and PyCUDA keep what they compile: in the home folder otherwise, which a confined
program may not write to, and CuPy ends where it cannot."""
OWN_BYTES = 8 * GIB
"""What a recorded program may write itself, beside its contents."""
OVERDUE = {
    "idle": "it had launched no kernel by then",
    "launch": "a launch, or what it waits for, had not ended by then",
}
"""Where a program was when its time was over, by the recorder's word for it."""
LARGER = ", or let CUDAOPS_CAPTURE_GIB be larger (60 % of the free disk at most)"


class GpuProgram:
    """Builds and runs one program."""

    def __init__(
        self,
        platform: Platform,
        program: Program,
        argv: tuple[str, ...],
        cwd: Path,
        timeout_s: float,
        capture_bytes: int = TARGET_BYTES,
    ) -> None:
        """`cwd`: where the program runs and finds its files. `argv` excludes the program's name.
        `capture_bytes`: contents of one kernel's launches that are kept."""
        self.platform = platform
        self.program = program
        self.argv = argv
        self.cwd = cwd
        self.timeout_s = timeout_s
        self.capture_bytes = capture_bytes
        self.names = author_names(program)
        self.output: Path | None = None

    def run(self, output: Path | None = None, *, until_pause: bool = False) -> ProgramOutcome:
        """The program as its author built it, run once. `output`: a folder that it may write to as
        well. `until_pause`: with the recorder in it, which ends it where a capture would."""
        self.output = output
        with temporary_folder("cudaops-run-") as folder:
            application = self.program.application
            if application is not None and application.library:
                return self._with_rewrite(folder, until_pause)
            env = {"CUDAOPS_RECORDER_REPORT": str(folder / REPORT), **self._until_pause()}
            ran = self._child(folder, env if until_pause else {}, recorded=until_pause)
        if not isinstance(ran, Child):
            return ran
        return self._fault(ran) or program_ran(ran.done)

    def _with_rewrite(self, folder: Path, until_pause: bool) -> ProgramOutcome:
        """An application with a library in it, which counts, and ends it where a recorder would."""
        env = {COUNTS_VARIABLE: str(folder / COUNTS)}
        if until_pause:
            env[PAUSE_VARIABLE] = f"{PAUSE_SHARE * self.timeout_s:g}"
        ran = self._child(folder, env, recorded=False)
        if not isinstance(ran, Child):
            return ran
        found = self._fault(ran) or program_ran(ran.done)
        if isinstance(found, Misbehaved):
            return found
        return found.model_copy(update={"replaced": read_counts(folder / COUNTS)})

    def capture(
        self, kernel: str | None, folder: Path, warm_ups: WarmUps = "auto"
    ) -> CaptureOutcome:
        """See `ProgramRecording.capture`. Times are the device's, by event pairs: around every
        launch of a configuration first, then around samples. A program that takes longer than its
        limit, or launches nothing for PAUSE_SHARE of it, is stopped and captured as far as it
        ran."""
        recording = ProgramRecording(
            self.program, self._recorded, self.timeout_s, warm_ups, self.capture_bytes, LARGER,
            has_textures=False,
        )  # fmt: skip
        return recording.capture(kernel, folder)

    def _recorded(
        self, kernel: str | None, blobs: Path, room: int
    ) -> Child | CompileFailed | Misbehaved:
        most = room_for(self.capture_bytes, blobs)
        env = {
            # Loaded at the first launch instead, a kernel's code would count as its time.
            "CUDA_MODULE_LOADING": "EAGER",
            "CUDAOPS_RECORDER_REPORT": str(blobs / REPORT),
            "CUDAOPS_RECORDER_FOLDER": str(blobs),
            "CUDAOPS_RECORDER_BYTES": str(room),
            # For the kernel that turns out to take the most time: a second run is seldom needed.
            "CUDAOPS_RECORDER_MOST_BYTES": str(most),
            **self._limits(kernel),
        }
        if kernel is not None:
            env["CUDAOPS_RECORDER_TARGET"] = kernel
        ran = self._child(blobs, env, recorded=True, contents_bytes=most)
        if not isinstance(ran, Child):
            return ran
        if (fault := self._fault(ran) or exit_fault(ran.done, self.program.exit_code)) is not None:
            return fault
        if ran.report.lines and not ran.report.all("end"):
            raise InputError(
                "the program ends without returning from main or calling exit(), before the times "
                "of its launches are known; let it end by one of them"
            )
        return ran

    def _limits(self, kernel: str | None) -> dict[str, str]:
        """When the recorder ends the program; not in a pause before this kernel was launched."""
        launched = dict.fromkeys(site.kernel for site in self.program.launches)
        awaited = [k.name for name in launched for k in self.program.kernels_named(name)]
        later_s = 0.0 if kernel is not None else LONG_PAUSE_SHARE * self.timeout_s
        return {
            **self._until_pause(),
            "CUDAOPS_RECORDER_LONG_PAUSE_SECONDS": f"{later_s:g}",
            "CUDAOPS_RECORDER_AWAITED": ";".join(awaited if kernel is None else [kernel]),
        }

    def _until_pause(self) -> dict[str, str]:
        """The same of a program whose launches are known."""
        return {
            "CUDAOPS_RECORDER_SECONDS": f"{self.timeout_s:g}",
            "CUDAOPS_RECORDER_PAUSE_SECONDS": f"{PAUSE_SHARE * self.timeout_s:g}",
        }

    def _child(
        self, folder: Path, env: dict[str, str], *, recorded: bool, contents_bytes: int = 0
    ) -> Child | CompileFailed | Misbehaved:
        built = self.platform.program(self.program, recorded=recorded)
        if isinstance(built, CompileFailed):
            return built
        for name in (REPORT, RUNTIME_REPORT, f"{REPORT}.claimed"):
            discard(folder / name)
        env = self._environment(built, folder, env, recorded=recorded)
        phase = self.platform.program_phase
        if phase == "gpu":
            settle_gpu_level(self.platform.driver)
        beside = built.tree if built.is_interpreted and built.tree else self.cwd
        hidden = () if built.is_interpreted or built.needs else (built.path.parent.parent,)
        arguments, stdin = redirected((*built.arguments, *self.argv), self.cwd)
        texts = (file.text for file in self.program.files)
        with ProgramView(beside, self.argv, hidden, texts) as view:
            writes = [view.root, folder, *([] if self.output is None else [self.output])]
            done = run_bounded(
                [str(built.path), *arguments],
                cwd=view.folder,
                timeout_s=self.timeout_s + (_stopping_s(contents_bytes) if recorded else 0.0),
                env={**gpu_environment(), **env},
                tool="program",
                printed_bytes=PRINTED_BYTES,
                confine=Confinement(
                    phase,
                    tuple(view.reads),
                    tuple(writes),
                    _runs(built),
                    limits=_with_room(limits_of(phase), contents_bytes),
                ),
                stdin=stdin,
            )
        report = _reports(folder)
        if report.all("overdue"):  # the recorder ended it in our stead
            done = done._replace(timed_out=True)
        return Child(_image(report, built, view.folder), done, report)

    def _environment(
        self, built: Executable, folder: Path, env: dict[str, str], *, recorded: bool
    ) -> dict[str, str]:
        """`env` with what this program needs for what it is."""
        if self.program.application is not None and recorded:
            (folder / KERNELS).write_text(kernel_list(self.program), encoding="utf-8")
            env = {**env, "CUDAOPS_RECORDER_KERNELS": str(folder / KERNELS)}
        if built.preload is not None:
            # What an interpreter has not written when the recorder ends it would be lost.
            env = {**env, "LD_PRELOAD": str(built.preload), "PYTHONUNBUFFERED": "1"}
        if built.is_interpreted or built.needs:
            env = {**env, **dict.fromkeys(CACHES, str(folder / "cache"))}
        if self.platform.names_faults:
            runtime = {"CUDAOPS_RECORD": "1", "CUDAOPS_REPORT": str(folder / RUNTIME_REPORT)}
            env = {**env, **runtime}
        return env

    def _fault(self, ran: Child) -> Misbehaved | None:
        for kind, *rest in (f for f in ran.report.all("fault") if len(f) >= 4):
            if kind == "infrastructure":
                text = f"the recorder failed: {rest[2][:300]}"
                raise SandboxUnavailable(text, SPACE_REMEDY)
        fault = find_fault(ran.report, ran.done, ran.executable, self.names, self.timeout_s)
        said = ran.report.all("overdue")
        where = OVERDUE.get(said[0][0]) if said and said[0] else None
        if fault is None or fault.what != "timeout" or where is None:
            return fault
        return fault.model_copy(update={"message": f"{fault.message}: {where}"})


def _image(report: CheckerReport, built: Executable, cwd: Path) -> Path:
    """The file whose functions the recorder named: the program or, where its kernels lie in a
    library of the build's, that. What it says is believed of files of the build alone."""
    if built.tree is None:
        return built.path
    for (name,) in (line for line in report.all("image") if len(line) == 1):
        path = Path(os.path.normpath(cwd / name))
        if path.is_relative_to(cwd) and built.is_interpreted:
            path = built.tree / path.relative_to(cwd)
        if path.is_relative_to(built.tree) and path.is_file():
            return path
    return built.path


def _runs(built: Executable) -> tuple[Path, ...]:
    """What it runs beside itself."""
    if built.is_interpreted:
        return interpreter(built.path)
    return (*built.needs, *(() if built.preload is None else (built.preload,)))


def _stopping_s(contents_bytes: int) -> float:
    """Seconds that the recorder gets beyond the program's own: it takes them only where the time is
    over while contents are being stored."""
    return max(STOPPING_S, min(contents_bytes, TARGET_BYTES) / WRITTEN_BYTES_PER_S)


def _with_room(usual: PhaseLimits, contents_bytes: int) -> PhaseLimits:
    """A phase's limits with room for what is captured beside what the program itself writes."""
    return usual._replace(
        file_bytes=max(usual.file_bytes, contents_bytes),
        disk_bytes=max(usual.disk_bytes, contents_bytes + OWN_BYTES),
    )


def _reports(folder: Path) -> CheckerReport:
    """The recorder's, behind the faults that the runtime names."""
    runtime, own = read_report(folder / RUNTIME_REPORT), read_report(folder / REPORT)
    faults = [line for line in runtime.lines if line[0] == "fault"]
    return CheckerReport((*faults, *own.lines), own.problem or runtime.problem)


def gpu_environment() -> dict[str, str]:
    """What CUDA reads of our environment: which GPUs are visible, where libraries lie."""
    names = [n for n in os.environ if n.startswith("CUDA_") or n == "LD_LIBRARY_PATH"]
    return {name: os.environ[name] for name in names}
