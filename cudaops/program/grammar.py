"""The grammar of plan expressions: text to a `LaunchExpression`, bounded in length and depth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from cudaops.errors import PlanError
from cudaops.program.launch_expression import (
    CHOICE,
    FUNCTIONS,
    PRECEDENCE,
    ROOTS,
    Constant,
    LaunchExpression,
    Operation,
    Variable,
)

MAX_LENGTH = 1000
"""Characters in one expression; a longer one is not a launch parameter."""
MAX_DEPTH = 32
"""Nesting of one expression."""
MAX_OPERATORS = 64
"""Binary operators of one expression; with MAX_DEPTH it bounds the height of the tree."""
INT64_MAX = 2**63 - 1

SIZES: dict[str, int] = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2, "half": 2, "__half": 2,
    "__nv_bfloat16": 2, "nv_bfloat16": 2, "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4,
    "uint32_t": 4, "float": 4, "long": 8, "unsigned long": 8, "long long": 8,
    "unsigned long long": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8,
    "float2": 8, "float4": 16, "int2": 8, "int4": 16, "double2": 16, "half2": 4, "__half2": 4,
    "__nv_bfloat162": 4, "uint2": 8, "uint4": 16,
}  # fmt: skip
"""sizeof on the device. Source: CUDA C++ Programming Guide, built-in vector types; LP64."""

SIZE_OF = "sizeof("
"""How the name of a size begins that depends on the instance: `sizeof(T)`."""


def unknown_size(name: str) -> str:
    """Message for a `sizeof(T)` that nothing is known of."""
    return f"sizeof does not know the type `{name.removeprefix(SIZE_OF).rstrip(')')}`"


_TOKEN = re.compile(
    r"\s*(?:(?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|\d+[eE][+-]?\d+[fF]?)"
    r"|(?P<int>0[xX][0-9a-fA-F]+|\d+)(?P<suffix>[uUlL]{0,3})(?![0-9A-Za-z_.])"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>&&|\|\||[<>=!]=|[-+*/%()<>!,.?:]))"
)

_SPELLED = {"and": "&&", "or": "||", "not": "!"}
"""Operators as other languages spell them, and many a model."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def is_small(expression: LaunchExpression) -> bool:
    """Whether a directive may hold it."""
    operators = sum(getattr(x, "operator", "") in PRECEDENCE for x in expression.walk())
    return operators <= MAX_OPERATORS and len(str(expression)) <= MAX_LENGTH


