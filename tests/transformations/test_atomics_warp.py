"""One atomic a warp where its lanes meet, and where it is not certain that they do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomics_warp import AtomicsWarp
from tests.transformations.bench import Case
from tests.transformations.test_atomics_private import drawn

KERNEL = """
__global__ void k(const int* x, float* mass, int* most, unsigned* seen, int n) {{
    __shared__ float here;
    __shared__ int count[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x + threadIdx.y == 0) {{ here = 0; count[0] = count[1] = count[2] = 0; }}
    __syncthreads();
    int v = i < n ? x[i] : 0;
    {body}
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0) {{ mass[blockIdx.x] = here + count[n % 3]; }}
}}"""
TAKEN = {
    "a sum of floats": "atomicAdd(&here, 0.25f * v);  // everybody",
    "some lanes": "if (v > 20) atomicAdd(&count[n % 3], v);",
    "in loops": "for (int r = 0; r < n % 4; ++r) { if (n > r) atomicAdd(&count[r], r - v); }",
    "a minimum and bits": "atomicMax(most, v); if (i < n) atomicOr(seen + n / 99, 1u << v % 32);",
    "two": "if (v & 1) { atomicAdd(&here, 1.0); } atomicMin(&most[1], v);",
}  # fmt: skip
LEFT = {
    "addresses differ": "atomicAdd(&count[v % 3], 1);",
    "the result is used": "v = atomicAdd(&count[0], 1);",
    "in a branch": "if (v > 3) { v += 1; atomicAdd(&count[0], v); }",
    "in the other branch": "if (v > 3) v += 1; else atomicAdd(&count[0], v);",
    "trips differ": "for (int r = 0; r < v; ++r) atomicAdd(&count[0], 1);",
    "some leave": "if (v > 90) return; atomicAdd(&count[0], 1);",
    "some break": "for (int r = 0; r < 5; ++r) { if (v > r) break; atomicAdd(&count[0], 1); }",
    "left at different times": "int r = 0; do ++r; while (r < v); atomicAdd(&count[r % 3], 1);",
    "an exchange": "atomicExch(&count[0], v);",
    "a place read from memory": "atomicAdd(&count[x[0] % 3], 1);",
    "an effect in the value": "if (v > 2) atomicAdd(&count[0], v++);",
    "a while loop": "int r = 0; while (r < v) { ++r; atomicAdd(&count[0], 1); }",
}


def made_of(body: str, case: Callable[..., Case], block: tuple[int, ...]) -> Case:
    arguments = {"x": drawn(160), "mass": np.zeros(3, np.float32), "most": np.full(2, 30, np.int32),
                 "seen": np.zeros(3, np.uint32), "n": 155}  # fmt: skip
    return case(KERNEL.format(body=body), arguments, grid=(3,), block=block)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("block", [(64,), (16, 4)])
def test_lanes_meet(name: str, block: tuple[int, ...], case: Callable[..., Case]) -> None:
    made = made_of(TAKEN[name], case, block)
    draft = made.applied(AtomicsWarp())
    assert "__shfl_down_sync" in draft.text
    made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    made = made_of(LEFT[name], case, (64,))
    with pytest.raises(NotUnderstood):
        AtomicsWarp().apply(made.draft, {"sums": "all"})


def test_sums_of_floats_may_keep_their_order(case: Callable[..., Case]) -> None:
    made = made_of(TAKEN["two"], case, (64,))
    assert AtomicsWarp().settings(made.draft) == ({"sums": "all"}, {"sums": "exact"})
    draft = AtomicsWarp().apply(made.draft, {"sums": "exact"})
    assert "if (v & 1) { atomicAdd(&here, 1.0); }" in draft.text
    assert draft.text.count("__shfl") == 1
    made.same(draft)


def test_a_part_of_a_warp(case: Callable[..., Case]) -> None:
    made = made_of(TAKEN["a sum of floats"], case, (40,))
    with pytest.raises(NotUnderstood, match="part of a warp"):
        AtomicsWarp().settings(made.draft)
