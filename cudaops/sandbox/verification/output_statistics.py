"""What an output looks like: its range, what in it is constant, what of it the inputs change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cudaops.domain.judgement import OutputStatistics
from cudaops.domain.workload import Workload
from cudaops.sandbox.verification.arrays import Array, element_count
from cudaops.sandbox.verification.scenes import Stage
from cudaops.sandbox.verification.values import stored


class _Line(NamedTuple):
    name: str
    length: int


def output_statistics(held: Sequence[Stage], buffer: str) -> OutputStatistics:
    """Of one output on the captured inputs of the most expensive workload."""
    first = held[0]
    right = first.scene.right
    finite = right[np.isfinite(right)].astype(np.float64)
    some = finite.size > 0
    return OutputStatistics(
        buffer=buffer,
        elements=element_count(first.allocation.size_bytes, first.allocation.element),
        sampled=right.size,
        least=float(finite.min()) if some else None,
        greatest=float(finite.max()) if some else None,
        mean=float(finite.mean()) if some else None,
        std=float(finite.std()) if some else None,
        finite_share=finite.size / right.size if right.size else 0.0,
        constant_along=tuple(_constant_lines(first)),
        changed_share=_changed_share([s for s in held if s.case.oracle is first.case.oracle]),
    )


def _constant_lines(stage: Stage) -> Iterator[str]:
    """Rows and columns, of lengths that are scalar arguments, along which nothing changes."""
    element, path = stage.allocation.element, stage.case.reference.outputs[stage.allocation.index]
    values = stored(path, element)
    head = values.read(0, min(values.size, stage.limit))
    for line in _lengths(stage.case.oracle.workload, head.size):
        rows = head[: head.size - head.size % line.length].reshape(-1, line.length)
        if _constant(rows, rows[:, :1]):
            yield f"rows of {line.name} = {line.length}"
        if _constant(rows, rows[:1, :]):
            yield f"columns under rows of {line.name} = {line.length}"


def _lengths(workload: Workload, size: int) -> list[_Line]:
    found = {
        int(a.value): a.name
        for a in reversed(workload.arguments)
        if a.kind == "scalar" and isinstance(a.value, int) and 1 < a.value <= size // 2
    }
    return [_Line(name, length) for length, name in found.items()]


def _constant(rows: Array, one: Array) -> bool:
    return bool(np.all((rows == one) | ((rows != rows) & (one != one))))


def _changed_share(held: Sequence[Stage]) -> float | None:
    """Share of elements that differ between any two references: none has another's inputs."""
    changed = None
    for a, b in combinations(held, 2):
        x, y = a.scene.right, b.scene.right
        differ = ~((x == y) | ((x != x) & (y != y)))
        changed = differ if changed is None else changed | differ
    return None if changed is None or not changed.size else float(changed.mean())
