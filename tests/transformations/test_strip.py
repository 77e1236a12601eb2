"""Loops in strips, and loops that are no whole number of them or cannot load ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.strip import Strip
from cudaops.transformations.vectorise import Vectorise
from tests.transformations.bench import Case, every_setting, expressions

SCALE = """
__global__ void scale(const float* x, const float* w, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < n; j++) { sum += x[row * n + j] * w[j]; }  // of a row
    for (int j = 0; j < n; j++) {
        int at = row * n + j;
        float v = x[at];
        y[at] = v / (1 + sum) + j;
    }
}"""


def made(case: Callable[..., Case], source: str, n: int = 136) -> Case:
    x = np.random.default_rng(n).integers(0, 9, 70 * n).astype(np.float32)
    arguments: Any = {"x": x, "w": x[:n] % 3, "y": x * 0, "rows": 70, "n": n}
    return case(source, arguments, grid=(2,), block=(64,))


def test_order_is_kept(case: Callable[..., Case]) -> None:
    one = made(case, SCALE)
    for draft in every_setting(Strip(), one).values():
        assert set(expressions("n % 4 == 0", "n % 2 == 0")) & set(draft.requires)
        one.same(draft)


def test_a_warp_a_row_with_vectors(case: Callable[..., Case]) -> None:
    one = made(case, SCALE)
    draft = Strip().apply(one.draft, {"loop": "all", "factor": 4})
    draft = Cooperate().apply(draft, {"lanes": 32})
    draft = Vectorise().apply(draft, {"what": "all"})
    assert draft.text.count("reinterpret_cast<const float4*>") == 3
    assert draft.text.count("reinterpret_cast<float4*>") == 1
    assert "j = lane * 4; j < n; j += 128" in draft.text
    one.same(draft, tolerance=1e-5)


def test_vectors_for_a_thread(case: Callable[..., Case]) -> None:
    one = made(case, SCALE, 12)
    draft = Strip().apply(one.draft, {"loop": "all", "factor": 4})
    draft = Vectorise().apply(draft, {"what": "all"})
    one.same(draft)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("j < n", "j < n - 1"),  # 135 turns
        ("int j = 0;", "int j = row;"),
        ("j++", "j += 2"),
        ("sum += x", "if (sum > 99) break; sum += x"),
        ("x[row * n + j] * w[j]", "y[row * n + j]"),
        ("x[row * n + j] * w[j]", "x[row * n + 2 * j % n]"),
        ("x[row * n + j] * w[j]", "(sum < 0 ? x[j] : 1)"),
        ("const float* x", "volatile const float* x"),
        ("x[row * n + j] * w[j]", "x[row * n + j] + (row += 0)"),
    ],
)
def test_what_it_leaves(before: str, after: str, case: Callable[..., Case]) -> None:
    source = SCALE[: SCALE.rindex("    for (int j = 0; j < n; j++) {")] + "    y[row] = sum;\n}"
    assert before in source
    one = made(case, source.replace(before, after, 1))
    assert one.draft.facts.loops or one.draft.facts.accesses  # it is understood
    with pytest.raises(NotUnderstood):
        Strip().apply(one.draft, {"loop": 0, "factor": 4})


def test_a_store_that_the_loop_looks_at(case: Callable[..., Case]) -> None:
    source = SCALE.replace("sum) + j;", "sum) + y[(at + 135) % n];")
    one = made(case, source)
    draft = Strip().apply(one.draft, {"loop": 1, "factor": 2})
    assert "y_strip" not in draft.text


def test_an_output_in_the_same_allocation(case: Callable[..., Case]) -> None:
    one = made(case, SCALE)
    given = tuple(
        a.model_copy(update={"allocation": 0}) if a.name == "y" else a
        for a in one.workload.arguments
    )
    workload = one.workload.model_copy(update={"arguments": given})
    draft = type(one.draft).of(type(one.subject)(one.program, one.kernel, (workload,)))
    with pytest.raises(NotUnderstood):
        Strip().apply(draft, {"loop": 1, "factor": 4})
