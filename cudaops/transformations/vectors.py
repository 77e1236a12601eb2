"""CUDA's vector types, and when an index is that of a whole vector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cudaops.domain.workload import PointerArgument
from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import Polynomial, Symbol
from cudaops.program.launch_expression import LaunchExpression, Variable, aligned
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.loops import counted
from cudaops.transformations.trees import declared_in
from cudaops.transformations.variables import Variables

VECTORS = {
    "float": ("float", 4), "int": ("int", 4), "unsigned": ("uint", 4), "double": ("double", 8),
    "char": ("char", 1), "signed char": ("char", 1), "unsigned char": ("uchar", 1),
    "short": ("short", 2), "unsigned short": ("ushort", 2), "long long": ("longlong", 8),
    "unsigned long long": ("ulonglong", 8),
}  # fmt: skip
"""Type to the stem of its vector types, and its bytes."""
MOST_BYTES = 16
"""Of one access: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#device-memory-accesses"""


def reinterpreted(kind: str, place: s.Expression) -> Any:
    """`*reinterpret_cast<kind>(&place)`."""
    return s.Unary("*", s.Call(f"reinterpret_cast<{kind}>", (s.Unary("&", place),)))


class Alignment:
    """Of a draft's arrays and of indices into them, with the conditions that a plan has to ask."""

    def __init__(self, draft: Draft, variables: Variables) -> None:
        self._draft = draft
        self._variables = variables

    def whole_vectors(self, array: str, unit: int) -> Iterator[LaunchExpression]:
        """The condition under which an array begins at a whole vector of so many bytes; scratch
        memory does. Raises NotUnderstood where a captured launch has it begin elsewhere."""
        for workload in self._draft.workloads:
            argument = next((a for a in workload.arguments if a.name == array), None)
            if not isinstance(argument, PointerArgument) or argument.offset_bytes % unit:
                raise NotUnderstood(f"{array} is not aligned to a vector")
        said = self._draft.launch_expression(array)
        if said not in [Variable(name) for name, _ in self._draft.scratch]:
            yield aligned(said, unit)

    def of(self, index: Polynomial, width: int) -> Iterator[LaunchExpression]:
        """Conditions under which an index is a multiple of a vector's elements. Raises
        NotUnderstood where it need not be one."""
        for monomial, coefficient in index.terms:
            if coefficient % width == 0:
                continue
            for atom in monomial:
                even = self._even(atom.name, width) if isinstance(atom, Symbol) else None
                if even is not None:
                    yield even
                    break
                counts = self._counts(atom)
                for part in counts:
                    yield from self.of(part, width)
                if counts:
                    break
            else:
                raise NotUnderstood("an index that may not be a multiple of the vector")

    def _counts(self, atom: Any) -> tuple[Polynomial, ...]:
        """Where loops begin whose own variable this is, and by what they step; nothing where one of
        them cannot be told."""
        found: list[Polynomial] = []
        for node in s.below(self._draft.form.kernel.body) if isinstance(atom, Symbol) else ():
            if not isinstance(node, s.For) or atom.name not in declared_in(node.first):
                continue
            try:
                loop = counted(node, self._draft.form)
            except NotUnderstood:
                return ()
            parts = [self._variables.polynomial(x) for x in (loop.start, loop.step)]
            if any(x is None for x in parts):
                return ()
            found += [x for x in parts if x is not None]
        return tuple(found)

    def _even(self, name: str, width: int) -> LaunchExpression | None:
        """That a parameter or extent is a multiple, where it is one in every captured launch."""
        root = name.partition(".")[0]
        is_parameter = any(p.name == name for p in self._draft.form.kernel.parameters)
        if root not in ("blockDim", "gridDim") and not is_parameter:
            return None
        if self._variables.is_changed(name):
            return None
        even = (self._draft.launch_expression(name) % width).equals(0)
        return None if None in self._draft.requiring(even).resolved else even
