"""What many threads compute alike, once for each value: where it is so, and where it is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.precompute_table import PrecomputeTable
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case

X = np.linspace(0.25, 3.0, 1280, dtype=np.float32)
W = np.linspace(0.5, 2.0, 24, dtype=np.float32)
PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; "
GUARDED = f"{PLACE} if (i >= n) return; "


def launched(case: Callable[..., Case], body: str, **more: object) -> Case:
    source = f"""
    __device__ float own(float v) {{ return v * v; }}
    __global__ void k(const float* x, const float* w, float* y, int n, int c, int m, float by) {{
        {body}
    }}"""
    given = {"x": X, "w": W, "y": X * 0, "n": 1111, "c": 12, "m": 5, "by": 1.5, **more}
    return case(source, given, grid=(10,), block=(128,))


TAKEN = {
    "channel": GUARDED + "int q = i % c; y[i] = x[i] * (by / sqrtf(w[q] + by));",
    "channel of an image": GUARDED + """
        const int q = i / m % c;  // theirs
        float inverse = 1.f / w[q], root = sqrtf(inverse * by);
        y[i] = x[i] * root + q;""",
    "column": GUARDED + "y[i] = x[i] + powf(by, 2 * (i % c / 2) * 0.25f);",
    "braced": PLACE + "if (i < n && m > 0) { y[i] = x[i] * expf(w[i % c]); }",
    "launch": GUARDED + "float s = logf(by) * sqrtf(by); y[i] = x[i] * s;",
    "block": "y[blockIdx.x * blockDim.x + threadIdx.x % 64] = logf(w[blockIdx.x] + by);",
    "thread": PLACE + "if (i < n) y[i] = x[i] * sinf(threadIdx.x * by);",
    "in a loop": GUARDED + """
        unsigned q = threadIdx.x % 8u; float s = 0;
        for (int j = 0; j < m; ++j) s += x[(i + j) % n] * cosf(q * by);
        y[i] = s;""",
    "under a condition": GUARDED + "if (x[i] > 1) y[i] = sqrtf(i % c + by); else y[i] = 1;",
    "two of them": GUARDED + "y[i] = expf(i % c * by) * x[i] + expf(i % m * by);",
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    made = launched(case, TAKEN[name])
    draft = made.applied(PrecomputeTable())
    assert len(draft.launches) == (3 if name == "two of them" else 2)
    assert PrecomputeTable().settings(draft) == () or name == "two of them"
    made.same(draft)


def test_what_a_table_holds_is_computed_nowhere_else(case: Callable[..., Case]) -> None:
    draft = launched(case, TAKEN["channel of an image"]).applied(PrecomputeTable())
    assert "root = ahead[q];" in draft.text
    assert draft.text.count("inverse =") == 1, "of the kernel that fills the table"


def test_two_axes(case: Callable[..., Case]) -> None:
    source = """
__global__ void rotate(const float* x, float* y, int rows, int columns, float base) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float rate = powf(base, -2.0f * (column / 2) / columns);
    y[row * columns + column] = x[row * columns + column] * sinf(row * rate);
}"""
    arguments = {"x": X, "y": X * 0, "rows": 39, "columns": 30, "base": 100.0}
    made = case(source, arguments, grid=(2, 10), block=(16, 4))
    draft = made.applied(PrecomputeTable())
    assert str(draft.scratch[0][1]).startswith("max(")
    assert "sinf(row * rate)" in draft.text, "that of two integers stays"
    made.same(draft)


def test_constants_follow(case: Callable[..., Case]) -> None:
    made = launched(case, TAKEN["channel of an image"])
    special = Specialise().apply(made.draft, {"what": "sizes"})
    draft = PrecomputeTable().apply(special, {})
    assert "const int q = i / m % c;  // theirs" in draft.text
    made.same(draft)


def applies(draft: Draft, made: Case) -> bool:
    return resolve(draft.rewrite(), made.kernel, made.workload).applicable


def test_it_asks_the_launch(case: Callable[..., Case]) -> None:
    draft = launched(case, TAKEN["channel"]).applied(PrecomputeTable())
    assert applies(draft, launched(case, TAKEN["channel"]))
    for more in ({"n": 11}, {"c": 0}, {"c": 2000}, {"n": 0}):
        other = launched(case, TAKEN["channel"], **more)
        assert not applies(draft, other), more


@pytest.mark.parametrize(
    "body",
    [
        GUARDED + "y[i] = x[i] * sqrtf(w[i % c] + x[i]);",
        GUARDED + "y[i] = x[i] + (i % c) * 2.0f;",
        GUARDED + "int q = i % c; q += 1; y[i] = x[i] * sqrtf(w[q]);",
        GUARDED + "y[i % c] = sqrtf(y[i % c] + by);",
        GUARDED + "y[i] = x[i] * sqrtf(w[(i - m) % c + m] + by);",
        GUARDED + "y[i] = x[i] * (i % c > 3 ? sqrtf(w[i % m]) : 1.f) * own(by);",
        PLACE + "for (; i < n; i += 500) y[i] = sqrtf(w[i % c] + by);",
        GUARDED + "if (x[i] > 1) y[i] = sqrtf(w[i % c] + by);",
        GUARDED + "for (int j = 0; j < m; ++j) y[i] += sqrtf(w[i % c] + by);",
        GUARDED + "y[i] = x[i] > 1 ? sqrtf(w[i % c] + by) : 0;",
        GUARDED + "y[i] = sqrtf(i + by);",
        GUARDED + "y[i] = sqrtf((int)x[i] % c + by);",
        GUARDED + "y[i] = sqrtf(i % c + i % m * by);",
        GUARDED + "by += i; y[i] = sqrtf(i % c + by);",
        GUARDED + "y[i] = own(i % c + by);",
        GUARDED + "float* z = y; z[i] = sqrtf(z[i % c] + by);",
        "if (threadIdx.x > 3) return;" + PLACE + "y[i] = sqrtf(w[i % c] + by);",
        PLACE + "if (i > 20 && i < n) y[i] = sqrtf(w[i % c] + by);",
        "int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] = expf(w[i % c] + by);",
    ],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = launched(case, body)
    offered = PrecomputeTable().settings(made.draft)
    if offered:
        draft = PrecomputeTable().apply(made.draft, {})
        raise AssertionError(draft.rewrite().source)
    with pytest.raises(NotUnderstood):
        PrecomputeTable().apply(made.draft, {})


def test_a_table_that_few_use_is_none(case: Callable[..., Case]) -> None:
    body = GUARDED + "y[i] = sqrtf(i % c + by);"
    assert PrecomputeTable().settings(launched(case, body, c=159).draft)
    assert not PrecomputeTable().settings(launched(case, body, c=161).draft)
