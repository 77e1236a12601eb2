"""Looking at trees and changing them: untouched parts stay the same objects (see `text`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.library_calls import BLOCK_BARRIER


def changed(node: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with `change` applied to every node from the leaves up.

    `change` gives the node itself, another one or, for a statement in a list, a tuple of several.
    Nodes below which nothing changed stay the same objects; a changed one keeps its `where`.
    """
    if isinstance(node, tuple) and not isinstance(node, s.Range):
        return _changed_items(node, change)
    names = s.field_names(type(node))
    if names is None:
        return node
    updates = {}
    for name in names:
        old = getattr(node, name)
        if (kind := type(old)) is not s.Range and (
            kind is tuple or s.field_names(kind) is not None
        ):
            new = changed(old, change)
            if new is not old:
                updates[name] = new
    return change(replace(node, **updates) if updates else node)


def _changed_items(items: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for item in items:
        new = changed(item, change)
        found += new if isinstance(new, tuple) and not isinstance(item, tuple) else (new,)
    same = len(found) == len(items) and all(a is b for a, b in zip(found, items, strict=True))
    return items if same else tuple(found)


def renamed(node: Any, names: Mapping[str, Any]) -> Any:
    """With other expressions in place of variables. Declarations of them are not touched."""

    def change(x: Any) -> Any:
        return names[x.text] if isinstance(x, s.Name) and x.text in names else x

    return changed(node, change)


def declarations_in(node: Any) -> Iterator[s.Declare]:
    """Declarations anywhere in it, in the text's order."""
    return (x for x in s.below(node) if isinstance(x, s.Declare))


def declared_in(node: Any) -> set[str]:
    """Variables that are declared anywhere in it."""
    return {x.name for x in s.below(node) if isinstance(x, s.Declare | s.Refer)}


def is_barrier(node: Any, functions: Collection[str] = BLOCK_BARRIER) -> bool:
    """Whether a statement is a barrier and nothing else; of the block, or one of these."""
    match node:
        case s.Evaluate(s.Call(function)):
            return function in functions
    return False


def swapped(root: Any, old: Any, new: Any) -> Any:
    """The tree with one node, found by identity, in place of another; `new` may be a tuple of
    statements."""
    return changed(root, lambda x: new if x is old else x)


def statements(body: Sequence[Any]) -> Iterator[Any]:
    """Every statement of a body, outer ones first."""
    for x in s.below(tuple(body)):
        if isinstance(x, s.Statement):
            yield x


def bodies_of(statement: Any) -> tuple[tuple[Any, ...], ...]:
    """Lists of statements directly within one; not the begin of a loop."""
    match statement:
        case s.If(_, yes, no):
            return yes, no
        case s.For() | s.Do() | s.Block() | s.Switch():
            return (statement.body,)
    return ()


def lists_changed(
    body: tuple[Any, ...], change: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> tuple[Any, ...]:
    """The body with `change` applied to every list of statements in it, inner ones first, and to
    itself; a list that comes back as it is stays the same object."""

    def inside(x: Any) -> Any:
        updates = {}
        for name in ("body", "yes", "no"):
            inner = getattr(x, name, None)
            if isinstance(inner, tuple) and (new := change(inner)) is not inner:
                updates[name] = new
        return replace(x, **updates) if updates else x

    return change(changed(body, inside))
