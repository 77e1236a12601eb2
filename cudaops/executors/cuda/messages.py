"""What nvcc, ptxas and the linker say, as one line and a place in the author's text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.errors import PrerequisiteError
from cudaops.executors.cpu.build import MAX_LOG, read_failure
from cudaops.executors.process import Finished
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.lexing import byte_text, line_of
from cudaops.program.outline import outline

_ERROR = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic |internal )?error"
    r"(?: #[\w-]+)?: (?P<text>.*)$"
)
_INSTANTIATION = re.compile(r'at line (?P<line>\d+)(?: of "?(?P<file>[^"\s]+)"?)?')
_PTXAS = re.compile(r"^ptxas (?:[^;]*; )?(?:error|fatal)\s*: (?P<text>.*)$")
_PTXAS_LAST = "Ptx assembly aborted due to errors"
_QUOTED = re.compile(r"'(?P<symbol>\w+)'")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_DRIVER = re.compile(r"^nvcc (?:fatal|error)\s*: (?P<text>.*)$")
_OURS = ("unsupported GNU version", "unsupported clang version")
"""What nvcc's own headers say of a host compiler."""
HOST_REMEDY = "install a g++ that this nvcc supports, or a newer CUDA toolkit"

Demangle = Callable[[str], str]


def read_nvcc_failure(
    done: Finished, program: Program, unit: Unit | None, demangle: Demangle
) -> CompileFailed:
    """The first error that is the source's fault.

    Raises PrerequisiteError where nvcc itself cannot work: no host compiler, unknown architecture.
    """
    log = done.stderr + done.stdout
    lines = log.splitlines()
    known = {*(f.path for f in program.files), CANDIDATE_FILE}
    for index, line in enumerate(lines):
        if any(text in line for text in _OURS):
            raise PrerequisiteError("nvcc refuses the host compiler", HOST_REMEDY)
        if found := _ERROR.match(line):
            location = _located(found["file"], found["line"], known)
            return _failed(found["text"], location or _instantiation(lines, index, known), log)
    for line in lines:
        found = _PTXAS.match(line)
        if found and found["text"] != _PTXAS_LAST:
            text = _HEX.sub(lambda number: str(int(number[0], 16)), found["text"])
            return _ptxas(text, program, unit, demangle, log)
    for line in lines:
        if found := _DRIVER.match(line):
            _raise_or_pass(found["text"])
            return _failed(found["text"], None, log)
    return read_failure(log, [f.path for f in program.files])


def _failed(text: str, location: SourceLocation | None, log: str) -> CompileFailed:
    return CompileFailed(message=" ".join(text.split())[:400], location=location, log=log[:MAX_LOG])


def _located(file: str, line: str, known: set[str]) -> SourceLocation | None:
    name = file.removeprefix("./")
    return SourceLocation(file=name, line=int(line)) if name in known and int(line) else None


def _instantiation(lines: list[str], index: int, known: set[str]) -> SourceLocation | None:
    """An error in a header of CUDA's: the nearest place in the author's text that led there.

    nvcc lists `detected during` below the message, innermost first; a place without a file is in
    the file of the one before it.
    """
    file = ""
    for line in lines[index + 1 : index + 40]:
        if _ERROR.match(line):
            break
        for found in _INSTANTIATION.finditer(line):
            file = found["file"] or file
            if location := _located(file, found["line"], known):
                return location
    return None


def _ptxas(
    text: str, program: Program, unit: Unit | None, demangle: Demangle, log: str
) -> CompileFailed:
    """ptxas names symbols and its own files: a kernel becomes its name and its definition."""
    location = None
    if quoted := _QUOTED.search(text):
        shown = demangle(quoted["symbol"])
        text = text.replace(quoted[0], f"`{_own_name(shown)}`")
        location = _definition(shown, program, unit)
    return _failed(text, location, log)


def _own_name(demangled: str) -> str:
    return demangled.replace("cudaops_candidate::", "").removeprefix("void ")


def _definition(demangled: str, program: Program, unit: Unit | None) -> SourceLocation | None:
    """First line of the function that a demangled symbol names."""
    name = re.sub(r"<.*", "", re.sub(r"\(.*", "", _own_name(demangled)))
    if "cudaops_candidate::" in demangled:
        if unit is None or unit.rewrite is None:
            return None
        facts = outline(byte_text(unit.rewrite.source))
        for item in facts.items:
            if item.is_kernel and item.qualified_name == name:
                line = line_of(facts.lexed.text, item.start)
                return SourceLocation(file=CANDIDATE_FILE, line=line)
        return None
    for kernel in program.kernels:
        if kernel.qualified_name == name:
            return SourceLocation(file=kernel.file, line=kernel.first_line)
    return None


def _raise_or_pass(text: str) -> None:
    """Tell a toolkit that cannot work from a compiler that fell over the source."""
    if "died due to signal" not in text:
        _refuse(text)


def _refuse(text: str) -> NoReturn:
    if "architecture" in text or "gpu-code" in text:
        raise PrerequisiteError(
            f"nvcc cannot build for this GPU: {text}",
            "install a CUDA toolkit that knows it, or give another --arch",
        )
    raise PrerequisiteError(f"nvcc cannot work: {text}", HOST_REMEDY)
