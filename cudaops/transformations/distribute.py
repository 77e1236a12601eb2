"""A thread's loop over outputs divided over more blocks, which do the rest alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import FUNCTIONS
from cudaops.transformations.base import Setting
from cudaops.transformations.blocks import free_axis, part_counts, with_extent
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import choose, limits, shared_loop
from cudaops.transformations.splitting import ATOMICS, Loops, Split
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed


class Distribute:
    """Blocks along a free axis of the grid each take some iterations of the loops that store.

    Legal where nothing is stored outside of these loops, and nothing but the storing iteration
    looks at what they store: all that blocks do twice is of no effect.
    """

    name = "distribute"
    title = "loop over outputs distributed over blocks"
    family: Family = "split_work"
    relieves = frozenset({
        "low_parallelism", "occupancy_grid", "stall_long_scoreboard", "tail_effect", "stall_wait",
        "launch_bound",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Parts that fill the device."""
        free_axis(draft)
        chosen = _chosen(draft)
        _refuse_rest(draft, chosen)
        trips = [
            o.trips.high
            for x in chosen.values()
            for o in draft.timed_facts.loops
            if o.where == x.loop.where
        ]
        known = [n for n in trips if n is not None]
        most = 4 * max(known) if known and len(known) == len(trips) else None
        return tuple({"parts": n} for n in part_counts(draft, most)[:3])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guarded by the bounds of the loops, so that counters fit."""
        axis, parts = free_axis(draft), int(setting["parts"])
        chosen = _chosen(draft)
        _refuse_rest(draft, chosen)
        part = draft.fresh_name("part")
        new: dict[int, tuple[Any, ...]] = {}
        for key, split in chosen.items():
            before, loop = shared_loop(split, part, str(parts))
            new[key] = (*before, loop)
        body = changed(draft.form.kernel.body, lambda x: new.get(id(x), x))
        head = Raw(f"const int {part} = blockIdx.{axis};  // of {parts}, which share the outputs")
        grid = with_extent(draft.launch.grid, axis, parts)
        says = f"Divided the loop over outputs among {parts} times as many blocks."
        guards = limits(draft, chosen.values(), parts)
        made = draft.with_body((head, *body)).launched(grid=grid).requiring(*guards)
        made = made.stepped(Step(self.name, setting, says))
        if None in made.resolved:
            raise NotUnderstood("a launch configuration that does not allow it")
        return made


def _chosen(draft: Draft) -> Mapping[int, Split]:
    """The outermost loops that store and may be shared, below conditions alone."""
    loops = Loops(draft)
    top = {id(x) for x in _below_conditions(draft.form.kernel.body)}
    found = choose(loops, draft.form.kernel.body, lambda x: id(x) in top)
    # What stands in shared memory every block needs whole.
    shared = {name for name, declared in loops.declared.items() if declared.shared}
    shared |= {a.array for a in draft.facts.accesses if a.space == "shared"}
    kept = {
        key: x
        for key, x in found.items()
        if x.writes and not x.accumulators and not x.writes & shared
    }
    if not kept:
        raise NotUnderstood("no loop over outputs")
    return kept


def _below_conditions(body: Any) -> list[s.For]:
    found: list[s.For] = []
    for x in body:
        if isinstance(x, s.For):
            found.append(x)
        elif isinstance(x, s.If):
            found += _below_conditions((*x.yes, *x.no))
        elif isinstance(x, s.Block):
            found += _below_conditions(x.body)
    return found


def _refuse_rest(draft: Draft, chosen: Mapping[int, Split]) -> None:
    """Where something is stored beside the loops, or looked at that they store."""
    facts = draft.facts
    loops = Loops(draft)

    def loop_of(access: Access) -> int | None:
        found = (k for k, x in chosen.items() if any(o.where == x.loop.where for o in access.loops))
        return next(found, None)

    outside = [a for a in facts.accesses if a.space not in ("local", "shared")]
    stores = [a for a in outside if a.kind != "read"]
    for store in stores:
        own = loop_of(store)
        if own is None:
            raise NotUnderstood(f"{store.array or 'memory'}, which is stored outside of the loop")
        if any(loops.may_meet(store, a) and loop_of(a) != own for a in outside):
            raise NotUnderstood(f"{store.array}, which is read outside of the loop")
    inside = {id(y) for x in chosen.values() for y in s.below(x.loop)}
    for x in s.below(draft.form.kernel.body):
        if isinstance(x, s.Opaque | s.Unmodelled):
            raise NotUnderstood(f"a {x.what}")
        if not isinstance(x, s.Call) or x.function.startswith("operator"):
            continue
        known = {*FUNCTIONS, *BARRIERS, *COLLECTIVES}
        if x.function in known or draft.form.function(x.function) is not None:
            continue
        # An atomic on shared memory is the block's own.
        if x.function not in ATOMICS or (id(x) not in inside and not _is_statement(draft, x)):
            raise NotUnderstood(f"{x.function}, which may have side effects")


def _is_statement(draft: Draft, call: s.Call) -> bool:
    body = draft.form.kernel.body
    return any(isinstance(x, s.Evaluate) and x.value is call for x in s.below(body))
