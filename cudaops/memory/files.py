"""Memory files on disk: one writer at a time, and a write is whole or has not happened."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudaops.errors import EnvironmentFailure

WAIT_S = 10.0
"""Longest wait for another writer. A write takes milliseconds."""
POLL_S = 0.02
_LEFTOVER = ".tmp"


@contextmanager
def writing(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the only writer to `folder`, which is made where it is not there.

    The lock goes with the process that holds it. Raises EnvironmentFailure where it is not had in
    time, or the folder cannot be written to; so does any OSError within.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _acquire(handle, folder, wait_s)
            _sweep(folder)
            yield
        finally:
            os.close(handle)
    except OSError as problem:
        raise unusable(folder, problem) from problem


def unusable(path: Path, problem: OSError) -> EnvironmentFailure:
    """What the user is told where memory cannot be read or written."""
    return EnvironmentFailure(
        f"memory: {problem.filename or path}: {problem.strerror or problem}",
        "set CUDAOPS_MEMORY to a folder that this user may write to, or to off",
    )


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old bytes or the new ones. A link is followed."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=".", suffix=_LEFTOVER, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o777)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _acquire(handle: int, folder: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return
        if time.monotonic() >= deadline:
            raise EnvironmentFailure(
                f"memory: another process has kept {folder} locked for {wait_s:g} s",
                "wait for it to end",
            )
        time.sleep(POLL_S)


def _sweep(folder: Path) -> None:
    """Remove what a killed writer left: whoever holds the lock is alone."""
    for path in folder.glob(f".*{_LEFTOVER}"):
        path.unlink(missing_ok=True)
