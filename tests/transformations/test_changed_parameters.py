"""Kernels that change their own parameters: what a transformation repeats must start from the
launch's values each time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.transformations.base import Transformation
from cudaops.transformations.registry import TRANSFORMATIONS
from tests.transformations.bench import Case, drafts

BY_BLOCK = """
__global__ void nearest(int n, int radius, const int* at, int* found) {
    int batch = blockIdx.x;
    at += batch * n;
    found += batch * n * 4;
    int best[4];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        for (int k = 0; k < 4; k++) best[k] = radius, found[i * 4 + k] = i;
        for (int j = 0; j < n; j++) {
            int apart = abs(at[i] - at[j]), k = at[j] & 3;
            if (i != j && apart < best[k]) best[k] = apart, found[i * 4 + k] = j;
        }
    }
}
"""
BY_THREAD = """
__global__ void steps(const float* x, float* y, int n, float k, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    x += i * stride;
    y += i;
    k *= i;
    float sum = 0.0f;
    for (stride -= 1; stride >= 0; --stride) sum += k * x[stride];
    *y = sum;
}
"""
ACROSS_A_BARRIER = """
__global__ void smooth(const float* x, float* y, int n) {
    __shared__ float tile[64];
    const float* row = x;
    row += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int from = 0; from < n; from += blockDim.x) {
        int i = threadIdx.x;
        tile[i] = from + i < n ? row[i] : 0.0f;
        __syncthreads();
        if (from + i < n) y[i] = tile[i] + (i > 0 ? tile[i - 1] : 0.0f);
        row += blockDim.x;
        y += blockDim.x;
        __syncthreads();
    }
}
"""


def by_block(case: Callable[..., Case]) -> Case:
    rng = np.random.default_rng(1)
    at = rng.integers(0, 200, 6 * 50, dtype=np.int32)
    arguments = {"n": 50, "radius": 90, "at": at, "found": np.zeros(6 * 50 * 4, np.int32)}
    return case(BY_BLOCK, arguments, grid=(6,), block=(64,))


def by_thread(case: Callable[..., Case]) -> Case:
    rng = np.random.default_rng(2)
    arguments = {
        "x": rng.standard_normal(300 * 7, dtype=np.float32), "y": np.zeros(300, np.float32),
        "n": 300, "k": 0.25, "stride": 7,
    }  # fmt: skip
    return case(BY_THREAD, arguments, grid=(5,), block=(64,))


def across_a_barrier(case: Callable[..., Case]) -> Case:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(5 * 150, dtype=np.float32)
    arguments = {"x": x, "y": np.zeros(5 * 150, np.float32), "n": 150}
    return case(ACROSS_A_BARRIER, arguments, grid=(5,), block=(64,))


@pytest.mark.parametrize("one", TRANSFORMATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("make", [by_block, by_thread, across_a_barrier])
def test_every_repetition_starts_from_the_launchs_values(
    one: Transformation, make: Callable[..., Case], case: Callable[..., Case]
) -> None:
    subject = make(case)
    for made in drafts(one, subject):
        subject.same(made, tolerance=1e-5)
