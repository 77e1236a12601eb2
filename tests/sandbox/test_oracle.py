"""Sets of inputs: what stands in them, which the baseline bears, and how they are launched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.workload import Allocation, Element, PointerArgument, Workload
from cudaops.errors import InputError
from cudaops.executors.arrays import Array, read_array, write_array
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.correctness import input_set_summary
from cudaops.gates.repeat import PAGE, POISONS, REPEATS, fresh_process_launch, schedule
from cudaops.program.analysis.summary import facts_of_launch
from cudaops.sandbox.inputs import (
    EXACT_CASES,
    INTEGER_KINDS,
    PIECE,
    CaseDraw,
    CaseKind,
    build_case,
    drawn,
    write_drawn,
)
from cudaops.sandbox.oracle import (
    UNSETTLED,
    Oracle,
    OracleBuilder,
    Reference,
    SkippedInputs,
)
from cudaops.sandbox.timed_references import timed_references
from tests.executors.cases import array
from tests.gates.verification_bench import (
    EACH,
    SUM,
    TIMEOUT_S,
    opened,
    opened_program,
    oracle,
    verified,
)

DOUBLES = """
#include <cstdio>
#include <cuda_runtime.h>
__constant__ double scale[2] = {1.25, 0.1};
template <class T> __device__ T twice(T x) { return x + T(x); }
__global__ void f(const double* a, double* b, const float* w, int n) {
  extern __shared__ double part[];
  double2 pair = make_double2(0.0, double(1));
  double sum = 0.0;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    sum += twice(a[i]) * w[i] * scale[1] + max(pair.x, 0.0) + sqrt(fabs(a[i])) * rsqrt(2.0 + i);
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
  part[threadIdx.x] = sum * pair.y;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(&b[0], part[threadIdx.x] / scale[0]);
}
int main() {
  const int n = 1000;
  double h[n], *a, *b;
  float k[n], *w;
  for (int i = 0; i < n; ++i) h[i] = 1 + i % 7, k[i] = i % 5 + 0.5f;
  cudaMalloc(&a, sizeof h);
  cudaMalloc(&b, sizeof(double));
  cudaMalloc(&w, sizeof k);
  cudaMemset(b, 0, sizeof(double));
  cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemcpy(w, k, sizeof k, cudaMemcpyHostToDevice);
  f<<<1, 128, 128 * sizeof(double)>>>(a, b, w, n);
  cudaMemcpy(h, b, sizeof(double), cudaMemcpyDeviceToHost);
  printf("%f\\n", h[0]);
  return 0;
}
"""


RECIPROCALS = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const float* x, const float* shape, const float* one_by, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    int row = (i + 0.5f) * one_by[0];
    y[(int)(i - row * shape[0]) * 40 + row] = 0.5f * x[i];
  }
}
int main() {
  const int n = 800;
  float h[n], shape = 20, one_by = 1.0f / 20, *x, *y, *s, *r;
  for (int i = 0; i < n; ++i) h[i] = 1 + i % 7;
  cudaMalloc(&x, sizeof h);
  cudaMalloc(&y, sizeof h);
  cudaMalloc(&s, sizeof(float));
  cudaMalloc(&r, sizeof(float));
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemcpy(s, &shape, sizeof shape, cudaMemcpyHostToDevice);
  cudaMemcpy(r, &one_by, sizeof one_by, cudaMemcpyHostToDevice);
  f<<<1, 128>>>(x, s, r, y, n);
  cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
  printf("%f\\n", h[20]);
  return 0;
}
"""


def workload(folder: Path, element: Element, values: Array) -> Workload:
    """One launch that reads `a` and overwrites `b`."""
    write_array(folder / "a.bin", values, element)
    size = (folder / "a.bin").stat().st_size
    both = [
        Allocation(
            index=n, size_bytes=size, element=element, role=role, before="a.bin", after="a.bin"
        )
        for n, role in enumerate(("in", "out"))
    ]
    arguments = [PointerArgument(name="ab"[n], element=element, allocation=n) for n in (0, 1)]
    return Workload(
        id="w0",
        kernel="f",
        callee="f",
        site=0,
        grid=Dim3(),
        block=Dim3(),
        arguments=tuple(arguments),
        allocations=tuple(both),
        folder=str(folder),
    )


