"""Libraries of rewrites, the double of libcuda.so.1, and programs that launch by it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Unit
from cudaops.domain.program import Program
from cudaops.domain.workload import (
    Argument,
    Element,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.toolchain import require_nvcc, toolkit_home
from cudaops.preload.library import write_library
from cudaops.preload.winner import Winner, build_winner
from cudaops.program.plans import make_rewrite
from cudaops.settings import load_settings
from cudaops.storage import Facts, entry_of, make_once
from tests.executors.cuda.gpu_builds import program_of

HERE = Path(__file__).parent
ARCH = "sm_90"
DOUBLE, PROGRAM, LINKED = "libcuda.so.1", "program", "linked"
NEW, OLD = "new", "old"


class Reach(NamedTuple):
    """The double and the programs, compiled."""

    folder: Path
    kind: str = NEW

    @property
    def old(self) -> Reach:
        """The same with a driver before CUDA 12.3."""
        return Reach(self.folder, OLD)

    @property
    def driver(self) -> Path:
        """The folder of libcuda.so.1."""
        return self.folder / self.kind

    def run(
        self,
        image: Path,
        *commands: str,
        library: Path | None = None,
        reach: str = "dlsym",
        environment: Mapping[str, str] | None = None,
    ) -> Launched:
        """Run one program with these commands; see `program.cpp`."""
        log = image.parent / f"log-{os.urandom(4).hex()}"
        program = LINKED if reach == "linked" else PROGRAM
        preloaded = {} if library is None else {"LD_PRELOAD": str(library)}
        done = subprocess.run(
            [self.folder / program, reach, image, *commands],
            env={
                "LD_LIBRARY_PATH": str(self.driver), "FAKE_CUDA_LOG": str(log), **preloaded,
                **(environment or {}),
            },
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        lines = log.read_text().splitlines() if log.is_file() else []
        log.unlink(missing_ok=True)
        return Launched(done.stdout.splitlines(), done.stderr, [json.loads(x) for x in lines])


class Launched(NamedTuple):
    """What a program printed and what the double saw."""

    printed: list[str]
    stderr: str
    log: list[dict[str, Any]]

    @property
    def launches(self) -> list[dict[str, Any]]:
        """The launches, in order."""
        return [one for one in self.log if "launch" in one]

    @property
    def kernels(self) -> list[str]:
        """Their kernels: the rewrite's by their names, the author's by `author`."""
        mark = "_ZN17cudaops_candidate"
        return [
            one["launch"].removeprefix(mark).lstrip("0123456789").partition("E")[0]
            if one["launch"].startswith(mark)
            else "author"
            for one in self.launches
        ]

    @property
    def counts(self) -> list[dict[str, Any]]:
        """What the library counted."""
        found: list[dict[str, Any]] = json.loads(self.printed[-1])
        return found


def reach() -> Reach:
    """Compile the double and the programs, once an account."""
    includes = [f"-I{toolkit_home(require_nvcc()) / 'include'}"]
    gxx = find_toolchain().gxx
    texts = {
        name: (HERE / name).read_text()
        for name in ("fake_cuda.cpp", "fake_memory.h", "program.cpp")
    }
    flags = ["-std=c++17", "-O1", *includes]
    shared = ["-fPIC", "-shared", f"-Wl,-soname,{DOUBLE}", "fake_cuda.cpp", "-ldl", "-o"]
    ends = ["-ldl", "-lpthread"]
    commands = [
        [gxx, *flags, *shared, f"{NEW}/{DOUBLE}"],
        [gxx, *flags, "-DOLD", *shared, f"{OLD}/{DOUBLE}"],
        [gxx, *flags, "-o", PROGRAM, "program.cpp", *ends],
        [gxx, *flags, "-DLINKED", "-o", LINKED, "program.cpp", f"{NEW}/{DOUBLE}", *ends],
    ]
    entry = entry_of(load_settings().builds_folder, "fake-cuda", commands, sorted(texts.items()))

    def make(folder: Path) -> Facts:
        for kind in (NEW, OLD):
            (folder / kind).mkdir()
        for command in commands:
            subprocess.run(command, cwd=folder, check=True, timeout=120)
        return {}

    make_once(entry, texts, make)
    return Reach(entry.folder)


def _cache() -> Path:
    return load_settings().builds_folder


class Made(NamedTuple):
    """A library and the author's cubin that it is for."""

    library: Path
    image: Path
    winner: Winner

    @property
    def symbol(self) -> str:
        """Of the author's kernel."""
        return self.winner.instances[0].symbol


def made(
    folder: Path,
    source: str,
    rewrite: str,
    workloads: Sequence[Workload],
    *,
    tuned: Mapping[str, int] | None = None,
) -> Made:
    """The library of a rewrite of the program `source`, for the launches that were captured."""
    program = program_of(source)
    winner = winner_of(program, rewrite, workloads, tuned=tuned)
    library = folder / "libwinner.so"
    write_library(winner, library)
    image = folder / "author.cubin"
    image.write_bytes(authors_image(program, workloads).read_bytes())
    return Made(library, image, winner)


def winner_of(
    program: Program,
    rewrite: str,
    workloads: Sequence[Workload],
    *,
    arch: str = ARCH,
    tuned: Mapping[str, int] | None = None,
) -> Winner:
    """A rewrite of the program, compiled."""
    given = make_rewrite(rewrite, "user", "a rewrite", "for a test").tuned_with(dict(tuned or {}))
    builder = GpuBuilder(_cache(), arch)
    try:
        return build_winner(program, workloads, given, builder)
    finally:
        builder.close()


def authors_image(program: Program, workloads: Sequence[Workload]) -> Path:
    """A cubin of the program alone."""
    first = workloads[0]
    builder = GpuBuilder(_cache(), ARCH)
    try:
        unit = Unit(program=program, kernel=first.kernel, callee=first.callee)
        module = builder.unit(unit, draft=False)
    finally:
        builder.close()
    assert isinstance(module, Module), module
    return module.image


def workload(
    callee: str, **arguments: tuple[Element, Any] | str | OpaqueArgument | None
) -> Workload:
    """A captured launch. An argument is the element of a pointer, `(element, value)` of a number,
    a structure, or None for a null pointer."""
    return Workload(
        id="w0",
        kernel=callee.partition("<")[0].rpartition("::")[2],
        callee=callee,
        site=0,
        grid=Dim3(x=64),
        block=Dim3(x=64),
        arguments=tuple(_argument(name, given) for name, given in arguments.items()),
        allocations=(),
        folder="w0",
    )


def _argument(name: str, given: Any) -> Argument:
    match given:
        case None:
            return NullArgument(name=name)
        case OpaqueArgument():
            return given
        case str():
            return PointerArgument.model_validate({"name": name, "element": given, "allocation": 0})
        case (element, value):
            return ScalarArgument(name=name, element=element, value=value)
    raise AssertionError(given)


def launch(
    symbol: str,
    *values: str,
    how: str = "parameters",
    grid: int | str = 64,
    block: int | str = 64,
    smem: int = 0,
) -> str:
    """A command for the program: one launch of the author's kernel."""
    return " ".join(["launch", how, symbol, str(grid), str(block), str(smem), *values])


def i32(value: int) -> str:
    """As an argument's bytes."""
    return struct.pack("<i", value).hex()


def u64(value: int) -> str:
    """As an argument's bytes; an address too."""
    return struct.pack("<Q", value).hex()


def f32(value: float) -> str:
    """As an argument's bytes."""
    return struct.pack("<f", value).hex()
