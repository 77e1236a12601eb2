"""Whole programs for the stand-in GPU: the recorder over the runtime of the `cpu` executor."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import CompileFailed
from cudaops.domain.program import Program
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.build import MAIN, GccSource, build_program, build_source, precompilable
from cudaops.executors.cpu.toolchain import (
    COMPILE_TIMEOUT_S,
    SOURCE,
    compile_command,
    compiling,
    source_digest,
)
from cudaops.executors.cuda.platform import Executable
from cudaops.executors.cuda.recorded_source import RECORDER, recorded_files, recorder_files
from cudaops.executors.process import run_bounded
from cudaops.storage import Facts, entry_of, make_once, raise_if_full

CAPTURE = Path(__file__).with_name("capture")
"""Headers in place of those of the recorder that know NVIDIA's runtime."""
FLAGS = ("-I.", "-Icudaops_capture")
OBJECT = "recorder.o"


def standin_program(cache: Path, program: Program, recorded: bool) -> Executable | CompileFailed:
    """The program built by g++; `recorded` with its launches going through the recorder."""
    if recorded:
        files = {**recorded_files(program, MAIN, "gcc"), **_own_headers()}
        source = GccSource(files, precompilable(program))
        built = build_source(
            cache, source, program, "plain", FLAGS, (str(_recorder_object(cache)),)
        )
    else:
        built = build_program(cache, program)
    if isinstance(built, CompileFailed):
        return built
    return Executable(built.executable, built.command, built.seconds, built.cached)


def _recorder_object(cache: Path) -> Path:
    """The recorder compiled, once for all programs."""
    files = {**recorder_files(), **_own_headers()}
    entry = entry_of(cache, "recorder", source_digest(), FLAGS, sorted(files.items()))

    def make(folder: Path) -> Facts:
        command = compile_command("plain", RECORDER, OBJECT, [*FLAGS, "-g0", f"-I{SOURCE}"])
        confine = compiling(folder)
        done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
        if done.exit_code != 0:
            raise_if_full(done.stderr, folder)
            lines = done.stderr.splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line), lines[0])
            raise SandboxUnavailable(f"g++ cannot build the recorder: {first}", "install g++ 11")
        return {}

    make_once(entry, files, make)
    return entry.folder / OBJECT


def _own_headers() -> dict[str, str]:
    return {f"cudaops_capture/{p.name}": p.read_text("utf-8") for p in sorted(CAPTURE.iterdir())}
