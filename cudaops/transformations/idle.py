"""Statements that may run for an item that is not there, whose guard does not hold.

They only compute with variables that are declared under that guard, so that nobody reads what they
make of such an item, and they end: arithmetic that cannot fail, elements of the thread's own arrays
that exist, functions that do no more. What they read of memory is the same for all items, and the
first item, which is there, reads it in any case. A guard in a loop costs a branch for each item and
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import root_of
from cudaops.program.analysis.library_calls import MEMORY_READS, PURE
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.functions import FLOATING, computing
from cudaops.transformations.loops import counted, literal


class Idle:
    """What may run without one guard."""

    def __init__(
        self, draft: Draft, own: Collection[str], declares: Mapping[str, s.Declare],
        depends: Callable[[Any], bool],
    ) -> None:  # fmt: skip
        """`own`: variables that are declared under the guard. `declares`: all of the kernel's.
        `depends`: whether something depends on the item."""
        self._form, self._own, self._declares = draft.form, own, declares
        self._depends = depends
        self._functions = (PURE - MEMORY_READS) | computing(draft)

    def may_run(self, node: Any, loops: Sequence[s.For], *, is_reached: bool = True) -> bool:
        """Whether it may; `loops`: those around it that the items there are run in any case.
        `is_reached`: whether the first item comes here too, whatever it computes."""
        match node:
            case s.Index():
                return self._exists(node, loops) or (is_reached and self._is_read_by_all(node))
            case s.For() | s.Do() | s.Unmodelled() | s.Opaque() | s.Refer() | s.Unary("*" | "&"):
                return False
            case s.Binary("/" | "%", type=kind) | s.Assign(_, "/" | "%", type=kind):
                if kind not in FLOATING:
                    return False
            case s.Call(function) if function not in self._functions:
                return False
            case s.Declare(shared=True):
                return False
        if isinstance(node, s.Assign | s.Step):
            # Through a pointer it would write memory.
            mine = root_of(node.target) in self._own
            if not mine or not self.may_run(node.target, loops, is_reached=False):
                return False
        branches = isinstance(node, s.If | s.Choice | s.Switch) or (
            isinstance(node, s.Binary) and node.operator in ("&&", "||")
        )
        first, *rest = s.children(node) or [None]
        within = is_reached and not branches
        return (first is None or self.may_run(first, loops, is_reached=is_reached)) and all(
            self.may_run(x, loops, is_reached=within) for x in rest
        )

    def _is_read_by_all(self, node: s.Index) -> bool:
        """Whether the first item reads the same of memory."""
        return not self._depends(node) and all(
            isinstance(x, s.Index | s.Name | s.Number | s.Member | s.Cast)
            or (isinstance(x, s.Binary) and x.operator in ("+", "-", "*"))
            for x in s.below(node)
        )

    def _exists(self, node: s.Index, loops: Sequence[s.For]) -> bool:
        """Whether it is an element of an array of the thread's own, whatever the item is."""
        indices: list[Any] = []
        place: Any = node
        while isinstance(place, s.Index):
            indices.insert(0, place.index)
            place = place.base
        array = self._declares.get(place.text) if isinstance(place, s.Name) else None
        if array is None or array.pointer or array.shared or array.unsized:
            return False
        if len(indices) != len(array.extents):
            return False
        pairs = zip(indices, array.extents, strict=True)
        return all(self._is_below(index, extent, loops) for index, extent in pairs)

    def _is_below(self, index: Any, extent: Any, loops: Sequence[s.For]) -> bool:
        most = literal(extent)
        if (known := literal(index)) is not None:
            return most is not None and 0 <= known < most
        for node in loops if isinstance(index, s.Name) else ():
            try:
                loop = counted(node, self._form)
            except NotUnderstood:
                continue
            start, bound = literal(loop.start), literal(loop.bound)
            if loop.variable != index.text or loop.operator != "<" or start is None or start < 0:
                continue
            # An extent is a constant: another expression like it has its value.
            if loop.bound == extent or (bound is not None and most is not None and bound <= most):
                return True
        return False
