"""Boxes of the grid between bounds that are sums over a launch's numbers, and which are one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cudaops.program.analysis.polynomials import Polynomial, number


@dataclass(frozen=True)
class Span:
    """From the largest of `lows` to below the smallest of `ends`, over the launch's numbers."""

    lows: frozenset[Polynomial]
    ends: frozenset[Polynomial]

    def wider(self, low: int, high: int) -> Span:
        """With `low` (negative) and `high` more places at its ends."""
        return Span(
            frozenset(x + number(low) for x in self.lows),
            frozenset(x + number(high) for x in self.ends),
        )

    def intersect(self, lows: Collection[Polynomial], ends: Collection[Polynomial]) -> Span:
        """Within these as well."""
        return Span(pruned(self.lows | set(lows), 1), pruned(self.ends | set(ends), -1))

    @property
    def lengths(self) -> tuple[Polynomial, ...]:
        """None of them is negative where at least one place is in it."""
        return tuple(
            end - low - number(1)
            for end in sorted(self.ends, key=repr)
            for low in sorted(self.lows, key=repr)
        )

    def within(self, other: Span) -> bool:
        """Whether it is seen to lie inside of another."""
        lows = all(any(at_least(a, b) for a in self.lows) for b in other.lows)
        return lows and all(any(at_least(b, a) for a in self.ends) for b in other.ends)


def at_least(one: Polynomial, other: Polynomial) -> bool:
    """Whether the first is seen to be no smaller: they differ by a number."""
    between = (one - other).constant
    return between is not None and between >= 0


def pruned(bounds: Collection[Polynomial], sign: int) -> frozenset[Polynomial]:
    """Without those that another one makes needless: smaller ones of what is compared with from
    above (`sign` 1), larger ones from below (-1)."""
    kept: list[Polynomial] = []
    for x in sorted(bounds, key=repr):
        if any(at_least(y, x) if sign > 0 else at_least(x, y) for y in kept):
            continue
        kept = [y for y in kept if not (at_least(x, y) if sign > 0 else at_least(y, x))]
        kept.append(x)
    return frozenset(kept)


Box = tuple[tuple[str, Span], ...]
"""By axis, in order."""


def merged(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """Fewer boxes with the same elements, and perhaps some between them."""
    found = list(dict.fromkeys(boxes))
    while True:
        pairs = [(one, a, b) for a in found for b in found if a is not b
                 and (one := _both(a, b)) is not None]  # fmt: skip
        if not pairs:
            return tuple(found)
        (_, box), a, b = min(pairs, key=lambda pair: pair[0][0])
        found = [box if x is a else x for x in found if x is not b]


def _both(one: Box, other: Box) -> tuple[int, Box] | None:
    """Two boxes as one, and how far they are apart: the second lies in the first, or they differ
    on one axis. What is between them there is between two elements that are read."""
    a, b = dict(one), dict(other)
    if all(b[axis].within(a[axis]) for axis in a):
        return 0, one
    differing = [axis for axis in a if a[axis] != b[axis]]
    if len(differing) != 1:
        return None
    (axis,) = differing
    first, second = a[axis], b[axis]
    if any(len(x) != 1 for x in (first.lows, first.ends, second.lows, second.ends)):
        return None
    (low,), (end,), (low2,), (end2,) = first.lows, first.ends, second.lows, second.ends
    if not (at_least(low2, low) and at_least(end2, end)):
        return None
    whole = Span(first.lows, second.ends)
    apart = (low2 - low).constant or 0
    return apart, tuple((x, whole if x == axis else span) for x, span in one)
