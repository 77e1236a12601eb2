"""Dear arithmetic as cheap arithmetic that gives the same: powers, roots and divisions.

`exact`: `pow` and `powf` with a small whole exponent become products (`powers`). `(x + 1) % n` and
`(n + x + d) % n`, where `d` is a number or counts from -1 to 1, become compares and selects where
`0 <= x < n` is seen in the text or is made true by a guard (`ranges`): integers, the same to the
bit. Quotients and remainders of what is never negative are taken without a sign, which costs fewer
instructions, also where the divisor is a constant. `c = !c` of what is zero or one is `c ^= 1`
(`toggles`). Loops that count set bits are `__popc` (`bit_counts`).

`reciprocals`: besides, divisions by one denominator become products with its reciprocal, computed
once; `a / sqrt(b)` becomes `a * rsqrt(b)`. Each costs one rounding more, so the gates decide; where
the denominator is a number of the launch a guard keeps its reciprocal a normal number. One that
only the thread knows must be normal too (2^-126 to 2^126 for float) for its quotients to hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    is_pure,
    may_write,
    names_in,
    plain_variables,
    reads_memory,
)
from cudaops.program.analysis.intervals import INTEGERS, of_type
from cudaops.program.launch_expression import LaunchExpression, maximum
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.bit_counts import with_bit_counts
from cudaops.transformations.computed_once import Group, Run, Sought, groups, with_values
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.functions import FLOATING, reached, rewritten
from cudaops.transformations.loops import counted, literal
from cudaops.transformations.places import through_casts
from cudaops.transformations.powers import has_power, with_cases, with_powers
from cudaops.transformations.ranges import Proof, Ranges, in_order, launch_expression
from cudaops.transformations.toggles import with_toggles
from cudaops.transformations.trees import bodies_of, changed

_ROOTS = {"sqrtf": "float", "sqrt": "double"}
_WIDEST = 10**18
"""A denominator of the launch lies between it and its reciprocal."""


class StrengthReduce:
    """Products for powers, selects for wrapped remainders, divisions without sign, reciprocals."""

    name = "strength_reduce"
    title = "cheaper arithmetic"
    family: Family = "algorithm"
    relieves = frozenset({
        "fp64_pipe", "sfu_pipe", "issue_slots", "integer_pipe", "fma_pipe", "stall_wait",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """With the reciprocals first, where there are any: they bring more."""
        exact = has_power(draft) or any(_has_wrap(f, draft.form) for f in reached(draft))
        exact = exact or bool(_never_negative(draft)) or _with_toggles(draft) is not draft
        exact = exact or any(with_bit_counts(f, draft.form) is not None for f in reached(draft))
        divides = any(_shared_divisions(f, draft.form) for f in reached(draft))
        found: tuple[Setting, ...] = ({"what": "reciprocals"},) if divides else ()
        return (*found, {"what": "exact"}) if exact else found

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Powers, then remainders, then divisions of integers and of others."""
        told: list[str] = []
        began = draft
        draft = with_cases(began)
        if draft is not began:
            told.append("code specialised for each captured exponent")
        before = draft
        draft = with_powers(draft)
        if draft is not before:
            told.append("powers are multiplications")
        before = draft
        draft = _with_selects(draft)
        if draft is not before:
            told.append("remainders that wrap around once are selects")
        before = draft
        draft = _without_signs(draft)
        if draft is not before:
            told.append("divisions of non-negative values are unsigned")
        before = draft
        draft = _with_toggles(draft)
        if draft is not before:
            told.append("0/1 values are toggled by XOR")
        before = draft
        draft = rewritten(draft, lambda d, f: with_bit_counts(f, d.form))
        if draft is not before:
            told.append("set bits are counted by popc")
        if setting["what"] == "reciprocals":
            before = draft
            draft = _with_reciprocals(draft)
            if draft is not before:
                told.append(
                    "divisions by a common denominator are multiplications by its reciprocal"
                )
        if draft is began:
            raise NotUnderstood(
                "no power, remainder, shared denominator, toggle, or loop over bits"
            )
        says = "; ".join(told)
        return draft.stepped(Step(self.name, setting, f"{says[0].upper()}{says[1:]}."))


def _with_toggles(draft: Draft) -> Draft:
    body = with_toggles(draft.form.kernel.body)
    return draft if body is draft.form.kernel.body else draft.with_body(body)


