"""The checked evaluator of plan expressions. Nothing here calls `eval`.

Arithmetic is C's on signed 64-bit integers: division truncates towards zero, overflow and division
by zero are errors. Floating arguments are doubles. A pointer plus an integer moves by elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from cudaops.domain.workload import OpaqueArgument
from cudaops.errors import PlanError
from cudaops.program.grammar import (
    MAX_LENGTH,
    SIZE_OF,
    Binary,
    Call,
    Choice,
    Name,
    Node,
    Number,
    Parser,
    Unary,
    unknown_size,
    walk,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
ALIGNMENTS = frozenset(2**n for n in range(9))
"""Bytes that `aligned` knows. Source: CUDA C++ Programming Guide, device memory accesses: what
cudaMalloc gives is aligned to 256 at least, so that an offset in it tells."""


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
    """A parsed expression that knows where it stands, for its errors."""

    text: str
    root: Node
    line: int
    column: int

    def names(self) -> frozenset[str]:
        """Every name it needs, members as `gridDim.x` and `task.rows`."""
        return frozenset(n.text for n in walk(self.root) if isinstance(n, Name))

    def name_columns(self) -> dict[str, int]:
        """Column of each name's first use."""
        found: dict[str, int] = {}
        for node in walk(self.root):
            if isinstance(node, Name):
                found.setdefault(node.text, self.column + node.at)
        return found

    def evaluate(self, env: Environment) -> ExpressionValue:
        """Its value with these names. Raises PlanError with the place of the fault."""
        return _Evaluation(self, env).value(self.root)


def parse(text: str, line: int = 1, column: int = 1) -> Expression:
    """Read one expression that stands at `line`:`column`. Raises PlanError."""
    if len(text) > MAX_LENGTH:
        raise PlanError(f"expression is longer than {MAX_LENGTH} characters", line, column)
    return Expression(text, Parser(text, line, column).expression(), line, column)


class _Evaluation:
    def __init__(self, expression: Expression, env: Environment) -> None:
        self.expression, self.env = expression, env

    def fail(self, message: str, at: int) -> NoReturn:
        raise PlanError(message, self.expression.line, self.expression.column + at)

    def value(self, node: Node) -> ExpressionValue:
        match node:
            case Number(value=value):
                return value
            case Name(text=text, at=at):
                if text not in self.env:
                    is_size = text.startswith(SIZE_OF)
                    self.fail(unknown_size(text) if is_size else f"unknown name `{text}`", at)
                return self.env[text]
            case Unary(op="!", operand=operand):
                return int(not self._truth(operand))
            case Unary(operand=operand, at=at):
                return self._checked(-self._number(operand), at)
            case Choice(condition=condition, yes=yes, no=no):
                return self.value(yes if self._truth(condition) else no)
            case Call():
                return self._called(node)
            case Binary():
                return self._binary(node)

    def _binary(self, node: Binary) -> ExpressionValue:
        if node.op in ("&&", "||"):
            short = self._truth(node.left)
            return int(
                short and self._truth(node.right)
                if node.op == "&&"
                else short or self._truth(node.right)
            )
        left, right = self.value(node.left), self.value(node.right)
        if node.op in ("==", "!="):
            return int((_comparable(left) == _comparable(right)) == (node.op == "=="))
        if isinstance(left, PointerValue) or isinstance(right, PointerValue):
            return self._moved(node, left, right)
        return self._arithmetic(
            node, self._as_number(left, node.left.at), self._as_number(right, node.right.at)
        )

    def _moved(self, node: Binary, left: ExpressionValue, right: ExpressionValue) -> PointerValue:
        if node.op == "+" and isinstance(right, PointerValue):
            left, right = right, left
        if (
            node.op not in ("+", "-")
            or not isinstance(left, PointerValue)
            or not isinstance(right, int)
        ):
            self.fail("a pointer takes only + and - with an integer", node.at)
        steps = right if node.op == "+" else -right
        offset = self._checked(left.offset_bytes + steps * left.element_bytes, node.at)
        return PointerValue(left.allocation, left.scratch, int(offset), left.element_bytes)

    def _arithmetic(self, node: Binary, left: int | float, right: int | float) -> int | float:
        match node.op:
            case "<":
                return int(left < right)
            case "<=":
                return int(left <= right)
            case ">":
                return int(left > right)
            case ">=":
                return int(left >= right)
            case "+":
                return self._checked(left + right, node.at)
            case "-":
                return self._checked(left - right, node.at)
            case "*":
                return self._checked(left * right, node.at)
        return self._divided(node, left, right)

    def _divided(self, node: Binary, left: int | float, right: int | float) -> int | float:
        if right == 0:
            self.fail("division by zero", node.at)
        if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return self._checked(quotient if node.op == "/" else left - quotient * right, node.at)
        if node.op == "%":
            self.fail("`%` needs integers", node.at)
        return left / right

    def _aligned(self, node: Call) -> int:
        """Whether a pointer of the author's launch is a multiple of so many bytes."""
        pointer, unit = self.value(node.arguments[0]), self._number(node.arguments[1])
        if not isinstance(unit, int) or unit not in ALIGNMENTS:
            self.fail(f"aligned to {unit} bytes; it must be a power of two up to 256", node.at)
        if isinstance(pointer, NullPointer):
            return 1
        if not isinstance(pointer, PointerValue) or pointer.allocation is None:
            self.fail("aligned takes a pointer of the author's; scratch memory always is", node.at)
        return int(pointer.offset_bytes % unit == 0)

    def _called(self, node: Call) -> int | float:
        if node.function == "aligned":
            return self._aligned(node)
        left, right = (self._number(a) for a in node.arguments)
        if node.function == "min":
            return min(left, right)
        if node.function == "max":
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

    def _number(self, node: Node) -> int | float:
        return self._as_number(self.value(node), node.at)

    def _as_number(self, value: ExpressionValue, at: int) -> int | float:
        if not isinstance(value, int | float):
            self.fail("expected a number, not a pointer or a structure", at)
        return value

    def _truth(self, node: Node) -> bool:
        value = self.value(node)
        if isinstance(value, OpaqueValue):
            self.fail("a structure is neither true nor false", node.at)
        return not isinstance(value, NullPointer) and (
            isinstance(value, PointerValue) or value != 0
        )


def _comparable(value: ExpressionValue) -> object:
    return 0 if isinstance(value, NullPointer) else value
