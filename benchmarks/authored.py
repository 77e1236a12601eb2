"""Authors' programs on disk: a .cu, and what is said beside it of how it is built and run.

ARGS holds the program's arguments; before them, with `--` between, which kernel is meant
(`--kernel NAME -- 512 3`). NVCC holds words of nvcc's. A file without ARGS may say its arguments in
a line `// args: 512 3`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAIN = re.compile(r"^\s*(?:__host__\s+)?(?:int|auto|void)\s+main\s*\(", re.MULTILINE)
_ARGS_LINE = re.compile(r"^//\s*args:(.*)$", re.MULTILINE)
_KERNEL = re.compile(r"--kernel\s+(\S+)\s*")


class Authored(NamedTuple):
    """One program."""

    path: Path
    text: str
    args: str
    """As one line; empty where it takes none."""
    nvcc: str
    """Words of nvcc's as one line; empty where it needs none."""
    kernel: str | None
    """The one that is meant; None: the hottest."""

    @property
    def argv(self) -> list[str]:
        """Its arguments."""
        return shlex.split(self.args)

    @property
    def nvcc_words(self) -> list[str]:
        """Its words of nvcc's."""
        return shlex.split(self.nvcc)


def authored(path: Path) -> Authored:
    """The program of this file."""
    text = path.read_text("utf-8", errors="replace")
    found = _ARGS_LINE.search(text)
    line = _beside(path, "ARGS")
    if line is None:
        line = found[1] if found else ""
    before, dashes, behind = f" {line.strip()} ".partition(" -- ")
    named = _KERNEL.search(before if dashes else "")
    args = (behind if dashes else before).strip()
    return Authored(path, text, args, _beside(path, "NVCC") or "", named[1] if named else None)


def authored_in(folder: Path) -> Authored:
    """The only program of this folder. Raises ValueError."""
    (path,) = folder.glob("*.cu")
    return authored(path)


def authored_below(folder: Path, pattern: str = "**/*.cu") -> Iterator[Authored]:
    """Every program with a `main` below a folder, by path."""
    for path in sorted(folder.glob(pattern)):
        one = authored(path)
        if MAIN.search(one.text):
            yield one


def _beside(path: Path, name: str) -> str | None:
    file = path.with_name(name)
    return file.read_text("utf-8").strip() if file.is_file() else None
