"""A rewrite that serves only launches like those that were captured.

Of a program that was not captured to its end nobody knows what it launches later. With these
conditions in its plan a rewrite leaves that to the author's kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import FLOATING, Workload
from cudaops.program.launch_expression import LaunchExpression, Variable
from cudaops.program.plans import parse_plan

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_LAUNCH = re.compile(r"^[ \t]*// @launch\b", re.MULTILINE)


def seen_launches(workloads: Sequence[Workload]) -> tuple[LaunchExpression, ...]:
    """Conditions that hold for launches with the grid, block, dynamic shared memory
    and integers of one of these, and for no other ones.

    Numbers of floating point stay free: they decide neither what is reached nor in what order.
    """
    seen = [_numbers(workload) for workload in workloads]
    names = [n for n in seen[0] if all(n in one for one in seen)]
    return pinning({n: [one[n] for one in seen] for n in names})


def pinning(seen: Mapping[str, Sequence[int | float]]) -> tuple[LaunchExpression, ...]:
    """Conditions that hold where all names have the values that they had together once: the n-th of
    every name belong together."""
    fixed = [n for n, values in seen.items() if len(set(values)) == 1]
    conditions = [Variable(n).equals(seen[n][0]) for n in fixed]
    telling = {n: values for n, values in seen.items() if n not in fixed}
    if telling:
        count = len(next(iter(telling.values())))
        kinds = dict.fromkeys(
            reduce(and_, (Variable(n).equals(values[i]) for n, values in telling.items()))
            for i in range(count)
        )
        conditions.append(reduce(or_, kinds))
    return tuple(conditions)


def requiring(rewrite: Rewrite, conditions: Sequence[LaunchExpression]) -> Rewrite:
    """The rewrite with these conditions before its first `@launch`; itself where it has them."""
    missing = [one for one in map(str, conditions) if one not in rewrite.plan.requires]
    first = _LAUNCH.search(rewrite.source)
    if not missing or first is None:
        return rewrite
    lines = "".join(f"// @requires {one}\n" for one in missing)
    source = rewrite.source[: first.start()] + lines + rewrite.source[first.start() :]
    return rewrite.model_copy(update={"source": source, "plan": parse_plan(source)})


def _numbers(workload: Workload) -> dict[str, int]:
    found: dict[str, int] = {}
    for root, extent in (("gridDim", workload.grid), ("blockDim", workload.block)):
        found |= {f"{root}.x": extent.x, f"{root}.y": extent.y, f"{root}.z": extent.z}
    found["smem"] = workload.dynamic_smem_bytes
    for name, (element, value) in workload.numbers().items():
        if element not in FLOATING and _NAME.fullmatch(name) and abs(value) < 2**63:
            found[name] = int(value)
    return found
