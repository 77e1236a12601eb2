"""Several threads' work for each: what is spread, what goes item by item, what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.coarsen import Coarsen
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case, every_setting, expression

GUARDED = """
__global__ void blend(const int n, const float* x, const int* at, float* r) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float mine = x[i];  // its own
    int j = at[i];
    float t = 0.f;
    for (int k = 0; k < 3; k++) t += x[(j + k) % n];
    r[i] = mine + x[j] + t * r[i];
}"""
WIDE = """
__global__ void shift(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.f * x[i] + x[(i + 1) % (gridDim.x * blockDim.x)];
}"""
SHARED_LOOP = """
__global__ void inside(int* hit, const float2* at, const float2* corner, int corners, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int c = 0;
        float2 p = at[i];
        int k = corners - 1;
        for (int j = 0; j < corners; k = j++) {
            float2 a = corner[j];
            float2 b = corner[k];
            float slope = (b.x - a.x) / (b.y - a.y);
            if ((a.y > p.y) != (b.y > p.y) && p.x < slope * (p.y - a.y) + a.x) c = !c;
        }
        hit[i] = c;
    }
}"""
TREE = """
__global__ void sums(const int* x, int* r, int n) {
    __shared__ int s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) r[blockIdx.x] = s[0] + gridDim.x;
}"""
ROWS = """
__global__ void blur(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float up = y > 0 ? in[(y - 1) * w + x] : 0.f;
    float down = y + 1 < h ? in[(y + 1) * w + x] : 0.f;
    out[y * w + x] = (up + in[y * w + x] + down) / 3.f;
}"""
COUNTS = """
__global__ void counts(const int* x, int* bins, int n, int* data) {
    data += blockIdx.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (x[i] < 0) continue;
        atomicAdd(&bins[x[i] % 7], 1);
    }
    if (threadIdx.x == 0) *data = n;
}"""
LEAVES = """
__global__ void first_even(const int* x, int* r, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    if (x[row * 4] < 0) { r[row] = -2; return; }
    int found = -1;
    for (int k = 0; k < 4; ++k) {
        if (x[row * 4 + k] % 2 == 0) { found = k; break; }
    }
    r[row] = found;
}"""
COUNTED = """
__global__ void digits(const int* x, int* r, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int count[8] = {};  // of each remainder
        for (int k = 0; k < m; ++k) count[x[i * m + k] & 7]++;
        int s = {};
        for (int k = 0; k < 8; ++k) s = s * 3 + count[k];
        r[i] = s;
    }
}"""
SCATTERED = """
__global__ void nested(const int* x, int* r) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (x[i] > 0) {
        if (x[i] > 500) return;
        r[i] = x[i] + 1;
    }
    r[i + 1000] = 3;
}"""
LEAVES_TOGETHER = """
__device__ void put(int* s, int at, int v) { s[at] = v; __syncthreads(); }
__global__ void longest(const int* x, int* r, int rows, int n) {
    __shared__ int s[64];
    if (blockIdx.x >= rows) return;  // a whole block
    int mine = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) mine = max(mine, x[blockIdx.x * n + k]);
    put(s, threadIdx.x, mine);
    for (int k = 32; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] = max(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    if (s[0] < 500) { r[blockIdx.x] = -1; return; }
    r[blockIdx.x] = s[0];
}"""

_RANDOM = np.random.default_rng(3)
_N = 1003
_FLOATS = _RANDOM.random(_N, dtype=np.float32)
_INTS = _RANDOM.integers(-50, 1000, 4 * _N, dtype=np.int32)

TAKEN: Mapping[str, tuple[str, Arguments, tuple[int, ...], tuple[int, ...]]] = {
    "guarded": (
        GUARDED,
        {"n": _N, "x": _FLOATS, "at": np.arange(_N, dtype=np.int32)[::-1].copy(), "r": _FLOATS},
        (16,), (64,),
    ),
    "wide": (WIDE, {"x": _FLOATS[:640], "y": _FLOATS[:640] * 0}, (10,), (64,)),
    "shared_loop": (
        SHARED_LOOP,
        {"hit": np.zeros(_N, np.int32), "at": _RANDOM.random(2 * _N, dtype=np.float32),
         "corner": _RANDOM.random(14, dtype=np.float32), "corners": 7, "n": _N},
        (8,), (128,),
    ),
    "tree": (TREE, {"x": _INTS[:700], "r": np.zeros(11, np.int32), "n": 700}, (11,), (64,)),
    "rows": (
        ROWS, {"in": _FLOATS[:961], "out": _FLOATS[:961] * 0, "w": 31, "h": 31}, (2, 8), (16, 4),
    ),
    "counts": (
        COUNTS,
        {"x": _INTS[:900], "bins": np.zeros(7, np.int32), "n": 900, "data": np.zeros(6, np.int32)},
        (6,), (32,),
    ),
    "counted": (
        COUNTED, {"x": _INTS, "r": np.zeros(_N, np.int32), "n": 400, "m": 9}, (13,), (32,),
    ),
    "scattered": (SCATTERED, {"x": _INTS, "r": np.zeros(2000, np.int32)}, (11,), (32,)),
    "leaves_together": (
        LEAVES_TOGETHER, {"x": _INTS, "r": np.zeros(17, np.int32), "rows": 15, "n": 130},
        (17,), (64,),
    ),
    "leaves": (LEAVES, {"x": _INTS, "r": np.zeros(_N, np.int32), "n": _N}, (16,), (64,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    drafts = []
    for setting in Coarsen().settings(made.draft):
        try:
            drafts.append(Coarsen().apply(made.draft, setting))
        except NotUnderstood:
            assert setting["by"] == "neighbours"
    assert drafts
    for draft in drafts:
        made.same(draft)


def test_loads_come_first_and_names_stay(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["guarded"]
    made = case(source, arguments, grid=grid, block=block)
    text = Coarsen().apply(made.draft, {"factor": 4, "by": "block", "axis": "x"}).text
    assert "mine[item] = x[i];  // its own" in text
    assert text.index("j[item] = at[i]") < text.index("r[i] = mine[item]")


def test_what_items_share_is_done_once(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["shared_loop"]
    made = case(source, arguments, grid=grid, block=block)
    text = made.applied(Coarsen()).text
    assert text.count("corner[j]") == 1
    assert "first_i < n" not in text  # every thread's first item is there
    few = case(source, {**arguments, "n": 200}, grid=grid, block=block)
    text = few.applied(Coarsen()).text
    assert text.count("corner[j]") == 1
    assert text.index("corner[j]") > text.index("first_i < n")


def test_neighbours_of_an_even_size_need_one_guard(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["guarded"]
    even = {
        name: a[:1000] if isinstance(a, np.ndarray) else 1000 for name, a in arguments.items()
    } | {"at": np.arange(1000, dtype=np.int32)}  # fmt: skip
    made = case(source, even, grid=grid, block=block)
    draft = Coarsen().apply(made.draft, {"factor": 4, "by": "neighbours", "axis": "x"})
    assert expression("n % 4 == 0") in draft.requires
    assert draft.text.count("if (") == 1
    made.same(draft)


def _refused(case: Callable[..., Case], source: str, by: str, extra: str = "") -> None:
    arguments = {"x": _FLOATS[:256] * 1, "y": np.zeros(256, np.float32), "n": 256}
    made = case(extra + source, arguments, grid=(4,), block=(64,), callee="k")
    with pytest.raises(NotUnderstood):
        Coarsen().apply(made.draft, {"factor": 4, "by": by, "axis": "x"})


def _kernel(body: str) -> str:
    return f"__global__ void k(float* x, float* y, int n) {{ {body} }}"


PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; "


@pytest.mark.parametrize(
    "body",
    [
        "volatile float* p = x; " + PLACE + "y[i] = p[i];",
        PLACE + 'asm volatile("membar.gl;"); y[i] = x[i];',
        PLACE + "y[i] = clock();",
        PLACE + "__shared__ float s[64]; if (i >= n) return; s[threadIdx.x] = x[i];"
        " __syncthreads(); y[i] = s[63 - threadIdx.x];",
        PLACE + "if (i >= n) return; y[i] = __shfl_down_sync(0xffffffffu, x[i], 1);",
        PLACE
        + "if (blockIdx.x > 2) return; if (threadIdx.x < 32) return; __syncthreads(); y[i] = 1;",
        PLACE + "__shared__ int s; if (x[i] > 2) return; s = n; if (__syncthreads_or(i)) y[i] = s;",
        PLACE + "if (i > 40) return; while (__any_sync(0xffffffffu, n > 0)) { y[i] = n; n -= 40; }",
        PLACE + "for (int k = 0; k < n; ++k) { if (k > 9) return; __syncthreads(); } y[i] = 1.f;",
        "y[threadIdx.x] = threadIdx.x;",
        PLACE + "__threadfence(); y[i] = x[i];",
        PLACE + "while (atomicCAS((int*)y, 0, 1)) { } y[i] = x[i];",
        PLACE + "for (int k = 0; k < n; ++k) { if (x[k] < 0.f) return; } y[i] = 1.f;",
    ],
)
def test_blocks_that_it_leaves(body: str, case: Callable[..., Case]) -> None:
    _refused(case, _kernel(body), "block")


@pytest.mark.parametrize(
    "body",
    [
        PLACE + "if (i + 1 < n) x[i] = x[i + 1];",
        PLACE + "y[i] = x[i] + threadIdx.x;",
        PLACE + "y[i] = x[i] + blockDim.x;",
        PLACE + "y[i] = __shfl_down_sync(0xffffffffu, x[i], 1);",
        "int i = blockIdx.x * 32 + threadIdx.x; y[i] = x[i];",
        "int i = blockIdx.x * blockDim.x - threadIdx.x; if (i >= 0) y[i] = x[i];",
        PLACE + "__shared__ float s; if (threadIdx.x == 0) s = x[i]; __syncthreads(); y[i] = s;",
        PLACE + "y[i] = x[i] + gridDim.x;",
    ],
)
def test_neighbours_that_it_leaves(body: str, case: Callable[..., Case]) -> None:
    _refused(case, _kernel(body), "neighbours")


def test_functions_that_ask_for_their_block(case: Callable[..., Case]) -> None:
    helper = "__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }\n"
    _refused(case, _kernel("int i = place(); y[i] = x[blockIdx.x];"), "block", helper)


def test_threads_that_exchange_go_block_by_block(case: Callable[..., Case]) -> None:
    body = PLACE + "x[i] = x[i] + y[blockIdx.x]; if (i == 300) y[200] = 1.f;"
    made = case(
        _kernel(body), {"x": _FLOATS[:256] * 1, "y": _FLOATS[:256] * 1, "n": 256},
        grid=(4,), block=(64,),
    )  # fmt: skip
    draft = Coarsen().apply(made.draft, {"factor": 2, "by": "block", "axis": "x"})
    assert draft.text.count("for (") == 1
    made.same(draft)


def test_what_every_setting_says(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["rows"]
    made = case(source, arguments, grid=grid, block=block)
    for draft in every_setting(Coarsen(), made).values():
        assert draft.steps[-1].says.startswith("A thread does the work of")
