"""Recognises a matrix product that already goes through square tiles in shared memory.

The textbook form: each round, every thread of a T x T block copies one element of either operand
into shared memory, all wait, and each adds up T products. A tile's element (a, b) is what the
thread at (a, b) copied, so a read of it is that thread's copy with its indices put in.
"""

from __future__ import annotations

from dataclasses import replace

from cudaops.program.analysis.polynomials import Polynomial, Quotient, Symbol, number, of
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.matmul_form import MatmulForm, product_form
from cudaops.recipes.reading.kernel import Reading
from cudaops.recipes.reading.symbolic import Loop, Store
from cudaops.recipes.reading.values import (
    Apply,
    Below,
    Load,
    Reduced,
    SharedLoad,
    Value,
    conjuncts,
    is_zero,
    parts,
)

_X, _Y = Symbol("threadIdx.x"), Symbol("threadIdx.y")
_K = Symbol("k")


def recognise_tiled(reading: Reading) -> MatmulForm:
    """The product behind a tiled kernel. Raises NotUnderstood."""
    final = [s for s in reading.effects.stores if not s.place.shared]
    copies = [s for s in reading.effects.stores if s.place.shared]
    if len(final) != 1 or final[0].loops or len(copies) != 2 or len(reading.effects.shared) != 2:
        raise NotUnderstood("not two tiles and one output")
    outer, inner, side = _sums(final[0].value)
    rounds = Loop(outer.variable, outer.count)
    _check_order(reading, copies, rounds, side)
    tiles = _Tiles(copies, rounds.variable, inner.variable, side)
    term = tiles.seen_through(inner.term)
    depth, exact = _depth(tiles.bounds, rounds.count, side)
    total = Reduced(outer.first, _K, depth, term, outer.type)
    store = replace(final[0], value=_swap(final[0].value, outer, total))
    form = product_form(reading, store, total, depth, store.guards)
    _check_padding(form, tiles)
    square = (f"blockDim.x == {side}", f"blockDim.y == {side}", "blockDim.z == 1", *exact)
    return replace(form, requirements=tuple(dict.fromkeys((*square, *form.requirements))))


def _sums(value: Value) -> tuple[Reduced, Reduced, int]:
    """The sum over rounds, the sum within one, and the tile's side."""
    found = {p for p in parts(value) if isinstance(p, Reduced)}
    outer = [p for p in found if isinstance(p.term, Reduced)]
    if len(outer) != 1 or len(found) != 2:
        raise NotUnderstood("not one sum over tiles")
    inner = outer[0].term
    if not isinstance(inner, Reduced) or not is_zero(outer[0].first):
        raise NotUnderstood("a sum that does not start at zero")
    side = inner.count.constant
    if side is None or side < 1:
        raise NotUnderstood("a tile of unknown size")
    return outer[0], inner, side


def _check_order(reading: Reading, copies: list[Store], rounds: Loop, side: int) -> None:
    """Copies, a barrier, the sum, a barrier: all inside the loop of rounds and nothing else."""
    effects = reading.effects
    if effects.barriers != [(rounds,), (rounds,)]:
        raise NotUnderstood("barriers other than two a round")
    for copy in copies:
        extents = [e.constant for e in effects.shared[copy.place.array]]
        if copy.loops != (rounds,) or copy.after_barriers != 0 or copy.guards:
            raise NotUnderstood("a copy that is not made once a round by every thread")
        if len(extents) != 2 or extents[0] != side or extents[1] not in (side, side + 1):
            raise NotUnderstood("a tile that is not square")
        if copy.place.indices not in ((of(_Y), of(_X)), (of(_X), of(_Y))):
            raise NotUnderstood("a copy to another place than the thread's own")
    if copies[0].place.array == copies[1].place.array:
        raise NotUnderstood("one tile written twice")


