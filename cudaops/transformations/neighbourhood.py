"""Which elements of an array around its own place a thread reads, as boxes of the grid.

A place is a point of the grid: on an axis, `X = blockIdx.x * blockDim.x + threadIdx.x`. A read is
one of a neighbourhood where its index is the launch's numbers times (X + loops + a literal), an
axis each, and where it is told exactly when it is made: by comparisons of such sums with the
launch's numbers. Then the elements that it reads, over all threads of the launch, are a box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import Atom, Polynomial, Symbol, number, of
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.boxes import Span, at_least
from cudaops.transformations.draft import Draft
from cudaops.transformations.loops import Counted, literal
from cudaops.transformations.path_conditions import Condition, ConditionedExpression
from cudaops.transformations.shared_memory import block_of
from cudaops.transformations.trees import swapped
from cudaops.transformations.variables import Variables

AXES = "xyz"
_WIDE = ("long long", "unsigned long long")


@dataclass(frozen=True)
class Coordinate:
    """X + loops + shift on one axis, held between two bounds where it is clamped."""

    loops: tuple[tuple[str, int], ...] = ()
    """Variables with their factors, 1 or -1."""
    shift: int = 0
    low: int = 0
    """How far from X it is at the least."""
    high: int = 0
    clamp: s.Expression | None = None
    """The author's expression, where it is clamped."""

    @property
    def reach(self) -> tuple[int, int]:
        """How far from X an element is that it leads to. A clamp leads between X and the place."""
        if self.clamp is None:
            return self.low, self.high
        return min(self.low, 0), max(self.high, 0)


@dataclass(frozen=True)
class Near:
    """One read of a neighbourhood."""

    node: Any
    """`a[index]`, or `__ldg(&a[index])`."""
    array: str
    type: str
    is_wide: bool
    """Its index has 64 bits."""
    factors: tuple[tuple[str, Polynomial], ...]
    """By axis: what a step on it moves the index by."""
    base: Polynomial
    """The rest of the index, the same for a launch."""
    coordinates: tuple[tuple[str, Coordinate], ...]
    box: tuple[tuple[str, Span], ...]
    """What the launch's threads read, by axis."""
    requires: tuple[Polynomial, ...]
    """Not negative: else it reads nothing, or the grid ends before the box."""
    trips: int
    """How often each thread reads there at most."""

    @property
    def group(self) -> tuple[Any, ...]:
        """Reads with the same one share a tile."""
        return self.array, self.factors, self.base


@dataclass
class _Thread:
    """Where a thread stands as far as conditions tell."""

    lows: dict[str, list[Polynomial]] = field(default_factory=dict)
    ends: dict[str, list[Polynomial]] = field(default_factory=dict)
    other: list[tuple[str, Polynomial]] = field(default_factory=list)
    """(axis, place) where it does not stand."""

    def settle(self) -> None:
        """Places at which it does not stand as bounds. Raises NotUnderstood for others than the
        first and the last one."""
        for axis, place in self.other:
            lows = self.lows.setdefault(axis, [])
            ends = self.ends.setdefault(axis, [])
            if place == number(0) or place in lows:
                lows.append(place + number(1))
            elif place + number(1) in ends:
                ends.append(place)
            else:
                raise NotUnderstood("a gap in the neighbourhood (an element that no load reads)")


@dataclass(frozen=True)
class _Clamp:
    inner: Polynomial
    lows: tuple[Polynomial, ...]
    highs: tuple[Polynomial, ...]
    node: s.Expression


