"""What a series of launches must be on every executor; `conformance.py` takes these tests in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Misbehaved, Ran
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.base import Executor, InputSet
from cudaops.program.plans import baseline_plan, make_rewrite, resolve
from tests.executors.cases import Case, array, before, compiled, vector_case, went_wrong

SCALE = """
__global__ void scale(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = by * a[i];
}
"""
SCALE_LAUNCH = "scale<<<4, 256>>>(a, b, n, 3.0f)"

ONE_THREAD = """
// @launch one grid=(1) block=(1) args=(a, b, n)
// @scratch room bytes=4*n
__device__ int calls;
__device__ unsigned long long held;
__global__ void one(const float* a, float* b, int n) {
  BODY
}
"""


def one_thread(body: str, *, scratch: bool = False) -> Rewrite:
    text = ONE_THREAD.replace("BODY", body)
    if scratch:
        text = text.replace("args=(a, b, n)", "args=(a, b, n, room)")
        text = text.replace("int n) {", "int n, unsigned char* room) {")
    return make_rewrite(text, "test", "test", "test")


def series(
    executor: Executor,
    case: Case,
    inputs: Sequence[InputSet],
    rewrite: Rewrite | None = None,
    timeout_s: float = 60.0,
) -> tuple[Ran, ...] | Misbehaved:
    plan = baseline_plan(case.workload)
    if rewrite is not None:
        plan = resolve(rewrite, case.program.kernel(case.workload.kernel), case.workload)
    unit = compiled(executor, case, rewrite)
    return executor.run_series(
        unit, case.workload, plan, inputs, case.folder / "series", timeout_s=timeout_s
    )


def first_values(outcome: tuple[Ran, ...] | Misbehaved, position: int = 0) -> list[float]:
    assert not isinstance(outcome, Misbehaved), outcome
    return [float(array(one.outputs[1])[position]) for one in outcome]


class SeriesSuite:
    """Inherit and give a fixture `executor`."""

    @pytest.fixture
    def scale_case(self, executor: Executor, tmp_path: Path) -> Case:
        return vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)

    @pytest.mark.essential
    def test_every_launch_of_a_series_has_its_own_inputs_and_outputs(
        self, executor: Executor, scale_case: Case, tmp_path: Path
    ) -> None:
        values = [np.linspace(k, k + 1, 1000, dtype=np.float32) for k in range(3)]
        sets = []
        for number, one in enumerate(values):
            one.tofile(tmp_path / f"{number}.bin")
            contents = {0: str(tmp_path / f"{number}.bin")}
            shift = (0, 0, 2560)[number]
            sets.append(InputSet(contents=contents, poison={1: 0xCD}, shift_bytes=shift))
        outcome = series(executor, scale_case, sets)
        assert not isinstance(outcome, Misbehaved), outcome
        folder = tmp_path / "series"
        for number, (made, value) in enumerate(zip(outcome, values, strict=True)):
            np.testing.assert_array_equal(array(made.outputs[1]), np.float32(3) * value)
            np.testing.assert_array_equal(array(made.outputs[0]), value)
            assert Path(made.outputs[1]).parent == folder / f"launch_{number:02d}"

    @pytest.mark.essential
    def test_a_kernels_own_variables_stay_and_memory_does_not(
        self, executor: Executor, scale_case: Case
    ) -> None:
        """The count goes on; buffers and scratch memory hold what the input set says."""
        body = "b[2] = b[1]; b[1] = room[5]; room[5] = 9; b[0] = ++calls;"
        start = before(scale_case).model_copy(update={"poison": {1: 0}})
        sets = [
            start.model_copy(update={"scratch_poison": 10 + n, "shift_bytes": 256 * (n // 2)})
            for n in range(4)
        ]
        outcome = series(executor, scale_case, sets, one_thread(body, scratch=True))
        assert first_values(outcome) == [1, 2, 3, 4]
        assert first_values(outcome, 1) == [10, 11, 12, 13]
        assert first_values(outcome, 2) == [0, 0, 0, 0]
        again = series(executor, scale_case, sets, one_thread(body, scratch=True))
        assert first_values(again) == [1, 2, 3, 4], "a series begins with a module freshly loaded"

    def test_scratch_memory_stays_where_the_input_set_says_so(
        self, executor: Executor, scale_case: Case
    ) -> None:
        """What every one of its bytes held goes on; outputs are filled anew."""
        body = "b[1] = room[5]; b[2] = room[4 * n - 1]; b[0] = b[3];"
        body += "room[5] += 1; room[4 * n - 1] += 2;"
        start = before(scale_case).model_copy(update={"scratch_poison": 20})
        sets = [
            start.model_copy(
                update={"keep_scratch": keep, "shift_bytes": shift, "poison": {1: 17 * number}}
            )
            for number, (keep, shift) in enumerate(
                [(False, 0), (True, 0), (True, 0), (False, 512), (True, 512), (False, 512)]
            )
        ]
        outcome = series(executor, scale_case, sets, one_thread(body, scratch=True))
        assert first_values(outcome, 1) == [20, 21, 22, 20, 21, 20]
        assert first_values(outcome, 2) == [20, 22, 24, 20, 22, 20]
        background = np.array([17 * n for n in range(6)], np.uint8).repeat(4).view(np.float32)
        assert first_values(outcome) == background.tolist()

    def test_scratch_memory_that_nobody_left_cannot_stay(
        self, executor: Executor, scale_case: Case
    ) -> None:
        start = before(scale_case)
        kept = start.model_copy(update={"keep_scratch": True})
        for sets in ([kept], [start, kept.model_copy(update={"shift_bytes": 256})]):
            with pytest.raises(ValueError, match="keep_scratch needs a launch before"):
                series(executor, scale_case, sets)

    def test_captured_variables_are_set_before_every_launch(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        kernels = """
        __constant__ float weight;
        __device__ int calls = 5;
        __global__ void weigh(const float* a, float* b, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) b[i] = a[i] * weight;
          if (i == 0) calls += 1;
        }
        """
        launch = "float w = 4; cudaMemcpyToSymbol(weight, &w, sizeof w); weigh<<<4, 256>>>(a, b, n)"
        case = vector_case(executor, tmp_path, kernels, launch)
        outcome = series(executor, case, [before(case)] * 2)
        assert not isinstance(outcome, Misbehaved), outcome
        for one in outcome:
            np.testing.assert_array_equal(array(one.outputs[1]), 2.0 * np.arange(1000))
            assert array(one.global_outputs["calls"], "i32").tolist() == [6]

    def test_another_shift_moves_every_buffer(self, executor: Executor, scale_case: Case) -> None:
        """By the lowest bits, which hold in every process: bytes past a multiple of 4096."""
        body = (
            "unsigned long long x = (unsigned long long)a, y = (unsigned long long)b;\n"
            "b[0] = x & 255; b[1] = y & 255; b[2] = x / 256 % 16; b[3] = y / 256 % 16;"
        )
        sets = [
            before(scale_case).model_copy(update={"shift_bytes": shift})
            for shift in (0, 0, 1280, 256, 256)
        ]
        outcome = series(executor, scale_case, sets, one_thread(body))
        assert first_values(outcome, 0) == first_values(outcome, 1) == [0] * 5
        if getattr(executor, "time_source", "") == "standin":
            return  # a launch there is a process of its own, which has addresses of its own
        for place in (2, 3):
            at = first_values(outcome, place)
            assert at[0] == at[1]
            assert at[3] == at[4]
            assert len({at[0], at[2], at[3]}) == 3

    @pytest.mark.essential
    def test_a_fault_says_in_which_launch(self, executor: Executor, scale_case: Case) -> None:
        bad = one_thread("if (++calls == 3) b[n] = 1; b[0] = 1;")
        outcome = went_wrong(series(executor, scale_case, [before(scale_case)] * 4, bad))
        assert outcome.what in ("guard_overwritten", "out_of_bounds")
        assert "launch 3 of 4" in outcome.message
        assert "past the end of allocation b" in outcome.message, outcome

    def test_a_series_that_never_ends_is_stopped(
        self, executor: Executor, scale_case: Case
    ) -> None:
        # Memory, not a local variable: nvcc keeps that in a register. a[0] is 0.
        endless = one_thread(
            "if (++calls == 2) while (*(const volatile float*)a == 0.0f) b[0] = 1;"
        )
        sets = [before(scale_case)] * 3
        assert went_wrong(series(executor, scale_case, sets, endless, 2.0)).what == "timeout"

    def test_a_series_without_inputs_or_with_a_crooked_shift_is_refused(
        self, executor: Executor, scale_case: Case
    ) -> None:
        crooked = before(scale_case).model_copy(update={"shift_bytes": 100})
        for sets in ([], [before(scale_case), crooked]):
            with pytest.raises(ValueError, match=r"input set|multiple of 256"):
                series(executor, scale_case, sets)
