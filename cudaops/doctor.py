"""What this machine can do, rung by rung; every rung is checked by doing it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cudaops import __version__
from cudaops.domain.base import Record
from cudaops.errors import CudaOpsError, EnvironmentFailure, PrerequisiteError
from cudaops.reports.quantities import one_line
from cudaops.sandbox.process import run_bounded
from cudaops.sandbox.toolchain import find_nvcc
from cudaops.settings import Settings

TOOL_TIMEOUT_S = 60.0
"""No tool asked here takes more than some seconds on two slow cores."""

HELLO = (
    "#include <thread>\nint main() { int x = 0; std::thread([&] { x = 42; }).join(); return x; }\n"
)
HELLO_EXIT_CODE = 42
KERNEL = "__global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }\n"

TOOLKIT_REMEDY = "python -m pip install 'cudaops[toolkit]', or set CUDA_HOME"


class Rung(Record):
    """One thing a machine can or cannot do."""

    name: str
    needed: bool
    """True: `cudaops run` cannot work without it. False: it works, with less."""
    status: Literal["ok", "missing", "failed"]
    """`missing`: not there. `failed`: there, and it does not work."""
    detail: str
    remedy: str | None = None
    """What to type or change; None where nothing needs to be."""
    seconds: float = 0.0


class Examination(Record):
    """All rungs of this machine."""

    cudaops_version: str
    ready: bool
    """Whether everything that `cudaops run` needs is there."""
    rungs: tuple[Rung, ...]


class Finding(NamedTuple):
    """What one check found."""

    status: Literal["ok", "missing", "failed"]
    detail: str
    remedy: str | None = None


def examine(settings: Settings) -> Examination:
    """Try every rung, in the order of the ladder."""
    rungs = tuple(_climb(settings))
    ready = all(rung.status == "ok" for rung in rungs if rung.needed)
    return Examination(cudaops_version=__version__, ready=ready, rungs=rungs)


def table(examination: Examination) -> RenderableType:
    """The rungs for a terminal."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    styles = {"ok": "green", "missing": "yellow", "failed": "red"}
    for rung in examination.rungs:
        style = styles[rung.status] if not (rung.needed and rung.status != "ok") else "bold red"
        detail = Text(one_line(rung.detail))
        if rung.remedy:
            detail.append(f"\n{one_line(rung.remedy)}", style="cyan")
        kind = Text("needed" if rung.needed else "optional", style="dim")
        rows.add_row(Text(rung.status, style=style), Text(rung.name), kind, detail)
    verdict = (
        Text("Ready: python -m cudaops run FILE.cu works here.", style="bold green")
        if examination.ready
        else Text("Not ready: mend the needed rungs that are not ok.", style="bold red")
    )
    return Group(rows, Text(""), verdict)


def _climb(settings: Settings) -> Iterator[Rung]:
    ladder: list[tuple[str, bool, Callable[[], Finding]]] = [
        ("python", True, _python),
        ("g++", True, lambda: _compiler(settings)),
        ("cores", True, _cores),
        ("cache folder", True, lambda: _folder(settings.cache, "CUDAOPS_CACHE")),
        ("runs folder", True, lambda: _folder(settings.runs, "CUDAOPS_RUNS")),
        ("knowledge", False, lambda: _knowledge(settings)),
        ("nvcc", False, _nvcc),
        ("ncu", False, _ncu),
        ("gpu", False, _gpu),
        ("nim key", False, lambda: _nim_key(settings)),
    ]
    for name, needed, check in ladder:
        started = time.monotonic()
        try:
            found = check()
        except PrerequisiteError as error:
            found = Finding("missing", error.problem, error.remedy)
        except EnvironmentFailure as error:
            found = Finding("failed", error.problem, error.remedy)
        except (CudaOpsError, OSError) as error:
            found = Finding("failed", str(error))
        yield Rung(
            name=name,
            needed=needed,
            status=found.status,
            detail=found.detail,
            remedy=found.remedy,
            seconds=round(time.monotonic() - started, 3),
        )


def _python() -> Finding:
    text = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("ok", f"{text} at {sys.executable}")


