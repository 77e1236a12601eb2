"""Variables that are zero or one, whose negation is one instruction rather than two.

`c = !c` compares an integer with zero and selects; where it is seen to hold nothing but zero and
one, `c ^= 1` is the same. Both instructions share the pipe of comparisons, which is the first to be
full where a loop counts crossings or parities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in, root_of
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import PURE
from cudaops.transformations.trees import changed

_TRUTHS = frozenset({"<", ">", "<=", ">=", "==", "!=", "&&", "||"})


def with_toggles(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same tuple where there are none."""
    known = _zero_or_one(body)

    def change(node: Any) -> Any:
        match node:
            case s.Evaluate(s.Assign(target, "", value)) if (
                root_of(target) in known and _negates(value, target) and is_pure(target)
            ):
                one = s.Number("1", type="int")
                return s.Evaluate(s.Assign(target, "^", one, type=target.type))
        return node

    return changed(body, change) if known else body


def _negates(value: Any, target: Any) -> bool:
    match value:
        case s.Unary("!", operand):
            return bool(operand == target)
        case s.Binary("==", left, right):
            return bool(left == target) and s.integer_of(right) == 0
        case s.Choice(condition, yes, no):
            values = s.integer_of(yes), s.integer_of(no)
            return bool(condition == target) and values == (0, 1)
    return False


def _zero_or_one(body: Any) -> set[str]:
    """Integers of the thread's own, arrays of them too, that never hold another value: everything
    that is written to them is seen, and is zero or one if they were so before."""
    extents = {
        x.name: len(x.extents) for x in s.below(body)
        if isinstance(x, s.Declare) and x.type in INTEGERS - {"bool"}
        and not (x.pointer or x.shared or x.unsized)
    }  # fmt: skip
    found = set(extents) - set(_as_pointers(body, extents))
    for x in s.below(body):
        if isinstance(x, s.Opaque) or (isinstance(x, s.Unmodelled) and "lambda" in x.what):
            return set()
        found -= _reached_otherwise(x)
    while bad := {name for x in s.below(body) for name in _others(x, found)}:
        found -= bad
    return found


def _as_pointers(node: Any, extents: Mapping[str, int]) -> Iterator[str]:
    """Arrays of these that stand somewhere without all of their indices."""
    place, indices = node, 0
    while isinstance(place, s.Index):
        yield from _as_pointers(place.index, extents)
        place, indices = place.base, indices + 1
    if isinstance(place, s.Name):
        if extents.get(place.text, indices) != indices:
            yield place.text
        return
    for child in s.children(place):
        yield from _as_pointers(child, extents)


def _reached_otherwise(x: Any) -> set[str]:
    """Variables that may be written out of sight from here on."""
    match x:
        case s.Refer(_, _, target) | s.Unary("&", target):
            return names_in(target)
        case s.Unmodelled() | s.Values():
            return names_in(x)
        case s.Call(function, arguments) if function not in PURE:
            # A reference is taken of a place; of what is computed only a copy.
            places = (s.Name, s.Index, s.Member)
            return set().union(*(names_in(a) for a in arguments if isinstance(a, places)))
    return set()


def _others(x: Any, known: set[str]) -> set[str]:
    """Of these variables, what this node itself makes neither zero nor one."""
    match x:
        case s.Declare(name=name, value=value):
            is_kept = value is None or _is_truth(value, known)
        case s.Assign(target, "" | "^" | "&" | "|", value):
            name, is_kept = root_of(target) or "", _is_truth(value, known)
        case s.Assign(target) | s.Step(target):
            name, is_kept = root_of(target) or "", False
        case _:
            return set()
    return set() if is_kept else {name} & known


def _is_truth(value: Any, known: set[str]) -> bool:
    """Whether it is zero or one, where these are."""
    match value:
        case s.Number():
            return s.integer_of(value) in (0, 1)
        case s.Name("true" | "false") | s.Unary("!"):
            return True
        case s.Name() | s.Index():
            return root_of(value) in known
        case s.Cast(kind, operand):
            return kind in INTEGERS and _is_truth(operand, known)
        case s.Binary(operator, left, right):
            both = _is_truth(left, known) and _is_truth(right, known)
            return operator in _TRUTHS or (operator in ("^", "&", "|") and both)
        case s.Choice(_, yes, no):
            return _is_truth(yes, known) and _is_truth(no, known)
        case s.Assign(target, "", inner):
            return root_of(target) in known and _is_truth(inner, known)
    return getattr(value, "type", "") == "bool"
