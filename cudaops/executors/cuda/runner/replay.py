"""Launching a plan: once, for its outputs or for a profiler, or many times in one module.

In a series what a kernel keeps in variables of its own stays from launch to launch: a kernel that
counts its calls, or hands out again what it once computed, gives itself away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.executors.cuda.protocol import (
    Buffer,
    ProbeReply,
    ProfileReply,
    ProfileTask,
    RunReply,
    RunTask,
    SeriesLaunch,
    SeriesTask,
    Side,
)
from cudaops.executors.cuda.runner.driver import Driver, KernelFault, TaskRefused
from cudaops.executors.cuda.runner.launching import LoadedSide, blamed_on, loaded_side
from cudaops.executors.cuda.runner.memory import ALIGNMENT, Content, Region, TaskMemory
from cudaops.executors.cuda.turns import in_turn

PROBE_BYTES = 1 << 20
WARMED_BYTES = 1 << 30
"""Larger buffers are not loaded twice for a profile: ncu runs the launch many times anyway, and one
over so much memory is long enough for the clocks to rise."""


class ReplaySide(NamedTuple):
    """A side that is ready to be launched on buffers that hold their contents."""

    memory: TaskMemory
    loaded: LoadedSide
    buffers: dict[int, Region]
    given: tuple[Buffer, ...] = ()
    """What the buffers hold, with addresses in them as they are here."""


def run(driver: Driver, task: RunTask) -> RunReply:
    """Launch the plan once, check the guards, write the dumps."""
    with staged(driver, task.side, task.buffers, guards=task.guards) as stage:
        times = []
        for number in range(len(task.side.launches)):
            if task.shared_fill is not None and not driver.fill_shared(task.shared_fill):
                raise TaskRefused("this driver fills no shared memory", "report it")
            times.append(timed(driver, stage, number))
        unchanged = save(stage, task, stage.given)
    return RunReply(launch_us=tuple(times), unchanged=(unchanged,))


def profile(driver: Driver, task: ProfileTask) -> ProfileReply:
    """Launch the plan to warm up, unless its buffers are large, and again on restored buffers with
    one launch in the range."""
    count = len(task.side.launches)
    if not 0 <= task.launch < count:
        raise TaskRefused(
            f"the plan has {count} launches, none is number {task.launch}", "report it"
        )
    with staged(driver, task.side, task.buffers, guards=True) as stage:
        if sum(b.size_bytes for b in task.buffers) <= WARMED_BYTES:
            for number in range(count):
                timed(driver, stage, number)
            fill_buffers(stage, stage.given)
            _refill_side(stage)
            driver.synchronize()
        times = []
        folder = Path(task.turn_folder) if task.turn_folder is not None else None
        for number in range(count):
            if number != task.launch:
                times.append(timed(driver, stage, number))
                continue
            with in_turn(folder):
                driver.profiler_range(start=True)
                times.append(timed(driver, stage, number))
                driver.profiler_range(start=False)
    return ProfileReply(launch_us=tuple(times))


def probe(driver: Driver) -> ProbeReply:
    """Allocate, copy there, on the device and back, compare."""
    pattern = os.urandom(PROBE_BYTES)
    with TaskMemory(driver) as memory:
        here = memory.take("probe", PROBE_BYTES, guards=True)
        there = memory.take("probe", PROBE_BYTES, guards=True)
        driver.write(here.address, pattern)
        driver.fill(there.address, 0, PROBE_BYTES)
        driver.copy(there.address, here.address, PROBE_BYTES)
        if driver.read(there.address, PROBE_BYTES) != pattern or memory.broken_guard():
            raise TaskRefused(
                "the GPU gives back other bytes than were written to it",
                "look at `nvidia-smi -q -d ECC` and at `dmesg | grep -i xid`; reset the GPU",
            )
    return ProbeReply(facts=driver.facts, free_bytes=driver.free_bytes())


@contextmanager
def staged(
    driver: Driver, side: Side, buffers: Sequence[Buffer], *, guards: bool
) -> Iterator[ReplaySide]:
    """Load a side and its buffers; give everything back afterwards, if the context still lives."""
    with loaded_side(driver, side) as loaded, TaskMemory(driver) as memory:
        regions = allocate(memory, buffers, guards=guards)
        stage = ReplaySide(memory, loaded, regions, moved(memory, buffers, regions))
        fill_buffers(stage, stage.given)
        move_variables(memory, loaded, buffers, regions)
        loaded.prepare(memory, stage.buffers, guards=guards)
        loaded.set_globals(memory)
        driver.synchronize()
        yield stage


def allocate(memory: TaskMemory, buffers: Sequence[Buffer], *, guards: bool) -> dict[int, Region]:
    """Memory for every buffer, by its index."""
    return {
        b.index: memory.take(f"allocation {b.name or b.index}", b.size_bytes, guards=guards)
        for b in buffers
    }


def moved(
    memory: TaskMemory, buffers: Sequence[Buffer], regions: Mapping[int, Region]
) -> tuple[Buffer, ...]:
    """The same buffers, with files in which addresses are those of this device."""
    return tuple(
        b.model_copy(update={"file": _moved_file(memory, b.file, buffers, regions)})
        if b.holds_pointers and b.file is not None
        else b
        for b in buffers
    )


def _moved_file(
    memory: TaskMemory, file: str, buffers: Sequence[Buffer], regions: Mapping[int, Region]
) -> str:
    def made() -> bytes:
        content = np.fromfile(file, dtype=np.uint8)
        _move(content, buffers, regions, back=False)
        return content.tobytes()

    return memory.file_for(Path(file), tuple(regions[b.index].address for b in buffers), made)


def move_variables(
    memory: TaskMemory,
    loaded: LoadedSide,
    buffers: Sequence[Buffer],
    regions: Mapping[int, Region],
) -> None:
    """Let a side's variables hold addresses as they are on this device."""
    if any(b.address is not None for b in buffers):
        loaded.globals = tuple(
            g.model_copy(update={"file": _moved_file(memory, g.file, buffers, regions)})
            for g in loaded.side.globals
        )


