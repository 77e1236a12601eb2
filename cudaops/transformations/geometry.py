"""Other blocks for threads that do not care how they are grouped.

Such a thread knows its place only as `blockIdx.x * blockDim.x + threadIdx.x`, waits for no other
and exchanges nothing: the same places in other blocks do the same work. Those beyond the author's
do nothing where the kernel itself bounds what it does; else there must be none. Blocks that are
used by their number are kept whole, and several of them make one block (`rows`): where threads wait
for their block it must be one warp, which then waits for itself alone, and every row has its own
part of shared memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.facts import ELEMENT_BYTES, KernelFacts
from cudaops.program.launch_expression import ONE, LaunchExpression, build, ceil_div
from cudaops.program.plans import GRID_MOST, MAX_THREADS
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import FULL
from cudaops.transformations.places import (
    AXES,
    GlobalThreadIndex,
    builtin,
    builtins_in,
    covering_bound,
    threads_along,
)
from cudaops.transformations.shared_memory import STATIC_BYTES, extent, is_only_indexed, room_for
from cudaops.transformations.text import with_parameters
from cudaops.transformations.thread_communication import (
    WARP,
    ThreadCommunication,
    functions_say,
    functions_wait,
    thread_communication,
)
from cudaops.transformations.trees import changed

_SHAPES = {
    1: ((256,), (128,), (512,), (64,), (1024,), (32,)),
    2: ((32, 8), (64, 4), (32, 4), (16, 16), (128, 2), (256, 1)),
    3: ((32, 4, 2), (64, 4, 1), (16, 8, 2), (32, 8, 1)),
}
_ROWS = (8, 4, 16, 2)
_FEW_BLOCKS = 264
"""Two for each SM of an H200; near enough for others. Larger blocks would be fewer still."""


class Geometry:
    """Another block size or shape, axes exchanged, or several small blocks as one."""

    name = "geometry"
    title = "launch geometry"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "occupancy_block_size", "low_parallelism", "occupancy_grid", "tail_effect",
        "uncoalesced_access", "stall_long_scoreboard", "stall_lg_throttle", "dram_bandwidth",
        "l1_load_throughput", "occupancy_registers", "many_waves",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Exchanged axes where memory asks for it, then shapes that are not the author's: smaller
        ones first where there are few blocks."""
        found = thread_communication(draft)
        used = builtins_in(draft.form.kernel.body)
        axes = [a for a in AXES if f"threadIdx.{a}" in used]
        offered: list[Setting] = []
        if found.is_alone and len(axes) == 2 and _is_turned(draft.facts):
            offered += [{"x": 32, "y": 8, "swap": 1}, {"x": 16, "y": 16, "swap": 1}]
        regular = found.is_alone and bool(axes) and all(_is_regular(draft, a) for a in axes)
        threads = max(math.prod((w.block.x, w.block.y, w.block.z)) for w in draft.workloads)
        stacks = "blockIdx.x" in used and _may_stack(draft, found)
        if stacks and (threads < WARP or not regular):
            few = [r for r in _ROWS if 2 * WARP <= threads * r <= 512]
            offered += [{"rows": r} for r in few[:3]]
        if regular:
            now = [draft.value(f"blockDim.{a}") for a in axes]
            shapes = [x for x in _SHAPES[len(axes)] if list(x) != now]
            if max(w.grid.volume for w in draft.workloads) < _FEW_BLOCKS:
                shapes.sort(key=lambda shape: math.prod(shape) >= threads)
            offered += [dict(zip(axes, shape, strict=True)) for shape in shapes[:5]]
        return tuple(offered)[:6]

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where a thread can tell how it was grouped."""
        if "rows" in setting:
            edited, says = _stacked(draft, int(setting["rows"]))
        else:
            shape = {a: int(setting[a]) for a in AXES if a in setting}
            edited, says = _regrouped(draft, shape, swap=bool(setting.get("swap")))
        done = edited.stepped(Step(self.name, setting, says))
        _ = done.form
        return done


def _is_regular(draft: Draft, axis: str) -> bool:
    """Whether an axis is used by the thread's place alone."""
    body = draft.form.kernel.body
    try:
        GlobalThreadIndex.of(draft, body, axis).replaced(body, lambda x: x, totals=True)
    except NotUnderstood:
        return False
    return True


