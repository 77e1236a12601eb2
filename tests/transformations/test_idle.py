"""Guards of items: gone where nobody sees what an item makes that is not there, kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cudaops.transformations.draft import Draft
from cudaops.transformations.fold import Fold
from tests.transformations.bench import Case

X = np.linspace(-2.0, 3.0, 400, dtype=np.float32)
BEFORE = """
__device__ float near(float a, float b) { float d = a - b; return d < 0 ? -d : d; }
__device__ int share(int a, int b) { return a / b; }
__device__ int shared_out(int a, int b) { a /= b; return a; }
__device__ float at(const float* w, int j) { return w[j]; }
__global__ void k(const float* x, const float* w, float* y, int n, int m) {
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;
"""


def made(case: Callable[..., Case], body: str, n: int = 339) -> Case:
    given = {"x": X, "w": X[::-1].copy(), "y": X * 0, "n": n, "m": 7}
    return case(BEFORE + body + "}", given, grid=(3,), block=(128,), callee="k")


def loop(statement: str, begin: str = "float s = x[i];", end: str = "y[i] = s;") -> str:
    return f"if (i < n) {{ {begin} for (int j = 0; j < m; ++j) {{ {statement} }} {end} }}"


def guards(text: str) -> int:
    """Of items, in the loop over `j`."""
    begin, _, inside = text.partition("for (int j")
    indent = begin.rpartition("\n")[2]
    return inside.split(f"\n{indent}}}\n")[0].count("if (i < n)")


def folded(one: Case) -> Iterator[Draft]:
    for factor in (2, 8):
        yield Fold().apply(one.draft, {"axis": "x", "factor": factor})


TILE = "float s[3]; for (int q = 0; q < 3; ++q) s[q] = x[i] + q;"
EACH = "for (int q = 0; q < 3; ++q)"
WRITTEN = "y[i] = s[0] + s[2] * s[1];"
FREE = {
    "arithmetic": loop("s = s * 0.5f + j;"),
    "alike": loop("float a = w[j]; s += a * near(s, a);"),
    "read": loop("s = s * w[j] + x[i] / w[m - j];", end="y[i] = s;").replace("x[i] / ", "2 / "),
    "tile": loop(f"{EACH} s[q] = s[q] * 0.5f + j;", TILE, WRITTEN),
    "function": loop(f"{EACH} if (near(s[q], j) > 1) s[q] = !s[q];", TILE, WRITTEN),
    "place": loop("s[1] += s[0] * j;", TILE, WRITTEN),
    "condition": loop("if (s < w[j]) s += near(s, 3);"),
}
GUARDED = {
    # Seen by others: it was declared outside.
    "outside": "__shared__ float part[128]; float s = 1;"
    + loop("s = s * 0.5f + j;", "", "")
    + "part[t] = s; __syncthreads(); if (i < 400) y[i] = part[127 - t];",
    "array outside": "__shared__ float part[128]; float s[2] = {};"
    + loop("s[1] = s[1] * 0.5f + j;", "", "")
    + "part[t] = s[1]; __syncthreads(); if (i < 400) y[i] = part[127 - t];",
    # Memory: a place of the item's own, or one that not even the first item reads in any case.
    "own place": loop("s += x[(i + j) % n];"),
    "by ldg": loop("s += __ldg(x + i) * j;"),
    "not always": loop("if (s > j) s += w[j * 50];"),
    "lazily": loop("s += s > 1 && w[j] > 0 ? 1 : 2;"),
    "a choice": loop("s = s > 1 ? w[j] : 2;"),
    "a write": loop("q[i] = q[i] * 0.5f + j;", "float* q = y;", ""),
    "a write by address": loop("*(y + i) += j;", "", ""),
    "in a function": loop("s += at(w, j) + at(x, i);"),
    # Elements that may not be there, and what may fail or not end.
    "beyond": loop(f"{EACH} if (s[q] > 9) s[q + 1] += j;", TILE, WRITTEN),
    "by value": loop("int q = (int)s[0] & 1; s[q] = s[q] * 0.5f + j;", TILE, WRITTEN),
    "quotient": loop("s += 1000 / (n - i + j);", "int s = 3;"),
    "remainder": loop("s += 1000 % (n - i + j);", "int s = 3;"),
    "a function's quotient": loop("s += share(99, n - i + j);", "int s = 3;"),
    "a function's own quotient": loop("s += shared_out(99, n - i + j);", "int s = 3;"),
    "own loop": loop("for (int q = i; q != n; ++q) s += 1;"),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_without_guards(name: str, case: Callable[..., Case]) -> None:
    one = made(case, FREE[name])
    for draft in folded(one):
        assert guards(draft.text) == 0, draft.text
        one.same(draft)


@pytest.mark.parametrize("name", GUARDED)
def test_with_guards(name: str, case: Callable[..., Case]) -> None:
    one = made(case, GUARDED[name])
    for draft in folded(one):
        assert guards(draft.text) > 0 or "first_i" not in draft.text, draft.text
        one.same(draft)


@pytest.mark.parametrize("n", [0, 1, 128, 130, 384])
def test_sizes(n: int, case: Callable[..., Case]) -> None:
    for name in ("function", "outside"):
        one = made(case, (FREE | GUARDED)[name], n)
        one.same(Fold().apply(one.draft, {"axis": "x", "factor": 4}))
