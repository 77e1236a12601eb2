"""Other blocks over the same places: which kernels cannot tell, and which can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.geometry import Geometry
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case, expression

BOUND = """
__global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}"""
LOOP = """
__global__ void scaled(const float* x, float* y, int n) {
    for (int i = threadIdx.x + blockDim.x * blockIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = 3.f * x[i];
}"""
TURNED = """
__global__ void shade(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;  // the slow one
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    y[row * columns + column] = x[row * columns + column] + row;
}"""
TINY = """
__global__ void row_sums(const int* x, int* sums, int width) {
    int sum = 0;
    for (int k = threadIdx.x; k < width; k += blockDim.x) sum += x[blockIdx.x * width + k];
    atomicAdd(&sums[blockIdx.x], sum);
}"""
WARPS = """
__global__ void row_max(const int* x, int* most) {
    int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 16; k > 0; k /= 2) mine = max(mine, __shfl_xor_sync(0xffffffffu, mine, k));
    if (threadIdx.x == 0) most[blockIdx.x] = mine + gridDim.x;
}"""

TREE = """
__global__ void row_sums(const int* x, int* sums, int* last) {
    __shared__ int part[32];
    __shared__ int whole;
    if (blockIdx.x + 1 == gridDim.x) *last = blockIdx.x;
    part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int k = 16; k > 0; k /= 2) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) whole = part[0];
    __syncthreads();
    if (threadIdx.x == 5) sums[blockIdx.x] = whole;
}"""
BY_LAUNCH = """
__global__ void backwards(const float* x, float* y, int rows) {
    extern __shared__ float row[];
    float* second = row + 32;
    if (blockIdx.x >= rows) return;
    row[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    second[threadIdx.x] = 2 * row[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = second[31 - threadIdx.x] + row[threadIdx.x ^ 1];
}"""
VOTES = """
__global__ void odd(const int* x, int* count, int* any) {
    __shared__ int tile[4][8];
    const int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    tile[threadIdx.x % 4][threadIdx.x / 4] = mine;
    int number = __syncthreads_count(mine & 1);
    const int all = __syncthreads_and(mine > 3);
    if (threadIdx.x == 1) {
        count[blockIdx.x] = number + tile[3][7];
        any[blockIdx.x] = 2 * !all;
    }
    if (__syncthreads_or(mine % 7 == 0) && threadIdx.x == 2) any[blockIdx.x] += 1;
}"""

_FLOATS = np.random.default_rng(5).random(1003, dtype=np.float32)
_INTS = np.arange(1001, dtype=np.int32)[::-1].copy()

TAKEN = {
    "bound": (BOUND, {"x": _FLOATS, "y": _FLOATS * 0, "n": 1003}, (11,), (96,)),
    "loop": (LOOP, {"x": _FLOATS, "y": _FLOATS * 0, "n": 1003}, (4,), (128,)),
    "turned": (
        TURNED, {"x": _FLOATS, "y": _FLOATS * 0, "rows": 31, "columns": 32}, (8, 2), (4, 16),
    ),
    "tiny": (TINY, {"x": _INTS, "sums": np.zeros(13, np.int32), "width": 77}, (13,), (8,)),
    "tree": (
        TREE, {"x": _INTS[:416], "sums": np.zeros(13, np.int32), "last": np.zeros(1, np.int32)},
        (13,), (32,),
    ),
    "votes": (
        VOTES, {"x": _INTS[:416], "count": np.zeros(13, np.int32), "any": np.zeros(13, np.int32)},
        (13,), (32,),
    ),
    "warps": (WARPS, {"x": _INTS[:448], "most": np.zeros(14, np.int32)}, (14,), (32,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    drafts = []
    for setting in Geometry().settings(made.draft):
        with contextlib.suppress(NotUnderstood):
            drafts.append(Geometry().apply(made.draft, setting))
    assert len(drafts) >= 2
    for draft in drafts:
        assert draft.launch.block != made.draft.launch.block
        made.same(draft)


def test_a_warp_waits_for_itself(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["tree"]
    draft = Geometry().apply(case(source, arguments, grid=grid, block=block).draft, {"rows": 4})
    assert "__syncthreads" not in draft.text
    assert "__shared__ int part[4][32];" in draft.text
    assert "part[threadIdx.y][threadIdx.x] += part[threadIdx.y][threadIdx.x + k]" in draft.text


def test_rows_of_what_the_launch_gives(case: Callable[..., Case]) -> None:
    arguments = {"x": _FLOATS[:416], "y": _FLOATS[:416] * 0, "rows": 12}
    made = case(BY_LAUNCH, arguments, grid=(13,), block=(32,), smem=256)
    draft = Geometry().apply(made.draft, {"rows": 8})
    assert draft.launch.smem == expression("8 * smem")
    assert "row[threadIdx.y * row_row + threadIdx.x]" in draft.text
    assert expression("(smem) % 16 == 0") in draft.requires
    made.same(draft)


def test_shared_memory_that_the_file_declares_is_the_block_s(case: Callable[..., Case]) -> None:
    """Rows of one block that took one piece of it gave each other's results."""
    source = "extern __shared__ float row[];" + BY_LAUNCH.replace(
        "extern __shared__ float row[];", ""
    )
    arguments = {"x": _FLOATS[:416], "y": _FLOATS[:416] * 0, "rows": 12}
    made = case(source, arguments, grid=(13,), block=(32,), smem=256)
    made.same(made.draft)
    draft = Geometry().apply(made.draft, {"rows": 8})
    assert draft.launch.smem == expression("8 * smem")
    made.same(draft)


def test_smaller_blocks_come_first_where_there_are_few(case: Callable[..., Case]) -> None:
    arguments = {"x": _FLOATS, "y": _FLOATS * 0, "n": 1003}
    few = case(BOUND, arguments, grid=(8,), block=(128,)).draft
    assert Geometry().settings(few)[:2] == ({"x": 64}, {"x": 32})
    many = case(BOUND, arguments, grid=(800,), block=(128,)).draft
    assert Geometry().settings(many)[:2] == ({"x": 256}, {"x": 512})


def test_axes_are_exchanged_where_memory_is_turned(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["turned"]
    made = case(source, arguments, grid=grid, block=block)
    setting = Geometry().settings(made.draft)[0]
    assert setting["swap"] == 1
    draft = Geometry().apply(made.draft, setting)
    assert "int row = blockIdx.y * blockDim.y + threadIdx.y;  // the slow one" in draft.text
    assert draft.launch.grid[0] == expression("ceil_div(columns, 32)")


def test_constants_of_the_block_follow(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["bound"]
    made = case(source, arguments, grid=grid, block=block)
    special = Specialise().apply(made.draft, {"what": "sizes"})
    draft = Geometry().apply(special, {"x": 128})
    assert "blockIdx.x * 128 + threadIdx.x" in draft.text
    assert "__launch_bounds__(128)" in draft.text
    made.same(draft)


PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; "


@pytest.mark.parametrize(
    "body",
    [
        PLACE + "y[i] = x[i] + threadIdx.x;",
        PLACE + "y[i] = x[i] + blockIdx.x;",
        PLACE + "y[i] = x[i] * blockDim.x;",
        PLACE + "__shared__ float s[64]; s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[0];",
        PLACE + "y[i] = __shfl_down_sync(0xffffffffu, x[i], 1);",
        "int i = blockIdx.x * 32 + threadIdx.x; y[i] = x[i];",
        PLACE + "y[i] = x[i];",  # 5 blocks of 50: no other size has as many threads
        PLACE + "if (i < n) y[i] = clock64();",
        PLACE + "volatile float* p = y; if (i < n) p[i] = x[i];",
        PLACE + "if (i <= n / (i + 1)) y[i] = x[i];",
    ],
)
def test_blocks_that_stay(body: str, case: Callable[..., Case]) -> None:
    x = np.zeros(256, np.float32)
    made = case(
        f"__global__ void k(const float* x, float* y, int n) {{ {body} }}",
        {"x": x, "y": x, "n": 200}, grid=(5,), block=(50,),
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Geometry().apply(made.draft, {"x": 128})


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("y[blockIdx.x] = x[threadIdx.y];", (8,)),
        ("__shared__ float s; s = 1.f; __syncthreads(); y[blockIdx.x] = s;", (8,)),
        ("y[blockIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 1);", (16,)),
        ("y[threadIdx.x] = x[threadIdx.x];", (8,)),
        ("y[blockIdx.x] = x[threadIdx.x];", (1024,)),
        ("y[blockIdx.x] = x[0];", (4, 4)),
    ],
)
def test_blocks_that_stay_apart(
    body: str, block: tuple[int, ...], case: Callable[..., Case]
) -> None:
    x = np.zeros(1024, np.float32)
    made = case(
        f"__global__ void k(const float* x, float* y) {{ {body} }}",
        {"x": x, "y": x}, grid=(6,), block=block,
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Geometry().apply(made.draft, {"rows": 4})


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("__shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); ROW = s[3];", 64),
        ("__shared__ int s[32]; s[threadIdx.x] = sizeof(s); __syncthreads(); ROW = s[3];", 32),
        ("if (threadIdx.x < 16) __syncthreads(); ROW = x[threadIdx.x];", 32),
        ("if (x[threadIdx.x] > 9) return; __syncthreads(); ROW = x[threadIdx.x];", 32),
        ("__shared__ char s[36]; int* p = (int*)s; *p = 1; __syncthreads(); ROW = *p;", 32),
        ("__shared__ int s[8][48]; s[7][threadIdx.x] = 1; __syncthreads(); ROW = s[7][31];", 16),
        ("__shared__ int s[1600]; s[threadIdx.x] = 1; __syncthreads(); ROW = s[3];", 32),
        ("__shared__ int* p; p = y; __syncthreads(); p[blockIdx.x * 32 + threadIdx.x] = 1;", 32),
    ],
)
def test_shared_memory_that_stays_one_block_s(
    body: str, block: int, case: Callable[..., Case]
) -> None:
    x = np.zeros(1024, np.int32)
    body = body.replace("ROW", "y[blockIdx.x * blockDim.x + threadIdx.x]")
    made = case(
        f"__global__ void k(const int* x, int* y) {{ {body} }}",
        {"x": x, "y": x}, grid=(6,), block=(block,),
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Geometry().apply(made.draft, {"rows": 8})
