"""Unroll and jam: several iterations of an outer loop share one run of the inner one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    all_written_names,
    has_jump,
    is_volatile,
    names_in,
    reads_memory,
    synchronises,
    writes_memory,
)
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.kernel import analyse
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Aliasing
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import (
    Counted,
    by_several,
    conditions,
    copy_of,
    counted,
    hottest,
    looks_ahead,
    loop_of,
    plainly_declared,
    scalars_of,
    size_of,
)
from cudaops.transformations.trees import declared_in, swapped

_FACTORS = (4, 2)
_MOST_SETTINGS = 4
_LARGEST = 80
"""Operations of an outer iteration, beyond which copies of it want too many registers."""


@dataclass(frozen=True)
class Nest:
    """An outer loop, and what it does before, in and after the loop in it."""

    outer: Counted
    before: tuple[Any, ...]
    inner: s.For
    after: tuple[Any, ...]
    own: frozenset[str]
    """Variables of one outer iteration."""


class Jam:
    """An outer loop takes several iterations at a time, and runs the loop in it once for all of
    them: what does not depend on the outer variable is loaded once, and their sums do not wait for
    each other.

    Legal: before and in the inner loop an iteration changes variables of its own alone, and reads
    nothing that what comes after the inner loop writes; that part keeps its order. The inner loop
    begins and ends alike for all, nothing leaves either, and no threads meet. Every result is
    computed by the same operations in the same order.
    """

    name = "jam"
    title = "unroll and jam"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "stall_long_scoreboard", "stall_lg_throttle", "shared_throughput",
        "stall_short_scoreboard", "stall_mio_throttle", "stall_wait", "issue_slots",
        "l2_bandwidth", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """The hottest nests, by 4 and 2."""
        found: list[Setting] = []
        for placed in hottest(draft):
            try:
                nest = _read(draft, placed.node)
                conditions(draft, nest.outer, 1)
            except NotUnderstood:
                continue
            trips = nest.outer.trips() or max(_FACTORS)
            found += [placed.setting | {"factor": f} for f in _FACTORS if f <= trips]
        return tuple(found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The nest for several iterations, and the author's for what is left."""
        nest = _read(draft, loop_of(draft.form.kernel, setting["loop"]))
        factor = int(setting["factor"])
        trips = nest.outer.trips()
        if trips is not None and trips < factor:
            raise NotUnderstood("a trip count below the factor")
        lines = _jammed(draft, nest, factor)
        if nest.outer.is_own and not plainly_declared(draft.form.kernel, nest.outer.variable):
            lines = (s.Block(lines),)
        body = swapped(draft.form.kernel.body, nest.outer.node, lines)
        needs = () if trips is not None else conditions(draft, nest.outer, factor - 1)
        variable = s.plain_name(nest.outer.variable)
        says = f"{factor} iterations over {variable} are jammed into one inner loop."
        return draft.with_body(body).requiring(*needs).stepped(Step(self.name, setting, says))


# Reading


def _read(draft: Draft, node: s.For) -> Nest:
    form = draft.form
    if is_volatile(form.kernel, form):
        raise NotUnderstood("volatile memory or assembly")
    outer = counted(node, form)
    looks_ahead(outer)
    loops = [n for n, x in enumerate(outer.body) if isinstance(x, s.For)]
    if len(loops) != 1:
        raise NotUnderstood("not exactly one inner loop")
    if has_jump(node) or synchronises((node,), form):
        raise NotUnderstood("an early exit, a barrier or a warp collective in the loop")
    if size_of(outer.body, form) > _LARGEST:
        raise NotUnderstood("a loop body that is too large")
    at = loops[0]
    before, inner, after = outer.body[:at], outer.body[at], outer.body[at + 1 :]
    assert isinstance(inner, s.For)
    own = _own(form.kernel, outer)
    nest = Nest(outer, before, inner, after, own)
    shared = _shared_loops(nest, form)
    early = (*before, inner)
    if writes_memory(early, form):
        raise NotUnderstood("a store inside of the inner loop")
    changes = all_written_names(early, form)
    if not changes <= own | shared:
        raise NotUnderstood(
            f"{', '.join(sorted(changes - own - shared))}, carried between iterations"
        )
    if (all_written_names(after, form) & names_in(early)) - own:
        raise NotUnderstood("a loop-carried dependence")
    if not _has_reuse(nest):
        raise NotUnderstood("no data shared between iterations")
    _apart(draft, nest)
    return nest


