"""Bilinear schemes that compute a short convolution with fewer products, each proved when loaded.

A scheme of rank R computes the outputs of one tile as

    denominator * output[i] = sum over p of out[i][p] * (data[p] . d) * (taps[p] . g)

with integer matrices: R products of sums of the data and sums of the taps. That this is the
convolution for all data and taps is a finite statement about integers, because both sides are
bilinear: it holds if it holds for each pair of unit vectors. `proved` checks all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Scheme:
    """F(outputs, taps): `outputs` neighbours of a correlation with `taps` coefficients."""

    data: Matrix
    """R rows, one coefficient for each of the outputs + taps - 1 elements read."""
    taps: Matrix
    """R rows, one coefficient for each tap."""
    out: Matrix
    """A row for each output, one coefficient for each of the R products."""
    denominator: int
    """What the sums of `out` are divided by. As one last division, so that whole numbers, which
    floats add and multiply exactly up to 2**24, stay exact."""

    @property
    def name(self) -> str:
        """As the literature writes it: `F(2,3)`."""
        return f"F({len(self.out)},{len(self.taps[0])})"

    @property
    def products(self) -> int:
        """Products for one tile; the definition takes outputs * taps."""
        return len(self.data)

    @property
    def holds(self) -> bool:
        """Whether it is the convolution for all data and taps: exact, over the integers."""
        rows = range(self.products)
        return all(
            sum(self.out[i][p] * self.data[p][j] * self.taps[p][k] for p in rows)
            == self.denominator * (j == i + k)
            for i in range(len(self.out))
            for j in range(len(self.data[0]))
            for k in range(len(self.taps[0]))
        )

    @property
    def growth(self) -> Fraction:
        """The scheme's bound of an output's rounding error over that of the definition.

        Both bounds are for data of at most d and taps of at most g: what is added up in absolute
        value, sum over p of |out[i][p]| |data[p]|_1 |taps[p]|_1 / denominator against taps * d * g.
        The largest over the outputs. (N. Higham, Accuracy and Stability of Numerical Algorithms,
        2nd edition, section 23.2.2: such schemes are stable in norm, not elementwise.)"""
        sizes = [_size(d) * _size(t) for d, t in zip(self.data, self.taps, strict=True)]
        sums = [sum(abs(c) * s for c, s in zip(row, sizes, strict=True)) for row in self.out]
        return Fraction(max(sums), self.denominator * len(self.taps[0]))


def _size(row: tuple[int, ...]) -> int:
    return sum(map(abs, row))


def proved(scheme: Scheme) -> Scheme:
    """The scheme, if it is the convolution. Raises ValueError if it is not."""
    if not scheme.holds:
        raise ValueError(f"{scheme.name} does not compute a convolution")
    return scheme


SCHEMES = (
    proved(
        Scheme(
            data=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
            taps=((1, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 1)),
            out=((2, 1, 1, 0), (0, 1, -1, -2)),
            denominator=2,
        )
    ),
    proved(
        Scheme(
            data=(
                (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
                (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
            ),
            taps=((1, 0, 0), (-1, -1, -1), (-1, 1, -1), (1, 2, 4), (1, -2, 4), (0, 0, 1)),
            out=(
                (6, 4, 4, 1, 1, 0), (0, 4, -4, 2, -2, 0), (0, 4, 4, 4, 4, 0), (0, 4, -4, 8, -8, 24),
            ),
            denominator=24,
        )
    ),
)  # fmt: skip
"""Winograd's minimal filtering for three taps, fewest outputs first. Source: A. Lavin and S. Gray,
Fast Algorithms for Convolutional Neural Networks (CVPR 2016), section 4, with the fractions of the
taps' matrix moved into `denominator`."""
