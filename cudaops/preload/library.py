"""The shared library of a winner: `winner.h` with its cubins and plans, compiled by g++ with the
sources beside this file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.preload.hooks import SOURCE, check_platform
from cudaops.executors.process import run_bounded
from cudaops.preload.plan_source import plan_source, quoted
from cudaops.preload.winner import Instance, Winner, capability_of
from cudaops.storage import replacing

SOURCES = (SOURCE, Path(__file__).parent / "source")
MAIN, GENERATED = "library.cpp", "winner.h"
LIBRARY = "libwinner.so"
COMPILE_TIMEOUT_S = 120.0
FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-fno-threadsafe-statics", "-Wl,-z,defs",
)  # fmt: skip
LIBRARIES = ("-nodefaultlibs", "-lc", "-lgcc", "-ldl", "-lpthread")
"""No C++ library: the program may bring another."""


def write_library(winner: Winner, out: Path) -> None:
    """Compile the library and put it where it is wanted; a reader sees the old one or the new.

    Raises PrerequisiteError where it cannot be compiled or written.
    """
    check_platform()
    gxx = find_toolchain().gxx
    with tempfile.TemporaryDirectory(prefix="cudaops-preload-") as temporary:
        folder = Path(temporary)
        for part in SOURCES:
            shutil.copytree(part, folder, dirs_exist_ok=True)
        for number, instance in enumerate(winner.instances):
            shutil.copy(instance.image, folder / _image_name(number))
        (folder / GENERATED).write_text(winner_source(winner), encoding="utf-8")
        command = [gxx, *FLAGS, "-o", LIBRARY, MAIN, *LIBRARIES]
        done = run_bounded(
            command,
            cwd=folder,
            timeout_s=COMPILE_TIMEOUT_S,
            confine=Confinement("compile", (), (folder,)),
        )
        if done.exit_code != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line), lines[0])
            raise SandboxUnavailable(f"g++ cannot compile the library: {first[:300]}", "report it")
        _put(folder / LIBRARY, out)


def library_key(winner: Winner) -> tuple[object, ...]:
    """What decides about a library's contents."""
    sources = [(p.name, p.read_text("utf-8")) for part in SOURCES for p in sorted(part.iterdir())]
    images = [one.image.parent.name for one in winner.instances]
    return (find_toolchain(), FLAGS, LIBRARIES, sources, images, winner_source(winner))


def winner_source(winner: Winner) -> str:
    """`winner.h`: the table `SERVED`, and for each row its cubin, parameters and plan."""
    lines = [
        f"// {_one_line(winner.rewrite.title)} ({winner.rewrite.id}) for {winner.sm_arch}",
        "#pragma once",
        '#include "rewrite.h"',
        "namespace cudaops {",
    ]
    for number, instance in enumerate(winner.instances):
        lines += _parts(winner, number, instance)
    lines.append("static Served SERVED[] = {")
    lines += [_row(winner, number, one) for number, one in enumerate(winner.instances)]
    return "\n".join([*lines, "};", "}  // namespace cudaops", ""])


def _parts(winner: Winner, number: int, instance: Instance) -> Iterator[str]:
    name = f"cudaops_image_{number}"
    yield (
        f'asm(".pushsection .rodata\\n.balign 64\\n{name}:\\n.incbin \\"{_image_name(number)}\\"\\n'
        '.popsection\\n");'
    )
    yield f'extern "C" __attribute__((visibility("hidden"))) const unsigned char {name}[];'
    rows = (f"{{{p.offset}, {p.size_bytes}}}" for p in instance.parameters)
    yield f"static const Parameter parameters_{number}[] = {{{', '.join([*rows, '{0, 0}'])}}};"
    kernels = (quoted(one.symbol) for one in instance.taken)
    yield f"static const char* const kernels_{number}[] = {{{', '.join(kernels)}}};"
    constants = [*map(quoted, instance.constants), "nullptr"]
    yield f"static const char* const constants_{number}[] = {{{', '.join(constants)}}};"
    yield plan_source(
        f"plan_{number}", winner.rewrite, winner.kernel, instance.workloads, instance.taken
    )


def _row(winner: Winner, number: int, instance: Instance) -> str:
    major, minor, exact = capability_of(winner.sm_arch)
    image = f"{{cudaops_image_{number}, {major}, {minor}, {str(exact).lower()}}}"
    return (
        f"    {{{quoted(instance.symbol)}, {quoted(instance.callee)}, {image}, "
        f"parameters_{number}, {len(instance.parameters)}, kernels_{number}, "
        f"{len(instance.taken)}, constants_{number}, {len(instance.constants)}, plan_{number}, "
        "{0}, {0}, {nullptr}, PTHREAD_MUTEX_INITIALIZER, {NOT_LOADED}, nullptr, {}},"
    )


def _image_name(number: int) -> str:
    return f"image{number}.cubin"


def _one_line(text: str) -> str:
    return " ".join(text.replace("\\", "/").split())


def _put(made: Path, out: Path) -> None:
    try:
        with replacing(out) as part:
            shutil.copy(made, part)
    except OSError as error:
        raise PrerequisiteError(
            f"{out} cannot be written: {error.strerror}", "name another file with --out"
        ) from error
