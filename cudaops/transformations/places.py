"""Where a thread stands in the grid, as a kernel's text says it, and how far the grid reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, written_names
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number, symbol
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import changed, renamed

AXES = "xyz"


def builtin(node: Any) -> str:
    """`threadIdx.x` for the expression that says so; empty for any other."""
    match node:
        case s.Member(s.Name(root), axis) if root in s.BUILTINS:
            return f"{root}.{axis}"
    return ""


def builtins_in(node: Any) -> set[str]:
    """All that it says of the launch: `blockIdx.x`; `blockIdx` where one is used whole."""
    found = {b for x in s.below(node) if (b := builtin(x))}
    members = sum(1 for x in s.below(node) if builtin(x))
    whole = [x.text for x in s.below(node) if isinstance(x, s.Name) and x.text in s.BUILTINS]
    return found | (set(whole) if len(whole) != members else set())


def through_casts(node: Any) -> Any:
    """The expression below conversions."""
    while isinstance(node, s.Cast):
        node = node.operand
    return node


@dataclass(frozen=True)
class GlobalThreadIndex:
    """How a kernel spells `blockIdx.x * blockDim.x + threadIdx.x` on one axis."""

    axis: str
    aliases: Mapping[str, str]
    """Variables that stand for one of the launch's own numbers, and never change."""
    width: int | None
    """blockDim of the axis, where every launch agrees in it: a literal may say it."""

    @classmethod
    def of(cls, draft: Draft, body: Sequence[s.Statement], axis: str) -> GlobalThreadIndex:
        """As this body spells them."""
        changing = written_names(tuple(body), draft.form)
        found = {}
        for node in s.below(tuple(body)) if changing is not None else ():
            if (
                isinstance(node, s.Declare)
                and node.name not in (changing or ())
                and not node.extents
            ):
                said = builtin(through_casts(node.value))
                if said and node.type in ("int", "unsigned", "long long", "unsigned long long"):
                    found[node.name] = said
        width = draft.value(f"blockDim.{axis}")
        return cls(axis, found, width if isinstance(width, int) else None)

    def _says(self, node: Any) -> str:
        node = through_casts(node)
        if isinstance(node, s.Name):
            return self.aliases.get(node.text, "")
        if isinstance(node, s.Number) and self.width is not None:
            return f"blockDim.{self.axis}" if s.integer_of(node) == self.width else ""
        return builtin(node)

    def is_place(self, node: Any) -> bool:
        """Whether it is the thread's number in the grid, on this axis."""
        match node:
            case s.Binary("+", left, right):
                for product, thread in ((left, right), (right, left)):
                    product = through_casts(product)
                    if self._says(thread) != f"threadIdx.{self.axis}":
                        continue
                    if isinstance(product, s.Binary) and product.operator == "*":
                        sides = {self._says(product.left), self._says(product.right)}
                        if sides == {f"blockIdx.{self.axis}", f"blockDim.{self.axis}"}:
                            return True
        return False

    def is_total(self, node: Any) -> bool:
        """Whether it is the number of the grid's threads, on this axis."""
        if not isinstance(node, s.Binary) or node.operator != "*":
            return False
        sides = {self._says(node.left), self._says(node.right)}
        said = builtins_in(node) | {self.aliases.get(n, "") for n in names_in(node)}
        return (
            sides == {f"gridDim.{self.axis}", f"blockDim.{self.axis}"}
            and f"blockDim.{self.axis}" in said
        )

    def literal_in(self, body: Any) -> bool:
        """Whether a place is said with a number for the block's width."""
        for node in s.below(body):
            if self.is_place(node) and f"blockDim.{self.axis}" not in builtins_in(node):
                names = {x.text for x in s.below(node) if isinstance(x, s.Name)}
                if not any(self.aliases.get(n) == f"blockDim.{self.axis}" for n in names):
                    return True
        return False

    def replaced(self, body: Any, new: Callable[[Any], Any], *, totals: bool = False) -> Any:
        """The body with `new(place)` for every place. Raises NotUnderstood where the thread's
        numbers on this axis are used in any other way, but for the number of all threads where
        `totals` are allowed."""
        held: dict[str, Any] = {}

        def hold(node: Any) -> Any:
            if not self.is_place(node) and not (totals and self.is_total(node)):
                return node
            held[f"@{len(held)}"] = node
            return s.Name(f"@{len(held) - 1}")

        marked = _without_unused(
            changed(body, hold),
            {n for n, said in self.aliases.items() if said.endswith(f".{self.axis}")},
        )
        for said in builtins_in(marked):
            if said.endswith(f".{self.axis}") or said in s.BUILTINS:
                raise NotUnderstood(f"{said} other than in a thread's place")
        kept = {x.text for x in s.below(tuple(held.values())) if isinstance(x, s.Name)}
        declared = {x.name for x in s.below(marked) if isinstance(x, s.Declare)}
        inlined = {n: said for n, said in self.aliases.items() if n in kept - declared}

        def release(node: Any) -> Any:
            if not isinstance(node, s.Name) or node.text not in held:
                return node
            found = renamed(held[node.text], {n: _builtin(x) for n, x in inlined.items()})
            return new(found) if self.is_place(held[node.text]) else found

        return changed(marked, release)


