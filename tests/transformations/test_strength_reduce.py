"""Cheaper arithmetic: what it makes of kernels, and where it must keep away."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.strength_reduce import StrengthReduce
from tests.transformations.bench import Case, expressions

EXACT = {"what": "exact"}
RECIPROCALS = {"what": "reciprocals"}
X = np.linspace(-3.0, 5.0, 90, dtype=np.float32)
GUARDED = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


def kernel_of(body: str, extra: str = "", before: str = "") -> str:
    return f"{before}\n__global__ void k(const float* x, float* y, int n{extra}) {{ {body} }}"


def launched(case: Callable[..., Case], source: str, **more: float) -> Case:
    return case(source, {"x": X, "y": X * 0, "n": 90, **more}, grid=(3,), block=(32,))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (f"{GUARDED} float v = x[i]; y[i] = powf(v, 2.0f) + v;", "v * v + v"),
        (f"{GUARDED} y[i] = powf(x[i] + 1, 3);", "cubedf(x[i] + 1)"),
        (f"{GUARDED} double s = 0; for (int j = 0; j < 3; j++) s += pow(x[i] - j, 2); y[i] = s;",
         "s += squared(x[i] - j)"),
        (f"{GUARDED} y[i] = pow((double)x[i], 5.0) - pow(x[i], 4.f);", "to_the_5((double)x[i])"),
    ],
)  # fmt: skip
def test_powers(body: str, shown: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body))
    draft = made.applied(StrengthReduce(), EXACT)
    assert shown in draft.text
    assert "pow" not in draft.text.replace("power", "")
    made.same(draft, tolerance=1e-6)


def test_powers_in_device_functions(case: Callable[..., Case]) -> None:
    before = """
    __device__ double field(double a, double v) { return 2.0 * pow(v / a / a, 2.0) + 1.0 / a; }
    __device__ double twice(double a, double v) { return field(a, v) + field(a, -v); }
    """
    body = f"{GUARDED} float s = 0; for (int j = 1; j < 4; j++) s += twice(a, x[i] * j); y[i] = s;"
    made = launched(case, kernel_of(body, ", double a", before), a=1.5)
    draft = made.applied(StrengthReduce(), RECIPROCALS)
    assert "squared(v * inv_a * inv_a)" in draft.text
    assert "twice_fast(a, x[i] * j)" in draft.text
    made.same(draft, tolerance=1e-6)


WRAPPED = """
__global__ void around(const float* in, float* out, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % w, y = i / w;
    int right = (x + 1) % w;
    int left = (w + x - 1) % w;
    out[i] = in[y * w + right] - in[y * w + left] + in[((y + 1) % h) * w + x]
        + in[(y - 2 + h) % h * w + x];
}"""


def test_remainders_that_wrap_once(case: Callable[..., Case]) -> None:
    values = np.arange(96, dtype=np.float32)
    made = case(WRAPPED, {"in": values, "out": values * 0, "w": 12, "h": 8}, grid=(3,), block=(32,))
    draft = made.applied(StrengthReduce(), EXACT)
    made.same(draft)
    assert draft.text.count("%") == 1
    rewrite = draft.rewrite()
    arguments = tuple(
        a.model_copy(update={"value": 7}) if a.name == "h" else a for a in made.workload.arguments
    )
    other = made.workload.model_copy(update={"arguments": arguments})
    assert not resolve(rewrite, made.kernel, other).applicable


@pytest.mark.parametrize(
    "body",
    [
        "int i = threadIdx.x; if (i < n) y[i] = x[(i + 1) % n];",
        "int i = threadIdx.x; if (i >= n || n < 3) return; y[i] = x[(i + n - 2) % n];",
        "for (int i = threadIdx.x; i < n; i += 32) y[i] = x[(i + 1) % n];",
        "unsigned i = threadIdx.x; unsigned m = n; if (i < m) y[i] = x[(1 + i) % m];",
        f"{GUARDED} for (int d = -1; d <= 1; ++d) y[i] += d * x[(i + d + n) % n];",
        f"{GUARDED} for (int d = 0; d < 3; ++d) y[i] += d * x[(i + d) % n];",
        f"{GUARDED} for (int d = 4; d > -4 / 2; d -= 2) y[i] += d * x[(n + i - d + 1) % n];",
        f"{GUARDED} for (int d = -3; d < 0; ++d) y[i] += d * x[(n + (i + d)) % n];",
        f"{GUARDED} y[i] = x[(i + n + 3) % n];",
    ],
)
def test_what_is_below_its_bound(body: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body))
    draft = made.applied(StrengthReduce(), EXACT)
    assert "%" not in draft.text
    made.same(draft)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (f"{GUARDED} y[i] = x[i] / by + 1.0f / by;", "x[i] * inv_by + inv_by"),
        (f"{GUARDED} float s = 0; for (int j = 0; j < n; j++) s += x[j] / (2.f * by); y[i] = s;",
         "x[j] * inverse"),
        (f"{GUARDED} float d = expf(x[i]), u = d; if (u > 2) d++; u /= d; y[i] = u + by / d;",
         "const float inv_d = 1.0f / d"),
        (f"{GUARDED} y[i] = x[i] / sqrtf(by) / 3.0f;", "x[i] * rsqrtf(by) * (1.0f / 3.0f)"),
        (f"{GUARDED} for (float d = by; d < 9; d++) {{ y[i] += x[i] / d; y[i] -= 1 / d; }}",
         "y[i] += x[i] * inv_d;"),
    ],
)  # fmt: skip
def test_reciprocals(body: str, shown: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body, ", float by"), by=1.7)
    draft = made.applied(StrengthReduce(), RECIPROCALS)
    assert shown in draft.text
    made.same(draft, tolerance=1e-6)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (f"{GUARDED} y[i] = i / w * 100 + i % w;", "(unsigned)i / (unsigned)w"),
        (f"{GUARDED} y[i] = i / (2 * w) % 3 + (i / 7 - 4) / 2;", "(unsigned)i / (unsigned)7"),
        (f"{GUARDED} y[i] = x[(2 * i + 1) % n];", "(unsigned)(2 * i + 1) % (unsigned)n"),
        ("long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = i % w;",
         "(unsigned long long)i % (unsigned long long)w"),
        ("for (int i = threadIdx.x; i < n; i += 32) y[i] = i % 8;", "(unsigned)i % (unsigned)8"),
    ],
)  # fmt: skip
def test_quotients_of_what_is_never_negative(
    body: str, shown: str, case: Callable[..., Case]
) -> None:
    made = launched(case, kernel_of(body, ", int w"), w=9)
    draft = made.applied(StrengthReduce(), EXACT)
    assert shown in draft.text
    made.same(draft)
    if "w" in shown:
        arguments = tuple(
            a.model_copy(update={"value": -9}) if a.name == "w" else a
            for a in made.workload.arguments
        )
        other = made.workload.model_copy(update={"arguments": arguments})
        assert not resolve(draft.rewrite(), made.kernel, other).applicable


def test_a_denominator_of_the_launch_has_a_reciprocal(case: Callable[..., Case]) -> None:
    made = launched(
        case, kernel_of(f"{GUARDED} y[i] = x[i] / by + 1 / by;", ", float by"), by=1e-39
    )
    draft = made.applied(StrengthReduce(), RECIPROCALS)
    assert not resolve(draft.rewrite(), made.kernel, made.workload).applicable


@pytest.mark.parametrize(("value", "applies"), [(2147483647, True), (-7, True), (1, False)])
def test_a_whole_denominator_of_the_launch_is_not_zero(
    value: int, applies: bool, case: Callable[..., Case]
) -> None:
    """And never too small or too large, whatever it is."""
    source = kernel_of(
        f"{GUARDED} y[i] = x[i] / (float)(by - 1) + i / (float)(by - 1);", ", int by"
    )
    made = launched(case, source, by=value)
    draft = made.applied(StrengthReduce(), RECIPROCALS)
    assert draft.requires == expressions("(by - 1) != 0")
    assert resolve(draft.rewrite(), made.kernel, made.workload).applicable == applies
    if applies:
        made.same(draft, tolerance=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        # Of powers: not small, not whole, not known, not CUDA's.
        f"{GUARDED} y[i] = powf(x[i], 9.0f) + powf(x[i], 2.5f) + powf(x[i], by) + powf(x[i], -2);",
        f"{GUARDED} y[i] = power(x[i], 2.0f);",
        # Of remainders: out of range, negative, twice around, changed in between.
        f"{GUARDED} int j = i - 5; y[i] = x[abs((j + 1) % n)];",
        f"{GUARDED} y[i] = x[(i + n + n - 1) % n];",
        f"{GUARDED} for (int d = -1; d < n; ++d) y[i] += x[(i + d + n) % n];",
        f"{GUARDED} for (int d = -1; d < 2; ++d) y[i] += x[abs((i + d) % n)];",
        f"{GUARDED} for (int d = -1; d < 2; ++d) y[i] += x[((unsigned)i + d + n) % n];",
        f"{GUARDED} for (int d = -1; d < 2; ++d) if (i > 9) y[i] += x[(i + d * d - d + n) % n];",
        "int i = threadIdx.x; if (i < n) { i = 3 * n + i; y[i - 3 * n] = x[(i + 1) % n]; }",
        "int i = threadIdx.x; if (i < n) { n = 7; y[i] = x[(i + 1) % n]; }",
        "unsigned u = threadIdx.x * 2654435761u; int i = u; y[threadIdx.x] = (i + 1) % n;",
        # Of divisions: one only, by memory, by what changes between them or through a pointer.
        f"{GUARDED} y[i] = x[i] / by;",
        f"{GUARDED} y[i] = x[i] / x[0] + 1 / x[0];",
        f"{GUARDED} float d = by, u = x[i] / d; d += 1; y[i] = u / d;",
        f"{GUARDED} float d = by; float* p = &d; float u = x[i] / d; *p = 2; y[i] = u / d;",
        f"{GUARDED} float d = by; float u = x[i] / d; grow(d); y[i] = u / d;",
        f"__shared__ float d; {GUARDED} d = by; __syncthreads(); float u = x[i] / d; y[i] = u / d;",
        # Of quotients: perhaps negative, or wider than what holds it; of no sign, or floating.
        f"{GUARDED} y[i] = (i - 5) / 3 + (i - 40) % n;",
        f"{GUARDED} int j = x[i]; y[i] = j / 3;",
        f"{GUARDED} y[i] = i / (n - 95) + i / (int)by;",
        f"{GUARDED} int d = 3; if (x[i] > 0) d = -3; y[i] = i / d;",
        "int i = (blockIdx.x << 30) + threadIdx.x; y[threadIdx.x] = i % n;",
        "unsigned i = threadIdx.x; y[i] = i / 3 + i % (unsigned)n;",
        "for (int i = threadIdx.x; i > -9; i -= 32) y[threadIdx.x] += i / 4;",
        f"{GUARDED} switch (n) {{ default: by += i; y[i] = x[i] / by; y[i] += 1 / by; }}",
        f"{GUARDED} y[i] = x[i] / 4.0f + by / 4.0f;",
    ],
)  # fmt: skip
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    before = """
    __device__ float power(float x, float by) { return x * by; }
    __device__ void grow(float& x) { x += 1; }
    """
    made = launched(case, kernel_of(body, ", float by", before), by=2.5)
    for setting in (EXACT, RECIPROCALS):
        with pytest.raises(NotUnderstood):
            StrengthReduce().apply(made.draft, setting)


def test_two_instances_of_one_template_keep_their_text(case: Callable[..., Case]) -> None:
    before = "template <typename T> __device__ T area(T v) { return pow(v, T(2)); }"
    body = f"{GUARDED} y[i] = area(x[i]) + area((double)x[i]);"
    made = launched(case, kernel_of(body, before=before))
    assert StrengthReduce().settings(made.draft) == ()
