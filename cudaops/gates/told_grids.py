"""Grids that one argument tells: a plan says `grid=(ceil_div(n, 256))`, and so did the author.

A kernel whose blocks each write something of their own (`count[blockIdx.x]`) does more on every
larger grid, so no draw can tell which grid belongs to another `n`. Where a rewrite's plan says it,
and each recorded launch agrees, the author is taken to launch as many blocks for other values too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import LaunchNumbers
from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import FLOATING, ScalarArgument, Workload
from cudaops.errors import PlanError
from cudaops.program.directives import read_directives
from cudaops.program.expressions import Expression
from cudaops.program.plans import environment
from cudaops.sandbox.draw import DrawnInput
from cudaops.sandbox.drawn import DomainBuilder
from cudaops.sandbox.launch_numbers import as_launched, number_of
from cudaops.sandbox.settled import only_adds
from cudaops.sandbox.shapes import takes_of, with_scalars

_AXES = ("x", "y", "z")


class ToldGrid(NamedTuple):
    """How many blocks a rewrite's plan and the author launch along some axes."""

    rewrite: Rewrite
    kernel: Kernel
    extents: Mapping[str, Expression]
    """By axis."""

    def grid(self, workload: Workload) -> Dim3 | None:
        """The grid that belongs to the launch's arguments; None where none does."""
        found = _extents(self.extents, self.rewrite, self.kernel, workload)
        return workload.grid.model_copy(update=found) if found else None

    def is_another(self, one: DrawnInput) -> bool:
        """Whether the input's grid is not the one that belongs to its arguments."""
        return self.grid(one.trial.workload) not in (None, one.trial.workload.grid)

    def __str__(self) -> str:
        told = (f"gridDim.{axis} is {e.text.strip()}" for axis, e in self.extents.items())
        return ", ".join(told) + " as in every recorded launch"


def told_grid(
    rewrite: Rewrite, kernel: Kernel, workload: Workload, launches: Sequence[LaunchNumbers]
) -> ToldGrid | None:
    """The extents that a launch of the plan takes from one integer argument each, if they are a
    block for so many of what it counts, and the author's kernel has them in this launch and in all
    that were recorded; None where there are none."""
    integers = {
        a.name
        for a in workload.arguments
        if isinstance(a, ScalarArgument) and a.element not in (*FLOATING, "bool")
    }
    others = {a.name for a in workload.arguments} - integers
    others |= {f"{root}.{axis}" for root in ("gridDim", "blockDim") for axis in _AXES}
    seen = [workload, *(as_launched(workload, one) for one in launches)]
    extents: dict[str, Expression] = {}
    for launch in read_directives(rewrite.source).launches:
        for axis, expression in zip(_AXES, launch.grid, strict=False):
            names = expression.names()
            if axis in extents or len(names & integers) != 1 or names & others:
                continue
            one = {axis: expression}
            (name,) = names & integers
            if (
                getattr(workload.grid, axis) > 1
                and all(
                    _extents(one, rewrite, kernel, w) == {axis: getattr(w.grid, axis)} for w in seen
                )
                and _counts(ToldGrid(rewrite, kernel, one), axis, name, workload)
            ):
                extents |= one
    return ToldGrid(rewrite, kernel, extents) if extents else None


def _counts(told: ToldGrid, axis: str, name: str, workload: Workload) -> bool:
    """Whether it is a block for each so many of what the argument counts, for all numbers of them
    up to as many as were passed; so many as a block of the author's may take."""
    most = int(number_of(workload, name))
    numbers = sorted({1, most, *range(2, most, max(1, most // 64))})
    launches = [with_scalars(workload, {name: n}) for n in numbers]
    extents = [_extents(told.extents, told.rewrite, told.kernel, w).get(axis) for w in launches]
    takes = takes_of(getattr(workload.block, axis), workload.block.volume)
    return any(extents == [math.ceil(n / per) for n in numbers] for per in takes)


def on_told_grids(
    told: ToldGrid, builder: DomainBuilder, inputs: Sequence[DrawnInput]
) -> tuple[DrawnInput, ...] | None:
    """Inputs with the grid that belongs to their arguments; those with another one are drawn again
    on it, where the author's kernel bears that. None where a larger grid does more than to write
    where the other one writes nothing: then the author's kernel computes with the number of
    blocks."""
    kept = tuple(one for one in inputs if not told.is_another(one))
    others = {one.draw.seed: one for one in inputs if told.is_another(one)}
    draws = [replace(one.draw, grid=told.grid(one.trial.workload)) for one in others.values()]
    again = builder.valid(draws)
    for one in again:
        fewer, more = sorted(
            (one, others[one.draw.seed]), key=lambda o: o.trial.workload.grid.volume
        )
        if not only_adds(fewer.reference.outputs, more.reference.outputs, fewer.trial.inputs):
            return None
    return (*kept, *again)


def _extents(
    extents: Mapping[str, Expression], rewrite: Rewrite, kernel: Kernel, workload: Workload
) -> dict[str, int]:
    """By axis; nothing where one has no value that a grid can have."""
    env = environment(rewrite, kernel, workload)
    try:
        values = {axis: e.evaluate(env) for axis, e in extents.items()}
    except PlanError:
        return {}
    whole = {axis: v for axis, v in values.items() if isinstance(v, int) and v > 0}
    return whole if len(whole) == len(values) else {}
