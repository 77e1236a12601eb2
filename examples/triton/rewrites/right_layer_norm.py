"""Larger steps and more warps, and the mask written once."""

import triton
import triton.language as tl

BLOCK = 1024
num_warps = 8


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + lane
        total += tl.load(x_ptr + row + at, mask=at < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + lane
        gap = tl.load(x_ptr + row + at, mask=at < columns, other=0.0) - mean
        square += tl.where(at < columns, gap * gap, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    for first in range(0, columns, BLOCK):
        at = first + lane
        inside = at < columns
        gap = tl.load(x_ptr + row + at, mask=inside, other=0.0) - mean
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
        bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
        tl.store(out_ptr + row + at, gap * scale * weight + bias, mask=inside)
