"""Blocks that are tiles of an image: what is taken, what must be left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.tiles import Tiles
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case, every_setting, expressions

_X = np.arange(128 * 40, dtype=np.float32) * 7 % 97
SETTING: Setting = {"rows": 8, "width": "w"}

CROSS = """
__global__ void cross(const float* x, float* y, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int column = i % w, row = i / w;
    if (row >= h) return;
    float sum = x[i];
    if (column > 0) sum += x[i - 1];
    if (column < w - 1) sum += x[i + 1];
    if (row > 0) sum += x[i - w];
    if (row < h - 1) sum += x[i + w];
    y[i] = sum;
}"""
CALLED = """
__device__ float above(const float* x, int at, int row) {
    int up = at / row > 0 ? at - row : at;
    return x[at] + x[up];
}
__global__ void called(const float* x, float* y, int w, unsigned n) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = above(x, i, w);
}"""
STRIDES = """
__global__ void strides(const float* x, float* y, unsigned w, int n) {
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] + (i >= w ? x[i - w] : x[i % w]);
}"""
LAYERS = """
__global__ void layers(const float* x, float* y, long long w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    w = w + 0;
    if (i < n) y[blockIdx.y * n + i] = x[blockIdx.y * n + i / w * w] + blockIdx.y;
}"""
ANY = """
__global__ void counted(const float* x, int* seen, int w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&seen[(int)x[i] % 7 + i % w % 2], 1);
}"""

TAKEN: dict[str, tuple[str, Arguments, tuple[int, ...], int]] = {
    "whole bands": (CROSS, {"x": _X, "y": _X * 0, "w": 128, "h": 40}, (20,), 2),
    "a band that is not whole": (CROSS, {"x": _X, "y": _X * 0, "w": 128, "h": 37}, (19,), 2),
    "a last row that is cut": (CALLED, {"x": _X, "y": _X * 0, "w": 64, "n": 2977}, (12,), 2),
    "rows of one tile": (CROSS, {"x": _X, "y": _X * 0, "w": 32, "h": 150}, (19,), 1),
    "no whole band": (CROSS, {"x": _X, "y": _X * 0, "w": 1024, "h": 3}, (12,), 2),
    "more threads than pixels": (CROSS, {"x": _X, "y": _X * 0, "w": 96, "h": 9}, (50,), 1),
    "a loop over the grid": (STRIDES, {"x": _X, "y": _X * 0, "w": 64, "n": 5000}, (7,), 2),
    "layers, and a width that changes": (
        LAYERS, {"x": _X, "y": _X * 0, "w": 64, "n": 2500}, (10, 2), 2,
    ),
    "atomics": (ANY, {"x": _X, "seen": np.zeros(8, np.int32), "w": 64, "n": 5000}, (20,), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, settings = TAKEN[name]
    one = case(source, arguments, grid=grid, block=(256,))
    drafts = every_setting(Tiles(), one)
    assert len(drafts) == settings
    for draft in drafts.values():
        one.same(draft)


@pytest.mark.parametrize(("threads", "rows"), [(128, 4), (512, 16), (1024, 8)])
def test_other_blocks(threads: int, rows: int, case: Callable[..., Case]) -> None:
    arguments: Arguments = {"x": _X, "y": _X * 0, "w": 128, "h": 39}
    one = case(CROSS, arguments, grid=(-(-5120 // threads),), block=(threads,))
    one.same(one.applied(Tiles(), {"rows": rows, "width": "w"}))


def test_each_pixel_is_one_thread_s(case: Callable[..., Case]) -> None:
    source = """__global__ void once(int* seen, int w, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && i % w >= 0) atomicAdd(&seen[i], 1); }"""
    seen = np.zeros(256 * 29, np.int32)
    one = case(source, {"seen": seen, "w": 96, "n": seen.size}, grid=(29,), block=(256,))
    draft = one.applied(Tiles())
    one.same(draft)
    assert (one.outputs(draft.rewrite())["seen"] == 1).all()


def test_conditions_and_only_once(case: Callable[..., Case]) -> None:
    source, arguments, grid, _ = TAKEN["whole bands"]
    draft = case(source, arguments, grid=grid, block=(256,)).applied(Tiles())
    assert set(expressions("w % 32 == 0", "w >= 32", "blockDim.x == 256")) <= set(draft.requires)
    assert Tiles().settings(draft) == ()


_PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; int column = i % w;"
LEFT = {
    "a barrier": f"{_PLACE} __syncthreads(); if (i < n) y[i] = x[i] + column;",
    "shared memory": (
        f"{_PLACE} __shared__ float s[256]; s[threadIdx.x] = x[0]; if (i < n) y[i] = s[0];"
    ),
    "a shuffle": f"{_PLACE} int v = __shfl_down_sync(~0u, column, 1); if (i < n) y[i] = v;",
    "a vote": f"{_PLACE} if (i < n) y[i] = __any_sync(__activemask(), column == 3);",
    "a thread's number by itself": f"{_PLACE} if (i < n) y[i] = x[i] + column + threadIdx.x;",
    "a block's number by itself": f"{_PLACE} if (i < n) y[i] = x[i] + column + blockIdx.x;",
    "another product": (
        "int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] = x[i] + i % w;"
    ),
    "rows of threads": f"{_PLACE} if (i < n && threadIdx.y == 0) y[i] = x[i] + column;",
    "a volatile array": f"{_PLACE} volatile float* v = y; if (i < n) v[i] = column;",
    "assembly": f'{_PLACE} asm volatile("membar.gl;"); if (i < n) y[i] = column;',
    "a function that asks for its thread": (
        f"{_PLACE} if (i < n) y[i] = x[i] + column + lane();"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    source = f"""__device__ int lane() {{ return threadIdx.x % 32; }}
    __global__ void k(const float* x, float* y, int w, int n) {{ {LEFT[name]} }}"""
    one = case(source, {"x": _X, "y": _X * 0, "w": 128, "n": 5000}, grid=(20,), block=(256,))
    with pytest.raises(NotUnderstood):
        Tiles().apply(one.draft, SETTING)


@pytest.mark.parametrize(("width", "threads"), [(100, 256), (16, 256), (33, 256), (128, 96)])
def test_rows_that_are_no_tiles(width: int, threads: int, case: Callable[..., Case]) -> None:
    arguments: Arguments = {"x": _X, "y": _X * 0, "w": width, "h": 10}
    one = case(CROSS, arguments, grid=(60,), block=(threads,))
    assert Tiles().settings(one.draft) == ()
    with pytest.raises(NotUnderstood):
        Tiles().apply(one.draft, SETTING)


def test_nothing_is_divided(case: Callable[..., Case]) -> None:
    source = """__global__ void k(const float* x, float* y, int w, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * w; }"""
    one = case(source, {"x": _X, "y": _X * 0, "w": 128, "n": 5000}, grid=(20,), block=(256,))
    assert Tiles().settings(one.draft) == ()
