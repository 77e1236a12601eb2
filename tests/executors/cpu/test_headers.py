"""Headers that stand in for CUDA's on the `cpu` executor: against CUDA's own, and against sums."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Compiled, Misbehaved, ProgramRan, Unit
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.toolchain import INCLUDE
from tests.executors.cases import program

DIGESTS = Path(__file__).parents[2] / "data" / "headers" / "digests.cu"


def printed(*command: str, source: Path, folder: Path) -> str:
    subprocess.run([*command, str(source), "-o", "digests"], cwd=folder, check=True)
    return subprocess.run([folder / "digests"], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA's own headers come with nvcc")
@pytest.mark.parametrize(
    ("name", "last"), [("digests.cu", "complex "), ("fp4.cu", "packed ")], ids=["digests", "fp4"]
)
def test_small_floats_and_complex_numbers_are_those_of_cuda(
    name: str, last: str, tmp_path: Path
) -> None:
    source = DIGESTS.with_name(name)
    flags = ["-O2", "-std=c++17", "-x", "c++", f"-I{INCLUDE}"]
    ours = printed("g++", *flags, source=source, folder=tmp_path)
    theirs = printed("nvcc", "-O2", "-std=c++17", source=source, folder=tmp_path)
    assert ours == theirs
    assert ours.splitlines()[-1].startswith(last)


def test_random_numbers_are_those_of_curand(tmp_path: Path) -> None:
    """`curand.txt`: by cuRAND 10.4.5's own header, `nvcc -DTHEIRS curand.cu`, 2026-11-28."""
    source = DIGESTS.with_name("curand.cu")
    command = ["g++", "-O1", "-std=c++17", "-Wall", "-Werror", "-x", "c++", f"-I{INCLUDE}"]
    subprocess.run([*command, str(source), "-o", "numbers"], cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "numbers"], capture_output=True, text=True, check=True)
    assert ran.stdout == source.with_suffix(".txt").read_text("utf-8")


