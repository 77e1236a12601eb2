"""Bodies without `return`: nothing that has an effect goes with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.analysis.effects import calls_in, has_return
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.predication import without_returns
from tests.transformations.bench import Case

KERNEL = """
__device__ bool counted(int* c, int i) { atomicAdd(&c[i % 8], 1); return i > 20; }
__global__ void k(const float* x, float* y, int* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}"""
TAKEN = {
    "a condition with an effect, last": "if (i < n) y[i] = x[i]; if (counted(c, i)) return;",
    "the same in both branches": "y[i] = x[i]; if (counted(c, i)) { return; } else { return; }",
    "an effect and a rest": "if (counted(c, i)) return; if (i < n) y[i] = x[i];",
    "one after another": "if (i >= n) return; if (x[i] > 0) return; y[i] = x[i];",
    "in the other branch": "if (i < n) { y[i] = x[i]; } else return; c[i % 8 + 8] = 1;",
    "both return": "if (i < n) { y[i] = x[i]; return; } else { return; }",
    "not a number": "if (x[i] > 0) return; y[i] = 1;",
}
REFUSED = {
    "in a loop": "for (int k = 0; k < 3; ++k) if (x[k] > 9) return; y[i] = 1;",
    "on some ways": "if (i < n) { if (x[i] > 0) return; c[9] = 1; } y[i] = 1;",
}


def made(case: Callable[..., Case], body: str) -> Case:
    x = np.random.default_rng(6).standard_normal(128).astype(np.float32)
    x[7] = np.nan
    arguments = {"x": x, "y": np.zeros(128, np.float32), "c": np.zeros(16, np.int32), "n": 77}
    return case(KERNEL.replace("BODY", body), arguments, grid=(4,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_left_does_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    body = one.draft.form.kernel.body
    left = without_returns(body)
    assert not has_return(left)
    assert calls_in(left) == calls_in(body)
    one.same(one.draft.with_body(left))
    for setting in Coarsen().settings(one.draft)[:3]:
        with contextlib.suppress(NotUnderstood):
            one.same(Coarsen().apply(one.draft, setting))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_turned_round(name: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        without_returns(made(case, REFUSED[name]).draft.form.kernel.body)