def _is_turned(facts: KernelFacts) -> bool:
    """Whether more accesses are adjacent along threadIdx.y than along threadIdx.x."""
    votes = 0
    for access in facts.accesses:
        if access.space != "global":
            continue
        strides = {axis: access.stride_bytes(f"threadIdx.{axis}") for axis in "xy"}
        for axis, sign in (("x", -1), ("y", 1)):
            stride = strides[axis]
            if stride is not None and stride.constant == access.element_bytes:
                votes += sign
    return votes > 0


# Blocks of another size


def _regrouped(draft: Draft, shape: dict[str, int], *, swap: bool) -> tuple[Draft, str]:
    found = thread_communication(draft)
    if not found.is_alone or functions_say(draft):
        raise NotUnderstood("a barrier or shared-memory communication within the block")
    body: Any = draft.form.kernel.body
    used = builtins_in(body)
    axes = [a for a in AXES if f"threadIdx.{a}" in used]
    if set(axes) != set(shape) or (swap and axes != ["x", "y"]):
        raise NotUnderstood("another set of axes")
    threads = math.prod(shape.values())
    if not WARP <= threads <= MAX_THREADS:
        raise NotUnderstood(f"{threads} threads per block")
    places = {a: GlobalThreadIndex.of(draft, body, a) for a in axes}
    partner = {"x": "y", "y": "x"} if swap else {a: a for a in axes}
    new_body = body
    for axis in axes:
        literal = places[axis].literal_in(body)

        def new(place: Any, axis: str = axis, literal: bool = literal) -> Any:
            if not literal and not swap:
                return place
            return _marked_place(partner[axis], shape[partner[axis]] if literal else None)

        other = places[axis].replaced(new_body, new, totals=not swap and not literal)
        new_body = other if literal or swap else new_body
    new_body = changed(new_body, _unmarked)
    edited = (
        draft if new_body is body else draft.with_body(new_body, bounded_header(draft, threads))
    )
    if new_body is body and draft.form.kernel.launch_bounds:
        edited = draft.with_body(body, bounded_header(draft, threads))
    grid, block = list(draft.launch.grid), list(draft.launch.block)
    requires: list[LaunchExpression] = []
    for axis in axes:
        target = AXES.index(partner[axis])
        extent, conditions = _extent(draft, axis, shape[partner[axis]])
        grid[target], block[target] = extent, build(shape[partner[axis]])
        requires += conditions
        if places[axis].literal_in(body):
            requires.append(
                draft.launch_expression(f"blockDim.{axis}").equals(places[axis].width or 0)
            )
        if target > 0:
            requires.append(extent <= GRID_MOST[target])
    for axis in AXES:
        if axis not in axes:
            requires.append(draft.launch_expression(f"blockDim.{axis}").equals(1))
    shown = " x ".join(str(shape[a]) for a in axes)
    says = f"Blocks of {shown} threads over the same elements."
    if swap:
        says = f"Swapped x and y, so that adjacent lanes access adjacent elements. {says}"
    return edited.launched(grid=tuple(grid), block=tuple(block)).requiring(*requires), says


def _extent(draft: Draft, axis: str, width: int) -> tuple[LaunchExpression, list[LaunchExpression]]:
    """Blocks of this width along an axis of the author's places, and what must hold for it."""
    found = covering_bound(draft, axis)
    if found is not None and f"gridDim.{axis}" not in builtins_in(draft.form.kernel.body):
        return ceil_div(found.limit, width), [found.covered, found.limit >= 1]
    total = threads_along(draft, axis)
    whole = (total % width).equals(0)
    if any(x is None for x in draft.requiring(whole).resolved):
        raise NotUnderstood("extra threads would have side effects")
    return total / width, [whole]


def _marked_place(axis: str, width: int | None) -> Any:
    """A place on another axis, under a name that nobody takes for a place of this one."""
    wide: Any = s.Name(f"@blockDim.{axis}") if width is None else s.Number(str(width))
    product = s.Binary("*", s.Name(f"@blockIdx.{axis}"), wide)
    return s.Binary("+", product, s.Name(f"@threadIdx.{axis}"))


def _unmarked(node: Any) -> Any:
    if isinstance(node, s.Name) and node.text.startswith("@"):
        root, _, axis = node.text[1:].partition(".")
        return s.Member(s.Name(root), axis, type="unsigned")
    return node


def bounded_header(draft: Draft, threads: int) -> str:
    """The kernel's header with a launch bound that a block of so many threads keeps. Raises
    NotUnderstood where a macro hides it."""
    header, bounds = draft.printer().header, draft.form.kernel.launch_bounds
    if not bounds:
        return header
    pattern = r"__launch_bounds__\s*\(\s*\d+\s*\)"
    if re.search(pattern, header):
        return re.sub(pattern, f"__launch_bounds__({threads})", header, count=1)
    if threads > bounds[0]:
        raise NotUnderstood(f"{threads} threads over the kernel's bound")
    return header


