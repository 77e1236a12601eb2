"""How far a result is from the right answer, without anybody choosing a tolerance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.workload import ELEMENT_BYTES, Allocation, Element
from cudaops.executors.arrays import (
    Array,
    Values,
    filled,
    in_memory,
    over_chunks,
    read_array,
    stored,
)

SAFE_SQUARES = (1e-280, 1e300)
"""Between these a sum of squares of doubles has lost nothing that counts to underflow or overflow:
terms below 2.2e-308 are 28 decimal digits smaller."""

PROBE = 1024
"""Elements of a chunk that are compared before all of it is."""


class Distance(NamedTuple):
    """Difference between a result and the reference it is compared with."""

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


class _Gap(NamedTuple):
    """One chunk of a comparison; the first three are of the elements finite on both sides."""

    difference: float
    """L2 norm."""
    reference: float
    """L2 norm."""
    worst: float
    finite: int
    special: int
    """Elements where one side is not finite and the other not the very same."""
    scaled: float
    """Largest difference over the element's own size plus the expected scale; 0 without one."""


def _norm(values: Array) -> float:
    """Root of the sum of squares, also where the squares overflow or vanish.

    Not by `np.dot`: its sum depends on how many threads a library of linear algebra takes.
    """
    squares = float(np.einsum("i,i->", values, values))
    if SAFE_SQUARES[0] < squares < SAFE_SQUARES[1]:
        return math.sqrt(squares)
    top = float(np.abs(values).max(initial=0.0))
    if top == 0.0 or math.isinf(top):
        return top
    over = values / top
    return top * math.sqrt(float(np.einsum("i,i->", over, over)))


def distance(
    result: Array | Values, reference: Array | Values, expected_scale: float = 0.0
) -> Distance:
    """Compare floating values; infinities must match in sign and NaN must meet NaN.

    `expected_scale`: what `Distance.scale` will be, where somebody knows; one pass is enough then.
    """
    a, b = _values(result), _values(reference)
    norm, gap, worst, finite, special = 0.0, 0.0, 0.0, 0, 0
    scales: list[float] = []
    for part in over_chunks(lambda x, y: _gap(x, y, expected_scale), a, b):
        gap, norm = math.hypot(gap, part.difference), math.hypot(norm, part.reference)
        worst, finite = max(worst, part.worst), finite + part.finite
        special += part.special
        scales.append(part.scaled)
    scale = norm / math.sqrt(finite) if finite else 0.0
    scaled = worst
    if worst > 0.0 and scale > 0.0:
        if scale != expected_scale:
            scales = list(over_chunks(lambda x, y: _scaled(x, y, scale), a, b))
        scaled = max(scales)
    return Distance(
        relative_l2=gap / norm if norm > 0.0 else gap,
        max_abs=worst,
        max_scaled=scaled,
        scale=scale,
        non_finite_mismatches=special,
        compared=finite,
    )


def _gap(result: Array, reference: Array, scale: float) -> _Gap:
    special = _specials(result, reference)
    x, y = _finite(result, reference)
    wide = y.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        norm = _norm(wide)
        if _same(x, y):
            return _Gap(0.0, norm, 0.0, x.size, special, 0.0)
        difference = np.abs(x.astype(np.float64, copy=False) - wide)
        worst = float(difference.max(initial=0.0))
        gap = _norm(difference)
        scaled = _largest_scaled(difference, wide, scale) if scale else 0.0
        return _Gap(gap, norm, worst, x.size, special, scaled)


def _scaled(result: Array, reference: Array, scale: float) -> float:
    """Largest difference over the element's own size plus `scale`."""
    x, y = _finite(result, reference)
    if _same(x, y):
        return 0.0
    wide = y.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        gap = np.abs(x.astype(np.float64, copy=False) - wide)
        return _largest_scaled(gap, wide, scale)


def _largest_scaled(difference: Array, reference: Array, scale: float) -> float:
    """The same of differences, which are overwritten."""
    difference /= np.abs(reference) + scale
    return float(difference.max(initial=0.0))


def share_beyond(
    result: Array | Values, reference: Array | Values, relative: float, absolute: float = 0.0
) -> float:
    """Share of elements, of those finite on both sides, that are off by more than this share of
    their own size and by more than `absolute`, 0-1: what a few large elements cannot hide."""

    def beyond(result: Array, reference: Array) -> tuple[int, int]:
        x, y = (side.astype(np.float64, copy=False) for side in _finite(result, reference))
        with np.errstate(over="ignore"):
            allowed = np.maximum(relative * np.abs(y), absolute)
            return int(np.count_nonzero(np.abs(x - y) > allowed)), x.size

    found, counted = 0, 0
    for part, size in over_chunks(beyond, _values(result), _values(reference)):
        found, counted = found + part, counted + size
    return found / counted if counted else 0.0


