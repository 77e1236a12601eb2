"""A few waves of blocks that go through all the work, each with its setup done once.

Any kernel's blocks may follow each other in one block (`blocks`): CUDA gives them no order. What a
block does before it looks at its number is done once, where nothing later changes it; a barrier
parts one block's use of shared memory from the next one's. A kernel that already goes through its
work in strides of the whole grid runs on a grid of any size (`grid`), where all that it does stands
in such loops and no iteration leaves the next one anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_early_exit,
    has_effects,
    local_variables,
    names_in,
    pure_functions,
    root_of,
    written_names,
)
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.analysis.polynomials import Polynomial, Remainder, Symbol, number
from cudaops.program.launch_expression import LaunchExpression, build, minimum
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.liveness import live_after, live_before
from cudaops.transformations.places import (
    GlobalThreadIndex,
    builtin,
    builtins_in,
    threads_along,
    through_casts,
)
from cudaops.transformations.serial import continued, invariant, own_parameters
from cudaops.transformations.text import with_parameters
from cudaops.transformations.thread_communication import (
    ThreadCommunication,
    functions_say,
    functions_wait,
    require_converged_warps,
    thread_communication,
)
from cudaops.transformations.trees import changed, is_barrier

_GRIDS = (1056, 528, 2112, 132)
"""Blocks: of 132 SMs, eight, four, sixteen and one each; near enough for others."""


class GridStride:
    """Persistent blocks, and other grids for grid-stride loops."""

    name = "grid_stride"
    title = "grid-stride loop over a few waves of blocks"
    family: Family = "launch_geometry"
    relieves = frozenset({
        "many_waves", "tail_effect", "issue_slots", "launch_bound", "stall_barrier",
        "atomic_contention", "occupancy_grid", "low_parallelism", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Grids that are not the author's; persistent blocks where there are more than those."""
        found = thread_communication(draft)
        used = builtins_in(draft.form.kernel.body)
        if "blockIdx.x" not in used:
            return ()
        most = max(w.grid.x for w in draft.workloads)
        blocks = tuple({"blocks": n} for n in _GRIDS if most >= 2 * n)
        strided = _strided(draft, found)
        if strided is None:
            return blocks
        if strided.meets:
            return (*({"grid": n} for n in _GRIDS if n > most), *blocks)
        return tuple({"grid": n} for n in _GRIDS if n != most)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where a grid's size or order could be told."""
        if "grid" in setting:
            count = int(setting["grid"])
            says = f"{count} blocks run a grid-stride loop."
            return on_grid(draft, count).stepped(Step(self.name, setting, says))
        edited, says = _persistent(draft, int(setting["blocks"]))
        done = edited.stepped(Step(self.name, setting, says))
        _ = done.form
        return done


# Grid-stride loops


def on_grid(draft: Draft, count: int) -> Draft:
    """The kernel on this many blocks, where its work is all in strides of the grid. Raises
    NotUnderstood."""
    strided = _strided(draft, thread_communication(draft))
    if strided is None:
        raise NotUnderstood("work outside of the grid-stride loop")
    if strided.meets and count <= max(w.grid.x for w in draft.workloads):
        raise NotUnderstood("several iterations per block, which may need a barrier between them")
    few = (draft.launch_expression("gridDim.x") <= count,) if strided.meets else ()
    grid = (build(count), *draft.launch.grid[1:])
    return draft.launched(grid=grid).requiring(*strided.requires, *few)


@dataclass(frozen=True)
class _Strided:
    """Work that is all in strides of the grid."""

    meets: bool
    """Whether threads of a block meet in it, or leave each other something."""
    requires: tuple[LaunchExpression, ...]
    """Of a launch."""


def _strided(draft: Draft, found: ThreadCommunication) -> _Strided | None:
    """Whether the kernel's work is all in strides of the grid; None where it is not.

    The threads of a block have `blockDim` neighbouring iterations at a time, on any grid the same
    ones, so that they may meet in them. What they have in shared memory is either filled before,
    by each block alike, or used in one loop alone: a block's first iteration, whichever that is,
    finds nothing there but what was written in it.
    """
    body = draft.form.kernel.body
    if found.returns or found.calls_other or functions_say(draft) or functions_wait(draft):
        return None
    strides = [y for x in body if isinstance(x, s.For) and (y := _Stride.of(draft, x, body))]
    rest, shared = _without_heads(body, strides), _shared_arrays(draft, body)
    said = builtins_in(rest)
    if not strides or shared is None or said & {"blockIdx.x", "gridDim.x", *s.BUILTINS}:
        return None
    meets = not found.is_alone or "threadIdx.x" in said
    requires = _free_order(draft, "gridDim.x" if meets else "blockDim.x")
    if requires is None or not all(x.is_independent(draft, body, shared) for x in strides):
        return None
    quiet = set(local_variables(body)) | shared
    harmless = pure_functions(draft.form) | BARRIERS | COLLECTIVES
    loops = [x.loop for x in strides]
    for x in body:
        is_array = isinstance(x, s.Declare) and x.shared
        if not is_array and not any(x is y for y in loops) and has_effects(x, quiet, harmless):
            return None
    return _Strided(meets, requires)


