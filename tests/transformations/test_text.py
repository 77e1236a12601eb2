"""Changed trees as text: slices where nothing changed, macros and odd spellings included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cudaops.program import syntax as s
from cudaops.transformations.trees import changed
from tests.transformations.bench import Case

HEAD = """
#define LOOP(i, n) int i = threadIdx.x; i < (n); i += 32
#define SQUARE(x) ((x) * (x))
#define SWAP(a, b) t = a; a = b; b = t
#define EACH(i, n) for (int i = 0; i < n; ++i)
struct Pair { int a, b; };
__global__ void k(const int* x, int* y, int n) {
    BODY
}"""
BODIES = {
    "a loop's header in a macro": "for (LOOP(i, n)) y[i] = x[i] + 1;  // theirs",
    "a loop from a macro": "if (threadIdx.x == 0) EACH(i, n) { y[i] = SQUARE(x[i]); }",
    "several statements of a macro": (
        "int t, a = x[0], b = x[1]; SWAP(a, b); if (!threadIdx.x) "
        "y[a] = b;"
    ),
    "a macro's argument twice": (
        "int i = threadIdx.x; if (i < n) y[i] = SQUARE(x[i] - 2) - "
        "SQUARE(3);"
    ),
    "braces as a value": (
        "Pair p = {}; for (int i = 0; i < 2; ++i) p = {i, i}; if "
        "(!threadIdx.x) y[0] = p.a;"
    ),
    "several variables": (
        "int i = threadIdx.x, *q = y + i, r[2] = {1, 2}; if (i < n) "
        "*q = r[i & 1];"
    ),
    "an else if": (
        "int i = threadIdx.x; if (i > n) return; else if (i & 1) "
        "y[i] = 1; else { y[i] = 2; }"
    ),
    "do and while": (
        "int i = threadIdx.x; do i += 32; while (i < 0); while (i < "
        "n) { y[i] = i; i += 32; }"
    ),
    "a switch": (
        "int i = threadIdx.x; switch (i & 3) { case 0: y[i] = 1; "
        "break; default: y[i] = 2; }"
    ),
    "labels of statements": (
        "int i = threadIdx.x, s = 0; switch (i & 7) { case 0: s += 1;  // one\n"
        "        case 1: case 2: s += 2; s += 3; break;\n        // none\n        case 3: break;\n"
        "        case 4: { s += 4; } case 5: if (i > 9) s += 5; else s += 6; break;\n"
        "        case 6:  // later\n        s += 7; default: s += 8; s += 9; } y[i] = s;"
    ),
    "a type of its own": (
        "typedef int whole;  // kept\n    whole i = threadIdx.x; if "
        "(i < n) y[i] = i;"
    ),
    "signs in a row": (
        "int i = threadIdx.x; if (i < n) y[i] = - -x[i] - (-1 - (2 - "
        "3)) * (i + 1) % 5;"
    ),
}  # fmt: skip


def again(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    """New nodes for old ones: nothing of that kind is a slice any more."""
    return lambda node: replace(node) if isinstance(node, kind) else node  # type: ignore[type-var]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("kind", [s.For, s.Statement, (s.Statement, s.Expression)])
def test_it_means_the_same(name: str, kind: type, case: Callable[..., Case]) -> None:
    x = np.arange(40, dtype=np.int32)
    made = case(
        HEAD.replace("BODY", BODIES[name]), {"x": x, "y": x * 0, "n": 32}, grid=(1,), block=(32,)
    )  # fmt: skip
    body = made.draft.form.kernel.body
    draft = made.draft.with_body(changed(body, again(kind)))
    assert draft.form.kernel.body == body, draft.text
    made.same(draft)
    assert "// theirs" in draft.text or "// theirs" not in BODIES[name]
    assert "// kept" in draft.text or "// kept" not in BODIES[name]
