"""Which kernels compute what is rounded off."""

from __future__ import annotations

import pytest

from cudaops.domain.program import Program, SourceFile
from cudaops.program.analysis.compensation import computes_rounding_errors, rounds_on_integers
from cudaops.program.parse import parse_files

HELPERS = """
struct Pair { float high, low; };
__device__ Pair two_sum(float a, float b)
{
    Pair r;
    r.high = a + b;
    float other = r.high - a;
    r.low = (a - (r.high - other)) + (b - other);
    return r;
}
"""


def parsed(body: str) -> Program:
    text = (
        f"{HELPERS}__global__ void k(const float *x, const double *d, float *o, int n) {{ {body} }}"
    )
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


def compensates(body: str) -> bool:
    program = parsed(body)
    return computes_rounding_errors(program, program.kernels[-1], "k")


@pytest.mark.parametrize(
    ("body", "rounds"),
    [
        ("o[0] = x[n / 2] / x[1];", True),
        ("float s = x[0]; s /= n; *o = s;", True),
        ("*o = expf(x[0]);", True),
        ("*o = __fdividef(x[0], x[1]);", True),
        ("*o = (float)sqrt(d[0]);", True),
        ("*o = fmaf(x[n / 3], x[n % 5], fmaxf(x[0], floorf(x[1]))); n /= 2;", False),
        ("Pair r = two_sum(x[0], x[1]); *o = r.low * 0.5f;", False),
    ],
)
def test_which_arithmetic_rounds_on_integers_too(body: str, rounds: bool) -> None:
    program = parsed(body)
    assert rounds_on_integers(program, program.kernels[-1], "k") is rounds


@pytest.mark.parametrize(
    "body",
    [
        (
            "float s = 0, e = 0; for (int i = 0; i < n; i++) {"
            " float y = x[i] - e, t = s + y; e = (t - s) - y; s = t; } *o = s;"
        ),
        (
            "float s = 0, c = 0; for (int i = 0; i < n; i++) { float t = s + x[i];"
            " if (fabsf(s) >= fabsf(x[i])) c += (s - t) + x[i]; else c += (x[i] - t) + s; s = t; }"
            " *o = s + c;"
        ),
        (
            "Pair r = {0, 0}; for (int i = 0; i < n; i++) r = two_sum(r.high, x[i] + r.low);"
            " *o = r.high;"
        ),
        (
            "float s = 0; for (int i = 0; i < n; i++) { float p = x[i] * x[i];"
            " s += p + fmaf(x[i], x[i], -p); } *o = s;"
        ),
        (
            "float s = 0, c = 0; int i = 0; while (i < n) { float y = __fsub_rn(x[i], c);"
            " float t = __fadd_rn(s, y); c = __fsub_rn(__fsub_rn(t, s), y); s = t; ++i; } *o = s;"
        ),
        "float a = x[0], big = 4097.f * a, high = big - (big - a), low = a - high; *o = low * low;",
        "double v = d[0]; float high = (float)v; o[0] = high; o[1] = (float)(v - (double)high);",
    ],
    ids=["Kahan", "Neumaier", "a pair of floats", "product", "intrinsics", "Dekker", "split"],
)
def test_rounding_errors_are_computed(body: str) -> None:
    assert compensates(body)


@pytest.mark.parametrize(
    "body",
    [
        "float s = 0; for (int i = 0; i < n; i++) s += x[i] * x[i]; *o = s;",
        "float f = x[0] - (int)x[0], g = x[0] - floorf(x[0]); *o = f - g + (x[2] - x[2]);",
        "float p = x[0], q = p + x[1] * x[2]; *o = (q - p) / x[2];",
        "int a = n + 3, b = a - n; *o = x[b - 3];",
        "float v = x[0]; if (v != v) v = 0.f; *o = v - 0.f;",
        (
            "float old = x[0], now = 0.5f * (old + x[1] / old); while (fabsf(now - old) > 1e-6f) {"
            " old = now; now = 0.5f * (old + x[1] / old); } *o = now;"
        ),
        (
            "float m = 0, q = 0; for (int i = 0; i < n; i++) { float d = x[i] - m;"
            " m += d / (i + 1); q += d * (x[i] - m); } *o = q;"
        ),
    ],
    ids=["plain", "fraction", "velocity", "integers", "NaN", "Newton", "Welford"],
)
def test_these_are_other_differences(body: str) -> None:
    assert not compensates(body)
