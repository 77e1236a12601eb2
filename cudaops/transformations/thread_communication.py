"""How the threads of a kernel deal with each other: what they may be reordered or merged by.

CUDA gives threads no order between barriers, and blocks none at all. A kernel whose result depended
on one would race, and which of its results is the right one nobody can say: any order is as good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in, has_volatile
from cudaops.program.analysis.facts import Guard
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES, PURE, gives_value
from cudaops.program.analysis.polynomials import Symbol, number
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.draft import Draft

ATOMICS = frozenset({
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor",
    "atomicInc", "atomicDec", "atomicExch", "atomicCAS",
})  # fmt: skip
WARP = 32
"""Threads of a warp, on every device."""
VOTES = frozenset({"__syncthreads_count", "__syncthreads_or", "__syncthreads_and"})
"""Barriers that give what all threads of a block said."""
_WAITS = re.compile(
    r"\b__threadfence\w*|\b__nanosleep\b|\bclock(64)?\b|\bgrid_group\b"
    r"|\bcooperative_groups\b|\bthis_grid\b|\bcuda::(atomic|barrier|pipeline)"
)


@dataclass(frozen=True)
class ThreadCommunication:
    """Of one kernel with the functions that it calls."""

    barriers: bool
    collectives: bool
    """Shuffles, votes and `__syncwarp`."""
    shared: bool
    """Shared memory, of any kind."""
    atomics: bool
    returns: bool
    calls_other: tuple[str, ...]
    """Functions of which nothing is known."""

    @property
    def is_alone(self) -> bool:
        """Whether a thread neither waits for others nor exchanges anything with its block."""
        return not (self.barriers or self.collectives or self.shared or self.calls_other)

    def refuse_unknown(self) -> None:
        """Raise NotUnderstood for a function that is not known: it may be a block's own, for all of
        the author's threads."""
        if self.calls_other:
            raise NotUnderstood(f"what {self.calls_other[0]} does")


def thread_communication(draft: Draft) -> ThreadCommunication:
    """What the kernel's threads do. Raises NotUnderstood for what cannot be reordered at all:
    assembly, and threads that wait for other blocks."""
    form = draft.form
    functions = (form.kernel, *form.functions)
    for function in functions:
        _refuse_waiting(draft, function)
    called = set().union(*(calls_in(f.body) for f in functions))
    own = {f.name for f in form.functions}
    barriers = {c for c in called if c in BARRIERS and c != "__syncwarp"}
    collectives = {c for c in called if c in COLLECTIVES or c == "__syncwarp"}
    known = PURE | ATOMICS | own | barriers | collectives
    other = sorted(c for c in called - known if not gives_value(c))
    shared = any(
        isinstance(x, s.Declare) and (x.shared or x.unsized)
        for f in functions
        for x in s.below(f.body)
    )
    returns = any(isinstance(x, s.Leave) and x.word == "return" for x in s.below(form.kernel.body))
    return ThreadCommunication(
        bool(barriers), bool(collectives), shared, bool(called & ATOMICS), returns, tuple(other)
    )


def _refuse_waiting(draft: Draft, function: s.Function) -> None:
    for node in s.below(function.body):
        if isinstance(node, s.Opaque):
            raise NotUnderstood(node.what)
        if isinstance(node, s.For | s.Do) and any(
            x.startswith("atomic") for x in calls_in((node.condition,))
        ):
            raise NotUnderstood("a spin loop on memory")
    if has_volatile(function):
        raise NotUnderstood(f"volatile in {function.name}")
    where = function.where
    text = "" if where is None else _text_of(draft, where)
    if found := _WAITS.search(_uncommented(text)):
        raise NotUnderstood(f"{found[0]} in {function.name}")


def _text_of(draft: Draft, where: s.Range) -> str:
    file = next((f for f in draft.program.files if f.path == where.file), None)
    return "" if file is None else file.text.encode()[where.start : where.end].decode()


def _uncommented(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def functions_say(draft: Draft) -> set[str]:
    """Of the launch's own numbers, those that functions below the kernel use: `blockIdx`."""
    return {
        x.text
        for f in draft.form.functions
        for x in s.below(f.body)
        if isinstance(x, s.Name) and x.text in s.BUILTINS
    }


def require_converged_warps(draft: Draft) -> None:
    """Raise NotUnderstood where lanes of a warp may have diverged at a shuffle or vote.

    The device lets a warp pass whose other lanes have left the kernel. In a loop around the kernel
    they wait for the next barrier instead, and the shuffle for them.
    """
    rows = any(w.block.x % WARP and w.block.y * w.block.z > 1 for w in draft.workloads)
    for met in draft.facts.collectives:
        depends = [g.depends for g in met.guards] + [x.depends for x in met.loops]
        if rows and any(d & {"threadIdx.y", "threadIdx.z"} for d in depends):
            raise NotUnderstood(f"{met.function} for some rows of a warp")
        if any(_parts_lanes(guard) for guard in met.guards):
            raise NotUnderstood(f"{met.function} for some lanes of a warp")


def _parts_lanes(guard: Guard) -> bool:
    """Whether it is `threadIdx.x < 16`, as far as its form tells."""
    linear = None if guard.below is None else guard.below.linear_in(Symbol("threadIdx.x"))
    if linear is None or linear[0] != number(1):
        return False
    bound = linear[1].constant
    return bound is not None and bound % WARP != 0


def functions_wait(draft: Draft) -> bool:
    """Whether a function below the kernel waits for the block, or has shared memory."""
    return any(
        any(isinstance(x, s.Declare) and x.shared for x in s.below(f.body))
        or calls_in(f.body) & (BARRIERS - {"__syncwarp"})
        for f in draft.form.functions
    )


def refuse_exchange(draft: Draft) -> None:
    """Raise NotUnderstood where threads may exchange values through global memory: an array that
    is written is read elsewhere than where the thread itself writes.

    Two parameters that point into one captured allocation are one array. Launches in which others
    do are no different: between threads without a barrier any such exchange is a race.
    """
    facts = draft.facts
    if facts.unmodelled:
        raise NotUnderstood(f"{facts.unmodelled[0]}, which may reach any memory")
    allocations = Allocations(draft)
    touched = [a for a in facts.accesses if a.space in ("global", "unknown", "module")]
    if any(a.space == "unknown" and a.kind != "read" for a in touched):
        raise NotUnderstood("a write through a pointer of unknown target")
    for write in touched:
        if write.kind == "read":
            continue
        for read in touched:
            if read.kind == write.kind == "atomic":
                continue
            if not allocations.share(write.array, read.array):
                continue
            if read.kind == "read" and (
                read.offset_bytes is None
                or not any(
                    w.kind == "write" and w.offset_bytes == read.offset_bytes
                    for w in touched if w.array == read.array
                )
            ):  # fmt: skip
                raise NotUnderstood(f"{read.array} is read while other threads write it")


def is_vote(node: Any) -> bool:
    """`all += __syncthreads_count(mine)`: a variable of the whole block, to which each item adds
    what its threads say."""
    match node:
        case s.Assign(s.Name(), operator, s.Call(function, (asked,))):
            return operator != "" and function in VOTES and not calls_in(asked) & BARRIERS
    return False
