"""Programs that come as texts: written into a folder of their own, and reading nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from cudaops.errors import InputError
from cudaops.program.given import check_includes

MAX_TEXT_CHARS = 400_000
"""Longest text, in characters; the service takes as much."""
MAX_FILES = 64
"""Most local headers of one program; the service takes as many."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")

SourceProgram = Annotated[
    str | None,
    Field(
        max_length=MAX_TEXT_CHARS,
        description="Text of a whole CUDA program with a main(), instead of `path`.",
    ),
]
FileName = Annotated[
    str, Field(max_length=100, description="What the text in `source` is called; names results.")
]
HeaderTexts = Annotated[
    dict[str, str],
    Field(
        max_length=MAX_FILES,
        description="The quoted headers of `source`: relative path to text, `tile.cuh`.",
    ),
]


class ProgramTexts(NamedTuple):
    """A program without a file."""

    source: str
    filename: str = "program.cu"
    files: Mapping[str, str] = {}


def write_texts(folder: Path, texts: ProgramTexts) -> Path:
    """Write the program below `folder`, which is made; path of its main file.

    Raises InputError where a name or a quoted include leads anywhere else.
    """
    _check_name(texts.filename)
    if "/" in texts.filename or not texts.filename.endswith((".cu", ".cuh")):
        raise InputError(f"filename {texts.filename!r}: name a .cu file without a folder, `mm.cu`")
    every = {texts.filename: texts.source, **texts.files}
    if sum(len(text) for text in every.values()) > MAX_TEXT_CHARS:
        raise InputError(
            f"`source` and `files` are longer than {MAX_TEXT_CHARS:,} characters together; leave "
            "out what the kernel does not need"
        )
    for name in every:
        _check_name(name)
    check_includes(every)
    for name, text in every.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return folder / texts.filename


def _check_name(name: str) -> None:
    if len(name) > 300 or not all(_PART.fullmatch(part) for part in name.split("/")):
        raise InputError(
            f"{name[:80]!r} cannot be a file's name here: letters, digits and `_.+-`, relative, "
            "no part beginning with a dot, `include/tile.cuh`"
        )
