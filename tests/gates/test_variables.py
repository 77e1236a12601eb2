"""Kernels that leave something in `__device__` variables alone: those are their results."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.qualification import qualification_of
from tests.gates.verification_bench import opened_program, verified

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
__device__ int hits;
__device__ float largest[4];
__global__ void count(const int* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && v[i] % 2 == 0) atomicAdd(&hits, 1);
    if (i < 4) largest[i] = v[i] * 0.1f;
}
int main() {
    const int n = 1000;
    int h[n], *v, found, zero = 0;
    float top[4];
    for (int i = 0; i < n; ++i) h[i] = i * 3 % 101;
    cudaMalloc(&v, sizeof h);
    cudaMemcpy(v, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(hits, &zero, sizeof zero);
    count<<<8, 128>>>(v, n);
    cudaMemcpyFromSymbol(&found, hits, sizeof found);
    cudaMemcpyFromSymbol(top, largest, sizeof top);
    printf("%d %f\\n", found, top[3]);
}
"""
REWRITE = """// @launch fast grid=(8) block=(128) args=(v, n)
__global__ void fast(const int* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (v[i] & 1) == 0) atomicAdd(&hits, 1);
    if (i < 4) largest[i] = v[i] * 0.1f;
}
"""


@pytest.mark.parametrize(
    ("instead_of", "stands", "refused"),
    [
        ("", "", ""),
        ("i < n &&", "i + 1 < n &&", "hits: "),
        ("hits, 1", "hits, 2", "hits: "),
        ("* 0.1f", "* 0.1001f", "largest: "),
        ("if (i < 4)", "if (i < 3)", "largest: "),
        ("atomicAdd(&hits, 1)", "(void)0", "hits: "),
    ],
)
def test_what_a_launch_leaves_in_variables_is_compared(
    cpu_executor: CpuExecutor, tmp_path: Path, instead_of: str, stands: str, refused: str
) -> None:
    (tmp_path / "f.cu").write_text(PROGRAM)
    bench = opened_program(cpu_executor, tmp_path / "f.cu", tmp_path / "run")
    gates = verified(bench, REWRITE.replace(instead_of, stands) if instead_of else REWRITE)
    if not refused:
        assert [gate.summary for gate in gates if not gate.passed] == []
        return
    assert gates[-1].name.startswith("correctness_"), gates[-1].summary
    assert not gates[-1].passed
    assert refused in gates[-1].summary


def test_the_gates_are_tried_on_mutants_of_variables_too(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    text = PROGRAM.replace("const int* v", "const float* v").replace(
        "int h[n], *v", "float h[n], *v"
    )
    text = text.replace("v[i] % 2 == 0", "v[i] > 50")
    (tmp_path / "f.cu").write_text(text)
    bench = opened_program(cpu_executor, tmp_path / "f.cu", tmp_path / "run")
    found = qualification_of(bench)
    caught = {(c.buffer, c.name) for c in found.controls if c.outcome == "caught"}
    assert {("hits", "zeros"), ("largest", "zeros"), ("largest", "operands_bf16")} <= caught
    assert found.baseline_passes
    assert not any("changes no buffer" in one for one in found.weak)
