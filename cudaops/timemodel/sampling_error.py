"""How far the mean of some sampled blocks may be from the mean of all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

LEVEL = 0.95
"""Of the intervals of modelled times. Chosen: the usual one."""


def sampling_error(amounts: Sequence[float], population: int) -> float:
    """Half the width of the mean's interval at `LEVEL`, over the mean.

    By Student's distribution, with the correction for a finite population; blocks drawn one from
    each part of the grid are taken as drawn from all of it, which makes the interval no narrower.

    Args:
        amounts: Work of each sampled block.
        population: Blocks that they were drawn from.
    """
    count = len(amounts)
    mean = sum(amounts) / count if count else 0.0
    if count < 2 or mean <= 0.0 or count >= population:
        return 0.0
    left = 1.0 - count / population
    error = statistics.stdev(amounts) / math.sqrt(count) * math.sqrt(left)
    return _quantile(count - 1) * error / mean


def _quantile(freedom: int) -> float:
    """Of Student's distribution, both tails. Source: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.5; within 2 % from four degrees of freedom on."""
    z = statistics.NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3