def _finite(x: Array, y: Array) -> tuple[Array, Array]:
    """Both without the elements where either is not finite."""
    both = np.isfinite(x) & np.isfinite(y)
    return (x, y) if both.all() else (x[both], y[both])


def _same(x: Array, y: Array) -> bool:
    """Whether two chunks are equal byte by byte; most that are not show it soon."""
    if x.dtype != y.dtype:
        return False
    x, y = (np.ascontiguousarray(side).view(f"u{x.itemsize}") for side in (x, y))
    return np.array_equal(x[:PROBE], y[:PROBE]) and np.array_equal(x, y)


class Differing(NamedTuple):
    """Elements that are not near enough to the reference."""

    elements: int
    """How many."""
    first: int
    """Place in memory of the first of them; the values are there."""
    result: int | float
    reference: int | float


def differing(
    result: Array | Values,
    reference: Array | Values,
    relative: float,
    scale: float = 0.0,
    *,
    finite_only: bool = False,
) -> Differing | None:
    """Elements off by more than `relative` times their own size plus `scale`, and, unless
    `finite_only`, those where one side is NaN or infinite and the other not the very same; None
    where there are none."""

    def apart(x: Array, y: Array) -> tuple[int, Differing | None]:
        wrong = x != y
        if relative > 0.0 and wrong.any():
            a, b = (side.astype(np.float64, copy=False) for side in (x, y))
            finite = np.isfinite(a) & np.isfinite(b)
            with np.errstate(over="ignore", invalid="ignore"):
                near = finite & (np.abs(a - b) <= relative * np.abs(b) + relative * scale)
            wrong &= ~near & ~(np.isnan(a) & np.isnan(b))
        if finite_only:
            wrong &= np.isfinite(x) & np.isfinite(y)
        if not wrong.any():
            return x.size, None
        at = int(wrong.argmax())
        return x.size, Differing(int(np.count_nonzero(wrong)), at, x[at].item(), y[at].item())

    count, before = 0, 0
    first: Differing | None = None
    for size, found in over_chunks(apart, _values(result), _values(reference)):
        if found is not None:
            count += found.elements
            first = first or found._replace(first=before + found.first)
        before += size
    return None if first is None else first._replace(elements=count)


def _specials(x: Array, y: Array) -> int:
    finite = np.isfinite(x) & np.isfinite(y)
    if finite.all():
        return 0
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return int(np.count_nonzero(~finite & ~same))


class Misplaced(NamedTuple):
    """Where a result is not finite and the reference is, or the reverse."""

    wrong: int = 0
    """Elements of another class than the reference's."""
    lost: int = 0
    """Elements that are finite in the reference and not in the result; none of `wrong`."""
    overflowed: int = 0
    """Elements that are not finite in the reference, and are numbers of its type in the wider run:
    it overflowed on the way."""
    first: int | None = None
    """Place of the first of `wrong` and `lost`."""

    @property
    def elements(self) -> int:
        """Those that count. Another order of the same operations overflows elsewhere: of an author
        who overflows on the way in some places, twice as many may be lost."""
        return self.wrong + (self.lost if self.lost > 2 * self.overflowed else 0)


def misplaced(
    result: Array | Values,
    reference: Array | Values,
    wide: Array | Values | None,
    largest: float = math.inf,
    *,
    as_good: bool = True,
) -> Misplaced:
    """Hold the places of NaN and infinity against the reference's.

    `as_good`: NaN and infinity may stand for each other, since what is left over of an infinity in
    a compensated sum is inf - inf; the opposite infinity may not. Where the reference is not finite
    and `wide`, the same computed in a wider type, is, the reference overflowed on the way: a finite
    result is as good there, an infinity with the sign of `wide` where that is beyond `largest` (of
    the type), and with `as_good` any but the infinity of the sign that neither has. A reference
    within a factor of 2 of `largest` may be an infinity of its sign: twice the value may have stood
    on the way.
    """

    def look(x: Array, y: Array, *wider: Array) -> tuple[int, Misplaced]:
        finite, right = np.isfinite(x), np.isfinite(y)
        if finite.all() and right.all():
            return x.size, Misplaced()
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if as_good:
            same |= np.isnan(x) | np.isnan(y)
        wrong = ~right & (finite | ~same)
        lost = right & ~finite
        lost &= ~((np.abs(y) >= largest / 2.0) & (x == np.copysign(np.inf, y)))
        overflowed = 0
        for wide in wider:
            on_the_way = ~right & np.isfinite(wide)
            beyond = np.abs(wide) > largest
            signed = x == np.copysign(np.inf, wide)
            wrong &= ~(on_the_way & (finite | (signed & (beyond | as_good))))
            overflowed = int(np.count_nonzero(on_the_way & ~beyond))
        places = wrong | lost
        first = int(places.argmax()) if places.any() else None
        lost_, wrong_ = int(np.count_nonzero(lost)), int(np.count_nonzero(wrong))
        return x.size, Misplaced(wrong_, lost_, overflowed, first)

    wider = () if wide is None else (_values(wide),)
    before, total = 0, Misplaced()
    with np.errstate(invalid="ignore"):
        for size, one in over_chunks(look, _values(result), _values(reference), *wider):
            first = total.first
            if first is None and one.first is not None:
                first = before + one.first
            total = Misplaced(
                total.wrong + one.wrong,
                total.lost + one.lost,
                total.overflowed + one.overflowed,
                first,
            )
            before += size
    return total


