"""Pragmas: above the right loop, in place of what stands there, where a loop is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.unroll import Unroll
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]

NEST = """
__device__ int steps(int n) {
    int found = 0;
    while (n > 1) { n = n % 2 ? 3 * n + 1 : n / 2; found++; }
    return found;
}

__global__ void work(const int* a, int* y, int n) {
    int i = threadIdx.x;
    // Every row.
    #pragma unroll 2
    // (of two)
    for (int r = 0; r < n; r++) {
        int sum = 0;
        for (int k = 0; k < 40; k++) sum += a[(i + r * k) % 32] * (k + 1);
        y[r * 32 + i] = sum + steps(i + 1);
        __syncthreads();
    }
    if (n > 1) for (int k = 0; k < n; k++) y[i] += k;
}"""


def nest(case: MAKE, source: str = NEST) -> Case:
    a = np.arange(32, dtype=np.int32)
    return case(source, {"a": a, "y": np.zeros(96, np.int32), "n": 3}, grid=(1,), block=(32,))


def test_every_setting_computes_the_same(case: MAKE) -> None:
    made = nest(case)
    drafts = every_setting(Unroll(), made)
    assert len(drafts) >= 4
    for draft in drafts.values():
        made.same(draft)
        assert draft.requires == ()


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ({"loop": 0, "factor": 8}, "    // Every row.\n    #pragma unroll 8\n    // (of two)\n"),
        ({"loop": 1, "factor": "full"}, "        #pragma unroll\n        for (int k = 0; k < 40;"),
        ({"loop": 2, "factor": 1}, "    if (n > 1) \n    #pragma unroll 1\n        for (int k"),
    ],
)
def test_where_it_stands(setting: dict[str, int | str], lines: str, case: MAKE) -> None:
    made = nest(case)
    draft = made.applied(Unroll(), setting)
    assert lines in draft.text
    assert draft.text.count("#pragma") == 2 - (setting["loop"] == 0)
    made.same(draft)


def test_a_loop_of_a_device_function(case: MAKE) -> None:
    made = nest(case)
    draft = made.applied(Unroll(), {"loop": 0, "function": "steps", "factor": 4})
    assert "    #pragma unroll 4\n    while (n > 1)" in draft.text
    assert "steps_fast(i + 1)" in draft.text
    made.same(draft)


def test_twice_in_a_row(case: MAKE) -> None:
    made = nest(case)
    once = made.applied(Unroll(), {"loop": 0, "function": "steps", "factor": 4})
    (own,) = (f.name for f in once.form.functions)
    twice = Unroll().apply(once, {"loop": 0, "function": own, "factor": 2})
    assert "#pragma unroll 2\n    while" in twice.text
    assert "#pragma unroll 4" not in twice.text
    made.same(twice)


MACRO = NEST.replace("for (int k = 0; k < 40; k++)", "EACH(40)")
LEFT: dict[str, tuple[str, dict[str, int | str]]] = {
    "a loop that is there already": (NEST, {"loop": 0, "factor": 2}),
    "a loop that is not there": (NEST, {"loop": 3, "factor": 2}),
    "a function that is not there": (NEST, {"loop": 0, "function": "stairs", "factor": 2}),
    "a loop of a macro": (
        "#define EACH(n) for (int k = 0; k < n; k++)\n" + MACRO, {"loop": 1, "factor": 2},
    ),
    "another spelling": (
        NEST.replace("#pragma unroll 2", '_Pragma("unroll 2")'), {"loop": 0, "factor": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    source, setting = LEFT[what]
    with pytest.raises(NotUnderstood):
        nest(case, source).applied(Unroll(), setting)


def test_what_nvcc_does_by_itself(case: MAKE) -> None:
    source = """
    __global__ void few(int* y) {
        for (int k = 0; k < 3; k++) y[threadIdx.x * 3 + k] = k;
    }"""
    made = case(source, {"y": np.zeros(96, np.int32)}, grid=(1,), block=(32,))
    assert Unroll().settings(made.draft) == ()
