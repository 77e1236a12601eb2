"""Layer norm of each row in three loops with small steps: `python layer_norm.py [ROWS COLUMNS]`."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEP = 64


@triton.jit
def _masked(x_ptr, at, columns):
    return tl.load(x_ptr + at, mask=at < columns, other=0.0)


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * columns
    out_ptr += tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        total += _masked(x_ptr, first + tl.arange(0, BLOCK), columns)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        gap = tl.where(at < columns, _masked(x_ptr, at, columns) - mean, 0.0)
        square += gap * gap
    scale = 1.0 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        y = (_masked(x_ptr, at, columns) - mean) * scale
        y = y * _masked(weight_ptr, at, columns) + _masked(bias_ptr, at, columns)
        tl.store(out_ptr + at, y, mask=at < columns)


def normed(x, weight, bias):
    out = torch.empty_like(x)
    layer_norm[(x.shape[0],)](x, weight, bias, out, x.shape[1], 1e-5, BLOCK=STEP)
    return out


torch.manual_seed(0)
rows, columns = map(int, sys.argv[1:]) if len(sys.argv) > 1 else (2048, 4000)
x = 3 + torch.randn(rows, columns, device=DEVICE)
y = normed(x, torch.rand(columns, device=DEVICE), torch.rand(columns, device=DEVICE))
print("sum", float(y.abs().sum()), "first", float(y[0, 0]))
