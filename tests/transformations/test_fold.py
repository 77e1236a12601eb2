"""Smaller blocks for the same work: what each thread does for several, and where it must not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.fold import Fold
from cudaops.transformations.shuffle_tree import ShuffleTree
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case, every_setting, expression, expressions

TREE = """
__global__ void block_sums(const float* x, float* y, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.f;  // theirs
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}"""
ROW = """
__global__ void softmax(const float* x, float* y, int n) {
    extern __shared__ float part[];
    const float* row = x + blockIdx.x * n;
    float most = -1e30f;
    for (int k = threadIdx.x; k < n; k += blockDim.x) most = fmaxf(most, row[k]);
    part[threadIdx.x] = most;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    float sum = 0.f;
    for (int k = threadIdx.x; k < n; k += blockDim.x) sum += expf(row[k] - most);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        y[blockIdx.x * n + k] = expf(row[k] - most) / part[0];
}"""
SHUFFLES = """
__device__ int warp_sum(int v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}
__global__ void row_sums(const int* x, int* y, int n) {
    __shared__ int parts[32];
    int sum = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) sum += x[blockIdx.x * n + k];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    sum = warp_sum(sum);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / 32 ? parts[lane] : 0;
    if (warp == 0) {
        sum = warp_sum(sum);
        if (lane == 0) y[blockIdx.x] = sum;
    }
}"""
VOTES = """
__global__ void counts(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int odd = __syncthreads_count(i < n && x[i] % 2 != 0), any = 0, all;
    any = __syncthreads_or(i < n && x[i] > 990);
    all = __syncthreads_and(i >= n || x[i] > 200);
    if (threadIdx.x == 0) y[blockIdx.x] = odd + 1000 * any + 2000 * all;
}"""
SCAN = """
__global__ void scan(const int* x, int* y, int n) {
    __shared__ int a[128], b[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int own = i < n ? x[i] : 0;
    a[t] = own;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        b[t] = t >= d ? a[t] + a[t - d] : a[t];
        __syncthreads();
        a[t] = b[t];
        __syncthreads();
    }
    if (i < n) y[i] = a[t] - own;
}"""
TILE = """
__global__ void turn(const float* x, float* y, int n) {
    __shared__ float tile[16][17];
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row < n && column < n) tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 16 + threadIdx.x;
    row = blockIdx.x * 16 + threadIdx.y;
    if (row < n && column < n) y[row * n + column] = tile[threadIdx.x][threadIdx.y];
}"""
PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][16];
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0.f;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n
            ? a[row * n + k + threadIdx.x] : 0.f;
        right[threadIdx.y][threadIdx.x] = k + threadIdx.y < n && column < n
            ? b[(k + threadIdx.y) * n + column] : 0.f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += left[threadIdx.y][j] * right[j][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}"""
ALONE = """
__global__ void rows(const float* x, float* y, int n) {
    float* own = y + blockIdx.x * n;
    for (int k = threadIdx.x; k < n; k += blockDim.x) own[k] = x[blockIdx.x * n + k] * k;
}"""
HISTOGRAM = """
__global__ void count(const int* x, int* bins, int n) {
    __shared__ int own[100];
    for (int b = threadIdx.x; b < 100; b += blockDim.x) own[b] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int place = -1;
    if (i < n) place = atomicAdd(&own[x[i] % 100], 1);
    __syncthreads();
    if (threadIdx.x < 100 && own[threadIdx.x]) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
    if (place == 0) atomicAdd(&bins[100], 1);
}"""
LEAVES = """
__global__ void some(const int* rows, const float* x, float* y, int n, int m) {
    __shared__ float best;
    if (blockIdx.x >= m) return;
    int row = rows[blockIdx.x];
    if (threadIdx.x == 0) best = x[row * n];
    __syncthreads();
    const float least = best;
    for (int k = threadIdx.x; k < n; k += blockDim.x) {
        float v = x[row * n + k] - least;
        if (v < 0.f) continue;
        y[blockIdx.x * n + k] = v;
    }
}"""
OWN = """
__global__ void shifts(const int* x, int* y, int n) {
    __shared__ int part[128];
    int kept[3] = {};
    int* mine = &part[threadIdx.x];
    n -= 1;
    for (int round = 0; round < 3; ++round) {
        *mine = x[blockIdx.x * blockDim.x + threadIdx.x] + round;
        __syncthreads();
        kept[round] = part[(threadIdx.x + round + 1) % blockDim.x];
        __syncthreads();
    }
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n) return;
    y[i] = kept[0] + 10 * kept[1] - kept[2];
}"""

_DRAW = np.random.default_rng(15)
_FLOATS = _DRAW.random(1200, dtype=np.float32)
_INTS = _DRAW.integers(0, 1000, 1200).astype(np.int32)

