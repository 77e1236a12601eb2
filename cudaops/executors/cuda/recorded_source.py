"""The recorded form of a program: its launches go through the recorder, nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cudaops.domain.program import Program
from cudaops.executors.cpu.toolchain import CLOCKS, INCLUDE, SOURCE
from cudaops.program.reroute import Dialect, kernel_registrations, rerouted_files

FOLDER = Path(__file__).parent / "capture"
NAMESPACE = "::cudaops_capture"
MAIN = "cudaops_program.cu"
"""What is compiled; it includes the author's file."""
RECORDER = "cudaops_capture/recorder.cpp"
"""Host code alone, the same for every program, linked to `MAIN`."""
CHRONO = tuple(name for name in CLOCKS if "chrono" in name)
"""Readings of the C++ library's clocks; others go through macros, since NVIDIA's runtime, which is
linked in, reads C's clocks for itself."""
LINKED_FLAGS = (
    "-Xlinker", "-no-pie", *(w for n in CHRONO for w in ("-Xlinker", f"--wrap={n}")),
)  # fmt: skip
NVCC_FLAGS = ("-std=c++17", "-D__NV_NO_VECTOR_DEPRECATION_DIAG", "-Xcompiler", "-fno-pie",
              *LINKED_FLAGS, "-I", ".", "-I", "cudaops_capture")  # fmt: skip
"""Beside what every program is built with. A program that is no PIE keeps its functions where its
symbol table says, so that an address in the report names a kernel's instance."""


class RecordedSource(NamedTuple):
    """What a compiler needs: everything in `files`, no folder of ours on its path."""

    files: dict[str, str]
    """Path to text; the build runs in the folder that holds them."""
    sources: tuple[str, ...]
    """Compiled and linked, in this order."""
    flags: tuple[str, ...]


def recorded_source(program: Program) -> RecordedSource:
    """For nvcc: `nvcc FLAGS ... -o OUT SOURCES`, run where the files are."""
    files = recorded_files(program, MAIN, "cuda")
    return RecordedSource({**files, **recorder_files()}, (MAIN, RECORDER), NVCC_FLAGS)


def recorded_in_place(program: Program) -> dict[str, str]:
    """For an author's own build: texts by their place in the tree. The main file, and others that
    launch its kernels, include their rewritten selves, which are beside them by a name that no
    build compiles (`nvcc *.cu`); headers of the recorder are in the tree's root. Of all files as
    one program any may be compiled by itself."""
    made = recorded_files(program, MAIN, "cuda")
    begin, _, variables = made.pop(MAIN).split("\n", 2)
    assert program.build is not None
    everything = [f.path for f in program.files if f.path != program.main_path]
    callers = program.build.callers if program.build.source else everything
    for name in (program.main_path, *callers):
        path, text = PurePosixPath(name), made[name]
        if name != program.main_path and text == program.file(name).text:
            continue
        up = "../" * (len(path.parts) - 1)
        beside = path.with_name(f"cudaops_{path.name}.inc")
        whole = [begin.replace('"cuda', f'"{up}cuda'), f'#include "{beside.name}"']
        whole.append(variables if name == program.main_path else "")
        made |= {str(beside): text, name: "\n".join(whole)}
    return made


def recorded_files(program: Program, main: str, dialect: Dialect) -> dict[str, str]:
    """The program with its launches rerouted, `main`, which includes it, and the recorder's own
    headers: `runtime.h` and `start.h` among them, which are NVIDIA's runtime's."""
    return {**_files(program, dialect, main), **_headers()}


def recorder_files() -> dict[str, str]:
    """The recorder itself and what it includes: `device_runtime.h` asks NVIDIA's runtime."""
    sources = {f"cudaops_capture/{p.name}": p for p in sorted((FOLDER / "src").iterdir())}
    sources["cudaops_capture/digest.h"] = SOURCE / "digest.h"
    return {**{name: p.read_text("utf-8") for name, p in sources.items()}, **_headers()}


def _headers() -> dict[str, str]:
    """What comes before the author's text."""
    found = {f"cudaops_capture/{p.name}": p for p in (FOLDER / "include/cudaops_capture").iterdir()}
    shared = (
        INCLUDE / "cudaops" / name
        for name in ("argument_types.h", "clock_reads.h", "named_kernels.h")
    )
    found |= {f"cudaops_capture/{path.name}": path for path in shared}
    return {name: path.read_text("utf-8") for name, path in sorted(found.items())}


def _files(program: Program, dialect: Dialect, main: str) -> dict[str, str]:
    lines = ['#include "cudaops_capture/launch.h"', f'#include "{program.main_path}"']
    lines += [
        f"CUDAOPS_CAPTURE_VARIABLE({json.dumps(v.qualified_name)}, {v.qualified_name});"
        for v in program.global_variables
    ]
    lines += kernel_registrations(program)
    files = rerouted_files(program, dialect=dialect, shim=NAMESPACE)
    return {**files, main: "\n".join(lines) + "\n"}
