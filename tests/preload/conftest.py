"""What the tests of `cudaops.preload` share."""

from __future__ import annotations

import pytest

from tests.preload.builds import Made, Reach, made, reach, workload

SCALE = """
__global__ void scale(float* y, const float* x, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""
FASTER = """
// @requires n % 4 == 0 && blockDim.x <= 256 && aligned(x, 16)
// @launch faster grid=(ceil_div(n, 4 * blockDim.x)) block=(blockDim.x) args=(y, x, n / 4, a)
__global__ void faster(float4* y, const float4* x, long long n, double a) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    y[i] = make_float4(a * v.x, a * v.y, a * v.z, a * v.w);
}
"""


@pytest.fixture(scope="session")
def reached() -> Reach:
    """The double of libcuda.so.1 and programs that launch by it."""
    return reach()


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The library of a rewrite with a guard: sizes in fours, blocks up to 256, aligned input."""
    captured = workload("scale", y="f32", x="f32", n=("i32", 4096), a=("f32", 0.5))
    return made(tmp_path_factory.mktemp("scale"), SCALE, FASTER, [captured])
