"""A series on a scripted driver: one module, memory anew or in place, guards after each launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.executors.cuda.protocol import (
    FaultReply,
    RefusedReply,
    RunReply,
    SeriesLaunch,
    SeriesTask,
    TaskScratch,
    VariableImage,
)
from cudaops.executors.cuda.runner.server import perform
from tests.executors.cuda.gpu_tasks import COUNT, buffers, planned, side
from tests.executors.cuda.scripted_gpu import ScriptedGpu, kernel

SCRATCH = (TaskScratch(name="tmp", size_bytes=64, fill=0xA5),)


def launch(folder: Path, number: int, shift_bytes: int = 0, **more: Any) -> SeriesLaunch:
    """Inputs of their own: `number`, `number` + 1, ..."""
    path = folder / f"a{number}.bin"
    (np.arange(COUNT, dtype=np.float32) + number).tofile(path)
    a, b = buffers(folder)
    return SeriesLaunch(
        buffers=(a.model_copy(update={"file": str(path)}), b),
        scratch_fill=number,
        shift_bytes=shift_bytes,
        dumps={1: str(folder / f"b{number}.out")},
        **more,
    )


def watched(seen: list[list[int]]) -> ScriptedGpu:
    """Its kernel `looks` notes where `a` and `b` are and does what `scale` does."""

    def looks(gpu: ScriptedGpu, given: list[int]) -> None:
        seen.append(given[:2])
        gpu.kernels["scale"].body(gpu, given)

    return ScriptedGpu(looks=kernel(looks))


def test_every_launch_has_its_inputs_its_place_and_its_outputs(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    gpu = watched(seen)
    shifts = (0, 0, 4352, 256, 256)
    task = SeriesTask(
        side=side(tmp_path, planned("looks"), scratch=SCRATCH),
        launches=tuple(launch(tmp_path, n, shift) for n, shift in enumerate(shifts)),
    )
    reply = perform(gpu, task)
    assert isinstance(reply, RunReply), reply
    assert len(reply.launch_us) == 5
    for number in range(5):
        result = np.fromfile(tmp_path / f"b{number}.out", np.float32)
        np.testing.assert_array_equal(result, 3 * (np.arange(COUNT) + number))
    assert seen[0] == seen[1]
    assert seen[3] == seen[4]
    assert len({tuple(one) for one in seen}) == 3
    assert all(address % 256 == 0 for one in seen for address in one)
    assert gpu.memory == {}
    assert [entry[0] for entry in gpu.log].count("unload") == 1


def test_the_tasks_variables_are_set_again_and_the_modules_own_are_not(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    given = VariableImage(
        name="ns::weights", symbol="w", size_bytes=8, file=str(tmp_path / "weights.bin")
    )

    def counts_both(gpu: ScriptedGpu, _given: list[int]) -> None:
        for name in ("calls", "w"):
            gpu.memory[gpu.variables[name]][0] += 1

    gpu = ScriptedGpu(both=kernel(counts_both))
    module = "variable w 0000000000000000\nvariable calls 00000000"
    launches = tuple(
        launch(
            tmp_path,
            n,
            global_dumps={
                "ns::weights": str(tmp_path / f"w{n}"), "calls": str(tmp_path / f"calls{n}")
            },
        )
        for n in range(3)
    )  # fmt: skip
    task = SeriesTask(
        side=side(tmp_path, planned("both"), module=module, globals=(given,)), launches=launches
    )
    assert isinstance(perform(gpu, task), RunReply)
    assert [(tmp_path / f"w{n}").read_bytes()[0] for n in range(3)] == [1, 1, 1]
    assert [(tmp_path / f"calls{n}").read_bytes()[0] for n in range(3)] == [1, 2, 3]


def spoiling(found: list[int]) -> ScriptedGpu:
    """Its kernel `spoils` notes the first byte of scratch memory and sets it to 0xEE."""

    def spoils(gpu: ScriptedGpu, _given: list[int]) -> None:
        place = next(m for m in gpu.memory.values() if len(m) == 64 + 2 * 4096)
        found.append(place[4096])
        place[4096] = 0xEE

    return ScriptedGpu(spoils=kernel(spoils))


def test_scratch_holds_its_byte_before_every_launch(tmp_path: Path) -> None:
    found: list[int] = []
    task = SeriesTask(
        side=side(tmp_path, planned("spoils"), scratch=SCRATCH),
        launches=tuple(launch(tmp_path, n) for n in (7, 8, 9)),
    )
    assert isinstance(perform(spoiling(found), task), RunReply)
    assert found == [7, 8, 9]


def test_scratch_stays_where_the_launch_says_so(tmp_path: Path) -> None:
    found: list[int] = []
    task = SeriesTask(
        side=side(tmp_path, planned("spoils"), scratch=SCRATCH),
        launches=tuple(launch(tmp_path, n, keep_scratch=n == 8) for n in (7, 8, 9)),
    )
    assert isinstance(perform(spoiling(found), task), RunReply)
    assert found == [7, 0xEE, 9]


@pytest.mark.parametrize("places", [(0,), (0, 256)])
def test_scratch_that_nobody_left_cannot_stay(tmp_path: Path, places: tuple[int, ...]) -> None:
    launches = [launch(tmp_path, n, shift) for n, shift in enumerate(places)]
    launches[-1] = launches[-1].model_copy(update={"keep_scratch": True})
    task = SeriesTask(
        side=side(tmp_path, planned("scale"), scratch=SCRATCH), launches=tuple(launches)
    )
    reply = perform(ScriptedGpu(), task)
    assert isinstance(reply, RefusedReply), reply
    assert "no launch before left scratch memory here" in reply.problem


@pytest.mark.parametrize("shift", [0, 768])
def test_a_write_outside_names_its_launch(tmp_path: Path, shift: int) -> None:
    def late(gpu: ScriptedGpu, given: list[int]) -> None:
        gpu.counts["late done"] = gpu.counts.get("late done", 0) + 1
        if gpu.counts["late done"] == 3:
            gpu.write(given[1] + 4 * COUNT + 3, b"\0")

    gpu = ScriptedGpu(late=kernel(late))
    task = SeriesTask(
        side=side(tmp_path, planned("late")),
        launches=tuple(launch(tmp_path, n, shift) for n in range(4)),
    )
    reply = perform(gpu, task)
    assert isinstance(reply, FaultReply), reply
    assert reply.what == "guard_overwritten"
    assert reply.message.startswith("in launch 3 of 4: ")
    assert "3 bytes past the end of allocation b (size 400 bytes)" in reply.message
    assert gpu.memory == {}
    assert ("unload", task.side.module) in gpu.log


def test_what_costs_the_context_says_so(tmp_path: Path) -> None:
    gpu = ScriptedGpu()
    task = SeriesTask(
        side=side(tmp_path, planned("illegal")), launches=(launch(tmp_path, 0), launch(tmp_path, 1))
    )
    reply = perform(gpu, task)
    assert isinstance(reply, FaultReply), reply
    assert reply.sticky
    assert "in launch 1 of 2" in reply.message


def test_a_crooked_shift_is_refused(tmp_path: Path) -> None:
    task = SeriesTask(side=side(tmp_path, planned("scale")), launches=(launch(tmp_path, 0, 100),))
    reply = perform(ScriptedGpu(), task)
    assert isinstance(reply, RefusedReply), reply
    assert "multiple of 256" in reply.problem
