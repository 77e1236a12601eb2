"""C = A B of half-precision matrices in tiles that are too small: `python matmul.py [M N K]`."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        a_at = m[:, None] * stride_a + k[None, :]
        b_at = k[:, None] * stride_b + n[None, :]
        a = tl.load(a_ptr + a_at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + b_at, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    at = m[:, None] * stride_c + n[None, :]
    tl.store(c_ptr + at, total, mask=(m[:, None] < M) & (n[None, :] < N))


def product(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    matmul[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))](
        a,
        b,
        c,
        M,
        N,
        K,
        a.stride(0),
        b.stride(0),
        c.stride(0),
        BLOCK_M=16,
        BLOCK_N=16,
        BLOCK_K=16,
    )
    return c


torch.manual_seed(0)
M, N, K = map(int, sys.argv[1:]) if len(sys.argv) > 1 else (1536, 1280, 1024)
a = torch.randn(M, K, device=DEVICE, dtype=torch.float16)
b = torch.randn(K, N, device=DEVICE, dtype=torch.float16)
c = product(a, b)
print("sum", float(c.abs().sum()), "first", float(c[0, 0]))
