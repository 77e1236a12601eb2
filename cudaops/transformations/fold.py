"""Blocks of fewer threads, each of which does the work of several of the author's own block.

Between two barriers a block's threads have no order, so that one thread may do what several did,
statement by statement or one after the other; a barrier is then waited at once for all of them.
What a thread keeps across a barrier becomes a small array, in registers once the loops over it are
unrolled. Every block does what it did with the same shared memory and the same order of sums: only
fewer threads wait for each other, and a small block's barriers are cheap.

A warp's lanes stay the lanes of one warp: threads that are as many whole warps apart as the new
block has make one, so that shuffles and votes are what they were. What a vote of the whole block
counts is counted over all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import local_variables, names_in, pure_functions
from cudaops.program.expressions import folded
from cudaops.program.launch_expression import ONE, LaunchExpression, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.items import CoarsenedBody
from cudaops.transformations.places import AXES, GlobalThreadIndex, builtin, builtins_in
from cudaops.transformations.predication import without_returns
from cudaops.transformations.serial import own_parameters
from cudaops.transformations.thread_communication import (
    WARP,
    ThreadCommunication,
    functions_say,
    functions_wait,
    is_vote,
    thread_communication,
)
from cudaops.transformations.trees import changed

_SIZES = (64, 32, 128, 256)
"""Threads of the blocks that come of it."""
_MOST = 16
"""Of the author's threads, what one does: each has its variables in registers."""
_COMBINED = {
    "__syncthreads_count": ("+", "0"),
    "__syncthreads_or": ("|", "0"),
    "__syncthreads_and": ("&", "1"),
}
"""How a block's votes are put together, and what they begin with."""


class Fold:
    """One thread does the work of several of its block, with fewer threads a block.

    Legal between barriers, where threads have no order: barriers must be reached by all, and
    stand where threads do not differ.
    """

    name = "fold"
    title = "thread coarsening within a block"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "stall_barrier", "low_parallelism", "occupancy_block_size", "tail_effect", "many_waves",
        "stall_wait", "divergence", "shared_throughput", "issue_slots",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Blocks of one to eight warps, out of larger ones, where no other way gives them."""
        found = thread_communication(draft)
        blocks = {(w.block.x, w.block.y, w.block.z) for w in draft.workloads}
        if len(blocks) != 1 or (found.is_alone and not _tells_block(draft)):
            return ()
        extents = dict(zip(AXES, blocks.pop(), strict=True))
        threads = math.prod(extents.values())
        used = builtins_in(draft.form.kernel.body)
        axes = [a for a in "zyx" if extents[a] > 1 and f"threadIdx.{a}" in used]
        if found.collectives:
            axes = axes[:1]
        factors = [threads // n for n in _SIZES if threads % n == 0]
        return tuple(
            {"axis": axis, "factor": f}
            for f in factors
            for axis in axes
            if 2 <= f <= _MOST and extents[axis] % f == 0
        )

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guarded by the block's extent, which must be divisible."""
        axis, factor = str(setting["axis"]), int(setting["factor"])
        found = thread_communication(draft)
        _refuse(draft, found, axis)
        requires = list(_requires(draft, found, axis, factor))
        body = draft.form.kernel.body
        lines = _folded(draft, _with_votes(body), axis, factor)
        block = list(draft.launch.block)
        at = AXES.index(axis)
        whole = draft.value(f"blockDim.{axis}") == factor
        block[at] = ONE if whole else folded(block[at] / factor)
        edited = draft.with_body(lines, _header(draft, factor)).launched(block=tuple(block))
        says = f"A thread does the work of {factor} threads of its block, between barriers."
        done = edited.requiring(*requires).stepped(Step(self.name, setting, says))
        if None in done.resolved:
            raise NotUnderstood("a block that is not divisible")
        _ = done.form
        return done


def _tells_block(draft: Draft) -> bool:
    """Whether a thread uses its number in its block for more than its place in the grid."""
    body = draft.form.kernel.body
    for axis in (a for a in AXES if f"threadIdx.{a}" in builtins_in(body)):
        try:
            GlobalThreadIndex.of(draft, body, axis).replaced(body, lambda x: x, totals=True)
        except NotUnderstood:
            return True
    return False


