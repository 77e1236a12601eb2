"""How the threads of a kernel deal with each other: what they may be reordered or merged by.

CUDA gives threads no order between barriers, and blocks none at all. A kernel whose result depended
on one would race, and which of its results is the right one nobody can say: any order is as good.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_volatile
from cudaops.program.analysis.facts import Guard
from cudaops.program.analysis.polynomials import Symbol, number
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import (
    BARRIERS,
    COLLECTIVES,
    PURE,
    calls_in,
    is_pointed_at,
    root_of,
)

ATOMICS = frozenset({
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor",
    "atomicInc", "atomicDec", "atomicExch", "atomicCAS",
})  # fmt: skip
WARP = 32
"""Threads of a warp, on every device."""
VOTES = frozenset({"__syncthreads_count", "__syncthreads_or", "__syncthreads_and"})
"""Barriers that give what all threads of a block said."""
_INTRINSIC = re.compile(
    r"__(h|half|float|double|int|uint|ll|ull|short|ushort|low|high|lows|highs|dadd|dmul|dsub|dfma"
    r"|drcp|dsqrt|ddiv|bfloat|byte|dp2a|dp4a|funnelshift|v)\w*|make_(u?(char|short|int|long|longlong)"
    r"|float|double)[1-4]|make_(half2|bfloat162)|h(exp|log|sqrt|rsqrt|sin"
    r"|cos|rcp|exp2|log2|floor|ceil|rint|trunc)2?|__saturatef|l?l(round|rint)f?|nearbyintf?|__?half2?|__nv_\w+"
    r"|half2?|operator ?(float|half|double|int|bool|[-+*/<>]|[<>=!]=)"
)
"""Functions of CUDA's headers that give a value and do nothing else."""
_WAITS = re.compile(
    r"\b__threadfence\w*|\b__nanosleep\b|\bclock(64)?\b|\bgrid_group\b"
    r"|\bcooperative_groups\b|\bthis_grid\b|\bcuda::(atomic|barrier|pipeline)"
)


@dataclass(frozen=True)
class Conduct:
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


def conduct(draft: Draft) -> Conduct:
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
    other = sorted(c for c in called - known if not _INTRINSIC.fullmatch(c))
    shared = any(
        isinstance(x, s.Declare) and (x.shared or x.unsized)
        for f in functions
        for x in s.below(f.body)
    )
    returns = any(isinstance(x, s.Leave) and x.word == "return" for x in s.below(form.kernel.body))
    return Conduct(
        bool(barriers), bool(collectives), shared, bool(called & ATOMICS), returns, tuple(other)
    )


def _refuse_waiting(draft: Draft, function: s.Function) -> None:
    for node in s.below(function.body):
        if isinstance(node, s.Opaque):
            raise NotUnderstood(node.what)
        if isinstance(node, s.For | s.Do) and any(
            x.startswith("atomic") for x in calls_in((node.condition,))
        ):
            raise NotUnderstood("a loop that waits for memory")
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


def refuse_parted_warps(draft: Draft) -> None:
    """Raise NotUnderstood where lanes of a warp may be parted at a shuffle or vote.

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
        raise NotUnderstood("a write through a pointer that is not followed")
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
                raise NotUnderstood(f"{read.array} is read where other threads write")


def effects_in(node: Any, local: Collection[str], pure: Collection[str] = ()) -> bool:
    """Whether it changes anything but these variables, or calls what may; `pure`: functions of the
    program that do not."""
    return any(_impure(x, local, pure) for x in s.below(node))


def _has_effect(node: Any, local: Collection[str]) -> bool:
    match node:
        case s.Assign(target) | s.Step(target):
            return root_of(target) not in local or is_pointed_at(target)
        case s.Call(function):
            return function not in PURE and not _INTRINSIC.fullmatch(function)
        case s.Unmodelled(what):
            return what != "cxx_null_ptr_literal_expr"
        case s.Opaque():
            return True
    return False


def pure_functions(draft: Draft) -> frozenset[str]:
    """Functions of the program that give a value of their arguments and memory, and do nothing
    else: their parameters are values."""
    found: set[str] = set()
    waiting = list(draft.form.functions)
    while True:
        now = {f.name for f in waiting if f.name not in found and _is_pure(draft, f, found)}
        if not now:
            return frozenset(found)
        found |= now


def _is_pure(draft: Draft, function: s.Function, known: set[str]) -> bool:
    if function.where is None or function.body_where is None or function.gives_reference:
        return False
    if any(p.is_reference or (p.is_pointer and not p.is_const) for p in function.parameters):
        return False
    local = {x.name for x in s.below(function.body) if isinstance(x, s.Declare) and not x.pointer}
    local |= {p.name for p in function.parameters if not p.is_pointer}
    return not any(_impure(x, local, known) for x in s.below(function.body))


def _impure(node: Any, local: Collection[str], known: Collection[str]) -> bool:
    if isinstance(node, s.Call) and node.function in known:
        return False
    if isinstance(node, s.Refer) or (isinstance(node, s.Declare) and node.shared):
        return True
    return _has_effect(node, local)


def local_variables(body: Any) -> Iterator[str]:
    """Variables of a thread's own, arrays too; pointers are not: they lead elsewhere."""
    for node in s.below(body):
        if isinstance(node, s.Declare) and not node.shared and not node.pointer:
            yield node.name


def written_by(node: Any, pure: Collection[str], local: Collection[str]) -> Iterator[str]:
    """Variables that one node itself may change: its target, what it takes the address of, what a
    function of the program may take by reference. `local`: those that are no pointers."""
    places: tuple[Any, ...] = ()
    match node:
        case s.Assign(target) | s.Step(target) | s.Refer(_, _, target):
            places = (target,)
        case s.Unary("&", operand):
            places = (operand,)
        case s.Call(function, arguments) if function not in pure and not _is_known(function):
            places = arguments
    for place in places:
        if isinstance(place, s.Name):
            yield place.text
        elif isinstance(place, s.Index | s.Member | s.Unary) and root_of(place) in local:
            yield root_of(place) or ""


def _is_known(function: str) -> bool:
    return function in PURE or function.startswith(("atomic", "__shfl"))


def is_vote(node: Any) -> bool:
    """`all += __syncthreads_count(mine)`: a variable of the whole block, to which each item adds
    what its threads say."""
    match node:
        case s.Assign(s.Name(), operator, s.Call(function, (asked,))):
            return operator != "" and function in VOTES and not calls_in(asked) & BARRIERS
    return False
