"""The runner's work on a scripted driver: what it launches, restores, checks, times and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.rewrite import BufferValue, NullValue, NumberValue
from cudaops.executors.cuda.protocol import (
    FaultReply,
    ProbeReply,
    ProbeTask,
    ProfileReply,
    RefusedReply,
    RunReply,
    Task,
    TaskScratch,
    VariableImage,
)
from cudaops.executors.cuda.runner.server import answer, perform
from tests.executors.cuda.gpu_tasks import (
    INPUT,
    measure_task,
    planned,
    profile_task,
    run_task,
    side,
)
from tests.executors.cuda.scripted_gpu import OPTIN_BYTES, ScriptedGpu, kernel


@pytest.fixture
def gpu() -> ScriptedGpu:
    return ScriptedGpu()


def fault(gpu: ScriptedGpu, task: Task) -> FaultReply:
    reply = perform(gpu, task)
    assert isinstance(reply, FaultReply), reply
    return reply


def refused(gpu: ScriptedGpu, task: Task) -> RefusedReply:
    reply = perform(gpu, task)
    assert isinstance(reply, RefusedReply), reply
    return reply


class TestRun:
    def test_a_plan_is_launched_and_its_outputs_are_written(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        reply = perform(gpu, run_task(tmp_path, "scale"))
        assert isinstance(reply, RunReply), reply
        assert [*reply.launch_us] == [pytest.approx(11.5)]
        np.testing.assert_array_equal(np.fromfile(tmp_path / "b.out", np.float32), 3 * INPUT)

    def test_an_input_that_holds_what_it_held_is_not_written_again(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        dumps = {0: str(tmp_path / "a.out"), 1: str(tmp_path / "b.out")}
        task = run_task(tmp_path, "scale").model_copy(update={"dumps": dumps})
        reply = perform(gpu, task)
        assert isinstance(reply, RunReply), reply
        assert reply.unchanged == ((0,),)
        assert not (tmp_path / "a.out").exists()
        assert (tmp_path / "b.out").exists()

    @pytest.mark.parametrize("byte", [0, INPUT.nbytes - 1])
    def test_an_input_that_was_written_to_is_written_whole(self, byte: int, tmp_path: Path) -> None:
        def scribbles(gpu: ScriptedGpu, given: list[int]) -> None:
            gpu.write(given[0] + byte, b"\xee")

        dumps = {0: str(tmp_path / "a.out")}
        task = run_task(tmp_path, "scribbles").model_copy(update={"dumps": dumps})
        reply = perform(ScriptedGpu(scribbles=kernel(scribbles)), task)
        assert isinstance(reply, RunReply), reply
        assert reply.unchanged == ((),)
        expected = bytearray(INPUT.tobytes())
        expected[byte] = 0xEE
        assert (tmp_path / "a.out").read_bytes() == expected

    def test_everything_is_given_back(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        for task in (
            run_task(tmp_path, "scale"),
            run_task(tmp_path, "after"),
            profile_task(tmp_path, 0, "scale"),
            ProbeTask(),
        ):
            perform(gpu, task)
            assert gpu.memory == {}
        perform(gpu, measure_task(tmp_path, "scale", "other"))
        assert gpu.memory == {}
        assert sum(entry[0] == "unload" for entry in gpu.log) == 5

    @pytest.mark.parametrize(
        ("symbol", "said"),
        [
            ("before", "a byte 32 bytes before the start of allocation b (size 400 bytes)"),
            ("after", "a byte 3 bytes past the end of allocation b (size 400 bytes)"),
        ],
    )
    def test_a_write_outside_is_named(
        self, gpu: ScriptedGpu, tmp_path: Path, symbol: str, said: str
    ) -> None:
        found = fault(gpu, run_task(tmp_path, "scale", symbol))
        assert found.what == "guard_overwritten"
        assert found.message == f"{symbol}<1>: {said} was overwritten"
        assert not found.sticky

    def test_without_guards_allocations_end_where_they_end(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        sizes: list[int] = []
        gpu.kernels["look"] = kernel(lambda g, _: sizes.extend(map(len, g.memory.values())))
        assert isinstance(perform(gpu, run_task(tmp_path, "look", guards=False)), RunReply)
        assert sorted(sizes) == [400, 400]

    def test_variables_are_set_and_read_back(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        (tmp_path / "w.bin").write_bytes(b"\x07\0\0\0")
        given = VariableImage(
            name="ns::calls", symbol="calls", size_bytes=4, file=str(tmp_path / "w.bin")
        )
        task = run_task(
            tmp_path,
            side=side(
                tmp_path, planned("count"), module="variable calls 00000000", globals=(given,)
            ),
            global_dumps={"ns::calls": str(tmp_path / "calls.out")},
        )
        assert isinstance(perform(gpu, task), RunReply)
        assert (tmp_path / "calls.out").read_bytes() == b"\x08\0\0\0"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"block": Dim3(x=32, y=32, z=2)}, "a block has at most 1024 threads"),
            ({"block": Dim3(z=65)}, "z at most 64"),
            ({"block": Dim3(y=0)}, "the block is empty"),
            ({"grid": Dim3(x=0)}, "the grid is empty"),
            ({"grid": Dim3(y=70000)}, "a grid has at most"),
            ({"dynamic_smem_bytes": OPTIN_BYTES + 1}, f"the limit of {OPTIN_BYTES} bytes"),
            ({"block": Dim3(x=1023)}, "too many resources (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)"),
            ({"values": (NullValue(),)}, "takes 4 arguments, the launch gives 1"),
        ],
    )
    def test_what_a_device_refuses_is_refused(
        self, gpu: ScriptedGpu, tmp_path: Path, change: dict[str, Any], said: str
    ) -> None:
        task = run_task(tmp_path, side=side(tmp_path, planned("scale", **change)))
        found = fault(gpu, task)
        assert (found.what, found.sticky) == ("launch_refused", False)
        assert found.message.startswith("scale<1>")
        assert said in found.message
        assert isinstance(perform(gpu, run_task(tmp_path, "scale")), RunReply)

    def test_a_value_that_cannot_be_converted_names_the_argument(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        values = (BufferValue(allocation=0), NumberValue(value=1), *planned("scale").values[2:])
        found = fault(gpu, run_task(tmp_path, side=side(tmp_path, planned("scale", values=values))))
        assert found.what == "launch_refused"
        assert found.message == "scale<1>: argument 2: a pointer is needed"

    def test_the_largest_shared_memory_of_a_function_is_allowed(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        launches = [planned("scale", dynamic_smem_bytes=n) for n in (100, 70_000, 0)]
        perform(gpu, run_task(tmp_path, side=side(tmp_path, *launches)))
        assert [e for e in gpu.log if e[0] == "allow"] == [("allow", "scale", 70_000)]

    @pytest.mark.parametrize(
        ("symbol", "what"),
        [
            ("illegal", "out_of_bounds"),
            ("trap", "crash"),
            ("asserts", "crash"),
            ("watchdog", "timeout"),
        ],
    )
    def test_what_costs_the_context_is_sticky(
        self, gpu: ScriptedGpu, tmp_path: Path, symbol: str, what: str
    ) -> None:
        found = fault(gpu, run_task(tmp_path, "scale", symbol))
        assert (found.what, found.sticky) == (what, True)
        assert found.message.startswith(f"{symbol}<1>: ")
        assert found.error in found.message

    def test_the_machines_own_errors_are_nobodys_fault(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        assert "CUDA_ERROR_ECC_UNCORRECTABLE" in refused(gpu, run_task(tmp_path, "ecc")).problem

    def test_a_driver_that_knows_no_sizes_is_helped_by_the_types(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.knows_sizes = False
        perform(gpu, run_task(tmp_path, "scale"))
        np.testing.assert_array_equal(np.fromfile(tmp_path / "b.out", np.float32), 3 * INPUT)

    def test_what_is_wrong_with_a_task_is_said(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        task = run_task(tmp_path, "scale")
        (tmp_path / "a.bin").write_bytes(b"short")
        assert "has 5 bytes instead of 400" in refused(gpu, task).problem
        (tmp_path / "a.bin").unlink()
        assert "cannot read" in refused(gpu, task).problem
        absent = run_task(tmp_path, "no_such_kernel")
        assert "no kernel no_such_kernel" in refused(gpu, absent).problem
        other = run_task(
            tmp_path, side=side(tmp_path, planned("scale"), module="other architecture")
        )
        assert refused(gpu, other).remedy == "build with --arch sm_90"
        gpu.room = 5000
        assert "not enough free memory" in refused(gpu, run_task(tmp_path, "scale")).problem
        assert gpu.memory == {}
        unreadable = answer(gpu, b'{"op": "dance"}')
        assert isinstance(unreadable, RefusedReply)
        assert "cannot be read" in unreadable.problem

    def test_scratch_of_a_run_holds_its_byte(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        values = (BufferValue(scratch="tmp"), *planned("scale").values[1:])
        task = run_task(
            tmp_path,
            side=side(
                tmp_path,
                planned("scale", values=values),
                scratch=(TaskScratch(name="tmp", size_bytes=400, fill=0),),
            ),
        )
        perform(gpu, task)
        np.testing.assert_array_equal(np.fromfile(tmp_path / "b.out", np.float32), 0 * INPUT)


class TestProfileAndProbe:
    def test_one_launch_is_inside_of_the_range(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        reply = perform(gpu, profile_task(tmp_path, 1, "scale", "other", "scale"))
        assert isinstance(reply, ProfileReply), reply
        seen = [e for e in gpu.log if e[0] in ("launch", "range")]
        warm_up, looked_at = seen[:3], seen[3:]
        assert warm_up == [("launch", "scale"), ("launch", "other"), ("launch", "scale")]
        assert looked_at == [
            ("launch", "scale"), ("range", True), ("launch", "other"), ("range", False),
            ("launch", "scale"),
        ]  # fmt: skip
        assert len(reply.launch_us) == 3

    def test_a_launch_that_is_not_there_is_refused(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        assert "none is number 1" in refused(gpu, profile_task(tmp_path, 1, "scale")).problem

    def test_a_probe_copies_there_and_back(self, gpu: ScriptedGpu) -> None:
        reply = perform(gpu, ProbeTask())
        assert isinstance(reply, ProbeReply)
        assert reply.facts == gpu.facts

    def test_a_gpu_that_forgets_fails_its_probe(self) -> None:
        class Forgetful(ScriptedGpu):
            def copy(self, target: int, source: int, size_bytes: int) -> None:
                """Does nothing."""

        assert "other bytes" in refused(Forgetful(), ProbeTask()).problem
