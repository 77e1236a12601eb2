"""Several blocks with one collection in shared memory, and kernels that only look like it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.merge_blocks import MergeBlocks
from tests.transformations.bench import Case
from tests.transformations.test_atomics_private import drawn

BINS = """
__global__ void bins(const int* x, int* out, int n, int m) {
    __shared__ int count[16];
    for (int b = threadIdx.x; b < 16; b += blockDim.x) count[b] = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __syncthreads();
    // every element once
    if (i < n) atomicAdd(&count[x[i] & 15], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < m; b += blockDim.x) atomicAdd(&out[b], count[b]);
}"""
STRIDES = BINS.replace(
    "if (i < n)", "for (; i < n; i += gridDim.x * blockDim.x)"
).replace("atomicAdd(&out[b]", "if (count[b]) atomicAdd(&out[b]")  # fmt: skip
ONE = """
template <bool both>
__global__ void one(const int* x, unsigned* size, float* mass, int n) {
    __shared__ unsigned here;
    __shared__ float heavy;
    int lane = threadIdx.x;
    int at = blockIdx.x * blockDim.x + lane;
    int value = 0;
    if (at < n) value = x[at];
    if (lane == 0) { here = 0; heavy = 0.0f; }
    __syncthreads();
    if (value > 3) atomicAdd(&here, value);
    if (both) { atomicAdd(&heavy, 0.5f * value); }
    __syncthreads();
    if (lane == blockDim.x - 1) {
        atomicAdd(size, here);
        atomicAdd(mass, heavy);
    }
}"""
DYNAMIC = BINS.replace("__shared__ int count[16];", "extern __shared__ int count[];")


@pytest.mark.parametrize("source", [BINS, STRIDES])
@pytest.mark.parametrize(("blocks", "block"), [(1, 32), (4, 50), (99, 7)])
def test_bins(source: str, blocks: int, block: int, case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(333), "out": np.arange(16, dtype=np.int32), "n": 333, "m": 16}
    made = case(source, arguments, grid=(-(-333 // block),), block=(block,))
    draft = MergeBlocks().apply(made.draft, {"blocks": blocks})
    assert "// every element once" in draft.text
    made.same(draft)


def test_single_counters_and_what_stands_before_they_are_clear(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(100), "size": np.ones(1, np.uint32), "mass": np.ones(1, np.float32),
                 "n": 100}  # fmt: skip
    made = case(ONE, arguments, grid=(4,), block=(32,), callee="one<true>")
    draft = MergeBlocks().apply(made.draft, {"blocks": 3})
    assert "if (both)" not in draft.text
    made.same(draft, tolerance=1e-5)


def test_only_fewer_blocks_are_offered(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(64), "out": np.zeros(16, np.int32), "n": 64, "m": 16}
    made = case(BINS, arguments, grid=(300,), block=(32,))
    assert MergeBlocks().settings(made.draft) == ({"blocks": 132},)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("count[b] = 0", "count[b] = 1"),
        ("count[b] = 0", "count[b] = 0, out[b] = 0"),
        ("count[b] = 0", "count[b] = blockIdx.x"),
        ("atomicAdd(&count[x[i] & 15], 1)", "count[x[i] & 15] = 1"),
        ("atomicAdd(&count[x[i] & 15], 1)", "atomicMax(&count[x[i] & 15], 1)"),
        ("atomicAdd(&count[x[i] & 15], 1)", "i = atomicAdd(&count[x[i] & 15], 1)"),
        ("// every element once", "m = m - 1;"),
        ("atomicAdd(&out[b], count[b])", "out[b] = count[b]"),
        ("atomicAdd(&out[b], count[b])", "atomicMax(&out[b], count[b])"),
        ("atomicAdd(&out[b], count[b])", "atomicAdd(&out[b], count[b] * count[b])"),
        ("atomicAdd(&out[b], count[b])", "if (count[b] > 2) atomicAdd(&out[b], count[b])"),
        ("atomicAdd(&out[b], count[b])", "atomicAdd(&out[b + blockIdx.x], count[b])"),
        ("atomicAdd(&out[b], count[b])", "atomicAdd(&out[b], i)"),
        ("// every element once", "if (i >= n) return; __syncthreads();"),
        ("// every element once", "if (i >= n) return;"),
        ("int i =", "int i = x[0] + 3 * m++ +"),
        ("// every element once", "if (out[3] > 5) i = 0;"),
        ("    __syncthreads();\n    for", "    __threadfence(); __syncthreads();\n    for"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in BINS
    arguments = {"x": drawn(64), "out": np.zeros(20, np.int32), "n": 64, "m": 16}
    made = case(BINS.replace(before, after), arguments, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood):
        MergeBlocks().apply(made.draft, {"blocks": 1})
