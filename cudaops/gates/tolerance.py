"""How far a result may be from the baseline's: from the baseline's own error, and from how much its
results move where its inputs move by one rounding."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cudaops.domain.judgement import Policy
from cudaops.domain.workload import Element
from cudaops.executors.arrays import UNIT_ROUNDOFF, Array, Values, in_step
from cudaops.executors.bands import LEVELS, ErrorCounts, Tolerance, error_counts
from cudaops.executors.compare import Distance, distance
from cudaops.sandbox.oracle import MAX_OWN_ERROR, KeptFacts
from cudaops.sandbox.precision import FORMATS, allowed_roundoffs

FALLBACK_ROUNDOFFS = 64.0
"""Bound in unit roundoffs on the distance from the baseline where there is no widened yardstick.
A float32 sum of products in another order differs by about 5 roundoffs (relative L2), one with
TF32 operands by about 5000. Source: the table in docs/verification.md."""

FLOOR_ROUNDOFFS: dict[Element, float] = {"f16": 0.5, "bf16": 0.5, "f32": 1.0, "f64": 2.0}
"""A baseline is never counted as more exact than so many unit roundoffs. One rounding makes a
relative L2 error of 0.4: what is computed in f32 and only stored in 16 bits has no more than that,
and a result rounded to bf16 is 3.4 roundoffs of f16 away. Sums in f32 and f64 scatter more.
2 for f64 is chosen, not measured: a result is rounded to double once more than its yardstick."""

ROUNDED_TWICE = math.sqrt(2.0 / 3.0)
"""Two roundings make a relative L2 error of no more unit roundoffs (each is evenly distributed, and
numbers are the more off the nearer they are above a power of 2). A baseline in float or double with
more rounds on the way and counts as twice as inexact at least: which of two orders is the more
exact one is luck then, and a sum one by one of a few hundred terms is 4 to 7 roundoffs off where
one in pairs is 1. What is summed in double or compensated, and then rounded, stays below, so plain
sums do not pass for it."""

EXTRA = 4.0
"""The largest error of one element is an extreme value and scatters more than a norm: its bound is
this much wider than that of the relative L2 error. So is that of the errors of elements by their
own size, of which a share may be larger."""

SMALLEST: dict[Element, float] = {
    "f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074,
}  # fmt: skip
"""Smallest subnormal: numbers near it are rounded to its multiples, which no unit roundoff
describes. Subnormals are numbers like others (nvcc keeps them by default, -ftz=false): a result
flushed to zero is off by all of its size. Source: IEEE 754-2019 table 3.5; bfloat16 has the
exponent range of f32."""

FEW_ELEMENTS = 16
FEW_ROUNDOFFS = FALLBACK_ROUNDOFFS / 4
"""The error of a few elements is one draw and no yardstick: the baseline's own may be near 0 by
luck, as that of a dot product on an H200 was (2.0e-8, another order 2.4e-7, 2026-11-20). Of fewer
than FEW_ELEMENTS it counts as at least this; with the default factor that is the bound without any
yardstick, which TF32 still exceeds a hundredfold."""

SENSITIVITY_FACTOR = 2.0
FEW_SENSITIVITY_FACTOR = 16.0
"""A result may be so many times as far off as the baseline's moves where each input moves by one
roundoff: what nobody could compute better from inputs that were themselves rounded once. Of fewer
than FEW_ELEMENTS that distance too is one draw. Summed plainly in place of compensated, terms
of which one is 2^24 times the others are off by more than twice where a chain takes up more than
some 20 terms after the large one; shorter chains pass (`tests/gates/test_tolerance.py`)."""

OUTLIERS = 1.0 / 16.0
"""Of results in float and double no more than this share of the elements may be off by more than
the norm's bound times the root mean square, by up to OUTLIER_FACTOR times as much: a few rows that
are larger than all others, or the bad inputs of another algorithm, are a few draws. Chosen by sums
shifted by the first element of a row in place of two passes, where one row in fifty begins with its
largest element (9 roundoffs in relative L2, 79 of one element); a result that is off everywhere by
as much is refused."""
OUTLIER_FACTOR = 4.0
COMPENSATED_ROUNDOFFS = 0.5
"""FLOOR_ROUNDOFFS where the author's kernel computes what is rounded off: of one rounding. A plain
sum of 32 terms in each of eight chains is 3 to 4 roundoffs off where some terms are large, so it
passed for compensated with the others' floor (a27 of the red team, NumPy, 2026-11-29)."""
COMPUTED_IN: frozenset[Element] = frozenset({"f32", "f64"})
"""Types in which kernels compute; the results of the others are rounded to be stored."""


