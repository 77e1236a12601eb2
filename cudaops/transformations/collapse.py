"""Nested loops as one loop, so that what divides its iterations has all of them to divide.

`for (b ..) for (t ..) body` becomes `for (bt ..) body`, with `b` and `t` computed from `bt` where
the body says them. The same iterations run in the same order: no result changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_early_exit,
    is_pure,
    names_in,
    reads_memory,
)
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft
from cudaops.transformations.loops import Counted, counted, literal
from cudaops.transformations.ranges import Ranges
from cudaops.transformations.trees import changed, declared_in

_MOST = 2**30 - 1
"""Iterations of the one loop: lanes step further than its end, in an `int`."""
_INT = "int"
_NO_NEST = "no nested loops whose bounds the launch gives"


def has_nest(draft: Draft) -> bool:
    """Whether some loop of the kernel may be collapsed, launches aside."""
    return any(
        _pair(x, draft.form) is not None
        for x in s.below(draft.form.kernel.body) if isinstance(x, s.For)
    )  # fmt: skip


NEST: Setting = {"loops": "collapsed"}
"""Part of a setting: the pass works on nested loops made one."""


def as_set(draft: Draft, setting: Setting) -> Draft:
    """What a pass with this setting works on. Raises NotUnderstood."""
    return collapsed(draft) if setting.get("loops") == NEST["loops"] else draft


def collapsed(draft: Draft) -> Draft:
    """With every nest of loops as one. Raises NotUnderstood where there is none.

    A launch must give the loops' bounds, none of them negative, and their product must fit."""
    if not has_nest(draft):  # asked first: ranges take longer
        raise NotUnderstood(_NO_NEST)
    work = _Collapsing(draft)
    body = changed(draft.form.kernel.body, work.change)
    if not work.requires:
        raise NotUnderstood(_NO_NEST)
    return draft.with_body(body).requiring(*work.requires)


@dataclass(frozen=True)
class _Pair:
    """Two loops, the inner one alone in the outer one but for declarations before it."""

    outer: Counted
    inner: Counted
    between: tuple[s.Declare, ...]


def _pair(node: s.For, form: s.KernelForm) -> _Pair | None:
    """The loop with the one in it, where both count up by one from a literal and the inner one's
    bound is the same in every iteration of the outer one."""
    *before, last = node.body or (None,)
    if not isinstance(last, s.For):
        return None
    try:
        outer, inner = counted(node, form), counted(last, form)
    except NotUnderstood:
        return None
    for loop in (outer, inner):
        if not loop.is_own or loop.operator != "<" or loop.stride != 1:
            return None
        if literal(loop.start) is None or not is_pure(loop.bound) or reads_memory(loop.bound):
            return None
    between = tuple(x for x in before if isinstance(x, s.Declare))
    if len(between) < len(before) or has_early_exit(inner.body, "continue"):
        return None
    names = {outer.variable, inner.variable, *(x.name for x in between)}
    if len(set(map(s.plain_name, names))) < 2 + len(between) or names_in(inner.bound) & names:
        return None
    if names & (changed_variables(inner.body, form) | declared_in(inner.body)):
        return None
    moved = changed_variables(inner.body, form)
    if any(_differs(x) or names_in(x.value) & moved for x in between):
        return None
    return _Pair(outer, inner, between)


def _differs(x: s.Declare) -> bool:
    """Whether a declaration may not be made again in every iteration of the inner loop."""
    if x.value is None or x.shared or x.extents or x.is_volatile:
        return True
    return not is_pure(x.value) or reads_memory(x.value)