# Several blocks as one


def _may_stack(draft: Draft, found: ThreadCommunication) -> bool:
    blocks = [w.block for w in draft.workloads]
    flat = all(b.y == b.z == 1 for b in blocks) and any(w.grid.x > 1 for w in draft.workloads)
    if not flat or found.calls_other or max(b.x for b in blocks) > 256:
        return False
    if found.barriers or found.shared:
        return all(b.x == WARP for b in blocks)
    return all(b.x % WARP == 0 for b in blocks) or not found.collectives


def _stacked(draft: Draft, rows: int) -> tuple[Draft, str]:
    """`blockIdx.x * rows + threadIdx.y` for `blockIdx.x`, in blocks of so many rows."""
    found = thread_communication(draft)
    body = draft.form.kernel.body
    used = builtins_in(body)
    _refuse_stack(draft, found, used)
    row = s.Member(s.Name("threadIdx"), "y", type="unsigned")
    block = s.Member(s.Name("blockIdx"), "x", type="unsigned")
    mine = s.Binary("+", s.Binary("*", block, s.Number(str(rows))), row, type="unsigned")
    name = s.Name(draft.fresh_name("block"), type="unsigned")
    uses = sum(1 for x in s.below(body) if builtin(x) == "blockIdx.x")
    new: Any = mine if uses == 1 else name
    blocks = s.Name(draft.fresh_name("blocks"), type="unsigned")
    parameters: dict[str, LaunchExpression] = {}
    covered, guard = _rows_end(draft, rows)
    if guard or "gridDim.x" in used:
        parameters[f"const unsigned {blocks.text}"] = draft.launch_expression("gridDim.x")
    says = {"blockIdx.x": new, "gridDim.x": blocks}
    lines: tuple[Any, ...] = changed(body, lambda x: says.get(builtin(x), x))
    shares = _Shares(draft, rows, row) if found.barriers or found.shared else None
    if shares is not None:
        lines = changed(shares.divided(lines), _of_a_warp)
        parameters |= shares.parameters
    if guard:
        leave = s.If(s.Binary(">=", new, blocks), (s.Leave("return"),))
        lines = (leave, *lines)
    if new is name:
        lines = (s.Declare("const unsigned", name.text, value=mine), *lines)
    width = draft.launch_expression("blockDim.x")
    requires = [*covered, width * rows <= MAX_THREADS, *_flat(draft)]
    if shares is not None:
        requires += [width.equals(WARP), *shares.requires]
    elif found.collectives:
        requires.append((width % WARP).equals(0))
    header = None
    if parameters or draft.form.kernel.launch_bounds:
        header = bounded_header(draft, rows * _threads(draft))
        header = with_parameters(header, list(parameters)) if parameters else header
    grid = (ceil_div(draft.launch.grid[0], rows), *draft.launch.grid[1:])
    edited = draft.with_body(lines, header).launched(
        grid=grid, block=(draft.launch.block[0], build(rows), ONE),
        args=(*draft.launch.args, *parameters.values()),
        smem=draft.launch.smem if shares is None else shares.smem,
    )  # fmt: skip
    return edited.requiring(*requires), f"{rows} of the original blocks are the rows of one."


def _refuse_stack(draft: Draft, found: ThreadCommunication, used: set[str]) -> None:
    functions = functions_say(draft) & {"blockIdx", "gridDim", "threadIdx"}
    if not _may_stack(draft, found) or functions or functions_wait(draft):
        raise NotUnderstood("a barrier or shared-memory communication within the block")
    if found.collectives and found.returns:
        raise NotUnderstood("lanes that return before a warp collective")
    if any(b.is_divergent for b in draft.facts.barriers):
        raise NotUnderstood("a divergent barrier")
    if "blockIdx.x" not in used or used & s.BUILTINS or any(
        f"{root}.{a}" in used for root in ("threadIdx", "blockDim") for a in "yz"
    ):  # fmt: skip
        raise NotUnderstood("blocks of several axes")


