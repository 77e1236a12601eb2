"""Loops without their bounds checks, for threads of which every iteration is inside."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    all_written_names,
    changed_variables,
    is_pure,
    is_volatile,
    names_in,
    synchronises,
)
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import (
    Counted,
    analysable_loops,
    counted,
    literal,
    loop_of,
    number,
    scalars_of,
    scoped,
)
from cudaops.transformations.trees import changed, declared_in, renamed, swapped

_MOST_SETTINGS = 3
_MOST_CONDITIONS = 8
_SIGNED = frozenset({"int", "long long"})
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip


class Interior:
    """A loop nest twice: without its bounds checks, clamps and mirrored edges where its first and
    last iterations are inside, and as the author wrote it for the threads at the border.

    Legal: a check compares signed integers that are linear in the loops' variables, so that it
    holds for all iterations where it holds for the outermost ones; everything else in it is the
    same throughout the nest. The conditions are computed from such integers alone, before the nest,
    and no threads meet in it. Whatever the checks guarded, the author's code does as well.
    """

    name = "interior"
    title = "interior loop without bounds checks"
    family: Family = "algorithm"
    relieves = frozenset({
        "integer_pipe", "issue_slots", "divergence", "stall_branch", "stall_wait",
        "stall_long_scoreboard",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Nests with checks in them, the hottest first."""
        found = (placed.setting for placed, _ in analysable_loops(draft, _read))
        return tuple(islice(found, _MOST_SETTINGS))

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One version for each side of the border."""
        loop = loop_of(draft.form.kernel, setting["loop"])
        inside, conditions = _read(draft, loop)
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = s.Binary("&&", whole, condition)
        made = s.If(whole, (inside,), (loop,))
        body = swapped(draft.form.kernel.body, loop, made)
        says = (
            "Threads whose iterations are all in bounds run a loop without bounds checks, "
            "the others the original loop."
        )
        return draft.with_body(body).stepped(Step(self.name, setting, says))


def _read(draft: Draft, loop: s.For) -> tuple[s.For, tuple[Any, ...]]:
    """The loop without its checks, and what must hold for it. Raises NotUnderstood."""
    form = draft.form
    if is_volatile(form.kernel, form):
        raise NotUnderstood("volatile memory or assembly")
    if synchronises((loop,), form):
        raise NotUnderstood("a barrier or warp collective in the loop")
    fixed = set(scalars_of(form.kernel)) - all_written_names((loop,), form) - declared_in(loop)
    walk = _Walk(form, fixed)
    inside = walk.loop(loop, {})
    conditions = tuple(dict.fromkeys(walk.conditions))
    if not conditions:
        raise NotUnderstood("no bounds check that is linear in the loop")
    if len(conditions) > _MOST_CONDITIONS:
        raise NotUnderstood(f"{len(conditions)} conditions for the inside")
    return inside, conditions


@dataclass(frozen=True)
class _Range:
    """What a loop's variable goes through: both ends included."""

    low: Any
    high: Any


