"""Tables of functions of one integer: of which, and what lies outside of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.lookup import Lookup
from tests.transformations.bench import Case

COUNTS = np.array([0, 1, 2, 7, 255, 256, 300, 5000] * 12, dtype=np.int32)


def kernel_of(body: str, functions: str = "") -> str:
    return f"""
    {functions}
    __global__ void k(const int* c, const float* w, float* y, int n, int m, float by) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        {body}
    }}"""


def launched(case: Callable[..., Case], source: str, **more: object) -> Case:
    weights = np.linspace(0.5, 2.0, 96, dtype=np.float32)
    given = {"c": COUNTS, "w": weights, "y": weights * 0, "n": 90, "m": 17, "by": 1.5, **more}
    return case(source, given, grid=(3,), block=(32,))


SCORE = """
__device__ float score(unsigned int n) {
    if (n == 0) return 0.0f;
    float x = ((float)n + 0.5f) * logf((float)n) - ((float)n - 1.0f);
    return x;
}"""
ROOT = "__device__ float root(int n, float by) { float s = by; return sqrtf(n) * s; }"
TURNS = "for (int j = 0; j < m; ++j)"
BOTH = "__device__ double both(long long n) { return n > 3 ? exp(-0.001 * n) : 1.0; }"


@pytest.mark.parametrize(
    ("body", "functions", "shown"),
    [
        ("y[i] = logf((float)c[i] + 1.0f) * w[i];", "", "k_looked_up(c[i], values) * w[i]"),
        ("y[i] = score(c[i] + 1u) - score(c[i]);", SCORE, "k_looked_up(c[i] + 1u, values)"),
        ("y[i] = root(c[i], 2.0f) + by;", ROOT, "k_looked_up(c[i], values) + by"),
        ("long long at = c[i] * 3LL; y[i] = both(at);", BOTH, "y[i] = k_looked_up(at, values);"),
        (
            f"float s = 0; {TURNS} s += w[j] * expf(-1e-3f * (c[i] - j)); y[i] = s;",
            "",
            "k_looked_up(c[i] - j, values)",
        ),
    ],
    ids=["logarithm", "function with an end", "constant argument", "double", "negative ones"],
)
@pytest.mark.parametrize("entries", [256, 1024])
def test_tables(
    case: Callable[..., Case], body: str, functions: str, shown: str, entries: int
) -> None:
    made = launched(case, kernel_of(body, functions))
    draft = made.applied(Lookup(), {"entries": entries})
    assert shown in draft.text
    assert [launch.kernel for launch in draft.launches] == ["k_values", "k_fast"]
    made.same(draft, tolerance=1e-6)


HELD = "int k = c[i]; float p = (float)k / (float)m; "


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("y[i] = atan2f(c[i], i);", "k_looked_up(c[i], i, values)"),
        ("char at = (char)c[i]; y[i] = logf(at + 300.f);", "k_looked_up(at, values)"),
        (HELD + "y[i] = p * log2f(p + 1.f);", "y[i] = k_looked_up(k, m, values);"),
        (HELD + "float t = by; t -= p * sqrtf(p); y[i] = t;", "t -= k_looked_up(k, m, values);"),
        (
            f"float s = 0; {TURNS} {{ float p = sqrtf(j / (c[i] + 1.f)); s += p * p; }} y[i] = s;",
            "s += k_looked_up(j, c[i], values);",
        ),
    ],
    ids=["two integers", "narrow", "held by a variable", "held for later", "turned in a loop"],
)
@pytest.mark.parametrize("entries", [256, 8192])
def test_tables_of_two(case: Callable[..., Case], body: str, shown: str, entries: int) -> None:
    made = launched(case, kernel_of(body))
    draft = made.applied(Lookup(), {"entries": entries})
    assert shown in draft.text
    assert "float p" not in draft.text
    made.same(draft, tolerance=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        HELD + "k += 1; y[i] = p * log2f(p + 1.f) + k;",
        HELD + "y[i] = 0; y[i] = p * log2f(p + 1.f);",
        HELD + "if (k > 3) { k = 1; } y[i] = p * log2f(p + 1.f) + k;",
        HELD + "p += by; y[i] = p * log2f(p + 1.f);",
        HELD + "float* q = &p; y[i] = *q * log2f(p + 1.f);",
        HELD + "float& q = y[i]; q = by; y[i] = p * log2f(p + 1.f) + q;",
    ],
    ids=["changed", "memory is written", "in a branch", "added to", "pointed at", "reference"],
)
def test_variables_that_stay(case: Callable[..., Case], body: str) -> None:
    """What they are made of, or they themselves, may change before they are used."""
    made = launched(case, kernel_of(body))
    if settings := Lookup().settings(made.draft):
        draft = made.applied(Lookup(), settings[0])
        assert "float p = k_looked_up(k, m, values)" in draft.text
        made.same(draft, tolerance=1e-6)


def test_two_functions_have_a_table_each(case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of("y[i] = logf(c[i] + 1) * cosf(c[i] * 0.5f) + logf(i + 1);"))
    draft = made.applied(Lookup(), {"entries": 256})
    assert len(draft.launches) == 3
    assert draft.text.count("logf(") == 2, "in the table and outside of it, at two places one"
    made.same(draft, tolerance=1e-6)


OF_MEMORY = "__device__ float t[4]; __device__ float f(int n) { return t[n & 3]; }"
WRITES = "__device__ int t; __device__ float f(int n) { t = n; return logf(n); }"
READS = "__device__ float f(int n, const int* c) { return logf(c[n & 3]); }"


@pytest.mark.parametrize(
    ("body", "functions"),
    [
        ("y[i] = logf(w[i]);", ""),
        ("y[i] = powf(by, c[i]);", ""),
        ("y[i] = norm3df(c[i], i, m);", ""),
        ("y[i] = c[i] + 2.0f;", ""),
        ("y[i] = f(c[i]);", "__device__ float f(int n) { return logf(100 / n); }"),
        ("y[i] = f(c[i]);", OF_MEMORY),
        ("y[i] = f(c[i]);", WRITES),
        ("y[i] = f(c[i]);", "__device__ float f(int n) { return logf(n + threadIdx.x); }"),
        (
            "y[i] = f(c[i]);",
            "__device__ float f(int n) { float s = 0; while (n != 77) s += n += 7; return s; }",
        ),
        ("int at = c[i]; y[i] = f(at) + at;", "__device__ float f(int& n) { return logf(++n); }"),
        ("int at = c[i]; y[i] = logf(at++) + at;", ""),
        ("char at = (char)c[i]; y[i] = f(at);", "__device__ float f(char n) { return logf(n); }"),
        ("bool at = c[i] > 3; y[i] = logf(at);", ""),
        ("y[i] = f(c[i], c);", READS),
    ],
    ids=[
        "of a float", "of a float too", "of three integers", "cheap", "integer division",
        "memory of the device", "writes memory", "thread's own", "a loop", "by reference",
        "changes it", "narrow to a function", "a truth value", "reads memory",
    ],
)  # fmt: skip
def test_left_alone(case: Callable[..., Case], body: str, functions: str) -> None:
    made = launched(case, kernel_of(body, functions))
    assert not Lookup().settings(made.draft)
    with pytest.raises(NotUnderstood):
        made.applied(Lookup(), {"entries": 256})
