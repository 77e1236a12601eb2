"""What families of strategies brought, over all kernels, and what that lets one expect."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from cudaops.domain.memory import Pattern
from cudaops.memory.records import KernelMemory, Result, decided, results

PRIOR_SAVING = 0.5
"""Share of the time that a family is expected to save while nothing is known of it: as one that
doubles the speed. Weighs as one try. So high that a small success does not outrank what nobody has
tried yet: the recipes' own order is by what they usually gain."""
UNMEASURED_WEIGHT = 0.5
"""What a result counts for beside a measured one where its time was modelled."""
FOREIGN_WEIGHT = 0.5
"""What a result on another class of device counts for beside one on this class."""


def aggregate(
    memories: Iterable[KernelMemory], subtype: str | None = None, device_class: str | None = None
) -> tuple[Pattern, ...]:
    """One pattern for each verdict subtype, family and class of device; most promising first.

    A rewrite counts once for each kernel and subtype, with the result that decides
    (`records.decided`). Speedups are of measured times alone where any that paid was measured.
    """
    found: dict[tuple[str, str, str], list[Result]] = {}
    for memory in memories:
        here = memory.key.device_class
        if device_class is not None and here != device_class:
            continue
        last = decided(
            results(memory.avoided, memory.entries), lambda r: (r.subtype, r.family, r.source_id)
        )
        for result in last.values():
            if subtype is None or result.subtype == subtype:
                found.setdefault((result.subtype, result.family, here), []).append(result)
    patterns = [_pattern(*key, members) for key, members in found.items()]
    return tuple(sorted(patterns, key=_order))


def share_saved(speedup: float | None) -> float:
    """Share of the baseline's time that a speedup saves, 0 to 1; 0 where it saves none."""
    if speedup is None or not math.isfinite(speedup) or speedup <= 1.0:
        return 0.0
    return 1.0 - 1.0 / speedup


def expected_saving(patterns: Sequence[Pattern], device_class: str | None = None) -> float:
    """Share of the time, 0 to 1, that the next try of these patterns' family may save.

    The mean over tries, one imagined try of PRIOR_SAVING among them; without patterns that alone.
    Tries without a measured success and those on another class than `device_class` weigh less.
    """
    gained, weight = PRIOR_SAVING, 1.0
    for pattern in patterns:
        each = 1.0 if pattern.measured else UNMEASURED_WEIGHT
        if device_class is not None and pattern.device_class != device_class:
            each *= FOREIGN_WEIGHT
        gained += each * pattern.paid * share_saved(pattern.median_speedup)
        weight += each * pattern.tried
    return gained / weight


def _pattern(subtype: str, family: str, device_class: str, found: Sequence[Result]) -> Pattern:
    paid = [r for r in found if r.paid]
    measured = [r for r in paid if r.measured]
    speedups = [
        r.speedup for r in measured or paid if r.speedup is not None and math.isfinite(r.speedup)
    ]
    return Pattern(
        subtype=subtype,
        family=family,
        device_class=device_class,
        tried=len(found),
        paid=len(paid),
        best_speedup=max(speedups, default=None),
        median_speedup=statistics.median(speedups) if speedups else None,
        measured=len(measured),
    )


def _order(pattern: Pattern) -> tuple[float, int, str, str, str]:
    return (
        -expected_saving([pattern]),
        -pattern.tried,
        pattern.subtype,
        pattern.family,
        pattern.device_class,
    )
