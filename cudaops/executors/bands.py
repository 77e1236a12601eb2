"""How many elements of each size are off by how much of their own size: what a norm over a buffer
of several quantities does not see, because the largest drowns the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cudaops.executors.arrays import Array, Values, over_chunks

BAND_OCTAVES = 4
"""Sizes of one band are within a factor of 2^4: a decade or so."""
LOWEST_EXPONENT = -1074
"""Of the smallest subnormal double."""
BANDS = (1024 - LOWEST_EXPONENT) // BAND_OCTAVES + 1

LEVELS = 64
"""Octaves of error above the unit that are told apart. From the unit roundoff of double on they
reach beyond 1; what is larger counts as the last."""

BAND_ELEMENTS = 64
"""A band of fewer is one with the next larger one. Chosen: four times those that may be off."""
OFF_ELEMENTS = 8
"""So many elements of a band may be off whatever the others are (half of them, of fewer than
twice as many). Of errors with tails as heavy as those of sums that cancel (as likely to be beyond t
as 1/t), eight of one draw are 16 times as large as the largest of an equal draw once in 1e9."""


class Tolerance(NamedTuple):
    """What an error is counted by: one counts from `relative` times the element's own size on, and
    from `absolute` on at least."""

    relative: float
    absolute: float


class ErrorCounts(NamedTuple):
    """Elements that are finite on both sides and not 0 in the reference."""

    sizes: Array
    """How many, by band of the reference's size."""
    off: Array
    """How many are off by more than the tolerance, by band and by octaves beyond it."""


class Excess(NamedTuple):
    """A band in which more elements are off than the baseline's own errors explain."""

    off: int
    elements: int
    beyond: float
    """By more than so much of their own size."""
    smallest: float
    largest: float
    """Sizes in the band."""


def error_counts(
    result: Values,
    reference: Values,
    tolerance: Tolerance,
    also: tuple[Values, Values, float] | None = None,
) -> ErrorCounts:
    """Count a result's errors. `also`: two runs whose difference, times a share, counts as the
    error of an element where that is larger."""

    def look(x: Array, y: Array, *moved: Array) -> tuple[Array, Array]:
        x, y, *moved_ = (side.astype(np.float64, copy=False) for side in (x, y, *moved))
        with np.errstate(over="ignore", invalid="ignore"):
            size, error = np.abs(y), np.abs(x - y)
            if moved_:
                assert also is not None
                error = np.fmax(error, also[2] * np.abs(moved_[0] - moved_[1]))
            kept = np.isfinite(size) & np.isfinite(x) & (size > 0.0)
            band = (np.frexp(size)[1] - LOWEST_EXPONENT) // BAND_OCTAVES
            least = np.maximum(tolerance.relative * size, tolerance.absolute)
            wrong = kept & (error > least)
            ratio = np.minimum(error[wrong] / least[wrong], 2.0**LEVELS)
            octave = np.minimum(np.frexp(ratio)[1] - 1, LEVELS - 1)
        places = band[wrong] * LEVELS + octave
        off = np.bincount(places, minlength=BANDS * LEVELS).reshape(BANDS, LEVELS)
        return np.bincount(band[kept], minlength=BANDS), off

    sizes = np.zeros(BANDS, np.int64)
    off = np.zeros((BANDS, LEVELS), np.int64)
    for part, wrong in over_chunks(look, result, reference, *(also or ())[:2]):
        sizes += part
        off += wrong
    return ErrorCounts(sizes, off)


def excess(
    found: ErrorCounts, own: ErrorCounts, unit: float, share: Array, scale: float
) -> Excess | None:
    """The band with most elements off beyond what is allowed; None where there is none.

    Of a band's elements as many may be off by more than 2^k times the result's tolerance as the
    baseline has beyond 2^k times its own, with four times the scatter of that number, and
    `share[k]` of all, and OFF_ELEMENTS. Sums that cancel are small numbers with the error of large
    ones: of signed numbers of root mean square `scale` no more than the share r is smaller than
    r `scale`; so many more may be off by the tolerance of `scale`. `unit`: the result's relative
    tolerance, for the report.
    """
    worst: tuple[float, Excess] | None = None
    total, levels = int(own.sizes.sum()), np.arange(LEVELS)
    for first, end in _merged(own.sizes):
        size = int(own.sizes[first:end].sum())
        off, theirs = (_beyond(one.off[first:end]) for one in (found, own))
        allowed = theirs + 4.0 * np.sqrt(theirs) + share * size + min(OFF_ELEMENTS, size // 2)
        held = np.flatnonzero(own.sizes[first:end]) + first
        low, high = (_edge(int(band)) for band in (held[0], held[-1] + 1))
        if scale > 0.0:
            cancelled = levels <= 1.0 + max(0.0, np.log2(scale) - np.log2(low))
            allowed = allowed + total * min(1.0, high / scale) * cancelled
        over = off - allowed
        if over.max() > 0.0:
            level = int(over.argmax())
            one = Excess(int(off[level]), size, unit * 2.0**level, low, high)
            if worst is None or over[level] > worst[0]:
                worst = float(over[level]), one
    return None if worst is None else worst[1]


def _beyond(off: Array) -> Array:
    """How many are off by at least each octave."""
    counts: Array = off.sum(axis=0)[::-1].cumsum()[::-1]
    return counts


def _edge(band: int) -> float:
    """Smallest size in a band."""
    exponent = min(max(band * BAND_OCTAVES + LOWEST_EXPONENT - 1, LOWEST_EXPONENT), 1023)
    return 2.0**exponent


def _merged(sizes: Array) -> list[tuple[int, int]]:
    """Bands from the smallest on, joined until each has BAND_ELEMENTS; the last has the rest."""
    joined: list[tuple[int, int]] = []
    first, held = 0, 0
    for band, size in enumerate(sizes):
        held += int(size)
        if held >= BAND_ELEMENTS:
            joined.append((first, band + 1))
            first, held = band + 1, 0
    if held and joined:
        joined[-1] = joined[-1][0], len(sizes)
    elif held:
        joined.append((0, len(sizes)))
    return joined
