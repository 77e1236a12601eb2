"""Whole programs in child processes: for their outputs, and with the recorder on."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    CompileFailed,
    LaunchCount,
    Misbehaved,
    ProgramOutcome,
    ProgramRan,
)
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.sandbox.executors.cpu_build import Built, build_program
from cudaops.sandbox.executors.cpu_capture import (
    Configuration,
    WorkloadReader,
    host_pointer,
    launch_counts,
    recorded,
)
from cudaops.sandbox.executors.cpu_report import Names, Report, find_fault, read_report
from cudaops.sandbox.executors.cpu_toolchain import Build
from cudaops.sandbox.process import Finished, raise_for_space, run_bounded

CAPTURE_BYTES = 2 * 1024**3
"""Contents kept while no target is known; one that does not fit is recorded in a second run."""
TARGET_BYTES = 8 * 1024**3
_KERNEL_MS = re.compile(r"^KERNEL_MS:\s*([0-9.eE+-]+)", re.MULTILINE)


class Child(NamedTuple):
    """A program that ran and what its runtime reported."""

    built: Built
    done: Finished
    report: Report


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
    ) -> None:
        self.program = program
        self.argv = argv
        self.cache = cache
        self.workers = workers
        self.shared_optin = shared_optin
        self.cwd = cwd
        self.timeout_s = timeout_s
        parameters = {k.name: tuple(p.name for p in k.parameters) for k in program.kernels}
        self.names = Names(tuple(f.path for f in program.files), parameters, {})

    def run(self) -> ProgramOutcome:
        """The program as its author would run it, proven repetitions left out."""
        with tempfile.TemporaryDirectory(prefix="cudaops-run-") as name:
            ran = self._child(Path(name), {"CUDAOPS_RECORD": "1"})
            if not isinstance(ran, Child):
                return ran
            if (fault := self._fault(ran, Path(name))) is not None:
                return fault
        return ProgramRan(
            stdout=ran.done.stdout,
            stderr=ran.done.stderr,
            exit_code=ran.done.exit_code,
            seconds=ran.done.seconds,
            kernel_ms=kernel_ms(ran.done.stderr),
        )

    def capture(self, kernel: str | None, folder: Path) -> CaptureOutcome:
        """Run once with every kernel recorded, or the target alone where it is known.

        One run serves both choice and capture: contents are written only around the first launch
        of a configuration, which costs less than a second run of the program.
        """
        if kernel is not None:
            kernel = self._known(kernel)
        folder = folder.absolute()
        blobs = folder / "contents"
        try:
            blobs.mkdir(parents=True, exist_ok=True)
            return self._captured(kernel, folder, blobs)
        except OSError as problem:
            raise_for_space(problem, f"capturing to {folder}")
            raise
        finally:
            shutil.rmtree(blobs, ignore_errors=True)

    def _captured(self, kernel: str | None, folder: Path, blobs: Path) -> CaptureOutcome:
        ran = self._recorded(kernel, blobs)
        if not isinstance(ran, Child):
            return ran
        counts = launch_counts(ran.report)
        target = self._target(kernel, counts, ran.report)
        if isinstance(target, Misbehaved):
            return target
        found = recorded(ran.report, target)
        if not found and kernel is None:
            ran = self._recorded(target, blobs)
            if not isinstance(ran, Child):
                return ran
            found, counts = recorded(ran.report, target), launch_counts(ran.report)
        if not found and ran.report.all("full"):
            most = f"{TARGET_BYTES // 1024**3} GiB"
            raise InputError(f"the buffers of {target} exceed {most}; run a smaller problem")
        if (fault := self._host_pointer(ran.report, target, found)) is not None:
            return fault
        known = self.program.kernel(target)
        reader = WorkloadReader(
            self.program, known, ran.report, ran.built.executable, blobs, folder
        )
        seconds = next((c.seconds for c in counts if c.kernel == target), 0.0)
        return Captured(
            kernel=target,
            workloads=reader.read(found, seconds),
            counts=counts,
            stdout=ran.done.stdout,
            stderr=ran.done.stderr,
            exit_code=ran.done.exit_code,
            seconds=ran.done.seconds,
            kernel_ms=kernel_ms(ran.done.stderr),
        )

    def _recorded(self, kernel: str | None, blobs: Path) -> Child | CompileFailed | Misbehaved:
        room = CAPTURE_BYTES if kernel is None else TARGET_BYTES
        env = {
            "CUDAOPS_RECORD": "1",
            "CUDAOPS_CAPTURE": str(blobs),
            "CUDAOPS_CAPTURE_BYTES": str(room),
        }
        if kernel is not None:
            env["CUDAOPS_TARGET"] = kernel
        ran = self._child(blobs, env)
        if not isinstance(ran, Child):
            return ran
        if (fault := self._fault(ran, blobs)) is not None:
            return fault
        if ran.done.exit_code != 0:
            said = [
                line for line in (ran.done.stderr + ran.done.stdout).splitlines() if line.strip()
            ]
            tail = f": {said[-1].strip()[:200]}" if said else ""
            message = f"the program exits with code {ran.done.exit_code}{tail}"
            return Misbehaved(what="exit_code", message=message, log=ran.done.stderr[-4096:])
        return ran

    def _known(self, kernel: str) -> str:
        try:
            return self.program.kernel(kernel).name
        except KeyError:
            names = ", ".join(k.name for k in self.program.kernels) or "none"
            raise InputError(
                f"no kernel {kernel!r} in this program; its kernels: {names}"
            ) from None

    def _target(
        self, kernel: str | None, counts: tuple[LaunchCount, ...], report: Report
    ) -> str | Misbehaved:
        launched = [c.kernel for c in counts]
        if not launched:
            for name, _, why in report.all("refused"):
                return Misbehaved(what="launch_refused", message=f"{name}: {why}")
            raise InputError(
                "the program launched no kernel; give it arguments with which it does, after --"
            )
        if kernel is None:
            return next(
                (k for k in launched if any(k == p.name for p in self.program.kernels)), launched[0]
            )
        if kernel not in launched:
            raise InputError(
                f"the program did not launch {kernel!r}; it launched {', '.join(launched)}"
            )
        return kernel

    def _host_pointer(
        self, report: Report, kernel: str, found: list[Configuration]
    ) -> Misbehaved | None:
        for configuration in found:
            position = host_pointer(report, configuration.number)
            if position is not None:
                name = self.names.spell(f"@N{position}@", kernel)
                text = f"{kernel}: parameter {name} is given an address that is no device memory"
                return Misbehaved(what="out_of_bounds", message=text)
        return None

    def _child(
        self, folder: Path, env: dict[str, str], build: Build = "plain"
    ) -> Child | CompileFailed | Misbehaved:
        built = build_program(self.cache, self.program, build)
        if isinstance(built, CompileFailed):
            return built
        report_path = folder / "report.tsv"
        report_path.unlink(missing_ok=True)
        env = {
            **env,
            "CUDAOPS_REPORT": str(report_path),
            "CUDAOPS_WORKERS": str(self.workers),
            "CUDAOPS_SHARED_OPTIN": str(self.shared_optin),
        }
        command = [str(built.executable), *self.argv]
        done = run_bounded(command, cwd=self.cwd, timeout_s=self.timeout_s, env=env)
        return Child(built, done, read_report(report_path))

    def _fault(self, ran: Child, folder: Path) -> Misbehaved | None:
        """What went wrong; after a memory fault the checker runs and names the access."""
        fault = find_fault(ran.report, ran.done, ran.built.executable, self.names, self.timeout_s)
        if fault is None or fault.what not in ("out_of_bounds", "guard_overwritten"):
            return fault
        again = self._child(folder, {"CUDAOPS_RECORD": "1"}, "checked")
        if not isinstance(again, Child):
            return fault
        named = find_fault(
            again.report, again.done, again.built.executable, self.names, self.timeout_s
        )
        return named if named is not None and named.what == "out_of_bounds" else fault


def kernel_ms(stderr: str) -> float | None:
    """The `KERNEL_MS: x` line that some programs print."""
    found = _KERNEL_MS.search(stderr)
    try:
        return float(found[1]) if found else None
    except ValueError:
        return None
