"""Loops over bits: those with a bound, unrolled, and those that may turn on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.unroll import Unroll
from tests.transformations.bench import Case

VALUES = np.array([0, 1, 2, 3, 17, 255, 256, 65535, 99999, 2**31 - 1, -1, -7, -(2**31)], np.int32)
POWER = "if (b & 1) r *= a;"
SQUARE = "a *= a;"
INNER = "for (int j = 0; j < 3; ++j) { if (j == 1) continue; r += a; }"


def made(case: Callable[..., Case], body: str, before: str = "") -> Case:
    source = f"""{before}
    __global__ void k(const int* x, unsigned* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        unsigned r = 1, a = 1664525u;
        {body}
        y[i] = r + a;
    }}"""
    x = np.resize(VALUES, 70)
    given = {"x": x, "y": x.astype(np.uint32) * 0, "n": 65}
    return case(source, given, grid=(3,), block=(32,), callee="k")


TAKEN = {
    "unsigned": (f"unsigned b = x[i]; while (b > 0) {{ {POWER} {SQUARE} b >>= 1; }}", 32),
    "signed": (f"int b = x[i]; while (b > 0) {{ {POWER} {SQUARE} b = b >> 1; }}", 31),
    "wide": (f"unsigned long long b = x[i]; while (b) {{ {POWER} {SQUARE} b >>= 2; }}", 32),
    "short": (f"unsigned short b = x[i]; while (b != 0) {{ {POWER} b /= 2; {SQUARE} }}", 16),
    "digits": (f"unsigned b = x[i]; while (b > 1) {{ r += b % 10; {SQUARE} b /= 10; }}", 11),
    "step": (f"unsigned b = x[i]; for (; b; b >>= 3) {{ {SQUARE} if (b & 4) continue; r ^= a; }}",
             11),
    "left": (f"unsigned b = x[i]; while (b) {{ {POWER} {SQUARE} if (r % 5 == 0) break; b >>= 1; }}",
             32),
    "inner": (f"unsigned b = x[i]; while (b) {{ {INNER} {SQUARE} b >>= 1; }}", 32),
}  # fmt: skip
LEFT = {
    "negative": f"int b = x[i] & 7; while (b) {{ {POWER} {SQUARE} b >>= 1; }}",
    "negative, not zero": f"int b = x[i] & 7; while (b != 0) {{ {POWER} {SQUARE} b >>= 1; }}",
    "another end": f"unsigned b = 64; while (b != 1) {{ {POWER} {SQUARE} b >>= 1; }}",
    "below": f"int b = x[i] & 7; while (b > -1) {{ {POWER} {SQUARE} b = (b >> 1) - 1; }}",
    "no shift": f"unsigned b = x[i] & 7; while (b > 0) {{ {POWER} {SQUARE} b -= 1; }}",
    "by none": f"unsigned b = x[i]; while (b > 0) {{ {SQUARE} b >>= 0; if (a & 1) break; }}",
    "by one": f"unsigned b = x[i]; while (b > 0) {{ {SQUARE} b /= 1; if (a & 1) break; }}",
    "up": f"unsigned b = x[i]; while (b > 0) {{ {POWER} {SQUARE} b <<= 1; }}",
    "sometimes": f"unsigned b = x[i]; while (b) {{ {SQUARE} if (r++ & 1) b >>= 1; }}",
    "and more": f"unsigned b = x[i]; while (b) {{ {SQUARE} b >>= 1; if (r++ == 3) b |= 1; }}",
    "before": f"unsigned b = x[i]; while (b) {{ {SQUARE} if (r++ < 9) continue; b >>= 1; }}",
    "by address": f"unsigned b = x[i], *p = &b; while (b) {{ {SQUARE} b >>= 1; *p &= r; }}",
    "a reference": f"unsigned b = x[i]; unsigned& q = b; while (b) {{ {SQUARE} b >>= 1; q &= r; }}",
    "both": f"unsigned b = x[i], c = 3; while (b | c) {{ {SQUARE} b >>= 1; c >>= 1; }}",
    "by a thread's own": f"unsigned b = x[i]; while (b) {{ {SQUARE} b >>= 1 + (i & 1); }}",
    "memory": f"while (y[i] > 0) {{ {SQUARE} y[i] >>= 1; }}",
    "no constants": "unsigned b = x[i]; a = x[i]; while (b) { r += a; a *= a + i; b >>= 1; }",
    "constants at times": f"unsigned b = x[i]; while (b) {{ if (b & 1) {SQUARE} b >>= 1; }}",
}
FUNCTION = """
__device__ unsigned power(HEAD) {
    unsigned r = 1, a = 7u;
    while (b > 0) { if (b & 1) r *= a; a *= a; b >>= 1; STEP }
    return r;
}"""


def bits(one: Case) -> list[object]:
    return [x for x in Unroll().settings(one.draft) if x["factor"] == "bits"]


@pytest.mark.parametrize("name", TAKEN)
def test_bounds(name: str, case: Callable[..., Case]) -> None:
    body, turns = TAKEN[name]
    one = made(case, body)
    assert bits(one)
    draft = one.applied(Unroll(), {"loop": 0, "factor": "bits"})
    assert f"turn < {turns};" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert not bits(one)
    if "constants" not in name:
        with pytest.raises(NotUnderstood):
            one.applied(Unroll(), {"loop": 0, "factor": "bits"})


def test_functions(case: Callable[..., Case]) -> None:
    plain = FUNCTION.replace("HEAD", "unsigned b").replace("STEP", "")
    one = made(case, "r = power(x[i]);", plain)
    draft = one.applied(Unroll(), {"loop": 0, "function": "power", "factor": "bits"})
    assert "turn < 32;" in draft.text
    one.same(draft)
    alias = FUNCTION.replace("HEAD", "unsigned& b, unsigned& c").replace("STEP", "c += r < 9;")
    one = made(case, "unsigned b = x[i] & 3; r = power(b, b);", alias)
    assert not bits(one)


def test_what_the_author_unrolls(case: Callable[..., Case]) -> None:
    body = f"unsigned b = x[i];\n#pragma unroll 4\nwhile (b) {{ {POWER} {SQUARE} b >>= 1; }}"
    assert not bits(made(case, body))
