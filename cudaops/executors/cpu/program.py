"""Whole programs in child processes: for their outputs, and with the recorder on."""

from __future__ import annotations

import functools
from pathlib import Path

from cudaops.domain.execution import (
    CaptureOutcome,
    CompileFailed,
    InLockstep,
    Misbehaved,
    ProgramOutcome,
)
from cudaops.domain.options import WarmUps
from cudaops.domain.program import Program
from cudaops.executors.capture.recording import (
    Child,
    ProgramRecording,
    author_names,
    exit_fault,
    program_ran,
    redirected,
)
from cudaops.executors.cpu.build import build_program
from cudaops.executors.cpu.report import find_fault, read_report
from cudaops.executors.cpu.toolchain import Build
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.isolation.view import ProgramView, told_of_files
from cudaops.executors.process import PRINTED_BYTES, run_bounded
from cudaops.executors.untrusted_files import discard, temporary_folder
from cudaops.program.analysis.summary import is_idempotent

_OF_MEMORY = frozenset(("out_of_bounds", "guard_overwritten"))
_ABORTED = ": aborted"
"""What a fault's message ends with where the C library ended the program."""
STOPPING_S, STOPPING_SHARE = 30.0, 0.25
"""What a run that is recorded gets beyond its time, to end the launch it is in and to write down
what it records; a share of its time at most, where each launch is executed whole."""


def lockstep_env(lockstep: InLockstep) -> dict[str, str]:
    """What tells the runtime of a `lockstep` build which accesses wait."""
    return {"CUDAOPS_LOCKSTEP": lockstep.memory}


