"""How large integers of a kernel can be, from its text: for every launch, or behind conditions
that a launch can check.

A proof is the list of conditions that it needs; an empty one holds always. Integer arithmetic is
that of the integers: an index that overflows is outside of the author's meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    aliased_variables,
    owner_of,
    places_written,
    plain_variables,
    targets_in,
)
from cudaops.program.analysis.intervals import INTEGERS, Interval, of_type
from cudaops.program.launch_expression import (
    ZERO,
    Constant,
    LaunchExpression,
    Operation,
    below,
    binary,
    build,
    maximum,
)
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import bodies_of, changed

Proof = tuple[LaunchExpression, ...]
"""Conditions; None in place of one: not proved."""
_DEEPEST = 24
_WHOLE_WORDS = ("int", "unsigned", "long long", "unsigned long long")


class Ranges:
    """What integer expressions of a draft's kernel can be."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._kernel = draft.form.kernel
        plain = plain_variables(self._kernel)
        self._parameters = {p.name: p.type for p in self._kernel.parameters if not p.is_pointer}
        self._declared: dict[str, list[s.Declare]] = {}
        self._counters: dict[str, s.For] = {}
        for x in s.below(self._kernel.body):
            if isinstance(x, s.Declare):
                self._declared.setdefault(x.name, []).append(x)
            if isinstance(x, s.For) and (name := _counter(x)):
                self._counters[name] = x
        body, form = self._kernel.body, draft.form
        changes = Counter(owner_of(place) for place in places_written(body, form))
        handed = aliased_variables(body, form)
        self._fixed = {n for n in plain if not changes[n] and n not in handed}
        """Variables that keep the value they are declared with."""
        self._stepped = {n for n in plain if changes[n] == 1 and n not in handed}
        self._around: dict[int, tuple[tuple[s.Expression, bool], ...]] = {}
        """Conditions that hold where an expression stands, by its id: (condition, truth)."""
        self._returns: dict[int, int] = {}
        """By an expression's id: how many ways out of the kernel these conditions account for."""
        self._note(self._kernel.body, (), 0)

    @property
    def single_assignment(self) -> frozenset[str]:
        """Variables of the kernel that keep the value they are declared with, parameters too, and
        counters that only their loop steps."""
        counters = {n for n in self._stepped if n in self._counters}
        return frozenset(self._fixed | counters)

    # What is asked

    def within(self, x: s.Expression, n: s.Expression, *, at: Any) -> Proof | None:
        """That `0 <= x < n` where `at` stands. `x` and `n` must not change in between."""
        if not self._is_fixed(n):
            return None
        low = self.nonnegative(x, at=at)
        high = self._below(x, n, at=at, deep=0)
        return None if low is None or high is None else (*low, *high)

    def most(self, n: s.Expression, least: int) -> Proof | None:
        """That a number of the launch is at least this."""
        if isinstance(n, s.Number):
            return () if int(n.text.rstrip("uUlL"), 0) >= least else None
        value = self.launched(n)
        return None if value is None else (value >= least,)

    def nonnegative(self, x: s.Expression, *, at: Any = None, deep: int = 0) -> Proof | None:
        """That it is never negative."""
        if deep > _DEEPEST:
            return None
        kind = getattr(x, "type", "")
        if kind in INTEGERS and of_type(kind).is_nonnegative and not isinstance(x, s.Binary):
            return ()
        match x:
            case s.Number(text):
                return ()
            case s.Cast(kind, operand) if kind in INTEGERS:
                return self._converted(operand, kind, at, deep)
            case s.Name(text):
                return self._name_nonnegative(text, at, deep)
            case s.Binary("+" | "*" | "&" | "|" | "<<", left, right):
                return self._both(left, right, at, deep)
            case s.Binary("%" | ">>" as operator, left, right):
                low = self.nonnegative(left, at=at, deep=deep + 1)
                # A plan fails where it divides by 0, before it can choose the author's kernel.
                by = self.most(right, 1) if operator == "%" else None
                return None if low is None else (*low, *(by or ()))
            case s.Binary("/", left, right):
                low, by = self.nonnegative(left, at=at, deep=deep + 1), self.most(right, 1)
                return None if low is None or by is None else (*low, *by)
            case s.Call("min" | "max", (left, right)):
                return self._both(left, right, at, deep)
            case s.Choice(_, yes, no):
                return self._both(yes, no, at, deep)
        return None

    def upper(self, x: s.Expression, *, at: Any = None) -> tuple[LaunchExpression, Proof] | None:
        """What it is never above, and what that needs; for what is
        never negative. `at`: where it is read: in the loops around that, counters are within."""
        asked: list[LaunchExpression] = []
        most = self._upper(x, asked, 0, at)
        return None if most is None else (most, tuple(asked))

    def launched(self, x: s.Expression) -> LaunchExpression | None:
        """A number that the launch gives."""
        return launch_expression(self._draft, x, self._value_of) if self._is_exact(x) else None

    def holding(self, x: s.Expression) -> tuple[tuple[s.Expression, bool], ...]:
        """Conditions under which an expression of the kernel is reached, with their truth, as far
        as `if`s and early ways out say; loops are not among them."""
        return self._around.get(id(x), ())

    def reached_first(self, x: s.Expression) -> Proof | None:
        """That the first thread of the first block meets all conditions around `x`."""
        return self.reached_by(x, None, ZERO)

    def reached_by(
        self, x: s.Expression, place: s.Expression | None, last: LaunchExpression
    ) -> Proof | None:
        """That all conditions around `x` are met by threads at every value of `place` from 0 to
        `last`, which are the first ones in all else."""
        found: list[LaunchExpression] = []
        if self._returns.get(id(x)) != self._returns_before(x):
            return None
        known = None if place is None else self.expanded(place)
        roots = {y for y in s.below(known) if isinstance(y, s.Member)}
        for condition, truth in self.holding(x):
            for part, holds_ in _parts(condition, truth):
                if not isinstance(part, s.Binary) or part.operator not in s.ORDERS:
                    return None
                left, right = self.expanded(part.left), self.expanded(part.right)
                operator = part.operator if holds_ else s.NEGATED[part.operator]
                if right == known:
                    left, right, operator = right, left, s.MIRRORED[operator]
                if {y for y in s.below(right) if isinstance(y, s.Member)} & roots:
                    return None
                if left == known:
                    value: LaunchExpression | None = last if operator in ("<", "<=") else ZERO
                elif {y for y in s.below(left) if isinstance(y, s.Member)} & roots:
                    return None
                else:
                    value = self.launched(self._of_first(left))
                limit = self.launched(self._of_first(right))
                if limit is None or value is None:
                    return None
                found.append(binary(operator, value, limit))
        return tuple(found)

    def expanded(self, x: s.Expression) -> s.Expression:
        """Integers without the variables that keep them, and without conversions."""

        def change(node: Any) -> Any:
            match node:
                case s.Name(text) if (value := self._value_of(text)) is not None:
                    return self.expanded(value)
                case s.Cast(kind, operand) if kind in INTEGERS:
                    return operand
            return node

        return changed(x, change)  # type: ignore[no-any-return]

    def _returns_before(self, x: s.Expression) -> int:
        count = 0
        for node in s.below(self._kernel.body):
            if node is x:
                break
            count += isinstance(node, s.Leave) and node.word == "return"
        return count

    def value_of(self, name: str) -> s.Expression | None:
        """What a variable that keeps its value is declared with."""
        found = self._declared.get(name, [])
        return found[0].value if name in self._fixed and len(found) == 1 else None

    def value_as(self, name: str) -> s.Expression | None:
        """The same as an expression of the variable's own type."""
        value = self.value_of(name)
        kind = "" if value is None else self._declared[name][0].type
        same = value is None or getattr(value, "type", "") == kind
        return value if same else s.Cast(kind, value)  # type: ignore[arg-type]

    def _of_first(self, x: s.Expression) -> s.Expression:
        """In the first thread."""

        def change(node: Any) -> Any:
            match node:
                case s.Member(s.Name("threadIdx" | "blockIdx"), _):
                    return s.Number("0", type="unsigned")
                case s.Name(text) if (value := self._value_of(text)) is not None:
                    return self._of_first(value)
            return node

        return changed(x, change)  # type: ignore[no-any-return]

    # How it is proved

    def _is_exact(self, x: s.Expression) -> bool:
        """Whether the integers of plans compute the same: no variable changes, none is too narrow
        for its value, and no difference of unsigned numbers may wrap around."""
        for y in s.below(x):
            kind = getattr(y, "type", "")
            if isinstance(y, s.Name) and y.text in s.BUILTINS:
                continue
            if kind not in INTEGERS:
                return False
            if isinstance(y, s.Binary) and y.operator == "-" and kind.startswith("unsigned"):
                return False
            if isinstance(y, s.Name) and y.text not in self._parameters:
                value = self._value_of(y.text)
                if value is None or kind not in _WHOLE_WORDS or not self._is_exact(value):
                    return False
            if isinstance(y, s.Name) and y.text not in self._fixed:
                return False
        return True

    def _upper(
        self, x: s.Expression, asked: list[LaunchExpression], deep: int, at: Any = None
    ) -> LaunchExpression | None:
        if deep > _DEEPEST or not self._keeps_sign(x, asked, deep):
            return None
        if (known := self.launched(x)) is not None:
            return known
        match x:
            case s.Member(s.Name("threadIdx"), axis):
                return self._draft.launch_expression(f"blockDim.{axis}") - 1
            case s.Member(s.Name("blockIdx"), axis):
                return self._draft.launch_expression(f"gridDim.{axis}") - 1
            case s.Name(text) if text in self._fixed and text not in self._parameters:
                value = self._value_of(text)
                return None if value is None else self._upper(value, asked, deep + 1, at)
            case s.Name(text) if text in self._stepped and text in self._counters:
                return self._upper_of_counter(self._counters[text], asked, deep, at)
            case s.Cast(kind, operand) if kind in INTEGERS:
                return self._upper(operand, asked, deep + 1, at)
            case s.Binary("+" | "*" as operator, left, right):
                one, other = (self._upper(y, asked, deep + 1, at) for y in (left, right))
                signs = self._both(left, right, None, deep)
                asked += signs or ()
                if one is None or other is None or signs is None:
                    return None
                return _joined(one, operator, other)
            case s.Binary("/", left, right):
                whole, by = self._upper(left, asked, deep + 1, at), self.launched(right)
                return None if whole is None or by is None else whole / maximum(by, 1)
            case s.Binary("%", _, right):
                by = self.launched(right)
                return None if by is None else by - 1
        return None

    def _keeps_sign(self, x: s.Expression, asked: list[LaunchExpression], deep: int) -> bool:
        """That nothing negative becomes a large unsigned number in it; what that needs is asked."""
        turned: list[s.Expression] = []
        for y in s.below(x):
            match y:
                case s.Binary(_, left, right, type=kind) if kind.startswith("unsigned"):
                    turned += [left, right]
                case s.Cast(kind, operand) if kind.startswith("unsigned"):
                    turned.append(operand)
                case s.Name(text, type=kind) if (value := self._value_of(text)) is not None:
                    if deep > _DEEPEST or not self._keeps_sign(value, asked, deep + 1):
                        return False
                    turned += [value] if kind.startswith("unsigned") else []
        for y in turned:
            if getattr(y, "type", "").startswith("unsigned"):
                continue
            proof = self.nonnegative(y, deep=deep + 1)
            if proof is None:
                return False
            asked += (c for c in proof if c not in asked)
        return True

    def _both(self, left: s.Expression, right: s.Expression, at: Any, deep: int) -> Proof | None:
        sides = [self.nonnegative(x, at=at, deep=deep + 1) for x in (left, right)]
        return None if None in sides else tuple(c for side in sides for c in side or ())

    def _converted(self, x: s.Expression, kind: str, at: Any, deep: int) -> Proof | None:
        """The same as a value of another integer type: a large unsigned one may become negative,
        where it is more than a place in the grid."""
        low = self.nonnegative(x, at=at, deep=deep + 1)
        own, other = of_type(getattr(x, "type", "")), of_type(kind)
        if low is None or own.meet(Interval(0, None)).within(other) or _is_place(x):
            return low
        asked: list[LaunchExpression] = []
        most, wide = self._upper(x, asked, deep + 1), other.high
        return None if most is None or wide is None else (*low, *asked, most <= wide)

    def _name_nonnegative(self, name: str, at: Any, deep: int) -> Proof | None:
        if name in self._fixed and name in self._parameters:
            return (self._draft.launch_expression(name) >= 0,)
        if name in self._fixed and (value := self._value_of(name)) is not None:
            return self._converted(value, self._declared[name][0].type, None, deep)
        loop = self._counters.get(name)
        if loop is not None and name in self._stepped and _steps_up(loop):
            start = _start(loop)
            return None if start is None else self.nonnegative(start, at=None, deep=deep + 1)
        return None

    def _below(self, x: s.Expression, n: s.Expression, *, at: Any, deep: int) -> Proof | None:
        """That `x < n`."""
        if deep > _DEEPEST or not self._is_fixed(x):
            counted = isinstance(x, s.Name) and self._counted_below(x.text, n, at)
            return () if counted else None
        if any(_says_below(c, truth, x, n) for c, truth in self._around.get(id(at), ())):
            return ()
        if isinstance(x, s.Binary) and x.operator == "%" and x.right == n:
            return ()
        if isinstance(x, s.Name) and (value := self._value_of(x.text)) is not None:
            inner = self._below(value, n, at=None, deep=deep + 1)
            if inner is not None:
                return inner
        most, size = self.upper(x, at=at), self.launched(n)
        return None if most is None or size is None else (*most[1], below(most[0], size))

    def _counted_below(self, name: str, n: s.Expression, at: Any) -> bool:
        """A loop's counter in the loop's body, which does not change it."""
        loop = self._counters.get(name)
        if loop is None or name not in self._stepped:
            return False
        inside = any(x is at for x in s.below(loop.body))
        return inside and _says_below(loop.condition, True, s.Name(name), n)

    def _is_fixed(self, x: s.Expression) -> bool:
        names = {n.text for n in s.below(x) if isinstance(n, s.Name)} - s.BUILTINS
        return names <= self._fixed

    def _value_of(self, name: str) -> s.Expression | None:
        """Of a variable that keeps it: an integer, declared with an integer."""
        value = self.value_of(name)
        kinds = getattr(value, "type", ""), self._declared[name][0].type if value else ""
        return value if all(kind in INTEGERS for kind in kinds) else None

    def _upper_of_counter(
        self, loop: s.For, asked: list[LaunchExpression], deep: int, at: Any
    ) -> LaunchExpression | None:
        """Where `at` stands in the loop: below its bound. In the loop and after it: where it
        starts, or the last step across its bound."""
        start, step = _start(loop), _step(loop)
        match loop.condition:
            case s.Binary("<" | "<=" as operator, s.Name(text), bound) if text == _counter(loop):
                pass
            case _:
                return None
        if start is None or step is None or self.nonnegative(step) != ():
            return None
        if any(x is at for x in s.below(loop.body)):
            most = self._upper(bound, asked, deep + 1, at)
            return most if most is None or operator == "<=" else most - 1
        first, end, by = (self._upper(x, asked, deep + 1) for x in (start, bound, step))
        if first is None or end is None or by is None:
            return None
        return maximum(first, (end - 1 if operator == "<" else end) + by)

    def _note(
        self, body: Sequence[Any], holds: tuple[tuple[s.Expression, bool], ...], returns: int
    ) -> None:
        """What holds where expressions stand: conditions around, and ways out before."""
        entered = holds
        for statement in body:
            if isinstance(statement, s.Label):
                holds = entered
            inner = bodies_of(statement)
            within = {id(x) for b in inner for x in s.below(b)}
            for x in s.below(statement):
                if id(x) not in within:
                    self._around[id(x)] = holds
                    self._returns[id(x)] = returns
            if isinstance(statement, s.If):
                self._note(statement.yes, (*holds, *_parts(statement.condition, True)), returns)
                self._note(statement.no, (*holds, *_parts(statement.condition, False)), returns)
                if statement.yes and isinstance(statement.yes[-1], s.Leave) and not statement.no:
                    holds = (*holds, *_parts(statement.condition, False))
                    returns += statement.yes[-1].word == "return"
            else:
                for each in inner:
                    self._note(each, holds, returns)


