"""What moves with the clocks of the author's program is no result of it, wherever it prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate, Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench, open_workbench

PROGRAM = """
#include <chrono>
#include <cstdio>
#include <cstdlib>
__global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
int main() {
    const int n = 4096;
    float *x, h[4096];
    for (int i = 0; i < n; ++i) h[i] = i;
    cudaMalloc(&x, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    cudaEvent_t a, b;
    cudaEventCreate(&a), cudaEventCreate(&b);
    auto begun = std::chrono::steady_clock::now();
    cudaEventRecord(a);
    twice<<<16, 256>>>(x, n);
    cudaEventRecord(b);
    cudaDeviceSynchronize();
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    auto took = std::chrono::steady_clock::now() - begun;
    double us = std::chrono::duration<double, std::micro>(took).count();
    cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
    printf("n;a;b;c;d\\n%d;%f;%.4f;%.2f;%g\\n", n, ms, us, n / us * 1e-3, h[7]);
    for (double at = 0; at < us && at < 1e7; at += 1e6) printf("working\\n");
    printf("time %f energy %f\\n", us, h[5]);
}
"""
REWRITE = """
__global__ void twice_fast(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] + x[i] CHANGE;
}
// @launch twice_fast grid=(gridDim.x) block=(blockDim.x) args=(x, n)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    folder = tmp_path_factory.mktemp("clocks")
    (folder / "clocked.cu").write_text(PROGRAM)
    return open_workbench(
        load_program(folder / "clocked.cu"),
        None,
        (),
        CpuExecutor("A10", kernels),
        Policy(),
        folder / "run",
        sm_arch="sm_86",
        timeout_s=60.0,
    )


def gate(bench: Workbench, change: str) -> Gate:
    rewrite = make_rewrite(REWRITE.replace("CHANGE", change), "user", "given", "for a test")
    return next(iter(whole_program_gates(bench, rewrite)))


def test_times_without_a_unit_and_lines_that_come_and_go_with_them(bench: Workbench) -> None:
    found = gate(bench, "")
    assert found.passed, found.summary
    assert "that the author's program prints otherwise each time" in found.summary


@pytest.mark.parametrize(("at", "printed"), [(7, "prints 15"), (5, "prints 11.0")])
def test_results_beside_times_are_compared(bench: Workbench, at: int, printed: str) -> None:
    found = gate(bench, f"+ (i == {at})")
    assert not found.passed
    assert found.summary.startswith(printed)


def test_clocks_that_go_at_another_rate(bench: Workbench) -> None:
    run = bench.captured.judged
    assert bench.program_runs.sets_clocks
    author = bench.program_runs.author(run).stdout
    times = [
        float(text.split("time ")[1].split()[0])
        for text in (author, *bench.program_runs.others(run))
    ]
    own, fast, slow = times
    assert slow * 20 < own < fast / 20