class Neighbourhoods:
    """Of a draft's kernel, whose launches all have one block."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._variables = Variables(draft)
        self.block = dict(zip(AXES, block_of(draft), strict=True))
        self._parameters = {
            p.name for p in draft.form.kernel.parameters
            if not p.is_pointer and p.type in INTEGERS and not self._variables.is_changed(p.name)
        }  # fmt: skip
        self._places: dict[Atom, Polynomial] = {}
        self.flat: list[str] = []
        """Axes on which the grid has one block, which launches must keep to."""
        for axis, count in self.block.items():
            self._places[Symbol(f"blockDim.{axis}")] = number(count)
            own, block = Symbol(f"threadIdx.{axis}"), of(Symbol(f"blockIdx.{axis}"))
            if draft.value(f"gridDim.{axis}") == 1:
                self._places[Symbol(f"blockIdx.{axis}")] = number(0)
                block = number(0)
                self.flat.append(axis)
            self._places[own] = number(0)
            if count > 1:
                self._places[own] = of(Symbol(_at(axis))) - number(count) * block
            elif axis not in self.flat:
                self._places[Symbol(f"blockIdx.{axis}")] = of(Symbol(_at(axis)))
        self._choices = [
            x.name for x in s.below(draft.form.kernel.body)
            if isinstance(x, s.Declare) and any(isinstance(y, s.Choice) for y in s.below(x.value))
        ]  # fmt: skip

    def grid_end(self, axis: str) -> Polynomial:
        """How far the launch's threads reach on an axis."""
        count = number(self.block[axis])
        return count if axis in self.flat else count * of(Symbol(f"gridDim.{axis}"))

    # One read

    def read(self, reached: ConditionedExpression) -> Near:
        """An element of an array as one of a neighbourhood. Raises NotUnderstood."""
        node = reached.node
        place = place_of(node)
        if place is None or not reached.is_known:
            raise NotUnderstood("a load that not all threads execute")
        clamps: dict[str, _Clamp] = {}
        index = self._polynomial(place.index, reached.loops, clamps)
        ranges = {o.variable: _ends_of(o) for o in reached.loops}
        factors, coordinates, base = self._split(index, clamps, ranges)
        self._is_launchs(base)
        box, requires = self._box(reached, dict(coordinates), clamps, ranges)
        trips = 1
        for loop in reached.loops:
            trips *= loop.trips() or 1
        return Near(
            node, place.base.text, place.type, place.index.type in _WIDE,
            factors, base, coordinates, box, requires, trips,
        )  # fmt: skip

    def _polynomial(
        self, node: Any, loops: Sequence[Counted], clamps: dict[str, _Clamp], deep: int = 0
    ) -> Polynomial:
        """An integer over places, the launch's numbers, loops' variables and clamps."""
        plain = node
        while (x := next(filter(_is_choice, s.below(plain)), None)) is not None:
            name = self._clamp_of(x, x, loops, clamps, deep)
            if name is None:
                raise NotUnderstood("a conditional expression that is not a clamp")
            plain = swapped((plain,), x, s.Name(name, type="int"))[0]
        found = self._variables.polynomial(plain, *self._choices)
        if found is None:
            raise NotUnderstood("an index or condition that is not affine")
        known = {o.variable for o in loops} | clamps.keys() | self._parameters
        for atom in list(found.atoms()):
            if not isinstance(atom, Symbol):
                raise NotUnderstood("an index or condition with a division")
            name = atom.name
            if name in known or name.startswith(("threadIdx.", "blockIdx.", "blockDim.")):
                continue
            if name.startswith("gridDim."):
                continue
            declared = self._variables.declared(name)
            if declared is None or self._variables.is_changed(name) or deep > 8:
                raise NotUnderstood(f"{name}, which is unknown")
            value = self._clamp_of(declared.value, s.Name(name), loops, clamps, deep)
            if value is None or declared.type not in ("int", "long long"):
                raise NotUnderstood(f"{name}, which is unknown")
            found = found.replace({atom: of(Symbol(value))})
        return found.replace(self._places)

    def _clamp_of(
        self, value: Any, node: Any, loops: Sequence[Counted], clamps: dict[str, _Clamp], deep: int
    ) -> str | None:
        """The name of a clamp that this expression is, which `node` stands for."""
        sides = self._sides(value, loops, clamps, deep)
        if sides is None:
            return None
        word, one, other = sides
        for moving, bound in ((one, other), (other, one)):
            if self._is_of_launch(bound) and not self._is_of_launch(moving):
                break
        else:
            return None
        inner = _Clamp(moving, (), (), node)
        only = moving.terms[0][0][0] if len(moving.terms) == 1 and moving.terms[0][1] == 1 else None
        if isinstance(only, Symbol) and only.name in clamps:
            inner = clamps[only.name]
        elif any(isinstance(a, Symbol) and a.name in clamps for a in moving.atoms()):
            return None
        made = replace(
            inner,
            lows=(*inner.lows, *([bound] if word == "max" else [])),
            highs=(*inner.highs, *([bound] if word == "min" else [])),
            node=node,
        )
        name = f"clamp {len(clamps)}"
        clamps[name] = made
        return name

    def _sides(
        self, value: Any, loops: Sequence[Counted], clamps: dict[str, _Clamp], deep: int
    ) -> tuple[str, Polynomial, Polynomial] | None:
        """`min` or `max`, and of what."""
        word = ""
        match value:
            case s.Call("min" | "max" as called, (left, right)) if _is_signed(left, right):
                word = called
            case s.Choice(s.Binary("<" | "<=" | ">" | ">=" as operator, a, b), left, right) if (
                _is_signed(left, right, a, b)
            ):
                pass
            case _:
                return None
        try:
            one, other = (self._polynomial(x, loops, clamps, deep + 1) for x in (left, right))
            if word:
                return word, one, other
            below = self._below(operator, self._polynomial(a, loops, clamps, deep + 1),
                                self._polynomial(b, loops, clamps, deep + 1))  # fmt: skip
        except NotUnderstood:
            return None
        if below in (other - one, other - one - number(1)):
            return "max", one, other  # the left one where it is larger
        if below in (one - other, one - other - number(1)):
            return "min", one, other
        return None

    @staticmethod
    def _below(operator: str, left: Polynomial, right: Polynomial) -> Polynomial:
        """What is less than 0 where the comparison holds."""
        match operator:
            case "<":
                return left - right
            case "<=":
                return left - right - number(1)
            case ">":
                return right - left
        return right - left - number(1)

    def _is_of_launch(self, value: Polynomial) -> bool:
        atoms = {a.name for a in value.atoms() if isinstance(a, Symbol)}
        return all(a in self._parameters or a.startswith("gridDim.") for a in atoms)

    def _is_launchs(self, *values: Polynomial) -> None:
        if not all(map(self._is_of_launch, values)):
            raise NotUnderstood("an index term that mixes blocks, loops or threads")

    # Its index

    def _split(
        self, index: Polynomial, clamps: dict[str, _Clamp], ranges: dict[str, tuple[int, int]]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Polynomial]:
        """(axis, factor), (axis, coordinate) and the rest."""
        factors: dict[str, Polynomial] = {}
        coordinates: dict[str, Coordinate] = {}
        rest = index
        for axis in AXES:
            rest, factor = _taken(rest, _at(axis))
            if factor.terms:
                factors[axis], coordinates[axis] = factor, Coordinate()
        for name, clamp in clamps.items():
            rest, factor = _taken(rest, name)
            if not factor.terms:
                continue
            axis, inner = self._clamped(clamp, ranges)
            if axis in factors:
                raise NotUnderstood("an axis that appears twice in an index")
            factors[axis], coordinates[axis] = factor, inner
        self._is_launchs(*factors.values())
        for name in ranges:
            rest, factor = _taken(rest, name)
            if factor.terms:
                axis, by = _axis_of(factor, factors)
                if coordinates[axis].clamp is not None:
                    raise NotUnderstood("a loop variable outside of its clamp")
                coordinates[axis] = _looped(coordinates[axis], name, by, ranges)
        for axis in sorted(factors, key=lambda a: _size(factors[a])):
            by = _steps(rest, factors[axis])
            if by and coordinates[axis].clamp is None:
                rest = rest - number(by) * factors[axis]
                coordinates[axis] = _shifted(coordinates[axis], by)
        in_order = sorted(factors)
        return (
            tuple((a, factors[a]) for a in in_order),
            tuple((a, coordinates[a]) for a in in_order), rest,
        )  # fmt: skip

    def _clamped(self, clamp: _Clamp, ranges: dict[str, tuple[int, int]]) -> tuple[str, Coordinate]:
        axis, coordinate = self._plain(clamp.inner, ranges)
        return axis, replace(coordinate, clamp=clamp.node)

    def _plain(
        self, value: Polynomial, ranges: dict[str, tuple[int, int]]
    ) -> tuple[str, Coordinate]:
        """X + loops + a number. Raises NotUnderstood for anything else."""
        rest, axes = value, []
        for axis in AXES:
            rest, factor = _taken(rest, _at(axis))
            if factor.terms:
                axes.append(axis)
                if factor != number(1):
                    raise NotUnderstood("a scaled thread index")
        if len(axes) != 1:
            raise NotUnderstood("no global thread index along one axis")
        coordinate = Coordinate()
        for name in ranges:
            rest, factor = _taken(rest, name)
            if factor.terms:
                by = factor.constant
                if by is None:
                    raise NotUnderstood("a scaled loop variable")
                coordinate = _looped(coordinate, name, by, ranges)
        if rest.constant is None:
            raise NotUnderstood("an offset that is not constant")
        return axes[0], _shifted(coordinate, rest.constant)

    # When it is made

    def _box(
        self, reached: ConditionedExpression,
        coordinates: dict[str, Coordinate], clamps: dict[str, _Clamp],
        ranges: dict[str, tuple[int, int]],
    ) -> tuple[tuple[tuple[str, Span], ...], tuple[Polynomial, ...]]:  # fmt: skip
        thread, cell = _Thread(), _Thread()
        requires: list[Polynomial] = []
        for condition in reached.conditions:
            for below in self._conjuncts(condition, reached.loops, thread):
                if self._is_of_launch(below):
                    requires.append(-below - number(1))
                else:
                    self._bound(below, coordinates, thread, cell, ranges)
        thread.settle()
        own: dict[str, Span] = {}
        for axis in AXES:
            end = self.grid_end(axis)
            ends = thread.ends.get(axis, [])
            span = Span(frozenset({number(0)}), frozenset(ends or [end]))
            own[axis] = span.intersect(thread.lows.get(axis, []), ())
            if ends:
                requires.append(end - min(own[axis].ends, key=repr))
            requires += own[axis].lengths
        box = []
        for axis, coordinate in coordinates.items():
            span = own[axis].wider(coordinate.low, coordinate.high)
            lows, ends = cell.lows.get(axis, []), cell.ends.get(axis, [])
            if coordinate.clamp is not None:
                clamp = next(c for c in clamps.values() if c.node is coordinate.clamp)
                self._holds_own(clamp, own[axis])
                lows, ends = list(clamp.lows), [h + number(1) for h in clamp.highs]
                requires += [*Span(frozenset(lows), span.ends).lengths]
                requires += [*Span(span.lows, frozenset(ends)).lengths]
            box.append((axis, span.intersect(lows, ends)))
        kept = [r for r in dict.fromkeys(requires) if r.constant is None or r.constant < 0]
        if any(r.constant is not None for r in kept):
            raise NotUnderstood("a load that never executes")
        return tuple(box), tuple(kept)

    @staticmethod
    def _holds_own(clamp: _Clamp, own: Span) -> None:
        """That the thread's own place is one that the clamp lets be."""
        low = all(any(at_least(t, c) for t in own.lows) for c in clamp.lows)
        if not low or not all(
            any(at_least(h + number(1), e) for e in own.ends) for h in clamp.highs
        ):
            raise NotUnderstood("a clamp that may move the thread's own element")

    def _conjuncts(
        self, condition: Condition, loops: Sequence[Counted], thread: _Thread
    ) -> Iterator[Polynomial]:
        """What must be less than 0 for it to hold; places that it leaves out are noted. Raises
        NotUnderstood."""
        node, truth = condition
        match node:
            case s.Unary("!", operand):
                yield from self._conjuncts((operand, not truth), loops, thread)
            case s.Binary("&&" | "||" as operator, left, right) if (operator == "&&") == truth:
                yield from self._conjuncts((left, truth), loops, thread)
                yield from self._conjuncts((right, truth), loops, thread)
            case s.Binary(operator, left, right) if operator in s.NEGATED:
                operator = operator if truth else s.NEGATED[operator]
                sides = []
                for side in (left, right):
                    clamps: dict[str, _Clamp] = {}
                    sides.append(self._polynomial(side, loops, clamps))
                    if clamps:
                        raise NotUnderstood("a clamp in a condition")
                if not _is_signed(left, right):
                    yield from self._without_sign(sides, loops)
                if operator == "!=":
                    thread.other.append(self._left_out(sides[0] - sides[1]))
                elif operator == "==":
                    raise NotUnderstood("a condition that is not a bound")
                else:
                    yield self._below(operator, sides[0], sides[1])
            case _:
                raise NotUnderstood("a condition that is not a comparison")

    def _left_out(self, between: Polynomial) -> tuple[str, Polynomial]:
        """The axis and the place at which this is 0."""
        for axis in AXES:
            rest, factor = _taken(between, _at(axis))
            if factor.constant in (1, -1) and self._is_of_launch(rest):
                return axis, rest if factor.constant == -1 else -rest
        raise NotUnderstood("a condition that does not bound the global thread index")

    def _without_sign(
        self, sides: Sequence[Polynomial], loops: Sequence[Counted]
    ) -> Iterator[Polynomial]:
        """What must be less than 0 for a comparison without a sign to be that of integers."""
        for side in sides:
            if self._is_of_launch(side):
                yield -side - number(1)
                continue
            names = {a.name for a in side.atoms() if isinstance(a, Symbol)}
            if not side.sure_nonnegative or names & (
                self._parameters | {o.variable for o in loops}
            ):
                raise NotUnderstood("an unsigned comparison")

    def _bound(
        self, below: Polynomial, coordinates: dict[str, Coordinate], thread: _Thread,
        cell: _Thread, ranges: dict[str, tuple[int, int]],
    ) -> None:  # fmt: skip
        """Note one bound of the thread's place or of the element's."""
        found = [(a, f) for a in AXES if (f := _taken(below, _at(a))[1]).terms]
        if len(found) != 1 or found[0][1].constant not in (1, -1):
            raise NotUnderstood("a condition that does not bound the global thread index")
        axis, sign = found[0][0], found[0][1].constant or 0
        rest, _ = _taken(below if sign > 0 else -below, _at(axis))
        coordinate = Coordinate()
        for name in ranges:
            rest, factor = _taken(rest, name)
            if factor.terms:
                coordinate = _looped(coordinate, name, factor.constant or 0, ranges)
        self._is_launchs(rest)
        # X + loops + rest < 0, or X + loops + rest > 0
        where, shift = thread, 0
        if coordinate.loops:
            same = coordinates.get(axis)
            if same is None or same.loops != coordinate.loops or same.clamp is not None:
                raise NotUnderstood("a condition on other indices than those read")
            where, shift = cell, same.shift
        if sign > 0:
            where.ends.setdefault(axis, []).append(number(shift) - rest)
        else:
            where.lows.setdefault(axis, []).append(number(shift + 1) - rest)