def _if_changed(function: s.Function, body: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return None if body is function.body else body


# Remainders


@dataclass(frozen=True)
class _Wrap:
    """`(x + shift) % n` or `(x + n + shift) % n`, where `shift` is a number, the counter of a loop
    over literals, or both."""

    x: s.Expression
    moved: s.Expression
    """`x + shift`."""
    low: int
    high: int
    """Of the shift, both ends included."""
    n: s.Expression
    type: str

    @property
    def most(self) -> int:
        """How far it moves at most."""
        return max(abs(self.low), abs(self.high))


_Spans = Mapping[str, tuple[int, int]]
"""Counters of loops over literals, with the first and the last value of each."""


def _spans(function: s.Function, form: s.KernelForm) -> _Spans:
    found = {}
    for node in (x for x in s.below(function.body) if isinstance(x, s.For)):
        try:
            loop = counted(node, form)
        except NotUnderstood:
            continue
        start, trips, stride = literal(loop.start), loop.trips(), loop.stride
        if loop.is_own and start is not None and trips and stride:
            last = start + (trips - 1) * (stride if loop.sign == "+" else -stride)
            found[loop.variable] = (min(start, last), max(start, last))
    return found


def _wrap(node: Any, spans: _Spans) -> _Wrap | None:
    match node:
        case s.Binary("%", dividend, (s.Name() | s.Number()) as n, type=kind):
            pass
        case _:
            return None
    terms = list(_terms(dividend, 1))
    if kind not in INTEGERS or any(getattr(t, "type", kind) not in INTEGERS for _, t in terms):
        return None
    wholes = [(sign, t) for sign, t in terms if isinstance(t, s.Number) and t != n]
    turns = [sign for sign, t in terms if t == n]
    counters = [(sign, t) for sign, t in terms if isinstance(t, s.Name) and t.text in spans]
    rest = [(sign, t) for sign, t in terms if (sign, t) not in (*wholes, *counters) and t != n]
    if len(rest) != 1 or rest[0][0] != 1 or len(counters) > 1 or turns not in ([], [1]):
        return None
    x, moved = rest[0][1], rest[0][1]
    low = high = by = sum(sign * int(t.text.rstrip("uUlL"), 0) for sign, t in wholes)
    for sign, counter in counters:
        ends = sorted(sign * end for end in spans[counter.text])
        low, high = low + ends[0], high + ends[1]
        moved = s.Binary("+" if sign > 0 else "-", moved, counter, type=kind)
    if not isinstance(x, s.Name) or low == high == 0 or (low < 0 and not turns):
        return None
    if counters and low < 0 and kind not in _UNSIGNED:  # what has no sign is never below zero
        return None
    if by:
        number = s.Number(str(abs(by)), type=kind)
        moved = s.Binary("+" if by > 0 else "-", moved, number, type=kind)
    return _Wrap(x, moved, low, high, n, kind)


def _terms(node: s.Expression, sign: int) -> Iterator[tuple[int, s.Expression]]:
    if isinstance(node, s.Binary) and node.operator in "+-" and node.type in INTEGERS:
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if node.operator == "+" else -sign)
    else:
        yield sign, node


def _has_wrap(function: s.Function, form: s.KernelForm) -> bool:
    spans = _spans(function, form)
    return any(_wrap(x, spans) for x in s.below(function.body))


def _with_selects(draft: Draft) -> Draft:
    """In the kernel alone: what `x` may be is known there."""
    kernel = draft.form.kernel
    ranges, spans = Ranges(draft), _spans(kernel, draft.form)
    conditions: dict[LaunchExpression, None] = {}

    def change(node: Any) -> Any:
        wrap = _wrap(node, spans)
        if wrap is None:
            return node
        needed = ranges.within(wrap.x, wrap.n, at=node)
        most = ranges.most(wrap.n, wrap.most)
        if needed is None or most is None or not draft.holds(*needed, *most):
            return node
        conditions.update(dict.fromkeys([*needed, *most]))
        return _select(wrap)

    # Of the tree as it is: places are found by identity.
    body = _changed_once(kernel.body, change)
    if body is kernel.body:
        return draft
    return draft.with_body(body).requiring(*in_order([tuple(conditions)]))


