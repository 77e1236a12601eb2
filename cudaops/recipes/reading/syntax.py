"""What a kernel's body is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A literal as written."""

    text: str


@dataclass(frozen=True)
class Name:
    """A variable, parameter or constant."""

    text: str


@dataclass(frozen=True)
class Member:
    """`base.name`."""

    base: Expression
    name: str


@dataclass(frozen=True)
class Index:
    """`base[index]`."""

    base: Expression
    index: Expression


@dataclass(frozen=True)
class Call:
    """`function(arguments)`; `function` with template arguments as written."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Cast:
    """A conversion in any of C++'s spellings."""

    type: str
    operand: Expression


@dataclass(frozen=True)
class Unary:
    """`-x`, `!x`, `~x`, `*x`, `&x`, and `+x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Step:
    """`++x`, `x++`, `--x`, `x--`."""

    target: Expression
    by: int


@dataclass(frozen=True)
class Binary:
    """Two operands, assignment excluded."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Choice:
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Assign:
    """`target op= value`; `operator` is empty for a plain assignment."""

    target: Expression
    operator: str
    value: Expression


Expression = Number | Name | Member | Index | Call | Cast | Unary | Step | Binary | Choice | Assign


@dataclass(frozen=True)
class Declare:
    """One declared variable; its type normalised by `parser.normal_type`."""

    type: str
    name: str
    pointer: bool = False
    extents: tuple[Expression, ...] = ()
    shared: bool = False
    value: Expression | None = None
    zeroed: bool = False
    """Declared with `= {}` or `= {0}`."""


@dataclass(frozen=True)
class Evaluate:
    """An expression for its effect."""

    value: Expression


@dataclass(frozen=True)
class If:
    """`if (condition) yes else no`."""

    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class For:
    """A loop; `while` has neither `first` nor `step`."""

    first: tuple[Statement, ...]
    condition: Expression | None
    step: tuple[Expression, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Leave:
    """`return`, `break` or `continue`, without a value."""

    word: str


@dataclass(frozen=True)
class Give:
    """`return value`."""

    value: Expression


@dataclass(frozen=True)
class Block:
    """Statements with a scope of their own."""

    body: tuple[Statement, ...]


Statement = Declare | Evaluate | If | For | Leave | Give | Block
