"""A warp for the loops in which its threads do the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.share_uniform import ShareUniform
from tests.transformations.bench import Case

SOFTMAX = """
__global__ void softmax(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < cols) {
        float most = x[row * cols];
        for (int k = 1; k < cols; k++) most = fmaxf(most, x[row * cols + k]);
        float sum = 0.0f;
        for (int k = 0; k < cols; k++) sum += expf(x[row * cols + k] - most);
        y[row * cols + col] = expf(x[row * cols + col] - most) / sum;
    }
}"""
CENTRED = """
__device__ float squared(float v) { return v * v; }
__global__ void centred(const float* x, float* y, int rows, int cols) {
    const float* own = x + blockIdx.x * cols;
    int c = threadIdx.x;
    if (blockIdx.x >= rows) return;
    float sum = 3.0f;
    for (int k = cols - 1; k >= 0; --k) {
        if (own[k] < -10.0f) continue;
        sum += own[k];
    }
    const float mean = sum / cols;
    float spread = 0.0f, least = 1e30f;
    int at = -1;
    for (int k = 0; k < cols; ++k) {
        spread += squared(own[k] - mean);
        if (own[k] < least) { least = own[k]; at = k; }
    }
    // what is one thread's own
    for (; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = (own[c] - mean) / spread + at;
}"""
ROWS, COLUMNS = 5, 70


def made(case: Callable[..., Case], text: str, grid: tuple[int, ...], block: tuple[int, ...],
         **more: object) -> Case:  # fmt: skip
    x = np.random.default_rng(3).standard_normal(ROWS * COLUMNS).astype(np.float32)
    arguments = {"x": x, "y": x * 0, "rows": ROWS, "cols": COLUMNS, **more}
    return case(text, arguments, grid=grid, block=block)


@pytest.mark.parametrize("block", [(32, 2), (64, 1), (16, 16), (8, 4), (16, 3)])
def test_rows_of_blocks_share_what_is_their_rows(
    block: tuple[int, int], case: Callable[..., Case]
) -> None:
    """Threads beyond the last column help, rows beyond the last one read nothing."""
    grid = (-(-COLUMNS // block[0]), -(-ROWS // block[1]))
    one = made(case, SOFTMAX, grid, block)
    draft = one.applied(ShareUniform())
    assert draft.text.count("__shfl_xor_sync") == 2
    one.same(draft, tolerance=1e-6)


def test_blocks_share_what_is_their_own(case: Callable[..., Case]) -> None:
    one = made(case, CENTRED, (ROWS + 1,), (96,))
    draft = one.applied(ShareUniform())
    assert "// what is one thread's own" in draft.text
    assert "squared(own[k] - mean)" in draft.text
    one.same(draft, tolerance=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int k = 1; k < cols", "int k = 1; k <= col"),
        ("x[row * cols + k]);", "x[row * cols + (k + col) % cols]);"),
        ("fmaxf(most, x[row * cols + k])", "fmaxf(most, x[row * cols + k] + (int)threadIdx.x)"),
        ("float most = x[row * cols];", "float most = x[row * cols + col];"),
        ("if (row < rows", "if (x[col % cols] < 9.0f && row < rows"),
        ("float most =", "y[row * cols + col] = 1.0f; float most ="),
        ("row < rows", "row++ < rows"),
        ("int col =", "int odd = row += threadIdx.x & 1; int col ="),
        ("float most =", "int odd = row += threadIdx.x & 1; float most ="),
        ("float most = x[", "uint3 own = threadIdx; float most = x[own.x + "),
        ("k < cols", "k < cols - threadIdx.x % 2"),
        ("const float* x, float* y", "const float* x, volatile float* y"),
        ("fmaxf(most, x[row * cols + k]);", "{ most = x[row * cols + k]; if (most > 2) return; }"),
        ("fmaxf(most, x[row * cols + k])", "fmaxf(most, y[row * cols + k])"),
        ("    if (row < rows", "    __syncthreads(); if (row < rows"),
    ],
)  # fmt: skip
def test_what_differs_among_threads_or_has_an_effect_stays(
    old: str, new: str, case: Callable[..., Case]
) -> None:
    assert old in SOFTMAX
    first = SOFTMAX[: SOFTMAX.index("float sum = 0.0f")]
    text = first.replace(old, new) + "y[row * cols + col] = most;\n    }\n}"
    with pytest.raises(NotUnderstood):
        ShareUniform().settings(made(case, text, (3, 3), (32, 2)).draft)


@pytest.mark.parametrize("block", [(48, 1), (4, 8), (1, 5), (16, 2, 2)])
def test_rows_that_are_no_part_of_a_warp_are_left(
    block: tuple[int, ...], case: Callable[..., Case]
) -> None:
    grid = (-(-COLUMNS // block[0]), -(-ROWS // block[1]))
    assert ShareUniform().settings(made(case, SOFTMAX, grid, block).draft) == ()