def _of_a_warp(node: Any) -> Any:
    """A block's barrier or vote as that of the one warp that the block was."""
    full: Any = s.Number(FULL)
    match node:
        case s.Call("__syncthreads"):
            return s.Call("__syncwarp", ())
        case s.Call("__syncthreads_count", arguments):
            ballot = s.Call("__ballot_sync", (full, *arguments), type="unsigned")
            return s.Call("__popc", (ballot,), type="int")
        case s.Call("__syncthreads_or", arguments):
            return s.Call("__any_sync", (full, *arguments), type="int")
        case s.Call("__syncthreads_and", arguments):
            return s.Call("__all_sync", (full, *arguments), type="int")
    return node


@dataclass
class _Shares:
    """Shared memory of which every row has its own part."""

    draft: Draft
    rows: int
    row: Any

    def __post_init__(self) -> None:
        self.parameters: dict[str, LaunchExpression] = {}
        """Further ones of the kernel, with their arguments."""
        self.requires: list[LaunchExpression] = []
        self.smem = self.draft.launch.smem
        self._dynamic: dict[str, Any] = {}
        """Where a row begins in an array whose size the launch gives, in elements."""

    def divided(self, body: Any) -> Any:
        """The body, with a part of every array for each row. Raises NotUnderstood."""
        found = {x.name: x for x in s.below(body) if isinstance(x, s.Declare) and x.shared}
        if self.rows * (STATIC_BYTES - room_for(self.draft)) > STATIC_BYTES:
            raise NotUnderstood("no room in shared memory")
        for node in found.values():
            self._refuse(node)
            if node.unsized:
                self._dynamic[node.name] = self._row_of(node)
        if len(self._dynamic) > 1:
            raise NotUnderstood("dynamic shared memory with several names")

        def change(x: Any) -> Any:
            if isinstance(x, s.Declare) and x.name in found and x.shared and not x.unsized:
                return replace(x, extents=(s.Number(str(self.rows)), *x.extents))
            if isinstance(x, s.Name) and x.text in self._dynamic:
                return s.Binary("+", x, self._dynamic[x.text], type=x.type)
            if isinstance(x, s.Name) and x.text in found:
                return s.Index(x, self.row, type=x.type)
            match x:
                case s.Index(s.Binary("+", s.Name(text) as name, begins), at) if (
                    begins is self._dynamic.get(text)
                ):
                    return replace(x, base=name, index=s.Binary("+", begins, at, type="unsigned"))
            return x

        return changed(body, change)

    def _refuse(self, node: s.Declare) -> None:
        """Raise NotUnderstood where a part would not be aligned as the whole, or where the program
        asks for the size of the whole."""
        draft, size = self.draft, ELEMENT_BYTES.get(node.type)
        extents = [extent(e) for e in node.extents]
        if size is None or node.pointer or None in extents or "#" in node.name:
            raise NotUnderstood(f"unknown size of {node.name}")
        word, text = re.escape(s.plain_name(node.name)), draft.program.main.text
        if re.search(rf"\b(sizeof|decltype|align\w*|__align__)\b[^;]*\b{word}\b", text):
            raise NotUnderstood(f"unsupported use of {node.name}")
        if is_only_indexed(draft, node.name, len(node.extents) or node.unsized):
            return
        if node.unsized:
            self.requires.append((draft.launch.smem % 16).equals(0))
        elif math.prod(e for e in extents if e is not None) * size % 16:
            raise NotUnderstood(f"{node.name}, whose parts would be misaligned")

    def _row_of(self, node: s.Declare) -> Any:
        size, smem = ELEMENT_BYTES[node.type], self.draft.launch.smem
        name = self.draft.fresh_name(f"{node.name}_row")
        self.parameters[f"const unsigned {name}"] = smem if size == 1 else smem / size
        if size > 1:
            self.requires.append((smem % size).equals(0))
        self.smem = self.rows * smem
        return s.Binary("*", self.row, s.Name(name, type="unsigned"), type="unsigned")


def _threads(draft: Draft) -> int:
    return max(w.block.x for w in draft.workloads)


def _flat(draft: Draft) -> Iterator[LaunchExpression]:
    for axis in "yz":
        if (extent := draft.launch_expression(f"blockDim.{axis}")) != ONE:
            yield extent.equals(1)


def _rows_end(draft: Draft, rows: int) -> tuple[list[LaunchExpression], bool]:
    """What must hold for rows beyond the author's to do nothing; whether they must be kept from
    it."""
    found = covering_bound(draft, "x")
    if found is not None:
        return [found.covered], False
    if all(w.grid.x % rows == 0 for w in draft.workloads):
        return [(draft.launch_expression("gridDim.x") % rows).equals(0)], False
    return [], True
