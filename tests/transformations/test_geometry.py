"""Other blocks over the same places: which kernels cannot tell, and which can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.geometry import Geometry
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case

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

_FLOATS = np.random.default_rng(5).random(1003, dtype=np.float32)
_INTS = np.arange(1001, dtype=np.int32)[::-1].copy()

TAKEN = {
    "bound": (BOUND, {"x": _FLOATS, "y": _FLOATS * 0, "n": 1003}, (11,), (96,)),
    "loop": (LOOP, {"x": _FLOATS, "y": _FLOATS * 0, "n": 1003}, (4,), (128,)),
    "turned": (
        TURNED, {"x": _FLOATS, "y": _FLOATS * 0, "rows": 31, "columns": 32}, (8, 2), (4, 16),
    ),
    "tiny": (TINY, {"x": _INTS, "sums": np.zeros(13, np.int32), "width": 77}, (13,), (8,)),
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
    assert draft.launch.grid[0] == "ceil_div(columns, 32)"


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
