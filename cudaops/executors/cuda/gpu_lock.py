"""One measurement at a time a GPU, among all processes of a machine."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from cudaops.errors import SandboxUnavailable
from cudaops.executors.cuda.protocol import DeviceFacts

WAIT_S = 600.0
"""Longest wait for another process: a few measurements of the longest kind."""
POLL_S = 0.05
LOCK_FOLDER = Path("/tmp")
"""One for the machine, whatever TMPDIR says: processes with different ones share the GPU."""


@contextmanager
def gpu_lock(uuid: str, *, alone: bool, wait_s: float = WAIT_S) -> Iterator[None]:
    """Use the GPU beside others, or `alone` while something is timed or profiled.

    The lock goes with the process that holds it. Raises SandboxUnavailable where it is not had in
    time.
    """
    path = lock_path(uuid)
    handle = _opened(path)
    try:
        _acquire(handle, uuid, alone, wait_s)
        yield
    finally:
        os.close(handle)


def gpu_turn(
    facts: DeviceFacts, *, alone: bool, wait_s: float = WAIT_S
) -> AbstractContextManager[None]:
    """`gpu_lock` of the GPU these facts are of; a stand-in's times disturb nobody."""
    if not facts.real:
        return nullcontext()
    return gpu_lock(facts.uuid, alone=alone, wait_s=wait_s)


def lock_path(uuid: str) -> Path:
    """Where the lock of a GPU lies: the same for every process that sees the same /tmp."""
    return LOCK_FOLDER / f"cudaops-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"


def _opened(path: Path) -> int:
    """Another user's file is opened, not made: a sticky folder may forbid the second."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            return os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as problem:
        raise SandboxUnavailable(
            f"cannot open the GPU's lock {path}: {problem.strerror}",
            f"let this user write to {LOCK_FOLDER}",
        ) from problem


def _acquire(handle: int, uuid: str, alone: bool, wait_s: float) -> None:
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return
        if time.monotonic() >= deadline:
            raise SandboxUnavailable(
                f"another cudaops process has kept {uuid} busy for {wait_s:g} s",
                "wait for it to end, or choose another GPU with CUDA_VISIBLE_DEVICES",
            )
        time.sleep(POLL_S)
