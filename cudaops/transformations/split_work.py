"""A long loop of few blocks divided over many: parts in scratch memory, then a second kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.launch_expression import ONE, Variable, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.blocks import (
    cut_after,
    free_axis,
    part_counts,
    path_to,
    refuse_effects,
    with_extent,
    without_unused,
)
from cudaops.transformations.collapse import NEST, as_set, collapsed
from cudaops.transformations.combining import merged, neutral, starts_neutral
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import limits, shared_loop
from cudaops.transformations.splitting import Accumulator, Loops, Split
from cudaops.transformations.text import Raw, with_parameters


class SplitWork:
    """One kernel does what leads to a loop and one part of its iterations for every thread; the
    next one does everything, with the parts' results in place of the loop. Nested loops are made
    one (`collapse`) where that gives more parts.

    Legal because the first one stores nothing but these results: nothing before the loop may store
    to memory that outlives the block, and the loop itself stores nothing. All that the author's
    kernel reads in the loop it may have read before any thread went on.
    """

    name = "split_work"
    title = "long loop split over blocks"
    family: Family = "split_work"
    relieves = frozenset({
        "low_parallelism", "occupancy_grid", "stall_long_scoreboard", "tail_effect", "stall_wait",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Parts that fill the device; the loops from the longest on."""
        free_axis(draft)
        found = self._offered(draft)
        with suppress(NotUnderstood):
            most = max((int(x["parts"]) for x in found), default=1)
            more = self._offered(collapsed(draft))
            found[:0] = [{**x, **NEST} for x in more if int(x["parts"]) > most]
        return tuple(found[:6])

    def _offered(self, draft: Draft) -> list[Setting]:
        offered: list[Setting] = []
        for split in _candidates(draft):
            try:
                _refuse_before(draft, path_to(draft.form.kernel.body, split.loop))
            except NotUnderstood:
                continue
            parts = part_counts(draft, _trips(draft, split.loop))
            at = _number(draft, split.loop)
            offered += [{"parts": n, "loop": at} for n in parts[:3]]
        return offered

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The grid's size and the loop's bound are what it is guarded by."""
        draft = as_set(draft, setting)
        parts, kernel = int(setting["parts"]), draft.form.kernel
        split = next(
            (x for x in _candidates(draft) if _number(draft, x.loop) == setting["loop"]), None
        )
        if split is None:
            raise NotUnderstood("no loop whose iterations can be divided")
        axis, path = free_axis(draft), path_to(kernel.body, split.loop)
        _refuse_before(draft, path)
        plain = [re.sub(r"\W", "_", _place(draft, a)) for a in split.accumulators]
        names = [draft.fresh_name(f"{x}_parts") for x in plain]
        first, last = _bodies(draft, split, path, names, parts, axis)
        name, launch = draft.launch.kernel, draft.launch
        of_parts = draft.fresh_name(f"{name}_parts")
        pointers = [f"{a.type}* {n}" for a, n in zip(split.accumulators, names, strict=True)]
        printer = draft.printer()
        head = with_parameters(printer.header, pointers)
        other_head = re.sub(rf"\b{re.escape(name)}\b", of_parts, head)
        template = _template_above(draft)
        text = f"{printer.printed(first, other_head)}\n\n{template}{printer.printed(last, head)}"
        edited = draft.edited(kernel, text)
        extents = (*launch.grid, *launch.block)
        scratch = tuple(
            (n, product([ELEMENT_BYTES[a.type] * parts, *extents]))
            for a, n in zip(split.accumulators, names, strict=True)
        )
        args = (*launch.args, *map(Variable, names))
        grid = with_extent(launch.grid, axis, parts)
        before, after = draft.launches[: draft.focus], draft.launches[draft.focus + 1 :]
        both = (
            replace(launch, kernel=of_parts, grid=grid, args=args), replace(launch, args=args),
        )  # fmt: skip
        made = replace(
            edited, launches=(*before, *both, *after), scratch=(*draft.scratch, *scratch)
        )
        says = f"Divided a loop into {parts} parts, one per block; their results are combined."
        guards = [*limits(draft, [split], parts), product(extents) <= (2**31 - 1) // parts]
        made = made.requiring(*guards).stepped(Step(self.name, setting, says))
        if None in made.resolved:
            raise NotUnderstood("a launch configuration that does not allow it")
        return made


def _refuse_before(draft: Draft, path: Sequence[tuple[Sequence[Any], int]]) -> None:
    """Unless what leads to a loop stores nothing that outlives the block."""
    for body, nth in path:
        refuse_effects(draft.form, draft.facts, body[:nth], ("local", "shared"))


def _bodies(
    draft: Draft, split: Split, path: Sequence[tuple[Sequence[Any], int]], names: Sequence[str],
    parts: int, axis: str,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Of the kernel that does the parts, and of the one that goes on with them."""
    part, thread, threads = (
        draft.fresh_name("part"),
        draft.fresh_name("thread"),
        draft.fresh_name("threads"),
    )
    before, loop = shared_loop(split, part, str(parts))
    around, nth = path[-1]
    begun = [
        Raw(f"{_place(draft, a)} = {neutral(a)};")
        for a in split.accumulators
        if neutral(a) and not starts_neutral(around[:nth], a)
    ]
    count, index = _linear(draft, axis)
    number = Raw(f"const int {threads} = {count}, {thread} = {index};  // of the author's grid")
    at = f"[{part} * {threads} + {thread}]"
    pairs = list(zip(split.accumulators, names, strict=True))
    stored = [Raw(f"{name}{at} = {_place(draft, a)};") for a, name in pairs]
    head = Raw(f"const int {part} = blockIdx.{axis};")
    first = cut_after(path, [*begun, *before, loop, number, *stored])
    taken = [merged(a, _place(draft, a), f"{name}{at}") for a, name in pairs]
    lines = "\n".join(f"    {line}" for line in taken)
    gather = Raw(f"for (int {part} = 0; {part} < {parts}; ++{part}) {{\n{lines}\n}}")
    last = _replaced(path, [number, gather])
    return [head, *without_unused(first)], last


