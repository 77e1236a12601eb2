"""Powers whose exponent the launch gives: a loop for each of its values, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cudaops.transformations.draft import Draft
from cudaops.transformations.strength_reduce import StrengthReduce
from tests.transformations.bench import Case

EXACT = {"what": "exact"}
X = np.concatenate([np.linspace(-3.0, 5.0, 87), [0.0, -0.0, 1e-30]]).astype(np.float32)
GUARDED = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float s = 0;"
LOOP = "for (int j = 0; j < 3; ++j) s += powf(x[i] - j, p); y[i] = s;"
WAITING = """__shared__ float t[32]; int i = blockIdx.x * 32 + threadIdx.x; float s = 0;
    for (int j = 0; j < 2; ++j) {
        t[threadIdx.x] = powf(i < n ? x[i] : 0, p);
        __syncthreads();
        s += t[31 - threadIdx.x];
        __syncthreads();
    }
    if (i < n) y[i] = s;"""
KERNEL = """
__device__ float power(float x, float by) {{ return x * by; }}
__device__ void grow(float& x) {{ x += 1; }}
__global__ void k(const float* x, float* y, int n, float p, int q, double d) {{ {body} }}"""
Number = float


def launched(case: Callable[..., Case], body: str, values: Sequence[Number], at: Number) -> Case:
    """Seen at launches where each exponent has these values, and run with another."""
    arguments = {"x": X, "y": X * 0, "n": 90, "p": float(at), "q": int(at), "d": float(at)}
    made = case(KERNEL.format(body=body), arguments, grid=(3,), block=(32,), callee="k")
    seen = []
    for value in values:
        others = {"p": float(value), "q": int(value), "d": float(value)}
        given = tuple(
            a.model_copy(update={"value": others[a.name]}) if a.name in others else a
            for a in made.workload.arguments
        )
        seen.append(made.workload.model_copy(update={"arguments": given}))
    made.draft = Draft.of(replace(made.subject, workloads=tuple(seen)))
    return made


@pytest.mark.parametrize("at", [1, 2, 3, 4, 2.5, -1, 0])
def test_a_loop_for_each_value(at: float, case: Callable[..., Case]) -> None:
    loop = LOOP.replace("x[i] - j", "fabsf(x[i] - j) + 0.5f")
    made = launched(case, f"{GUARDED} {loop}", (1, 2, 4, 2.5), at)
    draft = made.applied(StrengthReduce(), EXACT)
    assert "if (p == 1.0f)" in draft.text
    assert "s += squaredf(fabsf(x[i] - j) + 0.5f)" in draft.text
    assert "s += to_the_4f(fabsf(x[i] - j) + 0.5f)" in draft.text
    assert draft.text.count("powf(") == 1
    assert draft.requires == ()
    assert StrengthReduce().settings(draft) == ()
    made.same(draft, tolerance=1e-6)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (f"{GUARDED} y[i] = powf(x[i], p) + 1;", "p == 2.0f ? squaredf(x[i])"),
        (f"{GUARDED} float v = powf(x[i], q); y[i] = v;", "q == 3 ? cubedf(x[i])"),
        (f"{GUARDED} while (i < n) {{ y[i] = pow(fabs(x[i]), d); i += 100; }}", "if (d == 2.0)"),
        (f"{GUARDED} if (q > 2) {{ {LOOP} }} else y[i] = 3;", "if (p == 2.0f)"),
        (f"{GUARDED} if (powf(x[i], p) > 1) y[i] = 3;", "if ((p == 2.0f ?"),
        (f"{GUARDED} switch (q) {{ case 2: {LOOP} break; default: y[i] = 1; }}", "if (p == 2.0f)"),
        (f"{GUARDED} {LOOP} y[i] += powf(2.0f, d + p);", "if (p == 2.0f)"),
        (f"{GUARDED} int j = i; do {{ s += powf(x[j], p); }} while (++j < 4 && s < 9); y[i] = s;",
         "if (p == 2.0f)"),
        (WAITING, "if (p == 2.0f)"),
        (f"{GUARDED} y[i] = powf(x[i], q); {LOOP}", "s += squaredf(x[i] - j)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [2, 3, 6])
def test_where_powers_stand(body: str, shown: str, at: int, case: Callable[..., Case]) -> None:
    made = launched(case, body, (2, 3), at)
    draft = made.applied(StrengthReduce(), EXACT)
    assert shown in draft.text
    made.same(draft, tolerance=1e-6)


def test_a_choice_of_the_authors_stays(case: Callable[..., Case]) -> None:
    body = f"{GUARDED} y[i] = p == 2.0f ? x[i] * x[i] : powf(x[i], p); if (p == 3) y[i] += 1; "
    made = launched(case, f"{body} else {LOOP}", (2, 3), 3)
    assert StrengthReduce().settings(made.draft) == ()


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (f"{GUARDED} {LOOP}", (9, 0, -2, 2.5)),
        (f"{GUARDED} {LOOP}", (1, 2, 3, 4, 5)),
        (f"{GUARDED} y[i] = pow(x[i], d);", (6, 7)),
        (f"{GUARDED} p += 1; {LOOP}", (2,)),
        (f"{GUARDED} for (int j = 0; j < 3; ++j) s += powf(x[i], p++); y[i] = s;", (2,)),
        (f"{GUARDED} grow(p); {LOOP}", (2,)),
        (f"{GUARDED} float* a = &p; *a = i; {LOOP}", (2,)),
        (f"{GUARDED} float& a = p; a = i; {LOOP}", (2,)),
        (f"{GUARDED} {{ float p = i; {LOOP} }}", (2,)),
        (f"{GUARDED} for (int p = 0; p < 3; ++p) s += powf(x[i], p); y[i] = s;", (2,)),
        (f"{GUARDED} for (int j = 0; j < 3; ++j) s += powf(x[i], p + j); y[i] = s;", (2,)),
        (f"{GUARDED} y[i] = powf(x[i], x[0]);", (2,)),
        (f"{GUARDED} y[i] = power(x[i], p);", (2,)),
        (f"{GUARDED} y[i] = powf(p, x[i]);", (2,)),
        (f"{GUARDED} y[i] = powf(x[i], (int)p);", (2,)),
        (f"{GUARDED} y[i] = powf(x[i], (float)(char)q);", (2,)),
    ],
)  # fmt: skip
def test_what_has_no_values(body: str, values: Sequence[Number], case: Callable[..., Case]) -> None:
    made = launched(case, body, values, 2)
    assert StrengthReduce().settings(made.draft) == ()
