"""What a kernel's arithmetic says of rounding: does it compute its own rounding errors, as
compensated sums and pairs of floats do, and is it exact on small integers?

`(t - s) - y` behind `t = s + y` is zero in real arithmetic; whoever computes it wants what was
rounded off. Such an author's results are held to the last bit, and not to what plain sums give.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.program import syntax as s
from cudaops.program.analysis.library_calls import gives_value, leaves_memory
from cudaops.program.analysis.polynomials import Polynomial, number, symbol
from cudaops.program.front_end import kernel_form

_FLOATING = frozenset({"float", "double", "__half", "half", "__nv_bfloat16"})
_MOST_TERMS = 24
"""A longer sum is taken for one unknown."""
_ROUNDED = ("rn", "rz", "ru", "rd")
_INTRINSICS = {
    f"__{kind}{what}_{how}": operator
    for kind in "fd"
    for what, operator in (("add", "+"), ("sub", "-"), ("mul", "*"))
    for how in _ROUNDED
} | {f"__h{what}": operator for what, operator in (("add", "+"), ("sub", "-"), ("mul", "*"))}
_FUSED = frozenset(
    {"fma", "fmaf", "__hfma", *(f"{f}_{r}" for f in ("__fmaf", "__fma") for r in _ROUNDED)}
)


_INEXACT = re.compile(r"exp|log|sin|cos|tan|pow|sqrt|rcp|div|hypot|norm|erf|cbrt|gamma")
"""In the name of a function of CUDA's that rounds on integers too."""


class _Real(NamedTuple):
    """What an expression is worth in real arithmetic."""

    value: Polynomial
    is_rounded: bool = False
    """It, or something it was copied from, was rounded when it was computed."""


def computes_rounding_errors(program: Program, kernel: Kernel, callee: str) -> bool:
    """Whether an instance of a kernel, or a function that it calls, computes something that is zero
    but for rounding. False for a kernel that clang cannot read."""
    return any(_Body().finds(body) for body in _bodies(program, kernel, callee))


def rounds_on_integers(program: Program, kernel: Kernel, callee: str) -> bool:
    """Whether an instance of a kernel, or a function that it calls, divides floating numbers or
    takes a root, an exponential or the like: what it gives on small integers may then be integers
    though something on the way was rounded. False for a kernel that clang cannot read."""
    bodies = _bodies(program, kernel, callee)
    return any(_rounds(node) for body in bodies for node in s.below(body))


def _bodies(program: Program, kernel: Kernel, callee: str) -> list[tuple[s.Statement, ...]]:
    """Of the kernel and of all that it calls; none where clang cannot read it."""
    try:
        form = kernel_form(program, kernel, callee)
    except s.NotUnderstood:
        return []
    return [f.body for f in (form.kernel, *form.functions)]


def _rounds(node: object) -> bool:
    match node:
        case s.Binary("/", left, right):
            return not _FLOATING.isdisjoint((node.type, left.type, right.type))
        case s.Assign(target, "/"):
            return target.type in _FLOATING
        case s.Call(name):
            return gives_value(name) and _INEXACT.search(name) is not None
        case _:
            return False


