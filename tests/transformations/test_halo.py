"""Tiles with halos: what neighbouring threads read, and edges that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.halo import Halo
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case, every_setting, expressions
from tests.transformations.test_atomics_private import drawn

HEAT = """
#define AT(row, column) ((row) * w + (column))
__global__ void heat(const float* in, float* out, int w, int h, float c) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && x < w - 1 && y > 0 && y < h - 1) {
        float sum = in[AT(y, x - 1)] + in[AT(y, x + 1)] + in[AT(y - 1, x)] + in[AT(y + 1, x)];
        out[AT(y, x)] = in[AT(y, x)] + c * (sum - 4 * in[AT(y, x)]);  // explicit
    }
}"""
FILTER = """
__global__ void filter(const int* image, const int* weights, int* out, int w, int h) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int sum = 0;
    for (int i = -2; i <= 2; ++i)
        for (int j = -1; j <= 1; ++j) {
            int row = y + i, column = x + j;
            if (row >= 0 && row < h && column >= 0 && column < w)
                sum += image[row * w + column] * weights[(i + 2) * 3 + j + 1];
        }
    out[y * w + x] = sum;
}"""
CLAMPED = """
__global__ void smooth(const double* image, double* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    double sum = 0;
    for (int i = -1; i <= 1; ++i)
        for (int j = -1; j <= 1; ++j) {
            int row = min(max(y + i, 0), h - 1);
            sum += image[row * w + max(0, min(x + j, w - 1))];
        }
    int left = x > 0 ? x - 1 : 0, right = x < w - 1 ? x + 1 : w - 1;
    out[y * w + x] = sum - image[y * w + left] - image[y * w + right];
}"""
LINE = """
__global__ void line(const float* x, const float* by, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3 || i + 3 >= n) return;
    float sum = 0;
    for (int k = 0; k < 7; k++) sum += by[k] * __ldg(&x[i + k - 3]);
    y[i] = sum;
}"""
CUBE = """
__global__ void cube(const float* a, float* y, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i == 0 || j == 0 || k == 0) return;
    if (i >= nx - 1 || j >= ny - 1 || k >= nz - 1) return;
    long long at = ((long long)k * ny + j) * nx + i;
    y[at] = a[at - 1] + a[at + 1] + a[at - nx] + a[at + nx] + a[at - (long long)nx * ny]
          + a[at + nx * ny] - 6 * a[at];
}"""


def image(case: Callable[..., Case], source: str, w: int, h: int, **given: Any) -> Case:
    kind = np.float64 if "double" in source else np.int32 if "const int*" in source else np.float32
    x = (np.arange(w * h) * 7919 % 31).astype(kind)
    arguments: Any = {"image" if "image" in source else "in": x}
    if "weights" in source:
        arguments["weights"] = drawn(15)
    arguments |= {"out": x * 0, "w": w, "h": h} | given
    return case(source, arguments, grid=(-(-w // 32), -(-h // 8)), block=(32, 8))


@pytest.mark.parametrize(("w", "h"), [(70, 21), (3, 3), (33, 9)])
def test_a_star_inside_of_its_border(w: int, h: int, case: Callable[..., Case]) -> None:
    made = image(case, HEAT, w, h, c=0.25)
    for draft in every_setting(Halo(), made).values():
        assert "__shared__ float in_tile[10][34];" in draft.text
        assert "// explicit" in draft.text
        made.same(draft)


@pytest.mark.parametrize(("w", "h"), [(70, 21), (1, 1), (32, 8)])
def test_a_filter_with_nothing_outside(w: int, h: int, case: Callable[..., Case]) -> None:
    made = image(case, FILTER, w, h)
    draft = made.applied(Halo())
    assert "int image_tile[12][34];" in draft.text
    made.same(draft)


@pytest.mark.parametrize(("w", "h"), [(70, 21), (2, 1), (64, 16)])
def test_edges_that_are_repeated(w: int, h: int, case: Callable[..., Case]) -> None:
    made = image(case, CLAMPED, w, h)
    draft = made.applied(Halo())
    assert "image[" not in draft.text.partition("__syncthreads")[2]
    made.same(draft)


@pytest.mark.parametrize("n", [500, 7, 129])
def test_a_line_of_unsigned_numbers(n: int, case: Callable[..., Case]) -> None:
    x = np.random.default_rng(n).random(n).astype(np.float32)
    arguments = {"x": x, "by": x[:7], "y": x * 0, "n": n}
    made = case(LINE, arguments, grid=(-(-n // 64),), block=(64,))
    draft = made.applied(Halo())
    assert "float x_tile[70];" in draft.text
    made.same(draft)


def test_three_dimensions_and_wide_indices(case: Callable[..., Case]) -> None:
    a = np.random.default_rng(3).random(19 * 7 * 6).astype(np.float32)
    arguments = {"a": a, "y": a * 0, "nx": 19, "ny": 7, "nz": 6}
    made = case(CUBE, arguments, grid=(2, 2, 3), block=(16, 4, 2))
    draft = made.applied(Halo())
    assert "float a_tile[4][6][18];" in draft.text
    made.same(draft)


def test_numbers_of_the_launch_in_place(case: Callable[..., Case]) -> None:
    made = image(case, FILTER, 70, 21)
    draft = Specialise().apply(made.draft, {"what": "sizes"})
    draft = Halo().apply(draft, Halo().settings(draft)[0])
    assert "row2 * 70 + column2" in draft.text
    made.same(draft)


def test_sizes_that_it_was_not_made_for(case: Callable[..., Case]) -> None:
    draft = image(case, HEAT, 40, 9, c=1.0).applied(Halo())
    assert set(expressions("w >= 3", "h >= 3", "32 * gridDim.x + 1 >= w")) <= set(draft.requires)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("in[AT(y, x + 1)]", "in[AT(y, (x + 1) % w)]"),  # and so on for all: see below
        ("x > 0 &&", "in[0] > 0.5f &&"),
        ("x > 0 && x < w - 1 &&", "x > 0 && x < w - y &&"),
        ("x > 0 && x < w - 1", "x * w < 9"),
        ("&& y < h - 1", "&& (y & 1)"),
        ("int x =", "++w; int x ="),
        ("int x =", "in += w; int x ="),
        ("    if (x", "    x = w - 1 - x; if (x"),
        ("    if (x", "    for (int t = 0; t < 3; ++t) { if (in[t] > 9) return; }\n    if (x"),
        ("float* in", "volatile float* in"),
        ("out[AT(y, x)] =", "((float*)in)[0] = out[AT(y, x)] ="),
        ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * 8 + threadIdx.x"),
        ("blockIdx.x * blockDim.x + threadIdx.x", "2 * (blockIdx.x * blockDim.x + threadIdx.x)"),
        ("{\n        float sum", "{ if (in[3] == 7) return;\n        float sum"),
    ],
)
def test_stars_that_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in HEAT
    source = HEAT.replace(before, after, 1)
    if "%" in after:
        source = HEAT.replace("x - 1)]", "(x + w - 1) % w)]").replace("x + 1)]", "(x + 1) % w)]")
        source = source.replace("AT(y - 1, x)", "AT((y + h - 1) % h, x)").replace(
            "[AT(y + 1, x)", "[AT((y + 1) % h, x)"
        )
    made = image(case, source, 40, 9, c=0.5)
    assert made.draft.facts.loops or made.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        Halo().apply(made.draft, {"array": "in"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int i = -2; i <= 2", "int i = -h; i <= h"),  # turns that are not known
        ("column < w)", "column < w && i * i + j * j < 5)"),
        ("column < w)", "column < w && sum < 99)"),
        ("sum += image", "if (sum > 99) break; sum += image"),
        ("if (row", "if (i < 0) row = -row; if (row"),
        ("row >= 0 && row < h", "(unsigned)row < (unsigned)h"),
        ("image[row * w", "image[abs(row) * w"),
        ("row = y + i", "row = y + 2 * i"),
        ("row < h &&", "row < h - 1 - x &&"),
        ("i = -2; i <= 2", "i = -400; i <= 400"),  # no room
        ("if (row", "if (x - i >= 0 && row"),  # another place than what is read
    ],
)
def test_filters_that_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    assert before in FILTER
    made = image(case, FILTER.replace(before, after, 1), 40, 9)
    assert made.draft.facts.loops or made.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        Halo().apply(made.draft, {"array": "image"})


def test_clamps_of_places_outside(case: Callable[..., Case]) -> None:
    source = CLAMPED.replace(
        "if (x >= w || y >= h) return;", "if (x >= w + 1 || y >= h + 1) return;"
    )
    made = image(case, source, 40, 9)
    assert made.draft.facts.loops or made.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        Halo().apply(made.draft, {"array": "image"})


def test_an_output_in_the_same_allocation(case: Callable[..., Case]) -> None:
    made = image(case, HEAT, 40, 9, c=0.5)
    given = tuple(
        a.model_copy(update={"allocation": 0}) if a.name == "out" else a
        for a in made.workload.arguments
    )
    workload = made.workload.model_copy(update={"arguments": given})
    subject = type(made.subject)(made.program, made.kernel, (workload,))
    with pytest.raises(NotUnderstood):
        Halo().settings(type(made.draft).of(subject))