class Sides(NamedTuple):
    """What is compared in one buffer."""

    result: Values
    baseline: Values
    wide: Values | None
    """The widened baseline's doubles; None where there are none, and `wide_problem` says why."""
    wide_problem: str | None
    in_places: bool = False
    """The inputs are such that the baseline is not finite in places (`Reference.non_finite`)."""
    equal: bool = False
    """Somebody saw that result and baseline are the same bytes: then what is said of the two is
    what is said of the baseline."""
    known: KeptFacts | None = None
    """What was found of the baseline before; None: find it anew."""
    moved: Values | None = None
    """The baseline's result on inputs moved by one roundoff each (`Reference.sensitivity`)."""
    compensated: bool = False
    """As `Reference.compensated`."""


class Yardstick(NamedTuple):
    """What a result is compared with, and what errors the baseline has by it."""

    reference: Values
    own: Distance | None
    """Of the baseline; None where it is itself the reference."""
    moved: Distance | None
    """Of the baseline from what it is on moved inputs; None where that is not known."""
    problem: str | None = None
    """Why the baseline is itself the reference."""
    compensated: bool = False
    """As `Reference.compensated`."""
    unmeasured: Values | None = None
    """The baseline where it is finite and the widened run is not, NaN elsewhere; None where there
    is no such place."""


class Bounds(NamedTuple):
    """What of a `Distance` is allowed; nothing where the reference is zero everywhere."""

    relative_l2: float
    max_scaled: float
    strict_l2: float
    """What `relative_l2` would be had the user allowed no other precision."""
    outlier_l2: float
    outlier_scaled: float
    """The two with OUTLIERS among the elements; the same as without where none are allowed."""


def yardstick(sides: Sides) -> Yardstick:
    """The widened run, unless that measures nothing: then the baseline, and why."""
    moved = _moved(sides)
    fallback = Yardstick(sides.baseline, None, moved, compensated=sides.compensated)
    if sides.wide is None:
        return fallback._replace(problem=sides.wide_problem)
    own = _own(sides, sides.wide)
    if own.compared < sides.baseline.size:
        finite, lost = _lost(sides.baseline, sides.wide)
        if lost > finite / 2:
            problem = f"not finite in {lost} of {finite} places where the baseline is"
            return fallback._replace(problem=problem)
        if lost:
            left = in_step(_where_not_finite, sides.baseline, sides.wide)
            return fallback._replace(reference=sides.wide, own=own, unmeasured=left)
    if own.scale == 0.0 and own.max_abs > 0.0:
        return fallback._replace(problem="it is zero everywhere, the baseline is not")
    if not own.relative_l2 <= MAX_OWN_ERROR:
        problem = f"the baseline is {own.relative_l2:.1e} away from it"
        return fallback._replace(problem=problem)
    return fallback._replace(reference=sides.wide, own=own)


def _where_not_finite(baseline: Array, wide: Array) -> Array:
    return np.where(np.isfinite(wide), np.nan, baseline)


def _lost(baseline: Values, wide: Values) -> tuple[int, int]:
    """Elements that are finite in the baseline, and those of them that are not in the wide run."""
    finite = lost = 0
    for start, count in baseline.chunks():
        right = np.isfinite(baseline.read(start, count))
        finite += int(np.count_nonzero(right))
        lost += int(np.count_nonzero(right & ~np.isfinite(wide.read(start, count))))
    return finite, lost


def _own(sides: Sides, wide: Values) -> Distance:
    """The baseline's distance from its widened run, found once a reference."""
    if sides.known is None:
        return distance(sides.baseline, wide)
    if sides.known.own is None:
        sides.known.own = distance(sides.baseline, wide)
    return sides.known.own


def _moved(sides: Sides) -> Distance | None:
    """The distance that one roundoff of the inputs makes, found once a reference. None where it is
    as large as no error of sums: then inputs decide there between unrelated results."""
    if sides.moved is None:
        return None
    found = None if sides.known is None else sides.known.moved
    if found is None:
        found = distance(sides.moved, sides.baseline)
        if sides.known is not None:
            sides.known.moved = found
    return found if found.compared and found.relative_l2 <= MAX_OWN_ERROR else None