@dataclass
class _Walk:
    """Goes through a nest and takes the checks out, noting what must hold for that."""

    form: s.KernelForm
    fixed: set[str]
    """Variables that are the same throughout the nest."""
    ranges: dict[str, _Range] = field(default_factory=dict)
    conditions: list[Any] = field(default_factory=list)

    # Statements; `known` has values of integers in terms of loops' variables and fixed ones

    def loop(self, node: s.For, known: Mapping[str, Any]) -> s.For:
        """One loop of the nest."""
        inner = {k: v for k, v in known.items() if k not in changed_variables(node, self.form)}
        try:
            read = counted(node, self.form)
            span = self._range(read, inner)
        except NotUnderstood:
            return replace(node, body=self.body(node.body, inner))
        outer = self.ranges
        self.ranges = outer | {read.variable: span}
        body = self.body(node.body, inner)
        self.ranges = outer
        return replace(node, body=body)

    def _range(self, loop: Counted, known: Mapping[str, Any]) -> _Range:
        if loop.sign != "+" or loop.start is None or loop.type not in _SIGNED or not loop.stride:
            raise NotUnderstood("a loop that counts down, or from an unknown start")
        start, bound = (renamed(x, known) for x in (loop.start, loop.bound))
        if not self._is_fixed(start) or not self._is_fixed(bound):
            raise NotUnderstood("a loop bound that changes")
        if loop.operator == "<":
            value = literal(bound)
            one = s.Number("1", type="int")
            bound = s.Binary("-", bound, one, type="int") if value is None else number(value - 1)
        return _Range(start, bound)

    def body(self, body: Sequence[Any], known: Mapping[str, Any]) -> tuple[Any, ...]:
        """Statements without their checks."""
        known = dict(known)
        made: list[Any] = []
        for x in body:
            made += self._statement(x, known)
        return tuple(made)

    def _statement(self, node: Any, known: dict[str, Any]) -> tuple[Any, ...]:
        match node:
            case s.If():
                return self._if(node, known)
            case s.For():
                new: Any = self.loop(node, known)
            case s.Block(body):
                new = replace(node, body=self.body(body, known))
            case s.Declare(kind, name, pointer=False, extents=(), value=value) if (
                kind in _SIGNED and value is not None
            ):
                new = replace(node, value=self._expression(value, known))
                plain = renamed(new.value, known)
                over = self.fixed | s.BUILTINS | set(self.ranges)
                if _is_linear(plain) and _kind(plain) in _SIGNED and names_in(plain) <= over:
                    known[name] = plain
                return (new,)
            case s.Evaluate() | s.Declare():
                new = self._expression(node, known)
            case _:
                new = node
        for name in changed_variables(node, self.form):
            known.pop(name, None)
        return (new,)

    def _if(self, node: s.If, known: dict[str, Any]) -> tuple[Any, ...]:
        if not node.no and _is_correction(node):
            never = self._checks(node.condition, known, truth=False)
            if never is not None:
                self.conditions += never
                return ()
        elif not node.no:
            kept, always = self._conjuncts(node.condition, known)
            if kept is not node.condition:
                self.conditions += always
                inner = self.body(node.yes, known)
                for name in changed_variables(node, self.form):
                    known.pop(name, None)
                bare = kept is None
                return scoped(inner) if bare else (replace(node, condition=kept, yes=inner),)
        condition = self._expression(node.condition, known)
        yes, no = self.body(node.yes, known), self.body(node.no, known)
        for name in changed_variables(node, self.form):
            known.pop(name, None)
        same = (condition, yes, no) == (node.condition, node.yes, node.no)
        return (node if same else replace(node, condition=condition, yes=yes, no=no),)

    def _expression(self, node: Any, known: Mapping[str, Any]) -> Any:
        """An expression without clamps and choices that are about bounds."""

        def change(x: Any) -> Any:
            match x:
                case s.Choice(condition, yes, no) if literal(yes) is not None or _is_zero(yes):
                    checks = self._checks(condition, known, truth=False)
                    kept = no
                case s.Choice(condition, yes, no) if literal(no) is not None or _is_zero(no):
                    checks = self._checks(condition, known, truth=True)
                    kept = yes
                case s.Call("min" | "max" as name, (a, b)) if x.type in _SIGNED:
                    kept, other = (a, b) if self._moves(a, known) else (b, a)
                    sign = "<=" if name == "min" else ">="
                    moves = self._moves(kept, known) and not self._moves(other, known)
                    check = s.Binary(sign, kept, other)
                    checks = self._checks(check, known, truth=True) if moves else None
                case _:
                    return x
            if checks is None:
                return x
            self.conditions += checks
            return kept

        return changed(node, change) if is_pure(_values(node)) else node

    # Conditions

    def _conjuncts(self, node: Any, known: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """What of a condition is no check, and what must hold for the others."""
        if isinstance(node, s.Binary) and node.operator == "&&":
            left, a = self._conjuncts(node.left, known)
            right, b = self._conjuncts(node.right, known)
            kept = [x for x in (left, right) if x is not None]
            if len(kept) < 2:
                return (kept[0] if kept else None), a + b
            same = left is node.left and right is node.right
            return node if same else replace(node, left=left, right=right), a + b
        checks = self._checks(node, known, truth=True)
        return (node, []) if checks is None else (None, checks)

    def _checks(self, node: Any, known: Mapping[str, Any], *, truth: bool) -> list[Any] | None:
        """What must hold before the nest for a condition to have this value in every iteration;
        None where that is not known."""
        match node:
            case s.Unary("!", operand):
                return self._checks(operand, known, truth=not truth)
            case s.Binary("&&" | "||" as operator, left, right) if (operator == "&&") == truth:
                a = self._checks(left, known, truth=truth)
                b = self._checks(right, known, truth=truth)
                return None if a is None or b is None else a + b
            case s.Binary(operator, left, right) if operator in s.ORDERS:
                operator = operator if truth else s.NEGATED[operator]
                return self._check(operator, renamed(left, known), renamed(right, known))
        return None

    def _check(self, operator: str, left: Any, right: Any) -> list[Any] | None:
        if {_kind(left), _kind(right)} - _SIGNED or not any(
            self._moves(x, {}) for x in (left, right)
        ):
            return None
        if not _is_linear(left) or not _is_linear(right):
            return None
        names: dict[str, Any] = {}
        for name, span in self.ranges.items():
            a, b = _factor(left, name), _factor(right, name)
            if a is None or b is None:
                return None
            rises = (a > b) == (operator in ("<", "<="))
            names[name] = span.high if rises else span.low
        sides = tuple(folded(renamed(x, names)) for x in (left, right))
        if not all(self._is_fixed(x) for x in sides):
            return None
        ends = literal(sides[0]), literal(sides[1])
        if None not in ends:
            return [] if _HOLDS[operator](*ends) else None
        return [s.Binary(operator, *sides)]

    def _moves(self, node: Any, known: Mapping[str, Any]) -> bool:
        return bool(names_in(renamed(node, known)) & set(self.ranges))

    def _is_fixed(self, node: Any) -> bool:
        if not _is_linear(node) or _kind(node) not in _SIGNED:
            return False
        return names_in(node) <= self.fixed | s.BUILTINS


# Trees


def _is_correction(node: s.If) -> bool:
    """Whether it only mends an index that it looks at, or skips what is outside."""
    tested = names_in(node.condition)
    for x in node.yes:
        match x:
            case s.Leave("continue"):
                continue
            case s.Evaluate(s.Assign(s.Name(text, type=kind))) if (
                kind in _SIGNED and text in tested
            ):
                continue
        return False
    return bool(node.yes)


def _values(node: Any) -> tuple[Any, ...]:
    """What a statement computes, without the place that it assigns."""
    match node:
        case s.Evaluate(s.Assign(target, _, value)):
            return (*s.children(target), value)
    return (node,)


def _is_zero(node: Any) -> bool:
    return isinstance(node, s.Number) and node.text.rstrip("fFuUlL") in ("0", "0.0", "0.", ".0")


def _is_linear(node: Any) -> bool:
    """Whether it is made of integers by sums and products alone."""
    match node:
        case s.Number():
            return literal(node) is not None
        case s.Name(type=kind):
            return kind in _SIGNED
        case s.Member(s.Name(root)):
            return root in s.BUILTINS
        case s.Unary("-", operand):
            return _is_linear(operand)
        case s.Cast(kind, operand):
            return kind in _SIGNED and _is_linear(operand)
        case s.Binary("+" | "-" | "*", left, right):
            return _is_linear(left) and _is_linear(right)
    return False


def _kind(node: Any) -> str:
    """The type in which it is computed; what a builtin makes unsigned is unsigned."""
    kinds = {x.type for x in s.below(node) if hasattr(x, "type") and not isinstance(x, s.Cast)}
    wrong = {k for k in kinds if k not in _SIGNED and k not in ("", "uint3", "dim3")}
    return wrong.pop() if wrong else ("long long" if "long long" in kinds else "int")


def _factor(node: Any, name: str) -> int | None:
    """By how much it grows with a variable; None where that is no literal."""
    if name not in names_in(node):
        return 0
    match node:
        case s.Name():
            return 1
        case s.Unary("-", operand):
            inner = _factor(operand, name)
            return None if inner is None else -inner
        case s.Cast(_, operand):
            return _factor(operand, name)
        case s.Binary("+" | "-" as operator, left, right):
            a, b = _factor(left, name), _factor(right, name)
            if a is None or b is None:
                return None
            return a + b if operator == "+" else a - b
        case s.Binary("*", left, right):
            for side, other in ((left, right), (right, left)):
                inner, by = _factor(side, name), literal(other)
                if inner is not None and by is not None:
                    return inner * by
    return None


def folded(node: Any) -> Any:
    """With sums and products of literals computed, and no `+ -3`."""

    def change(x: Any) -> Any:
        match x:
            case s.Binary("+" | "-" | "*" as operator, left, right):
                a, b = literal(left), literal(right)
                if a is not None and b is not None:
                    results = {"+": a + b, "-": a - b, "*": a * b}
                    return number(results[operator])
                if b == 0 and operator != "*":
                    return left
                if operator == "+" and a == 0:
                    return right
                if operator == "*" and 0 in (a, b) and x.type in _SIGNED:
                    return number(0)
                if operator == "*" and 1 in (a, b) and x.type in _SIGNED:
                    return right if a == 1 else left
                if b is not None and b < 0 and operator in ("+", "-"):
                    sign = "-" if operator == "+" else "+"
                    return replace(x, operator=sign, right=number(-b))
        return x

    return changed(node, change)
