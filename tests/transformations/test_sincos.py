"""Sines and cosines of one angle: which pairs become one call, and which must stay two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.sincos import SinCos
from tests.transformations.bench import Case

COUNT = 90
F = np.random.default_rng(1).uniform(-9.0, 9.0, COUNT).astype(np.float32)
F[:4] = (0.0, -0.0, 3e8, np.inf)
D = F[::-1].astype(np.float64)
BEFORE = """
struct Angles { float turn, rise; };
struct Places { float *from, *to; };
__device__ float odd(float& a) { a += 1.0f; return a; }
__device__ void turned(float t, float x, float y, float* u, float* v)
{
    *u = x * cosf(t) - y * sinf(t);
    *v = x * sinf(t) + y * cosf(t);
}
__global__ void k(const float* f, const double* d, float* y, double* z, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = f[i], b = 0.5f * a, r = 0.0f, q = 0.0f;
    double c = d[i], w = 0.0;
"""
END = "\n    y[i] = r - q;\n    z[i] = w;\n}"
LOOP = "for (int j = 0; j < 3; ++j)"
TAKEN = {
    "one statement": "r = sinf(a) * cosf(a);",
    "two": "r = sinf(a); q = cosf(a);",
    "the cosine first": "r = cosf(a) * b; q = sinf(a) * b;",
    "declared": "float s = sinf(a), t = cosf(a); r = s * t;",
    "doubles": "w = sin(c) * cos(c);",
    "a float of either name": "r = sin(a); q = cosf(a);",
    "half turns": "r = sinpif(a); q = cospif(a); w = sinpi(c) + cospi(c);",
    "a computed angle": "r = sinf(2.0f * a + b); q = cosf(2.0f * a + b);",
    "converted": "r = sinf(c); q = cosf(c);",
    "an integer": "w = sin((double)i) - cos((double)i);",
    "something between": "r = sinf(a); b += r; q = cosf(a) + b;",
    "in a loop": f"{LOOP} {{ float t = a * j; r += cosf(t); q -= sinf(t); }}",
    "two angles": "r = sinf(a) * cosf(b); q = cosf(a) * sinf(b);",
    "in a branch": "if (i % 3) { r = sinf(a); q = cosf(a); }",
    "one more in a branch": "r = sinf(a); q = cosf(a); if (i % 3) r += sinf(a);",
    "changed by the last": "r = sinf(a); a = a * cosf(a); q = a;",
    "after a change": "a += b; r = sinf(a); q = cosf(a); a = r; q += cosf(a);",
    "read in one statement": "r = sinf(f[i]) + cosf(f[i]);",
    "read in two": "r = sinf(f[i ^ 1]); q = cosf(f[i ^ 1]);",
    "stored at once": "y[i] = sinf(f[i]) + cosf(f[i]); r = y[i];",
    "of a structure": "Angles t = {a, b}; r = sinf(t.turn); q = cosf(t.turn);",
    "in a function": "turned(a, b, 2.0f, &r, &q);",
    "a condition": "if (sinf(a) < cosf(a)) r = 1.0f;",
    "behind a condition": "r = sinf(a); q = cosf(a) > 0.0f && sinf(a) > 0.0f ? 1.0f : 0.0f;",
}
LEFT = {
    "a sine": "r = sinf(a) + sinf(b);",
    "two angles, one each": "r = sinf(a) + cosf(b);",
    "the angle changes": "r = sinf(a); a += 1.0f; q = cosf(a);",
    "changed by a call": "r = sinf(a); odd(a); q = cosf(a);",
    "changed through a reference": "float& e = a; r = sinf(a); e = 2.0f; q = cosf(a);",
    "another type": "r = sinf(a); w = cos((double)a);",
    "half turns and turns": "r = sinf(a) + cospif(a);",
    "fast ones": "r = __sinf(a) + __cosf(a);",
    "one of two is computed": "r = i % 2 ? sinf(a) : cosf(a);",
    "one in a branch": "r = sinf(a); if (i % 3) q = cosf(a);",
    "either branch": "if (i % 3) r = sinf(a); else r = cosf(a);",
    "behind a condition": "q = sinf(a) > 0.0f && cosf(a) > 0.0f ? 1.0f : 0.0f;",
    "a loop that may not run": "r = sinf(a); for (int j = 0; j < i; ++j) q += cosf(a);",
    "written between": "y[i] = sinf(y[i ^ 0]); r = cosf(y[i]);",
    "written through a structure": "Places p = {y, y}, o = {y, y}; "
    "o.to[i] = sinf(p.from[i]) + a; q = cosf(p.from[i]); r = y[i];",
    "an effect": "r = sinf(a++); q = cosf(a++);",
}


def made(case: Callable[..., Case], body: str) -> Case:
    given = {"f": F, "d": D, "y": np.zeros_like(F), "z": np.zeros_like(D), "n": 85}
    return case(BEFORE + body + END, given, grid=(3,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_the_result_is_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    draft = one.applied(SinCos())
    assert "sincos" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_two(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert SinCos().settings(one.draft) == ()
    with pytest.raises(NotUnderstood, match="no sin and cos of the same angle"):
        SinCos().apply(one.draft, {})


def test_the_programs_own_functions_are_not_cudas(case: Callable[..., Case]) -> None:
    text = BEFORE.replace(
        "struct", "namespace m { __device__ float cosf(float x) { return x; } }\nstruct", 1
    )
    body = "r = sinf(a); q = m::cosf(a);"
    given = {"f": F, "d": D, "y": np.zeros_like(F), "z": np.zeros_like(D), "n": 85}
    one = case(text + body + END, given, grid=(3,), block=(32,), callee="k")
    assert SinCos().settings(one.draft) == ()


def test_it_reads_as_if_written(case: Callable[..., Case]) -> None:
    text = made(case, TAKEN["one more in a branch"]).applied(SinCos()).text
    assert "float sin_a;\n" in text
    assert "sincosf(a, &sin_a, &cos_a);\n" in text
    assert "r += sin_a;" in text
