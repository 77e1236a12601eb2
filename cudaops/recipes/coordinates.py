"""Which output coordinates the threads of a launch stand for, and how far they reach.

A kernel says `row = blockIdx.y * blockDim.y + threadIdx.y`, or takes one number apart with `/` and
`%`. Either way the threads of the launch together visit each value of a coordinate once; here the
coordinate is found and put in place of the thread's own numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from cudaops.program.analysis.polynomials import (
    Atom,
    Polynomial,
    Quotient,
    Remainder,
    Symbol,
    divide,
    number,
    of,
    symbol,
)
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.reading.symbolic import SymbolicLoop
from cudaops.recipes.reading.values import (
    Apply,
    Below,
    GlobalLoad,
    Literal,
    Reduced,
    Scalar,
    SymbolicInteger,
    Value,
)

_ONE = number(1)


@dataclass(frozen=True)
class Axis:
    """A coordinate: 0 .. size-1, each value once for each combination of the others."""

    symbol: Symbol
    reach: Polynomial
    """How many values the launch's threads take, times `scale`; over gridDim and blockDim."""
    conditions: tuple[LaunchExpression, ...] = ()
    """What the launch's geometry must fulfil for the reach to be true."""
    guard: Polynomial | None = None
    """The kernel's own bound, where it has one: values below it are worked on."""
    scale: Polynomial = _ONE
    """Threads that share one value: the divisor where one index is taken apart."""

    @property
    def size(self) -> Polynomial:
        """How many values are worked on, given `requirements`."""
        return divide(self.reach, self.scale) if self.guard is None else self.guard

    @property
    def requirements(self) -> tuple[LaunchExpression, ...]:
        """Conditions under which `size` is exact."""
        if self.guard is None:
            left = self.reach.launch_expression() % self.scale.launch_expression()
            return (
                self.conditions if self.scale == number(1) else (*self.conditions, left.equals(0))
            )
        needed = self.guard * self.scale
        if needed == self.reach:
            return self.conditions
        covered = self.reach.launch_expression() >= needed.launch_expression()
        return (*self.conditions, covered)


@dataclass(frozen=True)
class Space:
    """The coordinates of a kernel, and its polynomials in terms of them."""

    axes: tuple[Axis, ...]
    replaced: tuple[tuple[Atom, Polynomial], ...]

    def place(self, polynomial: Polynomial) -> Polynomial:
        """The polynomial in terms of the coordinates."""
        for atom, by in self.replaced:
            polynomial = polynomial.replace({atom: by})
        return polynomial


