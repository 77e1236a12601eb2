"""Expressions of a launch plan as values: an extent, an argument, a condition.

A `LaunchExpression` is a tree of constants, variables of the author's launch and operations. It is
built with Python's operators, compared and hashed by its structure, printed as a directive spells
it and evaluated by `expressions.evaluate`. A condition is one whose value is a truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NoReturn

ROOTS = ("gridDim", "blockDim")
FUNCTIONS = ("ceil_div", "min", "max", "aligned")
CHOICE = "?:"
"""The operator of `condition ? yes : no`."""
PRECEDENCE = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}  # fmt: skip
_UNARY, _PRIMARY = 7, 8


def _of(operator: str) -> Callable[[LaunchExpression, Operand], LaunchExpression]:
    return lambda left, right: binary(operator, left, right)


class LaunchExpression:
    """An integer, floating number or pointer that the host computes for a launch.

    Arithmetic is C's on signed 64-bit integers, as plans have it. `==` compares structure;
    `equals` builds the condition.
    """

    at: int

    __add__ = _of("+")
    __sub__ = _of("-")
    __mul__ = _of("*")
    __truediv__ = _of("/")
    """C's division, which truncates integers towards zero."""
    __mod__ = _of("%")
    __lt__ = _of("<")
    __le__ = _of("<=")
    __gt__ = _of(">")
    __ge__ = _of(">=")
    __and__ = _of("&&")
    __or__ = _of("||")
    equals = _of("==")
    """The condition that both have one value."""
    differs = _of("!=")
    """The condition that they have not."""

    def __rsub__(self, other: int) -> LaunchExpression:
        return binary("-", other, self)

    def __rmul__(self, other: int) -> LaunchExpression:
        return binary("*", other, self)

    def __neg__(self) -> LaunchExpression:
        return Operation("-", (self,))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"`{self}` has no truth before a launch")

    @property
    def integer(self) -> int | None:
        """Its value where it is an integer literal."""
        return self.value if isinstance(self, Constant) and isinstance(self.value, int) else None

    def walk(self) -> Iterator[LaunchExpression]:
        """Itself and all below it, from left to right."""
        yield self
        for operand in self.operands if isinstance(self, Operation) else ():
            yield from operand.walk()

    def names(self) -> frozenset[str]:
        """Every variable in it, members as `gridDim.x` and `task.rows`."""
        return frozenset(x.name for x in self.walk() if isinstance(x, Variable))

    @property
    def divides(self) -> bool:
        """Whether it has a `/` or `%`, whose divisor another condition may have to exclude as 0."""
        return any(isinstance(x, Operation) and x.operator in ("/", "%") for x in self.walk())

    def substitute(self, values: Mapping[str, LaunchExpression]) -> LaunchExpression:
        """With these in place of variables."""
        if isinstance(self, Variable):
            return values.get(self.name, self)
        if not isinstance(self, Operation):
            return self
        changed = tuple(x.substitute(values) for x in self.operands)
        return self if changed == self.operands else Operation(self.operator, changed, self.at)


@dataclass(frozen=True, eq=False)
class Constant(LaunchExpression):
    """A literal, never negative; `build` negates."""

    value: int | float
    at: int = field(default=0, repr=False)
    text: str = field(default="", repr=False)
    """How its author spelled it: `0x10`, `sizeof(float)`; empty where nobody did."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[type, int | float]:
        return type(self.value), self.value  # 1 and 1.0 divide differently

    def __str__(self) -> str:
        return self.text or repr(self.value)


@dataclass(frozen=True)
class Variable(LaunchExpression):
    """A name of the author's launch, `gridDim.x`, a member as `task.rows`, and `sizeof(T)` of a
    type that is not built in."""

    name: str
    at: int = field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operation(LaunchExpression):
    """An operator or a function: `-x` and `!x` of one operand, `CHOICE` of three, others of two."""

    operator: str
    operands: tuple[LaunchExpression, ...]
    at: int = field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        if self.operator in FUNCTIONS:
            return f"{self.operator}({', '.join(map(str, self.operands))})"
        if self.operator == CHOICE:
            condition, yes, no = self.operands
            return f"{_within(condition, 1)} ? {yes} : {no}"
        if len(self.operands) == 1:
            return f"{self.operator}{_within(self.operands[0], _PRIMARY)}"
        own = PRECEDENCE[self.operator]
        left, right = self.operands
        texts = _within(left, own, self.operator), _within(right, own + 1, self.operator)
        return f" {self.operator} ".join(texts)


Operand = LaunchExpression | int | float


def _precedence(x: LaunchExpression) -> int:
    if not isinstance(x, Operation) or x.operator in FUNCTIONS:
        return _PRIMARY
    if x.operator == CHOICE:
        return 0
    return _UNARY if len(x.operands) == 1 else PRECEDENCE[x.operator]


def _within(x: LaunchExpression, least: int, operator: str = "") -> str:
    """As an operand: in parentheses where its own operator binds less than `least`, and for `&&`
    within `||`, which compilers warn about."""
    own = _precedence(x)
    mixed = operator == "||" and own == PRECEDENCE["&&"]
    return f"({x})" if own < least or mixed else str(x)


# Building


def build(value: Operand) -> LaunchExpression:
    """A number as an expression; an expression as it is."""
    if isinstance(value, LaunchExpression):
        return value
    return Operation("-", (Constant(-value),)) if repr(value)[0] == "-" else Constant(value)


def binary(operator: str, left: Operand, right: Operand) -> LaunchExpression:
    """An operator or function of two operands."""
    return Operation(operator, (build(left), build(right)))


ZERO, ONE = Constant(0), Constant(1)


def ceil_div(x: Operand, by: Operand) -> LaunchExpression:
    """x / by, rounded up."""
    return binary("ceil_div", x, by)


def minimum(x: Operand, y: Operand) -> LaunchExpression:
    """The smaller of the two."""
    return binary("min", x, y)


def maximum(x: Operand, y: Operand) -> LaunchExpression:
    """The larger of the two."""
    return binary("max", x, y)


def aligned(pointer: LaunchExpression, unit: int) -> LaunchExpression:
    """The condition that a pointer is a multiple of so many bytes."""
    return binary("aligned", pointer, unit)


def product(factors: Iterable[Operand]) -> LaunchExpression:
    """Of all but ones, from the left."""
    listed = [x for x in map(build, factors) if x != ONE]
    return reduce(LaunchExpression.__mul__, listed) if listed else ONE


def below(x: LaunchExpression, bound: LaunchExpression) -> LaunchExpression:
    """The condition x < bound; for `n - 1`, that n is at most the bound."""
    match x:
        case Operation("-", (count, Constant(1))):
            return count <= bound
    return x < bound