def place_of(node: Any) -> Any:
    """The element of an array by name that an expression loads; None for any other."""
    match node:
        case s.Index(s.Name()):
            return node
        case s.Call("__ldg", (s.Unary("&", s.Index(s.Name()) as place),)):
            return place
    return None


def _taken(value: Polynomial, name: str) -> tuple[Polynomial, Polynomial]:
    """The rest without a symbol, and the symbol's factor. Raises NotUnderstood."""
    parts = value.linear_in(Symbol(name))
    if parts is None:
        raise NotUnderstood(f"a square of {name}")
    return parts[1], parts[0]


def _ends_of(loop: Counted) -> tuple[int, int]:
    """The least and the largest value of its variable. Raises NotUnderstood."""
    trips, start, stride = loop.trips(), literal(loop.start), loop.stride
    if not trips or start is None or stride != 1:
        raise NotUnderstood("a trip count that is unknown, or a step greater than 1")
    last = start + (trips - 1) * (1 if loop.sign == "+" else -1)
    return min(start, last), max(start, last)


def _axis_of(factor: Polynomial, factors: dict[str, Polynomial]) -> tuple[str, int]:
    for axis, own in factors.items():
        for by in (1, -1):
            if factor == number(by) * own:
                return axis, by
    raise NotUnderstood("a loop that steps along no axis, or by more than 1")


