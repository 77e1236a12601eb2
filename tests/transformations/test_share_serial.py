"""A warp for what one thread of a block does alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.share_serial import ShareSerial
from tests.transformations.bench import Case

SUM = """
__global__ void sums(const float* x, float* y, int n) {
    __shared__ float part[100];
    __shared__ float total;
    int tid = threadIdx.x;
    for (int row = blockIdx.x; row < n; row += gridDim.x) {
        part[tid] = x[row * 100 + tid];
        __syncthreads();
        if (tid == 0) {
            // one after the other
            total = 0;
            float sum = 3.0f;
            for (int i = 0; i < blockDim.x; i++) sum += part[i];
            total = sum;
        }
        __syncthreads();
        y[row * 100 + tid] = x[row * 100 + tid] / total;
        __syncthreads();
    }
}"""

TWO_LOOPS = """
__device__ int weight(int v) { return v * v; }
__global__ void two(const int* x, int* y, int* at) {
    __shared__ int a[64];
    int i, most, where, sum;
    a[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (!threadIdx.x) {
        most = a[threadIdx.x];
        where = 0;
        for (i = 1; i < 64; i++)
            if (a[i] > most) { most = a[i]; where = i; }
        sum = 0;
        for (i = 0; i < 64; i++) {
            a[i] = weight(a[i]);
            sum += a[i];
        }
        if (sum > 5) sum += a[3];
        y[blockIdx.x] = sum;
        atomicAdd(at, where);
    }
}"""

COUNT = """
__global__ void counts(const unsigned char* x, unsigned* hist, double* mean, int n) {
    __shared__ unsigned bins[40];
    const unsigned t = threadIdx.x;
    if (t < 40) bins[t] = 0;
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) atomicAdd(&bins[x[i] % 40], 1u);
    __syncthreads();
    if (0 == t) {
        double all = 0.0;
        for (int i = 39; i >= 0; --i) {
            all += bins[i] * (i + 0.5);
            hist[i] = bins[i];
        }
        mean[0] = all / n;
    }
}"""

ANY = """
__global__ void any(const int* x, int* y, int m) {
    extern __shared__ int seen[];
    int t = threadIdx.x;
    int limit = m * 2;
    seen[t] = x[t];
    __syncthreads();
    if (threadIdx.x == 0) {
        bool found = false;
        for (int k = 0; k < blockDim.x; k++) {
            if (seen[k] > limit + t) found = true;
        }
        if (found) y[0] = 1;
        else y[0] = -1;
    }
}"""


def _same(made: Case, tolerance: float = 0.0) -> str:
    draft = made.applied(ShareSerial())
    made.same(draft, tolerance=tolerance)
    assert "__syncwarp" in draft.text or "_sync(0xffffffff" in draft.text
    return draft.text


def test_a_sum_in_a_loop_over_rows(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(1).normal(size=500).astype(np.float32) + 9
    made = case(SUM, {"x": x, "y": x * 0, "n": 5}, grid=(2,), block=(100,))
    text = _same(made, 1e-5)
    assert "if (tid < 32) {" in text
    assert "// one after the other" in text


def test_the_first_greatest_and_a_function(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(1).integers(-20, 20, 192).astype(np.int32)
    made = case(
        TWO_LOOPS, {"x": x, "y": x[:3] * 0, "at": x[:1] * 0}, grid=(3,), block=(64,), callee="two"
    )
    _same(made)


def test_backwards_with_stores(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(1).integers(0, 256, 777).astype(np.uint8)
    made = case(
        COUNT, {"x": x, "hist": np.zeros(40, np.uint32), "mean": np.zeros(1), "n": 777},
        grid=(1,), block=(96,),
    )  # fmt: skip
    _same(made, 1e-12)


@pytest.mark.parametrize("m", [2, 30])
def test_a_flag(m: int, case: Callable[..., Case]) -> None:
    x = (np.arange(64, dtype=np.int32) * 7) % 31
    made = case(
        ANY.replace("extern __shared__ int seen[]", "__shared__ int seen[64]"),
        {"x": x, "y": x[:1] * 0, "m": m}, grid=(1,), block=(64,),
    )  # fmt: skip
    _same(made)


REFUSED = {
    "its own value": "if (t == 0) { for (int i = 0; i < 64; i++) s += a[i] * own; y[0] = s; }",
    "a value used later": "if (t == 0) { for (int i = 0; i < 64; i++) s += a[i]; } y[t] = s;",
    "another thread": "if (t == 1) { for (int i = 0; i < 64; i++) s += a[i]; y[0] = s; }",
    "an else": "if (t == 0) { for (int i = 0; i < 64; i++) s += a[i]; y[0] = s; } else y[t] = 1;",
    "a prefix sum": "if (t == 0) { for (int i = 1; i < 64; i++) a[i] += a[i - 1]; y[0] = a[63]; }",
    "a way out": "if (a[t] > 0.5f) return; "
    "if (t == 0) { for (int i = 0; i < 64; i++) s += a[i]; y[0] = s; }",
    "some threads": "if (t < 7) { "
    "if (t == 0) { for (int i = 0; i < 64; i++) s += a[i]; y[0] = s; } }",
    "an early end": "if (t == 0) { for (int i = 0; i < 64; i++) { if (a[i] > 2) break; s += a[i]; }"
    " y[0] = s; }",
    "a short loop": "if (t == 0) { for (int i = 0; i < 4; i++) s += a[i]; y[0] = s; }",
    "values of its own": "if (t == 0) { for (int i = 0; i < 64; i++) s += kept[i % 2]; y[0] = s; }",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    x = np.zeros(64, np.float32)
    made = case(
        "__global__ void k(const float* x, float* y) {\n    __shared__ float a[64];\n"
        "    int t = threadIdx.x;\n    float s = 0, own = x[t], kept[2] = {own, 1.0f};\n"
        f"    a[t] = x[t];\n    __syncthreads();\n    {body}\n}}",
        {"x": x, "y": x + 0}, grid=(1,), block=(64,),
    )  # fmt: skip
    assert ShareSerial().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        ShareSerial().apply(made.draft, {"lanes": 32})


def test_without_a_barrier_before_it_is_left(case: Callable[..., Case]) -> None:
    x = np.zeros(64, np.float32)
    made = case(
        "__global__ void k(const float* x, float* y, int n) {\n"
        "    if (threadIdx.x >= n) return;\n    if (threadIdx.x == 0) {\n        float s = 0;\n"
        "        for (int i = 0; i < n; i++) s += x[i];\n        y[0] = s;\n    }\n}",
        {"x": x, "y": x + 0, "n": 20}, grid=(1,), block=(64,),
    )  # fmt: skip
    assert ShareSerial().settings(made.draft) == ()
