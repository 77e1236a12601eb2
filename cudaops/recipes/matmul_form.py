"""Recognises a matrix product in what a kernel was read to do: plain, or already through square
tiles in shared memory.

The textbook form of the second: each round, every thread of a T x T block copies one element of
either operand into shared memory, all wait, and each adds up T products. A tile's element (a, b)
is what the thread at (a, b) copied, so a read of it is that thread's copy with its indices put in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cudaops.program.analysis.polynomials import (
    Polynomial,
    Quotient,
    Remainder,
    Symbol,
    number,
    of,
)
from cudaops.program.launch_expression import LaunchExpression, Variable, product
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.coordinates import (
    Axis,
    Space,
    find_space,
    one_writer,
    require_known,
    require_names,
)
from cudaops.recipes.reading.kernel import Reading
from cudaops.recipes.reading.symbolic import SymbolicLoop, SymbolicStore
from cudaops.recipes.reading.values import (
    RANK,
    Apply,
    Below,
    GlobalLoad,
    Reduced,
    SharedLoad,
    Value,
    conjuncts,
    is_zero,
    parts,
)

_GEOMETRY = tuple(f"{root}.{axis}" for root in ("gridDim", "blockDim") for axis in "xyz")

_X, _Y = Symbol("threadIdx.x"), Symbol("threadIdx.y")
_K = Symbol("k")


@dataclass(frozen=True)
class Matrix:
    """Where one matrix stands: element (u, k) at array[offset + u * across + k * along]."""

    array: str
    k_adjacent: bool
    """True: neighbours in k are adjacent in memory; False: those in the other direction are."""
    stride: Polynomial
    """Distance, in elements, between neighbours in the direction that is not adjacent."""
    offset: Polynomial
    """Of its first element; may depend on the batch coordinate."""


@dataclass(frozen=True)
class MatmulForm:
    """out[i, j] = value(sum over k of left[i, k] * right[k, j])."""

    rows: Axis
    columns: Axis
    """The direction in which neighbours of the output are adjacent in memory."""
    batch: Axis | None
    depth: Polynomial
    left: Matrix
    right: Matrix
    out: Matrix
    """Its `k` is the column."""
    element: str
    product: str
    """Type in which a product is computed."""
    accumulator: str
    """Type in which products are added up."""
    out_element: str
    index: Polynomial
    """Where the output is written, in terms of the coordinates."""
    value: Value
    """What is written, with `total` in it."""
    total: Reduced
    space: Space
    requirements: tuple[LaunchExpression, ...]

    @property
    def reads_out(self) -> bool:
        """Whether the output's old contents matter (beta)."""
        return any(
            isinstance(p, GlobalLoad) and p.array == self.out.array for p in parts(self.value)
        )

    @property
    def layout(self) -> str:
        """BLAS's letters for the operands in row-major terms: `NN`, `NT`, `TN`, `TT`."""
        return ("N" if self.left.k_adjacent else "T") + ("T" if self.right.k_adjacent else "N")


def recognise(reading: Reading) -> MatmulForm:
    """The product that the kernel computes. Raises NotUnderstood."""
    store = only_store(reading, in_loops=True)
    total = _only_sum(store.value)
    return product_form(reading, store, total, total.count, store.guards)


def only_store(reading: Reading, *, in_loops: bool = False) -> SymbolicStore:
    """The one write of a kernel without shared memory; `in_loops`: made again in each iteration, of
    another element. Raises NotUnderstood."""
    effects = reading.effects
    if effects.shared or effects.barriers:
        raise NotUnderstood("shared memory")
    if len(effects.stores) != 1 or effects.stores[0].place.shared:
        raise NotUnderstood("more than one write")
    if effects.stores[0].loops and not in_loops:
        raise NotUnderstood("a write in a loop")
    return effects.stores[0]


def product_form(
    reading: Reading,
    store: SymbolicStore,
    total: Reduced,
    depth: Polynomial,
    guards: tuple[Value, ...],
) -> MatmulForm:
    """The form of a sum of products over `total.variable` = 0 .. depth-1."""
    product, loads = _product(total)
    others = [p for p in parts(_without(store.value, total)) if isinstance(p, GlobalLoad)]
    indices = [store.place.offset, *(load.index for load in (*loads, *others))]
    space = find_space([*indices, depth], guards, store.loops)
    batch = next((a for a in space.axes if a.symbol.name == "block.z"), None)
    rows, columns, out = _output(store, space, batch)
    left, right = _operands(loads, space, rows, columns, total.variable)
    index = space.place(store.place.offset)
    form = MatmulForm(
        rows, columns, batch, space.place(depth), left, right, out, loads[0].type, product,
        total.type, store.place.type, index, store.value, total, space, (),
    )  # fmt: skip
    _check(form, reading, store, others)
    return _with_requirements(form, reading)


