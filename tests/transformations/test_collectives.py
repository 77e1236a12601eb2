"""Kernels whose threads work together inside of a library's or a program's function: a thread more
or less, another place in the block, or a turn that some do not take changes what it gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomics_private import AtomicsPrivate
from cudaops.transformations.base import Setting, Transformation
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.grid_stride import GridStride
from cudaops.transformations.registry import TRANSFORMATIONS
from tests.transformations.bench import Case, drafts

LONG = 1500
"""Of a row: many turns for each thread."""
SUMS_BY_CUB = """
#include <cub/cub.cuh>
template <int SIZE>
__global__ void dots(float* y, const float* a, const float* b, int n, float k) {
    int row = blockIdx.x, tid = threadIdx.x;
    const float* own = a + row * n;
    float sum = 0.0f;
    for (int i = tid; i < n; i += SIZE) sum += own[i] * b[i];
    using Reduce = cub::BlockReduce<float, SIZE>;
    __shared__ typename Reduce::TempStorage scratch;
    sum = Reduce(scratch).Sum(sum);
    if (tid == 0) y[row] += k * sum;
}
"""
SUMS_BY_ITS_OWN = """
struct Adder {
    float* scratch;
    __device__ Adder(float* s) : scratch(s) {}
    __device__ float all(float mine) const {
        scratch[threadIdx.x] = mine;
        __syncthreads();
        float total = 0.0f;
        for (int i = 0; i < blockDim.x; i++) total += scratch[i];
        __syncthreads();
        return total;
    }
};
__global__ void dots(float* y, const float* a, const float* b, int n, float k) {
    __shared__ float scratch[32];
    int row = blockIdx.x;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) sum += a[row * n + i] * b[i];
    sum = Adder(scratch).all(sum);
    if (threadIdx.x == 0) y[row] += k * sum;
}
"""
SUMS_BY_A_FUNCTION = """
__device__ float warp_sum(float v) {
    for (int apart = 16; apart > 0; apart >>= 1) v += __shfl_down_sync(0xffffffff, v, apart);
    return v;
}
__device__ float block_sum(float v) {
    static __shared__ float of_warp[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? of_warp[lane] : 0.0f;
    if (warp == 0) v = warp_sum(v);
    return v;
}
__device__ float block_tree(float v) {
    __shared__ float part[64];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    return part[0];
}
__global__ void dots(float* y, const float* a, const float* b, int n, float k) {
    int row = blockIdx.x;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum += a[row * n + i] * b[i];
        squares += a[row * n + i] * a[row * n + i];
    }
    sum = block_sum(sum);
    squares = block_tree(squares);
    if (threadIdx.x == 0) y[row] += k * sum + squares;
}
"""
ROWS_OF_HALF_A_WARP = """
__global__ void sums(const float* a, float* error, int n) {
    __shared__ float of_row[16];
    int i = threadIdx.x + blockIdx.x * blockDim.x, j = threadIdx.y + blockIdx.y * blockDim.y;
    float found = i < n && j < n ? a[i + j * n] : 0.0f;
    for (int k = 8; k > 0; k /= 2) found += __shfl_down_sync(0xffffffff, found, k);
    if (threadIdx.x == 0) of_row[threadIdx.y] = found;
    __syncthreads();
    if (threadIdx.y == 0) {
        found = threadIdx.x < blockDim.y ? of_row[threadIdx.x] : 0.0f;
        for (int k = 8; k > 0; k /= 2) found += __shfl_down_sync(0xffffffff, found, k);
        if (threadIdx.x == 0) atomicAdd(error, found);
    }
}
"""
"""The second half of a block's first warp has left when the first half sums up."""


def by_cub(case: Callable[..., Case]) -> Case:
    return made(case, SUMS_BY_CUB, callee="dots<32>")


def by_its_own(case: Callable[..., Case]) -> Case:
    return made(case, SUMS_BY_ITS_OWN)


def by_a_function(case: Callable[..., Case]) -> Case:
    return made(case, SUMS_BY_A_FUNCTION, block=64)


def made(case: Callable[..., Case], text: str, block: int = 32, **more: str) -> Case:
    rng = np.random.default_rng(4)
    arguments = {
        "y": rng.standard_normal(6, dtype=np.float32),
        "a": rng.standard_normal(6 * LONG, dtype=np.float32),
        "b": rng.standard_normal(LONG, dtype=np.float32), "n": LONG, "k": 0.5,
    }  # fmt: skip
    return case(text, arguments, grid=(6,), block=(block,), **more)


@pytest.mark.parametrize("one", TRANSFORMATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("make", [by_cub, by_its_own, by_a_function])
def test_threads_that_work_together_in_a_function_still_do(
    one: Transformation, make: Callable[..., Case], case: Callable[..., Case]
) -> None:
    subject = make(case)
    for draft in drafts(one, subject):
        subject.same(draft, tolerance=1e-5)


@pytest.mark.parametrize("block", [(16, 16), (32, 8)], ids=["half a warp", "a warp"])
def test_blocks_follow_each_other_where_no_warp_is_parted(
    block: tuple[int, int], case: Callable[..., Case]
) -> None:
    """Whoever leaves a loop's iteration before a shuffle waits for the next barrier, and the
    shuffle for them: what a kernel may do at its end is a deadlock before it."""
    text = ROWS_OF_HALF_A_WARP.replace("int k = 8", f"int k = {block[0] // 2}")
    arguments = {"a": np.ones(4096, np.float32), "error": np.zeros(1, np.float32), "n": 64}
    whole = block[0] == 32
    subject = case(text, arguments, grid=(64 // block[0], 64 // block[1]), block=block)
    serial: tuple[tuple[Transformation, Setting], ...] = (
        (Coarsen(), {"factor": 2, "by": "block", "axis": "x"}),
        (GridStride(), {"blocks": 132}),
        (AtomicsPrivate(), {"blocks": 132}),
    )
    for one, setting in serial:
        if whole:
            subject.same(one.apply(subject.draft, setting), tolerance=1e-5)
        else:
            with pytest.raises(NotUnderstood, match="some rows of a warp"):
                one.apply(subject.draft, setting)
