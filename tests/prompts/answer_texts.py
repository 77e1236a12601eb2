"""Answers as models give them, made of one honest rewrite, for the tests of `prompts.answers`."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.program import Kernel
from cudaops.program.parse import load_program
from cudaops.prompts.answers import CoderAnswer, Unusable, read_rewrite

EXPLOITS = Path(__file__).parents[1] / "exploits"
PROGRAM = (EXPLOITS / "mm.cu").read_text()
MM: Kernel = load_program(EXPLOITS / "mm.cu").kernel("mm")

DIRECTIVES = """// @launch tiles grid=(N / 16, N / 16) block=(16, 16) args=(A, B, C, N)
// @requires N % 16 == 0
"""
CODE = """__global__ void tiles(const float* A, const float* B, float* C, int N) {
    __shared__ float a[16][16], b[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int t = 0; t < N; t += 16) {
        a[y][x] = A[row * N + t + x];
        b[y][x] = B[(t + y) * N + col];
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();
    }
    C[row * N + col] = sum;
}
"""
TILES = DIRECTIVES + CODE


def read(text: str, *, allow_libraries: bool = False) -> CoderAnswer | Unusable:
    """The answer as one to a coder's question about `mm`."""
    return read_rewrite(text, kernel=MM, allow_libraries=allow_libraries)


def accepted(text: str, *, allow_libraries: bool = False) -> CoderAnswer:
    """As `read`; the answer must be usable."""
    answer = read(text, allow_libraries=allow_libraries)
    assert isinstance(answer, CoderAnswer), answer
    return answer


def refused(text: str, *, allow_libraries: bool = False) -> Unusable:
    """As `read`; the answer must not be usable."""
    answer = read(text, allow_libraries=allow_libraries)
    assert isinstance(answer, Unusable), answer
    assert "\n" not in answer.reask
    assert "\n" not in answer.detail
    assert answer.detail
    return answer