class ProgramRunner:
    """Builds and runs one program."""

    def __init__(
        self,
        program: Program,
        argv: tuple[str, ...],
        cache: Path,
        workers: int,
        shared_optin: int,
        cwd: Path,
        timeout_s: float,
        lockstep: InLockstep | None = None,
    ) -> None:
        self.program = program
        self.lockstep = lockstep
        self.argv = argv
        self.cache = cache
        self.workers = workers
        self.shared_optin = shared_optin
        self.cwd = cwd
        self.timeout_s = timeout_s
        self.names = author_names(program)
        self.output: Path | None = None

    def run(self, output: Path | None = None, clock_rate: float = 1.0) -> ProgramOutcome:
        """The program as its author would run it, proven repetitions left out. `output`: a folder
        that it may write to as well. `clock_rate`: of the clocks that it reads."""
        self.output = output
        env = {"CUDAOPS_RECORD": "1"}
        if clock_rate != 1.0:
            env["CUDAOPS_CLOCK_RATE"] = f"{clock_rate:g}"
        with temporary_folder("cudaops-run-") as folder:
            ran = self._child(folder, env)
            if not isinstance(ran, Child):
                return ran
            if (fault := self._fault(ran, folder)) is not None:
                return fault
        return program_ran(ran.done)

    def capture(
        self,
        kernel: str | None,
        folder: Path,
        *,
        whole: bool = True,
        whole_s: float = 0.0,
        launch_s: float = 0.0,
        warm_ups: WarmUps = "auto",
    ) -> CaptureOutcome:
        """See `ProgramRecording.capture`. The program ends when its time is over. Not whole: its
        time begins with its first launch, for which `launch_s` are waited; after `whole_s` every
        configuration is executed for a share of the time at most, blocks and launches beyond are
        left out, the program ends where no launch follows for a while, and an access past an
        allocation is allowed (`Captured.beyond`)."""
        limits = {"CUDAOPS_STOP_SECONDS": f"{self.timeout_s:g}"}
        if not whole:
            limits["CUDAOPS_TIMED_SECONDS"] = f"{self.timeout_s:g}"
            limits["CUDAOPS_WHOLE_SECONDS"] = f"{whole_s:g}"
            limits["CUDAOPS_LAUNCH_SECONDS"] = f"{launch_s:g}"
            limits["CUDAOPS_LETS_BEYOND"] = "1"
        record = functools.partial(self._recorded, limits)
        recording = ProgramRecording(self.program, record, self.timeout_s, warm_ups)
        return recording.capture(kernel, folder)

    def why_wrong(self) -> InLockstep | Misbehaved | None:
        """What the checker finds in a program that says that its results are wrong: an access
        outside, or the first kernel in which lanes read, in shared memory, what other lanes of
        their warp write, with nothing that puts the two in order."""
        with temporary_folder("cudaops-order-") as folder:
            plain = self._child(folder, {"CUDAOPS_RECORD": "1"})
            if not isinstance(plain, Child) or not plain.report.all("count"):
                return None  # nothing launched: the checked build, which takes longer, is not made
            ran = self._child(folder, {"CUDAOPS_CHECK": "order"}, "checked")
        if not isinstance(ran, Child):
            return None
        fault = find_fault(ran.report, ran.done, ran.executable, self.names, self.timeout_s)
        if fault is not None and fault.what == "out_of_bounds":
            return fault
        known = {kernel.name for kernel in self.program.kernels}
        for line in ran.report.all("unordered"):
            if line[:2] == ("warp", "shared") and line[-1] in known:
                return InLockstep(kernel=line[-1], memory="shared")
        return None

    def _recorded(
        self, limits: dict[str, str], kernel: str | None, blobs: Path, room: int
    ) -> Child | CompileFailed | Misbehaved:
        env = {
            **limits,
            "CUDAOPS_RECORD": "1",
            "CUDAOPS_CAPTURE": str(blobs),
            "CUDAOPS_CAPTURE_BYTES": str(room),
        }
        asked = [k for k in self.program.kernels if kernel in (None, k.name)]
        # Of one alone: clang takes seconds to read all kernels of a large program.
        if len(asked) == 1 and is_idempotent(self.program, asked[0]):
            env["CUDAOPS_IDEMPOTENT"] = asked[0].name
        if kernel is not None:
            env["CUDAOPS_TARGET"] = kernel
        whole = "CUDAOPS_TIMED_SECONDS" not in limits
        more_s = STOPPING_S + float(limits.get("CUDAOPS_LAUNCH_SECONDS", 0))
        more_s = min(STOPPING_S, STOPPING_SHARE * self.timeout_s) if whole else more_s
        ran = self._child(blobs, env, more_s=more_s)
        if not isinstance(ran, Child):
            return ran
        if ran.report.all("end") and (ran.report.all("cut") or ran.report.all("stopped")):
            return ran  # what it says of its results, by exit code too, comes of what was left out
        wrong = exit_fault(ran.done, self.program.exit_code, ran.unopened)
        return self._fault(ran, blobs) or wrong or ran

    def _child(
        self, folder: Path, env: dict[str, str], build: Build = "plain", more_s: float = 0.0
    ) -> Child | CompileFailed | Misbehaved:
        if build == "plain" and self.lockstep is not None:
            build, env = "lockstep", {**env, **lockstep_env(self.lockstep)}
            env["CUDAOPS_LOCKSTEP_KERNEL"] = self.lockstep.kernel
        built = build_program(self.cache, self.program, build)
        if isinstance(built, CompileFailed):
            return built
        report_path = folder / "report.tsv"
        discard(report_path)
        env = {
            **env,
            "CUDAOPS_REPORT": str(report_path),
            "CUDAOPS_WORKERS": str(self.workers),
            "CUDAOPS_SHARED_OPTIN": str(self.shared_optin),
        }
        arguments, stdin = redirected(self.argv, self.cwd)
        command = [str(built.executable), *arguments]
        texts = (file.text for file in self.program.files)
        with ProgramView(self.cwd, self.argv, (self.cache,), texts) as view:
            writes = [view.root, folder, *([] if self.output is None else [self.output])]
            done = run_bounded(
                command,
                cwd=view.folder,
                timeout_s=self.timeout_s + more_s,
                env=env,
                tool="program",
                printed_bytes=PRINTED_BYTES,
                confine=Confinement("program", tuple(view.reads), tuple(writes)),
                stdin=stdin,
            )
        report = read_report(report_path)
        unopened = told_of_files(report.all("unopened"), self.cwd)
        return Child(built.executable, done, report, unopened)

    def _fault(self, ran: Child, folder: Path) -> Misbehaved | None:
        """What went wrong, and which file could not be opened before."""
        fault = self._named_fault(ran, folder)
        if fault is None or not ran.unopened:
            return fault
        return fault.model_copy(update={"message": f"{fault.message}; {ran.unopened}"})

    def _named_fault(self, ran: Child, folder: Path) -> Misbehaved | None:
        """What went wrong; after a memory fault, or where the library found its heap broken, the
        checker runs and names the access."""
        fault = find_fault(ran.report, ran.done, ran.executable, self.names, self.timeout_s)
        if fault is None or not (fault.what in _OF_MEMORY or fault.message.endswith(_ABORTED)):
            return fault
        again = self._child(folder, {"CUDAOPS_RECORD": "1"}, "checked")
        if not isinstance(again, Child):
            return fault
        named = find_fault(again.report, again.done, again.executable, self.names, self.timeout_s)
        return named if named is not None and named.what == "out_of_bounds" else fault
