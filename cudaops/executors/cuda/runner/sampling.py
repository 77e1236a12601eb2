"""One timed sample: the contents of memory and L2 before it, and what the events enclose.

A sample of the cold regime: buffers restored, twice the L2 written, event, plan, event.
A sample of the warm regime: buffers restored, the plan untimed, everything it may have left
behind put back, event, plan, event. Nothing that a launch wrote is there for the next to find,
so one that skips work because it was done before has nothing to skip; only where a launch is
too short for an event pair is it repeated on its own results (`Repetition` in `timing`).

Where a warm sample repeats its launch, the launches are nodes of one CUDA graph, if the driver has
graphs: the host has no part in what is between them. What still is there is measured with a
kernel that does nothing, launched in the same way between the same events.

A sample apart is one launch on other inputs, whose time never counts. Launches on the captured
inputs are before it, at most times without that their traces are removed: what the side keeps in
scratch memory and variables, and the contents of buffers that it overwrites, is left as it is when
the inputs are exchanged. A result that is replayed, or work that is skipped because it was done
before, is then the result of other inputs. At the other times all is put back as before any sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from cudaops.executors.cuda.protocol import Buffer, MeasureTask, Regime
from cudaops.executors.cuda.runner.device_state import DeviceState, StateCache, check_copies
from cudaops.executors.cuda.runner.driver import (
    Driver,
    DriverError,
    KernelFault,
    TaskRefused,
    running_fault,
)
from cudaops.executors.cuda.runner.launching import LoadedSide, loaded_side
from cudaops.executors.cuda.runner.memory import Region, Restorable, TaskMemory
from cudaops.executors.cuda.runner.replay import content_of, move_variables, moved

Clock = Callable[[], float]

PLANS_BEFORE: dict[Regime, int] = {"cold": 0, "warm": 1}
"""How often the plan is launched untimed before a sample."""

MOST_FILLS_AHEAD = 64
LEAST_FILLS_BEFORE_MANY, MOST_FILLS_BEFORE_MANY = 32, 256
"""Before the many launches of `Sampler.host_us`. Least: 128 launches of 10 us each on an H200,
whose fill takes about 40 us."""
HEAD_START = 1.5
"""The GPU is kept busy for this multiple of the time in which the host queues a sample. Chosen:
a start of exactly that time would make every second sample wait for the host."""


class SampledSide:
    """A loaded side and everything that is given back to it before a sample."""

    def __init__(self, loaded: LoadedSide, own: list[Restorable]) -> None:
        self.loaded = loaded
        self.own = own
        """Its scratch memory and its variables."""


class Sampler:
    """Takes samples. Everything stays allocated until it is left.

    The L2 is written before the warm sample's restoring too: that work keeps the GPU busy while
    the host queues what follows, so that the events never wait for the host.
    """

    def __init__(
        self,
        state: DeviceState,
        memory: TaskMemory,
        sides: Sequence[LoadedSide],
        clock: Clock,
        alternatives: Sequence[Sequence[Buffer]] = (),
        *,
        ranking: bool = False,
    ) -> None:
        """`memory` takes what is the sides' own; it may be the state's. `ranking`: inputs that the
        author's kernel leaves as they are, are restored by `once` and not before each sample."""
        driver = self.driver = state.driver
        self.state = state
        self.memory = memory
        self.clock = clock
        self._ranking = ranking
        regions, buffers = state.regions, state.buffers
        for loaded in sides:
            move_variables(memory, loaded, state.buffers, regions)
            loaded.prepare(memory, regions, guards=True)
        self.sides = [SampledSide(loaded, loaded.restorables(memory)) for loaded in sides]
        state.hold()
        self._read_only, self._written = state.read_only, state.written
        captured = [r for r in (*self._read_only, *self._written) if r.is_given]
        known = {b.index: b for b in buffers}
        others = (moved(memory, one, regions) for one in alternatives)
        self._sets = [captured, *(_given(driver, memory, one, regions, known) for one in others)]
        self.written = {b.index: regions[b.index] for b in buffers if not b.read_only}
        """What launches may write: by allocation."""
        self._graphs: dict[tuple[int | None, int], Any] = {}
        self.has_graphs = state.has_graphs
        self._fills_ahead: dict[tuple[Regime, int], int] = {}
        self._start, self._end = state.start, state.end
        driver.synchronize()
        self.fill_us = state.fill_us

    def once(self, side: int) -> float:
        """Restore and launch the plan; wait; look at the guards. Microseconds between the events:
        the first launches have what others have not, which counts for nothing beside a slow one.

        Raises KernelFault with what the side did wrong.
        """
        with self._blamed(side):
            self._restore(side)
            self._enclosed(self.sides[side].loaded.launch_all)
            self.driver.synchronize()
            us = self.driver.elapsed_us(self._start, self._end)
        self.check_guards(side)
        return us

    @property
    def shown(self) -> str:
        """All kernels, for messages."""
        return ", ".join(dict.fromkeys(side.loaded.shown for side in self.sides))

    def check_guards(self, side: int) -> None:
        """Raise KernelFault where a guard band was written to."""
        broken = self.memory.broken_guard()
        if broken is None and self.state.memory is not self.memory:
            broken = self.state.memory.broken_guard()
        if broken is not None:
            shown = self.sides[side].loaded.shown
            raise KernelFault("guard_overwritten", f"{shown}: {broken}")

    @property
    def without_copy(self) -> list[str]:
        """What is restored from the host because the device had no room for a copy of it."""
        both = [*self.memory.without_copy, *self.state.memory.without_copy]
        return list(dict.fromkeys(both))

    def sample(
        self,
        side: int,
        regime: Regime,
        launches: int = 1,
        *,
        in_graph: bool = False,
        preceded: bool = True,
    ) -> float:
        """Microseconds between the events, all launches together. `preceded` False: also a warm
        sample without the launch before it, for launches beside which the L2 counts for nothing."""
        with self._blamed(side):
            work = self._launching(side, launches, in_graph=in_graph)
            self._before(side, regime if preceded else "cold", launches)
            self._enclosed(work)
            return self.driver.elapsed_us(self._start, self._end)

    def gap_us(
        self, regime: Regime, launches: int, *, in_graph: bool, preceded: bool = True
    ) -> float | None:
        """What a launch of a kernel that does nothing takes in such a sample; None: there is no
        such kernel. It stands where the first side's launches are in theirs; `preceded`: see
        `sample`."""
        if self.state.empty is None:
            return None
        with self._blamed(0):
            work = self._launching(None, launches, in_graph=in_graph)
            self._before(0, regime if preceded else "cold", launches)
            self._enclosed(work)
            return self.driver.elapsed_us(self._start, self._end) / launches

    def apart(self, side: int, regime: Regime, inputs: int, before: int) -> float:
        """Microseconds of one launch on this set of inputs (0: the captured ones).

        `before`: how many launches on another set are before it, with nothing put back but
        inputs; 0: everything is put back, as before any other sample.
        """
        with self._blamed(side):
            ahead = self._ahead(regime, before)
            others = 0 if inputs or len(self._sets) == 1 else 1
            if regime == "cold":
                self.driver.reset_persisting_l2()
            else:
                self.state.fill(ahead)
            self._restore(side)
            if others:
                self._exchange(others)
            for _ in range(before or PLANS_BEFORE[regime]):
                self.sides[side].loaded.launch_all()
            if before:
                self._put_back_variables(side)
            else:
                self._restore(side)
            self._exchange(inputs)
            if regime == "cold":
                self.state.fill(ahead)
            self._enclosed(self.sides[side].loaded.launch_all)
            return self.driver.elapsed_us(self._start, self._end)

    def plan_ahead(self, regime: Regime, launches: int) -> None:
        """Find how much work must be before a sample so that the host is never waited for."""
        host_us = 0.0
        for side in range(len(self.sides)):
            with self._blamed(side):
                self._restore(side)
                started = self.clock()
                if regime == "warm":
                    self.sides[side].loaded.launch_all()
                    self._put_back(side)
                self._enclosed(self._launching(side, launches, in_graph=False))
                host_us = max(host_us, (self.clock() - started) * 1e6)
                self.driver.synchronize()
        if self.fill_us > 0:
            fills = math.ceil(HEAD_START * host_us / self.fill_us)
            self._fills_ahead[regime, launches] = min(MOST_FILLS_AHEAD, max(1, fills))

    def slope_ahead(self, side: int, launches: int, *, restored: bool) -> int:
        """Fills that keep the GPU busy while the host queues as many launches for `host_us`."""
        with self._blamed(side):
            self.driver.synchronize()
            started = self.clock()
            self._queue(side, launches, restored=restored, launching=True)
            host_us = (self.clock() - started) * 1e6
            self.driver.synchronize()
        needed = math.ceil(HEAD_START * host_us / self.fill_us) if self.fill_us > 0 else 0
        return min(MOST_FILLS_BEFORE_MANY, max(LEAST_FILLS_BEFORE_MANY, needed))

    def empty_host_us(self, launches: int, ahead: int) -> float | None:
        """The same as `host_us` of so many kernels that do nothing."""
        if self.state.empty is None:
            return None
        with self._blamed(0):
            self.driver.synchronize()
            started = self.clock()
            self.state.fill(ahead)
            for _ in range(launches):
                self.state.launch_empty()
            self.driver.synchronize()
            return (self.clock() - started) * 1e6

    def drop_graphs(self) -> None:
        """Before the modules of their kernels go."""
        self._graphs.clear()

    def host_us(
        self,
        side: int,
        launches: int,
        *,
        ahead: int,
        restored: bool,
        launching: bool = True,
        preceded: bool = True,
    ) -> float:
        """Host clock from an idle GPU over many launches to an idle GPU.

        `ahead`: fills before them; `restored`: with everything put back before each launch;
        `launching` False: without the launches themselves; `preceded` False: without the launch
        before them, which warms up.
        """
        with self._blamed(side):
            self._restore(side)
            if preceded:
                self.sides[side].loaded.launch_all()
            self.driver.synchronize()
            started = self.clock()
            self.state.fill(ahead)
            self._queue(side, launches, restored=restored, launching=launching)
            self.driver.synchronize()
            return (self.clock() - started) * 1e6

    def _queue(self, side: int, launches: int, *, restored: bool, launching: bool) -> None:
        for _ in range(launches):
            if restored:
                self._put_back(side)
            if launching:
                self.sides[side].loaded.launch_all()

    def _before(self, side: int, regime: Regime, launches: int) -> None:
        """Contents of memory and L2 before the events of a sample."""
        ahead = self._fills_ahead.get((regime, launches), 1)
        restore = self._put_back if self._ranking else self._restore
        if regime == "cold":
            self.driver.reset_persisting_l2()
            restore(side)
            self.state.fill(ahead)
        else:
            self.state.fill(ahead)
            restore(side)
            self.sides[side].loaded.launch_all()
            self._put_back(side)

    def _launching(self, side: int | None, launches: int, *, in_graph: bool) -> Callable[[], None]:
        """So many launches of a side's plan, or (None) of the kernel that does nothing."""
        once = self.state.launch_empty if side is None else self.sides[side].loaded.launch_all

        def repeated() -> None:
            for _ in range(launches):
                once()

        if not (in_graph and self.has_graphs):
            return repeated
        if (side, launches) not in self._graphs:
            self._graphs[side, launches] = self.driver.graph(repeated)
        graph = self._graphs[side, launches]
        return repeated if graph is None else partial(self.driver.launch_graph, graph)

    def _enclosed(self, work: Callable[[], None]) -> None:
        self.driver.record(self._start)
        work()
        self.driver.record(self._end)

    def _restore(self, side: int) -> None:
        for one in self._read_only:
            one.restore()
        self._put_back(side)

    def _put_back(self, side: int) -> None:
        for one in (*self._written, *self.sides[side].own):
            one.restore()

    def _put_back_variables(self, side: int) -> None:
        """Those of the author's program: they are inputs. What a rewrite added is left as it is."""
        for one in self.sides[side].own:
            if one.is_given:
                one.restore()

    def _exchange(self, inputs: int) -> None:
        for one in self._sets[inputs]:
            one.restore()

    def _ahead(self, regime: Regime, before: int) -> int:
        fills = self._fills_ahead.get((regime, 1), 1)
        return min(MOST_FILLS_AHEAD, fills * (1 + before)) if self.fill_us > 0 else fills

    @contextmanager
    def _blamed(self, side: int) -> Iterator[None]:
        try:
            yield
        except DriverError as problem:
            raise running_fault(self.sides[side].loaded.shown, problem) from problem


