"""Families of strategies in a search: how each stands, and which are out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cudaops.domain.search import Branch

RETIRE_FACTOR = 2.0
"""A family whose best takes this many times the leader's trails. Source: as the tuner's FAR_BEHIND;
one refinement rarely brings more."""
RETIRE_ROUNDS = 2
"""Rounds in a row in which a family must trail. Source: part P6 of issue 5."""


def times_by_family(branches: Sequence[Branch]) -> dict[str, float]:
    """Best time in microseconds of every family that has one."""
    best: dict[str, float] = {}
    for branch in branches:
        if branch.time_us is not None:
            best[branch.family] = min(branch.time_us, best.get(branch.family, float("inf")))
    return best


def through(branches: Sequence[Branch], number: int) -> tuple[Branch, ...]:
    """Branches of the rounds up to and with this one."""
    return tuple(b for b in branches if b.order.round <= number)


def retired(branches: Sequence[Branch]) -> frozenset[str]:
    """Families that trailed the leader for `RETIRE_ROUNDS` rounds in a row; for good."""
    out: set[str] = set()
    behind: Counter[str] = Counter()
    for number in range(last_round(branches) + 1):
        best = times_by_family(through(branches, number))
        leader = min(best.values(), default=0.0)
        for family, time_us in best.items():
            behind[family] = behind[family] + 1 if time_us > RETIRE_FACTOR * leader else 0
            if behind[family] >= RETIRE_ROUNDS:
                out.add(family)
    return frozenset(out)


def alive(branches: Sequence[Branch]) -> frozenset[str]:
    """Families with a time that are not retired."""
    return frozenset(times_by_family(branches)) - retired(branches)


def last_round(branches: Sequence[Branch]) -> int:
    """Number of the last round that was developed; -1 before the first."""
    return max((b.order.round for b in branches), default=-1)


def share(width: int) -> int:
    """Most of one family among `width` branches while another is alive: half, rounded up."""
    return (width + 1) // 2


def has_room(counts: Mapping[str, int], family: str, width: int, living: frozenset[str]) -> bool:
    """Whether one more of this family keeps the families apart."""
    return counts.get(family, 0) < share(width) or not living - {family}
