"""Longer rows where lanes meet in a bank, and arrays that keep theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.pad import Pad, meetings
from tests.transformations.bench import Case

TURN = """
#define TILE 16
__global__ void turn(const TYPE* x, TYPE* y, int w) {
    __shared__ TYPE tile[TILE][TILE];  // one square
    int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
    if (c < w && r < w) tile[threadIdx.y][threadIdx.x] = x[r * w + c];
    __syncthreads();
    int d = blockIdx.y * TILE + threadIdx.x, q = blockIdx.x * TILE + threadIdx.y;
    if (d < w && q < w) y[q * w + d] = tile[threadIdx.x][threadIdx.y];
}"""
DEEP = """
__global__ void deep(const float* x, float* y, int n) {
    __shared__ float a[2][8][32], b[32][8 * 4];
    int t = threadIdx.x;
    for (int k = 0; k < 16; ++k) { a[k / 8][k % 8][t] = x[t + k]; b[t][k] = x[t]; }
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 16; ++k) sum += a[t % 2][t / 4][k] * b[t][k];
    y[t] = sum;
}"""


FLAT = """
__global__ void flat(const TYPE* x, TYPE* y, int n) {
    __shared__ TYPE line[32 * 8];  // turned
    const int t = threadIdx.x, u = threadIdx.y;
    for (int k = u; k < 8; k += blockDim.y) line[t * 8 + k] = x[t * 8 + k];
    __syncthreads();
    TYPE sum = 0;
    for (int k = u; k < n; k += blockDim.y) sum += line[t * 8 + k] + line[(t + k) % 32 * 8];
    y[u * 32 + t] = sum;
}"""


@pytest.mark.parametrize(("kind", "after"), [("float", 32), ("double", 16), ("int", 32)])
def test_a_flat_array_has_places_left_free(
    kind: str, after: int, case: Callable[..., Case]
) -> None:
    element: Any = {"float": np.float32, "double": np.float64, "int": np.int32}[kind]
    x = np.random.default_rng(0).integers(0, 99, 256).astype(element)
    made = case(
        FLAT.replace("TYPE", kind), {"x": x, "y": x[:64] * 0, "n": 8}, grid=(1,), block=(32, 2)
    )  # fmt: skip
    draft = made.applied(Pad())
    assert f"unsigned i) {{ return i + i / {after}; }}" in draft.text
    assert f"line[{256 + 256 // after}];  // turned" in draft.text
    assert f"line[spread_{after}(t * 8 + k)] = x[t * 8 + k];" in draft.text
    made.same(draft)
    with pytest.raises(NotUnderstood, match="bank conflicts from its row length"):
        Pad().apply(draft, {"words": 1})


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_launch_gives_room_for_them(kind: str, case: Callable[..., Case]) -> None:
    size = 4 if kind == "float" else 8
    x = np.arange(256).astype(np.float32 if size == 4 else np.float64)
    source = FLAT.replace("TYPE", kind).replace("__shared__", "extern __shared__")
    made = case(
        source.replace("[32 * 8]", "[]"), {"x": x, "y": x[:64] * 0, "n": 8},
        grid=(1,), block=(32, 2), smem=256 * size,
    )  # fmt: skip
    draft = made.applied(Pad())
    after = 128 // size
    assert draft.workloads[0].dynamic_smem_bytes == (256 + 256 // after) * size
    made.same(draft)
    other = "    extern __shared__ int other[];\n    const int t"
    second = source.replace("[32 * 8]", "[]").replace("    const int t", other, 1)
    two = case(second, {"x": x, "y": x, "n": 8}, grid=(1,), block=(32, 2), smem=256 * size)
    with pytest.raises(NotUnderstood):
        Pad().apply(two.draft, {"words": 1})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("t * 8 + k", "t * 9 + k"),
        ("sum = 0;", "sum = *(line + t);"),
        ("sum = 0;", "sum = 0; float* p = line; p[t] += 0;"),
        ("sum = 0;", "sum = sizeof line;"),
        ("32 * 8]", "1540 * 8]"),
    ],
)
def test_a_flat_array_that_stays(before: str, after: str, case: Callable[..., Case]) -> None:
    x = np.zeros(300, np.float32)
    text = FLAT.replace("TYPE", "float").replace("[(t + k) % 32 * 8]", "[t * 8 + k]")
    assert before in text
    made = case(text.replace(before, after), {"x": x, "y": x, "n": 8}, grid=(1,), block=(32, 2))
    with pytest.raises(NotUnderstood):
        Pad().apply(made.draft, {"words": 1})


@pytest.mark.parametrize("kind", ["float", "double", "unsigned char", "float2"])
def test_a_square_is_turned(kind: str, case: Callable[..., Case]) -> None:
    element: Any = {"float": np.float32, "float2": np.float64, "double": np.float64}.get(
        kind, np.uint8
    )
    x = np.arange(27 * 27).astype(element)
    made = case(
        TURN.replace("TYPE", kind), {"x": x, "y": x * 0, "w": 27}, grid=(2, 2), block=(16, 16)
    )  # fmt: skip
    draft = made.applied(Pad())
    assert "// one square" in draft.text
    assert "tile[16][16 + " in draft.text
    made.same(draft)


def test_arrays_of_more_dimensions(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(0).random(48).astype(np.float32)
    made = case(DEEP, {"x": x, "y": x[:32] * 0, "n": 48}, grid=(1,), block=(32,))
    draft = made.applied(Pad())
    assert "b[32][32 + 1]" in draft.text
    made.same(draft)
    worst = max(meetings(a, draft.facts, made.workload.block) for a in draft.facts.touching("b"))
    assert worst == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tile[threadIdx.x][threadIdx.y];", "tile[threadIdx.y][threadIdx.x];"),
        ("tile[threadIdx.x][threadIdx.y];", "(&tile[0][0])[threadIdx.x * TILE + threadIdx.y];"),
        ("tile[threadIdx.x][threadIdx.y];", "tile[threadIdx.x][threadIdx.y] + *tile[threadIdx.y];"),
        ("TILE 16", "TILE 110"),
        ("int d", "float* p = tile[threadIdx.y]; p[0] += 1; int d"),
        ("int d", "if (w < 0) y[0] = sizeof(tile); int d"),
        ("tile[threadIdx.x][threadIdx.y];", "tile[(int)x[c] & 15][threadIdx.y & 1];"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    source = TURN.replace("TYPE", "float")
    assert before in source
    x = np.zeros(27 * 27, np.float32)
    made = case(
        source.replace(before, after), {"x": x, "y": x, "w": 27}, grid=(2, 2), block=(16, 16)
    )  # fmt: skip
    with pytest.raises(NotUnderstood):
        Pad().apply(made.draft, {"words": 1})
