"""Stores without a mask: writes beyond the result."""

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside)
    tl.store(c_ptr + at, a + b)
