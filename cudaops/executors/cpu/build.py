"""Builds by content: the same source, flags and compiler are compiled once, whoever asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.messages import read_failure
from cudaops.executors.cpu.source import MAIN, Source, program_source, unit_source
from cudaops.executors.cpu.symbols import shared_memory
from cudaops.executors.cpu.toolchain import (
    COMPILE_TIMEOUT_S,
    Build,
    around,
    code_flags,
    compile_command,
    compiling,
    find_toolchain,
    link_command,
    precompiled_header,
    source_digest,
)
from cudaops.executors.process import Finished, run_bounded
from cudaops.storage import NOTE, Facts, entry_of, make_once, raise_if_full

EXECUTABLE = "unit"
OBJECT = "unit.o"
_FORMAT = 3
"""Part of every key: raised when what stands in the facts changes."""
STATIC_SHARED_LIMIT = 48 * 1024
"""ptxas refuses more. Source: CUDA C++ Programming Guide, technical specifications."""


class Built(NamedTuple):
    """A folder with an executable in it."""

    key: str
    folder: Path
    command: str
    seconds: float
    cached: bool
    log: str
    static_shared: int
    """Most bytes of static shared memory any one function has."""

    @property
    def executable(self) -> Path:
        return self.folder / EXECUTABLE


def build_program(cache: Path, program: Program, build: Build = "plain") -> Built | CompileFailed:
    """The whole program as one executable."""
    return build_source(cache, program_source(program), program, build)


def build_source(
    cache: Path,
    source: Source,
    program: Program,
    build: Build = "plain",
    compile_extra: Sequence[str] = (),
    link_extra: Sequence[str] = (),
) -> Built | CompileFailed:
    """A whole program in a form of its own. The extra flags become part of the key."""
    return _build(cache, source, program, build, compile_extra, link_extra, runner=False)


def build_unit(
    cache: Path,
    unit: Unit,
    build: Build = "plain",
    compile_extra: Sequence[str] = (),
    link_extra: Sequence[str] = (),
) -> Built | CompileFailed:
    """A baseline or rewrite with our runner. The extra flags become part of the key."""
    built = _build(
        cache, unit_source(unit), unit.program, build, compile_extra, link_extra, runner=True
    )
    if isinstance(built, Built) and not unit.widened and built.static_shared > STATIC_SHARED_LIMIT:
        text = f"{built.static_shared} bytes of static shared memory"
        text = f"uses {text}; a block has at most {STATIC_SHARED_LIMIT}"
        return CompileFailed(message=text, log="")
    return built


def shared_guards(executable: Path) -> tuple[int, ...]:
    """`SharedMemory.guards` of a build, as noted when it was linked."""
    note = json.loads((executable.parent / NOTE).read_text("utf-8"))
    return tuple(note["facts"]["guards"])


def as_compiled(built: Built, unit: Unit) -> Compiled:
    """The record of a build."""
    return Compiled(
        key=built.key,
        folder=str(built.folder),
        unit=unit,
        command=built.command,
        compiler=find_toolchain().name,
        seconds=built.seconds,
        cached=built.cached,
        log=built.log,
    )


def _build(
    cache: Path,
    source: Source,
    program: Program,
    build: Build,
    compile_extra: Sequence[str],
    link_extra: Sequence[str],
    *,
    runner: bool,
) -> Built | CompileFailed:
    flags = (code_flags(build), tuple(compile_extra), tuple(link_extra), runner)
    entry = entry_of(
        cache,
        "unit",
        _FORMAT,
        source_digest(),
        flags,
        sorted(source.files.items()),
        source.includes,
    )

    def make(folder: Path) -> Facts | CompileFailed:
        header = precompiled_header(cache, build, source.includes)
        objects = around(cache, build, OBJECT, runner=runner)
        command = compile_command(build, MAIN, OBJECT, _placed(folder, header, compile_extra))
        done = _step(command, folder, [header.parent] if header else [])
        if done.exit_code == 0:
            log = done.stderr
            linked = [Path(p) for p in (*objects, *link_extra) if Path(p).is_absolute()]
            done = _step(link_command(build, objects, EXECUTABLE, link_extra), folder, linked)
        if done.exit_code != 0:
            return _refused(done, program)
        shared = shared_memory(folder / EXECUTABLE)
        return {
            "command": " ".join(command).replace(str(folder), "."),
            "log": log[:4096],
            "shared": max(shared.bytes_of.values(), default=0),
            "guards": shared.guards,
        }

    made = make_once(entry, source.files, make)
    if isinstance(made, CompileFailed):
        return made
    facts = made.facts
    return Built(
        entry.key, entry.folder, facts["command"], made.seconds, made.cached, facts["log"],
        facts["shared"],
    )  # fmt: skip


def _placed(work: Path, header: Path | None, extra: Sequence[str]) -> list[str]:
    """Flags that depend on where the build happens, and none of which change the code."""
    prelude = (
        ["-include", str(header)]
        if header
        else ["-include", "cudaops/cuda.h", "-include", "cudaops/entry.h"]
    )
    return [f"-ffile-prefix-map={work}=.", *prelude, *extra]


def _step(command: list[str], folder: Path, reads: Sequence[Path]) -> Finished:
    confine = compiling(folder, reads)
    done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    if done.exit_code != 0:
        raise_if_full(done.stderr, folder)
    return done


def _refused(done: Finished, program: Program) -> CompileFailed:
    if done.timed_out:
        text = f"g++ did not finish within {COMPILE_TIMEOUT_S:g} s"
        return CompileFailed(message=text, log=done.stderr[:4096])
    return read_failure(done.stderr, [f.path for f in program.files])
