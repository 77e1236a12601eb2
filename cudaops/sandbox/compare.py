"""How far a result is from the right answer, without anybody choosing a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cudaops.sandbox.arrays import Array, Values, in_memory

SAFE_SQUARES = (1e-280, 1e300)
"""Between these a sum of squares of doubles has lost nothing that counts to underflow or overflow:
terms below 2.2e-308 are 28 decimal digits smaller."""


class Distance(NamedTuple):
    """Difference between a result and the reference it is held against."""

    relative_l2: float
    """L2 norm of the difference over the L2 norm of the reference; over 1 where that is 0."""
    max_abs: float
    """Largest absolute difference of one element."""
    max_scaled: float
    """Largest difference of one element over its own size plus `scale`; over 1 where that is 0."""
    scale: float
    """Root mean square of the reference; 0 where it is zero everywhere."""
    non_finite_mismatches: int
    """Elements where one side is NaN or infinite and the other is not the very same."""
    compared: int
    """Elements that are finite on both sides: what all else is about."""

    @property
    def exact(self) -> bool:
        """Whether the two are equal everywhere."""
        return self.max_abs == 0.0 and self.non_finite_mismatches == 0


def _norm(values: Array) -> float:
    """Root of the sum of squares, also where the squares overflow or vanish."""
    squares = float(np.dot(values, values))
    if SAFE_SQUARES[0] < squares < SAFE_SQUARES[1]:
        return math.sqrt(squares)
    top = float(np.abs(values).max(initial=0.0))
    if top == 0.0 or math.isinf(top):
        return top
    over = values / top
    return top * math.sqrt(float(np.dot(over, over)))


def distance(result: Array | Values, reference: Array | Values) -> Distance:
    """Compare floating values; infinities must match in sign and NaN must meet NaN."""
    a, b = _values(result), _values(reference)
    norm, gap, worst, finite = 0.0, 0.0, 0.0, 0
    with np.errstate(over="ignore"):
        for x, y in _finite_pairs(a, b):
            difference = x - y
            finite += x.size
            worst = max(worst, float(np.abs(difference).max(initial=0.0)))
            gap, norm = math.hypot(gap, _norm(difference)), math.hypot(norm, _norm(y))
    scale = norm / math.sqrt(finite) if finite else 0.0
    return Distance(
        relative_l2=gap / norm if norm > 0.0 else gap,
        max_abs=worst,
        max_scaled=_max_scaled(a, b, scale) if worst > 0.0 and scale > 0.0 else worst,
        scale=scale,
        non_finite_mismatches=special_mismatches(a, b),
        compared=finite,
    )


def _max_scaled(a: Values, b: Values, scale: float) -> float:
    worst = 0.0
    with np.errstate(over="ignore"):
        for x, y in _finite_pairs(a, b):
            gap = np.abs(x - y)
            gap /= np.abs(y) + scale
            worst = max(worst, float(gap.max(initial=0.0)))
    return worst


def share_beyond(result: Array | Values, reference: Array | Values, relative: float) -> float:
    """Share of elements, of those finite on both sides, that are off by more than this share of
    their own size, 0-1: what a few large elements cannot hide."""
    beyond, counted = 0, 0
    for x, y in _finite_pairs(_values(result), _values(reference)):
        beyond += int(np.count_nonzero(np.abs(x - y) > relative * np.abs(y)))
        counted += x.size
    return beyond / counted if counted else 0.0


def _finite_pairs(a: Values, b: Values) -> Iterator[tuple[Array, Array]]:
    """Chunks of both as doubles, without the elements where either is not finite."""
    for x, y in _pairs(a, b):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        both = np.isfinite(wide_x) & np.isfinite(wide_y)
        yield (wide_x, wide_y) if both.all() else (wide_x[both], wide_y[both])


def special_mismatches(result: Array | Values, reference: Array | Values) -> int:
    """Elements where one side is NaN or infinite and the other is not the very same."""
    wrong = 0
    for x, y in _pairs(_values(result), _values(reference)):
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            wrong += int(np.count_nonzero(~finite & ~same))
    return wrong


def misplaced_specials(
    result: Array | Values, reference: Array | Values, wide: Array | Values | None
) -> int:
    """Elements where one side is finite and the other is not, or the two are opposite infinities.

    NaN and infinity may stand for each other: what is left over of an infinity in a compensated sum
    is inf - inf. Nothing is asked where `wide`, the reference computed in a wider type, is finite
    and the reference is not: it overflowed on the way, which another order need not do.
    """
    wrong = 0
    a, b, beyond = _values(result), _values(reference), None if wide is None else _values(wide)
    for (x, y), (start, count) in zip(_pairs(a, b), a.chunks(), strict=True):
        moved = np.isfinite(x) != np.isfinite(y)
        if beyond is not None and moved.any():
            moved &= np.isfinite(y) | ~np.isfinite(beyond.read(start, count))
        opposite = np.isinf(x) & np.isinf(y) & (x != y)
        wrong += int(np.count_nonzero(moved | opposite))
    return wrong


def integer_mismatches(result: Array | Values, reference: Array | Values) -> int:
    """Elements that differ, for what is compared exactly."""
    pairs = _pairs(_values(result), _values(reference))
    return sum(int(np.count_nonzero(x != y)) for x, y in pairs)


def beyond_one_rounding(
    result: Array | Values, reference: Array | Values, exact_limit: float, roundoff: float
) -> int:
    """Elements that one rounding to a narrower type does not explain.

    That type holds every integer up to `exact_limit`, where the two must be equal; beyond, they may
    differ by `roundoff` times the element.
    """
    wrong = 0
    for x, y in _pairs(_values(result), _values(reference)):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        allowed = np.where(np.abs(wide_y) > exact_limit, roundoff * np.abs(wide_y), 0.0)
        wrong += int(np.count_nonzero(~(np.abs(wide_x - wide_y) <= allowed)))
    return wrong


def non_finite_share(values: Array | Values) -> float:
    """Share of the elements of a floating buffer that are NaN or infinite, 0-1."""
    held = _values(values)
    wrong = sum(int(np.count_nonzero(~np.isfinite(held.read(*chunk)))) for chunk in held.chunks())
    return wrong / held.size if held.size else 0.0


def is_small_integers(values: Array | Values, limit: float) -> bool:
    """Whether every value is an integer no larger than `limit`: arithmetic on it was exact."""
    held = _values(values)
    for start, count in held.chunks():
        part = held.read(start, count)
        if not np.isfinite(part).all() or (np.abs(part) > limit).any():
            return False
        if (part != np.rint(part)).any():
            return False
    return True


def _values(values: Array | Values) -> Values:
    return values if isinstance(values, Values) else in_memory(values)


def _pairs(a: Values, b: Values) -> Iterator[tuple[Array, Array]]:
    if a.size != b.size:
        raise ValueError(f"{a.size} elements cannot be held against {b.size}")
    for start, count in a.chunks():
        yield a.read(start, count), b.read(start, count)