class _Finder:
    def __init__(self, polynomials: Iterable[Polynomial]) -> None:
        self._polynomials = list(polynomials)
        self._replaced: list[tuple[Atom, Polynomial]] = []
        self._axes: list[Axis] = []

    def space(self) -> Space:
        for axis in "xyz":
            if self._used(Symbol(f"threadIdx.{axis}")):
                self._threads(axis)
        for axis in "xyz":
            block = Symbol(f"blockIdx.{axis}")
            if self._used(block):
                whole = Symbol(f"block.{axis}")
                self._replace(block, of(whole))
                self._axes.append(Axis(whole, symbol(f"gridDim.{axis}")))
        for axis_found in list(self._axes):
            self._take_apart(axis_found)
        return Space(tuple(self._axes), tuple(self._replaced))

    def _used(self, atom: Atom) -> bool:
        return any(p.has(atom) for p in self._polynomials)

    def _replace(self, atom: Atom, by: Polynomial) -> None:
        self._replaced.append((atom, by))
        self._polynomials = [p.replace({atom: by}) for p in self._polynomials]

    def _threads(self, axis: str) -> None:
        thread = Symbol(f"threadIdx.{axis}")
        extent = symbol(f"blockDim.{axis}")
        divisor = self._common_divisor(thread)
        if divisor is None:
            self._pair(thread, extent, ())
            return
        width = number(divisor)
        outer, inner = Symbol(f"threadIdx.{axis}/{divisor}"), Symbol(f"threadIdx.{axis}%{divisor}")
        self._replace(Quotient(of(thread), width), of(outer))
        self._replace(Remainder(of(thread), width), of(inner))
        whole = ((extent.launch_expression() % divisor).equals(0),)
        self._pair(outer, divide(extent, width), whole)
        self._pair(inner, width, whole)

    def _common_divisor(self, thread: Symbol) -> int | None:
        """The number by which every use of the thread index is divided, None for a plain use."""
        divisors = {
            atom.divisor.constant
            for polynomial in self._polynomials
            for atom in polynomial.atoms()
            if not isinstance(atom, Symbol) and atom.dividend == of(thread)
        }
        if len(divisors) != 1 or (divisor := divisors.pop()) is None:
            return None
        gone: dict[Atom, Polynomial] = {
            Quotient(of(thread), number(divisor)): number(0),
            Remainder(of(thread), number(divisor)): number(0),
        }
        plain = any(p.replace(gone).has(thread) for p in self._polynomials)
        return None if plain else divisor

    def _pair(
        self, thread: Symbol, extent: Polynomial, conditions: tuple[LaunchExpression, ...]
    ) -> None:
        """Join a thread index with the block index that continues it."""
        if not self._used(thread):
            return
        name = f"at:{thread.name}"
        for axis in "xyz":
            block = Symbol(f"blockIdx.{axis}")
            stride = self._stride(thread, block)
            if stride is None:
                continue
            moved = of(Symbol(name)) - stride * of(block)
            after = [p.replace({thread: moved}) for p in self._polynomials]
            if any(p.has(block) for p in after):
                continue
            self._replace(thread, moved)
            if stride != extent:
                conditions += (extent.launch_expression().equals(stride.launch_expression()),)
            self._axes.append(Axis(Symbol(name), symbol(f"gridDim.{axis}") * stride, conditions))
            return
        self._replace(thread, of(Symbol(name)))
        self._axes.append(Axis(Symbol(name), extent, conditions))

    def _stride(self, thread: Symbol, block: Symbol) -> Polynomial | None:
        """How many threads one step of the block index is worth; None where it is no step."""
        for polynomial in self._every():
            by_thread, by_block = polynomial.linear_in(thread), polynomial.linear_in(block)
            if by_thread is None or by_block is None:
                continue
            if by_thread[0].terms and by_block[0].terms:
                stride = divide(by_block[0], by_thread[0])
                plain = stride.constant is not None or stride.text().startswith("blockDim.")
                if plain and len(stride.terms) == 1 and stride.sure_nonnegative:
                    return stride
        return None

    def _every(self) -> Iterator[Polynomial]:
        for polynomial in self._polynomials:
            yield polynomial
            for atom in polynomial.atoms():
                if not isinstance(atom, Symbol):
                    yield atom.dividend
                    yield atom.divisor

    def _take_apart(self, axis: Axis) -> None:
        """An axis used as `i / n` and `i % n` is two axes."""
        whole = of(axis.symbol)
        divisors = [
            atom.divisor
            for polynomial in self._polynomials
            for atom in polynomial.atoms()
            if not isinstance(atom, Symbol) and atom.dividend == whole
        ]
        if not divisors or any(d != divisors[0] for d in divisors):
            return
        divisor = divisors[0]
        outer, inner = Symbol(f"{axis.symbol.name}/"), Symbol(f"{axis.symbol.name}%")
        self._replace(Quotient(whole, divisor), of(outer))
        self._replace(Remainder(whole, divisor), of(inner))
        self._replace(axis.symbol, of(outer) * divisor + of(inner))
        self._axes.remove(axis)
        self._axes.append(Axis(outer, axis.reach, axis.conditions, scale=divisor))
        self._axes.append(Axis(inner, divisor))


def find_space(
    polynomials: Iterable[Polynomial], guards: Sequence[Value], loops: Sequence[SymbolicLoop] = ()
) -> Space:
    """The coordinates behind these; what `loops` count is one each. Raises NotUnderstood for a
    guard that is no bound."""
    bounds = [_bound(g) for g in guards]
    space = _Finder([*polynomials, *bounds]).space()
    space = replace(space, axes=(*space.axes, *(_counted(x) for x in loops)))
    axes = {axis.symbol: axis for axis in space.axes}
    for bound in bounds:
        placed = space.place(bound)
        if (-placed - number(1)).sure_nonnegative:
            continue
        axis, limit = _guarded(placed, list(axes.values()))
        if axis.guard is not None and axis.guard != limit:
            raise NotUnderstood("two bounds on one coordinate")
        axes[axis.symbol] = replace(axis, guard=limit)
    return replace(space, axes=tuple(axes.values()))


