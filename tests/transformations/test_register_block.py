"""Several outputs along one part of a flat index: which kernels, what they share, odd sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft
from cudaops.transformations.register_block import RegisterBlock
from cudaops.transformations.registry import transformation
from cudaops.transformations.variables import Variables
from tests.recipes.bench import Arguments, Array
from tests.transformations.bench import Case, every_setting, expression, expressions

CONVOLUTION = """
__global__ void conv(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K) {
    int OH = H - K + 1, OW = W - K + 1;
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= N * M * OH * OW) return;
    int ow = t % OW; int oh = (t / OW) % OH; int m = (t / (OW * OH)) % M; int n = t / (OW * OH * M);
    float acc = 0;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                acc += x[((n * C + c) * H + oh + p) * W + ow + q]
                    * w[((m * C + c) * K + p) * K + q];
    y[t] = acc;
}"""
PRODUCT = """
__global__ void product(
    const float* a, const float* b, float* c, int rows, int inner, int columns) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) {
        const int row = i / columns;
        const int column = i - row * columns;  // of c
        float sum = 0.f;
        for (int k = 0; k < inner; ++k) sum += a[row * inner + k] * b[k * columns + column];
        c[i] = sum;
    }
}"""
POOL = """
__global__ void pool(
    const float* in, float* out, int n, int channels, int h, int w, int oh, int ow) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < n;
         index += blockDim.x * gridDim.x) {
        int i = index;
        const int x = i % ow; i /= ow;
        const int y = i % oh; i = i / oh;
        const int c = i % channels; i /= channels;
        if (x + y == 3) { out[index] = -1.f; continue; }
        float most = in[((i * channels + c) * h + y * 2) * w + x * 2];
        for (int p = 0; p < 2; ++p)
            for (int q = 0; q < 2; ++q)
                most = fmaxf(most, in[((i * channels + c) * h + y * 2 + p) * w + x * 2 + q]);
        out[index] = most;
    }
}"""
BIAS = """
__global__ void bias(float* y, const float* b, int n, int c, int hw) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = fmaxf(y[i] + b[i / hw % c], 0.f);
}"""
UPSAMPLE = """
#define S 2
__global__ void upsample(const float* in, float* out, int planes, int h, int w) {
    size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    int p = t / (S * h * S * w), r = t % (S * h * S * w);
    int y = r / (S * w), x = r % (S * w);
    if (p < planes) out[t] = in[(p * h + y / S) * w + x / S];
}"""
WHOLE = """
__global__ void whole(const float* a, const float* b, float* c) {
    int row = (blockIdx.x * 64 + threadIdx.x) / 24;
    int column = (blockIdx.x * 64 + threadIdx.x) % 24;
    float s = 0;
    for (int k = 0; k < 5; ++k) s += a[row * 5 + k] * b[column * 5 + k];
    c[row * 24 + column] = s;
}"""
WIDE = """
__global__ void wide(const float* x, const float* by, float* y, int n, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int column = i % w, row = i / w % h, plane = i / (w * h);
    y[(plane * h + row) * w + column] = by[plane] * x[(plane * h + row) * w + column];
}"""
_RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return _RANDOM.integers(-5, 6, shape).astype(np.float32).ravel()


def _convolution(n: int, c: int, h: int, w: int, m: int, k: int) -> Arguments:
    return {
        "x": floats(n, c, h, w), "w": floats(m, c, k, k),
        "y": np.zeros(n * m * (h - k + 1) * (w - k + 1), np.float32),
        "N": n, "C": c, "H": h, "W": w, "M": m, "K": k,
    }  # fmt: skip


TAKEN: Mapping[str, tuple[str, Arguments, tuple[int, ...], tuple[int, ...]]] = {
    "even": (CONVOLUTION, _convolution(2, 3, 9, 11, 8, 2), (20,), (64,)),
    "odd": (CONVOLUTION, _convolution(2, 2, 7, 8, 5, 3), (5,), (64,)),
    "product": (
        PRODUCT, {"a": floats(9, 6), "b": floats(6, 13), "c": floats(9, 13), "rows": 9,
                  "inner": 6, "columns": 13}, (4,), (32,),
    ),
    "pool": (
        POOL, {"in": floats(2, 3, 10, 14), "out": floats(2, 3, 5, 7), "n": 210, "channels": 3,
               "h": 10, "w": 14, "oh": 5, "ow": 7}, (3,), (32,),
    ),
    "bias": (BIAS, {"y": floats(2, 8, 5), "b": floats(8), "n": 80, "c": 8, "hw": 5}, (3,), (32,)),
    "bias_cut": (BIAS, {"y": floats(77), "b": floats(8), "n": 77, "c": 7, "hw": 5}, (3,), (32,)),
    "upsample": (
        UPSAMPLE, {"in": floats(3, 4, 5), "out": floats(3, 8, 10), "planes": 3, "h": 4, "w": 5},
        (4,), (64,),
    ),
    "wide": (
        WIDE, {"x": floats(3, 5, 8), "by": floats(3), "y": floats(3, 5, 8), "n": 120, "w": 8,
               "h": 5}, (4,), (32,),
    ),
    "whole": (
        WHOLE, {"a": floats(16, 5), "b": floats(24, 5), "c": floats(16, 24)}, (6,), (64,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    for draft in every_setting(RegisterBlock(), made).values():
        made.same(draft)


def _blocked(case: Callable[..., Case], name: str, part: int, factor: int = 4) -> Draft:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    return RegisterBlock().apply(made.draft, {"axis": "x", "part": part, "factor": factor})


def test_channels_share_a_window(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["even"]
    made = case(source, arguments, grid=grid, block=block)
    assert RegisterBlock().settings(made.draft)[0] == {"axis": "x", "part": 2, "factor": 4}
    draft = _blocked(case, "even", 2)
    assert expression("M % 4 == 0") in draft.requires
    assert draft.launch.args[-2:] == expressions(
        "M / 4", "(((W - K) + 1) * ((H - K) + 1)) * (M / 4) * N"
    )
    assert "int oh = thread / OW % OH;" in draft.text
    assert draft.text.count("for (int c = 0") == 1
    assert draft.text.count("if (") == 1
    assert draft.steps[-1].says == "A thread computes 4 outputs along m."


def test_what_does_not_divide_is_guarded(case: Callable[..., Case]) -> None:
    draft = _blocked(case, "odd", 2)
    assert not any("M % 4" in str(x) for x in draft.requires)
    assert expression("ceil_div(M, 4)") in draft.launch.args
    assert "if (m_first + item < M)" in draft.text


def test_rows_and_columns_one_after_the_other(case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN["product"]
    even = {"a": floats(8, 6), "b": floats(6, 12), "c": floats(8, 12), "rows": 8, "inner": 6,
            "columns": 12}  # fmt: skip
    for given in (even, arguments):
        made = case(source, given, grid=grid, block=block)
        first, *_ = RegisterBlock().settings(made.draft)
        assert first == {"axis": "x", "part": 1, "factor": 4}
        rows = RegisterBlock().apply(made.draft, first)
        tile = RegisterBlock().apply(rows, {"axis": "x", "part": 0, "factor": 2})
        assert ("float sum[2][4]" in tile.text) == (given is even)
        made.same(tile)


@pytest.mark.parametrize(
    ("name", "part", "other"),
    [
        ("even", 2, "specialise"), ("odd", 1, "specialise"), ("even", 2, "strength_reduce"),
        ("even", 2, "unroll"), ("odd", 3, "unroll"), ("pool", 2, "specialise"),
        ("wide", 0, "vectorise"), ("product", 1, "coarsen"),
    ],
)  # fmt: skip
def test_with_others(name: str, part: int, other: str, case: Callable[..., Case]) -> None:
    source, arguments, grid, block = TAKEN[name]
    made = case(source, arguments, grid=grid, block=block)
    one = transformation(other)
    own: Setting = {"axis": "x", "part": part, "factor": 4}
    draft = RegisterBlock().apply(made.draft, own)
    made.same(one.apply(draft, one.settings(draft)[0]), tolerance=1e-6)
    if other in ("specialise", "strength_reduce", "unroll"):
        draft = one.apply(made.draft, one.settings(made.draft)[0])
        made.same(RegisterBlock().apply(draft, own))


AT = "int t = blockIdx.x * blockDim.x + threadIdx.x; "
LEFT = {
    "not taken apart": AT + "if (t < n) y[t] = x[t];",
    "by what memory says": AT + "int d = x[0]; if (t < n) y[t] = x[t % d];",
    "by what changes": AT + "int d = w; d += 1; if (t < n) y[t] = x[t % d];",
    "by what loops count": AT + "if (t < n) for (int k = 1; k < 4; ++k) y[t] += x[t % k];",
    "an index that moves": AT + "while (t >= 64) t -= 64; y[t / w * w + t % w] = 1;",
    "its own number": AT + "if (t < n) y[t] = x[t % w] + threadIdx.x;",
    "its block": AT + "if (t < n) y[t] = x[t % w] + blockIdx.x;",
    "the grid": AT + "if (t < n) y[t] = x[t % w] + gridDim.x;",
    "a neighbour's result": AT + "if (t + 1 < n) y[t] = y[t + 1] + x[t % w];",
    "a shared array": AT
    + "__shared__ float s[64]; s[threadIdx.x] = x[t % w]; y[t] = s[threadIdx.x];",
    "lanes": AT + "y[t] = __shfl_down_sync(0xffffffffu, x[t % w], 1);",
    "another stride": "for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < n; t += 64)"
    " y[t] = x[t % w];",
    "a sum over strides": "float s = 0; for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < n;"
    " t += blockDim.x * gridDim.x) { s += x[t % w]; y[t] = s; }",
    "an early end": "for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < n;"
    " t += blockDim.x * gridDim.x) { if (x[t % w] > 4) break; y[t] = 1; }",
    "a return in a loop": AT + "for (int k = 0; k < 3; ++k) if (x[t % w] > k) return; y[t] = 1;",
    "a size further inside": AT
    + "if (t < n) { if (x[t] > 0) { int d = w + 1; y[t] = x[t % d]; } }",
    "a signed difference": AT + "if (t < n) y[t] = x[(t - 3) / w + 1];",
    "the order of waiting": AT + "while (atomicCAS((int*)y, 0, 1)) { } y[t] = x[t % w];",
    "volatile": AT + "volatile float* p = y; p[t] = x[t % w];",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    source = f"__global__ void k(const float* x, float* y, int n, int w) {{ {LEFT[name]} }}"
    arguments = {"x": floats(256), "y": floats(256), "n": 250, "w": 5}
    made = case(source, arguments, grid=(4,), block=(64,))
    for part in range(2):
        with pytest.raises(NotUnderstood):
            RegisterBlock().apply(made.draft, {"axis": "x", "part": part, "factor": 4})


def test_a_function_that_asks_for_its_block(case: Callable[..., Case]) -> None:
    source = """
    __device__ int first() { return blockIdx.x * blockDim.x; }
    __global__ void k(const float* x, float* y, int w) {
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        y[t] = x[t % w] + first();
    }"""
    made = case(
        source, {"x": floats(64), "y": floats(64), "w": 8}, grid=(2,), block=(32,), callee="k"
    )
    assert RegisterBlock().settings(made.draft) == ()


def test_launches_that_another_size_is_left_to(case: Callable[..., Case]) -> None:
    draft = _blocked(case, "even", 2)
    covered = "gridDim.x * blockDim.x >= ((W - K) + 1) * ((H - K) + 1) * M * N"
    assert {*expressions(covered, "M >= 1")} <= {*draft.requires}


STALE = {
    "changed by a function": "int u = t; next(u); y[t] = x[u % w];",
    "computed before": "int v = t, u = v; v += w; y[t] = x[u % w] + v;",
    "computed before, in a loop": "int v = t; while (v < n) { int u = v; v += n; y[t] = x[u]; }",
    "kept": "int v = t, u = v; y[t] = x[u % w];",
}


@pytest.mark.parametrize("name", STALE)
def test_a_variable_is_its_value_while_that_is_the_same(
    name: str, case: Callable[..., Case]
) -> None:
    source = f"""
    __device__ void next(int& u) {{ ++u; }}
    __global__ void k(const float* x, float* y, int n, int w) {{
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        if (t < n) {{ {STALE[name]} }}
    }}"""
    arguments = {"x": floats(256), "y": floats(256), "n": 250, "w": 5}
    made = case(source, arguments, grid=(4,), block=(64,), callee="k")
    known = Variables(made.draft).value("u")
    assert (known is not None) == (name == "kept")
    if name == "changed by a function":
        with pytest.raises(NotUnderstood):
            RegisterBlock().apply(made.draft, {"axis": "x", "part": 1, "factor": 2})
