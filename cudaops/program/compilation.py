"""What the author's line of nvcc says of a program of one file (`--nvcc`)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from cudaops.cuda.nvcc_line import NvccLine, Option, read_nvcc_line, words_of
from cudaops.domain.program import Compilation
from cudaops.errors import InputError

_FOLDERS = ("I", "isystem")
_LINKING = frozenset({"l", "L", "Xlinker", "rdc", "cudart"})
_SYSTEM = ("/usr", "/opt")
"""Headers below are no part of a program, whoever names their folder."""
_HOST_FLAGS = ("-fopenmp", "-pthread", "-D", "-U")
"""How those of the host compiler's flags begin that decide about what a program does. Others say
how fast its host code is, or warn."""
_PROJECT = 'for a program of several files: --build "{line}" --run ./{output}'


def read_compilation(line: str, folder: Path) -> tuple[Compilation, str | None]:
    """The author's flags, or the whole line as they type it, taken apart; and the source that it
    names, if it does. `folder`: where they type it.

    Raises InputError, one line, for a line that is none, or one of several sources.
    """
    try:
        words = words_of(line)
        read = read_nvcc_line(words, lambda path: (folder / path).read_text("utf-8"))
    except (ValueError, OSError) as problem:
        raise InputError(f"--nvcc {line!r}: {problem}") from None
    sources = read.sources()
    if len(sources) > 1 or set(read.inputs) - set(sources):
        project = _PROJECT.format(line=shlex.join(["nvcc", *words]), output=read.output or "a.out")
        raise InputError(f"--nvcc names {', '.join(read.inputs)}; {project}")
    if read.phase not in ("link", "compile"):
        raise InputError(f"--nvcc {line!r} makes no program; give the line that does")
    compilation = Compilation(
        options=tuple(_placed(one, folder) for one in read.code_options()),
        link=tuple(_link_words(read, folder)),
        host=tuple(f for f in read.host_flags() if f.startswith(_HOST_FLAGS)),
    )
    return compilation, str(folder / sources[0]) if sources else None


def own_folders(compilation: Compilation) -> list[Path]:
    """Folders of headers that are the author's, first to last."""
    folders = [Path(v) for n, v in compilation.options if n in _FOLDERS and v is not None]
    return [f for f in folders if f.is_dir() and not str(f).startswith(_SYSTEM)]


def options_from(compilation: Compilation, root: Path, files: Sequence[Path]) -> tuple[Option, ...]:
    """Options for a compiler that runs over the program's own files, which lie relative to `root`:
    a folder that holds none of them stays where it is. Where `../x.h` leads from such a folder to
    one of them, a folder beside it does so too, and is one of theirs."""
    own = own_folders(compilation)
    placed: list[Option] = []
    for name, value in compilation.options:
        folder = Path(value or "")
        held = name in _FOLDERS and folder in own and any(f.is_relative_to(folder) for f in files)
        if name in _FOLDERS and folder in own and not held:
            beside = _folder_beside(folder, files)
            placed += [(name, os.path.relpath(beside, root))] if beside is not None else []
        placed.append((name, os.path.relpath(folder, root) if held else value))
    return tuple(placed)


def _folder_beside(folder: Path, files: Sequence[Path]) -> Path | None:
    """A folder in the same one that holds some of these files."""
    around = folder.parent
    names = (f.relative_to(around).parts for f in files if f.is_relative_to(around))
    return next((around / parts[0] for parts in names if len(parts) > 1), None)


def _placed(option: Option, folder: Path) -> Option:
    name, value = option
    if value is None or name not in (*_FOLDERS, "include"):
        return option
    target = Path(os.path.normpath(folder / value))
    if name in _FOLDERS and not target.is_dir():
        raise InputError(f"--nvcc: -{name} {value}: no such folder; it is looked for from {folder}")
    return name, str(target.resolve())


def _link_words(read: NvccLine, folder: Path) -> Iterator[str]:
    for name, value in read.options:
        if name in _LINKING and value is not None:
            value = str(folder / value) if name == "L" else value
            yield f"-{name}{value}" if len(name) == 1 else f"-{name}={value}"
