"""A program of the author's that launches kernels by CUDA's driver API, run as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from cudaops.domain.program import Application, Program
from cudaops.errors import InputError
from cudaops.executors.process import run_bounded
from cudaops.program.parse import load_kernels

_INTERPRETER_SEGMENT = 3
"""PT_INTERP. Source: elf(5); a program that is linked statically has none."""
INTERPRETER_TIMEOUT_S = 20.0
_MOST_HASHED = 64 << 20
"""Bytes of one file. Chosen: a script or a program, not the data that it reads."""


def open_application(folder: Path, source: Path, command: str, arguments: Iterable[str]) -> Program:
    """The kernels of `source`, with the program that launches them.

    `folder`: where it is run; `command`: the program, as it lies there, or an interpreter of this
    machine; `arguments`: of all its runs. Raises InputError, one line, for what cannot be so.
    """
    program = load_kernels(source)
    path, is_interpreter = _found(folder, command)
    digest = hashlib.sha256()
    for named in () if is_interpreter else (path,):
        digest.update(_content(named))
    for word in dict.fromkeys(arguments):
        if (folder / word).is_file():
            digest.update(f"\0{word}\0".encode() + _content(folder / word))
    application = Application(
        path=str(path), is_interpreter=is_interpreter, sha256=digest.hexdigest()
    )
    return program.model_copy(update={"application": application})


def _found(folder: Path, command: str) -> tuple[Path, bool]:
    path = Path(os.path.normpath(folder / command))
    is_authors = path.is_relative_to(folder) or not Path(command).is_absolute()
    if path.is_file() and is_authors and not path.name.startswith("python"):
        _require_preloadable(path, command)
        return path, False
    on_path = str(path) if path.is_file() else None if "/" in command else shutil.which(command)
    if on_path is None:
        raise InputError(f"--run: there is no program {command} in {folder}, nor on PATH")
    return Path(interpreter_itself(Path(on_path).absolute())), True


def _require_preloadable(path: Path, command: str) -> None:
    """Of an author's program: that a library can be loaded into it."""
    if not os.access(path, os.X_OK):
        raise InputError(f"--run: {command} is no program (it may not be executed)")
    with path.open("rb") as file:
        head = file.read(64)
        if head.startswith(b"#!"):
            raise InputError(
                f"--run: {command} is a script; name its interpreter too, as in "
                f'--run "python3 {command}"'
            )
        is_elf = head.startswith(b"\x7fELF\x02") and len(head) == 64
        if not is_elf or _INTERPRETER_SEGMENT not in _segments(head, file.read(1 << 16)):
            raise InputError(
                f"--run: {command} is statically linked, so its launches cannot be recorded; "
                "link it dynamically"
            )
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise InputError(f"--run: {command} is setuid; nothing can be preloaded")


def _segments(head: bytes, rest: bytes) -> set[int]:
    """Types of an ELF file's segments, as far as they are in its first bytes."""
    start, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    data = head + rest
    places = (start + number * size for number in range(count))
    return {struct.unpack_from("<I", data, at)[0] for at in places if at + 4 <= len(data)}


def _content(path: Path) -> bytes:
    """Of a file; of a large one its size alone."""
    try:
        size = path.stat().st_size
        return path.read_bytes() if size <= _MOST_HASHED else f"{size} bytes".encode()
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from problem


def interpreter_itself(interpreter: Path) -> str:
    """A Python where what stands on PATH only starts one, as pyenv's does."""
    if not interpreter.name.startswith("python"):
        return str(interpreter)
    asked = run_bounded(
        [str(interpreter), "-c", "import sys; print(sys.executable)"],
        cwd=interpreter.parent, timeout_s=INTERPRETER_TIMEOUT_S,
        env={"HOME": str(Path.home())},
    )  # fmt: skip
    found = Path(asked.stdout.strip() or "/")
    if asked.exit_code != 0 or not found.is_file():
        raise InputError(f"{interpreter} does not run: {asked.stderr.strip()[-200:]}")
    return str(found)