def _changed_once(body: Any, change: Any) -> Any:
    news = {id(x): new for x in s.below(body) if (new := change(x)) is not x}
    return changed(body, lambda x: news.get(id(x), x)) if news else body


def _select(wrap: _Wrap) -> s.Expression:
    """All of one type: that of the remainder, which has `x` and `n` in it."""
    moved, zero = wrap.moved, s.Number("0", type=wrap.type)
    below = s.Binary("+", moved, wrap.n, type=wrap.type)
    above: s.Expression = s.Binary("-", moved, wrap.n, type=wrap.type)
    if wrap.low == wrap.high < 0:
        by = s.Number(str(-wrap.low), type=wrap.type)
        return s.Choice(s.Binary(">=", wrap.x, by), moved, below, type=wrap.type)
    if wrap.low == wrap.high == 1:
        above = zero
    kept: s.Expression = moved
    if wrap.high > 0:
        kept = s.Choice(s.Binary("<", moved, wrap.n), moved, above, type=wrap.type)
    if wrap.low < 0:
        kept = s.Choice(s.Binary("<", moved, zero), below, kept, type=wrap.type)
    return kept


# Divisions of integers

_UNSIGNED = {"int": "unsigned", "long long": "unsigned long long"}


def _never_negative(draft: Draft) -> dict[tuple[s.Range, str], Proof]:
    """The kernel's signed divisions and remainders of what is seen to be never negative, by place
    and operator, each with what that needs."""
    ranges, body = Ranges(draft), draft.form.kernel.body
    signed = [
        x for x in s.below(body)
        if isinstance(x, s.Binary) and x.operator in ("/", "%") and x.type in _UNSIGNED
    ]  # fmt: skip
    places = Counter((x.where, x.operator) for x in signed)
    found: dict[tuple[s.Range, str], Proof] = {}
    for x in signed:
        if x.where is None or places[x.where, x.operator] > 1 or isinstance(x.left, s.Number):
            continue
        low, least = ranges.nonnegative(x.left, at=x), ranges.most(x.right, 1)
        most = ranges.upper(x.left)
        if low is None or least is None or most is None:
            continue
        proof = (*least, *low, *most[1], most[0] <= (of_type(x.type).high or 0))
        if draft.holds(*proof):
            found[x.where, x.operator] = proof
    return found


def _without_signs(draft: Draft) -> Draft:
    """In the kernel alone, as above."""
    found = _never_negative(draft)

    def change(node: Any) -> Any:
        if not isinstance(node, s.Binary) or (node.where, node.operator) not in found:
            return node
        kind = _UNSIGNED[node.type]
        sides = (s.Cast(kind, x) for x in (node.left, node.right))
        return s.Cast(node.type, s.Binary(node.operator, *sides, type=kind))

    if not found:
        return draft
    body = changed(draft.form.kernel.body, change)
    return draft.with_body(body).requiring(*in_order(found.values()))


# Divisions of other numbers


@dataclass(frozen=True)
class _Division:
    by: s.Expression
    type: str


def _division(node: Any) -> _Division | None:
    """Of floating numbers, by something that may be computed at another moment."""
    match node:
        case s.Binary("/", _, by, type=kind) if kind in FLOATING:
            pass
        case s.Assign(target, "/", by, type=kind) if kind in FLOATING and target.type == kind:
            if _type_of(by) == "double" and kind == "float":
                return None
        case _:
            return None
    if reads_memory(by) or not is_pure(by) or _is_power_of_two(by):
        return None
    return _Division(by, kind)


def _type_of(node: Any) -> str:
    return str(getattr(node, "type", ""))


def _number(node: Any) -> float | None:
    if not isinstance(node, s.Number):
        return None
    try:
        return float(node.text.rstrip("fFlLuU"))
    except ValueError:
        return None


def _is_power_of_two(node: s.Expression) -> bool:
    """The compiler multiplies by its reciprocal, which is exact."""
    value = _number(node)
    return value is not None and (value == 0 or math.frexp(abs(value))[0] == 0.5)


def _root(node: Any) -> s.Call | None:
    """The root of `1 / sqrt(x)`."""
    match node:
        case s.Binary("/", _, s.Call("sqrt" | "sqrtf", (x,)) as root, type=kind):
            return root if kind == root.type and kind in FLOATING and _type_of(x) == kind else None
    return None


