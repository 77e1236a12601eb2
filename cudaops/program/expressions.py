"""The checked evaluator of plan expressions. Nothing here calls `eval`.

Arithmetic is C's on signed 64-bit integers: division truncates towards zero, overflow and division
by zero are errors. Floating arguments are doubles. A pointer plus an integer moves by elements.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from cudaops.domain.workload import OpaqueArgument
from cudaops.errors import PlanError
from cudaops.program.grammar import MAX_LENGTH, SIZE_OF, Parser, unknown_size
from cudaops.program.launch_expression import (
    CHOICE,
    FUNCTIONS,
    Constant,
    LaunchExpression,
    Operation,
    Variable,
    build,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
ALIGNMENTS = frozenset(2**n for n in range(9))
"""Bytes that `aligned` knows. Source: CUDA C++ Programming Guide, device memory accesses: what
cudaMalloc gives is aligned to 256 at least, so that an offset in it tells."""

_ORDERS = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
_SUMS = {"+": operators.add, "-": operators.sub, "*": operators.mul}


@dataclass(frozen=True)
class PointerValue:
    """A pointer an expression yields: into an allocation or a scratch buffer."""

    allocation: int | None = None
    scratch: str | None = None
    offset_bytes: int = 0
    element_bytes: int = 1


@dataclass(frozen=True)
class NullPointer:
    """A null pointer; equal to 0 in comparisons."""


@dataclass(frozen=True)
class OpaqueValue:
    """A structure passed by value; only handed on whole."""

    argument: OpaqueArgument


ExpressionValue = int | float | PointerValue | NullPointer | OpaqueValue
Environment = Mapping[str, ExpressionValue]


@dataclass(frozen=True)
class Expression:
    """A `LaunchExpression` that knows how it is spelled and where it is, for its errors."""

    text: str
    root: LaunchExpression
    line: int
    column: int

    def names(self) -> frozenset[str]:
        """Every name it needs, members as `gridDim.x` and `task.rows`."""
        return self.root.names()

    def name_columns(self) -> dict[str, int]:
        """Column of each name's first use."""
        found: dict[str, int] = {}
        for node in self.root.walk():
            if isinstance(node, Variable):
                found.setdefault(node.name, self.column + node.at)
        return found

    def evaluate(self, env: Environment) -> ExpressionValue:
        """Its value with these names. Raises PlanError with the place of the fault."""
        return _Evaluation(self, env).value(self.root)


def parse(text: str, line: int = 1, column: int = 1) -> Expression:
    """Read one expression that is at `line`:`column`. Raises PlanError."""
    if len(text) > MAX_LENGTH:
        raise PlanError(f"expression is longer than {MAX_LENGTH} characters", line, column)
    return Expression(text, Parser(text, line, column).expression(), line, column)


def evaluate(expression: LaunchExpression, env: Environment) -> ExpressionValue:
    """The value of an expression that stands nowhere yet. Raises PlanError."""
    return Expression(str(expression), expression, 1, 1).evaluate(env)


def folded(expression: LaunchExpression) -> LaunchExpression:
    """A number where it names nothing and has a value, or itself."""
    try:
        value = None if expression.names() else evaluate(expression, {})
    except PlanError:
        return expression
    return build(value) if isinstance(value, int | float) else expression


