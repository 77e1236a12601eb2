"""Launching a plan many times in one loaded module, on other inputs and at other addresses.

What a kernel keeps in variables of its own stays from launch to launch: a kernel that counts its
calls, or hands out again what it once computed, gives itself away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from cudaops.executors.cuda.protocol import RunReply, SeriesLaunch, SeriesTask
from cudaops.executors.cuda.runner.driver import Driver
from cudaops.executors.cuda.runner.faults import KernelFault, Refusal
from cudaops.executors.cuda.runner.launching import LoadedSide, loaded_side
from cudaops.executors.cuda.runner.memory import ALIGNMENT, Content, Memory, Region
from cudaops.executors.cuda.runner.replay import Stage, allocate, fill_buffers, save, timed


def run(driver: Driver, task: SeriesTask) -> RunReply:
    """Launch once for every set of inputs, check the guards after each, write every dump."""
    if any(one.shift_bytes < 0 or one.shift_bytes % ALIGNMENT for one in task.launches):
        raise Refusal(f"a shift must be a multiple of {ALIGNMENT} bytes", "report it")
    times: list[float] = []
    with loaded_side(driver, task.side) as loaded, contextlib.ExitStack() as places:
        stage: Stage | None = None
        standing: int | None = None
        for number, launch in enumerate(task.launches, start=1):
            with _told(number, len(task.launches)):
                if stage is None or launch.shift_bytes != standing:
                    if launch.keep_scratch:
                        raise Refusal("no launch before left scratch memory here", "report it")
                    places.close()
                    memory = places.enter_context(Memory(driver, launch.shift_bytes))
                    stage = _placed(memory, loaded, launch)
                    standing = launch.shift_bytes
                _fill(stage, launch)
                driver.synchronize()
                times += [timed(driver, stage, n) for n in range(len(task.side.launches))]
                save(stage, launch.dumps, launch.global_dumps)
    return RunReply(launch_us=tuple(times))


@contextmanager
def _told(number: int, count: int) -> Iterator[None]:
    """A kernel's fault in here says in which launch it happened, counted from 1."""
    try:
        yield
    except KernelFault as fault:
        text = f"in launch {number} of {count}: {fault.message}"
        raise KernelFault(fault.what, text, fault.error, sticky=fault.sticky) from fault


def _placed(memory: Memory, loaded: LoadedSide, launch: SeriesLaunch) -> Stage:
    """Memory for buffers and scratch, and every parameter that points into it."""
    buffers: dict[int, Region] = allocate(memory, launch.buffers, guards=True)
    loaded.prepare(memory, buffers, guards=True)
    return Stage(memory, loaded, buffers)


def _fill(stage: Stage, launch: SeriesLaunch) -> None:
    fill_buffers(stage, launch.buffers)
    kept = launch.keep_scratch
    for region in () if kept else stage.loaded.scratch.values():
        stage.memory.fill_in(region.address, region.size_bytes, Content(fill=launch.scratch_fill))
    stage.loaded.set_globals(stage.memory)