def made(folder: Path, element: Element, values: Array, draw: CaseDraw) -> Array:
    inputs = build_case(workload(folder, element, values), draw, folder / draw.kind, 0x5A)
    assert inputs.poison == {1: 0x5A}
    return read_array(inputs.contents[0], element).astype(np.float64)


@pytest.mark.parametrize(
    ("element", "narrower"),
    [("f16", 448.0), ("bf16", 65504.0), ("f32", 65504.0), ("f64", 2.0**128)],
)
def test_large_and_tiny_leave_the_range_of_a_narrower_type(
    tmp_path: Path, element: Element, narrower: float
) -> None:
    ones = np.ones(4096)
    large = made(tmp_path, element, ones, CaseDraw("large", 1))
    tiny = made(tmp_path, element, ones, CaseDraw("tiny", 1))
    assert np.isfinite(large).all()
    assert (large < 0).any()
    assert (np.abs(large) ** 2).max() > narrower
    assert 0 < np.abs(tiny).max() < 0.1
    assert (made(tmp_path, element, ones, CaseDraw("large", 1, signed=False)) >= 0).all()


def test_structured_is_one_value_but_for_a_few_large_ones(tmp_path: Path) -> None:
    values = made(tmp_path, "f32", np.ones(4096), CaseDraw("structured", 1))
    large = np.abs(values) >= 16
    assert (values[~large] == 0).all()
    assert large[0]
    assert large[-1]
    assert 100 < large.sum() < 300
    positive = made(tmp_path, "f32", np.ones(4096), CaseDraw("structured", 1, signed=False))
    assert (positive >= 1).all()


@pytest.mark.parametrize("kind", INTEGER_KINDS)
def test_integers_stay_among_the_captured_ones(tmp_path: Path, kind: CaseKind) -> None:
    captured = np.arange(0, 3000, 3)
    values = made(tmp_path, "i32", captured, CaseDraw(kind, 1))
    assert np.isin(values, captured).all()
    changed = np.count_nonzero(values != captured)
    assert 1 <= changed <= 4 if kind == "touched" else changed > 500


def test_no_value_keeps_most_of_the_places(tmp_path: Path) -> None:
    captured = np.where(np.arange(6400) % 8 == 0, np.arange(6400) % 64, 5)
    values = made(tmp_path, "i32", captured, CaseDraw("spread", 1))
    assert set(values) == set(captured)
    assert np.count_nonzero(values == 5) < 6400 / 4


@pytest.mark.parametrize(("dtype", "element"), [(np.int32, "i32"), (np.int8, "i8")])
def test_every_value_of_a_large_buffer_is_spread(dtype: type, element: Element) -> None:
    """As drawn since there are pieces: the same seed means the same contents."""
    captured: Array = np.random.default_rng(2).integers(-100, 100, 2 * PIECE + 7).astype(dtype)
    values = drawn(CaseDraw("spread", 3), element, captured, np.random.default_rng(5))
    generator = np.random.default_rng(5)
    sizes = (PIECE, PIECE, 7)
    generator.spawn(len(sizes))  # those of the pieces' different values, which draw nothing
    among = np.unique(captured)
    each = zip(generator.spawn(len(sizes)), sizes, strict=True)
    np.testing.assert_array_equal(values, np.concatenate([own.choice(among, n) for own, n in each]))


