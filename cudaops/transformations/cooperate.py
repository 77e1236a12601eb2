"""A thread's loops shared by the lanes of a warp, a part of a warp, or a whole block."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in
from cudaops.program.analysis.library_calls import BARRIERS
from cudaops.program.expressions import folded
from cudaops.program.launch_expression import ONE, LaunchExpression, build, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.collapse import NEST, as_set, collapsed
from cudaops.transformations.draft import Draft, Extents, Step
from cudaops.transformations.lanes import Sharing, ThreadGroup, choose, limits
from cudaops.transformations.splitting import Loops, Split
from cudaops.transformations.text import Raw
from cudaops.transformations.thread_communication import WARP, thread_communication
from cudaops.transformations.trees import changed

_MOST_THREADS = 67_108_864
"""Of the author's grid along x, so that 32 times as many are counted in 32 bits."""
BLOCK = 256
"""Threads of a block that works as one team."""


class Cooperate:
    """As many lanes as the setting says do what one thread did, and share its loops. Where an
    iteration looks at what the ones before it have added up, they scan. Nested loops that are too
    short each are made one (`collapse`) and shared whole.

    Legal because all lanes of a team hold the same values: they start with one thread's indices and
    go through its text alike, and after a shared loop each gets the same sums. What they read may
    be stored to by no other thread (`lanes.Sharing`), except in shared memory between barriers and
    where one lane reads alone, for what the whole team stored.
    """

    name = "cooperate"
    title = "a thread's loops parallelized over a warp or block"
    family: Family = "reduction"
    relieves = frozenset({
        "low_parallelism", "occupancy_grid", "stall_long_scoreboard", "uncoalesced_access",
        "stall_wait", "tail_effect", "divergence", "launch_bound",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """A warp, a part of one, a block; outer loops before inner ones. Nests as one loop: first
        where no loop alone is long enough for a warp."""
        thread_communication(draft).refuse_unknown()
        found = self._offered(draft)
        with suppress(NotUnderstood):
            more = self._offered(collapsed(draft), inner=False)
            at = len(found) if {"lanes": WARP} in found else 1
            found[at:at] = [{**x, **NEST} for x in more]
        return tuple(found)

    def _offered(self, draft: Draft, *, inner: bool = True) -> list[Setting]:
        loops = Loops(draft, scans=True)
        body = draft.form.kernel.body
        outer = _chosen(draft, loops, 2, inner=False)
        if not outer:
            return []
        offered: list[Setting] = [{"lanes": n} for n in (32, 8, BLOCK, 4)]
        if inner and set(_chosen(draft, loops, 2, inner=True)) != set(outer):
            offered[2:2] = [{"lanes": n, "loops": "inner"} for n in (32, 8)]
        found = []
        for setting in offered:
            try:
                lanes = int(setting["lanes"])
                _placed(draft, body, lanes)
                if _chosen(draft, loops, lanes, inner="loops" in setting):
                    found.append(setting)
            except NotUnderstood:
                continue
        return found

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Conditions are on the block's shape, the number of threads, and the bounds of loops that
        are made one."""
        thread_communication(draft).refuse_unknown()
        draft = as_set(draft, setting)
        kernel, lanes = draft.form.kernel, int(setting["lanes"])
        loops = Loops(draft, scans=True)
        chosen = _chosen(draft, loops, lanes, inner=setting.get("loops") == "inner")
        if not chosen:
            raise NotUnderstood("no loop whose iterations can be divided")
        place = _placed(draft, kernel.body, lanes)
        lane = draft.fresh_name("lane")
        team = ThreadGroup(draft, lanes, lane, place.mask(draft), is_block=lanes > 32)
        body = Sharing(draft, loops, team, chosen, kernel.body).shared(whole_kernel=True)
        mapped = changed(tuple(body), place.change)
        number = "threadIdx.x" if team.is_block else f"threadIdx.x % {lanes}"
        head = [Raw(f"const int {lane} = {number};  // of those that do one thread's work")]
        if lanes < 32:
            shift = f"(threadIdx.x % 32 / {lanes} * {lanes})"
            head.append(Raw(f"const unsigned {team.mask} = {hex((1 << lanes) - 1)}u << {shift};"))
        head += [Raw(line) for line in place.head]
        printer = draft.printer()
        header = re.sub(r"__launch_bounds__\s*\([^()]*\)\s*", "", printer.header)
        edited = draft.with_body((*head, *mapped), header)
        if team.helpers:
            edited = edited.adding("\n\n".join(team.helpers.values()))
        who = "a block" if team.is_block else "a warp" if lanes == 32 else f"{lanes} lanes"
        says = f"Parallelized each thread's loop over {who}; partial results are combined."
        guards = [*place.requires, *limits(draft, chosen.values(), lanes)]
        made = edited.launched(grid=place.grid, block=place.block).requiring(*guards)
        made = made.stepped(Step(self.name, setting, says))
        if None in made.resolved:
            raise NotUnderstood("a launch configuration that does not allow it")
        return made


def _chosen(draft: Draft, loops: Loops, lanes: int, *, inner: bool) -> dict[int, Split]:
    least = min(lanes, 32)
    long = {o.where for o in draft.facts.loops if o.trips.high is None or o.trips.high >= least}
    return choose(loops, draft.form.kernel.body, lambda x: x.where in long, inner=inner)


@dataclass(frozen=True)
class _Placed:
    """Where lanes stand in the new launch, and what takes the place of a thread's indices."""

    grid: Extents
    block: Extents
    lanes: int
    requires: tuple[LaunchExpression, ...]
    linear: Any = None
    """What stands for `blockIdx.x * blockDim.x + threadIdx.x`; None where it is not looked for."""
    names: tuple[tuple[str, Any], ...] = ()
    """What stands for `threadIdx.x` and the others."""
    head: tuple[str, ...] = ()

    def change(self, node: Any) -> Any:
        """For `trees.changed`."""
        if isinstance(node, s.Call) and node.function == "__syncthreads_count":
            return s.Binary("/", node, self._count, type=node.type)  # all lanes of a team count
        if self.linear is not None:
            if _is_linear(node):
                return self.linear if self.lanes > 32 else s.Binary("/", node, self._count)
            if _is_total(node):
                if self.lanes > 32:
                    return s.Member(s.Name("gridDim"), "x")
                return s.Binary("/", node, self._count)
        place = _member(node)
        return dict(self.names).get(place, node)

    @property
    def _count(self) -> s.Number:
        return s.Number(str(self.lanes))

    def mask(self, draft: Draft) -> str:
        """Of a team, as an expression."""
        return "0xffffffff" if self.lanes >= 32 else draft.fresh_name("team")


def _member(node: Any) -> str:
    match node:
        case s.Member(s.Name(root), axis) if root in s.BUILTINS:
            return f"{root}.{axis}"
    return ""


def _bare(node: Any) -> Any:
    while isinstance(node, s.Cast) and node.type in ("int", "unsigned", "unsigned long long",
                                                     "long long"):  # fmt: skip
        node = node.operand
    return node


def _is_product(node: Any, one: str, other: str) -> bool:
    match _bare(node):
        case s.Binary("*", a, b):
            return {_member(_bare(a)), _member(_bare(b))} == {one, other}
    return False


def _is_linear(node: Any) -> bool:
    match node:
        case s.Binary("+", a, b):
            for product, index in ((a, b), (b, a)):
                if _is_product(product, "blockIdx.x", "blockDim.x"):
                    return _member(_bare(index)) == "threadIdx.x"
    return False


def _is_total(node: Any) -> bool:
    return isinstance(node, s.Binary) and _is_product(node, "gridDim.x", "blockDim.x")


_X = ("threadIdx.x", "blockIdx.x", "blockDim.x", "gridDim.x")


def _uses_beyond(body: Any) -> set[str]:
    """Builtins that stand outside of `blockIdx.x * blockDim.x + threadIdx.x`."""
    rest = changed(tuple(body), lambda x: s.Number("0") if _is_linear(x) or _is_total(x) else x)
    return {_member(x) for x in s.below(rest)} - {""}


def _placed(draft: Draft, body: Sequence[Any], lanes: int) -> _Placed:
    """How lanes are launched. Raises NotUnderstood."""
    grid, block, flat = draft.launch.grid, draft.launch.block, draft.launch.has_flat_block
    x, count = draft.launch_expression("blockDim.x"), draft.launch_expression("gridDim.x")
    own = {y for y in s.below(tuple(body)) if isinstance(y, s.Declare) and y.shared}
    tied = bool(own) or bool(BARRIERS & calls_in(tuple(body)))
    beyond = _uses_beyond(body)
    few = x * count <= _MOST_THREADS
    if lanes > 32:
        if tied or not flat or beyond & {*_X, "threadIdx.y", "threadIdx.z", "blockDim.y"}:
            raise NotUnderstood("a block per thread in a kernel that already uses its blocks")
        wide = folded(count * x)
        index = s.Member(s.Name("blockIdx"), "x")
        return _Placed((wide, *grid[1:]), (build(lanes), ONE, ONE), lanes, (few,), index)
    whole: tuple[LaunchExpression, ...] = (
        (x % (lanes if flat else 32)).equals(0),
    )  # fmt: skip
    if not tied and not beyond & set(_X):
        wide = folded(count * lanes)
        if _divides(draft, lanes if flat else 32 if lanes < 32 else lanes):
            return _Placed((wide, *grid[1:]), block, lanes, (*whole, few), s.Number("0"))
        if flat and _fills(draft, BLOCK // lanes):
            # Blocks of another size: nothing knows where one begins.
            whole = ((x * count % (BLOCK // lanes)).equals(0), few)
            all_ = folded(count * x) / (BLOCK // lanes)
            return _Placed((all_, *grid[1:]), (build(BLOCK), ONE, ONE), lanes, whole, s.Number("0"))
    number = s.Number(str(lanes))

    def of(root: str) -> Any:
        return s.Member(s.Name(root), "x")

    sizes = [draft.value(f"blockDim.{axis}") for axis in "xyz"]
    known = [n for n in sizes if isinstance(n, int)]
    fits = len(known) == len(sizes) and math.prod(known) * lanes <= 1024
    if tied or fits:
        if not fits:
            raise NotUnderstood("a block that would exceed the limit")
        names: dict[str, Any] = {
            "threadIdx.x": s.Binary("/", of("threadIdx"), number),
            "blockDim.x": s.Binary("/", of("blockDim"), number),
        }
        rows = () if lanes == 32 or flat else ((x * lanes % 32).equals(0),)
        return _Placed(
            grid, (folded(x * lanes), *block[1:]), lanes,
            (product(block) <= 1024 // lanes, *rows), None, tuple(names.items()),
        )  # fmt: skip
    if not _divides(draft, lanes):
        raise NotUnderstood("a block size that is not divisible by the group")
    thread = draft.fresh_name("thread")
    names = {
        "threadIdx.x": s.Name(thread),
        "blockIdx.x": s.Binary("/", of("blockIdx"), number),
        "gridDim.x": s.Binary("/", of("gridDim"), number),
    }
    head = f"const int {thread} = (blockIdx.x % {lanes} * blockDim.x + threadIdx.x) / {lanes};"
    wide = folded(count * lanes)
    return _Placed(
        (wide, *grid[1:]), block, lanes, (*whole, few), None, tuple(names.items()), (head,)
    )  # fmt: skip


def _divides(draft: Draft, lanes: int) -> bool:
    size = draft.value("blockDim.x")
    return isinstance(size, int) and size % lanes == 0


def _fills(draft: Draft, threads: int) -> bool:
    """Whether every launch has a whole multiple of so many threads along x."""
    return all(w.grid.x * w.block.x % threads == 0 for w in draft.workloads)