class _Body:
    """A function's statements in order; what loops and branches change is unknown behind them."""

    def __init__(self) -> None:
        self._held: dict[str, _Real] = {}
        self._unknowns = 0
        self._epoch = 0
        self._found = False

    def finds(self, body: Sequence[s.Statement]) -> bool:
        """Whether a rounding error is computed here."""
        self._walk(body)
        return self._found

    def _walk(self, body: Sequence[s.Statement]) -> None:
        for statement in body:
            match statement:
                case s.Declare() if statement.value is not None and not statement.extents:
                    self._bind(statement.name, self._of(statement.value), statement.type)
                case s.Evaluate(value) | s.Give(value):
                    self._of(value)
                case s.If(condition, yes, no):
                    self._of(condition)
                    self._apart(yes)
                    self._apart(no)
                case s.For(first, condition, step, inner):
                    self._walk(first)
                    self._apart([*inner, *(s.Evaluate(x) for x in step)], condition)
                case s.Do(inner, condition):
                    self._apart(inner, condition)
                case s.Switch(subject, inner):
                    self._of(subject)
                    self._apart(inner)
                case s.Block(inner):
                    self._walk(inner)
                case _:
                    pass

    def _apart(self, body: Sequence[s.Statement], condition: s.Expression | None = None) -> None:
        """Statements that may run never or many times."""
        self._forget(body)
        if condition is not None:
            self._of(condition)
        self._walk(body)
        self._forget(body)

    def _forget(self, body: Sequence[s.Statement]) -> None:
        writes = False
        for node in s.below(tuple(body)):
            if isinstance(node, s.Assign | s.Step):
                self._held.pop(_place(node.target), None)
                writes |= not _place(node.target)
            elif isinstance(node, s.Declare):
                self._held.pop(node.name, None)
            writes |= isinstance(node, s.Call) and not leaves_memory(node.function)
        self._epoch += writes

    def _bind(self, place: str, value: _Real, type_: str) -> None:
        self._held[place] = value if type_ in _FLOATING else self._unknown()

    def _unknown(self) -> _Real:
        self._unknowns += 1
        return _Real(symbol(f"unknown {self._unknowns}"))

    def _of(self, node: s.Expression) -> _Real:
        found = self._worth(node)
        if len(found.value.terms) > _MOST_TERMS:
            return self._unknown()._replace(is_rounded=True)
        return found

    def _worth(self, node: s.Expression) -> _Real:
        match node:
            case s.Number(text):
                return _Real(_literal(text))
            case s.Name() | s.Member() | s.Index() | s.Unary("*", _):
                return self._held.setdefault(self._key(node), self._unknown())
            case s.Cast(type_, operand) if type_ in _FLOATING and operand.type in _FLOATING:
                return self._of(operand)._replace(is_rounded=True)
            case s.Unary("-", operand):
                held = self._of(operand)
                return _Real(-held.value, held.is_rounded)
            case s.Unary("+", operand):
                return self._of(operand)
            case s.Binary(("+" | "-" | "*") as operator, left, right) if node.type in _FLOATING:
                return self._combined(operator, self._of(left), self._of(right))
            case s.Call(name, (left, right)) if name in _INTRINSICS:
                return self._combined(_INTRINSICS[name], self._of(left), self._of(right))
            case s.Call(name, (left, right, third)) if name in _FUSED:
                product = _Real(self._of(left).value * self._of(right).value)
                return self._combined("+", product, self._of(third))
            case s.Assign(target, operator, value):
                return self._assigned(target, operator, self._of(value))
            case s.Choice(condition, yes, no):
                for part in (condition, yes, no):
                    self._of(part)
                return self._unknown()
            case _:
                return self._anything_else(node)

    def _anything_else(self, node: s.Expression) -> _Real:
        """What is not followed: its parts may compute a rounding error all the same."""
        match node:
            case s.Step(target):
                self._held.pop(_place(target), None)
            case s.Call(_, parts) | s.Values(parts) | s.Unmodelled(_, parts):
                leaves = isinstance(node, s.Call) and leaves_memory(node.function)
                for part in parts:
                    self._of(part)
                    if isinstance(part, s.Unary) and part.operator == "&":
                        self._held.pop(_place(part.operand), None)
                    elif not leaves:
                        self._held.pop(_place(part), None)
                self._epoch += not leaves
            case s.Cast(_, part) | s.Unary(_, part):
                self._of(part)
            case s.Binary(_, left, right):
                self._of(left)
                self._of(right)
        return self._unknown()

    def _assigned(self, target: s.Expression, operator: str, value: _Real) -> _Real:
        type_ = target.type
        if operator:
            old = self._of(target)
            known = operator in "+-*" and type_ in _FLOATING
            value = self._combined(operator, old, value) if known else self._unknown()
        if isinstance(target, s.Index | s.Unary):
            self._epoch += 1
        self._bind(self._key(target), value, type_)
        return self._held[self._key(target)]

    def _combined(self, operator: str, left: _Real, right: _Real) -> _Real:
        if operator == "*":
            return _Real(left.value * right.value, is_rounded=True)
        value = left.value + right.value if operator == "+" else left.value - right.value
        if not value.terms and left.value.terms and (left.is_rounded or right.is_rounded):
            self._found = True
        return _Real(value, is_rounded=True)

    def _key(self, node: s.Expression) -> str:
        """A variable by its name, a place in memory until something may have been written."""
        place = _place(node)
        return place if place else f"{self._epoch} {node!r}"


def _place(node: s.Expression) -> str:
    """Name of a variable, or of a member of one; empty for anything else."""
    match node:
        case s.Name(text):
            return text
        case s.Member(base, name):
            inner = _place(base)
            return f"{inner}.{name}" if inner else ""
        case _:
            return ""


def _literal(text: str) -> Polynomial:
    try:
        value = float(text.rstrip("fFlL"))
    except ValueError:
        return symbol(text)
    return number(int(value)) if value.is_integer() and abs(value) < 2**53 else symbol(text)
