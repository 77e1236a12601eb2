"""Prefix sums by the lanes of a warp or a block, and loops that only look like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.split_work import SplitWork
from tests.transformations.bench import Case, every_setting

SCAN = """
__global__ void prefix(const TYPE* a, TYPE* y, TYPE* totals, int rows, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    TYPE sum = START;
    for (int k = 0; k < m; ++k) {
        BODY
    }
    totals[row] = sum;
}"""
INCLUSIVE = "sum += a[row * m + k]; y[row * m + k] = sum;"
EXCLUSIVE = "TYPE x = a[row * m + k]; y[row * m + k] = sum * 2; sum = sum + x;  // theirs"


def made(case: Callable[..., Case], body: str, m: int, kind: str = "int", start: str = "0") -> Case:
    rows, numpy = 5, {"int": np.int32, "float": np.float32, "double": np.float64}[kind]
    draw = np.random.default_rng(m)
    arguments: Any = {
        "a": draw.integers(-9, 10, rows * m).astype(numpy), "y": np.zeros(rows * m, numpy),
        "totals": np.zeros(rows, numpy), "rows": rows, "m": m,
    }  # fmt: skip
    source = SCAN.replace("BODY", body).replace("TYPE", kind).replace("START", start)
    return case(source, arguments, grid=(1,), block=(64,))


@pytest.mark.parametrize("m", [9, 32, 77, 300])
@pytest.mark.parametrize("body", [INCLUSIVE, EXCLUSIVE])
def test_of_a_row(body: str, m: int, case: Callable[..., Case]) -> None:
    one = made(case, body, m, start="3")
    for lanes in (n for n in (32, 8, 4, 256) if min(n, 32) <= m):
        draft = Cooperate().apply(one.draft, {"lanes": lanes})
        assert ("_any_sync" if lanes < 256 else "__syncthreads_or(k < m)") in draft.text
        one.same(draft)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("sum = max(sum, a[row * m + k]); y[row * m + k] = sum - 1;", "int"),
        ("y[row * m + k] = sum; sum = min(sum, a[row * m + k]);", "int"),
        ("sum ^= a[row * m + k]; y[row * m + k] = sum;", "int"),
        ("if (k > 2) y[row * m + k] = sum; sum += a[row * m + k] > 0; y[row * m] += 0 * k;", "int"),
        ("y[row * m + k] = a[row * m + k]; y[row * m + k] += sum; sum += k;", "int"),
        ("TYPE x = a[row * m + k], z = x * x; sum += z; y[row * m + k] = x / (1 + sum);", "double"),
        ("sum += a[row * m + k]; y[row * m + k] = sum;", "float"),
    ],
)  # fmt: skip
def test_of_other_kinds(body: str, kind: str, case: Callable[..., Case]) -> None:
    one = made(case, body, 45, kind, start="2")
    if "+= 0 * k" in body:
        with pytest.raises(NotUnderstood):  # iterations share an element
            Cooperate().apply(one.draft, {"lanes": 32})
        return
    for draft in every_setting(Cooperate(), one).values():
        one.same(draft, tolerance=1e-5)


def test_in_place(case: Callable[..., Case]) -> None:
    body = "int x = y[row * m + k]; y[row * m + k] = sum; sum += x;"
    one = made(case, body, 70)
    draft = Cooperate().apply(one.draft, {"lanes": 32})
    one.same(draft)


@pytest.mark.parametrize(
    "body",
    [
        "if (a[row * m + k] > 0) sum += a[row * m + k]; y[row * m + k] = sum;",
        "sum += a[row * m + k]; if (sum > 50) break; y[row * m + k] = sum;",
        "sum += a[row * m + k]; if (sum > 50) continue; y[row * m + k] = sum;",
        "sum += a[row * m + k]; if (sum > 50) sum = 0; y[row * m + k] = sum;",
        "sum += a[(row * m + k + sum) % 5]; y[row * m + k] = sum;",
        "sum = 2 * sum + a[row * m + k]; y[row * m + k] = sum;",
        "sum -= a[row * m + k]; y[row * m + k] = sum;",
        "sum = sum - a[row * m + k]; y[row * m + k] = sum;",
        "y[row * m + k] = sum; sum += y[row * m + k];",
        "int x = sum % 3; sum += x + a[row * m + k]; y[row * m + k] = sum;",
        "sum += a[row * m + k]; y[row * m + k] = sum; ++sum;",
        "sum += a[row * m + k]; y[row * m + k] = sum; m -= sum > 99;",
        "sum += a[row * m + k]; y[row * m + (k * 2) % m] = sum;",
        "int* p = &sum; *p += a[row * m + k]; y[row * m + k] = sum;",
    ],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    one = made(case, body, 40)
    assert one.draft.facts.loops or one.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        Cooperate().apply(one.draft, {"lanes": 32})


def test_parts_of_a_scan_are_none(case: Callable[..., Case]) -> None:
    one = made(case, INCLUSIVE, 400)
    with pytest.raises(NotUnderstood):
        SplitWork().apply(one.draft, {"parts": 8, "loop": 0})
