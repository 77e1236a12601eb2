"""Axes of the grid in another order: what is taken, what must be left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.block_order import BlockOrder
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case, every_setting, expressions

_X = np.arange(72 * 30 * 20, dtype=np.float32) % 97
LAYERS = """
__device__ float weighed(float a, float b) { return 0.25f * a + b; }
__global__ void layers(const float* x, float* y, int nx, int ny, int nz) {
    __shared__ float tile[6][6];
    int i = threadIdx.x + 4 * blockIdx.z, j = threadIdx.y + 4 * blockIdx.y;
    int first = blockIdx.x * 8, last = blockIdx.x == gridDim.x - 1 ? nx : first + 8;
    for (int k = first; k < last; ++k) {
        tile[threadIdx.y][threadIdx.x] = i < nz && j < ny ? x[(k * ny + j) * nz + i] : 0;
        __syncthreads();
        if (threadIdx.x < 4 && threadIdx.y < 4 && i < nz && j < ny)
            y[(k * ny + j) * nz + i] = weighed(tile[threadIdx.y][threadIdx.x + 1],
                                               tile[threadIdx.y + 1][threadIdx.x]);
        __syncthreads();
    }
}"""
TURNED = """
__global__ void turned(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) y[row * columns + column] = x[row * columns + column] + 1;
}"""
FLAT = """
__global__ void flat(const float* x, float* y, int n) {
    unsigned block = blockIdx.z * gridDim.y * gridDim.x + blockIdx.y * gridDim.x + blockIdx.x;
    int step = gridDim.x * gridDim.y * gridDim.z * blockDim.x;
    for (int i = block * blockDim.x + threadIdx.x; i < n; i += step) y[i] = 2 * x[i];
}"""
COUNTED = """
__global__ void counted(const float* x, int* seen, int n) {
    int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 50) atomicAdd(&seen[(int)x[i] % 7], 1);
}"""
POINTER = """
__global__ void shifted(const float* x, float* y, int n, int m) {
    x = &x[blockIdx.y * 32 + m * blockIdx.x];
    y += blockIdx.y * 32 + m * blockIdx.x;
    if (blockIdx.y * 32 + threadIdx.x < m && blockIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * 3;
}"""

TAKEN: dict[str, tuple[str, Arguments, tuple[int, ...], tuple[int, ...], int]] = {
    "a march through layers": (
        LAYERS, {"x": _X, "y": _X * 0, "nx": 71, "ny": 30, "nz": 20}, (9, 8, 5), (6, 6), 5,
    ),
    "two axes": (
        TURNED, {"x": _X, "y": _X * 0, "rows": 399, "columns": 60}, (100, 15), (4, 4), 1,
    ),
    "a number of the whole grid": (FLAT, {"x": _X, "y": _X * 0, "n": 23_999}, (9, 5, 7), (32,), 5),
    "z without y": (
        FLAT, {"x": _X, "y": _X * 0, "n": 23_999}, (40, 1, 8), (32,), 1,
    ),
    "atomics": (
        COUNTED, {"x": _X, "seen": np.zeros(7, np.int32), "n": 23_999}, (150, 6), (32,), 1,
    ),
    "pointers that a block moves": (
        POINTER, {"x": _X, "y": _X * 0, "n": 239, "m": 90}, (240, 3), (32,), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block, orders = TAKEN[name]
    one = case(source, arguments, grid=grid, block=block)
    drafts = every_setting(BlockOrder(), one)
    assert len(drafts) == orders
    for draft in drafts.values():
        one.same(draft)


def test_the_last_axis_comes_first(case: Callable[..., Case]) -> None:
    source, arguments, grid, block, _ = TAKEN["a march through layers"]
    draft = case(source, arguments, grid=grid, block=block).applied(BlockOrder())
    assert draft.launch.grid == expressions("gridDim.z", "gridDim.y", "gridDim.x")
    assert "threadIdx.x + 4 * blockIdx.x" in draft.text
    assert "blockIdx.z == gridDim.z - 1" in draft.text
    assert draft.requires == expressions("gridDim.x <= 65535")


def test_twice_is_the_author_s(case: Callable[..., Case]) -> None:
    source, arguments, grid, block, _ = TAKEN["two axes"]
    one = case(source, arguments, grid=grid, block=block)
    once = one.applied(BlockOrder())
    assert BlockOrder().settings(once) == ()
    again = BlockOrder().apply(once, {"order": "yxz"})
    assert again.launch.grid == expressions("gridDim.x", "gridDim.y", "1")
    one.same(again)


_ROW = "int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;"
LEFT = {
    "a function that asks for its block": (
        "__device__ int place() { return blockIdx.y * gridDim.x + blockIdx.x; }",
        "int i = place() * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",
    ),
    "all of blockIdx": (
        "__device__ int row(uint3 block) { return block.y; }",
        "int i = (row(blockIdx) * gridDim.x + blockIdx.x) * 32 + threadIdx.x; if (i < n) y[i] = 1;",
    ),
    "blocks that wait for others": (
        "__device__ int ready;",
        f"{_ROW} while (atomicAdd(&ready, 0) < 0) {{}} if (i < n) y[i] = x[i];",
    ),
    "what others write, through a fence": (
        "", f"{_ROW} if (i < n) y[i] = x[i]; __threadfence();",
    ),
    "volatile memory": ("", f"{_ROW} volatile float* v = y; if (i < n) v[i] = x[i];"),
    "assembly": ("", f'{_ROW} asm volatile("membar.gl;"); if (i < n) y[i] = x[i];'),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    above, body = LEFT[name]
    source = f"{above}\n__global__ void k(const float* x, float* y, int n) {{ {body} }}"
    one = case(source, {"x": _X, "y": _X * 0, "n": 23_000}, grid=(150, 5), block=(32,))
    with pytest.raises(NotUnderstood):
        BlockOrder().apply(one.draft, {"order": "yxz"})


@pytest.mark.parametrize("grid", [(10, 15), (300, 1)])
def test_few_blocks_and_one_row_have_no_order(
    grid: tuple[int, ...], case: Callable[..., Case]
) -> None:
    arguments: Arguments = {"x": _X, "y": _X * 0, "rows": 40, "columns": 60}
    one = case(TURNED, arguments, grid=grid, block=(4, 4))
    assert BlockOrder().settings(one.draft) == ()


def test_clusters_stay(case: Callable[..., Case]) -> None:
    source, arguments, grid, block, _ = TAKEN["two axes"]
    draft = case(source, arguments, grid=grid, block=block).draft
    text = draft.text.replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")
    with pytest.raises(NotUnderstood, match="clusters"):
        BlockOrder().apply(draft.edited(draft.form.kernel, text), {"order": "yxz"})


def test_more_blocks_than_an_axis_has(case: Callable[..., Case]) -> None:
    source = """__global__ void k(float* y, int n) {
        if (blockIdx.x == 65540 && threadIdx.x < n) y[blockIdx.y] = 1; }"""
    one = case(source, {"y": _X * 0, "n": 1}, grid=(65_541, 2), block=(1,))
    with pytest.raises(NotUnderstood, match="more blocks along x"):
        BlockOrder().apply(one.draft, {"order": "yxz"})
