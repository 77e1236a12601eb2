"""Tiles that a block's threads read together, and loops in which they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.stage import Stage
from tests.transformations.bench import Case, every_setting
from tests.transformations.test_atomics_private import drawn

PULL = """
__global__ void pull(const float4* bodies, const float* mass, float* out, int n, int from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // the rest of the grid
    const float4 own = bodies[i];
    float sum = own.w;
    for (int j = from; j < n; ++j) {
        float4 other = bodies[j];
        float inverse = 1.0f / (mass[j] + 0.5f);
        float d = other.x - own.x;  // apart
        if (d > 9.0f) continue;
        sum += d * inverse * other.y + mass[n - 1 - j];
    }
    out[i] = sum;
}"""
WEIGHTS = """
__global__ void filter(const int* x, const double* weights, double* y, int w, unsigned taps) {
    __shared__ int row[64];
    const int c = blockIdx.x * 16 + threadIdx.x, r = threadIdx.y;
    row[threadIdx.y * 16 + threadIdx.x] = x[(r * w + c) % 50];
    __syncthreads();
    double total = 0;
    for (unsigned t = 0; t < taps; t += 1)
        total += weights[blockIdx.x * taps + t] * row[(threadIdx.y * 16 + t + threadIdx.x) % 64];
    y[r * w + c] = total;
}"""
NESTED = """
__global__ void nested(const int* x, const int* y, int* out, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int best = x[i] / 3, at = 0;
        for (int j = 0; j < m; j++) {
            const int cost = abs(y[j]) % 17;
            for (int k = 0; k < 2; ++k) if (cost + k < best + x[j]) { best = cost; at = j; }
        }
        out[i] = best * 100 + at;
    }
}"""

BOXES = """
struct Body { float m, x, y; };
__global__ void boxes(const int* box, const Body* bodies, const float* q, float* force, int n) {
    const int b = blockIdx.x, t = threadIdx.x;
    if (b >= n) return;
    const int from = box[b * 6];
    float sum = 0;
    for (int k = 0; k < 1 + box[b * 6 + 1]; k++) {
        const int near = k == 0 ? b : box[b * 6 + 1 + k];
        const int first = box[near * 6];
        for (int j = 0; j < SIZE; j++) {
            const float d = bodies[first + j].x - bodies[from + t].x;
            sum += q[first + j] * bodies[first + j].m / (d * d + 1) + d * bodies[first + j].y;
        }
    }
    force[b * SIZE + t] = sum;
}"""


@pytest.mark.parametrize("n", [300, 31])
def test_bodies_and_what_follows_from_them(n: int, case: Callable[..., Case]) -> None:
    bodies: Any = np.random.default_rng(n).random((n, 4)).astype(np.float32)
    arguments = {"bodies": bodies, "mass": bodies[:, 0] + 1, "out": bodies[:, 1] * 0, "n": n,
                 "from": 2}  # fmt: skip
    made = case(PULL, arguments, grid=(5,), block=(64,))
    for draft in every_setting(Stage(), made).values():
        assert "float inverse = mass_tile[j - first];" in draft.text
        assert "// apart" in draft.text
        assert "own.w" in draft.text
        made.same(draft)


def test_weights_of_a_block_in_two_dimensions(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(50), "weights": np.random.default_rng(1).random(2 * 140),
                 "y": np.zeros(4 * 32), "w": 32, "taps": 140}  # fmt: skip
    made = case(WEIGHTS, arguments, grid=(2,), block=(16, 4))
    draft = Stage().apply(made.draft, {"tile": 128})
    assert "double weights_tile[128]" in draft.text
    made.same(draft)


def test_a_dear_value_and_a_loop_in_the_loop(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(130), "y": drawn(130, 999) - 500, "out": drawn(130), "n": 100,
                 "m": 130}  # fmt: skip
    made = case(NESTED, arguments, grid=(4,), block=(40,))
    draft = made.applied(Stage())
    assert "y_tile[slot] = abs(y[j]) % 17;" in draft.text
    assert "x[j]" in draft.text  # some iterations only
    made.same(draft)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("j < m", "j < x[i]"),
        ("j < m", "j < m + threadIdx.x"),
        ("j++", "j += 2"),
        ("int j = 0; j < m; j++", "int j = m - 1; j >= 0; j--"),
        ("const int cost", "if (best == 3) break; const int cost"),
        ("const int cost", "if (best == 3) return; const int cost"),
        ("const int cost", "if (best == 3) continue; const int cost"),
        ("const int cost", "out[j] = i; m = m - 1; const int cost"),
        ("abs(y[j]) % 17", "abs(y[(j + i) % n]) % 17"),
        ("abs(y[j]) % 17", "out[j]"),
        ("abs(y[j]) % 17", "i > 4 ? y[j] : 0"),
        ("abs(y[j]) % 17", "y[best & 3]"),
        ("int best", "y += i; int best"),
        ("out[i] = best", "__syncthreads(); out[i] = best"),
        ("int best = x[i] / 3, at = 0;", "int best = x[i], at = 0, l = n / 4; m = 2 * l;"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in NESTED
    arguments = {"x": drawn(64), "y": drawn(64), "out": drawn(64), "n": 64, "m": 64}
    made = case(NESTED.replace(before, after), arguments, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood):
        Stage().apply(made.draft, {"tile": 128})


def test_a_bound_that_only_some_threads_have(case: Callable[..., Case]) -> None:
    source = NESTED.replace("j < m", "j < l").replace("at = 0;", "at = 0; int l = m / 2;")
    arguments = {"x": drawn(64), "y": drawn(64), "out": drawn(64), "n": 64, "m": 64}
    made = case(source, arguments, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood, match="differs between threads"):
        Stage().apply(made.draft, {"tile": 128})


def _boxes(case: Callable[..., Case], old: str = "", new: str = "", size: int = 20) -> Case:
    """Five boxes with up to four neighbours each, bodies in a list by box."""
    assert old in BOXES
    rng = np.random.default_rng(7)
    box: Any = np.array(
        [[b * size, b % 5, *((b + i) % 5 for i in range(1, 5))] for b in range(5)], np.int32
    )
    arguments = {
        "box": box, "bodies": rng.random((5 * size, 3)).astype(np.float32),
        "q": rng.random(5 * size).astype(np.float32), "force": np.zeros(7 * size, np.float32),
        "n": 5,
    }  # fmt: skip
    source = BOXES.replace(old or "SIZE", new or "SIZE", 1).replace("SIZE", str(size))
    return case(source, arguments, grid=(7,), block=(size,))


def test_a_loop_of_boxes_that_a_block_reads_from_memory_alike(case: Callable[..., Case]) -> None:
    made = _boxes(case)
    for tile in (256, 128):
        draft = made.applied(Stage(), {"tile": tile, "loop": "inner"})
        assert "bodies_tile[slot] = bodies[first + j].x" in draft.text
        made.same(draft)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b >= n", "b * 4 + t / 5 >= n * 4"),
        ("float sum = 0;", "float sum = 0; if (t % 2 == 0)"),
        ("1 + box[b * 6 + 1]", "1 + box[(b + t) % 5 * 6 + 1]"),
        ("k == 0 ? b", "k == t ? b"),
        ("box[near * 6];", "box[(near + t) % 5 * 6];"),
        ("float d =", "float w = sum > 40 ? 1 : 0; if (w > 0) k++; const float d ="),
        ("sum += q", "if (sum > 3) break; sum += q"),
        ("const int first = box[near * 6];", "if (sum > 9) break; const int first = box[near*6];"),
        ("const int first = box[near * 6];", "int first = box[near * 6]; if (sum > 9) first = 0;"),
        ("force[b * SIZE + t]", "((int*)box)[3] = 0; force[b * SIZE + t]"),
        ("const int* box", "const volatile int* box"),
    ],
)
def test_boxes_in_which_threads_differ(old: str, new: str, case: Callable[..., Case]) -> None:
    made = _boxes(case, old, new)
    with pytest.raises(NotUnderstood):
        Stage().apply(made.draft, {"tile": 128, "loop": "inner"})


def test_an_output_in_the_same_allocation(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(64), "y": drawn(64), "out": drawn(64), "n": 64, "m": 64}
    made = case(NESTED, arguments, grid=(2,), block=(32,))
    given = tuple(
        a.model_copy(update={"allocation": 1}) if a.name == "out" else a
        for a in made.workload.arguments
    )
    workload = made.workload.model_copy(update={"arguments": given})
    subject = type(made.subject)(made.program, made.kernel, (workload,))
    with pytest.raises(NotUnderstood):
        Stage().settings(type(made.draft).of(subject))
