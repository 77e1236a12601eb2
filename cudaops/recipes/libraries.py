"""Libraries that do the whole job of a kernel: named where all of the job was understood.

What a kernel computes beside such a job makes it another job, of which nothing is said. Scans and
sorts are not recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cudaops.domain.performance_limit import Library
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import Workload
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import reads_memory
from cudaops.program.analysis.polynomials import Polynomial, number
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.coordinates import Axis, find_space
from cudaops.recipes.matmul import product_of
from cudaops.recipes.matmul_form import only_store
from cudaops.recipes.reading.kernel import Reading, read_kernel
from cudaops.recipes.reading.values import (
    Apply,
    GlobalLoad,
    Literal,
    Reduced,
    Scalar,
    Value,
    is_zero,
)
from cudaops.recipes.transpose import recognise as recognise_transpose
from cudaops.transformations.atomic_sites import sites_of
from cudaops.transformations.draft import Draft, Subject

LETTERS = {"float": "S", "double": "D"}
"""BLAS's, by element."""


def library_for(program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> Library | None:
    """The library function that does all that this kernel does; None where none is known to."""
    for known in _BY_READING:
        try:
            return known(read_kernel(program, kernel, workloads))
        except NotUnderstood:
            continue
    found = _by_atomics(program, kernel, workloads)
    return None if found is None else found[0]


class ElementSum(NamedTuple):
    """out[at] += the sum of all elements of `source`."""

    source: str
    out: str
    at: int


def element_sum(
    program: Program, kernel: Kernel, workloads: Sequence[Workload]
) -> ElementSum | None:
    """Of a kernel that adds up all elements; None of any other."""
    found = _by_atomics(program, kernel, workloads)
    return None if found is None else found[1]


def _gemm(reading: Reading) -> Library:
    form = product_of(reading)
    types = {form.element, form.product, form.accumulator, form.out_element}
    if len(types) != 1 or form.element not in LETTERS:
        raise NotUnderstood("types that BLAS does not mix")
    if not _is_axpby(form.value, form.total, form.out.array):
        raise NotUnderstood("more than a product")
    batched = "StridedBatched" if form.batch is not None else ""
    name = f"cublas{LETTERS[form.element]}gemm{batched} of cuBLAS"
    return Library(name=name, job=f"a matrix product ({form.layout})")


def _is_axpby(value: Value, total: Reduced, out: str) -> bool:
    """alpha * total, or that plus beta * what stood there."""
    if isinstance(value, Apply) and value.operator == "+" and len(value.operands) == 2:
        left, right = value.operands
        return any(
            _is_scaled(a, lambda x: x == total) and _is_scaled(b, lambda x: _is_of(x, out))
            for a, b in ((left, right), (right, left))
        )
    return _is_scaled(value, lambda x: x == total)


def _is_of(value: Value, array: str) -> bool:
    return isinstance(value, GlobalLoad) and value.array == array


def _is_scaled(value: Value, is_it: Callable[[Value], bool]) -> bool:
    if isinstance(value, Apply) and value.operator == "*" and len(value.operands) == 2:
        left, right = value.operands
        pairs = ((left, right), (right, left))
        return any(isinstance(a, Scalar | Literal) and is_it(b) for a, b in pairs)
    return is_it(value)


def _transposition(reading: Reading) -> Library:
    form = recognise_transpose(reading)
    if form.value != form.source or form.out_element not in LETTERS or form.batch is not None:
        raise NotUnderstood("more than a transpose")
    return Library(name=f"cublas{LETTERS[form.out_element]}geam of cuBLAS", job="a transpose")


@dataclass(frozen=True)
class RowSums:
    """out[row] = the sum over k of matrix[offset + row * across + k * along], times vector[k] where
    there is one."""

    rows: Axis
    columns: Polynomial
    matrix: str
    offset: Polynomial
    across: Polynomial
    along: Polynomial
    vector: str | None
    out: str
    element: str


def sums_of_rows(reading: Reading) -> RowSums:
    """The sums that a kernel computes. Raises NotUnderstood."""
    store = only_store(reading)
    total = store.value
    if not isinstance(total, Reduced) or not is_zero(total.first):
        raise NotUnderstood("more than a sum")
    term = total.term
    factors = term.operands if isinstance(term, Apply) and term.operator == "*" else (term,)
    loads = [x for x in factors if isinstance(x, GlobalLoad)]
    if len(loads) != len(factors) or {x.type for x in loads} != {store.place.type}:
        raise NotUnderstood("another kind of sum")
    if store.place.type != total.type or store.place.type not in LETTERS:
        raise NotUnderstood("types that differ")
    if store.place.array in {x.array for x in loads}:
        raise NotUnderstood("an output that is read")
    space = find_space([store.place.offset, *(x.index for x in loads), total.count], store.guards)
    if len(space.axes) != 1 or space.place(total.count).has(space.axes[0].symbol):
        raise NotUnderstood("other than one coordinate")
    row = space.axes[0].symbol
    if space.place(store.place.offset).linear_in(row) != (number(1), number(0)):
        raise NotUnderstood("an output that is not y[row]")
    matrix = [x for x in loads if space.place(x.index).has(row)]
    others = [x for x in loads if not space.place(x.index).has(row)]
    if len(matrix) != 1:
        raise NotUnderstood("not one matrix")
    along = space.place(matrix[0].index).linear_in(total.variable)
    across = None if along is None else along[1].linear_in(row)
    if along is None or along[0].has(row) or across is None:
        raise NotUnderstood("not along a row")
    if not others and along[0] != number(1):
        raise NotUnderstood("rows that are not contiguous")
    if others and space.place(others[0].index).linear_in(total.variable) != (number(1), number(0)):
        raise NotUnderstood("not a plain vector")
    return RowSums(
        space.axes[0], space.place(total.count), matrix[0].array, across[1], across[0], along[0],
        others[0].array if others else None, store.place.array, store.place.type,
    )  # fmt: skip


def _sums(reading: Reading) -> Library:
    form = sums_of_rows(reading)
    if form.vector is None:
        return Library(name="cub::DeviceSegmentedReduce::Sum of CUB", job="a sum of every row")
    return Library(
        name=f"cublas{LETTERS[form.element]}gemv of cuBLAS", job="a matrix times a vector"
    )


_BY_READING: tuple[Callable[[Reading], Library], ...] = (_gemm, _transposition, _sums)


def _by_atomics(
    program: Program, kernel: Kernel, workloads: Sequence[Workload]
) -> tuple[Library, ElementSum | None] | None:
    try:
        return _atomic(Draft.of(Subject(program, kernel, tuple(workloads))))
    except NotUnderstood:
        return None


def _atomic(draft: Draft) -> tuple[Library, ElementSum | None] | None:
    """A kernel in which every thread adds once to memory, by one atomic operation, what stands at
    its place or 1 for it, and writes nothing else."""
    form, facts = draft.form, draft.facts
    touched = [a for a in facts.accesses if a.space != "local"]
    written = [a for a in touched if a.kind != "read"]
    read = [a for a in touched if a.kind == "read"]
    sites = [x for x in sites_of(draft) if x.operation.function == "atomicAdd"]
    if [len(sites), len(written), len(read)] != [1, 1, 1] or {a.space for a in touched} != {
        "global"
    }:
        return None
    conditions = (x.condition for x in s.below(form.kernel.body) if isinstance(x, s.If | s.For))
    if any(x is not None and reads_memory(x) for x in conditions) or len(read[0].loops) > 1:
        return None
    if read[0].stride_bytes("threadIdx.x") != number(read[0].element_bytes or 0):
        return None
    (site,) = sites
    at = site.index.operand if isinstance(site.index, s.Cast) else site.index
    is_one = isinstance(site.value, s.Number) and site.value.text.rstrip("uUlL") == "1"
    if is_one and _is_element(at, read[0].array):
        name = "cub::DeviceHistogram::HistogramEven of CUB"
        return Library(name=name, job="a histogram"), None
    if isinstance(at, s.Number) and _is_element(site.value, read[0].array):
        found = Library(name="cub::DeviceReduce::Sum of CUB", job="a sum of all elements")
        index = int(at.text.rstrip("uUlL"), 0)
        return found, ElementSum(read[0].array, written[0].array, index)
    return None


def _is_element(node: s.Expression, array: str) -> bool:
    return isinstance(node, s.Index) and node.base == s.Name(array)
