"""A few waves of blocks that go through all the work, each with its setup done once.

Any kernel's blocks may follow each other in one block (`blocks`): CUDA gives them no order. What a
block does before it looks at its number is done once, where nothing later changes it; a barrier
parts one block's use of shared memory from the next one's. A kernel that already goes through its
work in strides of the whole grid runs on a grid of any size (`grid`), where all that it does stands
in such loops and no iteration leaves the next one anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.conduct import (
    Conduct,
    conduct,
    effects_in,
    functions_say,
    local_variables,
    pure_functions,
    refuse_parted_warps,
)
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.places import Places, builtin, builtins_in
from cudaops.transformations.serial import continued, invariant, own_parameters
from cudaops.transformations.serial_blocks import modified
from cudaops.transformations.text import with_parameters
from cudaops.transformations.trees import BARRIERS, changed, is_barrier, names_in, root_of

_GRIDS = (1056, 528, 2112, 132)
"""Blocks: of 132 SMs, eight, four, sixteen and one each; near enough for others."""


class GridStride:
    """Persistent blocks, and other grids for grid-stride loops."""

    name = "grid_stride"
    title = "a few waves of blocks"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "many_waves", "tail_effect", "issue_slots", "launch_bound", "stall_barrier",
        "atomic_contention", "occupancy_grid", "low_parallelism", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Grids that are not the author's; persistent blocks where there are more than those."""
        found = conduct(draft)
        used = builtins_in(draft.form.kernel.body)
        if "blockIdx.x" not in used:
            return ()
        most = max(w.grid.x for w in draft.workloads)
        if _is_strided(draft, found):
            return tuple({"grid": n} for n in _GRIDS if most != n)
        return tuple({"blocks": n} for n in _GRIDS if most >= 2 * n)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where a grid's size or order could be told."""
        if "grid" in setting:
            count = int(setting["grid"])
            if not _is_strided(draft, conduct(draft)):
                raise NotUnderstood("work that is not all in strides of the grid")
            grid = (str(count), *draft.launch.grid[1:])
            says = f"{count} blocks go through the work in strides of the grid."
            return draft.launched(grid=grid).stepped(Step(self.name, setting, says))
        edited, says = _persistent(draft, int(setting["blocks"]))
        done = edited.stepped(Step(self.name, setting, says))
        _ = done.form
        return done


# Grid-stride loops


def _is_strided(draft: Draft, found: Conduct) -> bool:
    body = draft.form.kernel.body
    if not found.is_alone or found.returns or functions_say(draft):
        return False
    places = Places.of(draft, body, "x")
    if places.literal_in(body):
        return False
    try:
        places.replaced(body, lambda x: x, totals=True)
    except NotUnderstood:
        return False
    local, pure = set(local_variables(body)), pure_functions(draft)
    strided = False
    for node in body:
        if isinstance(node, s.For) and _is_stride(draft, node, places):
            strided = True
            if not _is_independent(draft, node):
                return False
        elif effects_in(node, local, pure) or any(places.is_place(x) for x in s.below(node)):
            return False
    return strided


def _is_stride(draft: Draft, node: s.For, places: Places) -> bool:
    """`for (int i = place; i < n; i += all threads)`."""
    match node.first, node.condition, node.step:
        case (
            (s.Declare(_, name, value=first),),
            s.Binary("<", s.Name(tested), limit),
            (s.Assign(s.Name(stepped), "+", total),),
        ):
            same = name == tested == stepped
            stays = not modified(draft, node.body, {name, *names_in(limit)})
            return same and stays and places.is_place(first) and places.is_total(total)
    return False


def _is_independent(draft: Draft, node: s.For) -> bool:
    """Whether an iteration leaves the next ones nothing in variables, and ends of itself."""
    inside = {x.name for x in s.below(node.body) if isinstance(x, s.Declare | s.Refer)}
    if modified(draft, node.body, names_in(node.body) - inside):
        return False
    for x in s.below(node.body):
        if isinstance(x, s.Assign | s.Step) and root_of(x.target) is None:
            return False
        if isinstance(x, s.Leave) and x.word in ("return", "break"):
            return False
        if builtin(x) and builtin(x).startswith(("gridDim", "blockIdx.x", "threadIdx.x")):
            return False
    return not any(isinstance(x, s.Unmodelled | s.Opaque) for x in s.below(node.body))


# Persistent blocks


