"""A made-up dialogue about naive_matmul for searches: every answer depends on its question alone.

So the server may be asked in any order, and the same search asks and hears the same twice.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.domain.hypothesis import Family
from tests.nim import Asked, Reply, Usage

ANSWERS = Path(__file__).parents[2] / "examples" / "scripts" / "naive_matmul"
Role = Literal["planner", "coder", "fixer", "reflector"]


class Idea(NamedTuple):
    """A hypothesis and the rewrite that the coder answers it with."""

    family: Family
    title: str
    answer: str


def _answer(title: str, why: str, kernel: str) -> str:
    return f"TITLE: {title}\nWHY: {why}\n```cuda\n{kernel}```\n"


def _recorded(name: str) -> str:
    return (ANSWERS / f"{name}.md").read_text("utf-8")


HALF = """// @launch half_matmul grid=(ceil_div(N, 16), ceil_div(N, 16)) block=(16, 16) args=(A, B, C, N)
__global__ void half_matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row >= N || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < N; k += 16) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = 16.0f * sum;
}
"""

PAIR = """// @requires N % 32 == 0
// @launch pair_matmul grid=(N / 32, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void pair_matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 32 + threadIdx.x;
    float left = 0.0f, right = 0.0f;
    for (int k = 0; k < N; ++k) {
        const float a = A[row * N + k];
        left += a * B[k * N + col];
        right += a * B[k * N + col + 16];
    }
    C[row * N + col] = left;
    C[row * N + col + 16] = right;
}
"""

QUAD = """// @requires N % 64 == 0
// @launch quad_matmul grid=(N / 64, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void quad_matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 64 + threadIdx.x;
    float sum[4] = {};
    for (int k = 0; k < N; ++k) {
        const float a = A[row * N + k];
        for (int c = 0; c < 4; ++c) sum[c] += a * B[k * N + col + 16 * c];
    }
    for (int c = 0; c < 4; ++c) C[row * N + col + 16 * c] = sum[c];
}
"""