def bounds_of(gap: Distance, held: Yardstick, element: Element, policy: Policy) -> Bounds:
    """How far a result at this distance may be from the reference."""
    scale, own = gap.scale, held.own
    if scale == 0.0:
        return Bounds(0.0, 0.0, 0.0, 0.0, 0.0)
    factor, few = policy.max_error_factor, gap.compared < FEW_ELEMENTS
    step = 0.5 * SMALLEST[element] / scale
    strict = FALLBACK_ROUNDOFFS * max(UNIT_ROUNDOFF[element], step)
    floor = max(floor_roundoffs(gap, held, element) * UNIT_ROUNDOFF[element], step)
    if own is not None:
        strict = factor * max(own.relative_l2, floor)
    moved = 0.0
    if held.moved is not None:
        times = FEW_SENSITIVITY_FACTOR if few else SENSITIVITY_FACTOR
        strict = max(strict, times * held.moved.relative_l2)
        moved = times * held.moved.max_scaled
    allowed = max(strict, allowed_roundoffs(policy))
    widest = max(allowed, 0.0 if own is None else factor * own.max_scaled)
    most = max(EXTRA * widest, moved)
    bounds = Bounds(allowed, most, strict, allowed, most)
    if own is None or few or not _outliers_allowed(held, element, policy):
        return bounds
    loose = max(allowed, OUTLIER_FACTOR * factor * floor)
    return bounds._replace(
        outlier_l2=loose, outlier_scaled=max(most, EXTRA * OUTLIER_FACTOR * loose)
    )


def floor_roundoffs(gap: Distance, held: Yardstick, element: Element) -> float:
    """Unit roundoffs that a baseline's own error counts as at least."""
    own = held.own
    floor = COMPENSATED_ROUNDOFFS if held.compensated else FLOOR_ROUNDOFFS[element]
    if own is not None and element in COMPUTED_IN:
        floor *= 2.0 if own.relative_l2 > ROUNDED_TWICE * UNIT_ROUNDOFF[element] else 1.0
    return max(floor, FEW_ROUNDOFFS) if gap.compared < FEW_ELEMENTS else floor


def by_own_size(
    gap: Distance, held: Yardstick, element: Element, policy: Policy
) -> tuple[Tolerance, Tolerance]:
    """From where on errors of single elements are counted by their own size: those of a result, and
    those of the baseline, by which they may be as many."""
    roundoff = UNIT_ROUNDOFF[element]
    floor = floor_roundoffs(gap, held, element) * roundoff
    times = EXTRA * policy.max_error_factor
    allowed = times * floor
    if policy.allow_precision is not None:
        allowed = max(allowed, times * FORMATS[policy.allow_precision].roundoff)
    step = max(0.5 * SMALLEST[element], SMALLEST["f64"])
    return Tolerance(allowed, times * step), Tolerance(floor, step)


def own_counts(sides: Sides, held: Yardstick, floor: Tolerance, policy: Policy) -> ErrorCounts:
    """The baseline's own errors, found once a reference. What inputs moved by one roundoff change
    counts as far as SENSITIVITY_FACTOR has it."""
    also = None
    if held.moved is not None and sides.moved is not None:
        share = SENSITIVITY_FACTOR / (EXTRA * policy.max_error_factor)
        also = sides.moved, sides.baseline, share
    counts = {} if sides.known is None else sides.known.counts
    key = floor, also is not None
    if key not in counts:
        counts[key] = error_counts(sides.baseline, held.reference, floor, also)
    return counts[key]


def _outliers_allowed(held: Yardstick, element: Element, policy: Policy) -> bool:
    as_usual = policy.allow_precision is None and not held.compensated
    return element in COMPUTED_IN and as_usual


def outlier_shares(held: Yardstick, element: Element, policy: Policy) -> Array:
    """What share of the elements may be off by more than 2^k times the tolerance of `by_own_size`:
    as many as an L2 norm at its bound leaves (Chebyshev), and OUTLIERS."""
    beyond = OUTLIERS * 4.0 ** -np.arange(float(LEVELS))
    if not _outliers_allowed(held, element, policy):
        return beyond
    shares: Array = np.minimum(OUTLIERS, beyond * (EXTRA * OUTLIER_FACTOR) ** 2)
    return shares
