"""What two runs of the author's kernel leave, beside each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudaops.domain.execution import Ran
from cudaops.domain.workload import FLOATING, Element, Workload
from cudaops.executors.arrays import Array, filled
from cudaops.executors.base import InputSet
from cudaops.executors.compare import distance, same_contents
from cudaops.executors.cpu.order import SAME_L2
from cudaops.executors.fields import views

BACKGROUNDS = (0x3C, 0xC3)
"""Bytes that fill what is only written: as f32 0.011 and -391, as f64 1.6e-18 and -2.8e18."""


def settled(workload: Workload, first: Ran, second: Ran) -> frozenset[int] | None:
    """Buffers that come out in another order alone; None where results are others altogether."""
    free: set[int] = set()
    for a in workload.allocations:
        if a.role == "in" or same_contents(first.outputs[a.index], second.outputs[a.index]):
            continue
        for view in views(a):
            sides = (view.stored(ran.outputs[a.index]) for ran in (first, second))
            one, two = (side.read(0, side.size) for side in sides)
            if a.role == "out":
                left = _is_fill(one, 0, view.element) & _is_fill(two, 1, view.element)
                one, two = one[~left], two[~left]
            if np.array_equal(one, two):
                continue
            if np.array_equal(np.sort(one), np.sort(two)):
                free.add(a.index)
                continue
            gap = distance(two, one) if view.element in FLOATING else None
            if gap is None or gap.relative_l2 > SAME_L2 or gap.non_finite_mismatches:
                return None
    return frozenset(free)


def only_adds(fewer: dict[int, str], more: dict[int, str], inputs: InputSet) -> bool:
    """Whether a launch with more blocks leaves what one with fewer does, and besides that writes
    where the other left what had stood there. Both on these inputs; results by allocation."""
    for index, path in fewer.items():
        one, two = (np.fromfile(p, np.uint8) for p in (path, more[index]))
        fill = inputs.poison.get(index)
        if fill is None:
            before = np.fromfile(Path(inputs.contents[index]), np.uint8)
        else:
            before = np.full(one.size, fill, np.uint8)
        if one.size != two.size or one.size != before.size:
            return False
        other = one != two
        if not np.array_equal(one[other], before[other]):
            return False
    return True


def _is_fill(values: Array, background: int, element: Element) -> Array:
    """Elements that are what filled the buffer."""
    found: Array = values == filled(BACKGROUNDS[background], 1, element).read(0, 1)[0]
    return found
