"""Places in source and names of functions, from an executable that g++ built with line tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.base import SourceLocation
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded
from cudaops.program.candidate import FILE as CANDIDATE_FILE

TOOL_TIMEOUT_S = 30.0
_LOCAL = re.compile(r"^(?P<function>.+\))::[^()]+$")
"""A variable in a function, demangled: `void k<float>(float*)::tile`."""
_BEGIN = "cudaops_shared_begin"
"""Linked before the author's object, by `cpu/src/first.cpp`."""
_GUARD = "guard variable for "
"""How nm writes the name that g++ gives to a variable's guard."""
_TLS = 0x400000
"""Where a non-PIE executable is linked; smaller values are offsets into thread-local storage."""
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?: \(.*\))?$")


def locate(
    executable: Path, addresses: Sequence[int], author_files: Collection[str]
) -> dict[int, SourceLocation]:
    """Innermost place in the author's own text for each address, inlined calls followed outwards.

    Addresses may be return addresses: the instruction before is looked up. What has no line in the
    author's text is absent.
    """
    known = {*author_files, CANDIDATE_FILE}
    wanted = sorted({a for a in addresses if a > 1})
    if not wanted:
        return {}
    listed = [hex(a - 1) for a in wanted]
    command = ["addr2line", "-a", "-i", "-e", str(executable), *listed]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    found: dict[int, SourceLocation] = {}
    current = 0
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            current = int(line, 16) + 1
            continue
        place = _PLACE.match(line)
        if place is None or current in found:
            continue
        file = _relative(place["file"], known)
        if file is not None and int(place["line"]) > 0:
            found[current] = SourceLocation(file=file, line=int(place["line"]))
    return found


def _reading(executable: Path) -> Confinement:
    return Confinement("compile", reads=(executable.parent,))


def _relative(path: str, known: Collection[str]) -> str | None:
    """The author's name of a file that the line table spells with folders before it."""
    clean = path.replace("/./", "/").removeprefix("./")
    if clean in known:
        return clean
    return next((k for k in sorted(known, key=len, reverse=True) if clean.endswith("/" + k)), None)


def function_names(executable: Path, addresses: Collection[int]) -> dict[int, str]:
    """Demangled names of functions by address: `void ops::scale<float, 4>(float*, int)`."""
    if not addresses:
        return {}
    command = ["nm", "-C", "--defined-only", str(executable)]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        parts = line.split(" ", 2)
        if len(parts) == 3 and parts[1] in "tTwW" and (address := int(parts[0], 16)) in addresses:
            found.setdefault(address, parts[2])
    return found


class SharedMemory(NamedTuple):
    """An executable's static shared arrays, which are thread-local variables of its functions."""

    bytes_of: dict[str, int]
    """Bytes by demangled function, as linked."""
    guards: tuple[int, ...]
    """Where g++ notes, in a byte of its own, that an array of a class with constructors was set up:
    distances from `cudaops_shared_begin`, ascending. No author's variable lies there."""


def shared_memory(executable: Path) -> SharedMemory:
    """Read the table of symbols."""
    command = ["nm", "-C", "-S", "--defined-only", str(executable)]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    bytes_of: dict[str, int] = {}
    guards: list[int] = []
    begin = 0
    for line in done.stdout.splitlines():
        parts = line.split(" ", 3)
        if len(parts) != 4 or parts[2] not in "bBdDuVv" or (at := int(parts[0], 16)) >= _TLS:
            continue
        if parts[3] == _BEGIN:
            begin = at
        elif parts[3].startswith(_GUARD):
            guards.append(at)
        elif local := _LOCAL.match(parts[3]):
            function = local["function"]
            bytes_of[function] = bytes_of.get(function, 0) + int(parts[1], 16)
    return SharedMemory(bytes_of, tuple(sorted(at - begin for at in guards if at >= begin)))
