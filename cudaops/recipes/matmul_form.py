"""Recognises a matrix product in what a kernel was read to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cudaops.program.analysis.polynomials import Polynomial, Symbol, number
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
from cudaops.recipes.reading.symbolic import Store
from cudaops.recipes.reading.values import (
    RANK,
    Apply,
    Load,
    Reduced,
    Value,
    is_zero,
    parts,
)

_GEOMETRY = tuple(f"{root}.{axis}" for root in ("gridDim", "blockDim") for axis in "xyz")


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
    requirements: tuple[str, ...]

    @property
    def reads_out(self) -> bool:
        """Whether the output's old contents matter (beta)."""
        return any(isinstance(p, Load) and p.array == self.out.array for p in parts(self.value))

    @property
    def layout(self) -> str:
        """BLAS's letters for the operands in row-major terms: `NN`, `NT`, `TN`, `TT`."""
        return ("N" if self.left.k_adjacent else "T") + ("T" if self.right.k_adjacent else "N")


def recognise(reading: Reading) -> MatmulForm:
    """The product that the kernel computes. Raises NotUnderstood."""
    store = only_store(reading)
    total = _only_sum(store.value)
    return product_form(reading, store, total, total.count, store.guards)


def only_store(reading: Reading) -> Store:
    """The one write of a kernel without shared memory. Raises NotUnderstood."""
    effects = reading.effects
    if effects.shared or effects.barriers:
        raise NotUnderstood("shared memory")
    if len(effects.stores) != 1 or effects.stores[0].loops or effects.stores[0].place.shared:
        raise NotUnderstood("more than one write")
    return effects.stores[0]


def product_form(
    reading: Reading,
    store: Store,
    total: Reduced,
    depth: Polynomial,
    guards: tuple[Value, ...],
) -> MatmulForm:
    """The form of a sum of products over `total.variable` = 0 .. depth-1."""
    product, loads = _product(total)
    others = [p for p in parts(_without(store.value, total)) if isinstance(p, Load)]
    indices = [store.place.offset, *(load.index for load in (*loads, *others))]
    space = find_space([*indices, depth], guards)
    batch = next((a for a in space.axes if a.symbol.name == "block.z"), None)
    rows, columns, out = _output(store, space, batch)
    left, right = _operands(loads, space, rows, columns, total.variable)
    index = space.place(store.place.offset)
    form = MatmulForm(
        rows, columns, batch, space.place(depth), left, right, out, loads[0].type, product,
        total.type, store.place.type, index, store.value, total, space, (),
    )  # fmt: skip
    _check(form, reading, store, others)
    return _with_requirements(form)


def _only_sum(value: Value) -> Reduced:
    sums = {p for p in parts(value) if isinstance(p, Reduced)}
    if len(sums) != 1:
        raise NotUnderstood("not exactly one sum")
    total = sums.pop()
    if not is_zero(total.first):
        raise NotUnderstood("a sum that does not start at zero")
    return total


def _product(total: Reduced) -> tuple[str, tuple[Load, Load]]:
    """Type of the product and its two factors."""
    term = total.term
    if isinstance(term, Apply) and term.operator == "cast":
        term = term.operands[0]
    if not isinstance(term, Apply) or term.operator != "*" or len(term.operands) != 2:
        raise NotUnderstood("a sum of something else than products")
    first, second = (_loaded(o) for o in term.operands)
    if first.type != second.type or RANK[term.type] > RANK[total.type]:
        raise NotUnderstood("factors of different types")
    return term.type, (first, second)


def _loaded(value: Value) -> Load:
    if isinstance(value, Apply) and value.operator == "cast":
        value = value.operands[0]
    if not isinstance(value, Load):
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


def _output(store: Store, space: Space, batch: Axis | None) -> tuple[Axis, Axis, Matrix]:
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
    loads: tuple[Load, Load], space: Space, rows: Axis, columns: Axis, k: Symbol
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


def _check(form: MatmulForm, reading: Reading, store: Store, others: Iterable[Load]) -> None:
    inputs = {p.name for p in reading.parameters if not p.is_pointer}
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
            raise NotUnderstood("the output read at another place")
    if form.out.array in (form.left.array, form.right.array):
        raise NotUnderstood("an output that is also a factor")
    if form.element not in RANK or form.out_element not in RANK:
        raise NotUnderstood(f"elements of type {form.element}")


def _with_requirements(form: MatmulForm) -> MatmulForm:
    """Add what the launch must fulfil: full reach, and no element worked on twice if it is read."""
    found = [r for axis in form.space.axes for r in axis.requirements]
    outwards = [form.columns, form.rows, *([form.batch] if form.batch else [])]
    found += one_writer(form.index, outwards)
    if form.reads_out:
        used = " ".join(a.reach.text() + " ".join(a.conditions) for a in form.space.axes)
        idle = [name for name in _GEOMETRY if name not in used]
        if idle:
            found.append(f"{' * '.join(idle)} == 1")
    unique = tuple(dict.fromkeys(found))
    return replace(form, requirements=unique)
