"""Loads whose value is multiplied by zero left out.

`sum += w * x[i]` reads `x[i]` whatever `w` is; with integers and `w` zero the product is zero
whatever was read. `w != 0 ? w * x[i] : 0` reads it where it counts: masks, weights of an
interpolation between whole pixels, factors that a program leaves at zero. What is read into a
variable first, and used in products alone, is read where one of their other factors is not zero.

Integers only: zero times infinity is no zero. The other factor reads no memory and stands where it
did when the value is read. Nothing is divided by the value and nothing is found at it: zero stands
in its place. Where no factor is ever zero it costs a comparison; the search decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    is_pure,
    names_in,
    plain_variables,
    reads_memory,
    root_of,
    targets_in,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.trees import changed

_ANY_VALUE = frozenset({"+", "-", "*", "&", "|", "^"})
"""What may stand between a value and its product: it works with zero as with any other."""


class ZeroFactors:
    """A comparison with zero ahead of loads that are multiplied by an integer."""

    name = "zero_factors"
    title = "loads skipped where multiplied by zero"
    family: Family = "algorithm"
    relieves = frozenset({
        "dram_bandwidth", "l2_bandwidth", "l1_load_throughput", "uncoalesced_access",
        "stall_long_scoreboard", "stall_lg_throttle",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there are such loads."""
        return ({},) if _changes(draft.form.kernel) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them."""
        kernel = draft.form.kernel
        made = _changes(kernel)
        if not made:
            raise NotUnderstood("no load that is only multiplied by an integer known before it")
        body = changed(kernel.body, lambda node: made.get(id(node), node))
        says = "Values that are multiplied by zero are not loaded."
        return draft.with_body(body).stepped(Step(self.name, setting, says))


def _changes(kernel: s.Function) -> dict[int, Any]:
    """Declarations and products by identity, each with what it becomes. None is within another."""
    scope = _Scope(kernel)
    found: dict[int, Any] = {}
    taken: set[int] = set()
    for declare in (x for x in s.below(kernel.body) if isinstance(x, s.Declare)):
        factors = scope.factors(declare)
        if factors:
            assert declare.value is not None
            value = _where(factors, declare.value, declare.type)
            found[id(declare)] = replace(declare, value=value)
            taken |= {id(x) for x in s.below(declare)}
    for product in (x for x in s.below(kernel.body) if isinstance(x, s.Binary)):
        factor = None if id(product) in taken else scope.factor_here(product)
        if factor is not None:
            found[id(product)] = _where((factor,), product, product.type)
            taken |= {id(x) for x in s.below(product)}
    return found


def _where(factors: Sequence[Any], value: Any, kind: str) -> Any:
    """The value where one of the factors is not zero, else zero."""
    zero = s.Number("0", type="int")
    tests = (s.Binary("!=", factor, zero, type="bool") for factor in factors)
    condition = reduce(lambda one, other: s.Binary("||", one, other, type="bool"), tests)
    return s.Choice(condition, value, zero, type=kind)


class _Bare(Exception):
    """A value stands where it counts whatever it is."""


class _Scope:
    """What a kernel's variables are, and where."""

    def __init__(self, kernel: s.Function) -> None:
        self._body = kernel.body
        declared = [x for x in s.below(kernel.body) if isinstance(x, s.Declare)]
        often = Counter(x.name for x in declared)
        written = {root_of(x) for x in targets_in(kernel.body)}
        plain = plain_variables(kernel) - written
        self._steady = {n for n in plain if often[n] <= 1}
        """Hold one value from where they are declared on."""
        self._pointers = {p.name for p in kernel.parameters if p.is_pointer}
        self._pointers |= {x.name for x in declared if x.pointer}
        self._places = {id(x): at for at, x in enumerate(s.below(kernel.body))}
        self._since = {x.name: self._places[id(x)] for x in declared}
        """Parameters are there from the start."""

    def factors(self, declare: s.Declare) -> tuple[Any, ...]:
        """All that the value is multiplied by where it is used, without products of others among
        them, which are zero whenever one of those is; empty where it is used otherwise."""
        value = declare.value
        if value is None or declare.type not in INTEGERS - {"bool"} or declare.pointer:
            return ()
        if declare.name not in self._steady or not self._loads(value):
            return ()
        found: list[Any] = []
        try:
            for statement in self._body:
                self._walk(statement, declare, None, found)
        except _Bare:
            return ()
        return tuple(
            one for one in found
            if not any(other in _parts(one) for other in found if other != one)
        )  # fmt: skip

    def _walk(self, node: Any, declare: s.Declare, factor: Any, found: list[Any]) -> None:
        """`factor`: what all of this is multiplied by; None where nothing is known."""
        match node:
            case s.Name(text):
                if text == declare.name and factor is None:
                    raise _Bare
                if text == declare.name and factor not in found:
                    found.append(factor)
            case s.Binary("*", left, right, type=kind) if kind in INTEGERS:
                for side, other in ((left, right), (right, left)):
                    own = self._is_factor(other, declare)
                    self._walk(side, declare, other if own else factor, found)
            case s.Binary(operator, left, right) if operator in _ANY_VALUE:
                self._walk(left, declare, factor, found)
                self._walk(right, declare, factor, found)
            case s.Cast(kind, operand) if kind in INTEGERS:
                self._walk(operand, declare, factor, found)
            case s.Unary("-" | "~" | "+", operand):
                self._walk(operand, declare, factor, found)
            case _:
                for child in s.children(node):
                    self._walk(child, declare, None, found)

    def _is_factor(self, node: Any, declare: s.Declare) -> bool:
        """Whether it is an integer that is known where the value is declared."""
        names = names_in(node)
        before = self._places[id(declare)]
        return (
            _is_integer(node)
            and not any(map(_divides, s.below(node)))  # its product may not be reached
            and bool(names)
            and names <= self._steady
            and all(self._since.get(name, -1) < before for name in names)
        )

    def factor_here(self, product: s.Binary) -> Any:
        """The side of a product of integers that is known without a load, where the other is not;
        None where it is no such product."""
        if product.operator != "*" or product.type not in INTEGERS or not is_pure(product):
            return None
        for factor, value in ((product.left, product.right), (product.right, product.left)):
            if _is_integer(factor) and names_in(factor) & self._steady and self._loads(value):
                return factor
        return None

    def _loads(self, value: Any) -> bool:
        """Whether it reads what a pointer points to, and does nothing else."""
        return is_pure(value) and any(
            root_of(x) in self._pointers
            for x in s.below(value)
            if isinstance(x, s.Index) or (isinstance(x, s.Unary) and x.operator == "*")
        )


def _is_integer(node: Any) -> bool:
    """Whether it is one that takes no load and no more than some arithmetic."""
    kind = getattr(node, "type", "")
    calls = any(isinstance(x, s.Call) for x in s.below(node))
    return kind in INTEGERS and is_pure(node) and not reads_memory(node) and not calls


def _divides(node: Any) -> bool:
    """Whether it divides integers by what may be zero."""
    match node:
        case s.Binary("/" | "%", _, divisor, type=kind):
            return kind in INTEGERS and not s.integer_of(divisor)
    return False


def _parts(product: Any) -> tuple[Any, ...]:
    """What a product is made of: none of it is zero where it is not."""
    match product:
        case s.Binary("*", left, right, type=kind) if kind in INTEGERS:
            return (*_parts(left), *_parts(right))
    return (product,)
