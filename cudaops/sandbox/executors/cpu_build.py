"""Builds by content: the same source, flags and compiler are compiled once, whoever asks."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu_cache import used
from cudaops.sandbox.executors.cpu_messages import read_failure
from cudaops.sandbox.executors.cpu_source import MAIN, Source, program_source, unit_source
from cudaops.sandbox.executors.cpu_symbols import shared_memory
from cudaops.sandbox.executors.cpu_toolchain import (
    COMPILE_TIMEOUT_S,
    Build,
    around,
    compile_command,
    compile_flags,
    compiling,
    find_toolchain,
    link_command,
    precompiled_header,
    source_digest,
)
from cudaops.sandbox.process import SPACE_REMEDY, Finished, raise_for_space, run_bounded

EXECUTABLE = "unit"
OBJECT = "unit.o"
FACTS = "build.json"
_FACTS_FORMAT = 2
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
    facts = json.loads((executable.parent / FACTS).read_text("utf-8"))
    return tuple(facts["guards"])


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
    flags = (compile_flags(build), tuple(compile_extra), tuple(link_extra), runner)
    text = repr(
        (_FACTS_FORMAT, source_digest(), flags, sorted(source.files.items()), source.includes)
    )
    key = hashlib.sha256(text.encode()).hexdigest()[:24]
    folder = cache / key
    started = time.monotonic()
    if (folder / FACTS).is_file():
        used(folder)
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        return Built(
            key,
            folder,
            facts["command"],
            time.monotonic() - started,
            True,
            facts["log"],
            facts["shared"],
        )
    header = precompiled_header(cache, build, source.includes)
    objects = around(cache, build, OBJECT, runner=runner)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{key}.") as name:
            work = Path(name)
            _write(work, source.files)
            command = compile_command(build, MAIN, OBJECT, _placed(work, header, compile_extra))
            done = _step(command, work, [header.parent] if header else [])
            if done.exit_code == 0:
                log = done.stderr
                linked = [Path(p) for p in (*objects, *link_extra) if Path(p).is_absolute()]
                done = _step(link_command(build, objects, EXECUTABLE, link_extra), work, linked)
            if done.exit_code != 0:
                return _refused(done, program)
            shared = shared_memory(work / EXECUTABLE)
            shown = " ".join(command).replace(str(work), ".")
            facts = {
                "command": shown,
                "log": log[:4096],
                "shared": max(shared.bytes_of.values(), default=0),
                "guards": shared.guards,
            }
            (work / FACTS).write_text(json.dumps(facts), encoding="utf-8")
            _publish(work, folder)
    except OSError as problem:
        raise_for_space(problem, f"compiling in {cache}")
        raise
    return Built(key, folder, shown, time.monotonic() - started, False, log[:4096], facts["shared"])


def _placed(work: Path, header: Path | None, extra: Sequence[str]) -> list[str]:
    """Flags that depend on where the build happens, and none of which change the code."""
    prelude = (
        ["-include", str(header)]
        if header
        else ["-include", "cudaops/cuda.h", "-include", "cudaops/entry.h"]
    )
    return [f"-ffile-prefix-map={work}=.", *prelude, *extra]


def _write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="")


def _step(command: list[str], folder: Path, reads: Sequence[Path]) -> Finished:
    confine = compiling(folder, reads)
    done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    if done.exit_code != 0 and "No space left on device" in done.stderr:
        raise SandboxUnavailable(f"no space left while compiling in {folder.parent}", SPACE_REMEDY)
    return done


def _refused(done: Finished, program: Program) -> CompileFailed:
    if done.timed_out:
        text = f"g++ did not finish within {COMPILE_TIMEOUT_S:g} s"
        return CompileFailed(message=text, log=done.stderr[:4096])
    return read_failure(done.stderr, [f.path for f in program.files])


def _publish(work: Path, folder: Path) -> None:
    """Move a finished build into place; a process that was faster has the same."""
    try:
        shutil.copytree(work, part := work.with_name(work.name + ".done"))
        part.rename(folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        if not (folder / FACTS).is_file():
            raise
