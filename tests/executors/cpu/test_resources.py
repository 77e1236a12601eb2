"""Registers, spills, shared memory on the `cpu` executor: nvcc's numbers, or marked estimates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.domain.execution import Compiled, Measurement, Unit
from cudaops.domain.profile import Profile
from cudaops.executors.base import Executor
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.resources import NvccResources, ask_nvcc
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.program.plans import baseline_plan, make_rewrite
from tests.executors.cases import Case, vector_case
from tests.executors.cuda.gpu_builds import unit_of

requires_nvcc = pytest.mark.nvcc

HEAVY = """
__global__ void BOUNDS heavy(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v[96];
  #pragma unroll
  for (int j = 0; j < 96; j++) v[j] = a[(i + j * 17) % n];
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < 4; k++) {
    #pragma unroll
    for (int j = 0; j < 96; j++) v[j] = fmaf(v[j], v[(j * 5 + k) % 96], v[(j + 31) % 96]);
  }
  float sum = 0;
  #pragma unroll
  for (int j = 0; j < 96; j++) sum += v[j];
  if (i < n) b[i] = sum;
}
"""


def told(cache: Path, unit: Unit) -> NvccResources:
    return ask_nvcc(cache, "H200", unit)


@requires_nvcc
def test_launch_bounds_are_respected_and_what_does_not_fit_spills(kernels: Path) -> None:
    free, bounded = (
        told(kernels, unit_of(HEAVY.replace("BOUNDS", bounds), "heavy")).by_entry[BASELINE_ENTRY]
        for bounds in ("", "__launch_bounds__(1024, 2)")
    )
    assert free.registers > 64
    assert (free.spill_load_bytes, free.spill_store_bytes) == (0, 0)
    assert bounded.registers <= 32  # 65,536 registers for 2 * 1,024 threads
    assert bounded.spill_load_bytes > 0
    assert bounded.spill_store_bytes > 0


TEMPLATE = """
namespace tiles { template <typename T, int N> __global__ void turn(const T* a, T* b, int n) {
  __shared__ T tile[N][N + 1];
  tile[threadIdx.y][threadIdx.x] = a[threadIdx.y * N + threadIdx.x];
  __syncthreads();
  b[threadIdx.y * N + threadIdx.x] = tile[threadIdx.x][threadIdx.y] + n;
} }
"""
REWRITE = """
// @launch first grid=(1) block=(32) args=(a, kept, n)
// @launch wide<64> grid=(1) block=(32) args=(kept, b, n)
// @scratch kept bytes=4*n
__global__ void first(const float* a, float* b, int n) { b[threadIdx.x] = a[n]; }
template <int N> __global__ void wide(const float* a, float* b, int n) {
  __shared__ double held[N];
  held[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = held[n - threadIdx.x];
}
"""


@requires_nvcc
def test_each_kernel_of_a_plan_has_its_own_numbers(kernels: Path) -> None:
    unit = unit_of(TEMPLATE, "tiles::turn<float, 16>")
    rewrite = make_rewrite(REWRITE, "user", "t", "w")
    said = told(kernels, unit.model_copy(update={"rewrite": rewrite}))
    assert said.who.startswith("nvcc ")
    by_entry = {entry: takes.static_smem_bytes for entry, takes in said.by_entry.items()}
    assert by_entry == {0: 0, 1: 64 * 8, BASELINE_ENTRY: 16 * 17 * 4}


def measured(executor: Executor, case: Case) -> Profile:
    compiled = executor.compile(Unit(program=case.program, kernel="heavy", callee="heavy"))
    assert isinstance(compiled, Compiled)
    found = executor.measure(compiled, case.workload, baseline_plan(case.workload))
    assert isinstance(found, Measurement), found
    assert found.profile is not None
    return found.profile


@pytest.fixture
def heavy(cpu_executor: CpuExecutor, tmp_path: Path) -> Case:
    kernels = HEAVY.replace("BOUNDS", "__launch_bounds__(256, 6)")
    return vector_case(cpu_executor, tmp_path, kernels, "heavy<<<4, 256>>>(a, b, n)")


@requires_nvcc
def test_the_time_model_takes_what_nvcc_says(cpu_executor: CpuExecutor, heavy: Case) -> None:
    profile = measured(cpu_executor, heavy)
    assert profile.metrics[ncu.REGISTERS].source == "ptxas"
    assert profile.get(ncu.REGISTERS) == 40  # of 65,536 for 6 * 256 threads, in eights
    assert profile.metrics[ncu.SPILL_LOAD_BYTES].value > 0
    assert any("bytes of spills by ptxas (nvcc " in note for note in profile.notes)


def test_without_nvcc_the_estimate_stays_and_says_so(
    cpu_executor: CpuExecutor, heavy: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    left = [folder for folder in folders if not (Path(folder) / "nvcc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(left))
    for home in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(home, raising=False)
    if find_nvcc() is not None:
        pytest.skip("nvcc comes with this environment's own packages")
    said = ask_nvcc(tmp_path / "cache", "H200", unit_of(HEAVY.replace("BOUNDS", ""), "heavy"))
    assert said == NvccResources({}, "nvcc is not installed")
    profile = measured(CpuExecutor("H200", cpu_executor.cache), heavy)
    estimated = "registers/thread, estimated (nvcc is not installed)"
    assert any(note.endswith(estimated) for note in profile.notes)


@requires_nvcc
def test_what_nvcc_refuses_is_estimated(kernels: Path) -> None:
    text = "__global__ void k(float* a) { __shared__ float s[20000]; s[threadIdx.x] = a[0];"
    answer = told(kernels, unit_of(text + " __syncthreads(); a[1] = s[9]; }", "k"))
    assert not answer.by_entry
    assert answer.who.startswith("nvcc refuses the unit: ")
    assert "shared" in answer.who
