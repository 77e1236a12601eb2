"""Loads behind integer factors that may be zero: which are left out, and which must be made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.zero_factors import ZeroFactors
from tests.transformations.bench import Case

COUNT = 90
X = np.random.default_rng(1).integers(-1000, 1000, 2 * COUNT + 9, dtype=np.int32)
M = (np.arange(COUNT, dtype=np.int32) % 4 // 3) * 7
F = np.linspace(0.0, 9.0, COUNT, dtype=np.float32)
BEFORE = """
__device__ int odd(int a) { return a & 1; }
__global__ void k(const int* x, const unsigned* u, const int* m, const float* f, int* y, int w,
                  int n)
{
    __shared__ int tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i;
    __syncthreads();
    if (i >= n) return;
    int a = m[i], s = 0;
    float part = f[i];
"""
END = "\n    y[i] = s;\n}"
LOOP = "for (int j = 0; j < 5; ++j)"
TAKEN = {
    "a mask": "s = a * x[i];",
    "the other side": "s = x[i] * (a - 7);",
    "a sum": f"{LOOP} s += a * x[i + j];",
    "of the launch": f"{LOOP} s += w * (x[i + j] - x[i]);",
    "without a sign": "unsigned v = u[i]; s = 3 + (unsigned)a * (v - 1u) + (a & 7) * v;",
    "whole pixels": "unsigned fx = (unsigned)(part - (int)part), fy = (unsigned)(0.3f * part); "
    f"{LOOP} {{ unsigned p = u[i + j], q = u[i + j + 1], r = u[i + j + 9]; "
    "s += p + fx * (q - p) + fy * (r - p) + fx * fy * (r - q); }",
    "long": "long long v = x[i]; s = (int)(v * a ^ 3);",
    "half of it": "int v = x[i]; s = (a / 2 % 3) * v;",
    "a division here": "if (a) s = (7 / a) * x[i];",
    "twice": "int v = x[i], v2 = x[i + 1]; s = a * v + a * (5 - v2);",
    "one bare": "int v = x[i], v2 = x[i + 1]; s = a * v2 + v;",
    "a value used beside": "int v = x[i]; s = a * v + w * ~v;",
}
LEFT = {
    "a float": "float v = f[i + 1]; s = (int)(part * v);",
    "a float in a product of integers": "s = (int)(a * f[i + 1]);",
    "a number": "s = 5 * x[i];",
    "a block's place": "s = threadIdx.x * x[i];",
    "both are read": "s = x[i] * m[i];",
    "used otherwise": "int v = x[i]; s = a * v; y[i] = v; s += v;",
    "an end": "int v = x[i]; if (v > 3) s = a * v;",
    "a divisor": "int v = x[i] | 1; s = a * (100 / v);",
    "an index": "int v = m[i]; s = w * (v > 3 ? tile[v & 63] : 2) + tile[v & 31];",
    "another later": "int v = x[i]; int b = a + 1; s = b * v;",
    "changed": "int v = x[i]; v += 1; s = a * v;",
    "the factor changes": f"int b = a; {LOOP} {{ int v = x[i + j]; s += b * v; b += j; }}",
    "a reference": "int v = x[i]; int& r = v; s = a * v + r;",
    "a call": "s = odd(a) * x[i];",
    "shared": "s = a * tile[threadIdx.x ^ 1];",
    "by the side": "int q = 0; s = a * x[i + q++];",
    "a division that is not made": "int v = x[i]; if (w != 0) s = (7 / w) * v;",
    "a bool": "bool v = x[i]; s = a * v;",
}


def made(case: Callable[..., Case], body: str) -> Case:
    u = X.astype(np.uint32)
    given = {"x": X, "u": u, "m": M, "f": F, "y": M * 0, "w": 0, "n": 85}
    return case(BEFORE + body + END, given, grid=(3,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_the_result_is_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    draft = one.applied(ZeroFactors())
    assert " != 0 " in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_must_be_read(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert ZeroFactors().settings(one.draft) == ()
    with pytest.raises(NotUnderstood, match="no load that is only multiplied"):
        ZeroFactors().apply(one.draft, {})


def test_a_product_of_factors_asks_for_them_alone(case: Callable[..., Case]) -> None:
    text = made(case, TAKEN["whole pixels"]).applied(ZeroFactors()).text
    assert "q = fx != 0 || fx * fy != 0" not in text
    assert "r = fy != 0 ? u[i + j + 9] : 0" in text
    assert "p = u[i + j]" in text
