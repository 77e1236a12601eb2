"""Reads of shared memory that nobody wrote, one value that several threads write to one place of
it: no fault where the author's own do the same, a fault of whoever brings it in. Threads that end
while others of their block wait at a barrier are nobody's fault: a GPU waits for the rest."""

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
OLD = """    __shared__ float row[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    row[threadIdx.x] = i < n ? a[i] : 0.0f;
    float old = row[threadIdx.x + 128];
    if (i < n) b[i] = threadIdx.x < 200 ? row[threadIdx.x] : old;"""
USED = OLD.replace("< 200", "< 100")
FLAG = """    __shared__ int found;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (i < n && a[i] > 3) found = 2;
    __syncthreads();
    if (i < n) b[i] = a[i] + found;"""
ONE_SETS = FLAG.replace("if (i < n && a[i] > 3) found", "if (threadIdx.x == 5) found")
DIFFER = FLAG.replace("found = 2", "found = 2 + (i & 1)")
PAIRS = """    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i / 2] = n;"""
ADDS = PAIRS.replace("b[i / 2] = n", "atomicAdd(&b[i / 2], a[i])")
LOSES = PAIRS.replace("= n", "+= a[i]")
REWRITE = """// @launch fast grid=(8) block=(128) args=(a, b, n)
__global__ void fast(const float* a, float* b, int n) {
BODY
}
"""


@pytest.mark.parametrize(
    ("author", "candidate", "passes", "says"),
    [
        (STAYS, LEAVES, True, "no finding"),
        (LEAVES, PARTS, False, "while others wait at the barrier at"),
        (OLD, OLD.replace("200", "190 + 10"), True, "except shared memory that is read"),
        (OLD, STAYS, True, "no finding"),
        (STAYS, OLD, False, "reads shared memory that no thread of block"),
        (OLD, LEAVES, True, "no finding"),
        (FLAG, FLAG.replace("= 2", "= 1 + 1"), True, "except threads that write one value"),
        (FLAG, STAYS, True, "no finding"),
        (ONE_SETS, FLAG, False, "of the value that thread"),
        (FLAG, DIFFER, False, "writes at cand"),
        (OLD, FLAG, False, "of the value that thread"),
        (PAIRS, PAIRS.replace("/ 2", ">> 1"), True, "except several threads write one value"),
        (ADDS, LOSES, False, "race on global memory: block"),
        (PAIRS, LOSES, False, "race on global memory: block"),
    ],
    ids=[
        "threads that end early", "threads at two barriers", "both read",
        "the author alone reads", "the candidate alone reads", "ends early and reads nothing",
        "both set a flag", "the author alone sets it", "the candidate alone sets it",
        "another value", "one for another again", "both write the same to global memory",
        "no atomic where the author has one", "another race than the author's",
    ],
)  # fmt: skip
def test_who_brings_it_in(
    cpu_executor: CpuExecutor, tmp_path: Path, author: str, candidate: str, passes: bool, says: str
) -> None:
    bench = opened(cpu_executor, tmp_path, author)
    gate = verified(bench, REWRITE.replace("BODY", candidate))[0]
    assert (gate.name, gate.passed) == ("checker", passes), gate.summary
    assert says in gate.summary
    assert ("except" in gate.summary) == ("except" in says)


def test_what_nobody_wrote_shows_in_results(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    """The author reads it and does not use it; the candidate does."""
    gates = verified(opened(cpu_executor, tmp_path, OLD), REWRITE.replace("BODY", USED))
    assert gates[0].passed, gates[0].summary
    assert not all(gate.passed for gate in gates)


def test_an_authors_own_race_is_told(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    race = LEAVES.replace("    __syncthreads();\n", "")
    gate = verified(opened(cpu_executor, tmp_path, race), REWRITE.replace("BODY", race))[0]
    assert not gate.passed
    assert "; the author's kernel is not right either: f.cu:9: " in gate.summary, gate.summary
