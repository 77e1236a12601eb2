"""Sums that are rounded to half precision in every step."""

import triton
import triton.language as tl

BLOCK_M = 64
BLOCK_N = 64
BLOCK_K = 32


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        a_at = m[:, None] * stride_a + k[None, :]
        b_at = k[:, None] * stride_b + n[None, :]
        a = tl.load(a_ptr + a_at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + b_at, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(a, b).to(tl.float16)
    at = m[:, None] * stride_c + n[None, :]
    tl.store(c_ptr + at, total, mask=(m[:, None] < M) & (n[None, :] < N))
