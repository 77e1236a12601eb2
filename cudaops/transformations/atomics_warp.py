"""Atomics of all lanes of a warp on one address: their values put together first, then one atomic.

Thirty-two atomics on one address wait for each other; in shared memory those of floats are loops
of compare and swap besides. Where all threads of the block come by a statement together and its
address is the same for all, the lanes' values meet by shuffles and the first lane brings them. A
condition right around the statement becomes a choice between the value and one that changes
nothing.

Proved from the variables in conditions, loops and address, none of which ever holds what differs
among threads; blocks of whole warps are required of the launch. What threads find at the address
before the next barrier was never certain, and is not now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_return, is_pure
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomic_sites import OPERATIONS, Operation
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.shared_memory import threads_of, whole_warps
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import swapped
from cudaops.transformations.uniformity import Uniformity

_WHOLE = "0xffffffffu"


class AtomicsWarp:
    """One atomic a warp."""

    name = "atomics_warp"
    title = "warp-aggregated atomics"
    family: Family = "reduction"
    relieves = frozenset({
        "atomic_contention", "shared_throughput", "stall_short_scoreboard", "stall_mio_throttle",
        "stall_long_scoreboard", "stall_barrier", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All of them at once; and without sums of floats, whose order may matter too much."""
        sites = _sites(draft)[1]
        exact = [x for x in sites if x.is_exact]
        if exact and len(exact) < len(sites):
            return ({"sums": "all"}, {"sums": "exact"})
        return ({"sums": "all"},) if sites else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """At every place where lanes meet."""
        body, sites = _sites(draft)
        if setting["sums"] == "exact":
            sites = tuple(x for x in sites if x.is_exact)
        if not sites:
            raise NotUnderstood("no atomic on a warp-uniform address")
        number, _ = threads_of(draft)
        begins: tuple[Raw, ...] = ()
        if number != "threadIdx.x":
            begins = (Raw(f"const unsigned {draft.fresh_name('thread')} = {number};"),)
            number = draft.fresh_name("thread")
        result: Any = body
        for site in sites:
            result = swapped(result, site.outer, site.text(draft, number))
        kinds = " and ".join(dict.fromkeys(f"`{site.call.function}`" for site in sites))
        step = Step(
            self.name, setting,
            f"Reduced the values of a warp before one lane's {kinds}.",
        )  # fmt: skip
        guard = whole_warps(draft)
        return draft.with_body((*begins, *result)).requiring(guard).stepped(step)


@dataclass(frozen=True)
class _Site:
    """An atomic on one address, with the condition around it."""

    outer: Any
    """The statement that is replaced."""
    call: s.Call
    operation: Operation
    type: str
    condition: s.Expression | None

    @property
    def is_exact(self) -> bool:
        """Whether the result is the same to the bit in any order."""
        return self.type not in ("float", "double")

    def text(self, draft: Draft, number: str) -> s.Block:
        """In its place."""
        address, value = self.call.arguments
        part, lanes = draft.fresh_name("part"), draft.fresh_name("lanes")
        wraps = self.type == "int" and self.operation.function == "atomicAdd"
        kind = "unsigned" if wraps else self.type
        nothing = self.operation.identity(self.type)
        if wraps and getattr(value, "type", "") not in ("int", "unsigned", "bool"):
            value = s.Cast("int", value)
        if self.condition is not None:
            value = s.Choice(self.condition, s.Cast(kind, value), s.Cast(kind, s.Number(nothing)))
        shuffled = RawExpression(f"__shfl_down_sync({_WHOLE}, {part}, {lanes})").text
        meet = self.operation.combine.format(a=part, b=shuffled)
        first = f"{number} % 32 == 0"
        if self.condition is not None:
            first = f"{first} && {part} != {nothing}"
        called = s.Call(self.call.function, (address, s.Name(part)), where=self.call.where)
        return s.Block(
            (
                s.Declare(kind, part, value=value),
                Raw(f"for (int {lanes} = 16; {lanes} > 0; {lanes} /= 2) {meet};"),  # type: ignore[arg-type]
                s.If(RawExpression(first), (s.Evaluate(called),)),  # type: ignore[arg-type]
            ),
            where=self.outer.where,
        )


def _sites(draft: Draft) -> tuple[Any, tuple[_Site, ...]]:
    """The body, and what can be put together in it."""
    body: Any = draft.form.kernel.body
    facts = draft.facts
    if facts.unmodelled:
        raise NotUnderstood(f"what {facts.unmodelled[0]} does")
    if has_return(body):
        raise NotUnderstood("an early return")
    if any(w.block.x * w.block.y * w.block.z % 32 for w in draft.workloads):
        raise NotUnderstood("blocks with a part of a warp")
    arrays = [x.name for x in s.below(body) if isinstance(x, s.Declare) and x.shared]
    uniformity = Uniformity(facts, arrays)
    return body, tuple(_found(body, uniformity))


def _found(body: Any, uniformity: Uniformity) -> Iterator[_Site]:
    taken: set[int] = set()
    condition: s.Expression | None
    for node in s.below(body):
        match node:
            case s.If(condition, (s.Evaluate(s.Call() as call) as inner,), ()):
                if uniformity.same(condition) or not is_pure(condition):
                    continue
            case s.Evaluate(s.Call() as call):
                condition, inner = None, node
            case _:
                continue
        operation = OPERATIONS.get(call.function)
        if operation is None or len(call.arguments) != 2 or id(inner) in taken:
            continue
        address, value = call.arguments
        kind = getattr(address, "type", "").removesuffix("*")
        fine = operation.takes(kind) and uniformity.same_address(address)
        fine = fine and (condition is None or is_pure(value))
        if fine and uniformity.together(body, node):
            taken.add(id(inner))
            yield _Site(node, call, operation, kind, condition)