def _shared_divisions(function: s.Function, form: s.KernelForm) -> bool:
    return (
        any(_root(x) for x in s.below(function.body))
        or any((d := _division(x)) and _number(d.by) for x in s.below(function.body))
        or bool(_groups(function, form))
    )


def _groups(function: s.Function, form: s.KernelForm) -> list[tuple[_Division, Group]]:
    """Divisions by one denominator, all between two writes of what it is computed from."""
    locals_ = plain_variables(function)
    found: list[tuple[_Division, Group]] = []
    divisions = [d for x in s.below(function.body) if (d := _division(x)) and _root(x) is None]
    for division in dict.fromkeys(divisions):
        names = names_in(division.by) - s.BUILTINS
        if names and names <= locals_:
            sought = _sought(division, names, form)
            found += ((division, group) for group in groups(sought, function.body))
    return found


def _sought(division: _Division, names: set[str], form: s.KernelForm) -> Sought:
    def uses(node: Any) -> list[Any]:
        return [x for x in s.below(node) if _division(x) == division and _root(x) is None]

    return Sought(uses, lambda statement: may_write(statement, names, form), _is_shared)


def _is_shared(run: Run) -> bool:
    """Whether there are several, or one that a loop makes."""
    first, uses = run[0]
    if len(run) == 1 and isinstance(first, s.If | s.Block) and not _in_condition(first, uses):
        return False
    loops = any(isinstance(x, s.For | s.Do) for x in s.below(first))
    return loops or sum(len(found) for _, found in run) > 1


def _in_condition(statement: s.Statement, uses: Sequence[Any]) -> bool:
    inside = {id(x) for body in bodies_of(statement) for x in s.below(body)}
    return any(id(u) not in inside for u in uses)


def _with_reciprocals(draft: Draft) -> Draft:
    guards = _reciprocal_guards(draft)

    def change(draft: Draft, function: s.Function) -> tuple[Any, ...] | None:
        taken: set[str] = set()
        placed: dict[int, list[Any]] = {}
        inverse: dict[int, Any] = {}
        for division, group in _groups(function, draft.form):
            name = _named(draft, division.by, taken)
            value = s.Binary("/", _one(division.type), division.by)
            declared = s.Declare(f"const {division.type}", name, value=value)
            placed.setdefault(id(group.before), []).append(declared)
            inverse |= dict.fromkeys(map(id, group.uses), s.Name(name, type=division.type))
        body = with_values(
            function.body, placed, lambda node, done: _product(node, done, inverse.get(id(node)))
        )
        return _if_changed(function, body)

    edited = rewritten(draft, change)
    return edited if edited is draft else edited.requiring(*guards)


def _one(kind: str) -> s.Number:
    return s.Number("1.0f" if kind == "float" else "1.0", type=kind)


def _named(draft: Draft, by: s.Expression, taken: set[str]) -> str:
    hint = f"inv_{s.plain_name(by.text)}" if isinstance(by, s.Name) else "inverse"
    return draft.fresh_name_beside(hint, taken)


def _product(node: Any, done: Any, inverse: Any) -> Any:
    """`done`: the node with what is below it done."""
    root = _root(node)
    if root is not None:
        name = "rsqrtf" if root.type == "float" else "rsqrt"
        call = s.Call(name, done.right.arguments, type=root.type)
        return call if _number(node.left) == 1 else replace(done, operator="*", right=call)
    division = _division(node)
    if inverse is None and division is not None and _number(division.by):
        kind = division.type
        inverse = s.Binary("/", _one(kind), division.by, type=kind)
    if inverse is None:
        return done
    if isinstance(done, s.Assign):
        return replace(done, operator="*", value=inverse)
    if _number(node.left) == 1 and isinstance(inverse, s.Name):
        return inverse
    return replace(done, operator="*", right=inverse)


def _reciprocal_guards(draft: Draft) -> list[LaunchExpression]:
    """That denominators which the launch gives have a reciprocal of full precision."""
    guards: list[LaunchExpression] = []
    for division, _ in _groups(draft.form.kernel, draft.form):
        by = launch_expression(draft, division.by)
        if by is None or _type_of(division.by) not in FLOATING:
            continue
        if _type_of(through_casts(division.by)) in INTEGERS:
            guards.append(by.differs(0))
        else:
            size = maximum(by, 0 - by)
            guards += [size <= _WIDEST, size * _WIDEST >= 1]
    return guards
