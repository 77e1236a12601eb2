"""Gate `correctness_domain`: inputs that follow from a rewrite's plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.workload import ScalarArgument, Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.domain import domain_gate, domain_of
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench

PEAKS = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const int* x, int* kept, int* peak, int n, int least) {
    __shared__ int most;
    if (threadIdx.x == 0) most = least;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        kept[i] = x[i] > least ? x[i] : 0;
        atomicMax(&most, x[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) peak[blockIdx.x] = SHARE;
}
int main() {
    const int n = 900, blocks = (n + 63) / 64;
    int x[n], *dx, *dk, *dp;
    for (int i = 0; i < n; ++i) x[i] = i * 37 % 211;
    cudaMalloc(&dx, sizeof x); cudaMalloc(&dk, sizeof x); cudaMalloc(&dp, blocks * 4);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    f<<<blocks, 64>>>(dx, dk, dp, n, 5);
    cudaMemcpy(x, dk, sizeof x, cudaMemcpyDeviceToHost);
    printf("%d\\n", x[3]);
}
"""
TWO_A_THREAD = """
// @launch g grid=(ceil_div(n, 64)) block=(32) args=(x, kept, peak, n, least)
__global__ void g(const int* x, int* kept, int* peak, int n, int least) {
    int most = least;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < min(n, (int)blockIdx.x * 64 + 64); i += 32) {
        kept[i] = x[i] > least ? x[i] : 0;
        most = max(most, x[i]);
    }
    for (int o = 16; o > 0; o /= 2) most = max(most, __shfl_xor_sync(~0u, most, o));
    if (threadIdx.x == 0) peak[blockIdx.x] = most;
}
"""


def opened(folder: Path, text: str) -> Workbench:
    folder.mkdir(exist_ok=True)
    (folder / "f.cu").write_text(text)
    executor = CpuExecutor("A10", folder / "cache", program_folder=folder)
    return open_workbench(
        load_program(folder / "f.cu"), None, (), executor, Policy(seed=7), folder / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


def judged(bench: Workbench, text: str) -> Gate:
    return domain_gate(bench, make_rewrite(text, "test", "test", "test")).gate


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return opened(tmp_path_factory.mktemp("peaks"), PEAKS.replace("SHARE", "most"))


def test_a_grid_that_one_argument_tells_goes_with_it(peaks: Workbench) -> None:
    """A block more always writes a peak more: no draw shows which grid belongs to fewer numbers."""
    gate = judged(peaks, TWO_A_THREAD)
    assert gate.passed, gate.summary
    assert "gridDim.x is ceil_div(n, 64) as in every recorded launch" in gate.summary


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("ceil_div(n, 64)", "n / 65 + 2"), ("i < min(n,", "i < min(900,")],
    ids=["another grid for other sizes", "the captured size"],
)
def test_what_is_wrong_for_fewer_numbers_is_refused(
    peaks: Workbench, right: str, wrong: str
) -> None:
    assert not judged(peaks, TWO_A_THREAD.replace(right, wrong)).passed


def test_blocks_that_the_author_computes_with_are_no_assumption(tmp_path: Path) -> None:
    bench = opened(tmp_path / "share", PEAKS.replace("SHARE", "most / (int)gridDim.x"))
    text = TWO_A_THREAD.replace("= most;\n}", "= most / (int)gridDim.x;\n}")
    assert not judged(bench, text).passed
    gate = judged(bench, text.replace("grid=(ceil_div(n, 64))", "grid=(gridDim.x)"))
    assert gate.passed, gate.summary


def test_a_plan_for_one_size_is_judged_on_further_inputs_of_it(tmp_path: Path) -> None:
    """Most draws have a smaller size, on which the author's kernel runs."""
    bench = opened(tmp_path / "held", PEAKS.replace("peak[blockIdx.x] = SHARE", "(void)most"))
    text = TWO_A_THREAD.replace("if (threadIdx.x == 0) peak[blockIdx.x] = most;", "")
    free = judged(bench, text)
    held = judged(bench, "// @requires n == 900" + text)
    assert free.passed, free.summary
    assert held.passed, held.summary
    drawn = domain_of(bench, bench.workloads[0]).domain.inputs
    of_it = [one for one in drawn if 900 in _integers(one.trial.workload)]
    assert held.numbers["inputs"] > len(of_it) + 30


def _integers(workload: Workload) -> list[int | float]:
    return [a.value for a in workload.arguments if isinstance(a, ScalarArgument)]
