"""Bodies without `return`, jumps that lead out of them, and conditions turned round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.syntax import NotUnderstood


def without_returns(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """`if (done) return; rest` as `if (!done) { rest }`. Raises NotUnderstood for any other
    return."""
    for at, node in enumerate(body):
        if isinstance(node, s.Leave) and node.word == "return":
            return body[:at]
        if not isinstance(node, s.If) or not _returns(node):
            if _returns(node):
                raise NotUnderstood("a return inside of a loop")
            continue
        rest = without_returns(body[at + 1 :])
        if _ends(node.yes):
            yes, no = node.yes[:-1], (*node.no, *rest)
        elif node.no and _ends(node.no):
            yes, no = (*node.yes, *rest), node.no[:-1]
        else:
            raise NotUnderstood("a return inside of a condition")
        if _returns(yes) or _returns(no):
            raise NotUnderstood("a return inside of a condition")
        if yes:
            return (*body[:at], replace(node, yes=tuple(yes), no=tuple(no)))
        if not no:
            return body[:at]
        return (*body[:at], s.If(negated(node.condition), tuple(no), where=node.where))
    return body


def _returns(node: Any) -> bool:
    return any(isinstance(x, s.Leave) and x.word == "return" for x in s.below(node))


def _ends(body: Sequence[Any]) -> bool:
    return bool(body) and isinstance(body[-1], s.Leave) and body[-1].word == "return"


def leaves(body: Sequence[Any]) -> bool:
    """Whether a jump leads out of these statements: those of inner loops end there."""
    return any(_leads_out(x) for x in body)


def _leads_out(node: Any, within: str = "") -> bool:
    """`within`: the words that a loop or switch around it takes."""
    match node:
        case s.Leave(word):
            return word not in within.split()
        case s.For() | s.Do():
            within = "break continue"
        case s.Switch():
            within += " break"
    return any(_leads_out(x, within) for x in s.children(node))


def negated(condition: Any) -> Any:
    """The opposite; a comparison of integers as one."""
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
    match condition:
        case s.Unary("!", operand):
            return operand
        case s.Binary("||" | "&&" as operator, left, right):
            return s.Binary("&&" if operator == "||" else "||", negated(left), negated(right))
        case s.Binary(operator, left, right) if operator in opposite:
            if operator in ("==", "!=") or not ({left.type, right.type} & _FLOATS):
                kinds = (getattr(left, "type", ""), getattr(right, "type", ""))
                if operator in ("==", "!=") or all(kinds):
                    return s.Binary(opposite[operator], left, right)
    return s.Unary("!", condition)


_FLOATS = frozenset({"float", "double", "half", "__half", "__nv_bfloat16", ""})