def _own(function: s.Function, outer: Counted) -> frozenset[str]:
    """Numbers that an iteration declares, nobody's address is taken of. Raises NotUnderstood for
    anything else that it declares before the inner loop's end."""
    declared = declared_in(outer.body)
    numbers = set(scalars_of(function))
    vectors = {
        x.name
        for x in s.below(outer.body)
        if isinstance(x, s.Declare) and not x.extents and not x.shared and not x.pointer
    }
    referred = {
        y.text
        for x in s.below(function.body)
        if isinstance(x, s.Refer) or (isinstance(x, s.Unary) and x.operator == "&")
        for y in s.below(x)
        if isinstance(y, s.Name)
    }
    if declared - numbers - (vectors - referred):
        raise NotUnderstood("arrays, pointers or references declared in the iteration")
    return frozenset(declared)


def _shared_loops(nest: Nest, form: s.KernelForm) -> set[str]:
    """Variables of the inner loops that run once for all iterations. Raises NotUnderstood unless
    the inner loop is one of them."""
    found: set[str] = set()
    node: Any = nest.inner
    while True:
        try:
            loop = counted(node, form)
        except NotUnderstood:
            if not found:
                raise
            return found
        ends = (loop.start, loop.bound, loop.step)
        moving = (nest.own - found) | {nest.outer.variable}
        if loop.start is None or names_in(ends) & moving or reads_memory(ends):
            if not found:
                raise NotUnderstood("an inner loop whose bounds depend on the outer iteration")
            return found
        found.add(loop.variable)
        inside = [x for x in loop.body if isinstance(x, s.For)]
        if len(inside) != 1:
            return found
        node = inside[0]


def _has_reuse(nest: Nest) -> bool:
    """Whether something in the inner loop is read from where the outer variable does not lead."""
    moved = {nest.outer.variable}
    for x in s.below((*nest.before, nest.inner)):
        if isinstance(x, s.Declare) and x.value is not None and names_in(x.value) & moved:
            moved.add(x.name)
    loads = [x for x in s.below(nest.inner.body) if isinstance(x, s.Index)]
    return any(not names_in(x) & moved for x in loads)


def _apart(draft: Draft, nest: Nest) -> None:
    """Raises NotUnderstood unless what comes after the inner loop writes nothing that the next
    iteration reads before."""
    if not writes_memory(nest.after, draft.form):
        return
    facts = analyse(draft.form)  # of any launch
    if facts.unmodelled:
        raise NotUnderstood(f"{', '.join(facts.unmodelled)} outside of the loop")
    aliasing = Aliasing(draft)
    inside = [a for a in facts.accesses if any(o.where == nest.outer.node.where for o in a.loops)]
    late = [a for a in inside if any(_within(a, x) for x in nest.after)]
    early = [a for a in inside if not any(a is x for x in late)]
    for write in late:
        if write.kind != "read" and not all(aliasing.apart(write, x) for x in early):
            raise NotUnderstood(f"{write.array or 'memory'}, which the next iteration may read")
    if any(a.kind != "read" and a.space != "local" for a in early):
        raise NotUnderstood("a write that was not found")


def _within(access: Access, node: Any) -> bool:
    where = node.where
    return where is not None and where.start < where.end and where.holds(access.where)


# Writing


def _jammed(draft: Draft, nest: Nest, factor: int) -> tuple[Any, ...]:
    outer = nest.outer
    shared = _shared_loops(nest, draft.form)
    places: list[Mapping[Any, Any]] = [{}]
    for nth in range(1, factor):
        own = sorted(nest.own - shared)
        renamed = {s.Name(x): s.Name(draft.fresh_name(_stem(x) + str(nth))) for x in own}
        places.append({s.Name(outer.variable): outer.after(nth), **renamed})
    lines: list[Any] = [*_side_by_side((*nest.before, nest.inner), places, shared)]
    lines += nest.after
    for nth in range(1, factor):
        lines += copy_of(nest.after, places[nth])
    return by_several(outer, factor, lines)


def _stem(name: str) -> str:
    plain = s.plain_name(name)
    return f"{plain}_" if plain[-1].isdigit() else plain


def _side_by_side(
    body: Sequence[Any], places: Sequence[Mapping[Any, Any]], shared: set[str]
) -> tuple[Any, ...]:
    """Each statement for all iterations, loops that they share once."""
    lines: list[Any] = []
    for x in body:
        if isinstance(x, s.For) and _counts(x) in shared:
            lines.append(replace(x, body=_side_by_side(x.body, places, shared)))
            continue
        lines.append(x)
        for other in places[1:]:
            lines += copy_of((x,), other)
    return tuple(lines)


def _counts(loop: s.For) -> str:
    """The variable that a loop with a header counts in."""
    for x in loop.step:
        if isinstance(x, s.Step | s.Assign) and isinstance(x.target, s.Name):
            return x.target.text
    return ""
