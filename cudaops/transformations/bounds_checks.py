"""Bounds checks that every thread of the launch passes, left out behind a condition of the launch.

`if (row < n)` costs a branch for each output and turn of a loop that several outputs share, and
keeps the compiler from moving loads. Where the last thread of the last block passes too, because
the sizes divide, the launch can say so: `gridDim.x * blockDim.x <= n`, in terms of what the draft
makes of the grid. Early ways out, `if (i >= n) return;`, go in the same manner.

Integers alone; what is compared must never be negative and be known to its last thread from the
text (`ranges`). A condition that only some threads pass keeps what is left of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.launch_expression import below
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.computed_once import with_values
from cudaops.transformations.conditions import in_place, names_of, simplified
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.ranges import Proof, Ranges, in_order


class BoundsChecks:
    """Conditions that hold for all threads of a launch are not asked."""

    name = "bounds_checks"
    title = "bounds checks removed where sizes divide"
    family: Family = "algorithm"
    relieves = frozenset({
        "issue_slots", "stall_branch", "divergence", "integer_pipe", "fma_pipe", "fp64_pipe",
        "sfu_pipe", "stall_wait", "stall_long_scoreboard", "l1_load_throughput", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is such a check."""
        return ({},) if _Checks(draft).decided else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them."""
        edited = within_bounds(draft)
        if edited is draft:
            raise NotUnderstood("no bounds check that always holds")
        return edited.stepped(
            Step(self.name, setting, "Removed bounds checks: every thread is within bounds.")
        )


def within_bounds(draft: Draft) -> Draft:
    """Without the bounds checks that every thread passes; the draft itself where there are none."""
    found = _Checks(draft)
    if not found.decided:
        return draft
    kernel = draft.form.kernel
    often = names_of(kernel)

    def value(node: Any, done: Any) -> Any:
        known = found.decided.get(id(node))
        if known is None:
            return done
        if isinstance(known, bool):
            taken = done.yes if known else done.no
            return in_place(taken, often) if isinstance(node, s.If) else taken
        return replace(done, condition=known)

    return draft.with_body(with_values(kernel.body, {}, value)).requiring(*in_order(found.needs))


class _Checks:
    """What is known of a kernel's conditions."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._ranges = draft, Ranges(draft)
        self.needs: list[Proof] = []
        """What that asks of a launch."""
        self.decided: dict[int, Any] = {}
        """By the `if` or choice that asks: its truth, or what is left of its condition."""
        for node in s.below(draft.form.kernel.body):
            if not isinstance(node, s.If | s.Choice):
                continue
            found = simplified(node.condition, self._known)
            if isinstance(node, s.Choice) and isinstance(found, bool):
                taken = node.yes if found else node.no
                if getattr(taken, "type", "") != node.type:
                    continue
            if found is not node.condition:
                self.decided[id(node)] = found

    def _known(self, node: Any) -> Any:
        """The truth of a comparison of integers, or the node itself."""
        match node:
            case s.Binary("<" | "<=" | ">" | ">=" as order, left, right):
                if {getattr(x, "type", "") for x in (left, right)} <= INTEGERS:
                    return self._compared(node, left, order, right)
        return node

    def _compared(self, node: s.Binary, left: Any, order: str, right: Any) -> Any:
        for x, says, n in ((left, order, right), (right, s.MIRRORED[order], left)):
            if s.integer_of(n) == 0 and says in (">=", "<"):
                proof = self._ranges.nonnegative(x, at=node)
                truth = says == ">="
            else:
                proof = self._below(x, n, at=node, closed=says in ("<=", ">"))
                truth = says in ("<", "<=")
            if proof is not None and self._draft.holds(*in_order([proof])):
                self.needs.append(proof)
                return truth
        return node

    def _below(self, x: Any, n: Any, *, at: Any, closed: bool) -> Proof | None:
        """That a thread's number is below one of the launch, or the same where that is `closed`."""
        size = self._ranges.launched(n)
        if size is None or self._ranges.launched(x) is not None:
            return None
        low, most = self._ranges.nonnegative(x, at=at), self._ranges.upper(x, at=at)
        if low is None or most is None:
            return None
        last = most[0] <= size if closed else below(most[0], size)
        return (*low, *most[1], last)
