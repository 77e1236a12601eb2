"""Nested loops as one loop, and what then divides them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.collapse import collapsed, has_nest
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.split_work import SplitWork
from tests.transformations.bench import Case

MEANS = """
__global__ void means(const float* x, float* mean, int N, int C, int H, int W) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < C) {
        double sum = 0.5;
        for (int n = 0; n < N; ++n)
            for (int h = 0; h < H; ++h)
                for (int w = 0; w < W; ++w) sum += x[((n * C + c) * H + h) * W + w];  // in order
        mean[c] += (float)sum;
    }
}"""
KERNEL = """
__global__ void k(const float* x, float* y, int n, unsigned u, int m) {
    int j = threadIdx.x;
    float s = 1;
    BODY
    y[j] = s;
}"""
COLLAPSED = {
    "a row before the inner loop": "for (int a = 0; a < n; a++) { const float* row = x + a * m; "
    "const int l = a % 2; for (int b = 0; b < m; ++b) s = s * 0.5f + row[b] * (b + l); }",
    "around a point": "for (int a = -1; a <= 2; ++a) for (int b = -3; b < 2; b++) "
    "s = s * 0.5f + x[(j + 4 + a) * 5 + b + 3];",
    "from further on": "for (int a = 2; a < n; a++) for (int b = 1; b < m; b += 1) "
    "s = s * 0.5f + x[a * m + b];",
    "several types": "for (unsigned a = 0; a < u; a++) for (size_t b = 0; b < m; b++) "
    "s = s * 0.5f + x[a * m + b];",
    "the other way round": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "s = s * 0.5f + x[b + m * (a + j / 8)] + (m * a + b) % 7;",
    "what goes on": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) { "
    "if ((a + b + j) % 3 == 0) continue; s = s * 0.5f + x[a * m + b]; }",
    "another one after it": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) s += x[a * m "
    "+ b] * s; for (int a = 0; a < n; a++) for (int b = 0; b < 3; b++) s = s * 0.5f + x[a + b];",
    "a name that is taken": "int a_b = 3; for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "s = s * 0.5f + x[a * m + b] * a_b;",
    "a store of each": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "{ s = s * 0.5f + x[a * m + b]; y[32 + (j * n + a) * m + b] = s; }",
}
LEFT = {
    "something after it": "for (int a = 0; a < n; a++) { for (int b = 0; b < m; b++) "
    "s += x[a * m + b]; s *= 0.5f; }",
    "something before it": "for (int a = 0; a < n; a++) { s *= 0.5f; "
    "for (int b = 0; b < m; b++) s += x[a * m + b]; }",
    "a triangle": "for (int a = 0; a < n; a++) for (int b = 0; b < a; b++) s += x[a * m + b];",
    "an end by turns": "for (int a = 0; a < n; a++) { int l = a % m; "
    "for (int b = 0; b < l; b++) s += x[a * m + b]; }",
    "a way out": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "{ if (s > 3) break; s += x[a * m + b]; }",
    "a return": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "{ if (s > 3) return; s += x[a * m + b]; }",
    "another step": "for (int a = 0; a < n; a += 2) for (int b = 0; b < m; b++) s += x[a * m + b];",
    "downwards": "for (int a = n - 1; a >= 0; a--) for (int b = 0; b < m; b++) s += x[a * m + b];",
    "a bound that moves": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "{ s += x[a * m + b]; if (s > 3) m--; }",
    "a counter that moves": "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) "
    "{ s += x[a * m + b]; if (s > 3) a++; }",
    "a bound in memory": "for (int a = 0; a < n; a++) for (int b = 0; b < (int)x[3]; b++) "
    "s += x[a * m + b];",
    "a thread's bound": "for (int a = 0; a < n; a++) for (int b = 0; b < j; b++) "
    "s += x[a * m + b];",
    "a value that goes on": "for (int a = 0; a < n; a++) { int l = 0; "
    "for (int b = 0; b < m; b++) { l += b; s += x[a * m] * l; } }",
    "a value of what goes on": "for (int a = 0; a < n; a++) { float l = s; "
    "for (int b = 0; b < m; b++) s += x[a * m + b] * l; }",
    "a value in memory": "for (int a = 0; a < n; a++) { float l = y[j]; "
    "for (int b = 0; b < m; b++) { y[j] = s; s += x[a * m + b] * l; } }",
    "counters from outside": "int a, b; for (a = 0; a < n; a++) for (b = 0; b < m; b++) "
    "s += x[a * m + b]; s += a;",
}


def _drawn(count: int) -> np.ndarray:
    return np.random.default_rng(count).uniform(-1, 1, count).astype(np.float32)


def _of(body: str, case: Callable[..., Case], n: int = 5, m: int = 7) -> Case:
    arguments = {"x": _drawn(400), "y": _drawn(1400), "n": n, "u": n, "m": m}
    return case(KERNEL.replace("BODY", body), arguments, grid=(1,), block=(32,))


def test_three_loops_are_one_and_an_index_is_their_counter(case: Callable[..., Case]) -> None:
    x = _drawn(3 * 9 * 5 * 7)
    arguments = {"x": x, "mean": _drawn(9), "N": 3, "C": 9, "H": 5, "W": 7}
    made = case(MEANS, arguments, grid=(1,), block=(32,))
    draft = collapsed(made.draft)
    assert draft.text.count("for (") == 1
    assert "% (H * W)" in draft.text
    assert "/ W" not in draft.text  # rows are next to each other
    made.same(draft)


@pytest.mark.parametrize("body", COLLAPSED.values(), ids=COLLAPSED)
def test_the_same_iterations_in_the_same_order(body: str, case: Callable[..., Case]) -> None:
    never = ((0, 7), (5, 0)) if "int a = 2" not in body else ((2, 7), (5, 1))
    for n, m in ((5, 7), (3, 2), *never):
        made = _of(body, case, n, m)
        draft = collapsed(made.draft)
        assert draft.text.count("for (") < body.count("for (")
        made.same(draft)


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = _of(body, case)
    with pytest.raises(NotUnderstood):
        collapsed(made.draft)


def test_a_launch_with_a_negative_bound_keeps_the_authors_kernel(case: Callable[..., Case]) -> None:
    body = "for (int a = 0; a < n; a++) for (int b = 0; b < m; b++) s += x[a * m + b];"
    assert has_nest(_of(body, case).draft)
    with pytest.raises(NotUnderstood):
        collapsed(_of(body, case, -2, -3).draft)


@pytest.mark.parametrize("one", [Cooperate(), SplitWork()], ids=["lanes", "blocks"])
def test_loops_too_short_each_are_divided_whole(
    one: Cooperate | SplitWork, case: Callable[..., Case]
) -> None:
    x = _drawn(6 * 33 * 5 * 7)
    arguments = {"x": x, "mean": _drawn(33), "N": 6, "C": 33, "H": 5, "W": 7}
    made = case(MEANS, arguments, grid=(3,), block=(16,))
    nests = [x for x in one.settings(made.draft) if x.get("loops") == "collapsed"]
    assert nests
    for setting in nests:
        draft = one.apply(made.draft, setting)
        assert "N >= 0" in draft.rewrite().source
        made.same(draft, tolerance=1e-5)
