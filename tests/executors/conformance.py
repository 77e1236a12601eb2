"""What every executor must do, as tests over CUDA sources; an executor's own test file inherits it.

A subclass gives the `executor` fixture. Nothing here knows how an executor works.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Misbehaved, Unit
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.base import Executor, InputSet
from cudaops.program.plans import baseline_plan, make_rewrite
from tests.executors.cases import (
    Case,
    array,
    before,
    compiled,
    program,
    ran,
    run,
    vector_case,
    went_wrong,
)
from tests.executors.series_conformance import SeriesSuite

SCALE = """
__global__ void scale(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = by * a[i];
}
"""
SCALE_LAUNCH = "scale<<<4, 256>>>(a, b, n, 3.0f)"

REWRITE = """
// @launch scaled grid=(ceil_div(n, 128)) block=(128) args=(a, b, n, by)
__global__ void scaled(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  BODY
}
"""


def rewrite(body: str, text: str = REWRITE) -> Rewrite:
    return make_rewrite(text.replace("BODY", body), "test", "test", "test")


class ConformanceSuite(SeriesSuite):
    """Inherit and give a fixture `executor`."""

    @pytest.fixture
    def scale(self, executor: Executor, tmp_path: Path) -> Case:
        return vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)

    @pytest.mark.essential
    def test_a_captured_launch_holds_geometry_scalars_and_contents(self, scale: Case) -> None:
        w = scale.workload
        assert (w.kernel, w.callee, str(w.grid), str(w.block)) == (
            "scale",
            "scale",
            "(4,1,1)",
            "(256,1,1)",
        )
        assert [a.name for a in w.arguments] == ["a", "b", "n", "by"]
        assert getattr(w.argument("n"), "value", None) == 1000
        assert getattr(w.argument("by"), "value", None) == 3.0
        assert [(a.size_bytes, a.element, a.role) for a in w.allocations] == [
            (4000, "f32", "in"), (4000, "f32", "inout"),
        ]  # fmt: skip
        folder = Path(w.folder)
        np.testing.assert_array_equal(
            array(folder / w.allocations[0].before), 0.5 * np.arange(1000)
        )
        np.testing.assert_array_equal(array(folder / w.allocations[1].before), np.zeros(1000))
        np.testing.assert_array_equal(array(folder / w.allocations[1].after), 1.5 * np.arange(1000))

    @pytest.mark.essential
    def test_a_run_gives_what_numpy_gives(self, executor: Executor, scale: Case) -> None:
        outcome = ran(run(executor, scale))
        np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))

    def test_inputs_and_poison_are_taken(
        self, executor: Executor, scale: Case, tmp_path: Path
    ) -> None:
        other = np.linspace(-1, 1, 1000, dtype=np.float32)
        other.tofile(tmp_path / "other.bin")
        inputs = InputSet(contents={0: str(tmp_path / "other.bin")}, poison={1: 0xCD})
        outcome = ran(run(executor, scale, inputs=inputs))
        np.testing.assert_array_equal(array(outcome.outputs[1]), np.float32(3) * other)

    def test_only_what_is_wanted_comes_back(self, executor: Executor, scale: Case) -> None:
        plan, unit = baseline_plan(scale.workload), compiled(executor, scale)
        for wanted in ((1,), ()):
            folder = scale.folder / f"wanted{len(wanted)}"
            outcome = executor.run(unit, scale.workload, plan, before(scale), folder, wanted=wanted)
            assert set(ran(outcome).outputs) == set(wanted)

    def test_the_second_compile_comes_from_the_cache(self, executor: Executor, scale: Case) -> None:
        first, second = compiled(executor, scale), compiled(executor, scale)
        assert second.cached
        assert first.key == second.key

    @pytest.mark.essential
    def test_a_rewrite_runs_by_its_plan(self, executor: Executor, scale: Case) -> None:
        outcome = ran(run(executor, scale, rewrite("if (i < n) b[i] = a[i] * by;")))
        np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))

    @pytest.mark.essential
    def test_several_launches_and_scratch(self, executor: Executor, scale: Case) -> None:
        text = """
        // @launch first grid=(1) block=(256) args=(a, half, n)
        // @launch second grid=(ceil_div(n, FEW)) block=(FEW) args=(half, b, n, by)
        // @scratch half bytes=4*n
        // @tune FEW = 64, 128
        __global__ void first(const float* a, float* half, int n) {
          for (int i = threadIdx.x; i < n; i += blockDim.x) half[i] = a[i] / 2;
        }
        __global__ void second(const float* half, float* b, int n, float by) {
          int i = blockIdx.x * FEW + threadIdx.x;
          if (i < n) b[i] = 2 * by * half[i];
        }
        """
        outcome = ran(run(executor, scale, rewrite("", textwrap.dedent(text))))
        np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))

    def test_where_a_requirement_fails_the_baseline_runs(
        self, executor: Executor, scale: Case
    ) -> None:
        text = "// @requires n % 7 == 0\n" + REWRITE
        outcome = ran(run(executor, scale, rewrite("if (i < n) b[i] = -1;", text)))
        np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))

    @pytest.mark.essential
    def test_a_compile_error_names_the_candidates_line(
        self, executor: Executor, scale: Case
    ) -> None:
        bad = rewrite("b[i] = undeclared_name;")
        w = scale.workload
        unit = Unit(program=scale.program, kernel=w.kernel, callee=w.callee, rewrite=bad)
        outcome = executor.compile(unit)
        assert isinstance(outcome, CompileFailed)
        assert "undeclared_name" in outcome.message
        assert outcome.location is not None
        assert (outcome.location.file, outcome.location.line) == ("candidate.cu", 5)

    def test_a_compile_error_names_the_authors_line(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        parsed = program(
            tmp_path, SCALE.replace("by * a[i];", "by * a[i]"), "scale<<<1,1>>>(0, 0, 0, 0);"
        )
        outcome = executor.run_program(parsed, (), 30.0)
        assert isinstance(outcome, CompileFailed)
        assert outcome.location is not None
        # Where the semicolon is missing, or where the compiler misses it.
        assert (outcome.location.file, outcome.location.line) in (("k.cu", 5), ("k.cu", 6))

    @pytest.mark.essential
    def test_a_write_past_the_end_is_named_with_its_line(
        self, executor: Executor, scale: Case
    ) -> None:
        outcome = went_wrong(run(executor, scale, rewrite("b[i] = a[i < n ? i : 0];")))
        assert outcome.what in ("out_of_bounds", "guard_overwritten")
        outcome = went_wrong(
            run(executor, scale, rewrite("b[i] = a[i < n ? i : 0];"), check="memory")
        )
        assert outcome.what == "out_of_bounds"
        assert "write of 4 bytes" in outcome.message
        assert "allocation b (size 4000 bytes)" in outcome.message
        assert str(outcome.location) == "candidate.cu:5"

    def test_a_read_past_the_end_is_named_with_its_line(
        self, executor: Executor, scale: Case
    ) -> None:
        bad = rewrite("if (i < n) b[i] = by *\n a[i + 1];")
        outcome = went_wrong(run(executor, scale, bad, check="memory"))
        assert outcome.what == "out_of_bounds"
        assert "read of 4 bytes" in outcome.message
        assert "allocation a" in outcome.message
        assert str(outcome.location) == "candidate.cu:6"

    def test_a_write_before_the_start_overwrites_a_guard(
        self, executor: Executor, scale: Case
    ) -> None:
        outcome = went_wrong(run(executor, scale, rewrite("if (i < 4) b[i - 8] = 1;")))
        assert outcome.what in ("out_of_bounds", "guard_overwritten")
        assert "before the start of allocation b" in outcome.message

    @pytest.mark.essential
    def test_a_kernel_that_never_ends_is_stopped(self, executor: Executor, scale: Case) -> None:
        # Memory, not a local variable: nvcc keeps that in a register, volatile or not, and the
        # loop then ends (seen on an H200, CUDA 13.0). a[0] is 0.
        endless = rewrite("while (*(const volatile float*)a == 0.0f) b[0] = i;")
        assert went_wrong(run(executor, scale, endless, timeout_s=1.0)).what == "timeout"

    def test_a_trap_is_a_crash(self, executor: Executor, scale: Case) -> None:
        outcome = went_wrong(run(executor, scale, rewrite("if (i == 3) __trap();")))
        assert outcome.what == "crash"

    @pytest.mark.parametrize(
        "change",
        [
            {"block": Dim3(x=32, y=32, z=2)},
            {"grid": Dim3(x=0)},
            {"grid": Dim3(y=70000)},
            {"dynamic_smem_bytes": 1_000_000},
        ],
    )
    def test_what_a_device_refuses_is_refused(
        self, executor: Executor, scale: Case, change: dict[str, object]
    ) -> None:
        plan = baseline_plan(scale.workload)
        launch = plan.launches[0].model_copy(update=change)
        plan = plan.model_copy(update={"launches": (launch,)})
        unit = compiled(executor, scale)
        outcome = executor.run(unit, scale.workload, plan, before(scale), scale.folder / "refused")
        assert went_wrong(outcome).what == "launch_refused"

    @pytest.mark.essential
    def test_a_race_on_shared_memory_names_both_lines(
        self, executor: Executor, scale: Case
    ) -> None:
        bad = rewrite(
            "__shared__ float s[128];\n  s[threadIdx.x] = i < n ? a[i] : 0;\n"
            "  float v = s[(threadIdx.x + 33) % 128];\n  if (i < n) b[i] = v;"
        )
        found = [
            w
            for w in ran(run(executor, scale, bad, check="full")).warnings
            if w.what == "shared_race"
        ]
        assert {str(w.location) for w in found} == {"candidate.cu:6", "candidate.cu:7"}
        assert any(
            "candidate.cu:6" in w.message for w in found if str(w.location) == "candidate.cu:7"
        )

    def test_barriers_and_warp_operations_order_threads(
        self, executor: Executor, scale: Case
    ) -> None:
        good = rewrite(
            "__shared__ float s[128];\n  s[threadIdx.x] = i < n ? a[i] : 0;\n  __syncthreads();\n"
            "  float v = s[(threadIdx.x + 33) % 128];\n  __syncthreads();\n  s[threadIdx.x] = v;\n"
            "  __syncwarp();\n  v += s[threadIdx.x ^ 1];\n  if (i < n) b[i] = v;"
        )
        assert ran(run(executor, scale, good, check="full")).warnings == ()

    @pytest.mark.essential
    def test_a_divergent_barrier_names_its_line(self, executor: Executor, scale: Case) -> None:
        bad = rewrite(
            "if (threadIdx.x < 40)\n    __syncthreads();\n  else\n    __syncthreads_or(0);\n"
            "  if (i < n) b[i] = a[i];"
        )
        found = ran(run(executor, scale, bad, check="full")).warnings
        assert {w.what for w in found} == {"divergent_barrier"}
        assert "candidate.cu:6" in {str(w.location) for w in found}

    def test_a_deadlock_is_named(self, executor: Executor, scale: Case) -> None:
        bad = rewrite(
            "if (threadIdx.x % 32 < 16) {\n    float v = __shfl_down_sync(0xffffffffu, a[0], 1);\n"
            "    b[0] = v;\n  } else __syncthreads();"
        )
        outcome = run(executor, scale, bad)
        if not isinstance(outcome, Misbehaved):
            # Hardware may let a divergent warp through (an H200 does); the checker may not.
            assert executor.name == "cuda"
            outcome = run(executor, scale, bad, check="full")
        outcome = went_wrong(outcome)
        assert outcome.what == "deadlock"
        assert str(outcome.location) == "candidate.cu:6"

    def test_unwritten_shared_memory_is_named(self, executor: Executor, scale: Case) -> None:
        bad = rewrite(
            "__shared__ float s[128];\n  if (threadIdx.x < 64) s[threadIdx.x] = 1;\n"
            "  __syncthreads();\n"
            "  if (i < n) b[i] = s[threadIdx.x];"
        )
        found = ran(run(executor, scale, bad, check="full")).warnings
        assert [(w.what, str(w.location)) for w in found] == [
            ("uninitialised_read", "candidate.cu:8")
        ]

    def test_widened_computes_in_double(
        self, executor: Executor, scale: Case, tmp_path: Path
    ) -> None:
        wide = compiled(executor, scale, widened=True)
        value = np.linspace(0, 1, 1000) / 3
        value.tofile(tmp_path / "a.bin")
        inputs = InputSet(contents={0: str(tmp_path / "a.bin")}, poison={1: 0})
        plan = baseline_plan(scale.workload)
        outcome = ran(executor.run(wide, scale.workload, plan, inputs, tmp_path / "wide"))
        np.testing.assert_array_equal(array(outcome.outputs[1], "f64"), 3.0 * value)

    def test_constants_and_device_variables_travel(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        kernels = """
        __constant__ float weights[4];
        __device__ int calls;
        __device__ const int places[4] = {0, 1, 2, 3};  // stands in memory that nobody may write
        static constexpr __device__ int mask = 3;
        __global__ void weigh(const float* a, float* b, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) { b[i] = a[i] * weights[places[i & mask]]; atomicAdd(&calls, 1); }
        }
        """
        launch = """float w[4] = {1, 2, 3, 4};
          cudaMemcpyToSymbol(weights, w, sizeof w);
          weigh<<<4, 256>>>(a, b, n)"""
        case = vector_case(executor, tmp_path, kernels, launch)
        outcome = ran(run(executor, case))
        expected = 0.5 * np.arange(1000) * (np.arange(1000) % 4 + 1)
        np.testing.assert_array_equal(array(outcome.outputs[1]), expected)
        assert array(outcome.global_outputs["calls"], "i32").tolist() == [1000]

    def test_a_structure_travels_by_value(self, executor: Executor, tmp_path: Path) -> None:
        kernels = """
        struct Affine { int n; float scale; double shift; };
        __global__ void affine(const float* a, float* b, Affine f) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < f.n) b[i] = a[i] * f.scale + (float)f.shift;
        }
        """
        case = vector_case(
            executor, tmp_path, kernels, "affine<<<4, 256>>>(a, b, Affine{n, 2.0f, 5.0})"
        )
        outcome = ran(run(executor, case))
        np.testing.assert_array_equal(array(outcome.outputs[1]), np.arange(1000) + 5.0)

    def test_dynamic_shared_memory(self, executor: Executor, tmp_path: Path) -> None:
        kernels = """
        __global__ void reverse(const float* a, float* b, int n) {
          extern __shared__ float tile[];
          int i = threadIdx.x;
          tile[i] = a[i];
          __syncthreads();
          b[i] = tile[blockDim.x - 1 - i];
        }
        """
        case = vector_case(
            executor, tmp_path, kernels, "reverse<<<1, 500, 500 * sizeof(float)>>>(a, b, n)"
        )
        outcome = ran(run(executor, case, check="full"))
        assert outcome.warnings == ()
        np.testing.assert_array_equal(array(outcome.outputs[1])[:500], 0.5 * np.arange(500)[::-1])

    def test_shuffles_votes_and_atomics(self, executor: Executor, tmp_path: Path) -> None:
        kernels = """
        __global__ void sums(const float* a, float* b, int n) {
          int i = threadIdx.x, lane = i & 31;
          float v = a[i];
          for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
          if (lane == 0) atomicAdd(&b[0], v);
          unsigned odd = __ballot_sync(0xffffffffu, i & 1);
          if (i == 0) b[1] = (float)__popc(odd);
          float up = __shfl_up_sync(0xffffffffu, (float)lane, 3, 8);
          float other = __shfl_xor_sync(0xffffffffu, (float)lane, 5, 16);
          double wide = __shfl_sync(0xffffffffu, (double)lane, 40);
          if (i < 32) { b[100 + i] = up; b[200 + i] = other; b[300 + i] = (float)wide; }
          if (lane < 7) { unsigned m = __activemask(); if (i < 32) b[400 + i] = (float)__popc(m); }
          int count = __syncthreads_count(i % 3 == 0);
          if (i == 0) b[2] = (float)count;
        }
        """
        case = vector_case(executor, tmp_path, kernels, "sums<<<1, 256>>>(a, b, n)")
        b = array(ran(run(executor, case)).outputs[1])
        lanes = np.arange(32)
        assert b[0] == (0.5 * np.arange(256)).sum()
        assert (b[1], b[2]) == (16, 86)
        np.testing.assert_array_equal(b[100:132], np.where(lanes % 8 < 3, lanes, lanes - 3))
        np.testing.assert_array_equal(b[200:232], lanes ^ 5)
        np.testing.assert_array_equal(b[300:332], np.full(32, 8))
        np.testing.assert_array_equal(b[400:407], np.full(7, 7))
