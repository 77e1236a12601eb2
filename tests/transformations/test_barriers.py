"""Barriers that nothing needs go, and all others stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.barriers import Barriers
from tests.transformations.bench import Case

KERNEL = """
__global__ void k(const float* x, float* y, int n) {{
    __shared__ float here[64], other[64];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    {body}
}}"""
ROUNDS = (
    "float s = 0; for (int k = 0; k < n; ++k) {{ here[t] = x[i + k]; __syncthreads(); "
    "s += here[{of}]; __syncthreads(); {more} }} y[i] = s;"
)
GONE = {
    "before anything": ("__syncthreads(); here[t] = x[i]; y[i] = here[t];", 0),
    "own elements": ("here[t] = x[i]; __syncthreads(); here[t] *= 2; y[i] = here[t];", 0),
    "at the end": ("here[t] = x[i]; __syncthreads(); y[i] = here[63 - t]; __syncthreads();", 1),
    "two in a row": ("here[t] = x[i]; __syncthreads(); __syncthreads(); y[i] = here[63 - t];", 1),
    "other arrays": (
        "here[t] = x[i]; __syncthreads(); other[t] = 1; y[i] = here[t] + other[t];",
        0,
    ),
    "in a loop": (ROUNDS.format(of="t", more=""), 0),
    "one of a loop": (ROUNDS.format(of="63 - t", more="__syncthreads();"), 2),
}
STAYS = {
    "a neighbour's": "here[t] = x[i]; __syncthreads(); y[i] = here[63 - t];",
    "a shift": "here[t] = x[i]; __syncthreads(); y[i] = here[(t + 1) % 64];",
    "written again": "float v = here[63 - t] = x[i]; __syncthreads(); here[t] = v; y[i] = v;",
    "all write one": "if (t == 3) here[0] = x[i]; __syncthreads(); y[i] = here[0];",
    "by an index": "int j = (int)x[i] & 63; here[j] = 1; __syncthreads(); y[i] = here[j];",
    "global memory": "y[i] = x[i]; __syncthreads(); y[i ^ 1] = y[i] + 1;",
    "the next round": (
        "float s = 0; for (int k = 0; k < n; ++k) { s += here[63 - t]; __syncthreads(); "
        "here[t] = x[i + k]; __syncthreads(); } y[i] = s;"
    ),
    "a loop's elements": (
        "for (int k = 0; k < 4; ++k) other[t + k & 63] = 0; __syncthreads(); "
        "for (int k = 0; k < 4; ++k) here[t] += other[t + k & 63]; y[i] = here[t];"
    ),
    "left early": (
        "float s = 0; for (int k = 0; k < n; ++k) { here[t] = x[i]; if (k > 3) break; "
        "__syncthreads(); s += here[t]; } y[i] = s + here[t];"
    ),
    "in a branch": "here[t] = x[i]; if (n > 0) __syncthreads(); y[i] = here[63 - t];",
    "one memory, two names": (
        "extern __shared__ float a[]; extern __shared__ float b[]; "
        "a[t] = x[i]; __syncthreads(); b[63 - t] = 1; y[i] = a[t];"
    ),
    "half an element": "((short*)here)[t] = t; __syncthreads(); y[i] = ((short*)here)[t + 1];",
}


def made_of(body: str, case: Callable[..., Case]) -> Case:
    x = np.random.default_rng(0).random(140).astype(np.float32)
    return case(KERNEL.format(body=body), {"x": x, "y": x * 0, "n": 5}, grid=(2,), block=(64,))


@pytest.mark.parametrize("name", GONE)
def test_what_goes(name: str, case: Callable[..., Case]) -> None:
    body, left = GONE[name]
    made = made_of(body, case)
    draft = made.applied(Barriers())
    assert draft.text.count("__syncthreads()") == left
    made.same(draft)


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str, case: Callable[..., Case]) -> None:
    made = made_of(STAYS[name], case)
    with pytest.raises(NotUnderstood):
        Barriers().apply(made.draft, {"which": "needless"})
