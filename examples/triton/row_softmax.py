"""Softmax of each row, with one warp a row: `python row_softmax.py [ROWS COLUMNS]`."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def row_softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    row_softmax[(rows,)](x, out, columns, BLOCK=block, num_warps=1)
    return out


torch.manual_seed(0)
rows, columns = map(int, sys.argv[1:]) if len(sys.argv) > 1 else (2048, 4000)
y = softmax(torch.randn(rows, columns, device=DEVICE))
print("sum", float(y.sum()), "largest", float(y.max()))
