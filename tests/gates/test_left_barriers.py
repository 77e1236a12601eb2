"""Threads that end while others of their block wait at a barrier: no fault where the author's own
do, since a GPU waits for those that are left; a fault of whoever brings it in."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from tests.gates.verification_bench import opened, verified

LEAVES = """    __shared__ float row[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    row[threadIdx.x] = a[i];
    __syncthreads();
    b[i] = row[threadIdx.x] + row[threadIdx.x & ~1];"""
STAYS = """    __shared__ float row[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    row[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (i < n) b[i] = row[threadIdx.x] + row[threadIdx.x & ~1];"""
PARTS = LEAVES.replace(
    "    __syncthreads();",
    "    if (threadIdx.x < 64) __syncthreads();\n    else __syncthreads_or(0);",
)
REWRITE = """// @launch fast grid=(8) block=(128) args=(a, b, n)
__global__ void fast(const float* a, float* b, int n) {
BODY
}
"""


@pytest.mark.parametrize(
    ("author", "candidate", "passes", "says"),
    [
        (LEAVES, LEAVES.replace("& ~1", "/ 2 * 2"), True, "but threads that end before one, as"),
        (LEAVES, STAYS, True, "no divergent barrier"),
        (STAYS, LEAVES, False, "24 of the 128 threads of block (7,0,0) ended without reaching"),
        (LEAVES, PARTS, False, "while others wait at the barrier at"),
    ],
    ids=["both", "the author alone", "the candidate alone", "another fault beside it"],
)
def test_who_brings_it_in(
    cpu_executor: CpuExecutor, tmp_path: Path, author: str, candidate: str, passes: bool, says: str
) -> None:
    bench = opened(cpu_executor, tmp_path, author)
    gate = verified(bench, REWRITE.replace("BODY", candidate))[0]
    assert (gate.name, gate.passed) == ("checker", passes), gate.summary
    assert says in gate.summary
    assert ("but threads" in gate.summary) == ("but threads" in says)