def _free_order(draft: Draft, several: str) -> tuple[LaunchExpression, ...] | None:
    """What a launch must fulfil so that iterations which follow each other in a thread are nothing
    to each other in global memory, as those of different threads are not; None where that is not
    so in a captured one. `several`: of what there must be more than one.

    Whatever two iterations have in common, some two of different threads, or of different blocks,
    have too, and CUDA gives these no order. Not where places come again with the grid's own period:
    `y[i % 640]` of 640 threads.
    """
    if any(min(w.block.x, w.grid.x if several == "gridDim.x" else 2) < 2 for w in draft.workloads):
        return None
    requires = {draft.launch_expression(several) > 1: None}
    for access in draft.facts.accesses:
        if access.kind == "read" or access.space in ("local", "shared"):
            continue
        if access.offset_bytes is None:
            if "memory" not in access.depends:
                return None
            continue
        for atom in access.offset_bytes.atoms():
            if isinstance(atom, Remainder):
                period = _constant(draft, atom.divisor)
                if not period or any(period % (w.grid.x * w.block.x) == 0 for w in draft.workloads):
                    return None
                whole = atom.divisor.launch_expression(draft.launch_expression)
                requires[(whole % threads_along(draft, "x")).differs(0)] = None
    return tuple(requires)


def _constant(draft: Draft, value: Polynomial) -> int | None:
    """Its value in every captured launch; None where they differ, or it is not known."""
    known = {}
    for atom in value.atoms():
        found = draft.value(atom.name) if isinstance(atom, Symbol) else None
        if isinstance(found, int):
            known[atom] = number(found)
    return value.replace(known).constant


def _shared_arrays(draft: Draft, body: Sequence[Any]) -> set[str] | None:
    """Names of shared memory; None where something else may lead there."""
    shared = {x.name for x in s.below(body) if isinstance(x, s.Declare) and x.shared}
    for x in s.below(body):
        leads = isinstance(x, s.Refer) or (isinstance(x, s.Declare) and x.pointer)
        if leads and names_in(x) & shared:
            return None
    return None if any(x.space == "unknown" for x in draft.facts.accesses) else shared


def _without_heads(body: Sequence[Any], strides: Sequence[_Stride]) -> tuple[Any, ...]:
    """The body without what says a thread's place and the number of threads in these loops, and
    without the variables that are there for that alone."""
    loops = {id(x.loop): x.loop for x in strides}
    spelled = {name: value for x in strides for name, value in x.spelled.items()}
    rest = [s.Block((s.Evaluate(x.condition), *x.body)) if id(x) in loops else x for x in body]
    says = {x.name: x for x in rest if isinstance(x, s.Declare) and x.name in spelled}
    others = [x for x in rest if not any(x is y for y in says.values())]
    used = _said_by(tuple(others), spelled)
    return (*(x for name, x in says.items() if name in used), *others)


