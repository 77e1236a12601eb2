"""Loops over outputs, over more blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.distribute import Distribute
from tests.transformations.bench import Case, every_setting

CHANNELS = """
__global__ void channels(const float* x, const float* scale, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float by = 1.0f / scale[i];
        for (int k = 0; k < c; k++) {
            y[k * n + i] = x[k * n + i] * by;  // one output
        }
    }
}"""

PRODUCTS = """
__device__ float dot(const float* a, const float* b, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[k] * b[k];
    return sum;
}
__global__ void products(const float* a, const float* b, float* c, float* d, int n, int m) {
    const int row = threadIdx.x;
    int j, i;
    for (j = 0; j < m; j++) c[row * m + j] = dot(a + row * n, b + j * n, n);
    for (i = m - 1; i >= 0; i--) {
        for (j = 0; j < 2; j++) d[(row * m + i) * 2 + j] = a[row * n] + i - j;
    }
}"""

STAGED = """
__global__ void staged(const int* x, int* y, int* count, int n, int rows) {
    __shared__ int tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    int left = tile[31 - threadIdx.x];
    for (int r = 0; r < rows; r += 2) {
        y[r * 32 + threadIdx.x] = tile[threadIdx.x] * r + left;
        y[(r + 1) * 32 + threadIdx.x] = r;
    }
    for (int r = 0; r < rows; r++) atomicAdd(&count[r % 5], left);
}"""

POINTERS = """
__global__ void pointers(const short* in, double* out, int steps) {
    const short* p = in + threadIdx.x;
    double* q = out + threadIdx.x * steps;
    int k = 0;
    if (threadIdx.x < 30) {
        while (k < steps) {
            q[k] = *p * 0.5;
            p += blockDim.x;
            k++;
        }
    }
}"""


def _same(made: Case) -> None:
    drafts = every_setting(Distribute(), made)
    assert drafts
    for draft in drafts.values():
        made.same(draft)
        assert "blockIdx.y" in draft.text


def test_channels(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(0).normal(size=(37, 50)).astype(np.float32)
    made = case(
        CHANNELS, {"x": x, "scale": x[0] + 9, "y": x * 0, "n": 50, "c": 37}, grid=(2,), block=(32,)
    )
    _same(made)
    assert "// one output" in made.applied(Distribute()).text


def test_a_function_and_counters_that_are_used_twice(case: Callable[..., Case]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(k, 9)).astype(np.float32) for k in (16, 21))
    made = case(
        PRODUCTS,
        {"a": a, "b": b, "c": np.zeros((16, 21), np.float32), "d": np.zeros((16, 42), np.float32),
         "n": 9, "m": 21},
        grid=(1,), block=(16,), callee="products",
    )  # fmt: skip
    _same(made)


def test_shared_memory_and_pointers(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(0).integers(-99, 99, (32, 41)).astype(np.int16)
    made = case(POINTERS, {"in": x, "out": np.zeros((32, 41)), "steps": 41}, grid=(1,), block=(32,))
    _same(made)


ZEROED = """
__global__ void zeroed(const int* x, int* y, int n) {
    __shared__ int own[8][32];
    int t = threadIdx.x;
    for (int k = 0; k < 8; ++k) own[k][t] = 0;
    for (int k = 0; k < n; ++k) own[x[k * 32 + t] & 7][t]++;
    for (int k = 0; k < n; ++k) y[k * 32 + t] = own[k & 7][t];
}
"""


def test_every_block_has_its_shared_memory_whole(case: Callable[..., Case]) -> None:
    """A loop that fills it is no loop over outputs."""
    x = np.random.default_rng(0).integers(0, 99, (20, 32)).astype(np.int32)
    made = case(ZEROED, {"x": x, "y": x * 0, "n": 20}, grid=(1,), block=(32,))
    assert "for (int k = 0; k < 8; ++k)" in Distribute().apply(made.draft, {"parts": 4}).text
    _same(made)


def test_two_stores_and_atomics(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.int32)
    one_store = STAGED.replace("        y[(r + 1) * 32 + threadIdx.x] = r;\n", "")
    made = case(
        one_store,
        {"x": x, "y": np.zeros((50, 32), np.int32), "count": x[:5] + 0, "n": 32, "rows": 50},
        grid=(1,), block=(32,),
    )  # fmt: skip
    _same(made)
    two = case(
        STAGED,
        {"x": x, "y": np.zeros((50, 32), np.int32), "count": x[:5] + 0, "n": 32, "rows": 50},
        grid=(1,), block=(32,),
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Distribute().apply(two.draft, {"parts": 4})


ABOVE = """
__global__ void surface(const float* points, float* y, int degree, int n, int m) {
    int i, j, k, l;
    float u, v, bu, bv;
    i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u = i / (float)n;
    for (j = 0; j < m; j++) {
        v = j / (float)m;
        float sum = 0;
        for (k = 0; k <= degree; k++) {
            if (k % 2) bu = u; else bu = 1 - u;
            for (l = 0; l <= degree; l++) {
                if (l > 2) continue;
                bv = v * l;
                sum += points[k * (degree + 1) + l] * bu * bv;
            }
        }
        y[i * m + j] = sum;
    }
}"""


def test_variables_that_are_declared_above_the_loop(case: Callable[..., Case]) -> None:
    """They are set anew in each iteration, in inner loops and on both sides of conditions."""
    points = np.random.default_rng(0).normal(size=16).astype(np.float32)
    y = np.zeros((37, 29), np.float32)
    made = case(
        ABOVE, {"points": points, "y": y, "degree": 3, "n": 37, "m": 29}, grid=(2,), block=(32,)
    )
    _same(made)


REFUSED = {
    "a value of the one before": "float b; for (int k = 0; k < n; k++) { if (k % 3 == 0) b = x[k];"
    " y[k * 32 + j] = b; }",
    "a value of an inner loop of the one before": "int l = 0; float b = 1;"
    " for (int k = 0; k < n; k++) { for (l = 0; l < k % 2; l++) b = x[l]; y[k * 32 + j] = b; }",
    "an inner counter that goes on": "int l = 0; for (int k = 0; k < n; k++) {"
    " for (; l < k; l++) s = x[l]; y[k * 32 + j] = 1; }",
    "what is left after a break": "float b = 0; for (int k = 0; k < n; k++) {"
    " for (int l = 0; l < 4; l++) { if (x[l] > l) break; b = x[l]; } y[k * 32 + j] = b; }",
    "what is skipped": "float b = 0; for (int k = 0; k < n; k++) {"
    " for (int l = 0; l < 4; l++) { if (l < k) continue; b = x[l]; } y[k * 32 + j] = b; }",
    "used afterwards": "float b = 0; for (int k = 0; k < n; k++) { b = x[k]; y[k * 32 + j] = b; }"
    " if (b > 9) z[j] = 1;",
    "set by a switch": "float b = 0; for (int k = 0; k < n; k++) { switch (k) {"
    " case 0: b = 1; break; default: break; } y[k * 32 + j] = b; }",
    "its address is taken": "float b = 0; float* p = &b; for (int k = 0; k < n; k++) {"
    " y[k * 32 + j] = *p; b = x[k]; *p = b + 1; }",
    "one place": "for (int k = 0; k < n; k++) y[j] = x[k * 32 + j];",
    "a running sum": "for (int k = 0; k < n; k++) { s += x[k * 32 + j]; y[k * 32 + j] = s; }",
    "a store beside it": "z[j] += 1; for (int k = 0; k < n; k++) y[k * 32 + j] = 1;",
    "an atomic beside it": "atomicAdd(z, 1.f); for (int k = 0; k < n; k++) y[k * 32 + j] = 1;",
    "read before": "s = y[j]; for (int k = 0; k < n; k++) y[k * 32 + j] = s;",
    "two passes": "for (int k = 0; k < n; k++) y[k * 32 + j] = 1; "
    "for (int k = 0; k < n; k++) y[k * 32 + j] += x[j];",
    "the row above": "for (int k = 1; k < n; k++) y[k * 32 + j] = y[k * 32 - 32 + j];",
    "places from memory": "for (int k = 0; k < n; k++) y[(int)x[k]] = k;",
    "no loop": "y[j] = x[j];",
    "all axes in use": "for (int k = 0; k < n; k++) y[k * 32 + j] = gridDim.y + gridDim.z;",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    x = np.zeros((40, 32), np.float32)
    made = case(
        "__global__ void k(const float* x, float* y, float* z, int n) {\n    int j = threadIdx.x;\n"
        f"    float s = 0;\n    {body}\n}}",
        {"x": x, "y": x + 0, "z": x[0] + 0, "n": 40}, grid=(1,), block=(32,),
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Distribute().apply(made.draft, {"parts": 4})
