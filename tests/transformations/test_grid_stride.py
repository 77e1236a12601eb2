"""Few blocks for much work: setup that is done once, and loops that fit any grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.grid_stride import GridStride
from tests.transformations.bench import Case

GUARDED = """
__global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // beyond
    y[i] = x[i] * x[i];
}"""
TABLE = """
__global__ void looked_up(const int* table, const int* x, int* y, int n) {
    __shared__ int kept[32];  // the table
    for (int k = threadIdx.x; k < 32; k += blockDim.x) kept[k] = table[k];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = kept[x[i] % 32] + gridDim.x;
}"""
REUSED = """
__global__ void turned(const int* x, int* y, int n) {
    __shared__ int kept[16];
    kept[threadIdx.x] = 7;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[threadIdx.x] += x[i % n];
    __syncthreads();
    y[i % n] = kept[15 - threadIdx.x];
}"""
MOVED = """
__global__ void moved(int* x, int* y, int n) {
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[k] = x[k] + 1;
}"""
STRIDES = """
__global__ void halves(const int* x, int* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int half = x[i] / 2;
        if (half < 0) continue;
        y[i] = half;
    }
}"""

_INTS = np.arange(1001, dtype=np.int32)[::-1].copy()
TAKEN = {
    "guarded": (
        GUARDED,
        {"x": _INTS.astype(np.float32), "y": np.zeros(1001, np.float32), "n": 1001},
        (32,), (32,), {"blocks": 5},
    ),
    "table": (
        TABLE, {"table": _INTS[:32], "x": _INTS, "y": _INTS * 0, "n": 1001}, (16,), (64,),
        {"blocks": 3},
    ),
    "reused": (
        REUSED, {"x": _INTS, "y": _INTS * 0, "n": 160}, (10,), (16,), {"blocks": 4},
    ),
    "moved": (MOVED, {"x": _INTS, "y": _INTS * 0, "n": 77}, (13,), (32,), {"blocks": 4}),
    "strides": (STRIDES, {"x": _INTS, "y": _INTS * 0, "n": 1001}, (4,), (64,), {"grid": 3}),
    "wider": (STRIDES, {"x": _INTS, "y": _INTS * 0, "n": 1001}, (2,), (64,), {"grid": 40}),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block, setting = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    draft = GridStride().apply(made.draft, setting)
    assert draft.launch.grid != made.draft.launch.grid
    made.same(draft)


def test_setup_is_done_once(case: Callable[..., Case]) -> None:
    for name, is_first in (("table", True), ("reused", False)):
        source, arguments, grid, block, setting = TAKEN[name]
        text = GridStride().apply(case(source, arguments, grid=grid, block=block).draft, setting)
        first = text.text.index("kept[k] = table" if is_first else "kept[threadIdx.x] = 7")
        assert (first < text.text.index("block < blocks")) == is_first


def _draft(case: Callable[..., Case], body: str, helper: str = "") -> Case:
    return case(
        f"{helper}__global__ void k(const int* x, int* y, int n) {{ {body} }}",
        {"x": _INTS, "y": _INTS * 0, "n": 640}, grid=(10,), block=(64,), callee="k",
    )  # fmt: skip


LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) "


@pytest.mark.parametrize(
    "body",
    [
        LOOP + "y[i] = x[i]; y[blockIdx.x] = 1;",
        LOOP + "y[blockIdx.x * blockDim.x + threadIdx.x] += x[i];",
        LOOP + "y[i] = x[i] + gridDim.x;",
        "int sum = 0; " + LOOP + "{ sum += x[i]; y[i] = sum; }",
        "int sum = 0; " + LOOP + "sum += x[i]; atomicAdd(y, sum);",
        LOOP + "{ if (x[i] == 5) break; y[i] = 1; }",
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 640) y[i] = x[i];",
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) y[i] = 2;",
        LOOP + "{ y[i] = x[i]; n--; }",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",
    ],
)
def test_grids_that_stay(body: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        GridStride().apply(_draft(case, body).draft, {"grid": 3})


@pytest.mark.parametrize(
    ("body", "helper"),
    [
        ("y[threadIdx.x] = 1;", ""),
        ("int i = place(); y[i] = x[blockIdx.x];",
         "__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }\n"),
        (("__shared__ int s[64]; int i = blockIdx.x * 64 + threadIdx.x; if (i >= n) return;"
          " s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[63 - threadIdx.x];"), ""),
        ("volatile int* p = y; p[blockIdx.x] = 1;", ""),
        ("for (int k = 0; k < n; ++k) if (x[k] == blockIdx.x) return; y[blockIdx.x] = 1;", ""),
    ],
)  # fmt: skip
def test_blocks_that_stay(body: str, helper: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        GridStride().apply(_draft(case, body, helper).draft, {"blocks": 3})
