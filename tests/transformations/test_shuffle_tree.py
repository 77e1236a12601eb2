"""Trees in shared memory, their look-alikes, and what is read of them afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.shuffle_tree import ShuffleTree
from tests.transformations.bench import Case, expression, expressions

HALVES = """
__global__ void total(const float* x, float* y, int n) {
    __shared__ float part[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    // by halves
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}"""

SOFTMAX = """
__global__ void softmax(const float* x, float* y, int n) {
    extern __shared__ float cache[];
    const int tid = threadIdx.x;
    float top = -1e30f;
    for (int j = tid; j < n; j += blockDim.x) top = fmaxf(top, x[blockIdx.x * n + j]);
    cache[tid] = top;
    for (unsigned int s = blockDim.x >> 1; s >= 1; s = s / 2) {
        __syncthreads();
        if (tid < s) {
            cache[tid] = fmaxf(cache[tid], cache[tid + s]);
        }
    }
    __syncthreads();
    top = cache[0];
    __syncthreads();
    float sum = 0;
    for (int j = tid; j < n; j += blockDim.x) sum += expf(x[blockIdx.x * n + j] - top);
    cache[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s) cache[tid] = cache[tid] + cache[tid + s];
        __syncthreads();
    }
    for (int j = tid; j < n; j += blockDim.x)
        y[blockIdx.x * n + j] = expf(x[blockIdx.x * n + j] - top) / cache[0];
}"""

DOUBLES = """
#define THREADS 64
__global__ void extremes(const int* x, int* y) {
    __shared__ int least[THREADS], most[THREADS];
    for (int row = blockIdx.x; row < 7; row += gridDim.x) {
        least[threadIdx.x] = x[row * THREADS + threadIdx.x];
        most[threadIdx.x] = x[row * THREADS + threadIdx.x];
        __syncthreads();
        for (int s = 1; s < THREADS; s *= 2) {
            if (threadIdx.x % (2 * s) == 0) {
                if (least[threadIdx.x + s] < least[threadIdx.x])
                    least[threadIdx.x] = least[threadIdx.x + s];
                most[threadIdx.x] = max(most[threadIdx.x], most[threadIdx.x + s]);
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) y[row] = most[0] - least[0];
        __syncthreads();
    }
}"""

LAST_WARP = """
__global__ void product(const unsigned* x, unsigned* y) {
    __shared__ unsigned a[256];
    unsigned tid = threadIdx.x;
    a[tid] = x[blockIdx.x * 256 + tid] | 1u;
    __syncthreads();
    for (unsigned s = 128; s > 32; s >>= 1) {
        if (tid < s) a[tid] *= a[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        a[tid] *= a[tid + 32]; __syncwarp();
        a[tid] *= a[tid + 16]; __syncwarp();
        a[tid] *= a[tid + 8]; __syncwarp();
        a[tid] *= a[tid + 4]; __syncwarp();
        a[tid] *= a[tid + 2]; __syncwarp();
        a[tid] *= a[tid + 1];
    }
    if (tid == 0) y[blockIdx.x] = a[0];
}"""


VOTE = """
__global__ void broken(const int* x, int* count, double* part, int n) {
    extern __shared__ int cache[];
    const int t = threadIdx.x;
    const int size = blockDim.x;
    int i = blockIdx.x * size + t;
    if (i < n) cache[t] = x[i] != -1 ? 1 : 0;
    else cache[t] = 0;
    __syncthreads();
    for (i = size / 2; i > 0; i /= 2) {
        if (t < i) {
            cache[t] += cache[t + i];
        }
        __syncthreads();
    }
    if (t == 0) {
        int found = cache[0];
        count[blockIdx.x] = found;
        part[blockIdx.x] = 1.0 - (double)found / size;
    }
}"""


def _floats(n: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=n).astype(np.float32)


def test_halves(case: Callable[..., Case]) -> None:
    made = case(HALVES, {"x": _floats(300), "y": _floats(3), "n": 300}, grid=(3,), block=(128,))
    draft = made.applied(ShuffleTree())
    made.same(draft, tolerance=1e-5)
    assert "__shfl_xor_sync" in draft.text
    assert ">>=" not in draft.text
    assert draft.requires == expressions("blockDim.x == 128")


def test_two_trees_and_a_row_between(case: Callable[..., Case]) -> None:
    x = _floats(5 * 100)
    made = case(SOFTMAX, {"x": x, "y": x * 0, "n": 100}, grid=(5,), block=(64,), smem=256)
    after = made.applied(ShuffleTree())
    assert after.text.count("__shfl_xor_sync") == 2
    made.same(after, tolerance=1e-5)


def test_doubles_in_a_loop_over_rows(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(4).integers(-99, 99, 7 * 64).astype(np.int32)
    made = case(DOUBLES, {"x": x, "y": x[:7] * 0}, grid=(2,), block=(64,))
    draft = made.applied(ShuffleTree())
    made.same(draft)
    assert draft.text.count("__shfl_xor_sync") == 2


def test_with_the_last_warp_by_hand(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(4).integers(0, 1 << 31, 512).astype(np.uint32)
    made = case(LAST_WARP, {"x": x, "y": x[:2] * 0}, grid=(2,), block=(256,))
    draft = made.applied(ShuffleTree())
    assert "tid + 16" not in draft.text
    # The author's own is a race for the checker: lanes of one warp in step.
    found = made.outputs(draft.rewrite())["y"]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, (x | 1).reshape(2, 256).prod(1, dtype=np.uint32))


REFUSED = {
    "a scan": ("if (t >= s) part[t] += part[t - s];", "y[t] = part[0];"),
    "all partial sums used": ("if (t < s) part[t] += part[t + s];", "y[t] = part[t];"),
    "a neighbour used": ("if (t < s) part[t] += part[t + s];", "if (t == 0) y[0] = part[1];"),
    "differences": ("if (t < s) part[t] -= part[t + s];", "if (t == 0) y[0] = part[0];"),
    "another array": ("if (t < s) part[t] += more[t + s];", "if (t == 0) y[0] = part[0];"),
    "a running value": ("if (t < s) part[t] += part[t + s] * s;", "if (t == 0) y[0] = part[0];"),
    "every round noted": (
        "if (t < s) { part[t] += part[t + s]; y[t] = s; }", "if (t == 0) y[0] = part[0];"
    ),
    "a function sees it": ("if (t < s) part[t] += part[t + s];", "y[t] = look(part, t);"),
    "a pointer sees it": ("if (t < s) part[t] += part[t + s];", "float* p = part; y[t] = p[t];"),
    "another half": ("if (t < s - 1) part[t] += part[t + s];", "if (t == 0) y[0] = part[0];"),
}  # fmt: skip


@pytest.mark.parametrize(("round_", "after"), REFUSED.values(), ids=REFUSED)
def test_what_it_leaves(round_: str, after: str, case: Callable[..., Case]) -> None:
    made = case(
        "__device__ float look(const float* p, int t) { return p[t]; }\n"
        "__global__ void k(const float* x, float* y) {\n"
        "    __shared__ float part[64], more[128];\n    int t = threadIdx.x;\n"
        "    part[t] = x[t]; more[t] = more[t + 64] = 1;\n    __syncthreads();\n"
        f"    for (int s = 32; s > 0; s >>= 1) {{\n        {round_}\n"
        "        __syncthreads();\n    }\n"
        f"    {after}\n}}",
        {"x": _floats(64), "y": _floats(64)}, grid=(1,), block=(64,), callee="k",
    )  # fmt: skip
    assert ShuffleTree().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        ShuffleTree().apply(made.draft, {"trees": "all"})


@pytest.mark.parametrize("threads", [48, 96, 32])
def test_blocks_of_other_sizes_are_left(threads: int, case: Callable[..., Case]) -> None:
    made = case(
        HALVES.replace("blockDim.x / 2", "64"),
        {"x": _floats(300), "y": _floats(9), "n": 300}, grid=(3,), block=(threads,),
    )  # fmt: skip
    assert ShuffleTree().settings(made.draft) == ()


def test_a_tree_of_three_halves_is_left(case: Callable[..., Case]) -> None:
    made = case(HALVES, {"x": _floats(300), "y": _floats(4), "n": 300}, grid=(4,), block=(96,))
    assert ShuffleTree().settings(made.draft) == ()


def test_zeros_and_ones_are_a_vote(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(4).integers(-1, 1, 300).astype(np.int32)
    arguments = {"x": x, "count": x[:5] * 0, "part": np.zeros(5), "n": 290}
    made = case(VOTE, arguments, grid=(5,), block=(64,), smem=256)
    draft = made.applied(ShuffleTree())
    made.same(draft)
    assert "const int cache_count = __syncthreads_count(cache_own);" in draft.text
    assert "__shared__" not in draft.text
    assert "__syncthreads()" not in draft.text
    assert draft.launch.smem == expression("0")
    assert "int found = cache_count;" in draft.text
    shows = VOTE.replace("    for (i =", "    if (cache[t ^ 1] > 2) count[9] = 1;\n    for (i =")
    draft = case(shows, arguments, grid=(5,), block=(64,), smem=256).applied(ShuffleTree())
    assert "__syncthreads_count(cache[t])" in draft.text
    assert draft.launch.smem == expression("smem")
    more = VOTE.replace("? 1 : 0", "? 2 : 0")
    made = case(more, arguments, grid=(5,), block=(64,), smem=256)
    draft = made.applied(ShuffleTree())
    made.same(draft)
    assert "__syncthreads_count" not in draft.text
    looks = VOTE.replace("    for (i =", "    size > 99 ? count[9] = cache[0] : 0;\n    for (i =")
    made = case(looks, arguments, grid=(5,), block=(64,), smem=256)
    draft = made.applied(ShuffleTree())
    made.same(draft)
    assert "__syncthreads_count" not in draft.text
