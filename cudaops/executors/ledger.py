"""Where a run's time went: intervals by tool, so that overlapping work is not counted twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath
from typing import NamedTuple

TOOLS: dict[str, str] = {
    "nvcc": "nvcc",
    "ncu": "ncu",
    "compute-sanitizer": "compute-sanitizer",
    "g++": "g++",
    "c++filt": "binutils",
    "nm": "binutils",
    "addr2line": "binutils",
    "readelf": "binutils",
    "nvdisasm": "nvdisasm",
}
"""Name of an executable to the tool it counts as. What is not listed is `other tools`."""


class WorkInterval(NamedTuple):
    """Time during which a tool worked, by `time.monotonic`."""

    tool: str
    start: float
    end: float


class Ledger:
    """Intervals of one process. Threads may write at once."""

    def __init__(self) -> None:
        self._intervals: list[WorkInterval] = []
        self._lock = threading.Lock()

    def add(self, tool: str, start: float, end: float) -> None:
        """Note that a tool worked."""
        with self._lock:
            self._intervals.append(WorkInterval(tool, start, end))

    @contextmanager
    def working(self, tool: str) -> Iterator[None]:
        """Note the time of a block as a tool's."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(tool, start, time.monotonic())

    def since(self, start: float) -> tuple[WorkInterval, ...]:
        """Intervals that ended after `start`, cut there."""
        with self._lock:
            return tuple(
                i._replace(start=max(i.start, start)) for i in self._intervals if i.end > start
            )


_waits: ContextVar[list[WorkInterval] | None] = ContextVar("waits", default=None)


@contextmanager
def noting_waits() -> Iterator[list[WorkInterval]]:
    """Whoever waits for the GPU in here, in this thread, notes it in the list."""
    noted: list[WorkInterval] = []
    token = _waits.set(noted)
    try:
        yield noted
    finally:
        _waits.reset(token)


def waited(start: float) -> None:
    """Note that the GPU was waited for since `start`, by `time.monotonic`, until now."""
    noted = _waits.get()
    if noted is not None:
        noted.append(WorkInterval("waiting for the GPU", start, time.monotonic()))


LEDGER = Ledger()
"""Of this process: one run at a time reads it by the time it started."""


def tool_of(command: Sequence[str]) -> str:
    """The tool a command line counts as."""
    return TOOLS.get(PurePath(command[0]).name, "other tools")


def union_seconds(intervals: Sequence[WorkInterval]) -> float:
    """Length of the time covered by at least one interval."""
    total = 0.0
    reached = float("-inf")
    for interval in sorted(intervals, key=lambda i: i.start):
        total += max(0.0, interval.end - max(interval.start, reached))
        reached = max(reached, interval.end)
    return total


def seconds_by_tool(intervals: Sequence[WorkInterval], whole_seconds: float) -> dict[str, float]:
    """Seconds each tool worked, and `cudaops itself`: the part of the whole in which none did."""
    tools = sorted({i.tool for i in intervals})
    spent = {tool: union_seconds([i for i in intervals if i.tool == tool]) for tool in tools}
    itself = max(0.0, whole_seconds - union_seconds(intervals))
    return {name: round(s, 3) for name, s in {**spent, "cudaops itself": itself}.items()}
