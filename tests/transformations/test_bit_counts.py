"""Loops that count set bits, as `__popc`; and those that count something else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.transformations.strength_reduce import StrengthReduce
from tests.transformations.bench import Case

EXACT = {"what": "exact"}
U = np.random.default_rng(1).integers(0, 1 << 32, 90, dtype=np.uint64).astype(np.uint32)
U[:6] = 0, 1, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF, 2
W = U.astype(np.uint64) << np.arange(90, dtype=np.uint64) % 33
I = np.arange(90, dtype=np.int32) % 5 + 1  # noqa: E741
BEFORE = """
__device__ unsigned bits(unsigned v) { unsigned c; for (c = 0; v; ++c) v &= v - 1; return c; }
__device__ int bits64(unsigned long long v)
{ int c = 0; while (v != 0) { c += v & 1; v >>= 1; } return c; }
__device__ void halve(unsigned& v) { v >>= 1; }
__global__ void k(const unsigned* x, const unsigned long long* w, const int* q, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    unsigned long long u = w[i];
    int c = q[i], d = 0;
"""
END = "y[i] = c + 100 * d;"
TAKEN = {
    "without the lowest": f"while (v) {{ v &= v - 1; ++c; }} {END}",
    "the other way round": f"while (v != 0) {{ c += 1; v = (v - 1) & v; }} {END}",
    "used afterwards": f"for (; v > 0; c++) v = v & (v - 1u); {END} y[i] += v;",
    "begun": f"for (c = 0; v; ++c) v &= v - 1; {END}",
    "begun elsewhere": f"for (d = 7; v; c = c + 1) v &= v - 1; {END}",
    "lowest bits": f"while (v) {{ c += v & 1; v >>= 1; }} {END}",
    "halves": f"for (; v; v /= 2) c += (int)(1u & v); {END}",
    "a condition": f"while (u) {{ if (u & 1) d++; u = u >> 1; }} {END}",
    "bit after bit": f"for (int b = 0; b < 32; ++b) c += (v >> b) & 1; {END} y[i] += v & 3;",
    "some bits": f"for (int b = 0; b < 7; b++) if ((v >> b & 1u) != 0) c++; {END}",
    "some of many": f"for (unsigned b = 0; b < 40; b++) c += u >> b & 1; {END}",
    "a bit set": f"for (int b = 0; b < 32; ++b) if (v & (1u << b)) ++c; {END}",
    "a bit of many set": f"for (int b = 0; b < 64; ++b) if ((1ull << b) & u) ++c; {END}",
    "in a function": f"c += bits(v); d = bits64(u); {END}",
    "narrow": f"unsigned char s = v; while (s) {{ s &= s - 1; c++; }} {END}",
    "in a loop": "for (int j = 0; j < 3; ++j) "
    f"{{ unsigned s = v >> j; while (s) {{ s &= s - 1; ++c; }} }} {END}",
}
LEFT = {
    "with a sign": f"int s = v >> 1; while (s) {{ c += s & 1; s >>= 1; }} {END}",
    "by two": f"while (v) {{ v &= v - 1; c += 2; }} {END}",
    "another bit": f"while (v) {{ c += v & 2; v >>= 1; }} {END}",
    "after the shift": f"while (v) {{ v >>= 1; c += v & 1; }} {END}",
    "two bits at once": f"while (v) {{ c += v & 1; v >>= 2; }} {END}",
    "places of the highest": f"while (v) {{ ++c; v >>= 1; }} {END}",
    "another variable": f"unsigned s = v; while (v) {{ s &= v - 1; v >>= 1; ++c; }} {END}",
    "less than one": f"while (v) {{ v &= v - 2; v >>= 1; ++c; }} {END}",
    "something besides": f"while (v) {{ v &= v - 1; ++c; d += c; }} {END}",
    "an end of its own": f"while (v) {{ v &= v - 1; if (++c > 4) break; }} {END}",
    "a reference": f"unsigned& r = v; while (v) {{ c += v & 1; v >>= 1; }} {END} y[i] += r;",
    "by reference": f"while (v) {{ c += v & 1; halve(v); }} {END}",
    "shared": f"__shared__ unsigned s; s = 5; while (s) {{ s &= s - 1; ++c; }} {END}",
    "itself": f"while (v) {{ v &= v - 1; ++v; v >>= 3; }} {END}",
    "a number of the bit": f"for (int b = 0; b < 32; ++b) c += v & (1u << b); {END}",
    "a signed one": f"for (int b = 0; b < 32; ++b) if (u & (1 << b)) ++c; {END}",
    "the counter's own": f"for (unsigned b = 0; b < 32; ++b) c += b >> b & 1; {END}",
    "from the second": f"for (int b = 1; b < 32; ++b) c += v >> b & 1; {END}",
    "every other": f"for (int b = 0; b < 32; b += 2) c += v >> b & 1; {END}",
    "as many as given": f"for (int b = 0; b < q[i]; ++b) c += v >> b & 1; {END}",
    "a float": f"float s = 0; while (v) {{ v &= v - 1; s += 1; }} {END} y[i] += s;",
}


def made(case: Callable[..., Case], body: str) -> Case:
    given = {"x": U, "w": W, "q": I, "y": I * 0, "n": 85}
    return case(BEFORE + body + "}", given, grid=(3,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_one_instruction(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    assert EXACT in StrengthReduce().settings(one.draft)
    draft = one.applied(StrengthReduce(), EXACT)
    assert "__popc" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_counts_something_else_stays(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert EXACT not in StrengthReduce().settings(one.draft) or "__popc" not in (
        one.applied(StrengthReduce(), EXACT).text
    )
