"""How sure a median is: intervals that hold for noise of any shape, without a random number.

Two bounds are computed for the median of paired log ratios, and the more careful one is taken.
The percentile bootstrap of the median, in closed form instead of by resampling: the median of n
draws with replacement is at most the k-th smallest value with the probability that at least half
of the draws fall among the k smallest. Source: Efron, Bootstrap methods: another look at the
jackknife (1979), section 3. And the order statistic whose coverage is exact whatever the noise
is, from the binomial distribution of the number of samples below the true median. Source: David
and Nagaraja, Order Statistics, section 7.1. In the far tails, where many candidates push us, the
first alone would be too narrow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """Bounds of a median; infinite where there are too few samples for the level."""

    low: float
    high: float


def median_interval(values: Sequence[float], tail: float) -> Interval:
    """Bounds that the true median lies beyond with at most probability `tail` on either side.

    Args:
        values: Independent samples, at least one.
        tail: 0 < tail < 0.5.
    """
    ordered = sorted(values)
    place = _upper_place(len(ordered), tail)
    if place is None:
        return Interval(-math.inf, math.inf)
    return Interval(ordered[len(ordered) - place], ordered[place - 1])


def spent(tail: float, before: int) -> float:
    """What of the error probability `tail` the next decision may use after `before` others.

    tail / (i (i + 1)) for the i-th: however many follow, the sum stays below `tail`. So nobody
    has to say beforehand how many candidates there will be.
    """
    turn = before + 1
    return tail / (turn * (turn + 1))


@functools.lru_cache(maxsize=1024)
def _upper_place(count: int, tail: float) -> int | None:
    """1-based place, in order of size, of the sample that bounds the median from above."""
    middle = count // 2 + 1
    for place in range(middle, count + 1):
        sure = _at_most(count, place - 1, 0.5) >= 1.0 - tail
        if sure and 1.0 - _at_most(count, middle - 1, place / count) >= 1.0 - tail:
            return place
    return None


def _at_most(count: int, successes: int, chance: float) -> float:
    """P(X <= successes) of a binomial variable."""
    if chance >= 1.0:
        return 1.0 if successes >= count else 0.0
    odds, miss = math.log(chance), math.log1p(-chance)
    return math.fsum(
        math.exp(_log_choose(count, n) + n * odds + (count - n) * miss)
        for n in range(successes + 1)
    )


def _log_choose(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)
