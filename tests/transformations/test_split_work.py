"""Loops divided over more blocks and a second kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.split_work import SplitWork
from tests.transformations.bench import Case, every_setting

COLUMNS = """
__global__ void columns(const float* x, const float* w, float* y, float* top, int n, int m) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < m) {
        float sum = w[j], most = -1e30f;  // not from nothing
        for (int i = 0; i < n; i++) {
            sum += x[i * m + j] * w[i];
            most = max(most, x[i * m + j]);
        }
        y[j] += sum;
        top[j] = most;
    }
}"""

TREE = """
template <int THREADS>
__global__ void total(const int* x, long long* out, int n) {
    __shared__ long long part[THREADS];
    long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}"""

PLANES = """
__global__ void planes(const double* x, double* y, int n, int h, int w) {
    __shared__ double scale;
    if (threadIdx.x == 0 && threadIdx.y == 0) scale = x[0];
    __syncthreads();
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= w || r >= h) return;
    const double* p = x + r * w + c;
    double product = 1.0;
    for (int i = n; i > 0; --i) {
        product *= *p * scale;
        p += h * w;
    }
    y[r * w + c] = product;
}"""

ELSE = """
__global__ void either(const unsigned* x, unsigned* y, int n, bool down) {
    int j = threadIdx.x;
    unsigned bits = 9;
    if (!down) {
        for (int i = 0; i < n; i++) bits ^= x[i * 32 + j];
    } else {
        bits = x[j];
    }
    y[j] = bits;
}"""


def _same(made: Case, tolerance: float = 0.0) -> None:
    drafts = every_setting(SplitWork(), made)
    assert drafts
    for draft in drafts.values():
        made.same(draft, tolerance=tolerance)
        assert len(draft.launches) == 2


def test_columns(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(2).normal(size=(211, 37)).astype(np.float32)
    made = case(
        COLUMNS,
        {"x": x, "w": x[:, 0].copy(), "y": x[0].copy(), "top": x[0] * 0, "n": 211, "m": 37},
        grid=(2,), block=(32,),
    )  # fmt: skip
    _same(made, 1e-5)
    assert "// not from nothing" in made.applied(SplitWork()).text


def test_a_tree_after_the_loop(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(2).integers(-9, 9, 5000).astype(np.int32)
    made = case(
        TREE, {"x": x, "out": np.zeros(6, np.int32), "n": 5000},
        grid=(3,), block=(64,), callee="total<64>",
    )  # fmt: skip
    _same(made)


def test_planes_of_a_grid_in_two_dimensions(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(2).uniform(0.9, 1.1, (70, 9, 13))
    made = case(
        PLANES, {"x": x, "y": x[0].copy(), "n": 70, "h": 9, "w": 13}, grid=(2, 3), block=(8, 4)
    )
    _same(made, 1e-12)
    assert "blockIdx.z" in made.applied(SplitWork()).text


def test_one_of_two_ways(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(2).integers(0, 1 << 30, (80, 32)).astype(np.uint32)
    for down in (0, 1):
        made = case(ELSE, {"x": x, "y": x[0] * 0, "n": 80, "down": down}, grid=(1,), block=(32,))
        _same(made)


REFUSED = {
    "a store before the loop": "y[j] = 1; for (int i = 0; i < n; i++) s += x[i * 32 + j];",
    "an atomic before it": "atomicAdd(y, 1.f); for (int i = 0; i < n; i++) s += x[i * 32 + j];",
    "a loop around it": "for (int k = 0; k < 3; k++) { "
    "for (int i = 0; i < n; i++) s += x[i * 32 + j]; s *= 2; }",
    "a store in it": "for (int i = 0; i < n; i++) { s += x[i * 32 + j]; y[i * 32 + j] = 0; }",
    "values handed on": "for (int i = 0; i < n; i++) s = s * 0.5f + x[i * 32 + j];",
    "a counter looked at later": "int i = 0; while (i < n) { s += x[i * 32 + j]; i++; } s += i;",
    "all axes in use": "s = gridDim.y + gridDim.z; for (int i = 0; i < n; i++) s += x[i * 32 + j];",
    "too short": "for (int i = 0; i < 6; i++) s += x[i * 32 + j];",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    x = np.zeros((40, 32), np.float32)
    made = case(
        "__global__ void k(const float* x, float* y, int n) {\n    int j = threadIdx.x;\n"
        f"    float s = 0;\n    {body}\n    y[j] += s;\n}}",
        {"x": x, "y": x + 0, "n": 40}, grid=(1,), block=(32,),
    )  # fmt: skip
    if body != REFUSED["too short"]:
        with pytest.raises(NotUnderstood):
            SplitWork().apply(made.draft, {"parts": 8, "loop": 0})
    with contextlib.suppress(NotUnderstood):
        assert SplitWork().settings(made.draft) == ()
