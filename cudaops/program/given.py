"""Untrusted programs: what they include or are given stays below their folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from cudaops.errors import InputError
from cudaops.program.lexing import byte_text, lex
from cudaops.program.parse import quoted_includes


def check_includes(files: Mapping[str, str]) -> None:
    """Raise InputError where a file includes one outside of the folder that they share.

    `files`: relative POSIX path to text. For texts of strangers: `#include "../../secret.h"` would
    read a file of this machine. Quoted includes are all that `load_program` follows.
    """
    for path, text in files.items():
        for name in quoted_includes(lex(byte_text(text))):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if posixpath.isabs(target) or target.split("/")[0] == "..":
                raise InputError(
                    f'{path}: #include "{name}" leaves the folder of the program; send that header'
                    " along and include it by a path below the main file's folder"
                )


def leaves_folder(word: str) -> bool:
    """Whether a program's argument, or what is behind an `=` in it, is an absolute path or
    climbs with `..`: isolation lets a program read the files that its arguments name."""
    starts = [0, *(at + 1 for at, letter in enumerate(word) if letter == "=")]
    named = [PurePosixPath(word[start:]) for start in starts]
    return any(path.is_absolute() or ".." in path.parts for path in named)


def check_arguments(argv: Iterable[str]) -> None:
    """Raise InputError where an argument of a stranger's program names a file of this machine."""
    for word in argv:
        if leaves_folder(word):
            raise InputError(
                f"the argument {word[:100]!r} names a file outside of the program's folder; a "
                "program that is sent here finds only the files that are sent along"
            )
