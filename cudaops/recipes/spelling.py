"""Spells understood values as C text, and picks names that clash with nothing in the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.program.plans import make_rewrite
from cudaops.program.syntax import NotUnderstood, TypedParameter
from cudaops.recipes.coordinates import Space
from cudaops.recipes.reading.values import (
    Apply,
    Below,
    GlobalLoad,
    Literal,
    Scalar,
    SymbolicInteger,
    Value,
)

_INFIX = frozenset({"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&&", "||"})


class ValueSpeller:
    """C text of values, with some of them standing under given names."""

    def __init__(self, space: Space, names: Mapping[str, str], known: Mapping[Value, str]) -> None:
        self._space = space
        self._names = names
        self._known = known

    def name(self, written: str) -> str:
        """The name that stands for a symbol or parameter."""
        return self._names.get(written, written)

    def text(self, value: Value) -> str:
        """The value as a C expression that is safe inside any other. Raises NotUnderstood."""
        if value in self._known:
            return self._known[value]
        match value:
            case SymbolicInteger(polynomial):
                return f"({self._space.place(polynomial).text(self.name)})"
            case Literal(text):
                return text
            case Scalar(name):
                return self.name(name)
            case Below(polynomial):
                return f"({self._space.place(polynomial).text(self.name)} < 0)"
            case GlobalLoad(array, index):
                return f"{self.name(array)}[{self._space.place(index).text(self.name)}]"
            case Apply(operator, operands, kind):
                return self._applied(operator, [self.text(o) for o in operands], kind)
        raise NotUnderstood(f"a {type(value).__name__} to be spelled")

    def _applied(self, operator: str, operands: list[str], kind: str) -> str:
        if operator == "cast":
            return f"({kind})({operands[0]})"
        if operator == "neg":
            return f"(-{operands[0]})"
        if operator == "!":
            return f"(!{operands[0]})"
        if operator == "?:":
            return f"({operands[0]} ? {operands[1]} : {operands[2]})"
        if operator == "fma":
            return f"{'fmaf' if kind == 'float' else 'fma'}({', '.join(operands)})"
        if operator in _INFIX:
            return f"({operands[0]} {operator} {operands[1]})"
        return f"{operator}({', '.join(operands)})"


def written(source: str, recipe: str, title: str, why: str) -> Rewrite:
    """The Rewrite of this text. Raises NotUnderstood where its plan cannot be written.

    An index may be longer than a plan's expression is allowed to be.
    """
    try:
        return make_rewrite(source, f"recipe:{recipe}", title, why)
    except PlanError as error:
        raise NotUnderstood(str(error)) from error


def bare(text: str) -> str:
    """An expression without parentheses around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]


def free_name(wanted: str, program: Program) -> str:
    """`wanted`, with a number where the program already uses that name."""
    used = names_in(f.text for f in program.files)
    candidate, at = wanted, 2
    while candidate in used:
        candidate, at = f"{wanted}{at}", at + 1
    return candidate


def names_in(texts: Iterable[str]) -> frozenset[str]:
    """Every identifier of these texts."""
    return frozenset(name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text))


def renamed_template(
    template: str, locals_: Iterable[str], program: Program, kernel: Kernel
) -> str:
    """`template` with those of its local names changed that a macro or parameter also has."""
    macros = {
        name
        for f in program.files
        for name in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", f.text, re.MULTILINE)
    }
    taken = macros | {p.name for p in kernel.parameters}
    for name in locals_:
        if name in taken:
            template = re.sub(rf"(?<![\w$]){name}\b", f"own_{name}", template)
    return template


def signature(
    parameters: Iterable[TypedParameter], written_const: Callable[[str], bool], fast: Iterable[str]
) -> str:
    """A parameter list; pointers named in `fast` are read-only and not aliased by the output."""
    read_only = frozenset(fast)
    parts = []
    for p in parameters:
        if not p.is_pointer:
            parts.append(f"{p.type} {p.name}")
        elif p.name in read_only:
            parts.append(f"const {p.type}* __restrict__ {p.name}")
        else:
            parts.append(f"{'const ' if written_const(p.name) else ''}{p.type}* {p.name}")
    return ", ".join(parts)