@contextmanager
def bench(
    driver: Driver, task: MeasureTask, clock: Clock, kept: StateCache | None
) -> Iterator[Sampler]:
    """Load the task's sides and buffers; give everything back, if the context still lives, but what
    is to be kept."""
    with ExitStack() as stack:
        loaded = [stack.enter_context(loaded_side(driver, side)) for side in task.sides]
        if kept is not None and task.keep:
            state = stack.enter_context(kept.state(task.buffers))
            memory = stack.enter_context(TaskMemory(driver))
        else:
            memory = stack.enter_context(TaskMemory(driver))
            state = DeviceState(driver, memory, task.buffers)
        alternatives = task.watch.alternatives if task.watch else ()
        ranking = task.policy.settled_pct is not None
        ready = Sampler(state, memory, loaded, clock, alternatives, ranking=ranking)
        stack.callback(ready.drop_graphs)
        yield ready
        if state.memory is not memory:
            check_copies(state, ready.shown)


def _given(
    driver: Driver,
    memory: TaskMemory,
    buffers: Sequence[Buffer],
    regions: dict[int, Region],
    captured: dict[int, Buffer],
) -> list[Restorable]:
    """What another set of inputs has other than the captured one, and what launches change of it;
    buffers that a launch overwrites have no contents."""
    found = []
    for buffer in buffers:
        content, region = content_of(buffer), regions.get(buffer.index)
        if region is None or region.size_bytes != buffer.size_bytes:
            raise TaskRefused(
                f"buffer {buffer.index} of other inputs fits no allocation", "report it"
            )
        same = captured[buffer.index].file == buffer.file and captured[buffer.index].read_only
        if content.file is not None and not same:
            address, size, shown = region.address, region.size_bytes, f"other {region.shown}"
            found.append(Restorable(driver, memory, address, size, shown, content))
    return found
