"""What g++ and the linker say, as one line and a place in the author's text."""

from __future__ import annotations

import re
from collections.abc import Collection

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import CompileFailed
from cudaops.program.candidate import FILE as CANDIDATE_FILE

MAX_LOG = 16 * 1024
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<text>.*)$"
)
_PLACE = re.compile(r"(?:from |^)(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::(?P<column>\d+))?")
_ASSEMBLER = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+): Error: (?P<text>.*)$")
_UNLINKED = r"(?P<text>(?:undefined reference to|multiple definition of) .*)$"
_LINKER = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): " + _UNLINKED)
_LINKER_BARE = re.compile(_UNLINKED)


def read_failure(log: str, author_files: Collection[str]) -> CompileFailed:
    """The first error of a compiler's log. `author_files` are the program's own paths."""
    known = {*author_files, CANDIDATE_FILE}
    lines = log.splitlines()
    for index, line in enumerate(lines):
        if found := _ERROR.match(line):
            location = _location(found, known) or _instantiation(lines, index, known)
            return _failed(found["text"], location, log)
    for line in lines:
        if found := _ASSEMBLER.match(line):
            text = "inline PTX assembly cannot run on the cpu executor"
            return _failed(text, _location(found, known), log)
    for line in lines:
        if found := _LINKER.search(line):
            return _failed(found["text"], _location(found, known), log)
        if found := _LINKER_BARE.search(line):
            return _failed(found["text"], None, log)
    return _failed(
        next((line for line in lines if line.strip()), "the compiler failed and said nothing"),
        None,
        log,
    )


def _failed(text: str, location: SourceLocation | None, log: str) -> CompileFailed:
    return CompileFailed(message=_readable(text), location=location, log=log[:MAX_LOG])


def _readable(text: str) -> str:
    """Our own names are not the author's business."""
    text = text.replace("‘", "`").replace("’", "`").replace("::cudaops::", "")
    return " ".join(text.split())[:400]


def _location(found: re.Match[str], known: Collection[str]) -> SourceLocation | None:
    file = found["file"].removeprefix("./")
    if file not in known:
        return None
    column = found.groupdict().get("column")
    return SourceLocation(
        file=file, line=int(found["line"]), column=int(column) if column else None
    )


def _instantiation(lines: list[str], index: int, known: Collection[str]) -> SourceLocation | None:
    """An error inside a header: the nearest line that names a place in the author's text.

    g++ writes the chain `In file included from`, `required from` above the error, notes below.
    """
    above = [found for line in reversed(lines[:index]) if (found := _PLACE.search(line))]
    below = [found for line in lines[index + 1 : index + 12] if (found := _PLACE.search(line))]
    for found in (*above, *below):
        if location := _location(found, known):
            return location
    return None
