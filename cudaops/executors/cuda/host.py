"""One GPU of this machine and everything that works on it: builder, runners, checker."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import DEVICES, Device, device_of, register
from cudaops.domain.execution import Unit
from cudaops.domain.options import ClockControl
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.toolchain import around
from cudaops.executors.cuda.build import GpuBuilder, recorder_object
from cudaops.executors.cuda.checking import GpuChecker
from cudaops.executors.cuda.gpu_lock import tool_turn
from cudaops.executors.cuda.ncu import find_ncu, ncu_version
from cudaops.executors.cuda.platform import NVIDIA, Platform, PlatformClass, platform_class
from cudaops.executors.cuda.protocol import DeviceFacts
from cudaops.executors.cuda.sanitizer import Sanitizer, find_compute_sanitizer
from cudaops.executors.cuda.session import RunnerSession, task_command
from cudaops.executors.cuda.toolchain import nvcc_version, require_nvcc
from cudaops.executors.isolation.phases import Phase
from cudaops.executors.stopping import in_background

SHARED = ("author", "search")
"""Runners that stay: the author's own kernel has one, and all drafts of a search share one."""


class GpuHost:
    """Opened lazily: nothing is started before it is needed."""

    def __init__(
        self,
        device: str | None,
        cache: Path,
        driver: str,
        sm_arch: str | None,
        clock_control: ClockControl,
    ) -> None:
        self._platform_class: PlatformClass | None = (
            None if driver == NVIDIA else platform_class(driver)
        )
        self.driver = self._platform_class.driver if self._platform_class else NVIDIA
        self.cache = cache
        self.clock_control: ClockControl = clock_control
        self._wanted_device = device
        self._wanted_arch = sm_arch
        self._sessions: dict[str, RunnerSession] = {}
        self._spare: RunnerSession | None = None
        self._lock = threading.RLock()
        self._closed = False
        atexit.register(self.close)

    @property
    def program_phase(self) -> Phase:
        """How whole programs are confined."""
        return self._platform_class.program_phase if self._platform_class else "gpu"

    @cached_property
    def facts(self) -> DeviceFacts:
        """What the driver says. Raises PrerequisiteError where no GPU can be opened."""
        return self.session("author").facts

    @cached_property
    def device(self) -> Device:
        """The GPU as cudaops knows it. Raises InputError where its architecture is not known."""
        # What is no GPU has the figures of the device that is modelled by default.
        row = device_of(self.facts) if self.facts.real else DEVICES[self._wanted_device or "A10"]
        return register(row)

    @cached_property
    def platform(self) -> Platform:
        """What units and programs are built with."""
        if self._platform_class is None:
            return self._builder
        return self._platform_class(self.cache, self._builder)

    @cached_property
    def _builder(self) -> GpuBuilder:
        return GpuBuilder(self.cache, self._arch())

    @cached_property
    def processor(self) -> CpuExecutor:
        """This machine's: it checks what runs on the GPU, and has wider types."""
        return CpuExecutor(self._checked_as(), self.cache)

    @cached_property
    def checker(self) -> GpuChecker:
        """Finds what a kernel does wrong, with its line."""
        found = find_compute_sanitizer() if self.facts.real else None
        sanitizer = Sanitizer(found) if found is not None else None
        return GpuChecker(
            self.processor, sanitizer, self.task_command, secrets.randbits(62), self._turn
        )

    def _turn(self) -> AbstractContextManager[None]:
        """Held while another tool wraps a runner."""
        return tool_turn(self.facts)

    def _checked_as(self) -> str:
        """Device whose limits the processor's checker applies: any will do where time is not
        modelled for this one, as the GPU itself has already taken the launch."""
        try:
            microarchitecture(self.device.compute_capability)
        except InputError:
            return "H200"
        return self.device.name

    def task_command(self, task: Path, reply: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a runner that does one task under another tool."""
        return task_command(self.driver, task, reply)

    @cached_property
    def scratch_folder(self) -> Path:
        """For contents that are made for one task; removed at the end."""
        self._check_open()
        return Path(tempfile.mkdtemp(prefix="cudaops-gpu-"))

    def check_available(self) -> None:
        """Raise PrerequisiteError where nvcc or the GPU is missing; it is closed then."""
        try:
            require_nvcc()
            if self.driver == NVIDIA and any(Path("/dev").glob("nvidia[0-9]*")):
                in_background(lambda: recorder_object(self.cache))  # while the GPU is opened
            _ = self.device
        except BaseException:
            self.close()
            raise

    def warm(self, units: Sequence[Unit]) -> None:
        """Build these units and the processor's checker in the background, while ncu works: the
        first run on a machine compiles the checker's runtime, which takes g++ some seconds."""
        in_background(self._build_checker)
        in_background(lambda: self.tools)
        in_background(lambda: [self.platform.unit(one, draft=False) for one in units])

    def _build_checker(self) -> None:
        for build in ("checked", "plain"):
            around(self.cache, build, "unit.o", runner=True)

    def session(self, name: str) -> RunnerSession:
        """The runner of this name, started at its first task. Of candidates' runners only the
        newest stays: a candidate that was judged leaves nothing behind on the GPU.

        Raises SandboxUnavailable once it is closed: nobody would end that runner.
        """
        with self._lock:
            self._check_open()
            known = self._sessions.get(name)
            if known is None and self._spare is not None and name not in SHARED:
                known, self._spare = self._spare, None
                self._sessions[name] = known
            if known is None:
                for other in [n for n in self._sessions if n not in SHARED and name not in SHARED]:
                    self._sessions.pop(other).close()
                known = self._sessions[name] = self._new_session()
            return known

    def start_ahead(self) -> None:
        """Start the search's runner and one for the first candidate while the program is built and
        run: later, something would be timed meanwhile."""
        with self._lock:
            self._check_open()
            if self._spare is None:
                self._spare = self._new_session()
            ahead = (self.session("search"), self._spare)
        in_background(lambda: self._start(*ahead))

    def _start(self, *sessions: RunnerSession) -> None:
        """Unless it is closed, also where that comes about meanwhile."""
        for one in sessions:
            try:
                if not self._closed:
                    _ = one.facts
            finally:
                if self._closed:
                    one.close()

    def _new_session(self) -> RunnerSession:
        own = self._platform_class
        return RunnerSession(
            self.driver,
            environment=own.runner_environment() if own else {},
            make_room=self.make_room,
        )

    def make_room(self) -> bool:
        """Have the search's runner give back the GPU's memory that it keeps from trial to trial;
        whether there was any."""
        search = self._sessions.get("search")
        return search is not None and search.release()

    @cached_property
    def tools(self) -> dict[str, str]:
        """Name and version of what builds, runs and looks."""
        facts = self.facts
        found = {
            "nvcc": nvcc_version(require_nvcc()),
            "gpu": facts.name,
            "driver": facts.driver_version,
            "cuda driver": facts.cuda_version,
            "ncu": ncu_version(ncu, self.scratch_folder) if (ncu := find_ncu()) else "",
            "compute-sanitizer": Sanitizer(s).version if (s := find_compute_sanitizer()) else "",
        }
        return {name: version for name, version in found.items() if version}

    def close(self) -> None:
        """End every runner, after the task it is at, and remove what was made for tasks."""
        with self._lock:
            self._closed = True
            if self._spare is not None:
                self._spare.close()
                self._spare = None
            while self._sessions:
                self._sessions.popitem()[1].close()
        if "platform" in self.__dict__:
            self._builder.close()
        if "scratch_folder" in self.__dict__:
            shutil.rmtree(self.scratch_folder, ignore_errors=True)
        atexit.unregister(self.close)  # which would keep it for ever

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxUnavailable(
                "the GPU's runners were ended: the program was closed", "open it again"
            )

    def _arch(self) -> str:
        major, minor = self.facts.compute_capability
        own = f"sm_{major}{minor}"
        wanted = self._wanted_arch or own
        if not _runs(wanted, major, minor):
            raise InputError(f"--arch {wanted} does not run on {self.facts.name}, which is {own}")
        return wanted


def _runs(sm_arch: str, major: int, minor: int) -> bool:
    """A cubin runs within its major version, on its own minor version or a later one."""
    wanted = divmod(int("".join(c for c in sm_arch if c.isdigit())), 10)
    return wanted[0] == major and wanted[1] <= minor
