"""State of the device before every launch of a task, for baseline and candidate alike.

Buffers between guard bands, a copy of each to restore it from, memory to flush the L2 with, and the
device's own times. A search has hundreds of tasks over the same buffers: `StateCache` keeps their
state for the next. Nothing is accepted on times from such a task, but its inputs must be the
captured ones. So the state is dropped when any task fails, a broken guard band included, and after
each task the copies, in guard bands of their own, are compared with their files at some places.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from cudaops.domain.base import Dim3
from cudaops.executors.cuda.protocol import Buffer
from cudaops.executors.cuda.runner.driver import Driver, KernelFault
from cudaops.executors.cuda.runner.memory import Region, Restorable, TaskMemory
from cudaops.executors.cuda.runner.replay import allocate, content_of, moved

WARP = 32
EMPTY_PAIRS = 100
"""Event pairs with nothing between, whose median is the pair's own time."""
L2_TIMES = 2
"""How often the L2 is written over: once leaves some of what was there, which a
rewrite could count on finding."""
KEPT_SHARE = 0.25
"""Of the device's memory, what may stay from task to task. Chosen: what verifies and profiles has
processes of its own, and takes a few times what a program takes."""
LEFT_SHARE = 0.4
"""Of the device's memory, what must be free beside it. Chosen: other jobs have searches on the same
GPU, and none can ask another's for room."""


class DeviceState:
    """Everything stays allocated until its memory is given back."""

    def __init__(
        self, driver: Driver, memory: TaskMemory, buffers: Sequence[Buffer], *, guards: bool = False
    ) -> None:
        """`guards`: around the copies too. Those are made by `hold`."""
        self.driver = driver
        self.memory = memory
        self.regions: dict[int, Region] = allocate(memory, buffers, guards=True)
        self.buffers = moved(memory, buffers, self.regions)
        size = L2_TIMES * driver.facts.l2_bytes
        self._flush = memory.take("L2 flush", size, guards=False) if size else None
        self._fill_byte = 0
        self._guards = guards
        self._held: dict[bool, list[Restorable]] = {}
        self.empty = driver.empty_kernel()
        if self.empty is not None:
            self.launch_empty()  # loaded now: that is no work for a graph to hold
            driver.synchronize()
        self.has_graphs = self.empty is not None and driver.graph(self.launch_empty) is not None
        """Whether repeated launches can be timed in a graph, and what is between them."""
        self.start, self.end = driver.event(), driver.event()

    def hold(self) -> None:
        """Put contents and copies there, if they are not yet. After all other memory was
        taken: a copy can be done without."""
        for read_only in () if self._held else (True, False):
            self._held[read_only] = [
                Restorable(
                    self.driver, self.memory, region.address, region.size_bytes, region.shown,
                    content_of(b), guards=self._guards,
                )
                for b in self.buffers
                if b.read_only == read_only
                for region in (self.regions[b.index],)
            ]  # fmt: skip

    @property
    def read_only(self) -> list[Restorable]:
        """What the author's kernel leaves as it is."""
        return self._held[True]

    @property
    def written(self) -> list[Restorable]:
        """What launches may write."""
        return self._held[False]

    def launch_empty(self) -> None:
        """Start the kernel that does nothing."""
        self.driver.launch(self.empty, Dim3(), Dim3(x=WARP), 0, ())

    def fill(self, times: int) -> None:
        """Write over the L2, and keep the GPU busy for so long."""
        if self._flush is None:
            return
        for _ in range(times):
            self._fill_byte = (self._fill_byte + 1) % 256
            self.driver.fill(self._flush.address, self._fill_byte, self._flush.size_bytes)

    @cached_property
    def fill_us(self) -> float:
        """Time of one such writing; 0 where there is nothing to write over."""
        self.driver.synchronize()
        times = []
        for _ in range(5):
            self.fill(1)
            self.driver.record(self.start)
            self.fill(1)
            self.driver.record(self.end)
            times.append(self.driver.elapsed_us(self.start, self.end))
        return statistics.median(times) if self._flush else 0.0

    @cached_property
    def pair_us(self) -> float:
        """Median time of an event pair with nothing between."""
        times = []
        for _ in range(EMPTY_PAIRS):
            self.fill(1)
            self.driver.record(self.start)
            self.driver.record(self.end)
            times.append(self.driver.elapsed_us(self.start, self.end))
        return statistics.median(times)

    def spoilt(self) -> str | None:
        """One line about the first copy that is not what was captured: see `Restorable`."""
        found = (one.spoilt() for one in (*self.read_only, *self.written))
        return next((line for line in found if line is not None), None)


_Key = tuple[tuple[Buffer, ...], tuple[tuple[int, ...], ...]]


class StateCache:
    """Grounds that stay from task to task, at most `KEPT_SHARE` of the device's memory together.
    The one unused for longest goes first."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._most = int(KEPT_SHARE * driver.facts.memory_bytes)
        self._states: dict[_Key, DeviceState] = {}

    @property
    def size_bytes(self) -> int:
        """What they hold."""
        return sum(state.memory.size_bytes for state in self._states.values())

    @contextmanager
    def state(self, buffers: Sequence[Buffer]) -> Iterator[DeviceState]:
        """One for these buffers, that of an earlier task where it stayed. It stays if the block
        ends well and it is not too large."""
        key = _key(buffers)
        state = self._states.pop(key, None) or self._made(buffers)
        try:
            yield state
        except BaseException:
            state.memory.give_back(failed=True)
            raise
        whole = not state.memory.without_copy and key == _key(buffers)
        little = self._driver.free_bytes() < LEFT_SHARE * self._driver.facts.memory_bytes
        if not whole or little or state.memory.size_bytes > self._most:
            state.memory.give_back()
            return
        self._states[key] = state
        self._shrink(self._most)

    def drop(self) -> bool:
        """Give everything back; whether there was anything. After a fault the context may be lost,
        and what cannot be freed is lost with it."""
        had = bool(self._states)
        for state in self._states.values():
            state.memory.give_back(failed=True)
        self._states.clear()
        return had

    def _made(self, buffers: Sequence[Buffer]) -> DeviceState:
        wanted = 2 * sum(b.size_bytes for b in buffers) + L2_TIMES * self._driver.facts.l2_bytes
        self._shrink(max(0, self._most - wanted))
        if wanted > self._driver.free_bytes():
            self.drop()
        memory = TaskMemory(self._driver)
        try:
            return DeviceState(self._driver, memory, buffers, guards=True)
        except BaseException:
            memory.give_back(failed=True)
            raise

    def _shrink(self, size_bytes: int) -> None:
        while self._states and self.size_bytes > size_bytes:
            self._states.pop(next(iter(self._states))).memory.give_back()


def check_copies(state: DeviceState, shown: str) -> None:
    """Raise KernelFault where what buffers are restored from was overwritten: these kernels ran
    last."""
    if (problem := state.spoilt()) is not None:
        raise KernelFault("out_of_bounds", f"{shown}: {problem}")


def _key(buffers: Sequence[Buffer]) -> _Key:
    """The buffers as the task says them, and each file's identity, size and times."""
    seen = [Path(b.file).stat() for b in buffers if b.file is not None]
    files = tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in seen)
    return tuple(buffers), files
