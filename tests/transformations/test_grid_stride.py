"""Few blocks for much work: setup that is done once, and loops that fit any grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.grid_stride import GridStride
from tests.transformations.bench import Case, expressions

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

NAMED = """
__global__ void thirds(const int* x, int* y, int n) {
    int first = threadIdx.x + blockIdx.x * blockDim.x;
    const int stride = blockDim.x * gridDim.x;
    int i, third;
    for (i = first; i < n; i += stride) {
        third = x[i] / 3;
        if (third & 1) third = -third;
        y[i] = third;
    }
}"""
STACKS = """
__global__ void walked(const int* order, const int* child, int* y, int n, int nodes) {
    __shared__ int weight[4], node[64];
    int i, depth, at, found;
    if (threadIdx.x == 0) {
        weight[0] = nodes;
        for (i = 1; i < 4; i++) weight[i] = weight[i - 1] / 2;
    }
    __syncthreads();
    int warp = threadIdx.x / 32, base = warp * 16;
    for (int k = threadIdx.x + blockIdx.x * blockDim.x; k < n; k += blockDim.x * gridDim.x) {
        i = order[k];
        found = 0;
        depth = base;
        if (threadIdx.x % 32 == 0) node[base] = 0;
        __syncwarp();
        do {
            at = node[depth];
            __syncwarp();
            if (at < nodes && __any_sync(0xffffffff, (i ^ at) % 3 == 0)) {
                found += weight[depth - base] + child[at];
                if (threadIdx.x % 32 == 0) {
                    node[depth] = 2 * at + 1;
                    node[depth + 1] = 2 * at + 2;
                }
                depth++;
            } else {
                depth--;
            }
            __syncwarp();
        } while (depth >= base && depth < base + 3);
        y[i] = found;
    }
}"""
"""A walk through a tree by a warp together, whose stack is in shared memory."""

_INTS = np.arange(1001, dtype=np.int32)[::-1].copy()
_ORDER = np.random.default_rng(5).permutation(992).astype(np.int32)
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
    "named": (NAMED, {"x": _INTS, "y": _INTS * 0, "n": 1001}, (4,), (64,), {"grid": 3}),
    "stacks": (
        STACKS, {"order": _ORDER, "child": _INTS[:40], "y": _INTS * 0, "n": 992, "nodes": 40},
        (2,), (128,), {"grid": 7},
    ),
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


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ int s[64]; s[threadIdx.x] = 0; " + LOOP
        + "{ s[threadIdx.x] += x[i]; y[i] = s[threadIdx.x]; }",
        "__shared__ int s[64]; " + LOOP + "{ s[threadIdx.x] = x[i]; y[i] = x[i]; } __syncthreads();"
        " if (s[5] > n) n = 1;",
        "__shared__ int s[64]; int* p = s; " + LOOP + "{ p[threadIdx.x] += x[i]; y[i] = 1; }",
        LOOP + "y[i % 640] += x[i];",
        LOOP + "y[threadIdx.x % 5 + i % n] = x[i];",
        "int last; " + LOOP + "{ if (x[i] > 3) last = x[i]; y[i] = last; }",
        "int last; " + LOOP + "{ last = x[i]; y[i] = last; } if (n == last) y[0] = 1;",
        ("int i = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;"
        " for (; i < n; i += step) y[i] = step;"),
        ("int at = blockIdx.x * blockDim.x + threadIdx.x; for (int i = at; i < n;"
        " i += gridDim.x * blockDim.x) y[i] = at;"),
        ("int b = blockIdx.x, at = b * blockDim.x + threadIdx.x; for (int i = at; i < n;"
        " i += gridDim.x * blockDim.x) y[i] = at;"),
        LOOP + "{ y[i] = x[i]; if (i > 9) return; }",
        LOOP + "y[i] = x[i]; if (threadIdx.x == 0) atomicAdd(y, 1);",
    ],
)  # fmt: skip
def test_what_one_iteration_may_leave_another(body: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        GridStride().apply(_draft(case, body).draft, {"grid": 40})


def test_threads_that_meet_have_no_more_iterations_than_before(case: Callable[..., Case]) -> None:
    """A barrier after a block's only iteration may be missing, and none is needed."""
    source, arguments, grid, block, _ = TAKEN["stacks"]
    made = case(source, arguments, grid=grid, block=block)
    with pytest.raises(NotUnderstood, match="several iterations per block"):
        GridStride().apply(made.draft, {"grid": 1})
    draft = GridStride().apply(made.draft, {"grid": 7})
    assert draft.requires == expressions("gridDim.x > 1", "gridDim.x <= 7")


def test_one_block_whose_iterations_follow_each_other(case: Callable[..., Case]) -> None:
    body = "int t = threadIdx.x; " + LOOP + "y[t] += x[i];"
    made = case(
        f"__global__ void k(const int* x, int* y, int n) {{ {body} }}",
        {"x": _INTS, "y": _INTS * 0, "n": 640}, grid=(1,), block=(64,),
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        GridStride().apply(made.draft, {"grid": 4})
