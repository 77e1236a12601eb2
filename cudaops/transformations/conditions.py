"""Conditions that are decided before a kernel runs: the branch that is taken stays.

Of preprocessor conditions that is what is compiled: it alone has nodes in the tree. Of conditions
over literals, macros and template arguments (`if (KIND == SHARED)`) it is what they are worth: what
the other branch would do keeps no transformation from the kernel that runs.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in
from cudaops.program.analysis.intervals import INTEGERS, of_type
from cudaops.transformations.trees import changed

_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)\n?", re.MULTILINE
)
_BY_COMPILER = re.compile(rb"__CUDA_ARCH|__CUDACC|__NVCC|__CUDA__|__clang|__GNUC|__HIP")
"""Conditions that g++, clang and nvcc answer differently, or nvcc's two passes."""


def resolved(text: str, function: s.Function, start: int) -> str:
    """A function's text with one branch of each condition.

    `start`: the byte of its file at which the text begins. Conditions on the compiler stay, and so
    does everything where directives do not pair up.
    """
    data = text.encode()
    places = [node.where.start - start for node in _placed(function)]
    waiting: list[list[re.Match[bytes]]] = []
    gone: list[tuple[int, int]] = []
    for found in _DIRECTIVE.finditer(data):
        word = found[1]
        if word in (b"if", b"ifdef", b"ifndef"):
            waiting.append([found])
        elif not waiting:
            return text
        elif word == b"endif":
            gone += _left_out([*waiting.pop(), found], places)
        else:
            waiting[-1].append(found)
    if waiting:
        return text
    kept, at = b"", 0
    for begin, end in sorted(gone):
        if end > at:  # a branch that goes may hold conditions of its own
            kept, at = kept + data[at : max(begin, at)], end
    return (kept + data[at:]).decode()


def _placed(function: s.Function) -> Iterator[Any]:
    for node in s.below(function.body):
        where = getattr(node, "where", None)
        if where is not None and function.where is not None and where.file == function.where.file:
            yield node


def _left_out(directives: list[re.Match[bytes]], places: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of one condition that go: all its directives, and the branches that hold no node."""
    if any(_BY_COMPILER.search(one[2]) for one in directives):
        return
    for one, after in pairwise(directives):
        holds = any(one.end() <= at < after.start() for at in places)
        yield one.start(), one.end() if holds else after.start()
    yield directives[-1].start(), directives[-1].end()


def decided(function: s.Function) -> tuple[Any, ...]:
    """The body without the branches that constants rule out, and without shared memory that they
    alone use; itself where there are none."""
    body, often = function.body, names_of(function)

    def change(node: Any) -> Any:
        known = simplified(node.condition, _truth) if isinstance(node, s.If) else None
        if not isinstance(known, bool):
            return node
        return in_place(node.yes if known else node.no, often)

    taken: tuple[Any, ...] = changed(body, change)
    if taken is body:
        return body
    used = names_in(taken)
    return tuple(
        x for x in taken if not (isinstance(x, s.Declare) and x.shared and x.name not in used)
    )


def names_of(function: s.Function) -> Counter[str]:
    """How many of its parameters and variables are spelled alike."""
    names = [p.name for p in function.parameters]
    names += [x.name for x in s.below(function.body) if isinstance(x, s.Declare | s.Refer)]
    return Counter(map(s.plain_name, names))


def in_place(taken: tuple[Any, ...], often: Counter[str]) -> tuple[Any, ...]:
    """A branch in place of its `if`: without braces where its variables' names are theirs alone."""
    own = [s.plain_name(x.name) for x in taken if isinstance(x, s.Declare | s.Refer)]
    return (s.Block(taken),) if any(often[name] > 1 for name in own) else taken


def simplified(condition: Any, known: Callable[[Any], Any]) -> Any:
    """Its truth, or what is left of it to be asked: itself where nothing is known.

    `known`: the truth of a part without `&&`, `||` and `!` in front, or the part itself. What a
    left side does is done, whatever the right side says.
    """
    match condition:
        case s.Binary("&&" | "||" as word, left, right):
            ends = word == "||"
            found = [simplified(x, known) for x in (left, right)]
            if found[0] is ends or (found[1] is ends and is_pure(left)):
                return ends
            sides = [x for x in found if x is not (not ends)]
            if found[1] is ends:
                sides[-1] = right
            if len(sides) < 2:
                return sides[0] if sides else not ends
            same = sides[0] is left and sides[1] is right
            return condition if same else replace(condition, left=sides[0], right=sides[1])
        case s.Unary("!", operand):
            inner = simplified(operand, known)
            return not inner if isinstance(inner, bool) else condition
    return known(condition)


def _truth(node: Any) -> Any:
    value = _worth(node)
    return node if value is None else value != 0


_ORDERS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
           ">": operator.gt, ">=": operator.ge}  # fmt: skip
_WHOLES = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_,
           "|": operator.or_, "^": operator.xor}  # fmt: skip


def _worth(node: Any) -> int | None:
    """Value of an expression over constants, as an integer that C's conversions leave as it is;
    None where it is none."""
    match node:
        case s.Number("true" | "false" as text):
            return int(text == "true")
        case s.Number():
            return _plain(s.integer_of(node), "int")
        case s.Cast("bool", operand):
            inner = _worth(operand)
            return None if inner is None else int(inner != 0)
        case s.Cast(kind, operand):  # an enumeration is worth what its constants are
            return None if kind in ("float", "double") else _plain(_worth(operand), kind)
        case s.Unary("!") | s.Binary("&&" | "||"):
            known = simplified(node, _truth)
            return int(known) if isinstance(known, bool) else None
        case s.Binary(word, left, right) if word in _ORDERS or word in _WHOLES:
            a, b = _worth(left), _worth(right)
            if a is None or b is None:
                return None
            if word in _ORDERS:
                return int(_ORDERS[word](a, b))
            return _plain(_WHOLES[word](a, b), "int")
    return None


def _plain(value: int | None, kind: str) -> int | None:
    """A value that is the same in every type of integers: never negative, and of 31 bits."""
    most = min(2**31 - 1, of_type(kind).high or 0) if kind in INTEGERS else 2**31 - 1
    return value if value is not None and 0 <= value <= most else None