def test_another_seed_gives_other_values(tmp_path: Path) -> None:
    ones = np.ones(100)
    one, again, other = (
        made(tmp_path, "f32", ones, CaseDraw("signed", seed)) for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert not (one == other).any()


def fabricated(kinds: tuple[CaseKind, ...], seed: int, tmp_path: Path) -> Oracle:
    references = {
        kind: Reference(
            kind, InputSet(contents={0: kind}, poison={1: 1}), {}, None, unwritten=kind == "large"
        )
        for kind in kinds
    }
    exact = references.get("exact", references["captured"])
    others = tuple(r for k, r in references.items() if k not in ("captured", "exact"))
    one = workload(tmp_path, "f32", np.ones(4))
    return Oracle(one, references["captured"], others, exact, (), seed)


@pytest.mark.parametrize(
    "kinds",
    [
        ("captured",),
        ("captured", "permuted"),
        ("captured", "exact", "signed", "exact_touched", "large"),
        ("captured", "exact", "signed", "exact_touched", "large", "structured", "tiny",
         "positive", "scaled"),
    ],
)  # fmt: skip
def test_ten_launches_cover_inputs_places_and_backgrounds(
    kinds: tuple[CaseKind, ...], tmp_path: Path
) -> None:
    for seed in range(20):
        made_of = fabricated(kinds, seed, tmp_path)
        launches = schedule(made_of, "candidate")
        assert [one.number for one in launches] == list(range(1, REPEATS + 1))
        counts = Counter(one.reference.kind for one in launches)
        assert set(counts) == set(kinds)
        assert max(counts.values()) - min(counts.values()) <= 1
        shifts = [one.inputs.shift_bytes for one in launches]
        assert shifts[0::2] == shifts[1::2]
        assert len({shift % PAGE for shift in shifts}) == REPEATS // 2
        assert all(shift % 256 == 0 for shift in shifts)
        if len(kinds) > 1:
            pairs = zip(launches[0::2], launches[1::2], strict=True)
            assert all(a.reference.kind != b.reference.kind for a, b in pairs)
        assert Counter(one.inputs.scratch_poison for one in launches) == dict.fromkeys(POISONS, 2)
        assert [one.inputs.keep_scratch for one in launches] == [False, True] * (REPEATS // 2)
        assert {one.inputs.scratch_poison for one in launches[0::2]} == set(POISONS)
        assert not fresh_process_launch(made_of, "candidate").inputs.keep_scratch
        for one in (*launches, fresh_process_launch(made_of, "candidate")):
            fill = 1 if one.reference.unwritten else one.inputs.scratch_poison
            assert one.inputs.poison == {1: fill}
        if "exact_touched" in kinds:
            together = [
                {a.reference.kind, b.reference.kind}
                for a, b in zip(launches[0::2], launches[1::2], strict=True)
            ]
            assert {"exact", "exact_touched"} in together
    assert schedule(made_of, "candidate") == launches
    assert schedule(made_of, "other") != launches


def test_few_sets_are_said(tmp_path: Path) -> None:
    few = fabricated(("captured", "permuted"), 1, tmp_path)._replace(
        skipped=(
            SkippedInputs("touched", "the same as another set"),
            SkippedInputs("reversed", "fails"),
        )
    )
    said = input_set_summary([few, fabricated(("captured", "exact", "signed"), 1, tmp_path)])
    assert said.numbers == {"input_sets": 2.0, "input_sets_left_out": 2.0}
    assert said.summary.startswith("only 2 sets of inputs in all, fewer than 5")
    assert "touched (the same as another set); reversed (fails)" in said.summary


class TestBaselines:
    """What the author's kernel bears decides which sets there are."""

    def test_a_plain_kernel_has_every_set(self, cpu_executor: CpuExecutor, tmp_path: Path) -> None:
        bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] * 0.1f"))
        found = oracle(bench)
        kinds = [one.kind for one in found.references]
        assert kinds[:5] == ["captured", "exact", "signed", "exact_touched", "large"]
        assert not any(one.unwritten for one in found.references)
        # A tenth of an integer is none, so even those cases have a run in double beside them.
        assert all(one.wide_outputs is not None for one in found.references)
        for one in found.references:
            np.testing.assert_allclose(
                array(one.outputs[1]), 0.1 * array(one.inputs.contents[0]), rtol=1e-6
            )

    def test_a_launch_of_a_shape_that_is_known_has_its_own_inputs_and_others(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] * n"))
        first = oracle(bench)
        work, folder = first.workload, tmp_path / "minimal"
        builder = OracleBuilder(
            cpu_executor, bench.baseline(work), work, bench.policy, folder, TIMEOUT_S
        )
        second = builder.build(7, budget="minimal")
        assert (first.budget, second.budget) == ("full", "minimal")
        assert (first.exact.kind, second.exact.kind) == ("exact", "captured")
        assert second.perturbed
        assert timed_references(second)[1:]
        said = input_set_summary([first, second])
        assert said.numbers["input_sets"] == len(first.references)

    @pytest.mark.parametrize(("index", "looked_at"), [("i", False), ("a[i] % 8", True)])
    def test_every_access_is_looked_at_where_integers_may_be_indices(
        self, cpu_executor: CpuExecutor, tmp_path: Path, index: str, looked_at: bool
    ) -> None:
        body = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        body += f"    if (i < n) b[i] = a[{index}] * 2;"
        bench = opened(cpu_executor, tmp_path, body, element="int")
        workload = bench.workloads[0]
        program = bench.program
        facts = facts_of_launch(program, program.kernel("f"), workload)
        assert facts is not None
        assert facts.touches_the_same is not looked_at
        assert {one.kind for one in oracle(bench).references} > {"captured", "permuted", "spread"}

    def test_where_the_last_of_several_threads_decides_is_no_set(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """Every place has one thread on the captured values, and several on most others."""
        head = "    int at = blockIdx.x * blockDim.x + threadIdx.x, i = INDEX;\n"
        body = head + "    if (0 <= i && i < n - 6) b[i - i % 7 + a[i] - 1] = i;"
        bench = opened(cpu_executor, tmp_path, body.replace("INDEX", "at"), element="int")
        found = oracle(bench)
        assert {one.kind for one in found.skipped if one.why == UNSETTLED} >= {"spread", "permuted"}
        assert {one.kind for one in found.references} == {"captured", "reversed", "relaunched"}
        other = body.replace("INDEX", "n - 7 - at")
        source = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        source += f"__global__ void g(const int* a, int* b, int n) {{\n{other}\n}}\n"
        gates = verified(bench, source)
        assert all(gate.passed for gate in gates), [g.line for g in gates]

    def test_exact_results_need_no_yardstick(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        found = oracle(opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] * a[i]")))
        exact = [one for one in found.references if one.kind in EXACT_CASES]
        assert len(exact) == 2
        assert all(one.wide_outputs is None for one in exact)

    def test_where_the_baseline_is_far_from_its_run_in_double_nothing_is_judged(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """1e-6 is lost beside 1e3, and the captured values are not."""
        body = EACH.replace("BODY", "(a[i] + 1000.0f) - 1000.0f")
        found = oracle(opened(cpu_executor, tmp_path, body))
        why = {one.kind: one.why for one in found.skipped}
        assert "away from its own run in double" in why["tiny"]
        assert len(found.references) >= 5

    def test_a_logarithm_is_at_home_on_positive_values(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        found = oracle(opened(cpu_executor, tmp_path, EACH.replace("BODY", "logf(a[i])")))
        kinds = [one.kind for one in found.references]
        assert kinds[:5] == ["captured", "exact_positive", "positive", "exact_touched", "large"]
        in_places = {one.kind for one in found.references if one.non_finite}
        assert in_places == {"exact", "signed", "infinite"}

    def test_what_is_not_finite_in_places_is_held_against_the_places(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """inf - inf is NaN; a rewrite that looks for infinities gives 0 there."""
        bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] - 0.5f * a[i]"))
        head = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        head += "__global__ void g(const float* a, float* b, int n) {\n"
        same = EACH.replace("BODY", "__fmaf_rn(a[i], -0.5f, a[i])")
        gates = verified(bench, f"{head}{same}\n}}\n")
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        guarded = EACH.replace("BODY", "isinf(a[i]) ? 0.0f : 0.5f * a[i]")
        stopped = verified(bench, f"{head}{guarded}\n}}\n")[-1]
        assert (stopped.name, stopped.passed) == ("correctness_perturbed", False)
        assert stopped.summary.startswith("infinite inputs")
        infinite = next(one for one in oracle(bench).references if one.kind == "infinite")
        assert infinite.non_finite
        assert np.isnan(array(infinite.outputs[1])).sum() == 10

    def test_an_overflow_on_the_way_may_be_avoided(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """The author's fourth power overflows for large inputs, its root would not."""
        bench = opened(
            cpu_executor,
            tmp_path,
            EACH.replace("BODY", "sqrtf(a[i]*a[i]*a[i]*a[i]*a[i]*a[i]*a[i])"),
        )
        found = oracle(bench)
        large = next(one for one in found.references if one.kind == "large")
        assert large.non_finite
        head = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        head += "__global__ void g(const float* a, float* b, int n) {\n"
        better = "fabsf(a[i]) * sqrtf(a[i]) * fabsf(a[i]) * fabsf(a[i])"
        gates = verified(bench, f"{head}{EACH.replace('BODY', better)}\n}}\n")
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        cut = f"fabsf(a[i]) > 1e5f ? 0.0f : {better}"
        stopped = verified(bench, f"{head}{EACH.replace('BODY', cut)}\n}}\n")[-1]
        assert (stopped.name, stopped.passed) == ("correctness_perturbed", False)

    def test_what_is_finite_nowhere_is_no_set(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        body = SUM.replace("sum += a[i]", "sum += a[i] * a[i]")
        found = oracle(opened(cpu_executor, tmp_path, body, outputs=1))
        why = {one.kind: one.why for one in found.skipped}
        assert why["infinite"] == "the baseline is finite nowhere on it"


class TestOrder:
    """The order in which a processor runs threads is not to be taken for the kernel's result."""

    def test_a_legacy_kernel_is_judged_by_its_run_in_lockstep(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        body = """    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? a[i] : 0.0f;
    for (int d = 16; d; d /= 2) s[t] += s[t ^ d];
    if (i < n) b[i] = s[t];"""
        bench = opened(cpu_executor, tmp_path, body)
        assert any("without __syncwarp (f.cu:8)" in limit for limit in bench.limits)
        head = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        head += "__global__ void g(const float* a, float* b, int n) {\n"
        ordered = """    int i = blockIdx.x * 128 + threadIdx.x;
    float sum = i < n ? a[i] : 0.0f;
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (i < n) b[i] = sum;"""
        gates = verified(bench, f"{head}{ordered}\n}}\n")
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        stopped = verified(bench, f"{head}{body}\n}}\n")[-1]
        assert (stopped.name, stopped.passed) == ("checker", False)

    def test_where_the_order_of_warps_decides_nothing_is_judged(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        body = """    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? a[i] : 0.0f;
    if (i < n) b[i] = s[(t + 32) % 128];"""
        bench = opened(cpu_executor, tmp_path, body)
        with pytest.raises(InputError, match=r"f\.cu:8 reads shared memory that another warp"):
            oracle(bench)
        assert any("no rewrite of f can be judged" in limit for limit in bench.limits)


class TestDoubles:
    """What is computed in double is compared with a run in long double."""

    def test_a_sum_in_another_order_passes_and_one_without_a_term_does_not(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        body = SUM.replace("float", "double").replace("+= a[i]", "+= 0.1 * a[i]")
        bench = opened(cpu_executor, tmp_path, body, element="double", outputs=1)
        assert all(one.wide_outputs for one in oracle(bench).references)
        head = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        head += "__global__ void g(const double* a, double* b, int n) {\n"
        turned = body.replace("int i = 0; i < n; ++i", "int i = n - 1; i >= 0; --i")
        gates = verified(bench, f"{head}{turned}\n}}\n")
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        assert "(baseline " in gates[1].summary
        short = turned.replace("i >= 0", "i > 0")
        assert not verified(bench, f"{head}{short}\n}}\n")[-1].passed

    def test_vectors_shuffles_constants_and_atomics_of_doubles_are_widened(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        source = tmp_path / "f.cu"
        source.write_text(DOUBLES)
        bench = opened_program(cpu_executor, source, tmp_path / "run")
        found = oracle(bench)
        assert found.captured.wide_problem is None
        for one in found.references:
            if one.wide_outputs is None or one.non_finite:
                continue
            for index, path in one.wide_outputs.items():
                wide, plain = array(path, "f64"), array(one.outputs[index], "f64")
                np.testing.assert_allclose(plain, wide, rtol=1e-12)
        assert any(
            (array(one.wide_outputs[1], "f64") != array(one.outputs[1], "f64")).any()
            for one in found.references
            if one.wide_outputs
        )

    def test_what_has_no_wider_run_says_why(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        body = EACH.replace("BODY", "(double)(0.1L * (long double)a[i])")
        found = oracle(opened(cpu_executor, tmp_path, body, element="double"))
        assert found.captured.wide_outputs is None
        assert "does not compile" in (found.captured.wide_problem or "")

    def test_places_that_the_baseline_leaves_alone_are_no_ones_fault(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """All captured values are positive, so `b` counts as overwritten; signed ones are not."""
        body = EACH.replace("i < n", "i < n && a[i] > 0").replace("BODY", "a[i] * 0.1f")
        bench = opened(cpu_executor, tmp_path, body)
        found = oracle(bench)
        assert {one.kind for one in found.references if one.unwritten} >= {"exact", "signed"}
        assert not found.skipped or "time limit: " in found.skipped[0].why
        head = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        head += "__global__ void g(const float* a, float* b, int n) {\n"
        gates = verified(bench, f"{head}{body}\n}}\n")
        assert gates[-1].name == "unchanged_inputs"
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        everywhere = body.replace("if (i < n && a[i] > 0)", "if (i < n)")
        stopped = verified(bench, f"{head}{everywhere}\n}}\n")[-1]
        assert (stopped.name, stopped.passed) == ("correctness_exact", False)
        less = body.replace("* 0.1f", "* 0.10001f")
        assert not verified(bench, f"{head}{less}\n}}\n")[-1].passed

    def test_an_index_out_of_range_leaves_a_set_out(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        """`i + a[i]` stays below `n` for the captured values in their own places alone."""
        body = EACH.replace(
            "BODY", "a[min(i + a[i] * (i % 7 == a[i] - 1 ? 1 : n), i + n) % (2 * n)]"
        )
        body = body.replace("if (i < n)", "if (i < n - 8)")
        found = oracle(opened(cpu_executor, tmp_path, body, element="int"))
        assert all("fails on it" in one.why for one in found.skipped), found.skipped
        assert {one.kind for one in found.skipped} >= {"permuted", "resampled"}

    def test_floats_that_say_places_keep_what_was_captured(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        (tmp_path / "f.cu").write_text(RECIPROCALS)
        bench = opened_program(cpu_executor, tmp_path / "f.cu", tmp_path / "run")
        found = oracle(bench)
        assert found.kept == ("shape", "one_by")
        assert len(found.references) >= 5
        one = next(x for x in found.references if x.kind == "signed")
        assert array(one.inputs.contents[1])[0] == 20.0
        assert np.unique(array(one.inputs.contents[0])).size > 100
        said = input_set_summary([found]).summary
        assert "shape, one_by as captured in all of them" in said
        source = "// @launch g grid=(1) block=(128) args=(x, shape, one_by, y, n)\n"
        source += "__global__ void g(const float* x, const float* shape, const float* one_by, "
        source += "float* y, int n) {\n  int i = threadIdx.x;\n"
        source += "  for (; i < n; i += 128) y[i % 20 * 40 + i / 20] = x[i] / FACTOR;\n}\n"
        gates = verified(bench, source.replace("FACTOR", "2"))
        assert all(gate.passed for gate in gates), [g.line for g in gates]
        assert not verified(bench, source.replace("FACTOR", "(x[i] > 7 ? 3 : 2)"))[-1].passed

    def test_a_kernel_without_inputs_is_compared_and_called_weak(
        self, cpu_executor: CpuExecutor, tmp_path: Path
    ) -> None:
        bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "7"), element="int")
        source = "// @launch g grid=(8) block=(128) args=(a, b, n)\n"
        source += "__global__ void g(const int* a, int* b, int n) {\n"
        gates = verified(bench, source + EACH.replace("BODY", "7") + "\n}\n")
        assert all(gate.passed for gate in gates), [g.line for g in gates]


@pytest.mark.parametrize("kind", sorted({*get_args(CaseKind)} - {"captured", "relaunched"}))
@pytest.mark.parametrize("count", [1000, 2 * PIECE + 77])
def test_what_is_written_piece_by_piece_is_what_is_drawn(
    tmp_path: Path, kind: CaseKind, count: int
) -> None:
    source, target = tmp_path / "captured.bin", tmp_path / "drawn.bin"
    np.random.default_rng(1).standard_normal(count).astype(np.float32).tofile(source)
    draw = CaseDraw(kind, 3, signed=False)
    write_drawn(target, draw, "f32", source, np.random.default_rng(5))
    values = drawn(draw, "f32", read_array(source, "f32"), np.random.default_rng(5))
    assert np.array_equal(np.fromfile(target, np.float32), values.astype(np.float32))
    assert len(np.unique(values)) > 1