TAKEN = {
    "tree": (TREE, {"x": _FLOATS, "y": np.zeros(5, np.float32), "n": 1111}, (5,), (256,)),
    "shuffles": (SHUFFLES, {"x": _INTS, "y": np.zeros(9, np.int32), "n": 133}, (9,), (256,)),
    "votes": (VOTES, {"x": _INTS, "y": np.zeros(5, np.int32), "n": 1111}, (5,), (256,)),
    "scan": (SCAN, {"x": _INTS, "y": _INTS * 0, "n": 1001}, (9,), (128,)),
    "tile": (TILE, {"x": _FLOATS, "y": _FLOATS * 0, "n": 34}, (3, 3), (16, 16)),
    "product": (
        PRODUCT, {"a": _FLOATS, "b": _FLOATS[::-1].copy(), "c": _FLOATS * 0, "n": 19},
        (2, 2), (16, 16),
    ),
    "alone": (ALONE, {"x": _FLOATS, "y": _FLOATS * 0, "n": 77}, (13,), (128,)),
    "histogram": (
        HISTOGRAM, {"x": _INTS, "bins": np.zeros(101, np.int32), "n": 1001}, (8,), (128,),
    ),
    "leaves": (
        LEAVES, {"rows": np.array([3, 1, 2], np.int32), "x": _FLOATS, "y": _FLOATS * 0,
                 "n": 150, "m": 3},
        (5,), (192,),
    ),
    "own": (OWN, {"x": _INTS, "y": _INTS * 0, "n": 1001}, (8,), (128,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    for draft in every_setting(Fold(), made).values():
        assert draft.workloads[0].block.x * draft.workloads[0].block.y < np.prod(block)
        made.same(draft)


def dynamic(made: Case, size: int) -> Draft:
    """The case's draft with this much dynamic shared memory."""
    return made.draft.launched(smem=expression(str(size)))


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_rows_with_memory_that_the_launch_sizes(factor: int, case: Callable[..., Case]) -> None:
    arguments = {"x": _FLOATS, "y": _FLOATS * 0, "n": 77}
    static = ROW.replace("extern __shared__ float part[];", "__shared__ float part[256];")
    made = case(static, arguments, grid=(13,), block=(256,))
    made.same(Fold().apply(made.draft, {"axis": "x", "factor": factor}))
    sized = dynamic(case(ROW, arguments, grid=(13,), block=(256,)), 1024)
    draft = Fold().apply(sized, {"axis": "x", "factor": factor})
    assert draft.launch.smem == expression("1024")
    made.same(draft.launched(kernel=draft.launch.kernel))


def test_the_text_is_its_authors(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["tree"]
    draft = case(source, arguments, grid=grid, block=block).applied(Fold())
    assert "part[t] = i < n ? x[i] : 0.f;  // theirs" in draft.text
    assert draft.text.count("__syncthreads();") == 2, "one wait for all items"
    assert draft.launch.block == expressions("blockDim.x / 4", "1", "1")


LEADER = """
__global__ void gather(const int* at, const float* x, float* y, float* sizes, int n, int m) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n) {
        for (int k = 0; k < m; ++k) sizes[row] = x[at[row]] + k;
        if (threadIdx.x == 0) {
            float sum = 0.f;
            for (int k = at[row]; k < at[row + 1]; ++k) sum += x[k];
            atomicAdd(&y[row], sum);
        }
    }
}"""


def test_an_axis_of_one_thread_is_none(case: Callable[..., Case]) -> None:
    at = np.sort(_DRAW.integers(0, 99, 14)).astype(np.int32)
    nothing = np.zeros(13, np.float32)
    arguments = {"at": at, "x": _FLOATS, "y": nothing, "sizes": nothing * 1, "n": 13, "m": 2}
    made = case(LEADER, arguments, grid=(1, 2), block=(8, 8))
    draft = Fold().apply(made.draft, {"axis": "x", "factor": 8})
    assert "threadIdx.x" not in draft.text
    assert draft.launch.block[0] == expression("1")
    assert draft.requires == expressions("blockDim.x == 8")
    stored = draft.text.index("sizes[row] =")
    assert stored < draft.text.index("int item"), "one store for all"
    made.same(draft)
    half = Fold().apply(made.draft, {"axis": "x", "factor": 4})
    assert "threadIdx.x + item * blockDim.x" in half.text
    made.same(half)


def test_after_shuffles_and_constants(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["tree"]
    made = case(source, arguments, grid=grid, block=block)
    shuffled = ShuffleTree().apply(made.draft, {"trees": "all"})
    draft = Fold().apply(shuffled, {"axis": "x", "factor": 8})
    made.same(draft, tolerance=1e-6)
    special = Specialise().apply(made.draft, {"what": "sizes"})
    draft = Fold().apply(special, {"axis": "x", "factor": 8})
    assert "__launch_bounds__(32)" in draft.text
    made.same(draft)
    made.same(Specialise().apply(draft, {"what": "sizes"}))
    twice = Fold().apply(Fold().apply(made.draft, {"axis": "x", "factor": 2}),
                         {"axis": "x", "factor": 4})  # fmt: skip
    made.same(twice)


HEAD = "__shared__ int s[256]; int t = threadIdx.x; int i = blockIdx.x * blockDim.x + t; "


@pytest.mark.parametrize(
    "body",
    [
        HEAD + "if (i >= n) return; s[t] = x[i]; __syncthreads(); y[i] = s[0];",
        HEAD + "if (t < 128) { s[t] = x[i]; __syncthreads(); y[i] = s[127 - t]; }",
        HEAD + "for (int k = t; k < n; k += 256) { s[t] = k; __syncthreads(); y[t] = s[0]; }",
        HEAD + "do { s[t] = n--; __syncthreads(); y[i] = s[0]; } while (n > 0);",
        HEAD + "s[t] = x[i]; __syncthreads(); volatile int* v = s; y[i] = v[255 - t];",
        HEAD + "s[t] = x[i]; __threadfence(); __syncthreads(); y[i] = s[255 - t];",
        HEAD + "int c = 0; c = __syncthreads_count(c + x[i] > 3) + 1; y[i] = c + s[t];",
        HEAD + "int c = t; c += __syncthreads_count(x[i] > 3); y[i] = c + s[t] * 0;",
        HEAD + "int c = 1; c += __syncthreads_or(x[i] > 0); y[i] = c;",
        HEAD + "int c = t; if (t > 3) c = 2; y[i] = c; c = __syncthreads_or(c > 0); y[i] = c;",
        "__shared__ int c; c = __syncthreads_count(x[threadIdx.x] > 0); y[threadIdx.x] = c;",
        HEAD + "s[t] = x[i]; waits(); y[i] = s[255 - t];",
        HEAD + "s[t] = x[i]; __syncthreads(); y[i] = s[255 - number()];",
        HEAD + "uint3 where = threadIdx; s[where.x] = x[i]; __syncthreads(); y[i] = s[255 - t];",
        HEAD + "s[t] = clock(); __syncthreads(); y[i] = s[255 - t];",
        HEAD + "while (atomicCAS(&y[0], 0, 1)) {} s[t] = 1; __syncthreads(); y[i] = s[255 - t];",
        HEAD + "for (int k = 0; k < 3; ++k) { if (s[0] == k) break; __syncthreads(); } y[i] = 1;",
        HEAD + 'asm("bar.sync 0;"); y[i] = 1;',
        "{ __shared__ int s[256]; s[threadIdx.x] = n; __syncthreads(); y[threadIdx.x] = s[9]; }",
        "__shared__ int s; s = n; __syncthreads(); y[blockIdx.x] = s;",
    ],
)
def test_blocks_that_stay(body: str, case: Callable[..., Case]) -> None:
    source = f"""
__global__ void k(const int* x, int* y, int n) {{ {body} }}
"""
    helpers = """
__device__ void waits() { __syncthreads(); }
__device__ int number() { return threadIdx.x; }
"""
    x = np.ones(256, np.int32)
    made = case(helpers + source, {"x": x, "y": x * 0, "n": 200}, grid=(1,), block=(256,))
    with pytest.raises(NotUnderstood):
        Fold().apply(made.draft, {"axis": "x", "factor": 4})


def test_warps_stay_whole(case: Callable[..., Case]) -> None:
    source, arguments, grid, _ = TAKEN["shuffles"]
    made = case(source, arguments, grid=grid, block=(192,))
    with pytest.raises(NotUnderstood):
        Fold().apply(made.draft, {"axis": "x", "factor": 4})
    made.same(Fold().apply(made.draft, {"axis": "x", "factor": 3}))
    square = """
__global__ void k(const int* x, int* y) {
    __shared__ int s[256];
    int t = threadIdx.y * 16 + threadIdx.x;
    s[t] = __shfl_xor_sync(0xffffffffu, x[t], 16);
    __syncthreads();
    y[t] = s[255 - t];
}"""
    made = case(square, {"x": _INTS[:256], "y": _INTS[:256] * 0}, grid=(1,), block=(16, 16))
    made.same(Fold().apply(made.draft, {"axis": "y", "factor": 4}))
    with pytest.raises(NotUnderstood):
        Fold().apply(made.draft, {"axis": "x", "factor": 2})


def test_nothing_is_offered_where_geometry_does_it(case: Callable[..., Case]) -> None:
    plain = """
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}"""
    made = case(plain, {"x": _FLOATS, "y": _FLOATS * 0, "n": 1200}, grid=(5,), block=(256,))
    assert Fold().settings(made.draft) == ()
    source, arguments, grid, _ = TAKEN["alone"]
    small = case(source, arguments, grid=grid, block=(32,))
    with contextlib.suppress(NotUnderstood):
        assert Fold().settings(small.draft) == ()
