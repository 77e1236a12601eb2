"""The difference between two programs as a patch that `patch -p1` applies."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from cudaops.domain.program import Program

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_patch(before: Program, after: Program) -> str:
    """Unified diff over all files, paths under `a/` and `b/`. Empty where nothing changed."""
    old = {f.path: f.text for f in before.files}
    return "".join(
        file_patch(f.path, old.get(f.path, ""), f.text)
        for f in after.files
        if old.get(f.path, "") != f.text
    )


def file_patch(path: str, old: str, new: str) -> str:
    """The same of one file."""
    return "".join(_one_file(path, old, new))


def _one_file(path: str, old: str, new: str) -> Iterator[str]:
    # Lines end at "\n" alone: a lone "\r" or form feed is part of its line.
    for line in difflib.unified_diff(_lines(old), _lines(new), f"a/{path}", f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
