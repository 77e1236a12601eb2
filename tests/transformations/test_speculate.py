"""Loads ahead of their conditions: from where it is safe, and of what nobody writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft, Subject
from cudaops.transformations.speculate import Speculate
from tests.transformations.bench import Case, expression

A = np.arange(60, dtype=np.float32)
WINDOW = """
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0;
    for (int d = -2; d <= 2; d++) {
        int at = i + d;
        if (at >= 0 && at < n) {  // within
            s += a[at] * b[at + 1 - 1];
        }
    }
    c[i] = s;"""
FIRST = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float s = 0;"


def kernel_of(body: str) -> str:
    return f"""
    #define AT(i, by) ((i) * (by) + n * 0)
    #define LOAD(i, by) a[(i) + n * (by)]
    __global__ void k(const float* a, const float* b, float* c, int n) {{ {body} }}"""


def launched(case: Callable[..., Case], body: str) -> Case:
    given = {"a": A, "b": A + 1, "c": A * 0, "n": 60}
    return case(kernel_of(body), given, grid=(3,), block=(32,))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (WINDOW, "const float a_value = a[holds ? at : 0];"),
        (f"{FIRST} if (i > 3) {{ int j = i - 4; s = a[j]; }} if (i < 9) s += b[i + 40]; c[i] = s;",
         "b[holds2 ? i + 40 : 0]"),
        (f"{FIRST} bool odd = i & 1; if (odd) {{ s = a[AT(i, 1)]; s *= a[AT(i, 1)]; }} c[i] = s;",
         "a_value = a[odd ? AT(i, 1) : 0];"),
        ("unsigned i = threadIdx.x; if (i < n) { int x = i % 7; c[i] = a[max(x - 1, 0)]; }",
         "a[holds ? max((int)(i % 7) - 1, 0) : 0]"),
        (f"{FIRST} if (i > 3) s = LOAD(i - 4, 0); c[i] = s;", "a[holds ? i - 4 + n * 0 : 0]"),
        (f"{FIRST} if (2 * i < n) {{ if (a[2 * i] > 9) s = 1; else s = a[n + 1]; }} c[i] = s;",
         "if (a_value > 9)"),
        (f"{FIRST} if (i > 3) {{ if (i < 50) s += a[i + 9]; }} c[i] = s;",
         "bool holds = i < 50"),
    ],
)  # fmt: skip
def test_loads_ahead(body: str, shown: str, case: Callable[..., Case]) -> None:
    made = launched(case, body.replace("a[n + 1]", "a[n - 1]"))
    draft = made.applied(Speculate())
    assert shown in draft.text
    assert expression("a != nullptr") in draft.requires
    made.same(draft)


@pytest.mark.parametrize(
    "body",
    [
        # Written in the launch, or perhaps not there.
        f"{FIRST} if (i > 3) s += c[i - 4]; c[i] = s;",
        f"{FIRST} if (a) s += a[i]; c[i] = s;",
        f"{FIRST} float* p = (float*)a; if (i > 3) p[i] = a[i - 4];",
        # Not reached whenever the condition holds.
        f"{FIRST} if (i > 3) s += i < 50 ? a[i + 9] : 1; c[i] = s;",
        f"{FIRST} if (i > 3) {{ if (i > 50) return; s += a[i + 9]; }} c[i] = s;",
        f"{FIRST} if (i > 3 && i < 50 && a[i + 9] > 2) s = 1; c[i] = s;",
        # The index is known inside only.
        f"{FIRST} if (i > 3) {{ int j = i; j -= 4; s += a[j]; }} c[i] = s;",
        f"{FIRST} if (i > 3) {{ i -= 4; s += a[i]; }} c[i] = s;",
        f"{FIRST} if (i > 3) s += a[(int)c[i - 4]]; c[i] = s;",
        f"{FIRST} switch (n) {{ case 60: if (i > 3) s += a[i - 4]; default: c[i] = s; }}",
        # As dear as the branch.
        f"{FIRST} if (i > 3) for (int j = 0; j < i; j++) s += a[j]; c[i] = s;",
    ],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = launched(case, body)
    assert Speculate().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Speculate().apply(made.draft, {})


def test_a_pointer_past_the_end(case: Callable[..., Case]) -> None:
    made = launched(case, WINDOW)
    arguments = tuple(
        a.model_copy(update={"offset_bytes": A.nbytes}) if a.name in ("a", "b") else a
        for a in made.workload.arguments
    )
    workload = made.workload.model_copy(update={"arguments": arguments})
    draft = Draft.of(Subject(made.program, made.kernel, (workload,)))
    assert Speculate().settings(draft) == ()