def _is_place(x: s.Expression) -> bool:
    """A sum or product of thread, block and their sizes alone."""
    leaves = [y for y in s.below(x) if not isinstance(y, s.Member)]
    return all(
        isinstance(y, s.Number)
        or (isinstance(y, s.Name) and y.text in s.BUILTINS)
        or (isinstance(y, s.Binary) and y.operator in "+*")
        for y in leaves
    )


def _joined(one: LaunchExpression, operator: str, other: LaunchExpression) -> LaunchExpression:
    """A sum or product; `(n - 1) * size + (size - 1)` as `n * size - 1`."""
    match one, other:
        case (
            Operation("*", (Operation("-", (count, Constant(1))), size)),
            Operation("-", (same, Constant(1))),
        ) if operator == "+" and same == size:
            return count * size - 1
    return binary(operator, one, other)


def in_order(proofs: Iterable[Proof]) -> Proof:
    """All conditions, those that divide last: divisors are asked about before."""
    conditions = dict.fromkeys(c for proof in proofs for c in proof)
    return tuple(sorted(conditions, key=lambda c: c.divides))


def launch_expression(
    draft: Draft, x: s.Expression, value_of: Any = None
) -> LaunchExpression | None:
    """An expression of numbers that the launch gives, as the host computes it; None for any other.

    `value_of`: the expression that a local variable stands for.
    """
    parameters = {p.name for p in draft.form.kernel.parameters if not p.is_pointer}
    match x:
        case s.Number(text):
            return _plan_number(text)
        case s.Name(text) if text in parameters:
            written = any(
                isinstance(t, s.Name) and t.text == text for t in targets_in(draft.form.kernel.body)
            )
            return None if written else draft.launch_expression(text)
        case s.Name(text) if value_of is not None and (value := value_of(text)) is not None:
            return launch_expression(draft, value, value_of)
        case s.Member(s.Name("blockDim" | "gridDim" as root), axis):
            return draft.launch_expression(f"{root}.{axis}")
        case s.Cast(kind, operand) if kind in INTEGERS or kind in ("float", "double"):
            same = getattr(operand, "type", "") in INTEGERS and kind in INTEGERS
            return (
                launch_expression(draft, operand, value_of)
                if same or kind not in INTEGERS
                else None
            )
        case s.Unary("-", operand):
            inner = launch_expression(draft, operand, value_of)
            return None if inner is None else 0 - inner
        case s.Binary("+" | "-" | "*" | "/" | "%" as operator, left, right):
            one, other = (launch_expression(draft, side, value_of) for side in (left, right))
            return None if one is None or other is None else binary(operator, one, other)
    return None


