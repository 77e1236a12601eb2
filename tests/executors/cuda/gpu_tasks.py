"""Tasks over two buffers `a` (in) and `b` (out) for the runner's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cudaops.domain.base import Dim3
from cudaops.domain.rewrite import BufferValue, NumberValue
from cudaops.executors.cuda.protocol import (
    Buffer,
    MeasureTask,
    PlannedLaunch,
    ProfileTask,
    RunTask,
    Side,
    TaskScratch,
    TimingPolicy,
)
from tests.executors.cuda.scripted_gpu import launchable

COUNT = 100
INPUT = np.arange(COUNT, dtype=np.float32)
QUICK = TimingPolicy(
    warmups=1, samples=8, samples_a_block=4, spin_up_ms=0, cupti_launches=0, min_sample_us=1
)


def planned(symbol: str, **change: Any) -> PlannedLaunch:
    """`symbol<<<1, 128>>>(a, b, 100, 3)`."""
    launch = PlannedLaunch(
        kernel=launchable(symbol),
        grid=Dim3(x=1),
        block=Dim3(x=128),
        dynamic_smem_bytes=0,
        values=(
            BufferValue(allocation=0),
            BufferValue(allocation=1),
            NumberValue(value=COUNT),
            NumberValue(value=3),
        ),
    )
    return launch.model_copy(update=change)


def side(folder: Path, *launches: PlannedLaunch, module: str = "module", **more: Any) -> Side:
    """A side whose module file holds `module`."""
    image = folder / f"{len(list(folder.iterdir()))}.image"
    image.write_text(module)
    return Side(module=str(image), launches=launches, **more)


def buffers(folder: Path) -> tuple[Buffer, ...]:
    """`a` from a file, `b` filled with a byte."""
    INPUT.tofile(folder / "a.bin")
    size = 4 * COUNT
    return (
        Buffer(index=0, size_bytes=size, file=str(folder / "a.bin"), name="a", read_only=True),
        Buffer(index=1, size_bytes=size, fill=0xCD, name="b"),
    )


def run_task(folder: Path, *symbols: str, **more: Any) -> RunTask:
    """Launch kernels one after another and write `b` to `b.out`."""
    given = {"side": side(folder, *(planned(s) for s in symbols)), **more}
    return RunTask(buffers=buffers(folder), dumps={1: str(folder / "b.out")}, **given)


def measure_task(folder: Path, *symbols: str, **more: Any) -> MeasureTask:
    """Time kernels against each other, each with a scratch buffer."""
    scratch = (TaskScratch(name="tmp", size_bytes=64, fill=0xA5),)
    sides = tuple(side(folder, planned(s), scratch=scratch) for s in symbols)
    return MeasureTask(**{"sides": sides, "buffers": buffers(folder), "policy": QUICK, **more})


def profile_task(folder: Path, launch: int, *symbols: str) -> ProfileTask:
    """One launch of several inside of a profiler range."""
    return ProfileTask(
        side=side(folder, *(planned(s) for s in symbols)), buffers=buffers(folder), launch=launch
    )