def _counted(loop: SymbolicLoop) -> Axis:
    some = (loop.count.launch_expression() >= 1,)
    return Axis(loop.variable, loop.count, some)


def _bound(guard: Value) -> Polynomial:
    if not isinstance(guard, Below):
        raise NotUnderstood("a condition that does not bound a coordinate")
    return guard.value


def _guarded(bound: Polynomial, axes: Sequence[Axis]) -> tuple[Axis, Polynomial]:
    """The axis that `bound < 0` limits, and the limit."""
    touched = [a for a in axes if bound.has(a.symbol)]
    if len(touched) == 2:
        return _guarded_whole(bound, touched)
    if len(touched) != 1:
        raise NotUnderstood("a condition on several coordinates")
    parts = bound.linear_in(touched[0].symbol)
    if parts is None or parts[0] != number(1):
        raise NotUnderstood("a condition that is not an upper bound")
    limit = -parts[1]
    if not limit.terms or not limit.sure_nonnegative:
        raise NotUnderstood("a condition that is not an upper bound")
    return touched[0], limit


def _guarded_whole(bound: Polynomial, touched: Sequence[Axis]) -> tuple[Axis, Polynomial]:
    """`i < rows * columns` on an index that is taken apart by `columns` bounds the rows."""
    outer, inner = sorted(touched, key=lambda a: a.symbol.name.endswith("%"))
    if inner.symbol.name != outer.symbol.name[:-1] + "%":
        raise NotUnderstood("a condition on several coordinates")
    limit = of(outer.symbol) * outer.scale + of(inner.symbol) - bound
    rows = divide(limit, outer.scale)
    if any(not isinstance(atom, Symbol) for atom in rows.atoms()) or not rows.sure_nonnegative:
        raise NotUnderstood("a bound that is not a whole number of rows")
    if rows.has(outer.symbol) or rows.has(inner.symbol):
        raise NotUnderstood("a bound that is not a whole number of rows")
    return outer, rows


def one_writer(index: Polynomial, axes: Sequence[Axis]) -> tuple[LaunchExpression, ...]:
    """Conditions under which no element of an output is written by two threads.

    `axes` from the one whose neighbours are adjacent outwards. Without this the baseline races with
    itself, and which value stands at the end is nobody's function. Raises NotUnderstood where a
    coordinate does not choose the element at all.
    """
    found = []
    covered = number(1)
    for axis in axes:
        linear = index.linear_in(axis.symbol)
        if linear is None or not linear[0].terms:
            raise NotUnderstood("several threads write the same element")
        step = linear[0]
        if step != covered:
            found.append(step.launch_expression() >= covered.launch_expression())
        covered = step * axis.size
    return tuple(found)


def require_names(polynomial: Polynomial, allowed: AbstractSet[str]) -> None:
    """Raise NotUnderstood where it depends on anything but these names."""
    for atom in polynomial.atoms():
        if isinstance(atom, Symbol) and atom.name not in allowed:
            raise NotUnderstood(f"an index that depends on {atom.name}")


def require_known(value: Value, space: Space, allowed: AbstractSet[str]) -> None:
    """Raise NotUnderstood where a value depends on more than data, sums and these names.

    Reads of memory may stand at any index made of the names; what is inside a sum is not looked at.
    """
    match value:
        case SymbolicInteger(polynomial) | Below(polynomial):
            require_names(space.place(polynomial), allowed)
        case GlobalLoad(_, index):
            require_names(space.place(index), allowed)
        case Apply(_, operands):
            for operand in operands:
                require_known(operand, space, allowed)
        case Literal() | Scalar() | Reduced():
            pass
        case _:
            raise NotUnderstood("a value that is not complete")
