"""`c = !c` of what is zero or one: one bit turned over, and what may hold other values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.transformations.strength_reduce import StrengthReduce
from tests.transformations.bench import Case

EXACT = {"what": "exact"}
X = np.linspace(-2.0, 3.0, 90, dtype=np.float32)
I = np.arange(90, dtype=np.int32) % 5  # noqa: E741
BEFORE = """
__device__ void add(int& a) { a += 2; }
__device__ int odd(int a) { return a & 1; }
__device__ void fill(int* a) { a[0] = 7; }
__global__ void k(const float* x, const int* w, int* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
"""
TURN = "for (int j = 0; j < m; ++j) if (v < j - 3) c = !c;"
TURNS = "for (int j = 0; j < m; ++j) if (v < j - 3) c[j % 2] = !c[j % 2];"
END = "y[i] = c * 3;"
ENDS = "y[i] = c[0] * 3 + c[1];"
TAKEN = {
    "zero": f"int c = 0; {TURN} {END}",
    "one": f"unsigned c = 1u; {TURN} {END}",
    "comparison": f"int c; c = v > 1; {TURN} c |= v > 2; {END}",
    "char": f"unsigned char c = w[i] && v > 0; {TURN} {END}",
    "choice": f"int c = v > 1 ? 1 : 0; {TURN.replace('!c', 'c ? 0 : 1')} {END}",
    "equal": f"long long c = false; {TURN.replace('!c', '(c == 0)')} {END}",
    "another": f"int d = v > 2; int c = d; {TURN} d = !d; c ^= d; {END}",
    "array": f"int c[2]; c[0] = 0; c[1] = v > 0; {TURNS} {ENDS}",
    "table": "int c[2][2]; for (int q = 0; q < 4; ++q) c[q / 2][q % 2] = q == 2; "
    "for (int j = 0; j < m; ++j) if (v < j) c[j % 2][0] = !c[j % 2][0]; y[i] = c[0][0] + c[1][0];",
}
LEFT = {
    "a number": f"int c = 2; {TURN} {END}",
    "memory": f"int c = w[i]; {TURN} {END}",
    "negative": f"int c = -1; {TURN} {END}",
    "sum": f"int c = 0; {TURN} c += v > 1; {END}",
    "difference": f"int c = 0; {TURN} c = v > 1 - c; c = c - (v > 0); {TURN} {END}",
    "step": f"int c = 0; c++; ++c; {TURN} {END}",
    "shifted": f"int c = 1; c <<= 1; {TURN} {END}",
    "bits": f"int c = 1; c |= w[i]; {TURN} {END}",
    "another's": f"int d = w[i]; int c = d; {TURN} {END}",
    "a function's": f"int c = odd(w[i]); {TURN} {END}",
    "a reference": f"int c = 0; int& r = c; r = w[i]; {TURN} {END}",
    "by reference": f"int c = 0; add(c); {TURN} {END}",
    "an address": f"int c = 0; int* p = &c; *p = w[i]; {TURN} {END}",
    "a parameter": f"{TURN.replace('c', 'n')} y[i] = n;",
    "shared": f"__shared__ int c[2]; c[0] = c[1] = 0; {TURNS} {ENDS}",
    "global": "for (int j = 0; j < m; ++j) if (v < j) y[i] = !y[i];",
    "array's other": f"int c[2]; c[0] = w[i]; c[1] = 1; {TURNS} {ENDS}",
    "array as pointer": f"int c[2] = {{}}; int* p = c; p[1] = w[i]; {TURNS} {ENDS}",
    "array by dereference": f"int c[2] = {{}}; *c = w[i]; *(c + 1) = 5; {TURNS} {ENDS}",
    "array to a function": f"int c[2] = {{}}; fill(c); {TURNS} {ENDS}",
    "row as pointer": "int c[2][2] = {}; int* p = c[1]; p[0] = w[i]; "
    "c[1][0] = !c[1][0]; y[i] = c[1][0];",
    "captured": f"int c = 0; auto f = [&]() {{ c = w[i]; }}; f(); {TURN} {END}",
    "another place": "int c[2] = {}; c[0] = !c[1]; c[1] = !c[0]; y[i] = c[0] + 2 * c[1];",
    "a place that moves": "int c[4] = {}, q = 0; c[q++] = !c[q]; y[i] = c[0] + q;",
    "float": f"float c = 0; {TURN} {END}",
    "bool": f"bool c = false; {TURN} {END}",
}


def made(case: Callable[..., Case], body: str) -> Case:
    given = {"x": X, "w": I, "y": I * 0, "n": 85, "m": 7}
    return case(BEFORE + body + "}", given, grid=(3,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_one_bit(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    draft = one.applied(StrengthReduce(), EXACT)
    assert " ^= 1;" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert EXACT not in StrengthReduce().settings(one.draft) or "^= 1" not in (
        one.applied(StrengthReduce(), EXACT).text
    )
