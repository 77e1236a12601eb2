"""Bounds checks: those that every thread passes, and those that some thread may not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.bounds_checks import BoundsChecks
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.grid_stride import GridStride
from tests.transformations.bench import Case, expression, expressions

X = np.random.default_rng(1).integers(-9, 9, 96).astype(np.int32)
BEFORE = """
__global__ void k(const int* x, int* y, int n, int w, int h, unsigned u, long long l, int zero)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned t = threadIdx.x;
"""
TAKEN = {
    "a guard": ("if (i < n) y[i] = x[i];", 0),
    "an early way out": ("if (i >= n) return; y[i] = x[i];", 0),
    "its opposite": ("if (n <= i) { return; } y[i] = x[i];", 0),
    "not": ("if (!(i < n)) return; y[i] = x[i];", 0),
    "without a sign": ("if (blockIdx.x * blockDim.x + t < u) y[i] = x[i];", 0),
    "long": ("if (i < l) y[i] = x[i];", 0),
    "one that some pass": ("if (i < n && x[i] > 0) y[i] = x[i];", 1),
    "either": ("if (i >= n || x[i] > 0) return; y[i] = x[i];", 1),
    "never negative": ("if (i >= 0 && i < n && x[i]) y[i] = x[i];", 1),
    "two of them": ("int r = i / 8, c = i % 8; if (r < h && c < w) y[r * w + c] = x[i];", 0),
    "another branch": ("if (i < n) y[i] = x[i]; else y[0] = 7;", 0),
    "a choice": ("y[i] = i < n ? x[i] : 0;", 0),
    "the block's": ("if (t < 32) y[i] = x[i];", 0),
    "in a loop": ("for (int j = 0; j < 4; j++) { int q = i / 4 * 4 + j; if (q < n) y[i]++; }", 0),
    "the last in a loop": ("for (int j = 0; j <= 3; ++j) if (i / 4 * 4 + j <= n - 1) y[i]++;", 0),
    "a variable of its own": ("if (i < n) { int q = i; y[q] = x[q]; } y[i] += 1;", 0),
    "the same name twice": ("if (i < n) { int q = x[i]; y[i] = q; } { int q = 2; y[i] += q; }", 0),
}  # fmt: skip
LEFT = {
    "one less": "if (i < n - 1) y[i] = x[i];",
    "loaded": "if (x[i] < n) y[i] = x[i];",
    "of the launch alone": "if (zero < n) y[i] = x[i];",
    "an interior": "if (i > 0 && i < n - 1) y[i] = x[i - 1];",
    "a variable that changes": "i += zero; if (i < n) y[i] = x[i];",
    "negative": "int q = i - 3; if (q < n && q >= 0) y[i] = x[i];",
    "after a loop": "int j = 0; for (; j < 4; ++j) y[i] += j; if (i / 4 * 4 + j < n) y[i] += j;",
    "what the left side does": "if (atomicAdd(&y[i], 1) > 7 || i < n) y[i] += x[i];",
    "equal": "if (i != n) y[i] = x[i];",
    "what wraps around": "if (t - 1 < u) y[i] = x[i];",
}


def made(case: Callable[..., Case], body: str, threads: int = 32) -> Case:
    given = {
        "x": X, "y": X * 0, "n": 96, "w": 8, "h": 12, "u": np.uint32(96), "l": 96, "zero": 0,
    }  # fmt: skip
    return case(BEFORE + body + "\n}", given, grid=(96 // threads,), block=(threads,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_the_result_is_the_same(name: str, case: Callable[..., Case]) -> None:
    body, left = TAKEN[name]
    one = made(case, body)
    draft = one.applied(BoundsChecks())
    kept = draft.text.partition("unsigned t = threadIdx.x;")[2]
    assert kept.count("if (") + kept.count(" ? ") == left
    assert draft.requires
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_some_threads_may_not_pass(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert BoundsChecks().settings(one.draft) == ()
    with pytest.raises(NotUnderstood, match="no bounds check"):
        BoundsChecks().apply(one.draft, {})


def test_a_launch_that_does_not_divide_keeps_the_authors_kernel(case: Callable[..., Case]) -> None:
    given = {"x": X, "y": X * 0, "n": 90, "w": 8, "h": 12, "u": 90, "l": 90, "zero": 0}
    one = case(BEFORE + TAKEN["a guard"][0] + "\n}", given, grid=(3,), block=(32,), callee="k")
    assert BoundsChecks().settings(one.draft) == ()
    fits = made(case, TAKEN["a guard"][0]).applied(BoundsChecks())
    assert fits.requires == expressions("gridDim.x * blockDim.x <= n")


def test_the_items_of_a_thread_have_none(case: Callable[..., Case]) -> None:
    one = made(case, "if (i < n) { for (int j = 0; j < 5; ++j) y[i] += x[i] * j; }")
    draft = Coarsen().apply(one.draft, {"factor": 3, "by": "block", "axis": "x"})
    assert "if (" not in draft.text
    assert expression("(ceil_div(gridDim.x, 3)) * 3 * blockDim.x <= n") in draft.requires
    one.same(draft)


def test_nobody_leaves_before_a_barrier(case: Callable[..., Case]) -> None:
    body = """if (i >= n) return;
    __shared__ int tile[32];
    tile[t] = x[i];
    __syncthreads();
    y[i] = tile[31 - t];"""
    one = made(case, body)
    with pytest.raises(NotUnderstood, match=r"early return|threads that return"):
        GridStride().apply(one.draft, {"blocks": 2})
    draft = GridStride().apply(BoundsChecks().apply(one.draft, {}), {"blocks": 2})
    one.same(draft)
