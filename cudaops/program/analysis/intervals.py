"""Intervals of integers: what a value of a kernel can be, as far as is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cudaops.program.analysis.polynomials import Atom, Polynomial, Quotient, Symbol


@dataclass(frozen=True)
class Interval:
    """low .. high, both included; None where there is no bound."""

    low: int | None = None
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        """No integer is in it: the place is never reached."""
        return self.low is not None and self.high is not None and self.low > self.high

    @property
    def is_nonnegative(self) -> bool:
        """Whether every integer in it is 0 or more."""
        return self.low is not None and self.low >= 0

    @property
    def constant(self) -> int | None:
        """Its only integer."""
        return self.low if self.low == self.high else None

    def __add__(self, other: Interval) -> Interval:
        return Interval(_sum(self.low, other.low), _sum(self.high, other.high))

    def __neg__(self) -> Interval:
        return Interval(_negated(self.high), _negated(self.low))

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        if self.low == self.high == 0 or other.low == other.high == 0:
            return Interval(0, 0)
        a, b, c, d = self.low, self.high, other.low, other.high
        if a is not None and b is not None and c is not None and d is not None:
            products = (a * c, a * d, b * c, b * d)
            return Interval(min(products), max(products))
        if self.is_nonnegative and other.is_nonnegative:
            assert self.low is not None
            assert other.low is not None
            return Interval(self.low * other.low, None)
        return Interval()

    def divided_by(self, other: Interval) -> Interval:
        """By a positive divisor, rounded towards zero as in C."""
        if other.low is None or other.low <= 0:
            return Interval()
        low = _quotient(self.low, other.low if (self.low or 0) < 0 else other.high)
        high = _quotient(self.high, other.high if (self.high or 0) < 0 else other.low)
        return Interval(low if self.low is not None else None, high)

    def remainder_by(self, other: Interval) -> Interval:
        """Of a division by a positive divisor, with the dividend's sign as in C."""
        if other.low is None or other.low <= 0:
            return Interval()
        most = None if other.high is None else other.high - 1
        if not self.is_nonnegative:
            return Interval(_negated(most), most)
        if self.high is not None and self.high < other.low:
            return self
        return Interval(0, _least(self.high, most))

    def meet(self, other: Interval) -> Interval:
        """What is in both."""
        return Interval(_greatest(self.low, other.low), _least(self.high, other.high))

    def join(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        low = None if None in (self.low, other.low) else _least(self.low, other.low)
        high = None if None in (self.high, other.high) else _greatest(self.high, other.high)
        return Interval(low, high)

    def within(self, other: Interval) -> bool:
        """Whether every integer in it is in `other`."""
        return self.meet(other) == self

    def text(self) -> str:
        """`0..1023`; an open end is left out."""
        low, high = ("" if end is None else str(end) for end in (self.low, self.high))
        return f"{low}..{high}"


_BITS = {
    "bool": (0, 1), "char": (1, 8), "signed char": (1, 8), "unsigned char": (0, 8),
    "short": (1, 16), "unsigned short": (0, 16), "int": (1, 32), "unsigned": (0, 32),
    "long long": (1, 64), "unsigned long long": (0, 64),
}  # fmt: skip
"""(is signed, bits), on LP64; Source: CUDA C++ Programming Guide, built-in types."""

INTEGERS = frozenset(_BITS)


def of_type(kind: str) -> Interval:
    """All values of an integer type; without bounds for any other type."""
    if kind not in _BITS:
        return Interval()
    signed, bits = _BITS[kind]
    return Interval(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


def of_polynomial(value: Polynomial, of_symbol: Callable[[Symbol], Interval]) -> Interval:
    """The interval of a polynomial over symbols of known intervals."""
    total = Interval(0, 0)
    for monomial, coefficient in value.terms:
        product = Interval(coefficient, coefficient)
        for atom in monomial:
            product = product * _of_atom(atom, of_symbol)
        total = total + product
    return total


def _of_atom(atom: Atom, of_symbol: Callable[[Symbol], Interval]) -> Interval:
    if isinstance(atom, Symbol):
        return of_symbol(atom)
    dividend = of_polynomial(atom.dividend, of_symbol)
    divisor = of_polynomial(atom.divisor, of_symbol)
    if isinstance(atom, Quotient):
        return dividend.divided_by(divisor)
    return dividend.remainder_by(divisor)


def around(intervals: Iterable[Interval]) -> Interval:
    """The smallest interval around all of them, of which there is at least one."""
    first, *rest = intervals
    for other in rest:
        first = first.join(other)
    return first


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _negated(a: int | None) -> int | None:
    return None if a is None else -a


def _least(a: int | None, b: int | None) -> int | None:
    return min((x for x in (a, b) if x is not None), default=None)


def _greatest(a: int | None, b: int | None) -> int | None:
    return max((x for x in (a, b) if x is not None), default=None)


def _quotient(a: int | None, b: int | None) -> int | None:
    if a is None:
        return None
    if b is None:
        return 0  # by however much
    return a // b if a >= 0 else -(-a // b)
