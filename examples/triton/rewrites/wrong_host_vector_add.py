"""Host code that would make torch's clock slow for everybody."""

import time

import torch
import triton
import triton.language as tl

torch.cuda.synchronize = lambda: time.sleep(1)


@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside)
    tl.store(c_ptr + at, a + b, mask=inside)
