"""Products of a build: a program with its libraries, kept outside of the tree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import CompileFailed
from cudaops.domain.program import Program
from cudaops.executors.process import Finished
from cudaops.executors.project.driver import FOLDER
from cudaops.executors.project.tree import FORMAT, MADE, MOST_BYTES, NEVER, BuiltTree, Tools
from cudaops.executors.untrusted_files import UntrustedFileError, copy_untrusted
from cudaops.storage import CacheSlot, Facts, entry_of, make_once, replacing


class ProjectProgram(NamedTuple):
    """An executable that a build made, kept at its place in the tree under the entry's folder; the
    whole tree where an interpreter is run in it."""

    entry: CacheSlot
    facts: Facts
    seconds: float
    cached: bool


def project_program(
    cache: Path,
    program: Program,
    texts: Mapping[str, str],
    tools: Tools,
    described: Callable[[Path], Facts],
    failed: Callable[[Finished], CompileFailed],
) -> ProjectProgram | CompileFailed:
    """The program's executable with these texts in its tree. `described`: what is noted of it;
    `failed`: what a build that ended badly says."""
    build = program.build
    assert build is not None
    tree = BuiltTree(cache, build, program.main_path, tools)
    content = (FORMAT, tree.key, build.executable or build.interpreter, sorted(texts.items()))
    entry = entry_of(cache.absolute(), "projectprogram", *content)

    def make(folder: Path) -> Facts | CompileFailed:
        with tree.held():
            done = tree.built(texts)
            if done.timed_out:
                return CompileFailed(message=tree.failure(done), log=done.stderr)
            if done.exit_code != 0:
                return failed(done._replace(stderr=f"{done.stderr}\n{tree.failure(done)}\n"))
            try:
                executable = [build.executable] if build.executable else []
                whole = _everything(tree.root) if build.interpreter else _libraries(tree.root)
                for path in (*executable, *whole):
                    _take(tree.root, path, folder)
            except UntrustedFileError as problem:
                return CompileFailed(message=f"what the build made: {problem}", log=done.stderr)
        return described(folder / build.executable)

    made = make_once(entry, {}, make)
    if isinstance(made, CompileFailed):
        return made
    return ProjectProgram(entry, made.facts, made.seconds, made.cached)


def _take(root: Path, name: str, folder: Path) -> None:
    """Copy a program or library, or what a link to one in the tree means, to the same place."""
    target, real = folder / name, (root / name).resolve()
    inside = real.relative_to(root).as_posix() if real.is_relative_to(root) else name
    target.parent.mkdir(parents=True, exist_ok=True)
    _alone(root, inside)
    copy_untrusted(root, inside, target, 0, MOST_BYTES)
    target.chmod(0o755)


def _alone(root: Path, name: str) -> None:
    """Give a file one name alone where all that it has are in the tree: cargo links `debug/app` to
    `debug/deps/app-5f0c`. A name elsewhere is none of the build's doing."""
    path = root / name
    found = path.lstat() if path.exists() else None
    if found is None or found.st_nlink == 1:
        return
    names = [p for p in root.rglob("*") if os.path.samestat(p.lstat(), found)]
    if len(names) == found.st_nlink:
        with replacing(path) as part:
            shutil.copy2(path, part)


def _everything(root: Path) -> Iterator[str]:
    """Files of a built tree but objects and what is ours."""
    for at, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NEVER]
        for name in names:
            path = Path(at, name)
            if path.suffix not in MADE and path.is_file():
                yield path.relative_to(root).as_posix()


def _libraries(root: Path) -> Iterator[str]:
    for path in root.rglob("*.so*"):
        if path.is_file() and FOLDER not in path.relative_to(root).parts:
            yield path.relative_to(root).as_posix()
