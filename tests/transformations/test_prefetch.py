"""Tiles loaded an iteration ahead, and loops in which that would be another tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.prefetch import Prefetch
from tests.transformations.bench import Case

PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n, int m, int k) {
    __shared__ float as[8][8], bs[8][8];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 8 + ty, column = blockIdx.x * 8 + tx;
    float sum = 0;
    for (int t = 0; t < (k + 7) / 8; ++t) {
        int at = t * 8 + tx;
        as[ty][tx] = row < n && at < k ? a[row * k + at] : 0.0f;
        if (t * 8 + ty < k && column < m) bs[ty][tx] = b[(t * 8 + ty) * m + column];
        else bs[ty][tx] = 0.0f;
        __syncthreads();
        for (int i = 0; i < 8; ++i) { sum += as[ty][i] * bs[i][tx]; }  // of the tile
        __syncthreads();
    }
    if (row < n && column < m) c[row * m + column] = sum;
}"""
NEAREST = """
__global__ void nearest(const float* p, const float* q, float* y, int n, int m) {
    __shared__ float tile[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float own = i < n ? p[i] : 0.0f, best = 1e30f;
    for (int first = 0; first < m; first += 32) {
        __syncthreads();
        if (first + threadIdx.x < m) tile[threadIdx.x] = q[first + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < min(32, m - first); ++j) best = fminf(best, fabsf(own - tile[j]));
    }
    if (i < n) y[i] = best;
}"""


def product(case: Callable[..., Case], source: str, n: int, m: int, k: int) -> Case:
    draw = np.random.default_rng(n)
    arguments: Any = {
        "a": draw.integers(-4, 5, n * k).astype(np.float32),
        "b": draw.integers(-4, 5, k * m).astype(np.float32),
        "c": np.zeros(n * m, np.float32), "n": n, "m": m, "k": k,
    }  # fmt: skip
    return case(source, arguments, grid=(-(-m // 8), -(-n // 8)), block=(8, 8))


@pytest.mark.parametrize("k", [1, 8, 35])
def test_a_product_by_tiles(k: int, case: Callable[..., Case]) -> None:
    made = product(case, PRODUCT, 11, 17, k)
    draft = made.applied(Prefetch())
    assert "as[ty][tx] = as_next;" in draft.text
    assert draft.text.count("float bs_next;") == 1
    assert "// of the tile" in draft.text
    assert Prefetch().settings(draft) == ()
    made.same(draft)
    draft = Prefetch().apply(made.draft, {"loop": 0, "buffers": 2})
    assert "float as[2][8][8], bs[2][8][8];" in draft.text.replace("; __shared__ float", ",") or (
        draft.text.count("[2][8][8]") == 2
    )
    assert draft.text.count("__syncthreads") == 1
    made.same(draft)


@pytest.mark.parametrize("m", [100, 32, 5])
def test_a_part_of_a_tile_at_the_end(m: int, case: Callable[..., Case]) -> None:
    p = np.random.default_rng(m).random(70).astype(np.float32)
    arguments = {"p": p, "q": np.resize(p * 2, m), "y": p * 0, "n": 70, "m": m}
    made = case(NEAREST, arguments, grid=(3,), block=(32,))
    draft = made.applied(Prefetch())
    assert "if (first + 32 < m)" in draft.text
    made.same(draft)
    draft = Prefetch().apply(made.draft, {"loop": 0, "buffers": 2})
    assert draft.text.count("__syncthreads") == 1
    made.same(draft)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum += as", "c[0] += 0; sum += as"),
        ("sum += as[ty][i]", "sum += as[ty][i] + c[0] * 0"),
        ("sum += as[ty][i]", "sum += as[ty][i] + other[i] * 0"),
        ("if (row < n && column < m) c", "sum += as[0][0] * 0; if (row < n && column < m) c"),
        ("sum += as[ty][i]", "sum += *(as[ty] + i)"),
        ("        for (int i", "        __syncthreads(); for (int i"),
    ],
)
def test_tiles_that_one_barrier_does_not_do_for(
    before: str, after: str, case: Callable[..., Case]
) -> None:
    assert before in PRODUCT
    source = PRODUCT.replace(before, after, 1).replace("bs[8][8];", "bs[8][8], other[8];")
    source = source.replace("float sum = 0;", "float sum = 0; other[tx] = 0; __syncthreads();")
    made = product(case, source, 9, 9, 9)
    assert made.draft.facts.loops  # it is understood
    with pytest.raises(NotUnderstood):
        Prefetch().apply(made.draft, {"loop": 0, "buffers": 2})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        __syncthreads();\n    }", "    }"),  # one barrier only
        ("++t)", "t += n)"),
        ("? a[", "? c["),
        ("a[row * k + at]", "a[row * k + at] + as[ty][7 - tx]"),
        ("a[row * k + at]", "a[row * k + at] + sum"),
        ("int at =", "row ^= 1; int at ="),
        ("int at =", "c[0] = sum; int at ="),
        ("for (int i", "if (sum > 1e9f) return;\n        for (int i"),
        (
            "        __syncthreads();\n        for",
            "        if (sum > 1e9f) break; __syncthreads(); for",
        ),
        ("int at = t * 8 + tx;", "int at = t * 8 + tx; at = at % 64;"),
        ("as[ty][tx] =", "as[ty][tx] +="),
        ("for (int t = 0;", "int t; for (t = 0;"),
        ("of the tile\n", "\n column += 0 * t;"),
        ("(k + 7) / 8", "(int)b[0] + (k + 7) / 8 - (int)b[0]"),
        ("const float* a", "volatile const float* a"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in PRODUCT
    made = product(case, PRODUCT.replace(before, after, 1), 9, 9, 9)
    assert made.draft.facts.loops  # it is understood
    assert Prefetch().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Prefetch().apply(made.draft, {"loop": 0})
