"""Kernels that launch kernels on the `cpu` executor: these begin after the grid that launches them,
and have ended before the host goes on (CUDA C++ Programming Guide, CUDA dynamic parallelism)."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import program

KERNELS = """
template <class T> __global__ void leaf(T* o, int at) { o[at * 4 + threadIdx.x] += T(at + 1); }
__global__ void inner(int* o, int at, int deeper = 1) {
  if (threadIdx.x == 0) {
    leaf<<<1, 4, 0, cudaStreamFireAndForget>>>(o, at);
    if (deeper) inner<<<1, 32>>>(o, at + 8, 0);
  }
}
__global__ void outer(int* o) {
  if (threadIdx.x == 0) inner<<<1, 32>>>(o, blockIdx.x);
  if (threadIdx.x < 4) o[blockIdx.x * 4 + threadIdx.x] = 100;  // before what it launches
  if (threadIdx.x == 1) leaf<int><<<1, 2048>>>(o, 0);  // no such block: nothing starts
}
"""
MAIN = """
  int* o;
  cudaMalloc(&o, 64 * sizeof(int));
  cudaMemset(o, 0, 64 * sizeof(int));
  for (int i = 0; i < 2; ++i) outer<<<8, 64>>>(o);
  int h[64];
  cudaMemcpy(h, o, sizeof h, cudaMemcpyDeviceToHost);
  for (int v : h) printf("%d ", v);
"""


def test_what_a_kernel_launches_runs_after_it(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    ran = cpu_executor.run_program(program(tmp_path, KERNELS, MAIN), (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    found = [int(word) for word in ran.stdout.split()]
    first = [100 + at + 1 for at in range(8) for _ in range(4)]  # set anew by every launch
    assert found == first + [2 * (at + 8 + 1) for at in range(8) for _ in range(4)]