@dataclass(frozen=True)
class _Stride:
    """`for (int i = place; i < n; i += all threads)`."""

    loop: s.For
    variable: str
    spelled: Mapping[str, Any]
    """Variables that say the place, or the number of threads, with what they say."""

    @classmethod
    def of(cls, draft: Draft, node: s.For, body: Sequence[Any]) -> _Stride | None:
        """None for any other loop."""
        first, name = _first(node)
        places = GlobalThreadIndex.of(draft, body, "x")
        changing = written_names(tuple(body), draft.form)
        fixed = {
            x.name: x.value for x in body
            if isinstance(x, s.Declare) and not x.extents and x.value is not None
            and changing is not None and x.name not in changing
        }  # fmt: skip

        def meant(said: Any) -> Any:
            said = through_casts(said)
            return fixed.get(said.text, said) if isinstance(said, s.Name) else said

        match node.condition, node.step:
            case s.Binary("<", s.Name(tested), limit), (s.Assign(s.Name(stepped), "+", total),):
                begin, every = meant(first), meant(total)
                spelled = _said_by((first, total), fixed)
                is_stride = (
                    name == tested == stepped
                    and places.is_place(begin) and places.is_total(every)
                    and not places.literal_in((begin,))
                    and not (changed_variables(node.body, draft.form) & {name, *names_in(limit)})
                )  # fmt: skip
                return cls(node, name, spelled) if is_stride else None
        return None

    def is_independent(self, draft: Draft, body: Sequence[Any], shared: set[str]) -> bool:
        """Whether an iteration leaves the next ones and what follows nothing in variables and in
        shared memory, and ends of itself."""
        inside = {x.name for x in s.below(self.loop.body) if isinstance(x, s.Declare | s.Refer)}
        left = (
            changed_variables(self.loop.body, draft.form)
            & names_in(self.loop.body) - inside - shared
        )
        for name in left | ({self.variable} - _declared_by(self.loop)):
            again = name != self.variable and live_before(self.loop.body, name)
            if again or live_after(body, self.loop, name):
                return False
        for x in s.below(self.loop.body):
            if isinstance(x, s.Assign | s.Step) and root_of(x.target) is None:
                return False
            if isinstance(x, s.Unmodelled | s.Opaque):
                return False
        if has_early_exit(self.loop.body, "continue"):
            return False
        own = names_in(self.loop.body) & shared
        others = [x for x in body if x is not self.loop]
        return not (own - _only_read(self.loop.body, own)) & names_in(tuple(others))


def _said_by(node: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these variables that it is made of, and those that they are made of."""
    found: dict[str, Any] = {}
    waiting = list(names_in(node))
    while waiting:
        name = waiting.pop()
        if name in fixed and name not in found:
            found[name] = fixed[name]
            waiting += names_in(fixed[name])
    return found


def _first(node: s.For) -> tuple[Any, str]:
    """What a loop's variable begins with, and its name."""
    match node.first:
        case (s.Declare(_, name, value=value),):
            return value, name
        case (s.Evaluate(s.Assign(s.Name(name), "", value)),) | (
            s.Assign(s.Name(name), "", value),
        ):
            return value, name
    return None, ""


def _declared_by(node: s.For) -> set[str]:
    return {x.name for x in node.first if isinstance(x, s.Declare)}


def _only_read(body: Sequence[Any], arrays: set[str]) -> set[str]:
    """Those of these arrays of which a body only reads elements."""
    read = [x.base.text for x in s.below(tuple(body))
            if isinstance(x, s.Index) and isinstance(x.base, s.Name)]  # fmt: skip
    said = [x.text for x in s.below(tuple(body)) if isinstance(x, s.Name)]
    changing: set[str | None] = set()
    for x in s.below(tuple(body)):
        if isinstance(x, s.Assign | s.Step):
            changing.add(root_of(x.target))
        elif isinstance(x, s.Unary) and x.operator == "&":
            changing.add(root_of(x.operand))
    return {a for a in arrays if a not in changing and said.count(a) == read.count(a)}


# Persistent blocks


def _persistent(draft: Draft, count: int) -> tuple[Draft, str]:
    found, body = thread_communication(draft), draft.form.kernel.body
    if {"blockIdx", "gridDim"} & functions_say(draft):
        raise NotUnderstood("a device function that reads blockIdx or blockDim")
    used = builtins_in(body)
    if "blockIdx.x" not in used or used & s.BUILTINS:
        raise NotUnderstood("blockIdx.x is not used")
    block = s.Name(draft.fresh_name("block"), type="unsigned")
    blocks = s.Name(draft.fresh_name("blocks"), type="unsigned")
    says = {"blockIdx.x": block, "gridDim.x": blocks}
    lines: Any = changed(body, lambda x: says.get(builtin(x), x))
    waits = found.barriers or found.collectives or found.shared
    if found.returns:
        if waits or found.calls_other:
            raise NotUnderstood("threads that return before a barrier")
        lines = continued(lines)
    if found.collectives:
        require_converged_warps(draft)
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
    grid = (minimum(draft.launch.grid[0], count), *draft.launch.grid[1:])
    args = (*draft.launch.args, draft.launch_expression("gridDim.x"))
    once = " The work before the loop is done once." if len(setup) > 0 else ""
    told = f"At most {count} blocks do the original blocks' work, one after another.{once}"
    return edited.launched(grid=grid, args=args), told


def _grid_wide(root: str) -> s.Expression:
    return s.Member(s.Name(root), "x", type="unsigned")


def _setup(
    draft: Draft, body: Sequence[Any], block: str, found: ThreadCommunication
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
    if has_effects(tuple(filled[:-1]), own | shared, pure_functions(draft.form)):
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
