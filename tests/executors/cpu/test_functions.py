"""Functions and groups of threads: what a kernel calls is part of it, also in modelled time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.domain.execution import ProgramRan
from cudaops.domain.profile import Profile
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from tests.executors.cpu.profile_cases import Case, profiled

MOMENTS = """
    DEVICE float warp_total(float v) {
      for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
      return v;
    }
    DEVICE float block_total(float v) {
      __shared__ float part[32];
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      v = warp_total(v);
      if (lane == 0) part[warp] = v;
      __syncthreads();
      v = warp_total(lane < blockDim.x / 32 ? part[lane] : 0.0f);
      __syncthreads();
      return v;
    }
    __global__ void moments(const float* a, float* b, int n) {
      float x = a[blockIdx.x * n + threadIdx.x], left = x;
      for (int k = 0; k < 2; ++k) left -= block_total(x * left);
      left += block_total(x) + block_total(x * x) * block_total(x * x * x);
      if (threadIdx.x == 0) b[blockIdx.x] = left;
    }
"""


def test_a_function_is_part_of_the_kernel_however_often_it_is_called(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """nvcc makes it so; g++ leaves calls, and what waits in them would not be seen."""

    def of(device: str) -> Profile:
        text = MOMENTS.replace("DEVICE", device)
        return profiled(executor, case(text, (64,), (256,), 64 * 256, {"n": 256}, None, ("a", "b")))

    plain, forced = of("__device__"), of("__device__ __forceinline__")
    assert plain.duration_us == forced.duration_us
    assert (plain.get(ncu.BARRIERS_PER_BLOCK) or 0) > 0


RECURSIVE = """
    __device__ float power(float x, int n) { return n == 0 ? 1.0f : x * power(x, n - 1); }
    __global__ void powers(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      b[i] = power(a[i], i % n);
    }
"""


def test_a_function_that_calls_itself_is_measured(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    made = case(RECURSIVE, (4,), (256,), 1024, {"n": 7}, None, ("a", "b"))
    assert profiled(executor, made).duration_us > 0


GROUPS = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void sums(const float* a, float* b, int n) {
      auto warp = cg::tiled_partition<32>(cg::this_thread_block());
      int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
      float sum = 0.0f;
      for (int i = threadIdx.x % 32; i < n; i += 32) sum += a[row * n + i];
      REDUCED
      if (threadIdx.x % 32 == 0) b[row] = sum;
    }
"""


def test_a_reduction_of_a_tile_costs_its_shuffles(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    def of(reduced: str) -> float:
        text = GROUPS.replace("REDUCED", reduced)
        made = case(text, (64,), (256,), 512 * 96, {"n": 96}, None, ("a", "b"))
        return profiled(executor, made).duration_us

    loop = "for (int apart = 16; apart > 0; apart /= 2) sum += "
    by_hand = of(loop + "__shfl_xor_sync(0xffffffffu, sum, apart);")
    assert of("sum = cg::reduce(warp, sum, cg::plus<float>{});") == pytest.approx(by_hand, rel=0.01)
    assert of(loop + "warp.shfl_xor(sum, apart);") == pytest.approx(by_hand, rel=0.01)


TILES = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

template <int Size>
__global__ void tiles(unsigned* wrong) {
  auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
  const unsigned lane = threadIdx.x % 32, rank = lane % Size, first = lane - rank;
  const unsigned mask = Size == 32 ? ~0u : ((1u << (Size % 32)) - 1) << first;
  auto expect = [&](unsigned got, unsigned wanted) { if (got != wanted) atomicAdd(wrong, 1u); };
  for (unsigned k = 0; k < 40; ++k) {
    expect(tile.shfl(lane, k), first + k % Size);
    expect(tile.shfl_down(lane, k), rank + k < Size ? lane + k : lane);
    expect(tile.shfl_up(lane, k), rank >= k ? lane - k : lane);
    if (k < Size) expect(tile.shfl_xor(lane, k), first + (rank ^ k));
    expect(tile.ballot(rank == k), k < Size ? 1u << k : 0u);
    expect(tile.any(rank == k), k < Size);
  }
  expect(tile.ballot(lane % 3 == 0), (__ballot_sync(mask, lane % 3 == 0) & mask) >> first);
  expect(cg::reduce(tile, rank, cg::plus<unsigned>()), Size * (Size - 1) / 2);
  expect(cg::reduce(tile, lane, cg::less<unsigned>{}), first);
  expect(cg::reduce(tile, lane, cg::greater<unsigned>{}), first + Size - 1);
}

int main() {
  unsigned *wrong, found = 0;
  cudaMalloc(&wrong, sizeof(unsigned));
  cudaMemset(wrong, 0, sizeof(unsigned));
  tiles<32><<<2, 64>>>(wrong);
  tiles<16><<<2, 64>>>(wrong);
  tiles<4><<<2, 64>>>(wrong);
  tiles<1><<<2, 64>>>(wrong);
  cudaMemcpy(&found, wrong, sizeof(unsigned), cudaMemcpyDeviceToHost);
  printf("wrong %u\\n", found);
  return 0;
}
"""


def test_tiles_of_every_size_exchange_as_on_a_gpu(executor: CpuExecutor, tmp_path: Path) -> None:
    path = tmp_path / "tiles.cu"
    path.write_text(TILES, "utf-8")
    outcome = executor.run_program(load_program(path), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert (outcome.stderr, outcome.stdout) == ("", "wrong 0\n")


POWERS = """
    __global__ void powers(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      double v = a[i], sum = 0.0;
      for (int k = 0; k < n; ++k) sum += TERM;
      b[i] = (float)sum;
    }
"""


def test_a_square_by_pow_costs_what_the_function_costs(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """g++ makes a product of it, nvcc does not."""

    def of(term: str) -> float:
        source = POWERS.replace("TERM", term)
        own = profiled(executor, case(source, (64,), (128,), 8192, {"n": 100}, None, ("a", "b")))
        return own.get(ncu.INST_EXECUTED) or 0.0

    product, power = of("(v + k) * (v + k)"), of("pow(v + k, 2.0)")
    assert power > product + 100 * 256 * 100  # instructions a step, warps, steps


@pytest.mark.parametrize(
    "both",
    ["sinf(v + k) * cosf(v + k)", "by_pointer(v + k)", "sin((double)v + k) * cos((double)v + k)"],
)
def test_a_sine_and_a_cosine_of_one_angle_cost_more_than_one(
    both: str, executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """g++ makes one call of both."""
    before = """
    __device__ float by_pointer(float v) { float s, c; sincosf(v, &s, &c); return s * c; }
    """

    def of(term: str) -> Profile:
        source = before + POWERS.replace("TERM", term).replace("double v", "float v")
        source = source if "double" in term else source.replace("double", "float")
        return profiled(executor, case(source, (64,), (128,), 8192, {"n": 100}, None, ("a", "b")))

    one = of("sin((double)v + k)" if "double" in both else "sinf(v + k)")
    two = of(both)
    for metric in (ncu.INST_EXECUTED, ncu.DFMA if "double" in both else ncu.FFMA):
        low, high = one.get(metric), two.get(metric)
        assert low is not None
        assert high is not None
        assert high > low + 2 * 100 * 256 * (1 if metric == ncu.INST_EXECUTED else 32)