class Parser:
    """Precedence climbing over at most MAX_LENGTH characters and MAX_DEPTH levels."""

    def __init__(self, text: str, line: int, column: int) -> None:
        self.text, self.line, self.column = text, line, column
        self.tokens = list(self._tokens())
        self.at = 0
        self.depth = 0

    def expression(self) -> LaunchExpression:
        """The whole text as one tree. Raises PlanError."""
        count = sum(t.kind == "op" and t.text in PRECEDENCE for t in self.tokens)
        if count > MAX_OPERATORS:
            self._fail(f"more than {MAX_OPERATORS} operators in one expression", 0)
        root = self._choice()
        if self._peek().kind != "end":
            token = self._peek()
            hint = "unbalanced `)`" if token.text == ")" else f"unexpected `{token.text}`"
            if token.text in _SPELLED:
                hint += f": write `{_SPELLED[token.text]}`, as in C"
            self._fail(hint, token.at)
        return root

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while self.text[position:].strip():
            match = _TOKEN.match(self.text, position)
            if match is None:
                rest = self.text[position:]
                at = position + len(rest) - len(rest.lstrip())
                self._fail(f"unexpected `{self.text[at]}`", at)
            kind = next(k for k in ("float", "int", "name", "op") if match.group(k))
            yield _Token(kind, match.group(kind), match.start(kind))
            position = match.end()
        yield _Token("end", "end of expression", len(self.text.rstrip()))

    def _fail(self, message: str, at: int) -> NoReturn:
        raise PlanError(message, self.line, self.column + at)

    def _peek(self) -> _Token:
        return self.tokens[self.at]

    def _next(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        found = self._peek().kind == "op" and self._peek().text == text
        if found:
            self._next()
        return found

    def _expect(self, text: str) -> None:
        token = self._peek()
        if not self._accept(text):
            self._fail(f"expected `{text}` before {_spell(token)}", token.at)

    def _choice(self) -> LaunchExpression:
        self._enter()
        condition = self._binary(1)
        at = self._peek().at
        if self._accept("?"):
            yes = self._choice()
            self._expect(":")
            condition = Operation(CHOICE, (condition, yes, self._choice()), at)
        self.depth -= 1
        return condition

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels", self._peek().at)

    def _binary(self, least: int) -> LaunchExpression:
        left = self._unary()
        while self._peek().kind == "op" and PRECEDENCE.get(self._peek().text, 0) >= least:
            token = self._next()
            right = self._binary(PRECEDENCE[token.text] + 1)
            left = Operation(token.text, (left, right), token.at)
        return left

    def _unary(self) -> LaunchExpression:
        at = self._peek().at
        if self._accept("+"):
            return self._nested_unary()
        for operator in ("-", "!"):
            if self._accept(operator):
                return Operation(operator, (self._nested_unary(),), at)
        return self._primary()

    def _nested_unary(self) -> LaunchExpression:
        self._enter()
        node = self._unary()
        self.depth -= 1
        return node

    def _primary(self) -> LaunchExpression:
        token = self._next()
        if token.kind == "int":
            base = 16 if token.text[:2] in ("0x", "0X") else 10
            value = int(token.text, base)
            if value > INT64_MAX:
                self._fail(f"{token.text[:24]} does not fit 64 bits", token.at)
            return Constant(value, token.at, token.text)
        if token.kind == "float":
            return Constant(float(token.text.rstrip("fF")), token.at, token.text)
        if token.kind == "name":
            return self._named(token)
        if token.kind != "op" or token.text != "(":
            self._fail(f"expected a value before {_spell(token)}", token.at)
        node = self._choice()
        self._expect(")")
        return node

    def _named(self, token: _Token) -> LaunchExpression:
        if token.text == "sizeof":
            return self._sizeof(token)
        if self._accept("("):
            return self._call(token)
        if token.text in ROOTS:
            self._expect(".")
            member = self._next()
            if member.text not in ("x", "y", "z"):
                self._fail(f"`{token.text}` has x, y and z, not `{member.text}`", member.at)
            return Variable(f"{token.text}.{member.text}", token.at)
        text = token.text
        while self._accept("."):
            member = self._next()
            if member.kind != "name":
                self._fail(f"expected a member's name before {_spell(member)}", member.at)
            text += f".{member.text}"
        return Variable(text, token.at)

    def _sizeof(self, token: _Token) -> LaunchExpression:
        self._expect("(")
        words = []
        while self._peek().kind == "name":
            words.append(self._next().text)
        pointer = self._accept("*")
        self._expect(")")
        name = " ".join(words)
        if pointer:
            return Constant(8, token.at, f"{SIZE_OF}{name}*)")
        if name not in SIZES:
            if len(words) != 1:
                self._fail(unknown_size(name), token.at)
            return Variable(f"{SIZE_OF}{name})", token.at)
        return Constant(SIZES[name], token.at, f"{SIZE_OF}{name})")

    def _call(self, token: _Token) -> LaunchExpression:
        if token.text not in FUNCTIONS:
            known = ", ".join((*FUNCTIONS, "sizeof"))
            self._fail(f"unknown function `{token.text}`; known are {known}", token.at)
        arguments = [self._choice()]
        while self._accept(","):
            arguments.append(self._choice())
        self._expect(")")
        if len(arguments) != 2:
            self._fail(f"`{token.text}` takes 2 arguments, not {len(arguments)}", token.at)
        return Operation(token.text, tuple(arguments), token.at)


def _spell(token: _Token) -> str:
    return "the end" if token.kind == "end" else f"`{token.text}`"
