"""Many launches of one kernel, a portion in a process, with a line now and then of how far they
are: hundreds of drawn inputs under the checker may take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cudaops.domain.execution import Misbehaved
from cudaops.domain.run import Say
from cudaops.executors.base import Trial, Tried

PORTION = 16
GROWTH = 4
"""Launches of the first portion, and how many times as many the next one has where that took no
longer than QUICK_S: a process takes some 0.1 s to begin."""
QUICK_S = 2.0
QUIET_S = 10.0
"""Between two lines."""


class Telling:
    """Says where things are, not more often than every QUIET_S."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = time.monotonic()

    def __call__(self, where: str) -> None:
        if time.monotonic() - self._last >= QUIET_S:
            self._last = time.monotonic()
            self._say(where)


def in_portions(
    trials: Sequence[Trial],
    folder: Path,
    timeout_s: float,
    run: Callable[[Sequence[Trial], Path, float], Sequence[Tried]],
    ran: Callable[[int], None],
) -> tuple[Tried, ...]:
    """What `run` gives of all of them. It is handed a portion, a folder of its own and the seconds
    left of `timeout_s`; `ran` hears how many launches each portion had."""
    until = time.monotonic() + timeout_s
    found: list[Tried] = []
    size = PORTION
    while len(found) < len(trials):
        began = time.monotonic()
        if began >= until:
            late = Misbehaved(what="timeout", message=f"was not reached within {timeout_s:g} s")
            found += [Tried(late)] * (len(trials) - len(found))
            break
        portion = trials[len(found) : len(found) + size]
        found += run(portion, folder / f"from_{len(found):03d}", until - began)
        ran(len(portion))
        if time.monotonic() - began <= QUICK_S:
            size *= GROWTH
    return tuple(found)
