"""Loads of several iterations before their work, and loads that must stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.loads_first import LoadsFirst
from tests.transformations.bench import Case, every_setting, expressions

MEANS = """
__global__ void means(const float* x, const int* at, float* y, int n, int m) {
    int row = blockIdx.x, taken = 0;
    float mean = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        taken++;
        float v = x[row * n + j];  // its own
        mean += (v - mean) / taken;
    }
    y[row * blockDim.x + threadIdx.x] = mean;
}"""
GATHERED = """
__global__ void gathered(const float* x, const int* at, float* y, int n, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int j = row; j < n; j += 128) {
        const int column = at[j];
        sum += x[column] * x[j] + at[j];
    }
    y[row] = sum;
}"""
LIMITED = """
__global__ void limited(const float* x, const int* at, float* y, int n, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float best = -1.0f;
    int j = m;
    while (j >= 0) {
        if (x[j * 128 + row] > best) best = x[j * 128 + row] + at[row];
        j -= 1;
    }
    y[row] = best + j;
}"""
COUNTED = """
__global__ void counted(const float* x, const int* at, float* y, int n, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (unsigned j = 0; j < 16; j++) sum += x[j * 128 + row] / (1.0f + j);
    for (unsigned j = 0; j < 7; j++) sum += x[j * 128 + row] / (2.0f + j);
    y[row] = sum;
}"""
KEPT = """
__global__ void kept(const float* x, const int* at, float* y, int n, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
    float sum = 0.0f;
    for (int j = row; j < n; j += 128) {
        if (sum > 1e9f) sum = 0.0f;
        sum += x[j] / (1 + at[j]);
    }
    y[row] = sum + k;
}"""


def made(case: Callable[..., Case], source: str, n: int = 1000) -> Case:
    rng = np.random.default_rng(n)
    arguments: Any = {
        "x": rng.integers(0, 9, 4 * 1024).astype(np.float32),
        "at": rng.integers(0, n, 1024).astype(np.int32),
        "y": np.zeros(128, np.float32), "n": n, "m": 13,
    }  # fmt: skip
    return case(source, arguments, grid=(2,), block=(64,))


@pytest.mark.parametrize("source", [MEANS, GATHERED, LIMITED, COUNTED, KEPT])
@pytest.mark.parametrize("n", [1000, 1024, 130, 1])
def test_results_stay_to_the_bit(source: str, n: int, case: Callable[..., Case]) -> None:
    one = made(case, source, n)
    for draft in every_setting(LoadsFirst(), one).values():
        one.same(draft)


def test_loads_come_first_and_order_is_kept(case: Callable[..., Case]) -> None:
    draft = LoadsFirst().apply(made(case, MEANS).draft, {"loop": 0, "factor": 4})
    loads, work = draft.text.index("const auto x_3"), draft.text.index("taken++")
    assert loads < work < draft.text.index("x_1;")
    assert "// its own" in draft.text
    assert draft.requires == expressions("n <= 2147483647 - 3 * (blockDim.x)")


def test_what_addresses_are_made_of_comes_before(case: Callable[..., Case]) -> None:
    draft = LoadsFirst().apply(made(case, GATHERED).draft, {"loop": 0, "factor": 4})
    text = draft.text
    assert "const auto x_2 = x[j + 256];" in text
    assert "const auto x_too_2 = x[at_2];" in text
    assert text.index("at_3 = at[") < text.index("x_too_0 = x[")
    assert text.count("column") == 2  # of what is left


def test_no_second_loop_where_none_is_needed(case: Callable[..., Case]) -> None:
    one = made(case, COUNTED)
    whole = LoadsFirst().apply(one.draft, {"loop": 0, "factor": 8})
    assert whole.text.count("for (") == 2
    assert LoadsFirst().apply(one.draft, {"loop": 1, "factor": 4}).text.count("for (") == 3


def test_simple_loops_are_the_compilers(case: Callable[..., Case]) -> None:
    one = made(case, KEPT.replace("x[j] / (1 + at[j])", "x[j] * at[j]").replace(
        "if (sum > 1e9f) sum = 0.0f;", ""))  # fmt: skip
    assert LoadsFirst().settings(one.draft) == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x[j] / (1 + at[j])", "y[j % 128] / (1 + k)"),  # written
        ("x[j] / (1 + at[j])", "x[k] / (1 + k); k += j"),
        ("x[j] / (1 + at[j])", "x[n - 1] / (1 + row)"),
        ("x[j] / (1 + at[j])", "(sum < 5 ? x[j] : 1)"),
        ("sum = 0.0f;\n        sum", "break;\n        sum"),
        ("sum = 0.0f;\n        sum", "continue;\n        sum"),
        ("sum = 0.0f;\n        sum", "sum = 0.0f;\n        __syncwarp(); sum"),
        ("j += 128", "j += 128, k++"),
        ("j += 128", "j += k"),
        ("const float* x", "volatile const float* x"),
        ("sum += x[j] / (1 + at[j])", "if (j > 5) sum += x[j] / 3"),
        ("sum += x[j] / (1 + at[j])", "x += 1; sum += x[j - k] / 3"),
        ("sum += x[j] / (1 + at[j])", "j += k; sum += x[j] / 3"),
        ("sum += x[j] / (1 + at[j])", "for (int i = 0; i < n; i++) sum += x[j] / 3"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in KEPT
    one = made(case, KEPT.replace(before, after, 1))
    assert one.draft.form.kernel.body  # it is understood
    with pytest.raises(NotUnderstood):
        LoadsFirst().apply(one.draft, {"loop": 0, "factor": 4})