def _builtin(said: str) -> s.Expression:
    root, _, axis = said.partition(".")
    return s.Member(s.Name(root), axis, type="unsigned")


def _without_unused(body: Any, names: set[str]) -> Any:
    """Without declarations of those of these variables that nothing uses."""
    used = {x.text for x in s.below(body) if isinstance(x, s.Name)}
    gone = names - used
    return (
        changed(body, lambda x: () if isinstance(x, s.Declare) and x.name in gone else x)
        if gone
        else body
    )


@dataclass(frozen=True)
class ThreadBound:
    """The kernel's own bound on what it does along one axis."""

    limit: LaunchExpression
    """Threads from this place on do nothing."""
    covered: LaunchExpression
    """The condition that the author's threads reach the limit."""


def thread_bound(draft: Draft, axis: str) -> ThreadBound | None:
    """The bound that everything a kernel does with memory is under; None where there is none."""
    try:
        facts = draft.facts
    except NotUnderstood:  # a kernel that is too large to follow
        return None
    accesses = [a for a in facts.accesses if a.space != "local"]
    if facts.unmodelled or facts.calls or not accesses:
        return None
    width = draft.value(f"blockDim.{axis}")
    found: Polynomial | None = None
    for access in accesses:
        limits = list(_limits(access, axis, width))
        if found is None and limits:
            found = limits[0]
        if found is None or found not in limits:
            return None
    assert found is not None
    scalars = {p.name for p in draft.form.kernel.parameters if not p.is_pointer}
    if any(not isinstance(a, Symbol) or a.name not in scalars for a in found.atoms()):
        return None
    written = written_names(draft.form.kernel.body, draft.form)
    if written is None or any(isinstance(a, Symbol) and a.name in written for a in found.atoms()):
        return None
    limit = found.launch_expression(draft.launch_expression)
    return ThreadBound(limit, threads_along(draft, axis) >= limit)


def threads_along(draft: Draft, axis: str) -> LaunchExpression:
    """How many threads the grid has on an axis."""
    blocks, threads = (draft.launch_expression(f"{x}.{axis}") for x in ("gridDim", "blockDim"))
    return blocks * threads


def covering_bound(draft: Draft, axis: str) -> ThreadBound | None:
    """`thread_bound`, where every captured launch covers it."""
    found = thread_bound(draft, axis)
    if found is None:
        return None
    kept = draft.requiring(found.covered).resolved
    return found if all(x is not None for x in kept) else None


def _limits(access: Access, axis: str, width: int | float | None) -> Iterator[Polynomial]:
    """Bounds on the place that an access is guarded by."""
    block, thread = Symbol(f"blockIdx.{axis}"), Symbol(f"threadIdx.{axis}")
    extent = symbol(f"blockDim.{axis}")
    for guard in access.guards:
        if guard.below is None:
            continue
        by_thread, by_block = guard.below.linear_in(thread), guard.below.linear_in(block)
        if by_thread is None or by_block is None or by_thread[0] != number(1):
            continue
        if by_block[0] not in (extent, number(int(width)) if width else extent):
            continue
        rest = by_thread[1].linear_in(block)
        if rest is not None:
            yield -rest[1]