class _Tiles:
    """Reads of tiles, replaced by what was copied there."""

    def __init__(self, copies: list[Store], rounds: Symbol, step: Symbol, side: int) -> None:
        self._copies = {c.place.array: c for c in copies}
        self._rounds, self._step, self._side = rounds, step, side
        self.bounds: set[Polynomial] = set()
        """Lengths of k below which a copy reads memory; zero stands above."""
        self.edges: list[Polynomial] = []
        """Other conditions `value < 0` of copies."""

    def seen_through(self, value: Value) -> Value:
        """`value` over global memory alone. Raises NotUnderstood."""
        if isinstance(value, Apply):
            operands = tuple(self.seen_through(o) for o in value.operands)
            return Apply(value.operator, operands, value.type)
        return self._copied(value) if isinstance(value, SharedLoad) else value

    def _copied(self, read: SharedLoad) -> Load:
        copy = self._copies[read.array]
        allowed = {of(_X), of(_Y), of(self._step)}
        if len(read.indices) != 2 or not allowed.issuperset(read.indices):
            raise NotUnderstood("a read from another place of a tile")
        rows_first = copy.place.indices == (of(_Y), of(_X))
        by_y, by_x = read.indices if rows_first else reversed(read.indices)
        tests, load = _condition(copy.value)
        for test in tests:
            self._note(self._joined(test, by_y, by_x))
        return Load(load.array, self._joined(load.index, by_y, by_x), load.type)

    def _joined(self, index: Polynomial, by_y: Polynomial, by_x: Polynomial) -> Polynomial:
        """What the thread at (by_y, by_x) has, with round and step put together to one k."""
        apart = index.replace({_Y: of(Symbol("tile.y")), _X: of(Symbol("tile.x"))})
        there = apart.replace({Symbol("tile.y"): by_y, Symbol("tile.x"): by_x})
        joined = there.replace({self._step: of(_K) - of(self._rounds) * number(self._side)})
        if joined.has(self._rounds):
            raise NotUnderstood("rounds that do not follow each other")
        return joined

    def _note(self, test: Polynomial) -> None:
        if not test.has(_K):
            self.edges.append(test)
            return
        limit = of(_K) - test
        if limit.has(_K):
            raise NotUnderstood("a tile's condition")
        self.bounds.add(limit)


def _condition(value: Value) -> tuple[list[Polynomial], Load]:
    """The conditions under which a copy reads memory (zero stands otherwise), and what it reads."""
    tests: tuple[Value, ...] = ()
    if isinstance(value, Apply) and value.operator == "?:" and is_zero(value.operands[2]):
        tests = conjuncts(value.operands[0])
        value = value.operands[1]
    if not isinstance(value, Load):
        raise NotUnderstood("a copy of something else than one element")
    bounds = [test.value for test in tests if isinstance(test, Below)]
    if len(bounds) != len(tests):
        raise NotUnderstood("a tile's condition")
    return bounds, value


def _depth(
    bounds: set[Polynomial], rounds: Polynomial, side: int
) -> tuple[Polynomial, tuple[str, ...]]:
    """Length of the sum, and what must hold for it to be exact."""
    if len(bounds) > 1:
        raise NotUnderstood("operands of different length")
    divided = _divided_by(rounds, side)
    rounded_up = None if divided is None else divided - number(side - 1)
    if bounds:
        length = bounds.pop()
        if length == rounded_up:
            return length, ()
        return length, (f"({rounds.text()}) * {side} >= {length.text()}",)
    if divided is None or rounded_up is None:
        return rounds * number(side), ()
    length = rounded_up if rounded_up.sure_nonnegative else divided
    return length, (f"({length.text()}) % {side} == 0",)


def _divided_by(rounds: Polynomial, side: int) -> Polynomial | None:
    """n where the number of rounds is n / side."""
    match rounds.terms:
        case (((Quotient(dividend, divisor),), 1),) if divisor == number(side):
            return dividend
    return None


def _swap(value: Value, old: Value, new: Value) -> Value:
    if value == old:
        return new
    if isinstance(value, Apply):
        operands = tuple(_swap(o, old, new) for o in value.operands)
        return Apply(value.operator, operands, value.type)
    return value


def _check_padding(form: MatmulForm, tiles: _Tiles) -> None:
    """Zeros may stand only where the element is outside: beyond k, the rows or the columns."""
    limits = [
        of(axis.symbol) - axis.guard for axis in (form.rows, form.columns) if axis.guard is not None
    ]
    for edge in tiles.edges:
        if form.space.place(edge) not in limits:
            raise NotUnderstood("a tile's condition")
