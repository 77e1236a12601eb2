"""How far a result is from the right answer, without anybody choosing a tolerance (design D3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cudaops.sandbox.verification.arrays import Array


class Distance(NamedTuple):
    """Difference between a result and the reference it is held against."""

    relative_l2: float
    """L2 norm of the difference over the L2 norm of the reference; over 1 where that is 0."""
    max_abs: float
    """Largest absolute difference of one element."""
    scale: float
    """Root mean square of the reference: what `max_abs` is to be seen against."""
    non_finite_mismatches: int
    """Elements where one side is NaN or infinite and the other is not the very same."""

    @property
    def exact(self) -> bool:
        """Whether the two are equal everywhere."""
        return self.max_abs == 0.0 and self.non_finite_mismatches == 0


def distance(result: Array, reference: Array) -> Distance:
    """Compare floating values; infinities must match in sign and NaN must meet NaN."""
    a = result.astype(np.float64).ravel()
    b = reference.astype(np.float64).ravel()
    finite = np.isfinite(b)
    same_special = (np.isnan(a) & np.isnan(b)) | (a == b)
    mismatches = int(np.count_nonzero(~finite & ~same_special))
    mismatches += int(np.count_nonzero(finite & ~np.isfinite(a)))
    both = finite & np.isfinite(a)
    if not both.any():
        return Distance(0.0, 0.0, 0.0, mismatches)
    difference = np.abs(a[both] - b[both])
    norm = float(np.linalg.norm(b[both]))
    l2 = float(np.linalg.norm(difference))
    return Distance(
        relative_l2=l2 / norm if norm > 0 else l2,
        max_abs=float(difference.max()),
        scale=norm / float(np.sqrt(both.sum())),
        non_finite_mismatches=mismatches,
    )


def integer_mismatches(result: Array, reference: Array) -> int:
    """Elements that differ, for types that are compared exactly."""
    return int(np.count_nonzero(result != reference))


def non_finite(values: Array) -> int:
    """Elements of a floating buffer that are NaN or infinite."""
    return int(np.count_nonzero(~np.isfinite(values)))


def is_small_integers(values: Array, limit: float) -> bool:
    """Whether every value is an integer no larger than `limit`: arithmetic on it was exact."""
    return bool(
        np.isfinite(values).all()
        and (np.abs(values) <= limit).all()
        and (values == np.rint(values)).all()
    )