class _Evaluation:
    def __init__(self, expression: Expression, env: Environment) -> None:
        self.expression, self.env = expression, env

    def fail(self, message: str, at: int) -> NoReturn:
        raise PlanError(message, self.expression.line, self.expression.column + at)

    def value(self, node: LaunchExpression) -> ExpressionValue:
        match node:
            case Constant(value=value):
                return value
            case Variable(name=name, at=at):
                if name not in self.env:
                    is_size = name.startswith(SIZE_OF)
                    self.fail(unknown_size(name) if is_size else f"unknown name `{name}`", at)
                return self.env[name]
            case Operation(operator=operator) if operator in FUNCTIONS:
                return self._called(node)
            case Operation("!", (operand,)):
                return int(not self._truth(operand))
            case Operation("-", (operand,), at):
                return self._checked(-self._number(operand), at)
            case Operation(operator, (condition, yes, no)) if operator == CHOICE:
                return self.value(yes if self._truth(condition) else no)
            case Operation("&&", (left, right)):
                return int(self._truth(left) and self._truth(right))
            case Operation("||", (left, right)):
                return int(self._truth(left) or self._truth(right))
            case Operation():
                return self._binary(node)
        raise TypeError(f"no launch expression: {node!r}")

    def _binary(self, node: Operation) -> ExpressionValue:
        left, right = (self.value(x) for x in node.operands)
        if node.operator in ("==", "!="):
            return int((_comparable(left) == _comparable(right)) == (node.operator == "=="))
        if isinstance(left, PointerValue) or isinstance(right, PointerValue):
            return self._moved(node, left, right)
        one, other = node.operands
        return self._arithmetic(
            node, self._as_number(left, one.at), self._as_number(right, other.at)
        )

    def _moved(
        self, node: Operation, left: ExpressionValue, right: ExpressionValue
    ) -> PointerValue:
        if node.operator == "+" and isinstance(right, PointerValue):
            left, right = right, left
        if (
            node.operator not in ("+", "-")
            or not isinstance(left, PointerValue)
            or not isinstance(right, int)
        ):
            self.fail("a pointer takes only + and - with an integer", node.at)
        steps = right if node.operator == "+" else -right
        offset = self._checked(left.offset_bytes + steps * left.element_bytes, node.at)
        return PointerValue(left.allocation, left.scratch, int(offset), left.element_bytes)

    def _arithmetic(self, node: Operation, left: int | float, right: int | float) -> int | float:
        if node.operator in _ORDERS:
            return int(_ORDERS[node.operator](left, right))
        if node.operator in _SUMS:
            return self._checked(_SUMS[node.operator](left, right), node.at)
        return self._divided(node, left, right)

    def _divided(self, node: Operation, left: int | float, right: int | float) -> int | float:
        if right == 0:
            self.fail("division by zero", node.at)
        if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return self._checked(
                quotient if node.operator == "/" else left - quotient * right, node.at
            )
        if node.operator == "%":
            self.fail("`%` needs integers", node.at)
        return left / right

    def _aligned(self, node: Operation) -> int:
        """Whether a pointer of the author's launch is a multiple of so many bytes."""
        pointer, unit = self.value(node.operands[0]), self._number(node.operands[1])
        if not isinstance(unit, int) or unit not in ALIGNMENTS:
            self.fail(f"aligned to {unit} bytes; it must be a power of two up to 256", node.at)
        if isinstance(pointer, NullPointer):
            return 1
        if not isinstance(pointer, PointerValue) or pointer.allocation is None:
            self.fail("aligned takes a pointer of the author's; scratch memory always is", node.at)
        return int(pointer.offset_bytes % unit == 0)

    def _called(self, node: Operation) -> int | float:
        if node.operator == "aligned":
            return self._aligned(node)
        left, right = (self._number(a) for a in node.operands)
        if node.operator == "min":
            return min(left, right)
        if node.operator == "max":
            return max(left, right)
        if not isinstance(left, int) or not isinstance(right, int):
            self.fail("ceil_div needs integers", node.at)
        if right <= 0:
            self.fail(f"ceil_div by {right}; the divisor must be positive", node.at)
        return self._checked(-(-left // right), node.at)

    def _checked(self, value: int | float, at: int) -> int | float:
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            self.fail("overflow of a 64-bit integer", at)
        return value

    def _number(self, node: LaunchExpression) -> int | float:
        return self._as_number(self.value(node), node.at)

    def _as_number(self, value: ExpressionValue, at: int) -> int | float:
        if not isinstance(value, int | float):
            self.fail("expected a number, not a pointer or a structure", at)
        return value

    def _truth(self, node: LaunchExpression) -> bool:
        value = self.value(node)
        if isinstance(value, OpaqueValue):
            self.fail("a structure is neither true nor false", node.at)
        return not isinstance(value, NullPointer) and (
            isinstance(value, PointerValue) or value != 0
        )


def _comparable(value: ExpressionValue) -> object:
    return 0 if isinstance(value, NullPointer) else value
