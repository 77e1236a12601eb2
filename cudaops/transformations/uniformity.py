"""What is the same for all threads of a block, and where all of them come by together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, has_early_exit, names_in
from cudaops.program.analysis.facts import Depends, KernelFacts, varies_in_block
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.loops import Counted, counted


class Uniformity:
    """Of a kernel's expressions, by the variables in them."""

    def __init__(
        self, facts: KernelFacts, arrays: Sequence[str] = (), *, form: s.KernelForm | None = None,
        constant: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`arrays`: names that may stand for their address, which is the same for a block.
        `constant`: pointers of the kernel of `form` to memory that nothing writes while it runs:
        all threads load the same from the same place."""
        self._loops = {loop.symbol.name: loop.depends for loop in facts.loops}
        self._variables = {v.name: self._with_loops(v.depends) for v in facts.variables}
        self._parameters = {p.name for p in facts.parameters}
        self._arrays = frozenset(arrays)
        self._constant = frozenset(constant)
        self._loaded: set[str] = set()
        """Variables that hold what all threads load alike, or count to it."""
        if form is not None:
            self._find_loaded(form)

    def _find_loaded(self, form: s.KernelForm) -> None:
        """Set once, or by a loop's head alone; each from what is found to be the same first."""
        body = form.kernel.body
        declares = Counter(x.name for x in s.below(body) if isinstance(x, s.Declare | s.Refer))
        alike = {n for n, depends in self._variables.items() if not varies_in_block(depends)}
        once = {name for name, n in declares.items() if n == 1} & alike
        kept = once - changed_variables(body, form)
        plain = [
            x for x in s.below(body)
            if isinstance(x, s.Declare) and x.name in kept and x.value is not None
            and not (x.pointer or x.extents or x.shared or x.is_volatile)
        ]  # fmt: skip
        counts = tuple(_counts(body, form))
        while True:
            more = {x.name for x in plain if self.same(x.value)} | {
                loop.variable
                for loop in counts
                if loop.variable in once and self.same((loop.start, loop.bound, loop.step))
            }
            if more <= self._loaded:
                return
            self._loaded |= more

    def _with_loops(self, depends: Depends) -> Depends:
        """With what decides how often the loops ran whose iterations it depends on."""
        found, waiting = set(depends), list(depends)
        while waiting:
            more = self._loops.get(waiting.pop(), frozenset()) - found
            found |= more
            waiting += more
        return frozenset(found)

    def same(self, node: Any) -> bool:
        """Whether all threads of a block that come by together find the same value: no memory is
        read, and no variable in it ever held what differs among threads."""
        return all(self._is_same(x) for x in s.below(node))

    def same_address(self, node: Any) -> bool:
        """Of a place in memory: whether it is the same one for all."""
        match node:
            case s.Index(base, index):
                return self.same_address(base) and self.same(index)
            case s.Member(base) | s.Cast(_, base):
                return self.same_address(base)
            case s.Unary("&" | "*", operand):
                return self.same_address(operand)
            case s.Binary("+" | "-", left, right):
                return self.same_address(left) and self.same(right)
            case s.Name(text):
                return text in self._arrays or self._is_same(node)
        return False

    def _is_same(self, node: Any) -> bool:
        if getattr(node, "is_volatile", False):
            return False
        match node:
            case s.Name(text):
                if text in self._loaded:
                    return True
                if text in self._variables:
                    depends = self._variables[text]
                    return not varies_in_block(depends) and "memory" not in depends
                return text in self._parameters | {"blockIdx", "blockDim", "gridDim"}
            case s.Member(s.Name(base), _) if base in s.BUILTINS:
                return base != "threadIdx"
            case s.Index() | s.Unary("*"):
                return self._is_constant(node)
            case s.Unary("&") | s.Assign() | s.Unmodelled():
                return False
            case s.Step(target):
                return self._is_same(target)
            case s.Call(function):
                return function in PURE
            case s.Opaque():
                return False
        return True

    def _is_constant(self, place: Any) -> bool:
        """Whether it is in memory that stays as it is, by its form: an element, or a part of one
        that is an array."""
        match place:
            case s.Index(s.Name(array), _) | s.Unary("*", s.Name(array)):
                return array in self._constant
            case s.Index(base, _) if getattr(base, "type", "").endswith("]"):
                while isinstance(base, s.Member):
                    base = base.base
                return self._is_constant(base)
        return False

    def together(self, body: Any, node: Any) -> bool:
        """Whether all threads of a block that run a body come by a statement of it at once: only
        loops and conditions stand around it in which threads do not differ."""
        return any(self._reached(statement, node) for statement in body)

    def _reached(self, outer: Any, node: Any) -> bool:
        if outer is node:
            return True
        if not any(x is node for x in s.below(outer)):
            return False
        if any(isinstance(x, s.Leave) for x in s.below(outer)):
            return False
        match outer:
            case s.If(condition, yes, no):
                inside = (*yes, *no)
                return self.same(condition) and any(self._reached(x, node) for x in inside)
            case s.For(first, condition, step, inside):
                declared = [x.value for x in first if isinstance(x, s.Declare)]
                heads = [*declared, condition, *step]
                same = len(declared) == len(first) and all(self._steps(h) for h in heads)
                return same and any(self._reached(x, node) for x in inside)
            case s.Block(inside):
                return any(self._reached(x, node) for x in inside)
        return False

    def _steps(self, node: Any) -> bool:
        """A part of a loop's head."""
        if node is None:
            return True
        if isinstance(node, s.Assign):
            return self.same(node.target) and self.same(node.value)
        return self.same(node)


def _counts(body: Any, form: s.KernelForm) -> Iterator[Counted]:
    """Loops whose heads alone count, by their variables; none is left early. What of their bounds
    is in memory is not looked at."""
    for x in s.below(body):
        if not isinstance(x, s.For) or has_early_exit(x.body, "continue"):
            continue
        with suppress(NotUnderstood):
            loop = counted(replace(x, body=()), form)
            names = {loop.variable} | names_in((loop.bound, loop.step))
            if loop.is_own and not names & changed_variables(x.body, form):
                yield loop
