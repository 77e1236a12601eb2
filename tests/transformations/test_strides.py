"""Other blocks for loops in strides, and one thread where only the first works: what is taken, what
must be left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.strides import Strides
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case, every_setting, expression

_X = np.arange(4096, dtype=np.int32)[::-1].copy() % 977
_FIRST = np.concatenate([[0], np.cumsum(np.arange(40) * 7 % 23)]).astype(np.int32)
"""Where each of 40 rows begins, some of them empty."""

MERGE = """
__global__ void merged(int n, const int* first, const int* x, int* shared, int* sum) {
    for (int row = threadIdx.z + blockIdx.z * blockDim.z; row < n; row += gridDim.z * blockDim.z) {
        for (int j = first[row] + threadIdx.y + blockIdx.y * blockDim.y; j < first[row + 1];
             j += gridDim.y * blockDim.y) {
            sum[j] = x[j] + x[row];
            if (threadIdx.x == 0) {
                int found = 0;
                for (int k = first[row]; k < first[row + 1]; ++k) found += x[k] > x[j];
                if (found != 0) atomicAdd(&shared[j], found);
            }
        }
    }
}"""
ROWS = """
__global__ void gated(const int* x, int* y, int d) {
    const int* own = x + 2 * d * blockIdx.x;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        if (own[i] < 100) continue;
        y[blockIdx.x * d + i] = own[i] * own[d + i];
    }
}"""
ALIAS = """
__global__ void copied(const int* x, int* y, int n) {
    const int tid = threadIdx.x, step = blockDim.x;
    const int row = blockIdx.x * n;
    for (int i = tid; i < n; i += step) y[row + i] = x[row + i] + 1;
    for (int i = tid; i < n; i += step) y[row + i] *= 2;
}"""
IDLE = """
__global__ void last(const int* x, int* y, int n) {
    int row = blockIdx.x;
    y[row] = 7;
    int best = -1;
    for (int k = 0; k < n; ++k) if (x[row * n + k] > best) best = x[row * n + k];
    if (threadIdx.x == 0 && best > 0) y[row + gridDim.x] = best;
}"""
ONCE = """
__global__ void each(const int* first, const int* x, int* y, int n) {
    for (int row = threadIdx.x + blockIdx.x * blockDim.x; row < n; row += gridDim.x * blockDim.x)
        for (int j = first[row]; j < first[row + 1]; ++j) y[j] = x[row] + j;
}"""

TAKEN: dict[str, tuple[str, Arguments, tuple[int, ...], tuple[int, ...]]] = {
    "rows of rows": (
        MERGE,
        {"n": 40, "first": _FIRST, "x": _X[:512], "shared": _X[:512] * 0, "sum": _X[:512] * 0},
        (1, 1, 10), (8, 4, 4),
    ),
    "a block a row": (ROWS, {"x": _X, "y": _X * 0, "d": 300}, (5,), (64,)),
    "by other names": (ALIAS, {"x": _X, "y": _X * 0, "n": 333}, (7,), (128,)),
    "one that works": (IDLE, {"x": _X, "y": _X * 0, "n": 50}, (9,), (32,)),
    "one iteration a thread": (
        ONCE, {"first": _FIRST, "x": _X[:64], "y": _X[:512] * 0, "n": 40}, (2,), (32,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    found = every_setting(Strides(), made)
    for draft in list(found.values())[:3]:
        assert draft.launch.block != made.draft.launch.block
        made.same(draft)


def test_what_only_the_first_thread_does_takes_one(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["rows of rows"]
    settings = Strides().settings(case(source, arguments, grid=grid, block=block).draft)
    assert settings
    assert all(one["x"] == 1 for one in settings)
    source, arguments, grid, block = TAKEN["one that works"]
    draft = case(source, arguments, grid=grid, block=block).draft
    assert Strides().settings(draft) == ({"x": 1},)


def test_more_blocks_where_there_are_few_threads(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["rows of rows"]
    made = case(source, arguments, grid=grid, block=block)
    more = [one for one in Strides().settings(made.draft) if "blocks_y" in one]
    assert {one["blocks_y"] for one in more} == {4, 16}
    draft = Strides().apply(made.draft, more[0])
    assert draft.launch.grid[1] == expression("ceil_div(gridDim.y * blockDim.y, 32) * 16")
    made.same(draft)


def test_each_thread_must_have_had_one_iteration(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["one iteration a thread"]
    taken = Strides().apply(case(source, arguments, grid=grid, block=block).draft, {"x": 64})
    assert expression("gridDim.x * blockDim.x >= n") in taken.requires
    with pytest.raises(NotUnderstood):
        Strides().apply(case(source, arguments, grid=(1,), block=(32,)).draft, {"x": 64})


OWN = "for (int i = threadIdx.x; i < n; i += blockDim.x) "
AGAIN = "for (int j = threadIdx.x; j < n; j += blockDim.x) "
OF_GRID = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
LEFT = {
    "a sum": f"int sum = 0; {OWN} sum += x[i]; y[threadIdx.x] = sum;",
    "a sum in memory": f"{OWN} y[i % 16] += x[i];",
    "an array of the thread's": f"int kept[4] = {{}}; {OWN} kept[i % 4] = x[i]; y[0] = kept[1];",
    "one after the other": f"{OWN} y[i + 1] = y[i] + x[i];",
    "an early end": f"{OWN} {{ if (x[i] == 5) break; y[i] = 1; }}",
    "a return": f"{OWN} {{ if (x[i] == 5) return; y[i] = 1; }}",
    "a limit that moves": f"{OWN} {{ y[i] = 1; n -= x[i] > 900; }}",
    "one within the other": f"{OWN} {AGAIN} y[i] = j;",
    "the width": f"{OWN} y[i] = blockDim.x;",
    "the place": f"{OWN} y[i] = threadIdx.x;",
    "two kinds of strides": f"{OWN} y[i] = x[i]; {OF_GRID} y[n + i] = 1;",
    "a literal": "for (int i = threadIdx.x; i < n; i += 64) y[i] = x[i];",
    "a count by all": f"{OWN} y[i] = x[i]; atomicAdd(&y[n], 1);",
    "a sum by all": f"{OWN} y[i] = x[i]; y[n] += 1;",
    "read where all store": f"y[n] = 3; {OWN} y[i] = y[n];",
    "a barrier": f"{OWN} y[i] = x[i]; __syncthreads();",
    "shared memory": f"__shared__ int s[64]; {OWN} s[i % 64] = x[i]; y[0] = s[3];",
    "from another place": f"{OWN} y[i] = x[i]; {AGAIN.replace('= ', '= 1 + ', 1)} y[n + j] = y[j];",
    "the first of all": f"{OWN} y[i] = 1; if (threadIdx.x == 0) y[n] = 1;",
    "else": "if (threadIdx.x == 0) y[0] = x[1]; else y[1] = x[2];",
    "the second": "if (threadIdx.x == 1) y[0] = x[1];",
    "until it is equal": "for (int i = threadIdx.x; i != n; i += blockDim.x) y[i] = x[i];",
    "a function that writes": f"{OWN} put(y, i);",
    "a function that asks": f"{OWN} y[i] = place();",
    "a pointer of the thread's": f"int* at = y; {OWN} *at++ = x[i];",
    "volatile": f"volatile int* at = y; {OWN} at[i] = x[i];",
}
HELPERS = """
__device__ void put(int* y, int i) { y[i / 2] = i; }
__device__ int place() { return threadIdx.x; }
"""


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    source = f"{HELPERS}__global__ void k(const int* x, int* y, int n) {{ {LEFT[name]} }}"
    arguments = {"x": _X, "y": _X * 0, "n": 256}
    made = case(source, arguments, grid=(3,), block=(64,), callee="k")
    for width in (1, 128):
        with pytest.raises(NotUnderstood):
            Strides().apply(made.draft, {"x": width})
