"""What one thread of a block does alone in a loop, done by its warp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in, names_in, root_of, targets_in, writes_memory
from cudaops.program.analysis.facts import varies_in_block
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.lanes import Sharing, ThreadGroup, choose, limits
from cudaops.transformations.splitting import WORDS, Loops, Split
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import changed, declared_in, is_barrier, renamed, swapped

_LEAST_TRIPS = 8
"""A shorter loop is as quick in one thread."""
_THREAD = s.Member(s.Name("threadIdx"), "x")


@dataclass
class _Serial:
    """`if (threadIdx.x == 0) { for ... }`."""

    statement: s.If
    thread: Any
    """The expression that is compared with 0."""
    same: frozenset[str]
    """Variables that hold `threadIdx.x`."""
    chosen: Mapping[int, Split]
    stored: bool
    """Whether the first thread may have stored to memory since the barrier."""


class ShareSerial:
    """The first warp goes where the first thread went, and shares its loops.

    Legal where a barrier stands before it among the same statements, or it is one of the kernel's
    own, with no way out between: all lanes of the first warp come there. What they use from outside
    is the same for all threads; what they change there, nobody else looks at. Single variables in
    shared memory, which nobody else may touch meanwhile, are in registers there.
    """

    name = "share_serial"
    title = "serial section parallelized over a warp"
    family: Family = "reduction"
    relieves = frozenset({
        "stall_barrier", "stall_wait", "stall_short_scoreboard", "stall_long_scoreboard",
        "divergence", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All such places at once."""
        draft = _in_registers(draft)
        return ({"lanes": 32},) if list(_serials(draft)) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guarded by the block's size."""
        draft = _in_registers(draft)
        found = list(_serials(draft))
        if not found:
            raise NotUnderstood("no serial loop of one thread")
        loops = Loops(draft, scans=True)
        body: Any = draft.form.kernel.body
        for one in found:
            lane = draft.printer().expression(one.thread)
            team = ThreadGroup(draft, 32, lane)
            sharing = Sharing(draft, loops, team, one.chosen, one.statement.yes)
            inner = tuple(sharing.shared(whole_kernel=False))
            inner = changed(inner, partial(_first_thread, one.same))
            if one.stored:
                inner = (Raw("__syncwarp();"), *inner)
            test: Any = RawExpression(f"{lane} < 32")
            warp = s.If(test, inner, where=one.statement.where)
            body = swapped(body, one.statement, warp)
        x = draft.launch_expression("blockDim.x")
        flat = [draft.launch_expression(f"blockDim.{a}").equals(1) for a in "yz"]
        splits = [y for one in found for y in one.chosen.values()]
        guards = (x >= 32, *flat, *limits(draft, splits, 32))
        says = "Parallelized the serial section of one thread over its warp."
        return draft.with_body(body).requiring(*guards).stepped(Step(self.name, setting, says))


def _first_thread(same: frozenset[str], x: Any) -> Any:
    if x == _THREAD or (isinstance(x, s.Name) and x.text in same):
        return s.Number("0", type="int")
    return x


def _serials(draft: Draft) -> Iterator[_Serial]:
    """Those that are proved."""
    sizes = [draft.value(f"blockDim.{axis}") for axis in "yz"]
    if sizes != [1, 1] or any(w.block.x < 32 for w in draft.workloads):
        return
    loops = Loops(draft, scans=True)
    same = frozenset(_thread_names(draft.form.kernel.body))
    for body in _bodies(draft.form.kernel.body):
        reached, stored = body is draft.form.kernel.body, False
        for x in body:
            if is_barrier(x):
                reached, stored = not _is_divergent(draft, x), False
                continue
            if reached and isinstance(x, s.If) and not x.no:
                thread = _first(x.condition, same)
                chosen = _chosen(draft, loops, x) if thread is not None else {}
                if chosen and _is_closed(draft, x, same):
                    yield _Serial(x, thread, same, chosen, stored)
            stored |= writes_memory((x,), draft.form)
            if any(isinstance(y, s.Leave | s.Give) for y in s.below(x)):
                reached = False