def _plan_number(text: str) -> LaunchExpression | None:
    """Integers as they are; floating ones where they are whole."""
    try:
        found = s.integer_literal(text)
        value = found[0] if found else float(text.rstrip("fFlL"))
    except ValueError:
        return None
    return build(int(value)) if value == int(value) and abs(value) < 2**53 else None


def _counter(loop: s.For) -> str:
    """The variable that a loop steps by itself."""
    if len(loop.step) != 1 or not isinstance(loop.step[0], s.Step | s.Assign):
        return ""
    target = loop.step[0].target
    return target.text if isinstance(target, s.Name) else ""


def _steps_up(loop: s.For) -> bool:
    match loop.step[0]:
        case s.Step(_, by):
            return by > 0
        case s.Assign(_, "+", value):
            return isinstance(value, s.Number) or getattr(value, "type", "").startswith("unsigned")
    return False


def _step(loop: s.For) -> s.Expression | None:
    """By how much it steps up."""
    match loop.step[0]:
        case s.Step(_, 1):
            return s.Number("1", type="int")
        case s.Assign(_, "+", value):
            return value
    return None


def _start(loop: s.For) -> s.Expression | None:
    name = _counter(loop)
    for first in loop.first:
        match first:
            case s.Declare(value=value) if first.name == name:
                return value
            case s.Evaluate(s.Assign(s.Name(text), "", value)) if text == name:
                return value
    return None


def _parts(condition: s.Expression, truth: bool) -> Iterator[tuple[s.Expression, bool]]:
    """Conditions that each hold: of a conjunction that does, of a disjunction that does not."""
    match condition:
        case s.Unary("!", operand):
            yield from _parts(operand, not truth)
        case s.Binary("&&", left, right) if truth:
            yield from _parts(left, truth)
            yield from _parts(right, truth)
        case s.Binary("||", left, right) if not truth:
            yield from _parts(left, truth)
            yield from _parts(right, truth)
        case _:
            yield condition, truth


def _says_below(condition: Any, truth: bool, x: s.Expression, n: s.Expression) -> bool:
    """Whether a condition means `x < n`."""
    parts = list(_parts(condition, truth)) if condition is not None else []
    for part, holds in parts:
        if not isinstance(part, s.Binary) or part.operator not in s.ORDERS:
            continue
        operator = part.operator if holds else s.NEGATED[part.operator]
        left, right = part.left, part.right
        if left == n and right == x:
            left, right, operator = right, left, s.MIRRORED[operator]
        if left == x and right == n and operator == "<":
            return True
    return False
