"""One measurement at a time a GPU, among all processes of a machine.

Two locked files a GPU: who uses it holds the first, beside others or alone; who waits for that
holds the second, so that they queue. Without the queue those who come again and again to
use it beside each other keep out for minutes whoever wants it alone.
"""

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
TOOL_WAIT_S = 20.0
"""How long a measurement that decides waits for a tool that wraps another process's runner. Chosen:
compute-sanitizer takes some seconds over most plans; over one that takes minutes others go on
beside it, and what it disturbs is measured anew (`gates.clocks`)."""
HINT_WAIT_S = 0.5
"""How long a short launch that is only to be ranked waits to be alone. Chosen: several times what
another such measurement takes, and less than most of what runs beside others."""
POLL_S = 0.004
"""Chosen: little beside a measurement that only ranks, which takes some 50 ms."""
LOCK_FOLDER = Path("/tmp")
"""One for the machine, whatever TMPDIR says: processes with different ones share the GPU."""


@contextmanager
def gpu_lock(uuid: str, *, alone: bool, wait_s: float = WAIT_S) -> Iterator[None]:
    """Use the GPU beside others, or `alone` while something is timed or profiled.

    The lock goes with the process that holds it. Raises SandboxUnavailable where it is not had in
    time.
    """
    with _opened(lock_path(uuid)) as use:
        if not _acquired(use, uuid, alone, wait_s):
            raise _busy(uuid, wait_s)
        yield


@contextmanager
def hint_lock(uuid: str, *, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Alone for a time that only ranks, or beside others where that takes over HINT_WAIT_S; gives
    whether it is alone.

    Raises SandboxUnavailable as `gpu_lock` does.
    """
    with _opened(lock_path(uuid)) as use:
        alone = _acquired(use, uuid, True, min(HINT_WAIT_S, wait_s))
        if not alone and not _acquired(use, uuid, False, wait_s):
            raise _busy(uuid, wait_s)
        yield alone


def gpu_turn(
    facts: DeviceFacts, *, alone: bool, wait_s: float = WAIT_S
) -> AbstractContextManager[None]:
    """`gpu_lock` of the GPU these facts are of; a stand-in's times disturb nobody."""
    if not facts.real:
        return nullcontext()
    return gpu_lock(facts.uuid, alone=alone, wait_s=wait_s)


def hint_turn(facts: DeviceFacts, *, wait_s: float = WAIT_S) -> AbstractContextManager[bool]:
    """`hint_lock` of the GPU these facts are of."""
    return hint_lock(facts.uuid, wait_s=wait_s) if facts.real else nullcontext(True)


def tool_turn(facts: DeviceFacts) -> AbstractContextManager[None]:
    """Held while another tool wraps a runner on the GPU these facts are of, for as long as it
    takes: whoever measures waits for it, but not for long (`wait_for_tools`)."""
    return gpu_lock(f"{facts.uuid}-tool", alone=False) if facts.real else nullcontext()


def wait_for_tools(facts: DeviceFacts) -> None:
    """Wait until no tool is at work on the GPU these facts are of, TOOL_WAIT_S at most."""
    if facts.real:
        with _opened(lock_path(f"{facts.uuid}-tool")) as tool:
            _locked(tool, fcntl.LOCK_EX, time.monotonic() + TOOL_WAIT_S)


def lock_path(uuid: str) -> Path:
    """Where the lock of a GPU lies: the same for every process that sees the same /tmp."""
    return LOCK_FOLDER / f"cudaops-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Another user's file is opened, not made: a sticky folder may forbid the second."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:
            handle = os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as problem:
        raise SandboxUnavailable(
            f"cannot open the GPU's lock {path}: {problem.strerror}",
            f"let this user write to {LOCK_FOLDER}",
        ) from problem
    try:
        yield handle
    finally:
        os.close(handle)


def _acquired(use: int, uuid: str, alone: bool, wait_s: float) -> bool:
    """First the end of the line, then the GPU; whoever comes later waits in the line meanwhile."""
    deadline = time.monotonic() + wait_s
    with _opened(lock_path(uuid).with_suffix(".line")) as line:
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        return _locked(line, fcntl.LOCK_EX, deadline) and _locked(use, kind, deadline)


def _locked(handle: int, kind: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


def _busy(uuid: str, wait_s: float) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"another cudaops process has kept {uuid} busy for {wait_s:g} s",
        "wait for it to end, or choose another GPU with CUDA_VISIBLE_DEVICES",
    )
