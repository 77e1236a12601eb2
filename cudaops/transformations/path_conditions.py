"""Exactly when a kernel's expressions are computed: the conditions and the loops around them.

Other than `ranges`, which asks what holds where an expression stands, this says when it is reached
as well: it is where all conditions hold, in every iteration of the loops around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_early_exit
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.loops import Counted, counted

Condition = tuple[Any, bool]
"""An expression, and whether it holds or its opposite does."""
UNKNOWN: Condition = (None, True)
"""That something is reached which may as well not be."""


@dataclass(frozen=True)
class ConditionedExpression:
    """An expression and its way there."""

    node: Any
    conditions: tuple[Condition, ...]
    loops: tuple[Counted, ...]
    """Outermost first."""

    @property
    def is_known(self) -> bool:
        """Whether it is told when it is reached."""
        return UNKNOWN not in self.conditions


@dataclass(frozen=True)
class _Way:
    conditions: tuple[Condition, ...] = ()
    loops: tuple[Counted, ...] = ()

    def when(self, *conditions: Condition) -> _Way:
        return replace(self, conditions=(*self.conditions, *conditions))


class PathConditions:
    """Of one kernel."""

    def __init__(self, form: s.KernelForm) -> None:
        self._form = form

    def expressions(self) -> Iterator[ConditionedExpression]:
        """Every expression that stands in a statement, whole ones before their parts."""
        yield from self._body(self._form.kernel.body, _Way())

    def _body(self, body: Sequence[Any], way: _Way) -> Iterator[ConditionedExpression]:
        for node in body:
            yield from self._statement(node, way)
            if isinstance(node, s.Leave | s.Give):
                return
            way = way.when(*_passing(node))

    def _statement(self, node: Any, way: _Way) -> Iterator[ConditionedExpression]:
        match node:
            case s.If(condition, yes, no):
                yield from self._expression(condition, way)
                yield from self._body(yes, way.when((condition, True)))
                yield from self._body(no, way.when((condition, False)))
            case s.For():
                yield from self._loop(node, way)
            case s.Block(body):
                yield from self._body(body, way)
            case s.Declare() | s.Evaluate() | s.Refer() | s.Give():
                for child in s.children(node):
                    yield from self._expression(child, way)
            case _:
                for child in s.children(node):
                    if isinstance(child, s.Statement):
                        yield from self._statement(child, way.when(UNKNOWN))
                    else:
                        yield from self._expression(child, way.when(UNKNOWN))

    def _loop(self, node: s.For, way: _Way) -> Iterator[ConditionedExpression]:
        yield from self._body(node.first, way)
        try:
            loop = counted(node, self._form)
            inside = replace(way, loops=(*way.loops, loop))
            if not loop.is_own or has_early_exit(node.body, "continue"):
                inside = inside.when(UNKNOWN)
        except NotUnderstood:
            inside = way.when(UNKNOWN)
        for head in (node.condition, *node.step):
            if head is not None:
                yield from self._expression(head, way.when(UNKNOWN))
        yield from self._body(node.body, inside)

    def _expression(self, node: Any, way: _Way) -> Iterator[ConditionedExpression]:
        yield ConditionedExpression(node, way.conditions, way.loops)
        match node:
            case s.Choice(condition, yes, no):
                yield from self._expression(condition, way)
                yield from self._expression(yes, way.when((condition, True)))
                yield from self._expression(no, way.when((condition, False)))
            case s.Binary("&&" | "||" as operator, left, right):
                yield from self._expression(left, way)
                yield from self._expression(right, way.when((left, operator == "&&")))
            case s.Unmodelled():
                for child in s.children(node):
                    yield from self._expression(child, way.when(UNKNOWN))
            case _:
                for child in s.children(node):
                    yield from self._expression(child, way)


def _passing(node: Any) -> tuple[Condition, ...]:
    """What must hold for the statement after this one to be reached."""
    if isinstance(node, s.If):
        if not has_early_exit((*node.yes, *node.no)):
            return ()
        if node.yes and _ends(node.yes) and not has_early_exit(node.no):
            return ((node.condition, False),)
        if node.no and _ends(node.no) and not has_early_exit(node.yes):
            return ((node.condition, True),)
        return (UNKNOWN,)
    return (UNKNOWN,) if has_early_exit((node,)) else ()


def _ends(body: Sequence[Any]) -> bool:
    """Whether what comes after is never reached this way, and the way there is straight."""
    return isinstance(body[-1], s.Leave | s.Give) and not has_early_exit(body[:-1])
