"""Random kernels through random sequences of transformations, executed against the original."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting, Transformation
from cudaops.transformations.draft import Draft
from cudaops.transformations.inline import Inline
from cudaops.transformations.registry import TRANSFORMATIONS
from tests.lanes import mostly_deep
from tests.transformations.bench import Case
from tests.transformations.generator import Generator

SEEDS = 2000
"""Of the deep lane, over its parts."""
QUICK = 24
"""Of `make test`."""
FUNCTIONS = 200
"""Likewise, of kernels that call functions."""
STEPS = 3


def offers(draft: Draft) -> list[tuple[Transformation, Setting]]:
    found: list[tuple[Transformation, Setting]] = []
    for one in TRANSFORMATIONS:
        try:
            found += [(one, setting) for setting in one.settings(draft)]
        except NotUnderstood:
            continue
    return found


def transformed(draft: Draft, draw: random.Random) -> Draft:
    """Up to `STEPS` steps, drawn among those that apply, at any of the launches. Every other time
    functions are inlined first, as in a search."""
    if draw.random() < 0.5:
        with contextlib.suppress(NotUnderstood):
            draft = Inline().apply(draft, {})
    for _ in range(draw.randint(1, STEPS)):
        if len(draft.launches) > 1:
            draft = replace(draft, focus=draw.randrange(len(draft.launches)))
        waiting = offers(draft)
        order = {one.name: draw.random() for one in TRANSFORMATIONS}
        draw.shuffle(waiting)
        waiting.sort(key=lambda offer: order[offer[0].name])  # each as likely as any other
        for one, setting in waiting:
            try:
                draft = one.apply(draft, setting)
                draft.rewrite()
                break
            except NotUnderstood:
                continue
    return draft


@pytest.mark.parametrize("seed", mostly_deep(range(SEEDS), QUICK))
def test_what_comes_out_is_the_same(seed: int, case: Callable[..., Case]) -> None:
    drawn = Generator(seed).kernel()
    made = case(drawn.source, drawn.arguments, grid=drawn.grid, block=drawn.block)
    draft = transformed(
        made.draft, random.Random(f"steps {seed}")
    )  # other numbers than the kernel's
    if draft.steps:
        made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize("seed", mostly_deep(range(FUNCTIONS), QUICK // 3))
def test_functions_in_the_kernel(seed: int, case: Callable[..., Case]) -> None:
    drawn = Generator(seed).functions()
    made = case(drawn.source, drawn.arguments, grid=drawn.grid, block=drawn.block, callee="k")
    draft = Inline().apply(made.draft, {})
    made.same(draft)
    made.same(transformed(draft, random.Random(f"steps {seed}")), tolerance=1e-5)


@pytest.mark.parametrize("seed", mostly_deep(range(FUNCTIONS), QUICK // 3))
def test_types_by_other_names(seed: int, case: Callable[..., Case]) -> None:
    drawn = Generator(seed).qualified()
    made = case(drawn.source, drawn.arguments, grid=drawn.grid, block=drawn.block, callee="k")
    draft = transformed(made.draft, random.Random(f"steps {seed}"))
    if draft.steps:
        made.same(draft, tolerance=1e-5)
