"""Loads that several loops repeat, kept in registers: of which loops, and where memory changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.keep_loads import KeepLoads
from tests.lanes import mostly_deep
from tests.transformations.bench import Case, expression
from tests.transformations.generator import Generator

ROWS, COLUMNS, THREADS = 5, 150, 64
VALUES = np.random.default_rng(11).normal(size=ROWS * COLUMNS).astype(np.float32)

BLOCK = """
__device__ float largest(float mine) {
    __shared__ float all[64];
    all[threadIdx.x] = mine;
    __syncthreads();
    float most = all[0];
    for (int k = 1; k < 64; ++k) most = fmaxf(most, all[k]);
    __syncthreads();
    return most;
}
"""


def kernel_of(body: str, functions: str = BLOCK) -> str:
    return f"""{functions}
    __global__ void k(const float* x, float* y, const int* at, int n, float by) {{
        const int row = blockIdx.x, t = threadIdx.x;
        {body}
    }}"""


def launched(case: Callable[..., Case], body: str, functions: str = BLOCK, **more: object) -> Case:
    given = {
        "x": VALUES, "y": VALUES + 1, "at": np.arange(COLUMNS, dtype=np.int32)[::-1].copy(),
        "n": COLUMNS, "by": 0.5, **more,
    }  # fmt: skip
    return case(kernel_of(body, functions), given, grid=(ROWS,), block=(THREADS,), callee="k")


LOOP = "for (int i = t; i < n; i += blockDim.x)"
FIRST = f"float most = -1e30f; {LOOP} most = fmaxf(most, x[row * n + i]); most = largest(most);"

TAKEN = {
    "three loops": f"""
        {FIRST}
        float sum = 0;
        {LOOP} sum += expf(x[row * n + i] - most);
        {LOOP} y[row * n + i] = expf(x[row * n + i] - most) / (sum + 1.f);""",
    "another variable, a pointer, an index of its own": """
        const float* mine = x + row * n;
        float sum = 0;
        for (int i = t; i < n; i += 64) { int place = i; float v = mine[place]; sum += v * v; }
        for (int j = t; j < n; j += 64) if (j % 3) y[row * n + j] = mine[j] * sum;""",
    "in place": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        sum = largest(sum);
        {LOOP} y[row * n + i] = y[row * n + i] * sum + by;""",
    "in place, added to": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        {LOOP} {{ float v = y[row * n + i] * sum; y[row * n + i] -= v; }}""",
    "within a loop over rows": f"""
        for (int r = row; r < 5; r += gridDim.x) {{
            float sum = 0;
            {LOOP} sum += x[r * n + i];
            {LOOP} y[r * n + i] = x[r * n + i] - sum;
        }}""",
    "two arrays": f"""
        float sum = 0;
        {LOOP} sum += x[row * n + i] * at[i];
        {LOOP} y[row * n + i] = x[row * n + i] * sum + at[i];""",
    "written before and behind": f"""
        y[row * n + t] = by;
        __syncthreads();
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        {LOOP} sum += y[row * n + i] * by;
        __syncthreads();
        y[row * n + t] = sum;""",
    "what leads to an element": f"""
        float sum = 0;
        {LOOP} sum += x[at[i]];
        {LOOP} y[row * n + i] = x[at[i]] * sum;""",
    "more threads than elements": """
        float sum = 0;
        for (int i = t; i < 40; i += blockDim.x) sum += x[row * n + i];
        for (int i = t; i < 40; i += blockDim.x) y[row * n + i] = x[row * n + i] + sum;""",
}


@pytest.mark.parametrize("name", TAKEN)
def test_rows_are_kept(name: str, case: Callable[..., Case]) -> None:
    made = launched(case, TAKEN[name])
    draft = made.applied(KeepLoads())
    assert draft.text.count("#pragma unroll") >= 2
    made.same(draft)


def test_elements_behind_others_stay(case: Callable[..., Case]) -> None:
    draft = launched(case, TAKEN["what leads to an element"]).applied(KeepLoads())
    assert draft.text.count("x[at_kept[turn]]") == 2


def test_what_is_asked_of_a_launch(case: Callable[..., Case]) -> None:
    draft = launched(case, TAKEN["three loops"]).applied(KeepLoads())
    assert "float x_kept[3];" in draft.text
    assert expression("n <= 3 * blockDim.x") in draft.requires
    assert draft.text.count("x[row * n + i]") == 1


LEFT = {
    "written between": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        y[row * n + t] = by;
        __syncthreads();
        {LOOP} y[row * n + i] = y[row * n + i] * sum;""",
    "written by a loop between": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        {LOOP} y[row * n + i] = by * sum;
        {LOOP} y[row * n + i] = y[row * n + i] * sum;""",
    "read again once it is written": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        {LOOP} {{ y[row * n + i] = by * sum; sum += y[row * n + i]; }}""",
    "another element is written": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        {LOOP} y[row * n + n - 1 - i] = y[row * n + i] * sum;""",
    "the element of several iterations": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i / 2];
        {LOOP} y[row * n + i / 2] = y[row * n + i / 2] * sum + i;""",
    "under a condition first": f"""
        float sum = 0;
        {LOOP} if (i % 2) sum += x[row * n + i];
        {LOOP} y[row * n + i] = x[row * n + i] * sum;""",
    "another bound": f"""
        float sum = 0;
        {LOOP} sum += x[row * n + i];
        for (int i = t; i < n - 1; i += blockDim.x) y[row * n + i] = x[row * n + i] * sum;""",
    "another row": f"""
        float sum = 0;
        int r = row;
        {LOOP} sum += x[r * n + i];
        r = 0;
        {LOOP} y[row * n + i] = x[r * n + i] * sum;""",
    "left early": f"""
        float sum = 0;
        {LOOP} {{ sum += x[row * n + i]; if (sum > 100) break; }}
        {LOOP} y[row * n + i] = x[row * n + i] * sum;""",
    "a bound of its own": """
        float sum = 0;
        int end = at[row];
        for (int i = t; i < end; i += blockDim.x) sum += x[row * n + i];
        for (int i = t; i < end; i += blockDim.x) y[row * n + i] = x[row * n + i] * sum;""",
    "a long row": """
        float sum = 0;
        if (t == 0) for (int i = 0; i < n; ++i) sum += x[row * n + i];
        if (t == 1) for (int i = 0; i < n; ++i) sum += x[row * n + i];
        for (int i = 0; i < n; ++i) sum += x[row * n + i];
        for (int i = 0; i < n; ++i) sum += x[row * n + i] * sum;
        y[row * n + t] = sum;""",
    "down": """
        float sum = 0;
        for (int i = n - 1 - t; i >= 0; i -= 64) sum += x[row * n + i];
        for (int i = n - 1 - t; i >= 0; i -= 64) y[row * n + i] = x[row * n + i] * sum;""",
    "a shuffle inside": """
        float sum = 0;
        for (int i = t; i < 128; i += 64) sum += __shfl_xor_sync(~0u, x[row * n + i], 1);
        for (int i = t; i < 128; i += 64) y[row * n + i] = x[row * n + i] * sum;""",
    "added to atomically": f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        atomicAdd(y, by);
        {LOOP} sum += y[row * n + i];
        y[row * n + t] = sum;""",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_loaded_again(name: str, case: Callable[..., Case]) -> None:
    made = launched(case, LEFT[name])
    with pytest.raises(NotUnderstood):
        KeepLoads().settings(made.draft)


@pytest.mark.parametrize("seed", mostly_deep(range(300), 6))
def test_random_passes(seed: int, case: Callable[..., Case]) -> None:
    drawn = Generator(seed).passes()
    made = case(drawn.source, drawn.arguments, grid=drawn.grid, block=drawn.block)
    with contextlib.suppress(NotUnderstood):
        made.same(made.applied(KeepLoads()), tolerance=1e-5)


def test_a_function_that_writes_between(case: Callable[..., Case]) -> None:
    put = BLOCK + "__device__ void put(float* p, float v) { *p = v; }"
    body = f"""
        float sum = 0;
        {LOOP} sum += y[row * n + i];
        put(y + row * n, by);
        {LOOP} sum += y[row * n + i];
        y[row * n + t] = sum;"""
    with pytest.raises(NotUnderstood):
        KeepLoads().settings(launched(case, body, put).draft)


def test_another_pointer_to_the_same_memory(case: Callable[..., Case]) -> None:
    body = f"""
        float sum = 0;
        float* z = (float*)x;
        {LOOP} sum += x[row * n + i];
        {LOOP} {{ z[row * n + n - 1 - i] = by; y[row * n + i] = x[row * n + i] * sum; }}"""
    with pytest.raises(NotUnderstood):
        KeepLoads().settings(launched(case, body).draft)
