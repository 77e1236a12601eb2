"""Drafts of several launches: steps at any of them, and what may not be touched."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Transformation
from cudaops.transformations.draft import Draft
from cudaops.transformations.split_work import SplitWork
from cudaops.transformations.tabulate import Tabulate
from tests.lanes import mostly_deep
from tests.transformations.bench import Case
from tests.transformations.test_random import transformed

KERNELS = {
    "helped": """
__device__ float f(float v) { return v * 0.5f + 1.0f; }
__global__ void k(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += f(x[row * n + i]);
    y[row] = f(sum) + y[row] * 0.5f;
}""",
    "two": """
__global__ void k(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float s = 0.0f, m = -1e30f;
    for (int i = 0; i < n; ++i) { s += x[i] * x[row]; m = fmaxf(m, x[row * n + i]); }
    for (int j = 0; j < 3; ++j) y[row * 3 + j] = s * m / (j + 1);
}""",
    "tabled": """
__global__ void k(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float s = 0.0f;
    for (int i = 0; i < n; ++i) s += x[row * n + i] * cosf(6.0f * i / n);
    y[row] = s;
}""",
}


def made(case: Callable[..., Case], name: str, rows: int = 37, n: int = 129) -> Case:
    x = np.random.default_rng(rows).standard_normal(rows * n).astype(np.float32)
    arguments = {"x": x, "y": np.ones(rows * 3, np.float32), "rows": rows, "n": n}
    return case(KERNELS[name], arguments, grid=((rows + 31) // 32,), block=(32,), callee="k")


def several(one: Case, draw: random.Random) -> Draft:
    """A draft with a second launch."""
    both: tuple[Transformation, ...] = (SplitWork(), Tabulate())
    for made_by in draw.sample(both, 2):
        try:
            return made_by.apply(one.draft, draw.choice(made_by.settings(one.draft)))
        except (NotUnderstood, IndexError):
            continue
    raise AssertionError("neither applies")


@pytest.mark.parametrize("seed", mostly_deep(range(300), 6))
def test_steps_at_every_launch_keep_the_result(seed: int, case: Callable[..., Case]) -> None:
    draw = random.Random(seed)
    name, rows = list(KERNELS)[seed % 3], draw.choice((33, 64, 70))
    one = made(case, name, rows, draw.choice((40, 129, 256)))
    draft = transformed(several(one, draw), draw)
    assert len(draft.launches) > 1
    one.same(draft, tolerance=2e-5)


def test_a_function_of_two_kernels_is_not_edited_for_one(case: Callable[..., Case]) -> None:
    one = made(case, "helped")
    draft = several(one, random.Random(1)).with_own_copy_of("f")
    assert [launch.kernel for launch in draft.launches] == ["k_fast_parts", "k_fast"]
    for at in (0, 1):
        focused = replace(draft, focus=at)
        function = focused.form.function("f_fast")
        assert function is not None
        with pytest.raises(NotUnderstood, match="another kernel"):
            focused.edited(function, focused.printer(function).printed(function.body))


def test_a_kernel_that_is_launched_twice_is_left(case: Callable[..., Case]) -> None:
    one = made(case, "two")
    twice = replace(one.draft, launches=one.draft.launches * 2)
    with pytest.raises(NotUnderstood, match="several launches"):
        _ = twice.form