def _move_back(path: str, buffers: Sequence[Buffer], regions: Mapping[int, Region]) -> None:
    content = np.fromfile(path, dtype=np.uint8)
    _move(content, buffers, regions, back=True)
    content.tofile(path)


def _move(
    content: np.ndarray[Any, np.dtype[np.uint8]], buffers: Sequence[Buffer],
    regions: Mapping[int, Region], *, back: bool,
) -> None:  # fmt: skip
    """Change each aligned word of 8 bytes that is an address in one of the buffers, or right behind
    one and in no other."""
    words = content[: content.size // 8 * 8].view(np.uint64)
    known = [
        (*ends[:: -1 if back else 1], b.size_bytes // (1 if back else b.widened_by), b.widened_by)
        for b in buffers
        if b.address is not None
        for ends in ((b.address, regions[b.index].address),)
    ]
    here, there, size, factor = np.array(sorted(known), dtype=np.uint64).reshape(-1, 4).T
    at = np.searchsorted(here, words, side="right") - 1  # the last that begins there or before
    own = at >= 0
    at = at[own]
    offset = words[own] - here[at]
    far = offset // factor[at] if back else offset * factor[at]
    words[own] = np.where(offset <= size[at], there[at] + far, words[own])


def content_of(buffer: Buffer) -> Content:
    """What a buffer holds before a launch. Raises TaskRefused where the task does not say it."""
    if (buffer.file is None) == (buffer.fill is None):
        raise TaskRefused(f"buffer {buffer.index} needs either a file or a byte", "report it")
    if buffer.file is not None:
        return Content(file=Path(buffer.file))
    return Content(fill=buffer.fill or 0)


def fill_buffers(stage: ReplaySide, buffers: Sequence[Buffer]) -> None:
    """Let every buffer hold what the task says."""
    for buffer in buffers:
        region = stage.buffers[buffer.index]
        stage.memory.fill_in(region.address, region.size_bytes, content_of(buffer))


def save(
    stage: ReplaySide, launch: RunTask | SeriesLaunch, given: Sequence[Buffer]
) -> tuple[int, ...]:
    """Write the contents of buffers and variables to files; see `RunReply.unchanged`. `given`: what
    the buffers held."""
    unchanged = []
    inputs = {b.index: b.file for b in given if b.read_only and b.file is not None}
    pointers = {b.index for b in given if b.holds_pointers}
    for index, path in launch.dumps.items():
        region = stage.buffers.get(index)
        if region is None:
            raise TaskRefused(f"no allocation {index} to write to {path}", "report it")
        file = inputs.get(index)
        if file is not None and stage.memory.holds(region.address, region.size_bytes, Path(file)):
            unchanged.append(index)
        else:
            stage.memory.save(region.address, region.size_bytes, Path(path))
            if index in pointers:
                _move_back(path, given, stage.buffers)
    symbols = {g.name: g.symbol for g in stage.loaded.side.globals}
    for name, path in launch.global_dumps.items():
        address, size = stage.loaded.variable(symbols.get(name, name))
        stage.memory.save(address, size, Path(path))
        if any(b.address is not None for b in given):
            _move_back(path, given, stage.buffers)
    return tuple(unchanged)


def _refill_side(stage: ReplaySide) -> None:
    for scratch in stage.loaded.side.scratch:
        region = stage.loaded.scratch[scratch.name]
        stage.memory.fill_in(region.address, region.size_bytes, Content(fill=scratch.fill))
    stage.loaded.set_globals(stage.memory)


def timed(driver: Driver, stage: ReplaySide, number: int) -> float:
    """One launch between two events, waited for, so that a fault is the right kernel's."""
    shown = stage.loaded.prepared[number].planned.kernel.shown
    with blamed_on(shown):
        start, end = driver.event(), driver.event()
        driver.record(start)
        stage.loaded.launch(number)
        driver.record(end)
        driver.synchronize()
        time_us = driver.elapsed_us(start, end)
    if (broken := stage.memory.broken_guard()) is not None:
        raise KernelFault("guard_overwritten", f"{shown}: {broken}")
    return time_us


def run_series(driver: Driver, task: SeriesTask) -> RunReply:
    """Launch once for every set of inputs, check the guards after each, write every dump."""
    if any(one.shift_bytes < 0 or one.shift_bytes % ALIGNMENT for one in task.launches):
        raise TaskRefused(f"a shift must be a multiple of {ALIGNMENT} bytes", "report it")
    times: list[float] = []
    unchanged: list[tuple[int, ...]] = []
    with loaded_side(driver, task.side) as loaded, contextlib.ExitStack() as places:
        stage: ReplaySide | None = None
        standing: int | None = None
        for number, launch in enumerate(task.launches, start=1):
            with _numbered(number, len(task.launches)):
                if stage is None or launch.shift_bytes != standing:
                    if launch.keep_scratch:
                        raise TaskRefused("no launch before left scratch memory here", "report it")
                    places.close()
                    memory = places.enter_context(TaskMemory(driver, launch.shift_bytes))
                    stage = _placed(memory, loaded, launch)
                    standing = launch.shift_bytes
                given = moved(stage.memory, launch.buffers, stage.buffers)
                _fill(stage, launch, given)
                driver.synchronize()
                times += [timed(driver, stage, n) for n in range(len(task.side.launches))]
                unchanged.append(save(stage, launch, given))
    return RunReply(launch_us=tuple(times), unchanged=tuple(unchanged))


@contextmanager
def _numbered(number: int, count: int) -> Iterator[None]:
    """A kernel's fault in here says in which launch it happened, counted from 1."""
    try:
        yield
    except KernelFault as fault:
        text = f"in launch {number} of {count}: {fault.message}"
        raise KernelFault(fault.what, text, fault.error, sticky=fault.sticky) from fault


def _placed(memory: TaskMemory, loaded: LoadedSide, launch: SeriesLaunch) -> ReplaySide:
    """Memory for buffers and scratch, and every parameter that points into it."""
    buffers: dict[int, Region] = allocate(memory, launch.buffers, guards=True)
    move_variables(memory, loaded, launch.buffers, buffers)
    loaded.prepare(memory, buffers, guards=True)
    return ReplaySide(memory, loaded, buffers)


def _fill(stage: ReplaySide, launch: SeriesLaunch, given: Sequence[Buffer]) -> None:
    fill_buffers(stage, given)
    kept = launch.keep_scratch
    for region in () if kept else stage.loaded.scratch.values():
        stage.memory.fill_in(region.address, region.size_bytes, Content(fill=launch.scratch_fill))
    stage.loaded.set_globals(stage.memory)
