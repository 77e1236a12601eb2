"""More blocks along a free axis of the grid, each with a part of a loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in
from cudaops.program.analysis.facts import KernelFacts
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.launch_expression import ONE, build
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import FUNCTIONS
from cudaops.transformations.draft import Draft, Extents
from cudaops.transformations.trees import declared_in

FILLED = 300_000
"""Threads with which no large device is idle."""


def free_axis(draft: Draft) -> str:
    """`y` or `z` of a grid that has extent 1 there, and of which the kernel knows nothing."""
    used = {
        x.name
        for f in (draft.form.kernel, *draft.form.functions)
        for x in s.below(f.body)
        if isinstance(x, s.Member) and x.base in (s.Name("blockIdx"), s.Name("gridDim"))
    }
    for nth, axis in ((1, "y"), (2, "z")):
        if draft.launch.grid[nth] == ONE and axis not in used:
            return axis
    raise NotUnderstood("no free grid axis")


def with_extent(grid: Extents, axis: str, extent: int) -> Extents:
    """The grid, this large along an axis."""
    x, y, z = (build(extent) if a == axis else g for a, g in zip("xyz", grid, strict=True))
    return x, y, z


def threads_of(draft: Draft) -> int:
    """How many threads the hottest launch has."""
    grid, block = draft.workloads[0].grid, draft.workloads[0].block
    return math.prod((grid.x, grid.y, grid.z, block.x, block.y, block.z))


def part_counts(draft: Draft, trips: int | None) -> tuple[int, ...]:
    """Into how many parts a loop may be divided, the likeliest first; empty where the device is
    full, or the loop too short."""
    threads = threads_of(draft)
    most = min(FILLED // threads, (trips or 1 << 20) // 4, 1024)
    if most < 2:
        return ()
    first = 1 << (most.bit_length() - 1)
    return tuple(dict.fromkeys(n for n in (min(first, 64), first, first // 4, 8) if 2 <= n <= most))


def path_to(body: Sequence[Any], loop: s.For) -> list[tuple[Sequence[Any], int]]:
    """Bodies that lead to a loop through conditions alone, each with the place in it. Raises
    NotUnderstood for one inside of anything else."""
    for nth, x in enumerate(body):
        if x is loop:
            return [(body, nth)]
        inner: list[Sequence[Any]] = []
        if isinstance(x, s.If):
            inner = [x.yes, x.no]
        elif isinstance(x, s.Block):
            inner = [x.body]
        for branch in inner:
            if any(y is loop for y in s.below(tuple(branch))):
                return [(body, nth), *path_to(branch, loop)]
    raise NotUnderstood("a nested loop")


def cut_after(path: Sequence[tuple[Sequence[Any], int]], end: Sequence[Any]) -> list[Any]:
    """What leads to a loop, and these statements in its place; nothing of what comes after."""
    (body, nth), rest = path[0], path[1:]
    if not rest:
        return [*body[:nth], *end]
    inner = tuple(cut_after(rest, end))
    x = body[nth]
    if isinstance(x, s.Block):
        return [*body[:nth], replace(x, body=inner)]
    in_yes = rest[0][0] is x.yes
    return [*body[:nth], replace(x, yes=inner if in_yes else (), no=() if in_yes else inner)]


def refuse_effects(
    form: s.KernelForm, facts: KernelFacts, body: Sequence[Any], spaces: Sequence[str]
) -> None:
    """Unless statements store nothing outside of these spaces, and call nothing unknown."""
    for x in body:
        where = x.where
        if where is None:
            raise NotUnderstood("the statement was not found")
        for a in facts.accesses:
            if where.holds(a.where) and a.kind != "read" and a.space not in spaces:
                raise NotUnderstood(f"{a.array or 'memory'}, which is stored outside of the loop")
        for y in s.below(x):
            if isinstance(y, s.Opaque | s.Unmodelled):
                raise NotUnderstood(f"a {y.what}")
            known = isinstance(y, s.Call) and (
                y.function in {*FUNCTIONS, *BARRIERS, *COLLECTIVES}
                or y.function.startswith("operator")
                or form.function(y.function) is not None
            )
            if isinstance(y, s.Call) and not known:
                raise NotUnderstood(f"{y.function}, which may have side effects")


def without_unused(body: Sequence[Any]) -> list[Any]:
    """Without variables that nothing mentions, where giving them their value does nothing."""
    kept = list(body)
    while True:
        mentioned = names_in(tuple(kept))
        unused = [
            x
            for x in kept
            if isinstance(x, s.Declare)
            and declared_in(x) & mentioned == set()
            and (x.value is None or is_pure(x.value, FUNCTIONS))
        ]
        if not unused:
            return kept
        kept = [x for x in kept if not any(x is y for y in unused)]
