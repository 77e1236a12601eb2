"""Integer polynomials over the unknowns of a launch: how a kernel computes its indices.

Arithmetic is that of the integers: a C program in which an index overflows is outside its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cudaops.program.launch_expression import (
    ZERO,
    LaunchExpression,
    Variable,
    binary,
    product,
)


@dataclass(frozen=True, repr=False)
class Symbol:
    """An unknown: `threadIdx.x`, a parameter, a loop variable."""

    name: str

    def __repr__(self) -> str:
        """Terms are sorted by it; what `dataclass` makes looks out for cycles and takes longer."""
        return f"Symbol(name={self.name!r})"


@dataclass(frozen=True, repr=False)
class _Division:
    dividend: Polynomial
    divisor: Polynomial

    def __repr__(self) -> str:
        return self._spelled

    @cached_property
    def _spelled(self) -> str:
        return f"{type(self).__name__}(dividend={self.dividend!r}, divisor={self.divisor!r})"


@dataclass(frozen=True, repr=False)
class Quotient(_Division):
    """Integer division, rounded towards zero, that could not be carried out."""


@dataclass(frozen=True, repr=False)
class Remainder(_Division):
    """Remainder of the same division."""


Atom = Symbol | Quotient | Remainder
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of integer multiples of products of atoms, in one canonical order."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @property
    def constant(self) -> int | None:
        """Its value where it has no unknown."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def sure_nonnegative(self) -> bool:
        """True where no sign in it can make it negative, unknowns being non-negative."""
        return all(coefficient > 0 for _, coefficient in self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        if not self.terms or not other.terms:
            return other if other.terms else self
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _canonical(total)

    def __neg__(self) -> Polynomial:
        return Polynomial(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                both = left + right
                monomial = tuple(sorted(both, key=repr)) if left and right else both
                total[monomial] = total.get(monomial, 0) + a * b
        return _canonical(total)

    def atoms(self) -> Iterator[Atom]:
        """Every atom, those inside quotients and remainders included."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                if not isinstance(atom, Symbol):
                    yield from atom.dividend.atoms()
                    yield from atom.divisor.atoms()

    def has(self, atom: Atom) -> bool:
        """Whether it depends on this atom, at any depth."""
        return any(a == atom for a in self.atoms())

    def linear_in(self, atom: Atom) -> tuple[Polynomial, Polynomial] | None:
        """(a, b) with self = a * atom + b, neither depending on it; None where it is not so."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            if atom in monomial:
                left = list(monomial)
                left.remove(atom)
                factor[tuple(left)] = coefficient
            else:
                rest[monomial] = coefficient
        a, b = _canonical(factor), _canonical(rest)
        return None if a.has(atom) or b.has(atom) else (a, b)

    def replace(self, values: Mapping[Atom, Polynomial]) -> Polynomial:
        """With these atoms replaced everywhere, inside quotients and remainders too."""
        total = Polynomial()
        for monomial, coefficient in self.terms:
            product = number(coefficient)
            for atom in monomial:
                product = product * _replace_atom(atom, values)
            total = total + product
        return total

    def launch_expression(
        self, of: Callable[[str], LaunchExpression] = Variable
    ) -> LaunchExpression:
        """What the host computes for it; `of`: for a symbol."""
        total: LaunchExpression | None = None
        for monomial, coefficient in self.terms:
            term = product([abs(coefficient), *(_launch_atom(atom, of) for atom in monomial)])
            if total is None:
                total = term if coefficient > 0 else -term
            else:
                total = total + term if coefficient > 0 else total - term
        return ZERO if total is None else total

    def text(self, spell: Callable[[str], str] = lambda name: name) -> str:
        """The C spelling. `spell` renames symbols."""
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [_spell_atom(atom, spell) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f"{sign} {' * '.join(factors)}")
        joined = " ".join(parts)
        return joined[2:] if joined.startswith("+") else "-" + joined[2:]


def number(value: int) -> Polynomial:
    """A constant."""
    return Polynomial(((((), value)),) if value else ())


def symbol(name: str) -> Polynomial:
    """An unknown of this name."""
    return of(Symbol(name))


def of(atom: Atom) -> Polynomial:
    """The polynomial that is this atom."""
    return Polynomial((((atom,), 1),))


def divide(dividend: Polynomial, divisor: Polynomial) -> Polynomial:
    """dividend / divisor as C computes it for non-negative operands."""
    exact = _exact(dividend, divisor)
    if exact is not None:
        return exact
    a, b = dividend.constant, divisor.constant
    if a is not None and b and a >= 0 and b > 0:
        return number(a // b)
    return of(Quotient(dividend, divisor))


def remainder(dividend: Polynomial, divisor: Polynomial) -> Polynomial:
    """dividend % divisor as C computes it for non-negative operands."""
    if _exact(dividend, divisor) is not None:
        return number(0)
    a, b = dividend.constant, divisor.constant
    if a is not None and b and a >= 0 and b > 0:
        return number(a % b)
    return of(Remainder(dividend, divisor))


def recombined(value: Polynomial) -> Polynomial:
    """With `(a / b) * b + a % b` as `a`, wherever both stand with the same factors."""
    for monomial, coefficient in value.terms:
        for atom in monomial:
            if not isinstance(atom, Remainder):
                continue
            rest = list(monomial)
            rest.remove(atom)
            others = Polynomial(((tuple(rest), coefficient),))
            whole = of(Quotient(atom.dividend, atom.divisor)) * atom.divisor * others
            if set(whole.terms) <= set(value.terms):
                left = value - whole - of(atom) * others
                return recombined(left + atom.dividend * others)
    return value


def _exact(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """The quotient where the divisor is one monomial that divides every term."""
    if len(divisor.terms) != 1:
        return None
    factors, scale = divisor.terms[0]
    result: dict[Monomial, int] = {}
    for monomial, coefficient in dividend.terms:
        left = list(monomial)
        for atom in factors:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % scale:
            return None
        result[tuple(left)] = coefficient // scale
    return _canonical(result)


def _replace_atom(atom: Atom, values: Mapping[Atom, Polynomial]) -> Polynomial:
    if atom in values:
        return values[atom]
    if isinstance(atom, Symbol):
        return of(atom)
    dividend, divisor = atom.dividend.replace(values), atom.divisor.replace(values)
    if isinstance(atom, Quotient):
        return divide(dividend, divisor)
    return remainder(dividend, divisor)


def _launch_atom(atom: Atom, of: Callable[[str], LaunchExpression]) -> LaunchExpression:
    if isinstance(atom, Symbol):
        return of(atom.name)
    sides = atom.dividend.launch_expression(of), atom.divisor.launch_expression(of)
    return binary("/" if isinstance(atom, Quotient) else "%", *sides)


def _spell_atom(atom: Atom, spell: Callable[[str], str]) -> str:
    if isinstance(atom, Symbol):
        return spell(atom.name)
    sign = "/" if isinstance(atom, Quotient) else "%"
    return f"(({atom.dividend.text(spell)}) {sign} ({atom.divisor.text(spell)}))"


def _canonical(terms: Mapping[Monomial, int]) -> Polynomial:
    kept = [(monomial, c) for monomial, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda term: (not term[0], repr(term[0])))
    return Polynomial(tuple(kept))
