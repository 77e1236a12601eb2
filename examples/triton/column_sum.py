"""Sums of columns by atomics, too many of them: `python column_sum.py [ROWS COLUMNS]`."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def column_sum(x_ptr, out_ptr, rows, columns, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=inside, other=0.0)
    tl.atomic_add(out_ptr + c, tl.sum(x, axis=0), mask=c < columns)


def summed(x):
    rows, columns = x.shape
    out = torch.zeros(columns, device=x.device)
    height = 16
    blocks = triton.cdiv(rows, height)
    column_sum[(blocks, triton.cdiv(columns, 64))](x, out, rows, columns, height, BLOCK_C=64)
    return out


torch.manual_seed(0)
rows, columns = map(int, sys.argv[1:]) if len(sys.argv) > 1 else (8000, 1000)
y = summed(torch.rand(rows, columns, device=DEVICE))
print("sum", float(y.sum()), "largest", float(y.max()))
