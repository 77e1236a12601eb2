"""Which branches of a search are best and have earned children, and how their families stand."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from cudaops.domain.judgement import TIE
from cudaops.domain.search import Branch, SearchOptions

RETIRE_FACTOR = 2.0
"""A family whose best takes this many times the leader's trails. Source: as the tuner's FAR_BEHIND;
one refinement rarely brings more."""
RETIRE_ROUNDS = 2
"""Rounds in a row in which a family must trail. Chosen: one bad round may be chance."""


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


def ranking(branches: Sequence[Branch], seed: int = 0) -> tuple[Branch, ...]:
    """Those with a time, fastest first; `seed` decides between equals."""
    timed = [(b.time_us, tie(seed, b.id), b) for b in branches if b.time_us is not None]
    return tuple(b for _, _, b in sorted(timed, key=lambda one: one[:2]))


def champion(branches: Sequence[Branch], seed: int = 0) -> Branch | None:
    """The fastest; None where no branch has a time."""
    return next(iter(ranking(branches, seed)), None)


def tie(seed: int, number: int) -> str:
    """Sorts equals: the same seed gives the same order, another seed another."""
    return hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).hexdigest()


def kept(options: SearchOptions, branches: Sequence[Branch]) -> tuple[Branch, ...]:
    """The beam, best first: of every family still in the search the best branch, then the best of
    the rest, `width` in all and not more than half of one family."""
    living = alive(branches)
    ranked = [b for b in ranking(branches, options.seed) if b.family in living]
    firsts = {b.family: b.id for b in reversed(ranked)}
    counts: Counter[str] = Counter()
    beam: set[int] = set()
    for branch in sorted(ranked, key=lambda b: b.id != firsts[b.family]):
        if len(beam) < options.width and has_room(counts, branch.family, options.width, living):
            counts[branch.family] += 1
            beam.add(branch.id)
    return tuple(b for b in ranked if b.id in beam)


def reference_us(
    branch: Branch, branches: Sequence[Branch], incumbent_us: float | None
) -> float | None:
    """What a branch has to beat: its best parent; the incumbent's time, or the author's kernel's,
    where it has none."""
    parents = {b.id: b.time_us for b in branches if b.id in branch.order.parents}
    times = [time for time in parents.values() if time is not None]
    return min(times) if times else incumbent_us


def is_winner(branch: Branch, branches: Sequence[Branch], incumbent_us: float | None) -> bool:
    """Whether it is faster, by more than `TIE`, than what it came from."""
    if branch.time_us is None:
        return False
    reference = reference_us(branch, branches, incumbent_us)
    return reference is None or branch.time_us < reference * (1 - TIE)


def children_of(branch: Branch, branches: Sequence[Branch]) -> int:
    """How many refinements of it were developed."""
    return sum(b.order.kind == "expand" and b.order.parents == (branch.id,) for b in branches)


def next_pair(beam: Sequence[Branch], branches: Sequence[Branch]) -> tuple[Branch, Branch] | None:
    """The two best that share no family, ancestors included, and were not joined yet; None where
    there are none."""
    joined = {frozenset(b.order.parents) for b in branches if b.order.kind == "crossover"}
    pairs = ((first, second) for last, second in enumerate(beam) for first in beam[:last])
    return next(
        (
            (a, b)
            for a, b in pairs
            if frozenset((a.id, b.id)) not in joined
            and not lineage(a, branches) & lineage(b, branches)
        ),
        None,
    )


def lineage(branch: Branch, branches: Sequence[Branch]) -> frozenset[str]:
    """Families of a branch and of all that it came from."""
    by_id = {b.id: b for b in branches}
    found, waiting = {branch.family}, list(branch.order.parents)
    while waiting:
        parent = by_id[waiting.pop()]
        found.add(parent.family)
        waiting.extend(parent.order.parents)
    return frozenset(found)