THRUST = DIGESTS.with_name("thrust.cu")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="Thrust's own headers come with nvcc")
def test_thrusts_algorithms_give_what_its_own_do(tmp_path: Path) -> None:
    said = subprocess.run(
        ["nvcc", "--dryrun", "-x", "cu", "-c", "/dev/null"],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    folders = re.findall(r'"-I([^"]+)"|"-isystem" "([^"]+)"', said)
    includes = [f"-I{one or other}" for one, other in folders]
    words = ["-O1", "-std=c++17", "-w", "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-x"]
    command = ["g++", *words, "c++", *includes, str(THRUST), "-o", "theirs"]
    subprocess.run(command, cwd=tmp_path, check=True)
    own = [str(tmp_path / "theirs")]
    theirs = subprocess.run(own, capture_output=True, text=True, check=True).stdout
    source = THRUST.read_text("utf-8").replace("int main()", "void all()")
    main = "none<<<1, 1>>>(); all();"
    parsed = program(tmp_path, f"__global__ void none() {{}}\n{source}", main)
    ran = CpuExecutor("A10", tmp_path / "kernels").run_program(parsed, (), 60.0)
    assert isinstance(ran, ProgramRan)
    assert ran.stdout == theirs
    assert len(theirs.splitlines()) > 60


VECTOR = """
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/pair.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
__global__ void squares(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  thrust::pair<int, int> both = thrust::make_pair(i, EXTENT);
  if (both.first < both.second) out[i] = in[i] * in[i];
}
"""
VECTOR_MAIN = """
  thrust::device_vector<int> in(100), out(100);
  thrust::sequence(in.begin(), in.end(), 1);
  squares<<<1, 128>>>(thrust::raw_pointer_cast(in.data()), thrust::raw_pointer_cast(&out[0]), 100);
  printf("%d\\n", thrust::reduce(out.begin(), out.end()));
"""


def test_a_kernel_is_captured_on_vectors_of_thrust(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    parsed = program(tmp_path, VECTOR.replace("EXTENT", "n"), VECTOR_MAIN)
    captured = cpu_executor.capture(parsed, None, (), tmp_path / "workloads", 60.0)
    assert isinstance(captured, Captured)
    assert captured.stdout == f"{sum(i * i for i in range(1, 101))}\n"
    assert [a.size_bytes for a in captured.workloads[0].allocations] == [400, 400]


def test_beside_thrust_a_kernel_is_widened(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    """Headers of C++ that ours include came after `float` had become double."""
    text = VECTOR.replace("EXTENT", "n").replace("int* in", "float* in")
    parsed = program(tmp_path, text, VECTOR_MAIN)
    unit = Unit(program=parsed, kernel="squares", callee="squares", widened=True)
    assert isinstance(cpu_executor.compile(unit), Compiled)


def test_the_checker_knows_where_a_vector_of_thrust_ends(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    parsed = program(tmp_path, VECTOR.replace("EXTENT", "n + 1"), VECTOR_MAIN)
    captured = cpu_executor.capture(parsed, None, (), tmp_path / "workloads", 60.0)
    assert isinstance(captured, Misbehaved)
    assert captured.what == "out_of_bounds"


COLLECTIVES = """
#include <cub/cub.cuh>
template <int X, int Y> __global__ void sums(const int* in, int* out, int valid) {
  using Reduce = cub::BlockReduce<int, X, cub::BLOCK_REDUCE_WARP_REDUCTIONS, Y>;
  using Scan = cub::BlockScan<int, X, cub::BLOCK_SCAN_RAKING, Y>;
  using Warp = cub::WarpReduce<int, 8>;
  __shared__ typename Reduce::TempStorage all, some, most;
  __shared__ typename Scan::TempStorage scan;
  __shared__ typename Warp::TempStorage warp[X * Y / 8];
  int at = threadIdx.x + X * threadIdx.y, before, total;
  int sum = Reduce(all).Sum(in[at]), part = Reduce(some).Sum(in[at], valid);
  int two[2] = {in[at], -in[at]};
  int largest = Reduce(most).Reduce(two, cub::Max());
  Scan(scan).ExclusiveSum(in[at], before, total);
  int eight = Warp(warp[at / 8]).Sum(in[at]);
  if (at == 0) out[0] = sum, out[1] = part, out[2] = largest;
  out[3 + at] = before;
  if (at % 8 == 0) out[3 + X * Y + at / 8] = eight;
  if (at == X * Y - 1) out[3 + X * Y + X * Y / 8] = total;
}
"""
MAIN = """
  const int n = 72;
  int in[n], got[3 + n + n / 8 + 1], *a, *b;
  for (int i = 0; i < n; i++) in[i] = i * 37 % 101 - 50;
  cudaMalloc(&a, sizeof(in)); cudaMalloc(&b, sizeof(got));
  cudaMemcpy(a, in, sizeof(in), cudaMemcpyHostToDevice);
  sums<24, 3><<<1, dim3(24, 3)>>>(a, b, 45);
  cudaMemcpy(got, b, sizeof(got), cudaMemcpyDeviceToHost);
  for (int v : got) printf("%d ", v);
"""


def test_collectives_of_a_block_and_a_warp(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    ran = cpu_executor.run_program(program(tmp_path, COLLECTIVES, MAIN), (), 60.0)
    assert isinstance(ran, ProgramRan)
    values = [i * 37 % 101 - 50 for i in range(72)]
    assert [int(word) for word in ran.stdout.split()] == [
        sum(values),
        sum(values[:45]),
        max(abs(v) for v in values),
        *(sum(values[:at]) for at in range(72)),
        *(sum(values[at : at + 8]) for at in range(0, 72, 8)),
        sum(values),
    ]


PARTS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "__vadd4": ("u1", lambda x, y: x + y),
    "__vsubss4": ("i1", lambda x, y: max(-128, min(127, x - y))),
    "__vaddus2": ("u2", lambda x, y: min(65535, x + y)),
    "__vmaxs4": ("i1", max),
    "__vminu2": ("u2", min),
    "__vavgu4": ("u1", lambda x, y: (x + y + 1) // 2),
    "__vabsdiffs2": ("i2", lambda x, y: abs(x - y)),
    "__vcmpgts4": ("i1", lambda x, y: -1 if x > y else 0),
    "__vsetleu2": ("u2", lambda x, y: int(x <= y)),
}


def test_parts_of_a_word(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    pairs = [(0x7F80FF01, 0x80FF0102), (0x12345678, 0x12FF0078), (0, 0xFFFFFFFF)]
    calls = "".join(f"out[k++] = {name}(a, b);" for name in PARTS)
    kernels = f"__global__ void k(unsigned a, unsigned b, unsigned* out) {{ int k = 0; {calls} }}"
    main = f"unsigned *d, h[{len(PARTS)}]; cudaMalloc(&d, sizeof(h));" + "".join(
        f"k<<<1, 1>>>({a}u, {b}u, d); cudaMemcpy(h, d, sizeof(h), cudaMemcpyDeviceToHost);"
        'for (unsigned v : h) printf("%u ", v);'
        for a, b in pairs
    )
    ran = cpu_executor.run_program(program(tmp_path, kernels, main), (), 60.0)
    assert isinstance(ran, ProgramRan)
    expected = []
    for a, b in pairs:
        for kind, function in PARTS.values():
            x, y = (np.array([v], "<u4").view(f"<{kind}").tolist() for v in (a, b))
            parts = [function(p, q) for p, q in zip(x, y, strict=True)]
            wrapped = np.array(parts, np.int64).astype(f"<{kind}")
            expected.append(int(wrapped.view("<u4")[0]))
    assert [int(word) for word in ran.stdout.split()] == expected


WARPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
__global__ void product(const half* a, const half* b, float* c) {
  wmma::fragment<wmma::matrix_a, M, N, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, M, N, 16, half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, M, N, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < 32; k += 16) {
    wmma::load_matrix_sync(left, a + k, 32);
    wmma::load_matrix_sync(right, b + k, 32);
    wmma::mma_sync(sum, left, right, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2;
  wmma::store_matrix_sync(c, sum, M, wmma::mem_col_major);
}
__global__ void groups(const int* in, int* out) {
  __shared__ int row[64], other[64];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  int t = block.thread_rank();
  __pipeline_memcpy_async(&row[t], &in[t], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  cg::memcpy_async(block, other, in, sizeof other);
  cg::wait(block);
  int x = row[t] + other[63 - t];
  out[t] = cg::reduce(tile, x, cg::less<int>());
  out[64 + t] = cg::inclusive_scan(tile, row[t]);
  out[128 + t] = cg::exclusive_scan(tile, row[t], cg::plus<int>());
  out[192 + t] = tile.match_any(row[t] & 1);
  out[256 + t] = cg::reduce(cg::binary_partition(tile, row[t] & 1), row[t], cg::bit_xor<int>());
}
"""
WARPS_MAIN = """
  const int n = 64;
  half ha[32 * 32], hb[32 * 32], *a, *b;
  float hc[M * N], *c;
  int in[n], got[5 * n], *d, *e;
  for (int i = 0; i < 1024; ++i) ha[i] = __float2half(i * 7 % 19 - 9);
  for (int i = 0; i < 1024; ++i) hb[i] = __float2half(i * 5 % 23 - 11);
  for (int i = 0; i < n; ++i) in[i] = i * 37 % 101 - 50;
  cudaMalloc(&a, 2048); cudaMalloc(&b, 2048); cudaMalloc(&c, sizeof hc);
  cudaMalloc(&d, sizeof in); cudaMalloc(&e, sizeof got);
  cudaMemcpy(a, ha, 2048, cudaMemcpyHostToDevice); cudaMemcpy(b, hb, 2048, cudaMemcpyHostToDevice);
  cudaMemcpy(d, in, sizeof in, cudaMemcpyHostToDevice);
  product<<<1, 32>>>(a, b, c);
  groups<<<1, n>>>(d, e);
  cudaMemcpy(hc, c, sizeof hc, cudaMemcpyDeviceToHost);
  cudaMemcpy(got, e, sizeof got, cudaMemcpyDeviceToHost);
  for (float v : hc) printf("%g ", v);
  for (int v : got) printf("%d ", v);
"""


def test_matrix_products_copies_and_groups_of_a_warp(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    rows, columns = 32, 8
    text = WARPS.replace("M,", f"{rows},").replace("N,", f"{columns},").replace(", M", f", {rows}")
    main = WARPS_MAIN.replace("M * N", str(rows * columns))
    ran = cpu_executor.run_program(program(tmp_path, text, main), (), 60.0)
    assert isinstance(ran, ProgramRan)
    words = [float(word) for word in ran.stdout.split()]
    a = (np.arange(1024) * 7 % 19 - 9).reshape(32, 32)[:rows]
    b = (np.arange(1024) * 5 % 23 - 11).reshape(32, 32)[:columns].T
    np.testing.assert_array_equal(words[: rows * columns], 2 * (a @ b).T.ravel())
    x = np.arange(64) * 37 % 101 - 50
    tiles = x.reshape(4, 16)
    sums = (x + x[::-1]).reshape(4, 16)
    odd = tiles & 1
    bits = 1 << np.arange(16)
    expected = [
        np.repeat(sums.min(axis=1), 16),
        tiles.cumsum(axis=1).ravel(),
        (tiles.cumsum(axis=1) - tiles).ravel(),
        np.where(odd, (odd * bits).sum(1, keepdims=True), ((1 - odd) * bits).sum(1, keepdims=True)),
        np.where(
            odd,
            np.bitwise_xor.reduce(tiles * odd, axis=1, keepdims=True),
            np.bitwise_xor.reduce(tiles * (1 - odd), axis=1, keepdims=True),
        ),
    ]
    np.testing.assert_array_equal(
        words[rows * columns :], np.concatenate([e.ravel() for e in expected])
    )


EARLY = """
#include <cuda_pipeline.h>
__global__ void early(const int* in, int* out) {
  __shared__ int row[64];
  row[threadIdx.x] = -1;
  __pipeline_memcpy_async(&row[threadIdx.x], &in[threadIdx.x], 4);
  __pipeline_commit();
  out[threadIdx.x] = row[threadIdx.x];
}
"""


def test_a_copy_that_nobody_waits_for_is_not_there(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    main = """
      int *a, got[64];
      cudaMalloc(&a, sizeof got); cudaMemset(a, 0, sizeof got);
      early<<<1, 64>>>(a, a);
      cudaMemcpy(got, a, sizeof got, cudaMemcpyDeviceToHost);
      printf("%d %d", got[0], got[63]);
    """
    ran = cpu_executor.run_program(program(tmp_path, EARLY, main), (), 60.0)
    assert isinstance(ran, ProgramRan)
    assert ran.stdout == "-1 -1"
