"""Whether a variable is looked at after a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program import syntax as s
from cudaops.transformations.liveness import live_after, live_before
from tests.transformations.bench import Case

LOOP = "for (int j = 0; j < n; j++) { t = x[j]; s += t; }"
"""The first loop of the text in which `t` is set."""


def loops_in(body: Any) -> tuple[s.For, ...]:
    """In the text's order, outer ones first."""
    return tuple(x for x in s.below(body) if isinstance(x, s.For))


@pytest.mark.parametrize(
    ("body", "is_live"),
    [
        (f"{LOOP} t = 0; s += t;", False),
        (f"{LOOP} s += t;", True),
        (f"{LOOP} if (n > 3) t = 1; s += t;", True),
        (f"{LOOP} if (n > 3) t = 1; else t = 2; s += t;", False),
        (f"{LOOP} for (int k = 0; k < n; k++) {{ t = k; s += t; }}", False),
        (f"{LOOP} for (int k = 0; k < n; k++) {{ s += t; t = k; }}", True),
        (f"{LOOP} for (int k = 0; k < n; k++) {{ if (k > 2) break; t = k; }} s += t;", True),
        (f"{LOOP} for (t = 0; t < 3; t++) s += t; s += t;", False),
        (f"if (n > 2) {{ {LOOP} return; }} s += t;", False),
        (f"{LOOP} while (n-- > 0) {{ if (n == 5) continue; t = n; s += t; }}", False),
        (f"{LOOP} do {{ s += t; t = 1; }} while (n-- > 0);", True),
        (f"{LOOP} do {{ t = 1; s += t; }} while (n-- > t);", False),
        (f"{LOOP} switch (n) {{ case 1: t = 3; break; default: s += t; }}", True),
        (f"{LOOP} t += 2;", True),
    ],
)
def test_after_a_loop(body: str, is_live: bool, case: Callable[..., Case]) -> None:
    x = np.zeros(32, np.float32)
    made = case(
        "__global__ void k(const float* x, float* y, int n) { float t = 0, s = 0;"
        f" {body} y[0] = s; }}",
        {"x": x, "y": x + 0, "n": 32}, grid=(1,), block=(1,),
    )  # fmt: skip
    kernel = made.draft.form.kernel
    assert live_after(kernel.body, loops_in(kernel.body)[0], "t") is is_live


def test_the_next_round_of_a_loop_around_it(case: Callable[..., Case]) -> None:
    x = np.zeros(32, np.float32)
    for inner, is_live in ((f"s += t; {LOOP}", True), (f"t = 1; s += t; {LOOP}", False)):
        made = case(
            "__global__ void k(const float* x, float* y, int n) { float t = 0, s = 0;"
            f" while (s < 9) {{ {inner} }} y[0] = s; }}",
            {"x": x, "y": x + 0, "n": 32}, grid=(1,), block=(1,),
        )  # fmt: skip
        body = made.draft.form.kernel.body
        assert live_after(body, loops_in(body)[1], "t") is is_live


@pytest.mark.parametrize(
    ("body", "is_live"),
    [
        ("t = x[0]; s += t;", False),
        ("if (n > 3) t = 1; else t = 2; s += t;", False),
        ("if (n > 3) return; t = 2; s += t;", False),
        ("if (n > 3) t = 1; s += t;", True),
        ("if (t > 3) t = 1; else t = 2;", True),
        ("while (n-- > 0) t = 1; s += t;", True),
        ("do t = 1; while (n-- > 0); s += t;", False),
        ("t += 1;", True),
        ("s = n > 3 ? t : 1; t = 2;", True),
        ("switch (n) { case 1: t = 3; break; default: t = 2; } s += t;", True),
    ],
)
def test_before_statements(body: str, is_live: bool, case: Callable[..., Case]) -> None:
    x = np.zeros(32, np.float32)
    made = case(
        "__global__ void k(const float* x, float* y, int n) { float t = 0, s = 0;"
        f" {{ {body} }} y[0] = s; }}",
        {"x": x, "y": x + 0, "n": 32}, grid=(1,), block=(1,),
    )  # fmt: skip
    block = made.draft.form.kernel.body[2]
    assert isinstance(block, s.Block)
    assert live_before(block.body, "t") is is_live
