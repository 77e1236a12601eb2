"""What a body's variables are worth where they never change: indices as polynomials, inlined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    names_in,
    reads_memory,
    written_names,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import (
    Polynomial,
    divide,
    number,
    recombined,
    remainder,
    symbol,
)
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import bodies_of, changed, statements

_DEPTH = 24


class Variables:
    """Of one body: those with one value from their declaration on are that value."""

    def __init__(self, draft: Draft, body: Sequence[s.Statement] | None = None) -> None:
        """`body`: what stands in the place of the kernel's."""
        body = tuple(draft.form.kernel.body if body is None else body)
        self._declares: dict[str, s.Declare] = {}
        self._changed: set[str] = {
            *changed_variables(body, draft.form), *_outdated(body, draft.form)
        }  # fmt: skip
        for node in s.below(body):
            if isinstance(node, s.Declare):
                self._changed.update({node.name} & self._declares.keys())
                self._declares[node.name] = node

    def declared(self, name: str) -> s.Declare | None:
        """Its declaration; None for a parameter."""
        return self._declares.get(name)

    def is_changed(self, name: str) -> bool:
        """Whether it is assigned after its declaration, or may be."""
        return name in self._changed

    def value(self, name: str) -> Any:
        """What an integer is worth wherever it stands, as an expression; None where it may change
        or stands for memory."""
        node = self._declares.get(name)
        if node is None or name in self._changed or node.extents or node.pointer:
            return None
        if node.type not in INTEGERS or node.value is None or reads_memory(node.value):
            return None
        if any(isinstance(x, s.Call | s.Assign | s.Step) for x in s.below(node.value)):
            return None
        return node.value

    def inlined(self, expression: Any, names: Mapping[str, Any]) -> Any:
        """An expression with these variables replaced, and others by their values where those
        have any of them in it."""

        def change(node: Any, depth: int = 0) -> Any:
            if not isinstance(node, s.Name):
                return node
            if node.text in names:
                return names[node.text]
            value = self.value(node.text)
            if value is None or depth > _DEPTH:
                return node
            deeper = changed(value, lambda x: change(x, depth + 1))
            return node if deeper is value else deeper

        return changed(changed(expression, change), _simple)

    def polynomial(self, node: Any, *kept: str, depth: int = 0) -> Polynomial | None:
        """An integer over parameters, builtins and variables that change; those of `kept` stay
        themselves. None for what has no polynomial. Division is that of numbers from 0 on."""
        if depth > _DEPTH:
            return None

        def of(x: Any) -> Polynomial | None:
            return self.polynomial(x, *kept, depth=depth + 1)

        match node:
            case s.Number():
                found = s.integer_of(node)
                return None if found is None else number(found)
            case s.Name(text):
                value = None if text in kept else self.value(text)
                return symbol(text) if value is None else of(value)
            case s.Cast(kind, operand) if kind in INTEGERS:
                return of(operand)
            case s.Member(s.Name(root), axis) if root in s.BUILTINS:
                return symbol(f"{root}.{axis}")
            case s.Binary("+" | "-" | "*" | "/" | "%" as operator, left, right):
                a, b = of(left), of(right)
                if a is None or b is None:
                    return None
                match operator:
                    case "+":
                        return recombined(a + b)
                    case "-":
                        return a - b
                    case "*":
                        return a * b
                    case "/" if b.terms:
                        return divide(a, b)
                    case "%" if b.terms:
                        return remainder(a, b)
        return None


def _outdated(body: Sequence[s.Statement], form: s.KernelForm) -> Iterator[str]:
    """Variables that are used where one that they were computed from has changed: `j` of
    `int j = i; i += 4; a[j]`."""
    for block in (tuple(body), *(b for x in statements(body) for b in bodies_of(x))):
        for nth, declared in enumerate(block):
            if not isinstance(declared, s.Declare) or declared.value is None:
                continue
            sources = names_in(declared.value)
            for at, later in enumerate(block[nth + 1 :], nth + 1):
                written = written_names(later, form)
                if written is None or not written.isdisjoint(sources):
                    if declared.name in names_in(block[at:]):
                        yield declared.name
                    break


def _simple(node: Any) -> Any:
    match node:
        case s.Binary("+", left, s.Number("0")):
            return left
    return node
