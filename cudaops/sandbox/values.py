"""What values the captured buffers hold before and after the author's kernel: ranges, zeros, how
many different ones, whether sorted.

A fact about inputs may be worth more than any other (all keys below 64, a sorted list, mostly
zeros), and no profile shows it. It holds for the captured inputs alone: what a rewrite makes of it
must be right for others too, or guarded in the kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from cudaops.domain.run import ValueSummary
from cudaops.domain.workload import FLOATING, Allocation, Workload
from cudaops.executors.arrays import Array, sample, stored

MOST_LOOKED_AT = 1 << 20
"""Elements of a buffer that are read. Chosen: some milliseconds, and a share of one in a thousand
is seen."""
MOST_DISTINCT = 1024
"""Different values that are counted. Chosen: a table of so many fits into shared memory."""


def value_summaries(workload: Workload) -> tuple[ValueSummary, ...]:
    """Of every buffer whose element type is known: what the launch may read there, and what it
    left, where it was executed whole to be judged by it."""
    known = [a for a in workload.allocations if a.element != "opaque" and a.size_bytes]
    read = [_summary(workload, a) for a in known if a.role != "out"]
    left = [a for a in known if a.role != "in" and workload.is_judged]
    return (*read, *(_summary(workload, a, is_result=True) for a in left))


def _summary(
    workload: Workload, allocation: Allocation, *, is_result: bool = False
) -> ValueSummary:
    element = allocation.element
    assert element != "opaque"
    name = allocation.after if is_result else allocation.before
    values = stored(Path(workload.folder) / name, element)
    seen = sample(values, MOST_LOOKED_AT)
    finite = seen[np.isfinite(seen)] if element in FLOATING else seen
    different = len(np.unique(seen[: 1 << 16]))
    if different <= MOST_DISTINCT:
        different = len(np.unique(seen))
    return ValueSummary(
        workload=workload.id,
        allocation=allocation.index,
        is_result=is_result,
        elements=values.size,
        looked_at=len(seen),
        least=float(finite.min()) if len(finite) else None,
        greatest=float(finite.max()) if len(finite) else None,
        zero_share=float(np.mean(seen == 0)) if len(seen) else 0.0,
        non_finite_share=1.0 - len(finite) / max(1, len(seen)),
        distinct=different if different <= MOST_DISTINCT else None,
        order=_order(seen),
    )


def _order(seen: Array) -> Literal["ascending", "descending", "constant"] | None:
    if len(seen) < 2:
        return None
    if (seen == seen[0]).all():
        return "constant"
    if (seen[1:] >= seen[:-1]).all():
        return "ascending"
    return "descending" if (seen[1:] <= seen[:-1]).all() else None
