"""Where the author's own result is decided by the last bit of what goes in, nothing is asked.

Two runs tell: the widened kernel, and the author's kernel on inputs moved by one roundoff. Where an
element comes out altogether different (a branch that goes the other way, a sum that cancels, an
overflow on the way), no rewrite can be held to one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cudaops.domain.execution import Ran
from cudaops.domain.workload import FLOATING, Allocation
from cudaops.executors.arrays import Array, write_array
from cudaops.executors.fields import View, views, write_fields
from cudaops.sandbox.oracle import MAX_OWN_ERROR, Reference
from cudaops.sandbox.variations import SMALLEST_NORMAL

NOTICED = 1e-4
"""Of an element's size: an error of the author's beyond what the last bits of f32 explain."""


def free_elements(
    view: View,
    reference: Reference,
    moved: Sequence[Mapping[int, str]],
    result: Array,
    *,
    not_a_number: bool,
) -> Array:
    """Elements of a buffer, or of a field, that nothing is asked of.

    Those that the author's kernel itself does not settle: farther than MAX_OWN_ERROR of their own
    size from the widened run or from a run on moved inputs, integers that differ at all. What the
    widened run has no number for is determined. Few runs on moved inputs show only some of them, so
    that as many others of a floating result as they show, where it is finite, may be off too. And
    those where `result` is nearer to the widened run than the author's own, which is off by more
    than NOTICED.

    `not_a_number`: NaN is among the results that count; else it is what arithmetic that went wrong
    leaves of numbers.
    """
    base = _values(view, reference.outputs[view.index])
    unsettled = np.zeros(base.size, bool)
    for other in moved:
        if view.index in other:
            unsettled |= _is_another(view, base, _values(view, other[view.index]))
    wide_path = (reference.wide_outputs or {}).get(view.index)
    if view.element not in FLOATING:
        if wide_path is not None:
            unsettled |= _is_another(view, base, _widened(view, wide_path))
        return unsettled
    free = unsettled.copy()
    if wide_path is not None:
        wider = _widened(view, wide_path)
        free |= _is_another(view, base, wider) & np.isfinite(wider)
        free |= _is_nearer(result, base, wider)
    if not not_a_number:
        free |= np.isnan(base)
    off = ~free & ~_is_near(result, base, NOTICED, 0.0) & np.isfinite(result)
    return free | off if off.sum() <= unsettled.sum() else free


def _is_nearer(result: Array, base: Array, wider: Array) -> Array:
    """Where the result is right in numbers that the author's own is noticeably off from."""
    with np.errstate(invalid="ignore", over="ignore"):
        own, off = (np.abs(x.astype(np.float64) - wider) for x in (base, result))
        found: Array = np.isfinite(wider) & (own > NOTICED * np.abs(wider)) & (off <= own)
    return found


def _widened(view: View, path: str) -> Array:
    held = view.stored_widened(path)
    found: Array = held.read(0, held.size)
    return found


def _values(view: View, path: str) -> Array:
    held = view.stored(path)
    return held.read(0, held.size)


def _is_another(view: View, base: Array, other: Array) -> Array:
    if view.element not in FLOATING:
        differs: Array = base != other
        return differs
    return ~_is_near(base, other, MAX_OWN_ERROR, SMALLEST_NORMAL[view.element])


def _is_near(values: Array, right: Array, relative: float, absolute: float) -> Array:
    x, y = values.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(y) & (np.abs(x - y) <= relative * np.abs(y) + absolute)
        found: Array = near | (x == y) | (np.isnan(x) & np.isnan(y))
    return found


def _between(view: View, base: Array, rounded: Sequence[Mapping[int, str]], result: Array) -> Array:
    """Integers that are one of the author's, or lie between them, where his rounding decides: up
    and down everything comes out on one side each."""
    runs = [base, *(_values(view, one[view.index]) for one in rounded if view.index in one)]
    least, most = np.minimum.reduce(runs), np.maximum.reduce(runs)
    found: Array = (least <= result) & (result <= most)
    return found


def baseline_where_free(
    a: Allocation,
    ran: Ran,
    reference: Reference,
    moved: Sequence[Mapping[int, str]],
    rounded: Sequence[Mapping[int, str]] = (),
    *,
    not_a_number: bool,
) -> Ran:
    """The run with the author's own values in the place of what is free; itself where nothing is
    that differs. `rounded`: results of the author's kernel with everything rounded up, and down."""

    def free(view: View, base: Array, result: Array) -> Array:
        found = free_elements(view, reference, moved, result, not_a_number=not_a_number)
        if rounded and view.element not in FLOATING:
            found |= _between(view, base, rounded, result)
        return found

    return _as_authors(a, ran, reference, free)


def as_rounded(
    a: Allocation, ran: Ran, reference: Reference, rounded: Sequence[Mapping[int, str]]
) -> Ran:
    """The same for integers that the author's rounding decides, and for nothing else."""

    def free(view: View, base: Array, result: Array) -> Array:
        if view.element in FLOATING:
            return np.zeros(base.size, bool)
        return _between(view, base, rounded, result)

    return _as_authors(a, ran, reference, free)


def _as_authors(
    a: Allocation,
    ran: Ran,
    reference: Reference,
    free_of: Callable[[View, Array, Array], Array],
) -> Ran:
    replaced: dict[str, Array] = {}
    path = Path(ran.outputs[a.index])
    for view in views(a):
        result, base = _values(view, str(path)), _values(view, reference.outputs[a.index])
        free = free_of(view, base, result)
        free &= ~((result == base) | (result != result) & (base != base))
        if not free.any():
            continue
        chosen = np.where(free, base, result)
        if view.field is not None:
            replaced[view.field.path] = chosen
            continue
        target = path.with_suffix(".free")
        write_array(target, chosen, view.element)
        return ran.model_copy(update={"outputs": {**ran.outputs, a.index: str(target)}})
    if not replaced:
        return ran
    target = path.with_suffix(".free")
    write_fields(target, path, a, replaced)
    return ran.model_copy(update={"outputs": {**ran.outputs, a.index: str(target)}})