def _only_sum(value: Value) -> Reduced:
    sums = {p for p in parts(value) if isinstance(p, Reduced)}
    if len(sums) != 1:
        raise NotUnderstood("not exactly one sum")
    total = sums.pop()
    if not is_zero(total.first):
        raise NotUnderstood("a sum that does not start at zero")
    return total


def _product(total: Reduced) -> tuple[str, tuple[GlobalLoad, GlobalLoad]]:
    """Type of the product and its two factors."""
    term = total.term
    if isinstance(term, Apply) and term.operator == "cast":
        term = term.operands[0]
    if not isinstance(term, Apply) or term.operator != "*" or len(term.operands) != 2:
        raise NotUnderstood("another kind of sum than products")
    first, second = (_loaded(o) for o in term.operands)
    if first.type != second.type or RANK[term.type] > RANK[total.type]:
        raise NotUnderstood("factors of different types")
    return term.type, (first, second)


def _loaded(value: Value) -> GlobalLoad:
    if isinstance(value, Apply) and value.operator == "cast":
        value = value.operands[0]
    if not isinstance(value, GlobalLoad):
        raise NotUnderstood("a factor that is not read from memory")
    return value


def _without(value: Value, total: Reduced) -> Value:
    """`value` with the sum's own reads out of sight."""
    if value == total:
        return total.first
    if isinstance(value, Apply):
        operands = tuple(_without(o, total) for o in value.operands)
        return Apply(value.operator, operands, value.type)
    return value


def _output(store: SymbolicStore, space: Space, batch: Axis | None) -> tuple[Axis, Axis, Matrix]:
    index = space.place(store.place.offset)
    axes = [a for a in space.axes if a != batch]
    if len(axes) != 2:
        raise NotUnderstood("an output with other than two coordinates")
    for rows, columns in (axes, reversed(axes)):
        by_column = index.linear_in(columns.symbol)
        if by_column is None or by_column[0] != number(1):
            continue
        by_row = by_column[1].linear_in(rows.symbol)
        if by_row is None or not by_row[0].terms or by_row[0] == number(1):
            continue
        return rows, columns, Matrix(store.place.array, True, by_row[0], by_row[1])
    raise NotUnderstood("an output index that is not row * stride + column")


def _operands(
    loads: tuple[GlobalLoad, GlobalLoad], space: Space, rows: Axis, columns: Axis, k: Symbol
) -> tuple[Matrix, Matrix]:
    placed = [(load.array, space.place(load.index)) for load in loads]
    if placed[0][1].has(columns.symbol):
        placed.reverse()
    (left_array, left), (right_array, right) = placed
    if left.has(columns.symbol) or right.has(rows.symbol):
        raise NotUnderstood("a factor that depends on row and column")
    return _matrix(left_array, left, rows.symbol, k), _matrix(right_array, right, columns.symbol, k)


def _matrix(array: str, index: Polynomial, across: Symbol, k: Symbol) -> Matrix:
    by_k = index.linear_in(k)
    by_across = by_k[1].linear_in(across) if by_k else None
    if by_k is None or by_across is None or not by_k[0].terms or not by_across[0].terms:
        raise NotUnderstood("a factor's index")
    one = number(1)
    if (by_k[0] == one) == (by_across[0] == one):
        raise NotUnderstood("a factor without adjacent elements")
    if by_k[0] == one:
        return Matrix(array, True, by_across[0], by_across[1])
    return Matrix(array, False, by_k[0], by_across[1])


def _check(
    form: MatmulForm, reading: Reading, store: SymbolicStore, others: Iterable[GlobalLoad]
) -> None:
    inputs = reading.inputs
    batch = {form.batch.symbol.name} if form.batch else set()
    outputs = batch | {form.rows.symbol.name, form.columns.symbol.name}
    for matrix in (form.left, form.right, form.out):
        require_names(matrix.stride, inputs)
        require_names(matrix.offset, inputs | batch)
    require_names(form.depth, inputs)
    for axis in form.space.axes:
        if axis.guard is not None:
            require_names(axis.guard, inputs)
        require_names(axis.size, inputs | set(_GEOMETRY))
    require_known(form.value, form.space, inputs | outputs)
    for load in others:
        if load.array == form.out.array and load.index != store.place.offset:
            raise NotUnderstood("the output read at another index")
    if any(reading.share(form.out.array, x.array) for x in (form.left, form.right)):
        raise NotUnderstood("an output that is also a factor")
    if form.element not in RANK or form.out_element not in RANK:
        raise NotUnderstood(f"elements of type {form.element}")


