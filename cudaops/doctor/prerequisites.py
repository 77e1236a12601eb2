"""What every run needs of a machine: Python, g++, cores, room to write, the graph."""

from __future__ import annotations

import copy
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from cudaops.doctor.ladder import CheckContext, CheckOutcome, PlannedCheck, failed, ok
from cudaops.executors.process import run_bounded

TOOL_TIMEOUT_S = 8.0
"""A first compile takes two seconds on two slow cores."""

HELLO = (
    "#include <thread>\nint main() { int x = 0; std::thread([&] { x = 42; }).join(); return x; }\n"
)
HELLO_EXIT_CODE = 42

LEAST_PYTHON = (3, 11)
"""As pyproject.toml requires."""
PYTHON_REMEDY = (
    "sudo apt-get install python3.11 python3.11-venv (Ubuntu 22.04, Lambda Stack: from the"
    " deadsnakes PPA), then python3.11 -m venv .venv and install cudaops there"
)


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> CheckOutcome:
    """Whether this Python is new enough."""
    text = f"{'.'.join(map(str, version))} at {sys.executable}"
    if version < LEAST_PYTHON:
        return failed(f"{text} is too old, 3.11 or newer is needed", PYTHON_REMEDY)
    return ok(text)


def cores() -> CheckOutcome:
    """How many this process may use."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return ok(f"{count}, shared by the blocks of a kernel")


def compiler(site: CheckContext) -> CheckOutcome:
    """Compile and run a threaded program."""
    from cudaops.executors.cpu.executor import CpuExecutor
    from cudaops.executors.cpu.toolchain import find_toolchain

    CpuExecutor("A10", site.settings.builds_folder).check_available()
    toolchain = find_toolchain()
    (site.folder / "hello.cpp").write_text(HELLO, encoding="utf-8")
    command = [
        *(toolchain.gxx, *toolchain.flags, "hello.cpp"),
        *("-o", "hello", "-no-pie", "-pthread"),
    ]
    built = run_bounded(command, cwd=site.folder, timeout_s=TOOL_TIMEOUT_S)
    if built.exit_code != 0:
        detail = f"{toolchain.name} cannot compile a program: {built.stderr}"
        return failed(detail, "reinstall g++ and libstdc++")
    ran = run_bounded([str(site.folder / "hello")], cwd=site.folder, timeout_s=TOOL_TIMEOUT_S)
    if ran.exit_code != HELLO_EXIT_CODE:
        remedy = f"mount {site.folder.parent} without noexec, or set TMPDIR"
        return failed(f"what g++ built does not run: exit code {ran.exit_code}", remedy)
    return ok(f"{toolchain.name} compiled and ran a threaded program")


def runtime(site: CheckContext) -> CheckOutcome:
    """Build what runs kernels on the processor: the first run would do it, and so knows g++'s
    version. The `cuda` executor's checker runs on it too."""
    from cudaops.executors.cpu.toolchain import around

    cache = site.settings.builds_folder
    objects = {
        *around(cache, "plain", "unit.o", runner=True),
        *around(cache, "checked", "unit.o", runner=True),
    }
    return ok(f"g++ built {len(objects) - 1} objects of the runtime that runs kernels")


def clang() -> CheckOutcome:
    """Have libclang read a kernel."""
    from cudaops.domain.program import SourceFile
    from cudaops.program.front_end import kernel_form
    from cudaops.program.parse import parse_files
    from cudaops.program.syntax import NotUnderstood

    text = "__global__ void scale(float* x, int n) { x[threadIdx.x % n] *= 2; }"
    program = parse_files("scale", (SourceFile(path="scale.cu", text=text),))
    try:
        form = kernel_form(program, program.kernels[0])
    except NotUnderstood as problem:
        return failed(f"libclang does not read a kernel: {problem}", "reinstall g++ and libclang")
    return ok(f"libclang read a kernel of {len(form.kernel.parameters)} parameters")


def builds(site: CheckContext) -> CheckOutcome:
    """How much of the cache of compiled code is in use, and where it is."""
    from cudaops.storage import usage

    found = usage(site.settings.builds_folder)
    used, limit = found.size_bytes / 1024**3, site.settings.builds_gib
    return ok(
        f"{found.entries} entries, {used:.2f} of {limit:g} GiB in {site.settings.builds_folder}"
    )


def isolation() -> CheckOutcome:
    """Confine a child that tries what it must not, at the strongest level that holds here."""
    from cudaops.executors.isolation.level import MEANING, probe

    reached = probe()
    detail = f"{reached.level}: {MEANING[reached.level]}"
    return ok("; ".join((detail, *reached.notes)))


def folder(path: Path, variable: str) -> CheckOutcome:
    """Whether a folder can be written to and has room for a run."""
    from cudaops.graph.folder import MIN_FREE_BYTES

    absolute = path.absolute()
    existing = next(parent for parent in (absolute, *absolute.parents) if parent.exists())
    remedy = f"set {variable} to a folder you may write to"
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        return failed(f"{existing} cannot be written to: {error.strerror}", remedy)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        room = f"{free // 2**20} MiB free, a run needs {MIN_FREE_BYTES // 2**20}"
        return failed(f"{absolute}: {room}", f"free some space, or {remedy}")
    return ok(f"{absolute}, {free / 2**30:.1f} GiB free")


def graph(site: CheckContext) -> CheckOutcome:
    """Build the state machine and ask its routers, which must leave the state alone: LangGraph
    silently drops what a conditional edge writes."""
    from cudaops.graph.build import build_graph, route_optimizer, route_supervisor, route_verify

    nodes = [name for name in build_graph(1).nodes if not name.startswith("__")]
    state: Any = {
        "decision": "profile",
        "proposal": {"source": ""},
        "judgement": {"outcome": "rejected"},
        "attempts": [1],
    }
    before = copy.deepcopy(state)
    keys = (route_supervisor(state), route_optimizer(state), route_verify(state, 1))
    if state != before or keys != ("profiler", "sandbox", "exhausted"):
        return failed(
            f"the routers answered {', '.join(keys)} and may have written to the state",
            "reinstall cudaops with the versions of constraints.txt",
        )
    return ok(f"{len(nodes)} nodes; the routers answer and leave the state alone")


STEPS = (
    PlannedCheck("python", lambda site: python(), ("cpu", "cuda")),
    PlannedCheck("cores", lambda site: cores(), ("cpu", "cuda")),
    PlannedCheck("g++", compiler, ("cpu", "cuda"), bound_s=30.0),
    PlannedCheck(
        "cache folder",
        lambda site: folder(site.settings.cache, "CUDAOPS_CACHE"),
        ("cpu", "cuda"),
    ),
    PlannedCheck("compiled code", builds, ("cpu", "cuda"), stands_on=("cache folder",)),
    PlannedCheck(
        "runs folder", lambda site: folder(site.settings.runs, "CUDAOPS_RUNS"), ("cpu", "cuda")
    ),
    PlannedCheck(
        "cpu runtime", runtime, ("cpu", "cuda"), stands_on=("g++", "cache folder"), bound_s=60.0
    ),
    PlannedCheck(
        "libclang", lambda site: clang(), ("cpu", "cuda"), stands_on=("g++",), bound_s=60.0
    ),
    PlannedCheck("isolation", lambda site: isolation(), ("cpu", "cuda"), bound_s=60.0),
    PlannedCheck("graph", graph, ("cpu", "cuda"), bound_s=30.0),
)
