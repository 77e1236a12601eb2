"""What an expression of a kernel stands for, with unknowns in place of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cudaops.program.analysis.polynomials import Polynomial, Symbol, number
from cudaops.program.syntax import NotUnderstood

RANK = {
    "bool": 0, "int": 1, "unsigned": 2, "long long": 3, "unsigned long long": 4, "float": 5,
    "double": 6,
}  # fmt: skip
"""Arithmetic types in the order of the usual conversions (C++ [expr.arith.conv], LP64)."""

INTEGERS = frozenset({"int", "unsigned", "long long", "unsigned long long"})
FLOATS = frozenset({"float", "double"})


@dataclass(frozen=True)
class SymbolicInteger:
    """An integer known as a polynomial."""

    value: Polynomial
    type: str = "int"


@dataclass(frozen=True)
class Literal:
    """A floating literal as written."""

    text: str
    type: str


@dataclass(frozen=True)
class Scalar:
    """A floating parameter passed by value."""

    name: str
    type: str


@dataclass(frozen=True)
class SymbolicPointer:
    """A pointer parameter, moved by `offset` elements."""

    array: str
    offset: Polynomial
    type: str
    shared: bool = False
    indices: tuple[Polynomial, ...] = ()
    """Indices given so far into a shared array of several dimensions."""


@dataclass(frozen=True)
class SymbolicStructure:
    """A structure passed by value, or one in it; `name` is its path: `A`, `A.shape`. Empty for a
    local one, of which nothing is known but what was assigned."""

    name: str
    type: str
    fields: tuple[tuple[str, Value], ...] = ()
    """Those that were assigned."""

    def with_field(self, name: str, value: Value) -> SymbolicStructure:
        """After an assignment."""
        return replace(self, fields=(*((n, v) for n, v in self.fields if n != name), (name, value)))


@dataclass(frozen=True)
class GlobalLoad:
    """What stands in global memory at `array[index]` when the kernel starts."""

    array: str
    index: Polynomial
    type: str


@dataclass(frozen=True)
class SharedLoad:
    """What stands in shared memory."""

    array: str
    indices: tuple[Polynomial, ...]
    type: str


@dataclass(frozen=True)
class Below:
    """The condition `value < 0`."""

    value: Polynomial
    type: str = "bool"


@dataclass(frozen=True)
class Apply:
    """An operator, a function of C's mathematics, `cast`, `fma`, `?:` or `neg`, applied."""

    operator: str
    operands: tuple[Value, ...]
    type: str


@dataclass(frozen=True)
class Carried:
    """A variable's value at the start of a loop's iteration."""

    name: str
    type: str


@dataclass(frozen=True)
class Reduced:
    """first + the sum of `term` over variable = 0 .. count-1, added up in a variable of `type`."""

    first: Value
    variable: Symbol
    count: Polynomial
    term: Value
    type: str


Value = (
    SymbolicInteger | Literal | Scalar | SymbolicPointer | SymbolicStructure | GlobalLoad
    | SharedLoad | Below | Apply | Carried | Reduced
)  # fmt: skip


def parts(value: Value) -> Iterator[Value]:
    """`value` and everything in it."""
    yield value
    if isinstance(value, Apply):
        for operand in value.operands:
            yield from parts(operand)
    elif isinstance(value, Reduced):
        yield from parts(value.first)
        yield from parts(value.term)


def joint_type(left: str, right: str) -> str:
    """Type of an arithmetic operation on these. Raises NotUnderstood for one not in RANK."""
    if left not in RANK or right not in RANK:
        raise NotUnderstood(f"arithmetic on {left if left not in RANK else right}")
    highest = max(left, right, key=RANK.__getitem__)
    return "int" if highest == "bool" else highest


def negated(condition: Value) -> Value:
    """The opposite condition."""
    if isinstance(condition, Below):
        return Below(-condition.value - number(1))
    if isinstance(condition, Apply) and condition.operator == "!":
        return condition.operands[0]
    if isinstance(condition, Apply) and condition.operator in ("&&", "||"):
        other = "||" if condition.operator == "&&" else "&&"
        return Apply(other, tuple(negated(o) for o in condition.operands), "bool")
    return Apply("!", (condition,), "bool")


def conjuncts(condition: Value) -> tuple[Value, ...]:
    """The conditions that must all hold."""
    if isinstance(condition, Apply) and condition.operator == "&&":
        return tuple(c for o in condition.operands for c in conjuncts(o))
    return (condition,)


def is_zero(value: Value) -> bool:
    """Whether it is the number 0 in any spelling."""
    if isinstance(value, SymbolicInteger):
        return value.value.constant == 0
    if isinstance(value, Literal):
        return float(value.text.rstrip("fFlL")) == 0
    return isinstance(value, Apply) and value.operator == "cast" and is_zero(value.operands[0])


def converted(value: Value, to: str) -> Value:
    """`value` as a variable of type `to` holds it. Raises NotUnderstood where that may lose."""
    if to in ("auto", value.type):
        return value
    if isinstance(value, SymbolicInteger) and to in INTEGERS:
        if to.startswith("unsigned") and not value.value.sure_nonnegative:
            raise NotUnderstood("a difference as an unsigned number")
        return SymbolicInteger(value.value, to)
    if to in FLOATS and value.type in RANK and not isinstance(value, SymbolicPointer | Below):
        return Apply("cast", (value,), to)
    if to in INTEGERS and value.type in INTEGERS:
        return Apply("cast", (value,), to)
    raise NotUnderstood(f"a {value.type} as {to}")
