"""The author's kernels and a rewrite, compared with the reference in Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cudaops.domain.judge import judge
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.gates.reference import reference_gate, require_author
from cudaops.sandbox.workbench import Workbench
from tests.gates.gate_bench import rewrite_of
from tests.problem.problems import SCALE, SCALE_CU, bench_of

FAST = """\
// @launch fast grid=(ceil_div(n, 128)) block=(128) args=(x, out, n, by)
__global__ void fast(const float* x, float* out, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = BODY;
}
"""
KINDS = """
import numpy as np

def inputs(rng):
    return {
        "rest": 0,
        "h": rng.standard_normal((6, 64)).astype(np.float16),
        "ids": rng.integers(0, 5, 6),
        "mask": rng.random(6) < 0.5,
        "byte": rng.integers(0, 200, 6).astype(np.uint8),
        "wide": rng.standard_normal(6),
        "alpha": rng.random(),
        "shift": int(rng.integers(1, 4)),
    }

def reference(rest, h, ids, mask, byte, wide, alpha, shift):
    total = h.astype(np.float32).sum(axis=1).astype(np.float16)
    return {
        "total": total,
        "next": ids + shift,
        "kept": ~mask,
        "bytes": (byte + 3).astype(np.uint8),
        "scaled": wide * alpha,
        "whole": np.float32(wide.sum()),
    }
"""
KINDS_CU = """\
#include <cuda_fp16.h>
#include <cstdint>
// @launch sums<32> grid=(h_size0) block=(32) smem=4*32 args=(h, total, h_size1)
// @launch rest grid=(1) block=(6+rest) args=(ids,mask,byte,wide,next,kept,bytes,scaled,alpha,shift)
// @launch all<double> grid=(1) block=(1) smem=50000 args=(wide, whole, wide_size)
template <int T> __global__ void sums(const half2* x, __half* total, int n) {
    extern __shared__ float part[];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n / 2; i += T) {
        half2 two = x[blockIdx.x * (n / 2) + i];
        sum += __half2float(__low2half(two)) + __half2float(__high2half(two));
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < T; ++i) sum += part[i];
        total[blockIdx.x] = __float2half(sum);
    }
}
__global__ void rest(const int64_t* ids, const bool* mask, const uint8_t* byte,
                     const double* wide, int64_t* next, bool* kept, unsigned char* bytes,
                     double* scaled, double alpha, int shift) {
    int i = threadIdx.x;
    next[i] = ids[i] + shift;
    kept[i] = !mask[i];
    bytes[i] = byte[i] + 3;
    scaled[i] = wide[i] * alpha;
}
template <class T> __global__ void all(const T* wide, float* whole, int n) {
    T sum = 0;
    for (int i = 0; i < n; ++i) sum += wide[i];
    *whole = sum;
}
"""


@pytest.fixture(scope="module")
def bench(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return bench_of(tmp_path_factory.mktemp("scale"), kernels, SCALE)


def test_every_kind_of_number_and_output(kernels: Path, tmp_path: Path) -> None:
    """Numbers differ from draw to draw; sizes do not."""
    bench = bench_of(tmp_path, kernels, KINDS, KINDS_CU)
    assert {len(set(d.inputs.joinpath("numbers").read_bytes())) > 1 for d in bench.draws} == {True}
    outputs = [(o.name, o.element, o.shape) for o in bench.draws[0].problem.outputs]
    assert outputs == [
        ("total", "f16", (6,)), ("next", "i64", (6,)), ("kept", "bool", (6,)),
        ("bytes", "u8", (6,)), ("scaled", "f64", (6,)), ("whole", "f32", ()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("(i < n)", "(i < n - 2)", "`out[198]` is 6.17435e+16, and the reference .*; 2 of 200"),
        pytest.param(
            "x[i] * by", "x[i] * by * 1.001f", "`out[0]` is .* elements differ by more than 1e-04",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "= x[i]", "= i == 7 ? NAN : x[i]", "`out[7]` is nan, .*; 1 of 200",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "x[i] * by", "x[i] * by + (i == 150 && x[0] > 0)", "`out[150]` is",
            marks=pytest.mark.deep,
        ),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_refused(
    right: str, wrong: str, told: str, kernels: Path, tmp_path: Path
) -> None:
    source = SCALE_CU.replace(right, wrong)
    assert source != SCALE_CU
    told = told.replace("[", r"\[").replace("+", r"\+")
    with pytest.raises(InputError, match=f"k.cu does not compute what p.py does: {told}"):
        bench_of(tmp_path, kernels, SCALE, source)


def test_integers_must_be_equal(kernels: Path, tmp_path: Path) -> None:
    source = KINDS_CU.replace("ids[i] + shift", "ids[i] + shift + (i == 4)")
    with pytest.raises(InputError, match=r"`next\[4\]` is \d, .* says \d; 1 of 6 elements differ$"):
        bench_of(tmp_path, kernels, KINDS, source)


def test_a_rewrite_is_as_near_as_the_author(bench: Workbench) -> None:
    gate = reference_gate(bench, rewrite_of(FAST.replace("BODY", "by * x[i]")))
    assert gate.passed, gate.summary
    assert gate.numbers["draws"] == 4
    assert gate.summary.startswith("4 draws of the problem: out: relative L2 error")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("by * x[i] * 1.01f", " of 200 elements differ by more than 1e-04"),
        ("by * x[i] * 1.00001f", ": relative L2 error 1.0e-05 (baseline "),
        ("i == 3 ? 0.0f : by * x[i]", "`out[3]` is 0, and the reference says"),
        ("by == 2.5f && x[5] < 0 ? 0.0f : by * x[i]", "is 0, and the reference says"),
        ("by * x[i + 100000000]", "address|outside|beyond|fault|out of bounds"),
    ],
)
def test_a_wrong_rewrite_is_not(body: str, told: str, bench: Workbench) -> None:
    """Within what is asked of the author is not enough: it must be as near as theirs."""
    gate = reference_gate(bench, rewrite_of(FAST.replace("BODY", body)))
    assert not gate.passed
    assert any(one in gate.summary for one in told.split("|")), gate.summary


def test_the_gate_is_met_last_and_needed(bench: Workbench) -> None:
    found = evaluate(bench, rewrite_of(FAST.replace("BODY", "by * x[i]")), 1e-3)
    names = [gate.name for gate in found.gates]
    assert names[-2:] == ["reference", "isolation"]
    policy = bench.policy.model_copy(update={"min_speedup": 1e-3})
    assert found.judged(policy).outcome == "provisional"
    without = found.model_copy(
        update={"gates": tuple(g for g in found.gates if g.name != "reference")}
    )
    assert without.judged(policy).reason == "reference: this gate did not run"
    assert judge(without.gates, without.comparisons, policy).outcome == "provisional"


def test_a_wrong_rewrite_is_rejected(bench: Workbench) -> None:
    found = evaluate(bench, rewrite_of(FAST.replace("BODY", "by * x[i] * 1.01f")), 1e-3)
    assert found.judged(bench.policy).outcome == "rejected"


def test_a_run_folder_that_was_moved_still_judges(
    bench: Workbench, kernels: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(bench.folder, tmp_path / "moved"))
    executor = CpuExecutor("A10", kernels, workers=2, program_folder=moved / "problem")
    again = Workbench.load(moved, executor, bench.policy, sm_arch="sm_86", timeout_s=30.0)
    require_author(again)
    assert {draw.folder.parents[2] for draw in again.draws} == {moved}
    assert reference_gate(again, rewrite_of(FAST.replace("BODY", "by * x[i]"))).passed
