"""Whole programs for the stand-in GPU: the recorder over the runtime of the `cpu` executor."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from cudaops.domain.execution import CompileFailed
from cudaops.domain.program import Program
from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu_build import build_program, build_source
from cudaops.sandbox.executors.cpu_cache import used
from cudaops.sandbox.executors.cpu_source import MAIN, Source, precompilable
from cudaops.sandbox.executors.cpu_toolchain import (
    COMPILE_TIMEOUT_S,
    SOURCE,
    compile_command,
    compiling,
    locked,
    source_digest,
)
from cudaops.sandbox.gpu.capture.source import RECORDER, recorder_files, standin_files
from cudaops.sandbox.gpu.platform import Executable
from cudaops.sandbox.process import run_bounded

FLAGS = ("-DCUDAOPS_CAPTURE_STANDIN", "-I.", "-Icudaops_capture")


def standin_program(cache: Path, program: Program, recorded: bool) -> Executable | CompileFailed:
    """The program built by g++; `recorded` with its launches going through the recorder."""
    if recorded:
        source = Source(standin_files(program, MAIN), precompilable(program))
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
    files = recorder_files()
    text = repr((source_digest(), FLAGS, sorted(files.items())))
    folder = cache / f"recorder-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    made = folder / "recorder.o"
    if not made.is_file():
        with locked(folder):
            if not made.is_file():
                _compile(folder, files, made)
    used(folder)
    return made


def _compile(folder: Path, files: dict[str, str], made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        for path, text in files.items():
            (work / path).parent.mkdir(exist_ok=True)
            (work / path).write_text(text, encoding="utf-8")
        command = compile_command("plain", RECORDER, made.name, [*FLAGS, f"-I{SOURCE}"])
        done = run_bounded(command, cwd=work, timeout_s=COMPILE_TIMEOUT_S, confine=compiling(work))
        if done.exit_code != 0:
            lines = done.stderr.splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line), lines[0])
            raise SandboxUnavailable(f"g++ cannot build the recorder: {first}", "install g++ 11")
        (work / made.name).replace(made)