def _with_requirements(form: MatmulForm, reading: Reading) -> MatmulForm:
    """Add what the launch must fulfil: full reach, and no element worked on twice if it is read."""
    found = [r for axis in form.space.axes for r in axis.requirements] + reading.requirements
    outwards = [form.columns, form.rows, *([form.batch] if form.batch else [])]
    found += one_writer(form.index, outwards)
    if form.reads_out:
        read = [y for a in form.space.axes for y in (a.reach.launch_expression(), *a.conditions)]
        used = frozenset[str]().union(*(x.names() for x in read))
        idle = [Variable(name) for name in _GEOMETRY if name not in used]
        if idle:
            found.append(product(idle).equals(1))
    unique = tuple(dict.fromkeys(found))
    return replace(form, requirements=unique)


def recognise_tiled(reading: Reading) -> MatmulForm:
    """The product behind a tiled kernel. Raises NotUnderstood."""
    final = [s for s in reading.effects.stores if not s.place.shared]
    copies = [s for s in reading.effects.stores if s.place.shared]
    if len(final) != 1 or final[0].loops or len(copies) != 2 or len(reading.effects.shared) != 2:
        raise NotUnderstood("not two tiles and one output")
    outer, inner, side = _sums(final[0].value)
    rounds = SymbolicLoop(outer.variable, outer.count)
    _check_order(reading, copies, rounds)
    tiles = _Tiles(reading, copies, rounds.variable, inner.variable, side)
    term = tiles.seen_through(inner.term)
    depth, exact = _depth(tiles.bounds, rounds.count, side)
    total = Reduced(outer.first, _K, depth, term, outer.type)
    store = replace(final[0], value=_swap(final[0].value, outer, total))
    form = product_form(reading, store, total, depth, store.guards)
    _check_padding(form, tiles)
    block = (side * side, 1, 1) if tiles.is_flat else (side, side, 1)
    extents = zip(_GEOMETRY[3:], block, strict=True)
    square = (Variable(name).equals(threads) for name, threads in extents)
    needed = dict.fromkeys((*square, *exact, *form.requirements))
    return replace(form, requirements=tuple(needed))


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


def _check_order(reading: Reading, copies: list[SymbolicStore], rounds: SymbolicLoop) -> None:
    """Copies, a barrier, the sum, a barrier: all inside the loop of rounds and nothing else."""
    if reading.effects.barriers != [(rounds,), (rounds,)]:
        raise NotUnderstood("not exactly two barriers per iteration")
    for copy in copies:
        if copy.loops != (rounds,) or copy.after_barriers != 0 or copy.guards:
            raise NotUnderstood("a copy that not every thread makes once per iteration")
    if copies[0].place.array == copies[1].place.array:
        raise NotUnderstood("one tile written twice")


