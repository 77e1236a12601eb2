"""What a kernel changes through a reference, in a function that it calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Transformation
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.grid_stride import GridStride
from cudaops.transformations.vectorise import Vectorise
from tests.transformations.bench import Case

KERNELS = {
    "a parameter": """
__device__ void shorten(int& n) { n -= 3; }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    shorten(n);
    if (i < n) y[i] = x[i] + n;
}""",
    "a pointer": """
__device__ void move(const float*& x) { ++x; }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    move(x);
    if (i + 1 < n) y[i] = x[i];
}""",
    "a loop's bound": """
__device__ void shorten(int& n) { n -= 100; }
__global__ void k(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] = x[i];
        shorten(n);
    }
}""",
    "a loop's index": """
__device__ void skip(int& i) { i += 1; }
__global__ void k(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] = x[i];
        skip(i);
    }
}""",
    "an offset in a loop": """
__device__ void further(int& at) { at += 5; }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int at = 4 * i;
    float s = 0;
    if (i < 20) {
        for (int j = 0; j < 4; ++j) { s += x[at + j]; further(at); }
        y[i] = s;
    }
}""",
}


@pytest.mark.parametrize("one", [Coarsen(), GridStride(), Vectorise()], ids=lambda x: x.name)
@pytest.mark.parametrize("name", KERNELS)
def test_a_change_through_a_reference_is_seen(
    name: str, one: Transformation, case: Callable[..., Case]
) -> None:
    x = np.random.default_rng(5).standard_normal(400).astype(np.float32)
    arguments = {"x": x, "y": np.zeros(400, np.float32), "n": 390}
    made = case(KERNELS[name], arguments, grid=(4,), block=(32,), callee="k")
    try:
        offered = one.settings(made.draft)
    except NotUnderstood:
        return
    for setting in offered:
        try:
            draft = one.apply(made.draft, setting)
        except NotUnderstood:
            continue
        made.same(draft, tolerance=1e-6)
