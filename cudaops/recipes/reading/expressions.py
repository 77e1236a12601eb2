"""Evaluates expressions to `values`: integers as polynomials, data as trees of operations."""

from __future__ import annotations

from collections.abc import Mapping

from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import Polynomial, divide, number, remainder, symbol
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.reading.values import (
    FLOATS,
    INTEGERS,
    Apply,
    Below,
    GlobalLoad,
    Literal,
    Scalar,
    SharedLoad,
    SymbolicInteger,
    SymbolicPointer,
    SymbolicStructure,
    Value,
    converted,
    joint_type,
    negated,
)

FUSED = frozenset({"fmaf", "fma", "__fmaf_rn", "__fma_rn"})
_FLOAT_FUNCTIONS = frozenset({
    "fmaxf", "fminf", "expf", "exp2f", "logf", "log2f", "tanhf", "sqrtf", "rsqrtf", "fabsf", "erff",
    "powf", "sinf", "cosf", "cbrtf", "__expf", "__logf", "floorf", "ceilf", "roundf",
})  # fmt: skip
_OVERLOADED = frozenset({
    "fmax", "fmin", "exp", "log", "tanh", "sqrt", "rsqrt", "fabs", "erf", "pow", "sin", "cos",
    "abs", "max", "min", "floor", "ceil",
})  # fmt: skip
MATHEMATICS = (
    FUSED | _FLOAT_FUNCTIONS | _OVERLOADED | {"__ldg", "fmodf", "hypotf", "log1pf", "expm1f"}
)
"""Functions whose result depends on their arguments alone."""
_SUFFIXES = {
    "": "int", "u": "unsigned", "l": "long long", "ll": "long long", "ul": "unsigned long long",
    "ull": "unsigned long long", "lu": "unsigned long long", "llu": "unsigned long long",
}  # fmt: skip


class Around:
    """What expressions ask of the run that they are a part of; this one knows nothing."""

    def loaded(self, place: SymbolicPointer) -> Value | None:
        """What this thread has written there; None where it reads what stood there. Raises
        NotUnderstood."""
        raise NotUnderstood("a read of memory")

    def called(self, function: str, arguments: tuple[Value, ...]) -> Value | None:
        """What a function of the program gives; None for any other. Raises NotUnderstood."""
        return None

    def is_nonnegative(self, value: Polynomial) -> bool:
        """Whether it is, or is taken to be."""
        return value.sure_nonnegative