class _Tiles:
    """Reads of tiles, replaced by what was copied there."""

    def __init__(
        self, reading: Reading, copies: list[SymbolicStore], rounds: Symbol, step: Symbol, side: int
    ) -> None:
        self._copies = {c.place.array: c for c in copies}
        self._rounds, self._step, self._side = rounds, step, side
        self._rows = {array: self._row_of(e) for array, e in reading.effects.shared.items()}
        first = self._indices(copies[0].place.array, copies[0].place.indices)
        flat = of(Quotient(of(_X), number(side))), of(Remainder(of(_X), number(side)))
        self.is_flat = set(first) == set(flat)
        """Whether a block is one row of threads, side * side of them."""
        self._y, self._x = flat if self.is_flat else (of(_Y), of(_X))
        for copy in copies:
            if set(self._indices(copy.place.array, copy.place.indices)) != {self._y, self._x}:
                raise NotUnderstood("a copy to another element than the thread's own")
        self.bounds: set[Polynomial] = set()
        """Lengths of k below which a copy reads memory; zero stands above."""
        self.edges: list[Polynomial] = []
        """Other conditions `value < 0` of copies."""

    def _row_of(self, extents: tuple[Polynomial, ...]) -> int:
        """Elements in a row of a tile, declared as a square or as its elements in a row."""
        side = self._side
        known = tuple(e.constant for e in extents)
        for row in (side, side + 1):
            if known in ((side, row), (side * row,)):
                return row
        raise NotUnderstood("a tile that is not square")

    def _indices(self, array: str, indices: tuple[Polynomial, ...]) -> tuple[Polynomial, ...]:
        """Row and column. Of one index, `row * length + column`, both must be below the side: they
        are compared with what is."""
        if len(indices) != 1:
            return indices
        length = self._rows[array]
        rows = Polynomial(tuple((m, c // length) for m, c in indices[0].terms if not c % length))
        return rows, indices[0] - rows * number(length)

    def seen_through(self, value: Value) -> Value:
        """`value` over global memory alone. Raises NotUnderstood."""
        if isinstance(value, Apply):
            operands = tuple(self.seen_through(o) for o in value.operands)
            return Apply(value.operator, operands, value.type)
        return self._copied(value) if isinstance(value, SharedLoad) else value

    def _copied(self, read: SharedLoad) -> GlobalLoad:
        copy = self._copies[read.array]
        allowed = {self._x, self._y, of(self._step)}
        indices = self._indices(read.array, read.indices)
        if len(indices) != 2 or not allowed.issuperset(indices):
            raise NotUnderstood("a read from another element of a tile")
        own = self._indices(copy.place.array, copy.place.indices)
        by_y, by_x = indices if own == (self._y, self._x) else reversed(indices)
        tests, load = _condition(copy.value)
        for test in tests:
            self._note(self._joined(test, by_y, by_x))
        return GlobalLoad(load.array, self._joined(load.index, by_y, by_x), load.type)

    def _joined(self, index: Polynomial, by_y: Polynomial, by_x: Polynomial) -> Polynomial:
        """What the thread at (by_y, by_x) has, with round and step put together to one k."""
        lanes = zip((self._y, self._x), ("tile.y", "tile.x"), strict=True)
        apart = index.replace({lane.terms[0][0][0]: of(Symbol(name)) for lane, name in lanes})
        there = apart.replace({Symbol("tile.y"): by_y, Symbol("tile.x"): by_x})
        joined = there.replace({self._step: of(_K) - of(self._rounds) * number(self._side)})
        if joined.has(self._rounds):
            raise NotUnderstood("iterations that are not consecutive")
        return joined

    def _note(self, test: Polynomial) -> None:
        if not test.has(_K):
            self.edges.append(test)
            return
        limit = of(_K) - test
        if limit.has(_K):
            raise NotUnderstood("an unsupported bounds check of the tile")
        self.bounds.add(limit)


def _condition(value: Value) -> tuple[list[Polynomial], GlobalLoad]:
    """The conditions under which a copy reads memory (zero stands otherwise), and what it reads."""
    tests: tuple[Value, ...] = ()
    if isinstance(value, Apply) and value.operator == "?:" and is_zero(value.operands[2]):
        tests = conjuncts(value.operands[0])
        value = value.operands[1]
    if not isinstance(value, GlobalLoad):
        raise NotUnderstood("a copy of something else than one element")
    bounds = [test.value for test in tests if isinstance(test, Below)]
    if len(bounds) != len(tests):
        raise NotUnderstood("an unsupported bounds check of the tile")
    return bounds, value


def _depth(
    bounds: set[Polynomial], rounds: Polynomial, side: int
) -> tuple[Polynomial, tuple[LaunchExpression, ...]]:
    """Length of the sum, and what must hold for it to be exact."""
    if len(bounds) > 1:
        raise NotUnderstood("operands of different length")
    divided = _divided_by(rounds, side)
    rounded_up = None if divided is None else divided - number(side - 1)
    if bounds:
        length = bounds.pop()
        if length == rounded_up:
            return length, ()
        return length, (rounds.launch_expression() * side >= length.launch_expression(),)
    if divided is None or rounded_up is None:
        return rounds * number(side), ()
    length = rounded_up if rounded_up.sure_nonnegative else divided
    return length, ((length.launch_expression() % side).equals(0),)


def _divided_by(rounds: Polynomial, side: int) -> Polynomial | None:
    """n where the number of rounds is n / side; of n / side + c it is n + c * side."""
    for monomial, coefficient in rounds.terms:
        match monomial:
            case (Quotient(dividend, divisor) as atom,) if divisor == number(side):
                more = (rounds - of(atom)).constant
                if coefficient == 1 and more is not None:
                    return dividend + number(more * side)
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
            raise NotUnderstood("an unsupported bounds check of the tile")