def _persistent(draft: Draft, count: int) -> tuple[Draft, str]:
    found, body = conduct(draft), draft.form.kernel.body
    if {"blockIdx", "gridDim"} & functions_say(draft):
        raise NotUnderstood("a function that asks for its block")
    used = builtins_in(body)
    if "blockIdx.x" not in used or used & s.BUILTINS:
        raise NotUnderstood("blockIdx.x is not used")
    block = s.Name(draft.free("block"), type="unsigned")
    blocks = s.Name(draft.free("blocks"), type="unsigned")
    says = {"blockIdx.x": block, "gridDim.x": blocks}
    lines: Any = changed(body, lambda x: says.get(builtin(x), x))
    waits = found.barriers or found.collectives or found.shared
    if found.returns:
        if waits or found.calls_other:
            raise NotUnderstood("threads that leave before a barrier")
        lines = continued(lines)
    if found.collectives:
        refuse_parted_warps(draft)
    lines = own_parameters(draft, lines)
    shared = [x for x in lines if isinstance(x, s.Declare) and x.shared]
    rest = [x for x in lines if not (isinstance(x, s.Declare) and x.shared)]
    setup, rest = _setup(draft, rest, block.text, found)
    if found.shared:
        rest.append(s.Evaluate(s.Call("__syncthreads", ())))
    first = s.Declare("unsigned", block.text, value=_grid_wide("blockIdx"))
    step = s.Assign(block, "+", _grid_wide("gridDim"))
    loop = s.For((first,), s.Binary("<", block, blocks), (step,), tuple(rest))
    header = with_parameters(draft.printer().header, [f"const unsigned {blocks.text}"])
    edited = draft.with_body((*shared, *setup, loop), header)
    grid = (f"min({draft.launch.grid[0]}, {count})", *draft.launch.grid[1:])
    args = (*draft.launch.args, draft.says("gridDim.x"))
    once = " What a block does before that is done once." if len(setup) > 0 else ""
    told = f"At most {count} blocks take the work of the author's one after the other.{once}"
    return edited.launched(grid=grid, args=args), told


def _grid_wide(root: str) -> s.Expression:
    return s.Member(s.Name(root), "x", type="unsigned")


def _setup(
    draft: Draft, body: Sequence[Any], block: str, found: Conduct
) -> tuple[list[Any], list[Any]]:
    """What stands first, does not depend on the block and is not undone later: declarations, and
    where the kernel synchronises, shared memory that is filled and then only read."""
    early, rest = invariant(draft, body, block)
    if not found.barriers:
        return early, rest
    at = next((i for i, x in enumerate(rest) if _has_barrier(x)), None)
    if at is None or not is_barrier(rest[at]):
        return early, rest
    filled, later = rest[: at + 1], tuple(rest[at + 1 :])
    shared = {x.name for x in s.below(draft.form.kernel.body)
              if isinstance(x, s.Declare) and x.shared and not x.pointer}  # fmt: skip
    own = set(local_variables(tuple(filled)))
    if effects_in(tuple(filled[:-1]), own | shared, pure_functions(draft)):
        return early, rest
    written = {
        root_of(x.target) for x in s.below(tuple(filled)) if isinstance(x, s.Assign | s.Step)
    }
    again = {root_of(x.target) for x in s.below(later) if isinstance(x, s.Assign | s.Step)}
    handed = {root_of(a) for x in s.below(later) if isinstance(x, s.Call) for a in x.arguments} | {
        root_of(x.operand) for x in s.below(later) if isinstance(x, s.Unary) and x.operator == "&"
    }
    if block in names_in(tuple(filled)) or (written | own) & (again | handed) or None in again:
        return early, rest
    if any(isinstance(x, s.Refer | s.Leave) for x in s.below(tuple(filled))):
        return early, rest
    if _reads_what_is_written(draft, filled):
        return early, rest
    return [*early, *filled], list(later)


def _has_barrier(node: Any) -> bool:
    return any(isinstance(x, s.Call) and x.function in BARRIERS for x in s.below(node))


def _reads_what_is_written(draft: Draft, filled: Sequence[Any]) -> bool:
    """Whether a setup reads arrays that the kernel writes: the next block would find others."""
    facts = draft.facts
    if facts.unmodelled:
        return True
    written = {a.array for a in facts.accesses if a.kind != "read" and a.space != "local"}
    arrays = {p.name for p in draft.form.kernel.parameters if p.is_pointer}
    used = names_in(tuple(filled)) & arrays
    return bool(used & written) or "" in written