class SymbolicExpressions:
    """Evaluation against an environment; assignments are left to the statements' side."""

    def __init__(self, env: Mapping[str, Value], around: Around) -> None:
        self.env = env
        self._around = around

    def value(self, node: s.Expression) -> Value:
        """What the expression stands for. Raises NotUnderstood."""
        match node:
            case s.Number(text):
                return literal(text)
            case s.Name(text):
                return self._name(text)
            case s.Member(s.Name(base), axis) if base in s.BUILTINS and axis in ("x", "y", "z"):
                return SymbolicInteger(symbol(f"{base}.{axis}"), "unsigned")
            case s.Member(base, name, type=kind):
                return self._member(self.value(base), name, kind)
            case s.Index():
                return self.load(self.place(node))
            case s.Cast(to, operand):
                return converted(self.value(operand), to)
            case s.Unary(operator, operand):
                return self._unary(operator, operand)
            case s.Binary(operator, left, right):
                return self.binary(operator, self.value(left), self.value(right))
            case s.Choice(condition, yes, no):
                return self._choice(condition, yes, no)
            case s.Call(function, arguments):
                return self._call(function, tuple(self.value(a) for a in arguments))
        raise NotUnderstood(f"an expression of kind {type(node).__name__}")

    def whole(self, node: s.Expression) -> Polynomial:
        """The expression as a polynomial. Raises NotUnderstood where it depends on data."""
        found = self.value(node)
        if not isinstance(found, SymbolicInteger):
            raise NotUnderstood("an index that depends on data")
        return found.value

    def place(self, node: s.Expression) -> SymbolicPointer:
        """Where `a[i]` or `*p` stands."""
        if isinstance(node, s.Unary) and node.operator == "*":
            found = self.value(node.operand)
        elif isinstance(node, s.Index):
            base = (
                self.place(node.base) if isinstance(node.base, s.Index) else self.value(node.base)
            )
            found = self._indexed(base, self.whole(node.index))
        else:
            raise NotUnderstood("a memory access that is not an array element")
        if not isinstance(found, SymbolicPointer):
            raise NotUnderstood("an index into a non-array")
        return found

    def load(self, place: SymbolicPointer) -> Value:
        """What stands at this place."""
        written = self._around.loaded(place)
        if written is not None:
            return written
        if place.shared:
            return SharedLoad(place.array, place.indices, place.type)
        return GlobalLoad(place.array, place.offset, place.type)

    def binary(self, operator: str, left: Value, right: Value) -> Value:
        """left operator right."""
        if operator in ("&&", "||"):
            return Apply(operator, (left, right), "bool")
        if isinstance(left, SymbolicPointer) or isinstance(right, SymbolicPointer):
            return _moved(operator, left, right)
        if isinstance(left, SymbolicInteger) and isinstance(right, SymbolicInteger):
            return self._integers(operator, left, right)
        if operator in ("<", "<=", ">", ">=", "==", "!="):
            return Apply(operator, (left, right), "bool")
        if operator not in ("+", "-", "*", "/"):
            raise NotUnderstood(f"{operator} on data")
        return Apply(operator, (left, right), joint_type(left.type, right.type))

    def _integers(self, operator: str, left: SymbolicInteger, right: SymbolicInteger) -> Value:
        kind = joint_type(left.type, right.type)
        a, b = left.value, right.value
        match operator:
            case "+":
                return SymbolicInteger(a + b, kind)
            case "-":
                return SymbolicInteger(a - b, kind)
            case "*":
                return SymbolicInteger(a * b, kind)
            case "/" | "%" if self._are_nonnegative(a, b):
                return SymbolicInteger((divide if operator == "/" else remainder)(a, b), kind)
            case "<<" if b.constant is not None and 0 <= b.constant < 31:
                return SymbolicInteger(a * number(1 << b.constant), kind)
            case ">>" if b.constant is not None and 0 <= b.constant < 31:
                if self._are_nonnegative(a):
                    return SymbolicInteger(divide(a, number(1 << b.constant)), kind)
            case "&" if b.constant is not None and _is_mask(b.constant):
                if self._are_nonnegative(a):
                    return SymbolicInteger(remainder(a, number(b.constant + 1)), kind)
        return _comparison(operator, a, b)

    def _are_nonnegative(self, *values: Polynomial) -> bool:
        return all(self._around.is_nonnegative(x) for x in values)

    def _name(self, text: str) -> Value:
        if text in ("true", "false"):
            return SymbolicInteger(number(int(text == "true")), "bool")
        if text not in self.env:
            raise NotUnderstood(f"the name {text}")
        return self.env[text]

    def _member(self, base: Value, name: str, kind: str) -> Value:
        if not isinstance(base, SymbolicStructure):
            raise NotUnderstood(f"a member of a {base.type}")
        if (found := dict(base.fields).get(name)) is not None:
            return found
        if not base.name:
            raise NotUnderstood(f"the member {name} before it is assigned")
        path = f"{base.name}.{name}"
        if kind.endswith("*"):
            return SymbolicPointer(path, number(0), kind[:-1].removeprefix("const ").strip())
        return parameter_value(path, kind) or SymbolicStructure(path, kind)

    def _indexed(self, base: Value, index: Polynomial) -> Value:
        if not isinstance(base, SymbolicPointer):
            raise NotUnderstood("an index into a non-array")
        if base.shared:
            return SymbolicPointer(base.array, base.offset, base.type, True, (*base.indices, index))
        return SymbolicPointer(base.array, base.offset + index, base.type)

    def _unary(self, operator: str, operand: s.Expression) -> Value:
        if operator == "&":
            return self.place(operand)
        value = self.value(operand)
        if operator == "*" and isinstance(value, SymbolicPointer):
            return self.load(value)
        if operator == "+":
            return value
        if operator == "!":
            return negated(value)
        if operator == "-" and isinstance(value, SymbolicInteger):
            return SymbolicInteger(-value.value, value.type)
        if operator == "-" and not isinstance(value, SymbolicPointer):
            return Apply("neg", (value,), joint_type(value.type, value.type))
        raise NotUnderstood(f"{operator} on a {value.type}")

    def _choice(self, condition: s.Expression, yes: s.Expression, no: s.Expression) -> Value:
        test, left, right = self.value(condition), self.value(yes), self.value(no)
        if isinstance(left, SymbolicInteger) and isinstance(right, SymbolicInteger):
            raise NotUnderstood("an index that depends on a condition")
        return Apply("?:", (test, left, right), joint_type(left.type, right.type))

    def _call(self, function: str, arguments: tuple[Value, ...]) -> Value:
        given = self._around.called(function, arguments)
        if given is not None:
            return given
        if (
            function == "__ldg"
            and len(arguments) == 1
            and isinstance(arguments[0], SymbolicPointer)
        ):
            return self.load(arguments[0])
        if any(isinstance(a, SymbolicPointer | Below) for a in arguments):
            raise NotUnderstood(f"a call of {function}")
        if function in FUSED and len(arguments) == 3:
            kind = "float" if function in ("fmaf", "__fmaf_rn") else _joint(arguments)
            return Apply("fma", arguments, kind)
        if function in _FLOAT_FUNCTIONS:
            return Apply(function, arguments, "float")
        if function in _OVERLOADED and not any(isinstance(a, SymbolicInteger) for a in arguments):
            return Apply(function, arguments, _joint(arguments))
        raise NotUnderstood(f"a call of {function}")