class _Collapsing:
    """One walk over a kernel, inner loops first."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._ranges = draft, Ranges(draft)
        self._counts: dict[str, LaunchExpression] = {}
        """Of the loops made here, by their variable."""
        self.requires: tuple[LaunchExpression, ...] = ()

    def change(self, node: Any) -> Any:
        """For `trees.changed`."""
        pair = _pair(node, self._draft.form) if isinstance(node, s.For) else None
        if pair is None:
            return node
        found = self._count(pair.outer), self._count(pair.inner)
        counts = [n for n in found if n is not None]
        if len(counts) < 2:
            return node
        whole = counts[0] * counts[1]
        asked = (*(n >= 0 for n in counts if n not in self._counts.values()), whole <= _MOST)
        if not self._draft.holds(*asked):
            return node
        name = self._free("_".join(map(s.plain_name, (pair.outer.variable, pair.inner.variable))))
        self._counts[name] = whole
        self.requires = (*self.requires, *asked)
        return _one(pair, name)

    def _free(self, wanted: str) -> str:
        """A name that neither the draft nor a loop made here has."""
        name = self._draft.fresh_name(wanted)
        while name in self._counts:
            name = self._draft.fresh_name(f"{name}_")
        return name

    def _count(self, loop: Counted) -> LaunchExpression | None:
        """How often a loop runs."""
        if loop.variable in self._counts:
            return self._counts[loop.variable]
        bound = self._ranges.launched(loop.bound)
        start = literal(loop.start)
        return bound if bound is None or not start else bound - start


def _one(pair: _Pair, name: str) -> s.For:
    """The loop over both."""
    outer, inner = pair.outer, pair.inner
    both, width = s.Name(name, type=_INT), _length(inner)
    body: tuple[Any, ...] = tuple(inner.body)
    if not literal(outer.start) and not literal(inner.start):
        body = changed((pair.between, body), _joined(pair, both, width))
        between, body = body
    else:
        between = pair.between
    said = names_in((between, body))
    parts = ((outer, "/"), (inner, "%"))
    heads = tuple(
        s.Declare(f"const {x.type}", x.variable, value=_begun(x, s.Binary(sign, both, width)))
        for x, sign in parts if x.variable in said
    )  # fmt: skip
    total = s.Binary("*", _length(outer), width, type=_INT)
    return s.For(
        (s.Declare(_INT, name, value=s.Number("0", type=_INT)),),
        s.Binary("<", both, total, type="bool"),
        (s.Step(both, 1),),
        (*heads, *between, *body),
        where=outer.node.where,
    )


def _length(loop: Counted) -> Any:
    """How often a loop runs, as an `int`."""
    bound, start = loop.bound, literal(loop.start) or 0
    if getattr(bound, "type", _INT) != _INT:
        bound = s.Cast(_INT, bound)
    if not start:
        return bound
    end = literal(loop.bound)
    if end is not None:
        return s.Number(str(end - start), type=_INT)
    sign = "-" if start > 0 else "+"
    return s.Binary(sign, bound, s.Number(str(abs(start)), type=_INT), type=_INT)


def _begun(loop: Counted, value: Any) -> Any:
    """The loop's variable, from how many iterations came before."""
    start = literal(loop.start) or 0
    if not start:
        return value
    sign = "+" if start > 0 else "-"
    return s.Binary(sign, value, s.Number(str(abs(start)), type=_INT))


def _joined(pair: _Pair, both: s.Name, width: Any) -> Callable[[Any], Any]:
    """`b * T + t` is `bt`; in an index `(P + b) * T + t` is `P * T + bt` too: an element so far
    before an array's begin that this overflows does not exist."""
    outer, inner = pair.outer.variable, pair.inner.variable
    plain = pair.outer.type == pair.inner.type == _INT

    def factors(node: Any) -> Iterator[Any]:
        """What is multiplied with the inner loop's length."""
        match node:
            case s.Binary("*", left, right, type="int"):
                yield from (left,) if right == width else ()
                yield from (right,) if left == width else ()

    def sum_of(node: Any, *, in_index: bool) -> Any:
        match node:
            case s.Binary("+", left, right, type="int"):
                sides = ((left, right), (right, left))
            case _:
                return None
        for product, rest in sides:
            if not (isinstance(rest, s.Name) and rest.text == inner):
                continue
            for x in factors(product):
                match x:
                    case s.Name(text) if text == outer:
                        return both
                    case s.Binary("+", other, s.Name(text)) | s.Binary(
                        "+", s.Name(text), other
                    ) if text == outer and in_index and getattr(x, "type", "") == _INT:
                        scaled = s.Binary("*", other, width, type=_INT)
                        return s.Binary("+", scaled, both, type=_INT)
        return None

    def change(node: Any) -> Any:
        if not plain:
            return node
        if isinstance(node, s.Index):
            index = changed(node.index, lambda x: sum_of(x, in_index=True) or x)
            return node if index is node.index else replace(node, index=index)
        return sum_of(node, in_index=False) or node

    return change