def misplaced_specials(
    result: Array | Values, reference: Array | Values, wide: Array | Values | None
) -> int:
    """How many there are, with NaN as good as an infinity: see `misplaced`."""
    return misplaced(result, reference, wide).elements


def beyond_one_rounding(
    result: Array | Values, reference: Array | Values, exact_limit: float, roundoff: float
) -> int:
    """Elements that one rounding to a narrower type does not explain.

    That type holds every integer up to `exact_limit`, where the two must be equal; beyond, they may
    differ by `roundoff` times the element.
    """

    def wrong(result: Array, reference: Array) -> int:
        x, y = result.astype(np.float64), reference.astype(np.float64)
        with np.errstate(invalid="ignore"):
            allowed = np.where(np.abs(y) > exact_limit, roundoff * np.abs(y), 0.0)
            return int(np.count_nonzero(~(np.abs(x - y) <= allowed)))

    return sum(over_chunks(wrong, _values(result), _values(reference)))


def non_finite_share(values: Array | Values) -> float:
    """Share of the elements of a floating buffer that are NaN or infinite, 0-1."""

    def count(part: Array) -> int:
        return int(np.count_nonzero(~np.isfinite(part)))

    held = _values(values)
    return sum(over_chunks(count, held)) / held.size if held.size else 0.0


def is_zero(values: Array | Values) -> bool:
    """Whether every element is 0."""
    return not any(over_chunks(lambda part: bool(part.any()), _values(values)))


def is_small_integers(values: Array | Values, limit: float) -> bool:
    """Whether every value is an integer no larger than `limit`: arithmetic on it was exact."""

    def exact(part: Array) -> bool:
        if not np.isfinite(part).all() or (np.abs(part) > limit).any():
            return False
        return bool((part == np.rint(part)).all())

    return all(over_chunks(exact, _values(values)))


def same_rows(a: Allocation, one: str | Path, two: str | Path) -> bool:
    """Whether two files hold the same elements, or structures, byte by byte, in any order."""
    width = a.structure_bytes or ELEMENT_BYTES[a.element]

    def in_order(path: str | Path) -> Array:
        raw = read_array(path, "u8")
        rows = np.ascontiguousarray(raw[: raw.size // width * width])
        return np.sort(rows.view(f"S{width}"))

    return bool(np.array_equal(in_order(one), in_order(two)))


def same_contents(one: Path | str, other: Path | str) -> bool:
    """Whether two files hold the same bytes."""
    if Path(one) == Path(other):
        return True
    if Path(one).stat().st_size != Path(other).stat().st_size:
        return False
    if not all(over_chunks(_same, stored(one, "u64"), stored(other, "u64"))):
        return False
    return _same(_tail(one), _tail(other))


def holds_only(path: Path | str, byte: int, size_bytes: int) -> bool:
    """Whether a file is this many times this byte."""
    if Path(path).stat().st_size != size_bytes:
        return False
    words = stored(path, "u64")
    if not all(over_chunks(_same, words, filled(byte, words.size, "u64"))):
        return False
    return bool((_tail(path) == byte).all())


def holds_fill(path: Path, byte: int, element_bytes: int) -> bool:
    """Whether any element of so many bytes still is what filled the file with this byte."""
    words: dict[int, Element] = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
    values = stored(path, words[element_bytes])
    fill = filled(byte, 1, words[element_bytes]).read(0, 1)[0]
    return any(over_chunks(lambda part: bool((part == fill).any()), values))


def _tail(path: Path | str) -> Array:
    """The bytes after the last whole word."""
    size = Path(path).stat().st_size
    return read_array(path, "u8", size - size % 8)


def _values(values: Array | Values) -> Values:
    return values if isinstance(values, Values) else in_memory(values)
