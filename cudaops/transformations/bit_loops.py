"""Loops over the bits of an integer, with what their turns compute of constants alone.

`while (n > 0) { if (n & 1) r *= a; a *= a; n >>= 1; }` is how powers are taken and generators of
random numbers skip ahead: what `a` is in each turn does not depend on the thread. Such a loop turns
at most once for each bit of `n`. Written with that bound and unrolled fully, left where the
author's condition ends it, the compiler computes each turn's `a` itself: constants in the
instructions, and half of the products are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    has_early_exit,
    is_pure,
    may_write,
    names_in,
    plain_variables,
    targets_in,
)
from cudaops.program.analysis.intervals import INTEGERS, of_type
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.loops import literal
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import swapped


def most_turns(draft: Draft, node: s.For, function: s.Function) -> int:
    """How often a loop over bits turns at most. Raises NotUnderstood for any other loop."""
    match node:
        case s.For((), s.Binary(">" | "!=" as operator, s.Name(text, type=kind), end)):
            least = literal(end)
        case s.For((), s.Name(text, type=kind)):
            operator, least = "!=", 0
        case _:
            raise NotUnderstood("a loop that does not end when an integer has no bits left")
    low, high = of_type(kind).low, of_type(kind).high
    if (
        kind not in INTEGERS
        or low is None
        or high is None
        or least is None
        or least < 0
        or (operator == "!=" and least)
    ):
        raise NotUnderstood("a loop that does not end when an integer has no bits left")
    if operator == "!=" and low < 0:
        raise NotUnderstood("an integer that may be negative, whose shifts do not end")
    if text not in plain_variables(function):
        raise NotUnderstood(f"{text}, which may be modified elsewhere")
    moves = [x for x in (*node.step, *node.body) if _shift(x, text)]
    rest = tuple(x for x in (*node.step, *node.body) if not _shift(x, text))
    if len(moves) != 1 or may_write(rest, {text}, draft.form):
        raise NotUnderstood(f"{text} is not shifted once per iteration")
    if not any(moves[0] is x for x in node.step) and _continues(node.body):
        raise NotUnderstood("an iteration that may end before the shift")
    return -(-high.bit_length() // _shift(moves[0], text))


def _continues(body: Any) -> bool:
    """Whether a turn may end early and another follow."""
    return has_early_exit(body, "break return")


def _shift(node: Any, name: str) -> int:
    """By how many bits a statement shifts this variable down; 0 for any other."""
    match node.value if isinstance(node, s.Evaluate) else node:
        case s.Assign(s.Name(text), ">>", by) if text == name:
            return _bits(literal(by))
        case s.Assign(s.Name(text), "", s.Binary(">>", s.Name(of), by)) if text == of == name:
            return _bits(literal(by))
        case s.Assign(s.Name(text), "/", s.Number() as by) if text == name:
            return _bits((literal(by) or 0).bit_length() - 1)
    return 0


def _bits(count: int | None) -> int:
    return count if count is not None and 0 < count < 32 else 0


def computes_constants(node: s.For, function: s.Function) -> bool:
    """Whether a variable that begins with a constant is made of constants alone in every turn."""
    plain = plain_variables(function)
    found = {
        x.name for x in s.below(function.body)
        if isinstance(x, s.Declare) and x.name in plain and x.value is not None
        and not names_in(x.value) and is_pure(x.value)
    }  # fmt: skip
    while bad := found & set(_dependent(node, found)):
        found -= bad
    written = {x.text for x in targets_in(node.body) if isinstance(x, s.Name)}
    return bool(found & written)


def _dependent(node: s.For, known: set[str]) -> Iterator[str]:
    """Variables that the loop makes of others than these, or only in some turns."""
    always = {id(x.value) for x in node.body if isinstance(x, s.Evaluate)}
    for x in s.below(node):
        if isinstance(x, s.Assign | s.Step) and isinstance(x.target, s.Name):
            value = x.value if isinstance(x, s.Assign) else None
            if id(x) not in always or not names_in(value) <= known:
                yield x.target.text


def unrolled_by_bits(draft: Draft, function: s.Function, node: s.For) -> str:
    """The function's text with the loop's bound, fully unrolled. Raises NotUnderstood."""
    turns = most_turns(draft, node, function)
    turn: Any = s.Name(draft.fresh_name("turn"), type="int")
    assert node.condition is not None
    left = s.If(s.Unary("!", node.condition, type="bool"), (s.Leave("break"),))
    bounded = s.For(
        (s.Declare("int", turn.text, value=s.Number("0", type="int")),),
        s.Binary("<", turn, s.Number(str(turns), type="int"), type="bool"),
        (s.Step(turn, 1), *node.step), (left, *node.body),
    )  # fmt: skip
    body = swapped(function.body, node, (Raw("#pragma unroll"), bounded))
    return draft.printer(function).printed(body)