def _refuse(draft: Draft, found: ThreadCommunication, axis: str) -> None:
    body = draft.form.kernel.body
    found.refuse_unknown()
    if functions_say(draft) & {"threadIdx", "blockDim"}:
        raise NotUnderstood("a device function that reads threadIdx")
    if functions_wait(draft):
        raise NotUnderstood("a device function with a barrier or shared memory")
    if any(b.is_divergent for b in draft.facts.barriers if b.function != "__syncwarp"):
        raise NotUnderstood("a divergent barrier")
    said = builtins_in(body)
    if said & s.BUILTINS or f"threadIdx.{axis}" not in said:
        raise NotUnderstood(f"threadIdx.{axis} is not used alone")


def _requires(
    draft: Draft, found: ThreadCommunication, axis: str, factor: int
) -> Iterator[LaunchExpression]:
    """That the block can be divided; into whole warps, where lanes talk to each other."""
    at, extent = AXES.index(axis), draft.launch_expression(f"blockDim.{axis}")
    whole = draft.value(f"blockDim.{axis}") == factor
    yield extent.equals(factor) if whole else (extent % factor).equals(0)
    if not found.collectives:
        return
    block = draft.launch.block
    yield (product(block[: at + 1]) % (WARP * factor)).equals(0)
    yield from (outer.equals(1) for outer in block[at + 1 :] if outer != ONE)


def _with_votes(body: Any) -> Any:
    """Votes of the block as sums that begin with nothing: each item adds its own."""
    local = set(local_variables(body))
    if any(isinstance(x, s.Assign) and x.operator and is_vote(x) for x in s.below(body)):
        raise NotUnderstood("a block vote used as an operand of a sum")

    def change(node: Any) -> Any:
        match node:
            case s.Declare(value=s.Call(function) as call) if (
                function in _COMBINED and node.name not in names_in(call)
            ):
                operator, first = _COMBINED[function]
                vote = s.Assign(s.Name(node.name, type=node.type), operator, call)
                return replace(node, value=s.Number(first), where=None), s.Evaluate(vote)
            case s.Evaluate(s.Assign(s.Name() as name, "", s.Call(function) as call)) if (
                function in _COMBINED and name.text in local - names_in(call)
            ):
                operator, first = _COMBINED[function]
                return (
                    s.Evaluate(s.Assign(name, "", s.Number(first))),
                    s.Evaluate(s.Assign(name, operator, call)),
                )
        return node

    return changed(body, change)


def _folded(draft: Draft, body: Any, axis: str, factor: int) -> tuple[Any, ...]:
    """The body for as many items, of which the first is the thread's own number."""
    item = draft.fresh_name("item")
    own: Any = s.Member(s.Name("threadIdx"), axis, type="unsigned")
    extent: Any = s.Member(s.Name("blockDim"), axis, type="unsigned")
    further = s.Binary("*", s.Name(item, type="int"), extent, type="unsigned")
    place: Any = s.Binary("+", own, further, type="unsigned")
    number: Any = s.Number(str(factor))
    if draft.value(f"blockDim.{axis}") == factor:
        place, extent = s.Cast("unsigned", s.Name(item, type="int")), s.Number(f"{factor}u")
    else:
        extent = s.Binary("*", extent, number, type="unsigned")
    new = {f"threadIdx.{axis}": place, f"blockDim.{axis}": extent}
    shared = [x for x in body if isinstance(x, s.Declare) and x.shared]
    rest: Any = tuple(x for x in body if not (isinstance(x, s.Declare) and x.shared))
    if any(isinstance(x, s.Declare) and x.shared for x in s.below(rest)):
        raise NotUnderstood("shared memory declared in an inner scope")
    rest = without_returns(own_parameters(draft, changed(rest, lambda x: new.get(builtin(x), x))))
    pure = pure_functions(draft.form)
    last = NotUnderstood("the rewritten kernel cannot be analysed")
    for guards in (True, False):
        spread = CoarsenedBody(draft, rest, item, factor, pure, shared=shared, by_guards=guards)
        try:
            lines = spread.statements()
            draft.with_body((*shared, *lines))
        except NotUnderstood as refused:
            last = refused
        else:
            return (*shared, *lines)
    raise last


def _header(draft: Draft, factor: int) -> str:
    """With a launch bound for as many fewer threads."""
    header: str = draft.printer().header

    def fewer(found: re.Match[str]) -> str:
        return f"__launch_bounds__({max(int(found[1]) // factor, 1)}"

    return re.sub(r"__launch_bounds__\s*\(\s*(\d+)\b(?!\s*[*/+-])", fewer, header, count=1)
