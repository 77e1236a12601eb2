"""What a stranger may say in a call: no name and no path in it reaches beyond its own folder."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from cudaops.domain.execution import Unit
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.program.given import check_includes, leaves_folder
from cudaops.sandbox.wire import Call, Capture, OnWorkload, RunProgram

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_:.]{0,199}")
_LINE = re.compile(r"[^\x00-\x1f\x7f]{0,2000}")
_HEX = re.compile(r"[0-9A-Fa-f]{0,131072}")
_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,99}|\.\.?")


def check_unit(unit: Unit) -> None:
    """Raise ValueError where a name or path in it could mean something outside of its folder."""
    check_program(unit.program)
    _require(_WORD, unit.kernel, "kernel")
    _require(_LINE, unit.callee, "callee")
    if unit.rewrite is not None:
        for value in unit.rewrite.plan.scratch:
            _require(_WORD, value.name, "scratch name")


def check_program(program: Program) -> None:
    """The same of a whole program: its files lie below one folder."""
    for path in (program.main_path, *(f.path for f in program.files)):
        parts = PurePosixPath(path).parts
        inside = parts and not path.startswith("/") and ".." not in parts and len(parts) <= 16
        if not inside or not all(_PATH_PART.fullmatch(part) for part in parts):
            raise ValueError(f"{path[:100]!r} cannot be a file of a program")
    _require(_LINE, program.root_name, "root name")
    if "/" in program.root_name or len({f.path for f in program.files}) != len(program.files):
        raise ValueError("a program's files need names of their own")
    try:
        check_includes({f.path: f.text for f in program.files})
    except InputError as error:
        raise ValueError(str(error)) from error


def check_call(call: Call) -> None:
    """The same of a call: what stands in it goes into a runner's instructions, line by line."""
    argv = call.argv if isinstance(call, Capture | RunProgram) else ()
    for word in argv:
        check_argument(word)
    if not isinstance(call, OnWorkload):
        return
    workload, plan = call.workload, call.plan
    _require(_WORD, workload.id, "workload")
    for state in workload.globals:
        _require(_WORD, state.name, "variable")
    for name in plan.scratch_bytes:
        _require(_WORD, name, "scratch name")
    for launch in plan.launches:
        for value in launch.values:
            if value.kind == "raw":
                _require(_HEX, value.raw_hex, "structure")
            elif value.kind == "buffer" and value.scratch is not None:
                _require(_WORD, value.scratch, "scratch name")


def check_argument(word: str) -> None:
    """Raise ValueError where a program's argument names a file by a path that leaves its folder."""
    if leaves_folder(word):
        raise ValueError(
            f"the argument {word[:100]!r} names a file, and a remote executor has none of yours"
        )


def _require(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text[:100]!r} cannot be the name of a {what}")
