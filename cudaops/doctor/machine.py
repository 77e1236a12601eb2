"""The seam between the rungs and the machine: everything a check touches goes through it.

`ThisMachine` is the real one. The tests have another, which answers with what other machines said;
no check may import a tool or open a file beside it, the rungs of the processor and of the knowledge
base apart, which every machine can climb.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from cudaops.doctor import libcuda
from cudaops.domain.execution import Misbehaved
from cudaops.executors.cuda.platform import Platform
from cudaops.executors.cuda.protocol import DeviceFacts, Reply, Task
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.executors.process import Finished, run_bounded

PASSED_ON = ("LD_LIBRARY_PATH", "HOME")
"""What NVIDIA's tools see of our environment beyond `process.INHERITED` and every CUDA_*: where the
driver's libraries are (Colab, NixOS) and where ncu keeps its lock."""
QUIET = {"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}
"""Keeps ncu from copying its section files into the home folder."""


class Response(NamedTuple):
    """What a web service answered."""

    status: int
    text: str


class ProbeRunner(Protocol):
    """The part of `RunnerSession` that the rungs use."""

    @property
    def facts(self) -> DeviceFacts:
        """What the driver says about the GPU. Raises PrerequisiteError where there is none."""

    def request(self, task: Task, timeout_s: float) -> Reply | Misbehaved:
        """Do a task. Raises PrerequisiteError where no GPU can be opened, SandboxUnavailable where
        the runner cannot do it; what the kernel does wrong is a value."""

    def close(self) -> None:
        """End the runner."""


class Machine(Protocol):
    """Read-only access of the checks to a machine."""

    def find(self, program: str) -> Path | None:
        """Where a program is, looked for where cudaops looks for it."""

    def run(
        self, command: Sequence[str], *, timeout_s: float, folder: Path | None = None
    ) -> Finished:
        """Run a program to its end. Raises PrerequisiteError where it does not exist."""

    def read(self, pattern: str) -> tuple[tuple[str, str], ...]:
        """Path and text of every readable file that matches an absolute glob pattern, sorted."""

    def variable(self, name: str) -> str | None:
        """An environment variable; None where it is not set or empty."""

    def package(self, name: str) -> bool:
        """Whether a Python package can be imported."""

    def platform(self, cache: Path, sm_arch: str) -> Platform:
        """What kernels are built with."""

    def runner(self) -> ProbeRunner:
        """A new runner process, with the GPU's context in it."""

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        """GET a page. Raises OSError where nobody answers."""


class ThisMachine:
    """The machine this runs on."""

    def find(self, program: str) -> Path | None:
        """As the executor finds it; else on PATH, in WSL's folder, beside nvcc."""
        from cudaops.executors.cuda.ncu import find_ncu, find_nvdisasm
        from cudaops.executors.cuda.sanitizer import find_compute_sanitizer

        finders: dict[str, Callable[[], Path | None]] = {
            "nvcc": find_nvcc,
            "ncu": find_ncu,
            "nvdisasm": find_nvdisasm,
            "compute-sanitizer": find_compute_sanitizer,
        }
        if program in finders:
            return finders[program]()
        nvcc = find_nvcc()
        folders = [*(os.get_exec_path()), "/usr/lib/wsl/lib"]
        folders += [str(nvcc.resolve().parent)] if nvcc else []
        found = shutil.which(program, path=os.pathsep.join(folders))
        return Path(found) if found else None

    def run(
        self, command: Sequence[str], *, timeout_s: float, folder: Path | None = None
    ) -> Finished:
        """In a bounded child process."""
        passed = {n: v for n, v in os.environ.items() if n.startswith("CUDA_") or n in PASSED_ON}
        return run_bounded(
            command, cwd=folder or Path("/"), timeout_s=timeout_s, env={**passed, **QUIET}
        )

    def read(self, pattern: str) -> tuple[tuple[str, str], ...]:
        """Unreadable files are left out."""
        found = []
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            try:
                found.append((str(path), path.read_text("utf-8", "replace")))
            except OSError:
                continue
        return tuple(found)

    def variable(self, name: str) -> str | None:
        """From the process environment."""
        return os.environ.get(name) or None

    def package(self, name: str) -> bool:
        """By its spec, without importing it."""
        return importlib.util.find_spec(name) is not None

    def platform(self, cache: Path, sm_arch: str) -> Platform:
        """nvcc and NVRTC."""
        from cudaops.executors.cuda.build import GpuBuilder

        return GpuBuilder(cache, sm_arch)

    def runner(self) -> ProbeRunner:
        """Of this machine's GPU."""
        from cudaops.executors.cuda.session import RunnerSession

        return RunnerSession("nvidia")

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        """With the HTTP stack of langchain-nvidia-ai-endpoints: its proxies, its certificates."""
        import requests

        answer = requests.get(url, headers=headers, timeout=(timeout_s / 2, timeout_s / 2))
        return Response(answer.status_code, answer.text)


def libcuda_command() -> list[str]:
    """What asks libcuda in a process of its own: a broken driver may hang or crash it."""
    return [sys.executable, "-I", "-S", str(Path(libcuda.__file__))]
