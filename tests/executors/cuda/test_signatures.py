"""Signatures of techniques: which words name which, and their counts in real cubins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cuda.ncu import find_nvdisasm
from cudaops.executors.cuda.signatures import SIGNATURES, signature_of, signatures_in
from tests.executors.cuda.gpu_builds import unit_of

AUTHOR = """
__global__ void plain(const float* a, float* b, int* h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] + h[i & 7];
}
"""
REWRITE = """
#include <cuda_pipeline.h>
#include <mma.h>
// @launch many grid=(1) block=(32) args=(a, b, h, n)
// @launch unused grid=(1) block=(32) args=(a, b)
__global__ void many(const float* a, float* b, int* h, int n) {
  __shared__ __align__(16) float s[128];
  __shared__ int bins[8];
  __pipeline_memcpy_async(&s[threadIdx.x * 4], &a[threadIdx.x * 4], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  float v = s[threadIdx.x ^ 1];
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
  atomicAdd(&bins[threadIdx.x & 7], n);
  __syncthreads();
  h[threadIdx.x & 7] = bins[threadIdx.x & 7] + __reduce_add_sync(0xffffffffu, threadIdx.x * n);
  reinterpret_cast<float4*>(b)[threadIdx.x] = make_float4(v, v, v, 0);
  if (__ballot_sync(0xffffffffu, v > 0) == 7u) b[0] = 1;
}
__global__ void unused(const float* a, float* b) { b[threadIdx.x] = __ldg(a + threadIdx.x); }
"""


@pytest.mark.parametrize(
    ("name", "says", "found"),
    [
        ("float4_loads", "", "128-bit accesses"),
        ("wide", "16 bytes a load", "128-bit accesses"),
        ("vectorized_loads", "", "128-bit accesses"),
        ("cp_async", "16 bytes a copy", "copies from global to shared memory"),
        ("tma", "", "copies from global to shared memory"),
        ("wmma", "tensor cores in tf32", "tensor instructions"),
        ("warp_shuffle", "", "shuffles"),
        ("redux", "", "warp reductions"),
        ("ballot", "", "votes"),
        ("private_bins", "a shared histogram a block", "shared-memory atomics"),
        ("predication", "", "predicated instructions"),
        ("staged_b", "B's tile in shared memory", "shared-memory accesses"),
        ("half2_math", "", "packed half instructions"),
        ("ldg", "", "read-only loads"),
        ("float2_stores", "", "64-bit accesses"),
        ("ldmatrix", "", "matrix loads from shared memory"),
    ],
)
def test_words_name_a_signature(name: str, says: str, found: str) -> None:
    signature = signature_of(name, says)
    assert signature is not None
    assert signature.name == found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tiling", "64x64 outputs a block"),
        ("prefetch", "the next tile"),
        ("unroll_4", ""),
        ("", ""),
    ],
)
def test_words_that_name_no_instruction(name: str, says: str) -> None:
    assert signature_of(name, says) is None


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("sm_arch", ["sm_86", "sm_90"])
def test_counts_in_a_cubin(sm_arch: str, tmp_path: Path) -> None:
    author = signatures_in(tmp_path, sm_arch, unit_of(AUTHOR, "plain", None))
    rewrite = signatures_in(tmp_path, sm_arch, unit_of(AUTHOR, "plain", REWRITE))
    assert not isinstance(author, str), author
    assert not isinstance(rewrite, str), rewrite
    assert set(author) <= {"predicated instructions", "read-only loads"}
    assert rewrite["copies from global to shared memory"] == 1
    assert rewrite["shuffles"] == 5
    assert rewrite["warp reductions"] == 1
    assert rewrite["shared-memory atomics"] >= 1
    assert rewrite["128-bit accesses"] == 1
    assert rewrite["read-only loads"] >= 1
    assert rewrite["votes"] >= 1
    assert rewrite["tensor instructions"] == 0
    assert rewrite.keys() <= {one.name for one in SIGNATURES}


@pytest.mark.nvcc
def test_a_unit_that_nvcc_refuses_is_one_line(tmp_path: Path) -> None:
    broken = REWRITE.replace("float v =", "float v = missing +")
    found = signatures_in(tmp_path, "sm_86", unit_of(AUTHOR, "plain", broken))
    assert isinstance(found, str)
    assert found.startswith("nvcc refuses it: ")
    assert "\n" not in found