def parameter_value(path: str, kind: str) -> Value | None:
    """A number of this type that the launch is given; None where it is none."""
    if kind in INTEGERS:
        return SymbolicInteger(symbol(path), kind)
    return Scalar(path, kind) if kind in FLOATS else None


def literal(text: str) -> Value:
    """A number as written."""
    try:
        found = s.integer_literal(text)
        if found is not None:
            return SymbolicInteger(number(found[0]), _SUFFIXES[found[1]])
    except (ValueError, KeyError):
        raise NotUnderstood(f"the number {text}") from None
    plain = text.replace("'", "")
    return Literal(plain, "float" if plain.lower().endswith("f") else "double")


def _joint(arguments: tuple[Value, ...]) -> str:
    kind = "bool"
    for argument in arguments:
        kind = joint_type(kind, argument.type)
    return kind


def _moved(operator: str, left: Value, right: Value) -> Value:
    """A pointer plus or minus an integer."""
    if operator == "+" and isinstance(right, SymbolicPointer):
        left, right = right, left
    if (
        not isinstance(left, SymbolicPointer)
        or left.shared
        or not isinstance(right, SymbolicInteger)
        or operator not in ("+", "-")
    ):
        raise NotUnderstood("pointer arithmetic")
    offset = right.value if operator == "+" else -right.value
    return SymbolicPointer(left.array, left.offset + offset, left.type)


def _comparison(operator: str, a: Polynomial, b: Polynomial) -> Value:
    match operator:
        case "<":
            return Below(a - b)
        case ">":
            return Below(b - a)
        case "<=":
            return Below(a - b - number(1))
        case ">=":
            return Below(b - a - number(1))
        case "==" | "!=":
            return Apply(operator, (SymbolicInteger(a), SymbolicInteger(b)), "bool")
    raise NotUnderstood(f"{operator} on integers")


def _is_mask(value: int) -> bool:
    return value > 0 and value & (value + 1) == 0


def integer_type(kind: str) -> bool:
    """Whether values of this type are followed as polynomials."""
    return kind in INTEGERS
