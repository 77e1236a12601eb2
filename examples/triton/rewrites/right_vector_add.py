"""Larger blocks, by the constant that sets them."""

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _sum(a, b):
    return b + a


@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside, eviction_policy="evict_first")
    b = tl.load(b_ptr + at, mask=inside, eviction_policy="evict_first")
    tl.store(c_ptr + at, _sum(a, b), mask=inside)
