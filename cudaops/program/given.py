"""Programs that arrive as texts: what they include stays among those texts."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

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
