"""Expressions that several statements use, computed once ahead of them.

Uses belong together between two writes of what their expression is computed from. A transformation
says which nodes are uses (`Sought.uses`) and which of them are worth it (`Sought.pays`), declares
its value ahead of the first statement of a group, and puts it in the uses' place (`with_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure
from cudaops.transformations.trees import bodies_of

Run = Sequence[tuple[s.Statement, Sequence[Any]]]
"""Statements of one list with the uses in each, nothing that matters written between them."""


@dataclass(frozen=True)
class Sought:
    """What is to be computed once."""

    uses: Callable[[Any], list[Any]]
    """Those within a node."""
    disturbs: Callable[[s.Statement], bool]
    """Whether a statement may change what the value is computed from."""
    pays: Callable[[Run], bool]
    """Whether to compute it ahead of a run; else what stands within the statements is looked at."""


@dataclass(frozen=True)
class Group:
    """Uses that one value serves."""

    before: s.Statement
    """Ahead of which it is computed."""
    uses: tuple[Any, ...]


def groups(sought: Sought, body: Sequence[s.Statement]) -> Iterator[Group]:
    """Those of a list of statements and of the lists within."""
    run: list[tuple[s.Statement, list[Any]]] = []
    for statement in (*body, None):
        uses = [] if statement is None else sought.uses(statement)
        disturbs = statement is None or sought.disturbs(statement)
        first = statement is not None and _reads_first(statement)
        if statement is not None and uses and (first or not disturbs):
            run.append((statement, uses))
        if not disturbs:
            continue
        yield from _of_run(sought, run)
        run = []
        if statement is not None and uses and not first:
            yield from _within(sought, statement)


def _reads_first(statement: s.Statement) -> bool:
    """Whether all that it computes is computed before it changes anything: `x = f(x)`."""
    match statement:
        case s.Evaluate(s.Assign(target, _, value)):
            return is_pure(target) and is_pure(value)
    return False


def _of_run(sought: Sought, run: Run) -> Iterator[Group]:
    if not run:
        return
    if sought.pays(run):
        yield Group(run[0][0], tuple(u for _, found in run for u in found))
        return
    for statement, _ in run:
        yield from _within(sought, statement)


def _within(sought: Sought, statement: s.Statement) -> Iterator[Group]:
    if isinstance(statement, s.Switch):  # a declaration would stand between its cases
        return
    for inner in bodies_of(statement):
        yield from groups(sought, inner)


def with_values(
    body: tuple[Any, ...],
    placed: Mapping[int, Sequence[Any]],
    value: Callable[[Any, Any], Any],
) -> tuple[Any, ...]:
    """The body with the statements of `placed` ahead of those whose identity they stand under, and
    with `value(node, done)` in each node's place: `done` is the node with what is below it done.
    Several statements in the place of one are a tuple."""

    def visit(node: Any) -> Any:
        if isinstance(node, tuple) and not isinstance(node, s.Range):
            items = []
            for x in node:
                new = visit(x)
                several = isinstance(new, tuple) and not isinstance(x, tuple)
                items += [*placed.get(id(x), ()), *(new if several else (new,))]
            same = len(items) == len(node) and all(a is b for a, b in zip(items, node, strict=True))
            return node if same else tuple(items)
        names = s.field_names(type(node))
        if names is None:
            return node
        updates = {
            name: new for name in names if (new := visit(old := getattr(node, name))) is not old
        }
        return value(node, replace(node, **updates) if updates else node)

    return visit(body)  # type: ignore[no-any-return]
