"""Narrow indices: the same numbers, and only where they fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.index32 import Index32
from tests.transformations.bench import Case, expression

X = np.arange(91, dtype=np.float32)


def kernel_of(body: str, kind: str = "size_t") -> str:
    before = "#include <cstdint>\n__device__ long long twice(long long v) { return 2 * v; }\n"
    return f"{before}__global__ void k(const float* x, float* y, {kind} n, int w) {{ {body} }}"


def launched(case: Callable[..., Case], source: str, **more: int) -> Case:
    given = {"x": X, "y": X * 0, "n": 91, "w": 7, **more}
    return case(source, given, grid=(2,), block=(32,))


PLACE = "i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;"
STRIDED = """
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        size_t row = i / w, column = i % w;
        y[i] = x[n - 1 - i] + 0.5f * row + column;
    }"""


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (STRIDED, "size_t", "int row = i / w;"),
        (f"int64_t {PLACE} if (i < n) y[i] = x[(i * 3 + 1) % n];", "long", "x[(i * 3 + 1) % n]"),
        (f"unsigned long {PLACE} float* to = y + i; if (i < n) *to = (i / n) + (i * i) % (n - w);",
         "unsigned long", "y + i"),
        ("size_t i = threadIdx.x; if (i < n && i > (size_t)w) y[i] = twice(i / w);", "size_t",
         "twice((unsigned long long)(i / w))"),
    ],
)  # fmt: skip
def test_what_fits(body: str, kind: str, shown: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body, kind))
    draft = made.applied(Index32())
    assert shown in draft.text
    made.same(draft)


def test_larger_launches_get_the_authors_kernel(case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(STRIDED))
    rewrite = made.applied(Index32()).rewrite()
    for name, value in (("n", 1 << 31), ("w", -7), ("w", 0)):
        arguments = tuple(
            a.model_copy(update={"value": value}) if a.name == name else a
            for a in made.workload.arguments
        )
        other = made.workload.model_copy(update={"arguments": arguments})
        assert not resolve(rewrite, made.kernel, other).applicable


def test_differences_and_negative_sides_stay_wide(case: Callable[..., Case]) -> None:
    body = """
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    int below = -1;
    if (i < n) {
        y[i] = (i - 1 < n ? 1 : 2) + (i < below ? 4 : 8) + (float)((i - 5) >> 60);
        y[i] += x[(i + n) / 4 % n];
    }"""
    made = launched(case, kernel_of(body))
    draft = made.applied(Index32())
    assert "(unsigned long long)i < below" in draft.text
    made.same(draft)


def test_a_negative_number_that_becomes_large(case: Callable[..., Case]) -> None:
    body = "size_t m = w; size_t i = threadIdx.x; if (i < n && i < m) y[i] = x[i * 2 % m];"
    made = launched(case, kernel_of(body))
    draft = made.applied(Index32())
    made.same(draft)
    assert expression("w >= 0") in draft.requires


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("size_t i = 3 * n + threadIdx.x; if (i / w < n) y[i] = x[i];", {"n": (1 << 31) + 5}),
        ("unsigned long s = 1; for (int j = 0; j < 9; j++) s = s * 25214903917 + j; y[0] = s;", {}),
        ("size_t h = threadIdx.x * 40503ul * 40503ul * 40503ul; y[threadIdx.x] = h % 91;", {}),
        ("long long i = (long long)x[0] / w; if (threadIdx.x == 0) y[i] = 1;", {}),
        ("size_t i = threadIdx.x; size_t* p = &i; *p += n; y[i % n] = 1;", {}),
        ("int i = threadIdx.x; if (i < 91) y[i] = x[i / w];", {}),
    ],
)  # fmt: skip
def test_what_it_leaves(body: str, more: dict[str, int], case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body), **more)
    with pytest.raises(NotUnderstood):
        Index32().apply(made.draft, {})