def _replaced(path: Sequence[tuple[Sequence[Any], int]], new: Sequence[Any]) -> list[Any]:
    """The whole body with statements in place of the loop."""
    (body, nth), rest = path[0], path[1:]
    if not rest:
        return [*body[:nth], *new, *body[nth + 1 :]]
    x, inner = body[nth], tuple(_replaced(rest, new))
    if isinstance(x, s.Block):
        whole: Any = replace(x, body=inner)
    elif rest[0][0] is x.yes:
        whole = replace(x, yes=inner)
    else:
        whole = replace(x, no=inner)
    return [*body[:nth], whole, *body[nth + 1 :]]


def _linear(draft: Draft, free: str) -> tuple[str, str]:
    """How many threads the author's grid has and the number of this one, as a kernel says it."""
    block = [a for a in "xyz" if draft.launch.block["xyz".index(a)] != ONE or a == "x"]
    grid = [
        a for a in "xyz" if a != free and (draft.launch.grid["xyz".index(a)] != ONE or a == "x")
    ]
    count = " * ".join([*(f"gridDim.{a}" for a in grid), *(f"blockDim.{a}" for a in block)])
    number = ""
    for root, size, axes in (("blockIdx", "gridDim", grid), ("threadIdx", "blockDim", block)):
        for axis in reversed(axes):
            inner = f"({number})" if " " in number else number
            number = f"{inner} * {size}.{axis} + {root}.{axis}" if number else f"{root}.{axis}"
    return count, number


def _candidates(draft: Draft) -> list[Split]:
    """Loops that may be divided, the longest first."""
    loops = Loops(draft)
    found = list(_splits(draft, loops, draft.form.kernel.body))
    return sorted(found, key=lambda x: -(_trips(draft, x.loop) or 1 << 20))


def _splits(draft: Draft, loops: Loops, body: Sequence[Any]) -> Iterator[Split]:
    for x in body:
        if isinstance(x, s.If):
            yield from _splits(draft, loops, (*x.yes, *x.no))
        elif isinstance(x, s.Block):
            yield from _splits(draft, loops, x.body)
        elif isinstance(x, s.For):
            try:
                split = loops.split(x)
            except NotUnderstood:
                continue
            simple = all(a.kind not in ("flag", "best") and a.extent is None
                         for a in split.accumulators)  # fmt: skip
            if split.accumulators and simple and not split.writes:
                yield split


def _trips(draft: Draft, loop: s.For) -> int | None:
    return next((o.trips.high for o in draft.timed_facts.loops if o.where == loop.where), None)


def _number(draft: Draft, loop: s.For) -> int:
    """Of a loop in the text."""
    every = [x for x in s.below(draft.form.kernel.body) if isinstance(x, s.For)]
    return next(n for n, x in enumerate(every) if x is loop)


def _place(draft: Draft, a: Accumulator) -> str:
    return draft.printer().expression(a.place)


def _template_above(draft: Draft) -> str:
    """`template <..>`, where the kernel is one: it stands before what clang says is its range."""
    where = draft.form.kernel.where
    if where is None:
        raise NotUnderstood("the kernel is not in this file")
    before = draft.program.main.text.encode()[: where.start].decode()
    found = re.search(r"template\s*<[^{};]*>\s*$", before)
    return found.group() if found else ""
