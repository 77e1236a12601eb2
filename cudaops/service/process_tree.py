"""Ending a process with everything it started, whatever sessions those have made for themselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: linux/prctl.h."""

KILL_WITHIN_S = 2.0
"""How long we go on killing what new descendants turn up."""


def adopt_orphans() -> None:
    """Processes below this one whose own parent dies become its children, not init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parents_death(number: signal.Signals) -> None:
    """Have this process told when the one that started it is gone."""
    _prctl(PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, int(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(root: int) -> list[int]:
    """Living processes below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, state, parent, _session in _processes():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found, to_see = [], [root]
    while to_see:
        below = children.get(to_see.pop(), [])
        found += below
        to_see += below
    return found


def reap_adopted() -> None:
    """Collect dead children that were adopted. They are known by their session, which is neither
    ours nor their own: whoever starts a process and waits for it leaves it in ours, or has it
    begin one."""
    ours = os.getsid(0)
    for pid, parent, session in _zombies():
        if parent == os.getpid() and session not in (ours, pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _zombies() -> Iterator[tuple[int, int, int]]:
    """Process, parent and session of every process that is dead and not collected."""
    for pid, state, parent, session in _processes():
        if state == "Z":
            yield pid, parent, session


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Process, state, parent and session of everything that /proc shows."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                # The name in brackets may hold anything; what follows does not.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), fields[0], int(fields[1]), int(fields[3])


def kill_descendants(root: int) -> None:
    """Kill all that is below `root`. Where `root` adopts orphans and starts nothing meanwhile,
    nothing of it is left."""
    deadline = time.monotonic() + KILL_WITHIN_S
    while (below := descendants(root)) and time.monotonic() < deadline:
        for pid in below:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def kill_tree(root: int) -> None:
    """Stop `root`, so that it starts nothing more, and kill it with all that is below it."""
    _signal(root, signal.SIGSTOP)
    kill_descendants(root)
    _signal(root, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
