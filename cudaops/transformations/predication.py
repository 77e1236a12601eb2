"""Early returns as conditions around what follows, such that every thread reaches the end.

Barriers, votes and shuffles may stand only where all threads of a block or warp come by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_return
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.syntax import NotUnderstood


def pruned(body: Sequence[Any]) -> tuple[Any, ...]:
    """Without branches on what is a constant of this instance, and scopes that nothing needs."""
    found: list[Any] = []
    for node in body:
        truth = _constant(node.condition) if isinstance(node, s.If) else None
        if isinstance(node, s.If) and truth is not None:
            found += pruned(node.yes if truth else node.no)
        else:
            found.append(node)
    names = [s.plain_name(x.name) for x in found if isinstance(x, s.Declare | s.Refer)]
    return tuple(found) if len(set(names)) == len(names) else tuple(body)


def _constant(node: Any) -> bool | None:
    """The truth of a condition over literals; None for any other."""
    match node:
        case s.Binary("==" | "!=" | "<" | ">" | "<=" | ">=" as operator, left, right):
            a, b = _literal(left), _literal(right)
            if a is None or b is None:
                return None
            return {"==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b,
                    ">=": a >= b}[operator]  # fmt: skip
        case s.Unary("!", operand):
            inner = _constant(operand)
            return None if inner is None else not inner
        case s.Name("true" | "false" as text):
            return text == "true"
    value = _literal(node)
    return None if value is None else bool(value)


def _literal(node: Any) -> int | None:
    while isinstance(node, s.Cast):
        node = node.operand
    if isinstance(node, s.Name) and node.text in ("true", "false"):
        return int(node.text == "true")
    return s.integer_of(node)


def without_returns(body: Sequence[Any]) -> tuple[Any, ...]:
    """The same statements, none of which leaves the function. Raises NotUnderstood for a `return`
    in a loop or a switch, or one that only some ways through a branch take."""
    for at, node in enumerate(body):
        if not has_return(node):
            continue
        head, rest = tuple(body[:at]), tuple(body[at + 1 :])
        if isinstance(node, s.Leave):
            return head
        if isinstance(node, s.Block):
            if any(isinstance(x, s.Declare | s.Refer) for x in node.body):
                raise NotUnderstood("a return in a nested scope")
            return (*head, *without_returns((*node.body, *rest)))
        if not isinstance(node, s.If):
            raise NotUnderstood("a return in a loop")
        return (*head, *_branched(node, rest))
    return tuple(body)


def _branched(node: s.If, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """An `if` that returns on one side, and what follows it."""
    if _always_returns(node.yes):
        yes, no = without_returns(node.yes), without_returns((*node.no, *rest))
    elif _always_returns(node.no):
        yes, no = without_returns((*node.yes, *rest)), without_returns(node.no)
    elif not rest:
        yes, no = without_returns(node.yes), without_returns(node.no)
    else:
        raise NotUnderstood("a return on some paths of a branch only")
    if not yes:
        if not no and not _has_effect(node.condition):
            return ()
        return (s.If(negated(node.condition), no, (), where=node.where),)
    return (replace(node, yes=yes, no=no),)


def _always_returns(body: Sequence[Any]) -> bool:
    return bool(body) and isinstance(body[-1], s.Leave) and body[-1].word == "return"


def _has_effect(node: Any) -> bool:
    return any(isinstance(x, s.Assign | s.Step | s.Call) for x in s.below(node))


def negated(node: s.Expression) -> s.Expression:
    """The condition that holds where this one does not. Comparisons of floats are not turned
    around: neither of the two holds where one side is no number."""
    match node:
        case s.Unary("!", operand):
            return operand
        case s.Binary("||" | "&&" as operator, left, right):
            other = "&&" if operator == "||" else "||"
            return s.Binary(other, negated(left), negated(right), type="bool")
        case s.Binary(operator, left, right) if operator in s.NEGATED and all(
            getattr(side, "type", "") in INTEGERS for side in (left, right)
        ):
            return s.Binary(s.NEGATED[operator], left, right, type="bool")
    return s.Unary("!", node, type="bool")
