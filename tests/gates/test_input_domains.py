"""Kernels that are not defined everywhere: the inputs are chosen where the baseline is at home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudaops.domain.judgement import Judgement, Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.lanes import mostly_deep

POLICY = Policy(min_speedup=0.001, seed=5)

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = BODY;
}
int main() {
    const int n = 1000;
    float h[n], *a, *b;
    for (int i = 0; i < n; ++i) h[i] = 1.0f + i % 7;
    cudaMalloc(&a, sizeof h);
    cudaMalloc(&b, sizeof h);
    cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
    f<<<8, 128>>>(a, b, n);
    cudaMemcpy(h, b, sizeof h, cudaMemcpyDeviceToHost);
    printf("%f %f\\n", h[1], h[2]);
    return 0;
}
"""

REWRITE = """// @launch g grid=(ceil_div(n, 64)) block=(64) args=(a, b, n)
__global__ void g(const float* a, float* b, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) b[i] = BODY;
}
"""


def opened(folder: Path, body: str) -> Workbench:
    source = folder / "f.cu"
    source.write_text(PROGRAM.replace("BODY", body))
    executor = CpuExecutor("A10", Path(os.environ["CUDAOPS_BUILDS"]))
    return open_workbench(
        load_program(source),
        None,
        (),
        executor,
        POLICY,
        folder / "run",
        sm_arch="sm_86",
        timeout_s=20.0,
    )


def judged(bench: Workbench, body: str) -> Judgement:
    rewrite = make_rewrite(REWRITE.replace("BODY", body), "test", "test", "test")
    evaluation = evaluate(bench, rewrite, POLICY.min_speedup)
    return evaluation.judged(POLICY)


@pytest.mark.parametrize(
    ("body", "perturbed", "exact", "wrong"),
    mostly_deep(
        [
            ("a[i] * a[i]", "signed", "exact", "a[i] * fabsf(a[i])"),
            ("1.0f / a[i]", "signed", "exact_positive", "1.0f / (a[i] + 1e-5f)"),
            ("a[i] > 3.0f ? -INFINITY : a[i]", "signed", "exact", "a[i] > 3.0f ? -1e38f : a[i]"),
            ("logf(a[i])", "positive", "exact_positive", "logf(a[i]) + 1e-5f"),
            ("logf(a[i] - 0.4f)", "scaled", "exact_positive", "logf(a[i] - 0.41f)"),
        ],
        3,
    ),
)
def test_inputs_are_where_the_baseline_is_finite(
    tmp_path: Path, body: str, perturbed: str, exact: str, wrong: str
) -> None:
    bench = opened(tmp_path, body)
    oracle = bench.oracle(bench.workloads[0])
    assert (oracle.perturbed[0].kind, oracle.exact.kind) == (perturbed, exact)
    honest = judged(bench, body)
    assert honest.outcome == "provisional", honest.reason
    assert judged(bench, wrong).outcome == "rejected"


def test_sets_on_which_every_result_is_zero_do_not_count(tmp_path: Path) -> None:
    bench = opened(tmp_path, "a[i] >= 1.0f && a[i] == rintf(a[i]) ? a[i] : 0.0f")
    oracle = bench.oracle(bench.workloads[0])
    zero = {one.kind for one in oracle.perturbed if one.is_zero}
    assert {"signed", "positive", "tiny"} <= zero
    others = {one.kind for one in oracle.perturbed} - zero
    assert "exact_touched" in others
    assert not oracle.captured.is_zero
