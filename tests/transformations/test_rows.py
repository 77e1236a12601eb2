"""Kernels over rows as beginners write them: which steps apply, and that they stay right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft
from cudaops.transformations.registry import transformation
from cudaops.transformations.share_serial import ShareSerial
from tests.transformations.bench import Case

Steps = Sequence[tuple[str, Setting]]
THREAD = "int row = blockIdx.x * blockDim.x + threadIdx.x;\n    if (row >= rows) return;"
SOFTMAX = (
    "__global__ void softmax(const float* x, float* y, int rows, int n) {\n    "
    + THREAD
    + """
    float most = -INFINITY;
    for (int j = 0; j < n; j++) most = fmaxf(most, x[row * n + j]);
    float sum = 0.0f;
    for (int j = 0; j < n; j++) sum += expf(x[row * n + j] - most);
    for (int j = 0; j < n; j++) y[row * n + j] = expf(x[row * n + j] - most) / sum;
}"""
)
BY_POINTERS = """
__global__ void softmax(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        const float* in = x + row * n;
        float* out = y + row * n;
        float most = in[0];
        for (int j = 1; j < n; j++) if (in[j] > most) most = in[j];
        float sum = 0.0f;
        for (int j = 0; j < n; j++) { out[j] = expf(in[j] - most); sum += out[j]; }
        for (int j = 0; j < n; j++) out[j] /= sum;
    }
}"""
LAYER_NORM = (
    "__global__ void layer_norm(const float* x, float* y, int rows, int n) {\n    "
    + THREAD
    + """
    float mean = 0.0f, var = 0.0f;
    for (int j = 0; j < n; j++) mean += x[row * n + j];
    mean /= n;
    for (int j = 0; j < n; j++) { float d = x[row * n + j] - mean; var += d * d; }
    float inverse = rsqrtf(var / n + 1e-5f);
    for (int j = 0; j < n; j++) y[row * n + j] = (x[row * n + j] - mean) * inverse * x[j] + x[n];
}"""
)
LOG_SUM_EXP = (
    "__global__ void log_sum_exp(const float* x, float* y, int rows, int n) {\n    "
    + THREAD
    + """
    float most = x[row * n];
    for (int j = 1; j < n; j++) most = x[row * n + j] > most ? x[row * n + j] : most;
    float sum = 0;
    for (int j = 0; j < n; j++) sum += expf(x[row * n + j] - most);
    y[row] = most + logf(sum);
}"""
)
TIMES_VECTOR = (
    "__global__ void times(const float* x, float* y, int rows, int n) {\n    "
    + THREAD
    + """
    y[row] = 0;
    for (int j = 0; j < n; j++) y[row] += x[row * n + j] * x[j];
}"""
)
BY_COLUMNS = TIMES_VECTOR.replace("x[row * n + j]", "x[j * rows + row]")
BLOCK_NORM = """
__global__ void layer_norm(const float* x, float* y, int rows, int n) {
    __shared__ float mean, inverse;
    int row = blockIdx.x;
    if (threadIdx.x == 0) {
        float s = 0.0f, q = 0.0f;
        for (int j = 0; j < n; j++) { float v = x[row * n + j]; s += v; q += v * v; }
        mean = s / n;
        inverse = rsqrtf(q / n - mean * mean + 1e-5f);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        y[row * n + j] = (x[row * n + j] - mean) * inverse;
}"""
BLOCK_SOFTMAX = """
__global__ void softmax(const float* x, float* y, int rows, int n) {
    __shared__ float most, sum;
    int row = blockIdx.x;
    if (threadIdx.x == 0) {
        most = -INFINITY;
        for (int j = 0; j < n; j++) most = fmaxf(most, x[row * n + j]);
        sum = 0;
        for (int j = 0; j < n; j++) sum += expf(x[row * n + j] - most);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        y[row * n + j] = expf(x[row * n + j] - most) / sum;
}"""

WARP: Steps = (("cooperate", {"lanes": 32}),)
SIZES: Steps = (("specialise", {"what": "sizes"}),)
SERIAL: Steps = (("share_serial", {"lanes": 32}),)


def taken(draft: Draft, steps: Steps) -> Draft:
    for name, setting in steps:
        draft = transformation(name).apply(draft, setting)
    return draft


def rows_of(case: Callable[..., Case], source: str, rows: int, n: int, *, whole: bool) -> Case:
    x = np.random.default_rng(n).random(rows * n).astype(np.float32)
    arguments: Any = {"x": x, "y": x * 0, "rows": rows, "n": n}
    return case(source, arguments, grid=(rows if whole else -(-rows // 64),), block=(64,))


@pytest.mark.parametrize("n", [37, 128])
@pytest.mark.parametrize(
    ("source", "steps", "shuffles"),
    [
        (SOFTMAX, (*WARP, *SIZES), 2),
        (BY_POINTERS, WARP, 2),
        (LAYER_NORM, (*WARP, *SIZES), 2),
        (LOG_SUM_EXP, WARP, 2),
        (TIMES_VECTOR, (("scalar_replace", {"loop": 0}), *WARP), 1),
        (BY_COLUMNS, (("scalar_replace", {"loop": 0}),), 0),
        (BLOCK_NORM, (*SERIAL, *SIZES), 2),
        (BLOCK_SOFTMAX, (*SERIAL, *SIZES), 2),
    ],
)
def test_a_warp_a_row(
    source: str, steps: Steps, shuffles: int, n: int, case: Callable[..., Case]
) -> None:
    made = rows_of(case, source, 70, n, whole="row = blockIdx.x;" in source)
    draft = taken(made.draft, steps)
    assert draft.text.count("__shfl_xor_sync") == shuffles
    made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize(
    ("source", "vectors"), [(SOFTMAX, 4), (LAYER_NORM, 5), (LOG_SUM_EXP, 1), (TIMES_VECTOR, 2)]
)
def test_a_warp_a_row_in_vectors(source: str, vectors: int, case: Callable[..., Case]) -> None:
    made = rows_of(case, source, 70, 256, whole=False)
    draft = made.draft
    if source is TIMES_VECTOR:
        draft = taken(draft, (("scalar_replace", {"loop": 0}),))
    wide: Setting = {"loop": "all", "factor": 4}
    draft = taken(draft, (("strip", wide), *WARP, ("vectorise", {"what": "all"})))
    assert draft.text.count("reinterpret_cast<") == vectors
    made.same(draft, tolerance=1e-5)


def test_what_the_first_thread_stored_before(case: Callable[..., Case]) -> None:
    source = BLOCK_NORM.replace("if (threadIdx", "mean = 2; y[row * n] = 3;\n    if (threadIdx")
    source = source.replace("s = 0.0f", "s = mean * 0").replace(
        "mean = 2;", "if (!threadIdx.x) mean = 2;"
    )
    source = source.replace("y[row * n] = 3;", "")
    made = rows_of(case, source, 5, 40, whole=True)
    draft = made.applied(ShareSerial())
    assert "__syncwarp();" in draft.text
    made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if (threadIdx", "if (threadIdx.x > rows) return;\n    if (threadIdx"),  # not all come
        ("most, sum;", "sum, *p; __shared__ float most; p = &most;"),
        ("x[row * n + j]);", "x[row * n + j] + 0 * (most > 9 ? n-- : 1));"),
        ("sum += expf", "sum = sum * 2 + expf"),
        ("threadIdx.x == 0", "threadIdx.x == 1"),
        ("threadIdx.x == 0", "threadIdx.x < 3"),
    ],
)
def test_what_stays_with_one_thread(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in BLOCK_SOFTMAX
    source = (
        BLOCK_SOFTMAX.replace("sum += expf", "most += expf") if "p = " in after else BLOCK_SOFTMAX
    )
    source = source.replace(before, after, 1)
    if "n--" in after:
        source = source.replace("sum += expf", "sum = sum * 2 + expf")
    if "sum * 2" in after:
        source = source.replace("most = fmaxf(most,", "most = most / 2 + fmaxf(most,")
    made = rows_of(case, source, 5, 40, whole=True)
    assert made.draft.facts.loops or made.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        ShareSerial().apply(made.draft, {"lanes": 32})
