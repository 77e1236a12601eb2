"""The outputs of every reference, sampled, and wrong results held against them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.judgement import Policy
from cudaops.domain.workload import FLOATING, Allocation
from cudaops.sandbox.verification.accuracy import (
    BufferAccuracy,
    Sides,
    hold,
    hold_exact,
    parameter_name,
)
from cudaops.sandbox.verification.arrays import Array
from cudaops.sandbox.verification.controls import Scene, as_stored
from cudaops.sandbox.verification.inputs import EXACT_CASES, before_path
from cudaops.sandbox.verification.reference import Oracle, Reference
from cudaops.sandbox.verification.values import (
    Values,
    filled,
    in_memory,
    sample,
    stored,
    stored_widened,
)

SAMPLED_ELEMENTS = 1 << 21
"""Elements of one output that are held in memory at once, all references together."""

SAMPLE_RANGE = (1 << 14, 1 << 18)
"""Least and most elements taken of one output on one reference."""


class Case(NamedTuple):
    """One reference of one workload."""

    oracle: Oracle
    reference: Reference

    @property
    def exact(self) -> bool:
        """Whether a candidate is held against it bit for bit where that makes sense."""
        return self.reference is self.oracle.exact or self.reference.kind in EXACT_CASES

    @property
    def label(self) -> str:
        """`w0 signed`."""
        return f"{self.oracle.workload.id} {self.reference.kind}"


def cases_of(oracles: Sequence[Oracle]) -> tuple[Case, ...]:
    """Every reference of every workload."""
    return tuple(Case(oracle, one) for oracle in oracles for one in oracle.references)


class Stage(NamedTuple):
    """One output buffer on one reference, ready for wrong results."""

    case: Case
    allocation: Allocation
    scene: Scene
    wide: Array | None
    limit: int

    def accuracy(self, result: Array, policy: Policy) -> BufferAccuracy:
        """What the gate would say of this (sampled) result."""
        made = in_memory(as_stored(result, self.allocation.element))
        wide = None if self.wide is None else in_memory(self.wide)
        problem = self.case.reference.wide_problem
        sides = Sides(made, in_memory(self.scene.right), wide, problem)
        name = parameter_name(self.case.oracle.workload, self.allocation)
        held = hold_exact if self.case.exact else hold
        return held(sides, self.allocation.element, name, policy)


def stages(cases: Sequence[Case], buffer: str) -> tuple[Stage, ...]:
    """The named output on every reference of every workload that has it."""
    found = [
        (case, allocation)
        for case in cases
        for allocation in case.oracle.workload.allocations
        if allocation.role != "in" and parameter_name(case.oracle.workload, allocation) == buffer
    ]
    least, most = SAMPLE_RANGE
    limit = min(most, max(least, SAMPLED_ELEMENTS // max(1, len(found))))
    return tuple(_stage(case, allocation, limit) for case, allocation in found)


def _stage(case: Case, allocation: Allocation, limit: int) -> Stage:
    workload, reference = case.oracle.workload, case.reference
    folder, index, element = Path(workload.folder), allocation.index, allocation.element
    right = stored(reference.outputs[index], element)
    scene = Scene(
        element=element,
        right=sample(right, limit),
        before=sample(_before(case, allocation, right.size), limit),
        stale=sample(stored(before_path(workload, allocation), element), limit),
        replayed=sample(stored(folder / allocation.after, element), limit),
        inputs=_inputs(case, allocation, limit),
    )
    wide = None
    if reference.wide_outputs is not None and element in FLOATING:
        wide = sample(stored_widened(reference.wide_outputs[index], element), limit)
    return Stage(case, allocation, scene, wide, limit)


def _before(case: Case, allocation: Allocation, size: int) -> Values:
    poison = case.reference.inputs.poison.get(allocation.index)
    if poison is not None:
        return filled(poison, size, allocation.element)
    return stored(case.reference.inputs.contents[allocation.index], allocation.element)


def _inputs(case: Case, output: Allocation, limit: int) -> dict[str, Array]:
    workload, contents = case.oracle.workload, case.reference.inputs.contents
    return {
        parameter_name(workload, other): sample(stored(contents[other.index], other.element), limit)
        for other in workload.allocations
        if other.index != output.index
        and other.role != "out"
        and (other.element, other.size_bytes) == (output.element, output.size_bytes)
    }


def same(a: Array, b: Array) -> bool:
    """Whether two samples are equal everywhere, NaN to NaN."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
