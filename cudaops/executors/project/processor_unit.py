"""One CUDA source of a build as g++ takes it: its launches go to the shim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.program import FOREIGN_SITES, Program
from cudaops.executors.cpu.build import MAIN, program_source
from cudaops.program.parse import load_unit


class Written(NamedTuple):
    """What was written of it."""

    main: str
    """The file to compile."""
    included: tuple[str, ...]
    """Headers of the tree that it includes, where they lie there."""


def write_unit(
    source: Path, tree: Path, folders: Sequence[Path], shadow: Path, target: str
) -> Written:
    """Write the rewritten files under `shadow`, each at its place in the tree.

    `target`: the main file of what is worked on, whose launch sites keep their numbers.
    Raises InputError where a file cannot be read.
    """
    program = load_unit(source, tree, folders)
    if program.main_path != target:
        program = _foreign(program)
    for name, text in program_source(program).files.items():
        path = shadow / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    included = tuple(str(tree / f.path) for f in program.files if f.path != program.main_path)
    return Written(str(shadow / MAIN), included)


def _foreign(program: Program) -> Program:
    sites = (s.model_copy(update={"index": s.index + FOREIGN_SITES}) for s in program.launches)
    return program.model_copy(update={"launches": tuple(sites)})
