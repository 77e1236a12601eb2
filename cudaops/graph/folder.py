"""The run folder: what is written where, and when. A file is whole or absent."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cudaops.domain.judgement import Attempt
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import CudaOpsError, InputError, SandboxUnavailable
from cudaops.executors.untrusted_files import remove
from cudaops.problem.host_program import authored, without_main
from cudaops.problem.torch_extension import as_author_has, is_torch
from cudaops.program.patch import unified_patch
from cudaops.storage import replacing

MIN_FREE_BYTES = 512 * 1024 * 1024
"""A 1024x1024 float32 product keeps about 150 MB of captured and compared buffers at its peak."""


def check_space(folder: Path, free_bytes: Callable[[Path], int]) -> None:
    """Raise SandboxUnavailable where the file system of `folder` is nearly full."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = free_bytes(existing)
    if free < MIN_FREE_BYTES:
        raise SandboxUnavailable(
            f"only {free >> 20} MB are free at {existing}, a run needs {MIN_FREE_BYTES >> 20} MB",
            "free some space or name another folder with --out",
        )


@contextmanager
def run_folder(
    folder: Path,
    *,
    keep: bool = True,
    goes_on: Callable[[BaseException], bool] = lambda _: False,
) -> Iterator[None]:
    """Make the run folder. Where the input turns out wrong, or without `keep`, nothing of it stays:
    neither the folder nor the folders above it that were made for it. `goes_on`: after which errors
    it stays all the same."""
    check_space(folder, lambda path: shutil.disk_usage(path).free)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxUnavailable(
            f"{folder} cannot be made: {error.strerror}", "name another folder with --out"
        ) from error
    try:
        yield
    except (CudaOpsError, KeyboardInterrupt) as error:
        keep = goes_on(error)
        raise
    finally:
        if not keep:
            _empty(folder, made)


def _empty(folder: Path, made: Sequence[Path]) -> None:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            remove(child)
        else:
            child.unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):  # somebody else's run lies beside ours
            path.rmdir()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run folder against other processes. Raises InputError where one is at work in it."""
    with (folder / "state" / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{folder}: another process uses this run") from error
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, indented, ending in a newline."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


HEADERS = frozenset((".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".def"))
"""How files end that are included and never one of a run's own."""

CANDIDATE = "candidate.cu"
"""Name of a candidate's text in its iteration's folder."""


def run_id_of(kernel: str, folder: Path) -> str:
    """What a run is called: its kernel and the name of its folder."""
    return f"{kernel}-{folder.name}"


def iteration_folder(folder: Path, iteration: int) -> Path:
    """Where everything about one attempt is kept. `iteration` counts from 1."""
    return folder / "iterations" / f"{iteration:02d}"


def write_iteration(
    folder: Path,
    attempt: Attempt,
    rewrite: Rewrite,
    trials: list[dict[str, Any]],
    evaluation: dict[str, Any],
) -> None:
    """Keep everything about one attempt under `iterations/NN/`."""
    target = iteration_folder(folder, attempt.iteration)
    write_whole(target / CANDIDATE, rewrite.source)
    write_json(target / "attempt.json", attempt.model_dump(mode="json"))
    write_json(target / "trials.json", trials)
    write_json(target / "evaluation.json", evaluation)


def best_texts(spliced: Program) -> dict[str, str]:
    """What `write_best` writes beside the patch: path in the run folder to text, main file first.

    A program whose main file lies below another folder (headers in `../include`), or one of whose
    other files could be taken for one of the run's, keeps its layout under `best/`, and `best.cu`
    is a copy of its main file.
    """
    best = best_name(spliced)
    if not _fits_beside(spliced):
        copies = {f"best/{source.path}": source.text for source in spliced.files}
        return {best: spliced.main.text, **copies}
    return {
        best if source.path == spliced.main_path else source.path: source.text
        for source in spliced.files
    }


def best_name(program: Program) -> str:
    """`best.cu`, or `best.py` where the author's kernels are in a script."""
    return f"best{'.py' if program.main_path.endswith('.py') else '.cu'}"


def taken_home(program: Program, spliced: Program) -> Taken:
    """What of the author's `program` and of the one with a rewrite in it is theirs: all, but the
    host program that cudaops wrote around a reference in Python, and of a script that compiles its
    CUDA itself that script."""
    before, after = authored(program), without_main(spliced)
    if is_torch(program):
        before, after = as_author_has(program), as_author_has(spliced)
    return Taken(after, unified_patch(before, after))


class Taken(NamedTuple):
    """What an author takes from a run."""

    program: Program
    patch: str


def write_best(folder: Path, spliced: Program, patch: str) -> Path:
    """`best.cu` with the program's local headers, and `best.patch`; the file to compile."""
    write_whole(folder / "best.patch", patch)
    for name, text in best_texts(spliced).items():
        write_whole(folder / name, text)
    if not _fits_beside(spliced):
        return folder / "best" / spliced.main_path
    return folder / best_name(spliced)


def _fits_beside(program: Program) -> bool:
    """Whether its headers may be in the run folder: none is called as a file of the run is, such
    as `run.json`, or what `best.cu` would replace. Of those none ends as headers do."""
    others = [PurePosixPath(f.path) for f in program.files if f.path != program.main_path]
    return "/" not in program.main_path and all(
        path.suffix in HEADERS and not any("." in part for part in path.parts[:-1])
        for path in others
    )
