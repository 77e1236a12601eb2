"""What the whole program prints with a rewrite in it, where rounding alone moves a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.sandbox.whole_program import whole_program_gates
from tests.gates.gate_bench import bench_of, rewrite_of

PROGRAM = r"""#include <cmath>
#include <cstdio>
#include <vector>

__global__ void damped(const float* x, float* y, int n, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < steps; ++k) v = v * 0.999f + 0.37f * v * (1.0f - v);
    y[i] = v;
}

int main() {
    const int n = 2048, steps = 50;
    std::vector<float> x(n), y(n);
    for (int i = 0; i < n; ++i) x[i] = 0.1f + 0.0004f * i;
    float *dx, *dy;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dy, n * sizeof(float));
    cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    damped<<<n / 256, 256>>>(dx, dy, n, steps);
    cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost);
    double error = 0.0, sum = 0.0;
    for (int i = 0; i < n; ++i) {
        double v = x[i];
        for (int k = 0; k < steps; ++k) v = v * 0.999f + 0.37f * v * (1.0 - v);
        error += (y[i] - v) * (y[i] - v);
        sum += y[i];
    }
    printf("RMSE %.6e\n", std::sqrt(error / n));
    printf("mean %.6f\n", sum / n);
    return 0;
}
"""
REWRITE = """// @launch fast grid=(ceil_div(n, 256)) block=(256) args=(x, y, n, steps)
__global__ void fast(const float* x, float* y, int n, int steps) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < steps; ++k) v = v * (0.999f + 0.37f * (1.0f - v));
    y[i] = SCALEv;
}
"""


@pytest.mark.parametrize(("scale", "passes"), [("", True), ("1.01f * ", False)])
def test_the_error_that_a_program_prints_may_move_as_rounding_moves_it(
    tmp_path: Path, kernels: Path, scale: str, passes: bool
) -> None:
    (tmp_path / "damped.cu").write_text(PROGRAM)
    bench = bench_of(CpuExecutor("A10", kernels), tmp_path / "damped.cu", tmp_path / "bench")
    gate, *_ = whole_program_gates(bench, rewrite_of(REWRITE.replace("SCALE", scale)))
    assert gate.passed is passes, gate.summary
    said = "1 differ by rounding alone" if passes else "where the author's program prints"
    assert said in gate.summary