def _compiler(settings: Settings) -> Finding:
    from cudaops.sandbox.executors.cpu import CpuExecutor
    from cudaops.sandbox.executors.cpu_toolchain import find_toolchain

    CpuExecutor("A10", settings.cache / "kernels").check_available()
    toolchain = find_toolchain()
    with tempfile.TemporaryDirectory(prefix="cudaops-doctor") as name:
        folder = Path(name)
        (folder / "hello.cpp").write_text(HELLO, encoding="utf-8")
        command = [
            toolchain.gxx,
            *toolchain.flags,
            "hello.cpp",
            "-o",
            "hello",
            "-no-pie",
            "-pthread",
        ]
        built = run_bounded(command, cwd=folder, timeout_s=TOOL_TIMEOUT_S)
        if built.exit_code != 0:
            detail = f"{toolchain.name} cannot compile a program: {built.stderr}"
            return Finding("failed", detail, "reinstall g++ and libstdc++")
        ran = run_bounded([str(folder / "hello")], cwd=folder, timeout_s=TOOL_TIMEOUT_S)
        if ran.exit_code != HELLO_EXIT_CODE:
            remedy = f"mount {folder.parent} without noexec, or set TMPDIR"
            return Finding(
                "failed", f"what g++ built does not run: exit code {ran.exit_code}", remedy
            )
    return Finding("ok", f"{toolchain.name} compiled and ran a threaded program")


def _cores() -> Finding:
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return Finding("ok", f"{count} for blocks to run on")


def _folder(folder: Path, variable: str) -> Finding:
    from cudaops.graph.services import MIN_FREE_BYTES

    absolute = folder.absolute()
    existing = next(parent for parent in (absolute, *absolute.parents) if parent.exists())
    remedy = f"set {variable} to a folder you may write to"
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        return Finding("failed", f"{existing} cannot be written to: {error.strerror}", remedy)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        needed = f"{free // 2**20} MiB free, a run needs {MIN_FREE_BYTES // 2**20}"
        return Finding("failed", f"{absolute}: {needed}", f"free some space, or {remedy}")
    return Finding("ok", f"{absolute}, {free / 2**30:.1f} GiB free")


def _knowledge(settings: Settings) -> Finding:
    from cudaops.graph.services import open_knowledge

    knowledge = open_knowledge(settings)
    try:
        found = knowledge.search("shared memory tiling", limit=1)
        state = knowledge.status()
    finally:
        knowledge.close()
    text = (
        f"PostgreSQL with pgvector {state.database}; "
        f"{state.notes} notes, searched with {state.embedding_model}"
    )
    if not found:
        return Finding(
            "failed", f"{text}: a search found nothing", "python -m cudaops knowledge status"
        )
    return Finding("ok", "; ".join([text, *state.notices]))


def _nvcc() -> Finding:
    nvcc = find_nvcc()
    if nvcc is None:
        detail = "not on PATH, in CUDA_HOME or in the toolkit extra; nvcc checks no rewrite here"
        return Finding("missing", detail, TOOLKIT_REMEDY)
    with tempfile.TemporaryDirectory(prefix="cudaops-doctor") as name:
        folder = Path(name)
        (folder / "k.cu").write_text(KERNEL, encoding="utf-8")
        command = [str(nvcc), "-cubin", "-arch=sm_86", "k.cu", "-o", "k.cubin"]
        done = run_bounded(command, cwd=folder, timeout_s=TOOL_TIMEOUT_S)
    if done.exit_code != 0:
        return Finding("failed", f"{nvcc} cannot compile for sm_86: {done.stderr}", TOOLKIT_REMEDY)
    return Finding("ok", f"{nvcc} compiled a kernel for sm_86")


def _ncu() -> Finding:
    ncu = shutil.which("ncu")
    if ncu is None:
        detail = "Nsight Compute is not on PATH; profiles are modelled"
        return Finding(
            "missing", detail, "install nsight-compute from NVIDIA's repository (not on PyPI)"
        )
    done = run_bounded([ncu, "--version"], cwd=Path.cwd(), timeout_s=TOOL_TIMEOUT_S)
    lines = done.stdout.strip().splitlines()
    if done.exit_code != 0 or not lines:
        return Finding(
            "failed", f"{ncu} --version: exit code {done.exit_code}", "reinstall nsight-compute"
        )
    return Finding("ok", f"{ncu}, {lines[-1]}")


def _gpu() -> Finding:
    program = shutil.which("nvidia-smi")
    if program is None:
        return Finding("missing", "no NVIDIA driver here; times are modelled and stay provisional")
    done = run_bounded([program, "-L"], cwd=Path.cwd(), timeout_s=TOOL_TIMEOUT_S)
    listed = [
        line.split(" (UUID")[0] for line in done.stdout.splitlines() if line.startswith("GPU ")
    ]
    if done.exit_code != 0 or not listed:
        said = one_line(done.stdout + done.stderr) or f"exit code {done.exit_code}"
        return Finding("failed", f"nvidia-smi lists no GPU: {said}", "check the NVIDIA driver")
    return Finding("ok", "; ".join(listed))


def _nim_key(settings: Settings) -> Finding:
    if settings.nvidia_api_key is None:
        detail = "NVIDIA_API_KEY is not set; notes are searched with static word vectors"
        return Finding("missing", detail, "set NVIDIA_API_KEY in the environment or in .env")
    return Finding("ok", "NVIDIA_API_KEY is set")
