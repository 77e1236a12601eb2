"""Barriers that nothing needs, left out.

A barrier keeps what threads of a block did before it apart from what others do after it. Where no
place in memory is touched on both sides by different threads, once with a write, it keeps nothing
apart. The sides reach to the barriers around it, as the text says; what stands in branches and
inner loops counts as reached. Two accesses are surely of the same thread where both are at one
place for each thread of a block in a row: the same offset, in which `threadIdx.x` counts by at
least an element and nothing else differs among threads or moves with a loop. Anything that is not
followed, of which addresses are not known, or that leaves a loop early, keeps its barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in, has_volatile, reads_memory
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.polynomials import Symbol
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.trees import is_barrier

Body = tuple[Any, ...]


class Barriers:
    """Fewer `__syncthreads()`."""

    name = "barriers"
    title = "redundant barriers removed"
    family: Family = "other"
    relieves = frozenset({"stall_barrier", "low_parallelism", "stall_membar"})

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All that are proved needless."""
        body = draft.form.kernel.body
        return ({"which": "needless"},) if _Proof(draft).without(body) != body else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One after the other: what one kept apart, the next may have to."""
        before = draft.form.kernel.body
        after = _Proof(draft).without(before)
        count = sum(map(is_barrier, s.below(before))) - sum(map(is_barrier, s.below(after)))
        if not count:
            raise NotUnderstood("no barrier proved redundant")
        what = "a barrier" if count == 1 else f"{count} barriers"
        says = f"Removed {what}: no two threads access one address on both sides."
        return draft.with_body(after).stepped(Step(self.name, setting, says))


class _Proof:
    """What stands on the two sides of a barrier, and whether it may be one side."""

    def __init__(self, draft: Draft) -> None:
        facts = draft.facts
        if facts.unmodelled or facts.calls:
            raise NotUnderstood(f"what {(*facts.unmodelled, *facts.calls)[0]} does")
        if any(a.space == "unknown" or a.where is None for a in facts.accesses):
            raise NotUnderstood("a pointer of unknown target")
        functions = (draft.form.kernel, *draft.form.functions)
        if has_volatile(functions) or any(x.startswith("__shfl") for x in calls_in(functions)):
            raise NotUnderstood("volatile memory, or warp collectives")
        if any(b.function != "__syncthreads" for b in facts.barriers):
            raise NotUnderstood("a barrier other than __syncthreads")
        unsized = [x for x in s.below(draft.form.kernel.body) if getattr(x, "unsized", False)]
        if len(unsized) > 1:
            raise NotUnderstood("several names for the launch's shared memory")
        self._facts = facts
        self._in_a_row = draft.launch.has_flat_block
        self._allocations = Allocations(draft)

    def without(self, body: Body) -> Body:
        """A kernel's body without redundant barriers."""
        while True:
            fewer = self._one_fewer(body)
            if fewer is None:
                return body
            body = fewer

    def _one_fewer(self, body: Body) -> Body | None:
        for at, node in enumerate(body):
            before, after = _until(body[:at][::-1]), _until(body[at + 1 :])
            if is_barrier(node) and self._apart(before, after):
                return (*body[:at], *body[at + 1 :])
            if isinstance(node, s.For):
                inner = self._one_fewer_in(node, before, after)
                if inner is not None:
                    return (*body[:at], inner, *body[at + 1 :])
        return None

    def _one_fewer_in(self, loop: s.For, before: Body, after: Body) -> s.For | None:
        """Of a loop's own body, which follows on itself and on what is around the loop."""
        heads = [loop.condition, *loop.step, *(getattr(x, "value", None) for x in loop.first)]
        if any(isinstance(x, s.Leave) for x in s.below(loop.body)) or any(
            reads_memory(h) for h in heads if h is not None
        ):
            return None
        for at, node in enumerate(loop.body):
            if not is_barrier(node):
                continue
            left, right = loop.body[:at], loop.body[at + 1 :]
            earlier, later = _until(left[::-1]), _until(right)
            if not any(map(is_barrier, left)):
                earlier = (*earlier, *_until(right[::-1]), *before)
            if not any(map(is_barrier, right)):
                later = (*later, *_until(left), *after)
            if self._apart(earlier, later):
                return s.For(
                    loop.first, loop.condition, loop.step, (*left, *right), where=loop.where
                )
        return None

    def _apart(self, before: Sequence[Any], after: Sequence[Any]) -> bool:
        """Whether no two threads touch one place, once with a write, on the two sides."""
        first, second = list(self._within(before)), list(self._within(after))
        return not any(self._meet(a, b) for a in first for b in second)

    def _within(self, body: Sequence[Any]) -> Iterator[Access]:
        places = [x.where for x in body]
        if None in places:
            raise NotUnderstood("the statement was not found")
        for a in self._facts.accesses:
            assert a.where is not None
            if a.space != "local" and any(p.start <= a.where.start < p.end for p in places):
                yield a

    def _meet(self, a: Access, b: Access) -> bool:
        if a.kind == b.kind and a.kind in ("read", "atomic"):
            return False
        if a.array != b.array:
            return self._may_be_one(a, b)
        return not self._is_own(a, b)

    def _may_be_one(self, a: Access, b: Access) -> bool:
        """Whether two names may stand for the same memory."""
        if "shared" in (a.space, b.space):
            return False
        is_module = "module" in (a.space, b.space)
        return is_module or not self._allocations.apart(a.array, b.array)

    def _is_own(self, a: Access, b: Access) -> bool:
        """Whether each thread of a block has a place of its own, the same in both."""
        offset, size = a.offset_bytes, a.element_bytes
        if offset is None or offset != b.offset_bytes or not size or size != b.element_bytes:
            return False
        parts = offset.linear_in(Symbol("threadIdx.x"))
        if parts is None or not self._in_a_row or a.member != b.member:
            return False
        step = parts[0].constant
        names = [x.name if isinstance(x, Symbol) else "#" for x in parts[1].atoms()]
        still = not any("#" in name or name.startswith("threadIdx") for name in names)
        return step is not None and abs(step) >= size and still


def _until(body: Sequence[Any]) -> Body:
    """What stands before the first barrier of a sequence."""
    end = next((n for n, x in enumerate(body) if is_barrier(x)), len(body))
    return tuple(body[:end])
