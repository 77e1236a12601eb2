"""c = a + b, with a block that is too small: `python vector_add.py [ELEMENTS]`."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside)
    tl.store(c_ptr + at, a + b, mask=inside)


def add(a, b):
    c = torch.empty_like(a)
    block = 64
    grid = (triton.cdiv(a.numel(), block),)
    vector_add[grid](a, b, c, a.numel(), BLOCK=block)
    return c


torch.manual_seed(0)
size = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_003
print(
    "sum",
    float(add(torch.randn(size, device=DEVICE), torch.randn(size, device=DEVICE)).abs().sum()),
)