def _looped(
    coordinate: Coordinate, name: str, by: int, ranges: dict[str, tuple[int, int]]
) -> Coordinate:
    if by not in (1, -1):
        raise NotUnderstood("a step greater than 1")
    low, high = sorted(by * end for end in ranges[name])
    return replace(
        coordinate, loops=(*coordinate.loops, (name, by)), low=coordinate.low + low,
        high=coordinate.high + high,
    )  # fmt: skip


def _shifted(coordinate: Coordinate, by: int) -> Coordinate:
    return replace(
        coordinate, shift=coordinate.shift + by, low=coordinate.low + by,
        high=coordinate.high + by,
    )  # fmt: skip


def _size(factor: Polynomial) -> tuple[int, int]:
    """Larger factors first: those with more numbers of the launch, then by their value."""
    degree = max(len(monomial) for monomial, _ in factor.terms)
    return -degree, -abs(factor.constant or 0)


def _steps(rest: Polynomial, factor: Polynomial) -> int:
    """How often a factor is in what is left of an index."""
    monomial, each = factor.terms[0]
    found = dict(rest.terms).get(monomial, 0)
    if factor.constant is None:
        return found // each if found % each == 0 else 0
    return (2 * found + abs(each)) // (2 * abs(each)) * (1 if each > 0 else -1)


def _is_signed(*nodes: Any) -> bool:
    return all(getattr(x, "type", "") in ("int", "long long") for x in nodes)


def _is_choice(node: Any) -> bool:
    return isinstance(node, s.Call | s.Choice)


def _at(axis: str) -> str:
    """The symbol of a place on an axis; no variable of C has such a name."""
    return f"at {axis}"