def _in_registers(draft: Draft) -> Draft:
    """With registers for single shared variables that one thread changes in loops alone."""
    body = draft.form.kernel.body
    shared = {
        x.name: x for x in s.below(body)
        if isinstance(x, s.Declare) and x.shared and not x.extents and not x.pointer
        and x.type in WORDS
    }  # fmt: skip
    pointed = {root_of(x.operand) for x in s.below(body) if isinstance(x, s.Unary)}
    pointed |= {root_of(x.target) for x in s.below(body) if isinstance(x, s.Refer)}
    same, made = frozenset(_thread_names(body)), body
    for x in s.below(body) if shared else ():
        if not isinstance(x, s.If) or x.no or _first(x.condition, same) is None:
            continue
        loops = [y for y in s.below(x.yes) if isinstance(y, s.For | s.Do)]
        names = sorted({root_of(t) or "" for t in targets_in(tuple(loops))} & set(shared))
        if calls_in(x.yes) - PURE or any(isinstance(y, s.Leave | s.Give) for y in s.below(x.yes)):
            continue
        inner: Any = x.yes
        for name in (n for n in names if n not in pointed and "#" not in n):
            own = draft.fresh_name(f"{name}_own")
            inner = (
                s.Declare(shared[name].type, own, value=s.Name(name)),
                *renamed(inner, {name: s.Name(own, type=shared[name].type)}),
                s.Evaluate(s.Assign(s.Name(name), "", s.Name(own))),
            )
            inner = _begun(inner, own)
        if inner is not x.yes:
            made = swapped(made, x, replace(x, yes=inner))
    return draft if made is body else draft.with_body(made)


def _begun(body: tuple[Any, ...], own: str) -> tuple[Any, ...]:
    """Without a first value that is never looked at."""
    declare, *rest = body
    for at, x in enumerate(rest):
        match x:
            case s.Evaluate(s.Assign(s.Name(text), "", value)) if text == own:
                if own in names_in(value):
                    return body
                first = s.Declare(declare.type, own, value=value)
                return (*rest[:at], first, *rest[at + 1 :])
        if own in names_in(x):
            return body
    return body


def _chosen(draft: Draft, loops: Loops, statement: s.If) -> Mapping[int, Split]:
    trips = {o.where: o.trips.high for o in draft.facts.loops}

    def wanted(loop: s.For) -> bool:
        most = trips.get(loop.where, 0)
        return most is None or most >= _LEAST_TRIPS

    return choose(loops, statement.yes, wanted)


def _is_closed(draft: Draft, statement: s.If, same: frozenset[str]) -> bool:
    """Whether the first thread's own values stay inside."""
    inside, body = declared_in(statement.yes), draft.form.kernel.body
    variables = {v.name: v for v in draft.facts.variables}
    own = [x for x in s.below(body) if isinstance(x, s.Declare) and not x.shared]
    private = {x.name for x in own if not x.extents}
    private |= {p.name for p in draft.form.kernel.parameters if not p.is_pointer}
    arrays = {x.name for x in own if x.extents}
    arrays |= {x.name for x in s.below(body) if isinstance(x, s.Refer)}
    written = {root_of(t) for t in targets_in(statement.yes)} & private
    for name in names_in(statement.yes) - inside - same:
        if name in arrays:
            return False
        if name in written:
            mentions = [_count(part, name) for part in (body, statement.yes)]
            if mentions[0] != mentions[1]:
                return False
            continue
        declared = next(
            (x for x in s.below(body) if isinstance(x, s.Declare) and x.name == name), None
        )
        if declared is None or name not in private:
            continue
        known = variables.get(name)
        if known is None or varies_in_block(known.depends):
            return False
    return not any(
        isinstance(x, s.Member) and x.base == s.Name("threadIdx") and x.name != "x"
        for x in s.below(statement.yes)
    )


def _count(node: Any, name: str) -> int:
    return sum(isinstance(x, s.Name) and x.text == name for x in s.below(node))


def _thread_names(body: Sequence[Any]) -> Iterator[str]:
    """Variables that hold `threadIdx.x` and nothing else."""
    changed_ones = {root_of(t) for t in targets_in(tuple(body))}
    for x in s.below(tuple(body)):
        if isinstance(x, s.Declare) and not x.pointer and not x.extents and not x.shared:
            value = x.value
            while isinstance(value, s.Cast):
                value = value.operand
            if value == _THREAD and x.name not in changed_ones:
                yield x.name


def _first(condition: Any, same: frozenset[str]) -> Any:
    """The thread's number in `threadIdx.x == 0` and `!threadIdx.x`; None for anything else."""
    match condition:
        case s.Binary("==", thread, s.Number("0")) | s.Binary("==", s.Number("0"), thread):
            pass
        case s.Unary("!", thread):
            pass
        case _:
            return None
    named = isinstance(thread, s.Name) and thread.text in same
    return thread if thread == _THREAD or named else None


def _bodies(body: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Lists of statements, at any depth."""
    yield body
    for x in body:
        for part in ("yes", "no", "body"):
            inner = getattr(x, part, ())
            if inner:
                yield from _bodies(inner)


def _is_divergent(draft: Draft, x: Any) -> bool:
    found = [b for b in draft.facts.barriers if b.where == x.where]
    return not found or any(b.is_divergent for b in found)
