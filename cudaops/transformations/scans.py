"""Loops whose iterations look at what the ones before them have added up: prefixes of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in, root_of, targets_in, written_names
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import FUNCTIONS, Found, accumulation
from cudaops.transformations.trees import declared_in

_KINDS = frozenset({"sum", "product", "min", "max", "and", "or", "xor"})


@dataclass(frozen=True)
class Scan:
    """One variable to which every iteration adds once, and which it looks at besides."""

    name: str
    value: Any
    """What an iteration adds."""
    before: tuple[Any, ...]
    """Statements of the body that do not mention it, up to where the value is known."""
    between: tuple[Any, ...]
    """Those that look at what the iterations before have made."""
    after: tuple[Any, ...]
    """Those that look at what is there with this iteration's."""
    accumulator: Any = None
    """Of kind `splitting.Accumulator`."""


def scan_in(
    loop: s.For, name: str, apart: Callable[[str, str], bool], form: s.KernelForm
) -> tuple[Found, Scan]:
    """The scan that a variable is in a loop. Raises NotUnderstood.

    `apart`: whether two arrays never share memory.
    """
    if any(isinstance(x, s.Leave | s.Give) for x in s.below(loop.body)):
        raise NotUnderstood("a scan with an early exit")
    heads = (*loop.first, *loop.step, *([loop.condition] if loop.condition else []))
    if name in names_in(heads):
        raise NotUnderstood(f"{name}, which is also a counter")
    at = [n for n, x in enumerate(loop.body) if name in {root_of(t) for t in targets_in(x)}]
    found = accumulation(loop.body[at[0]]) if len(at) == 1 else None
    if found is None or found.place != s.Name(name) or found.kind not in _KINDS:
        raise NotUnderstood(f"a loop-carried dependence through {name}")
    value = _value(loop.body[at[0]], found)
    first = next(n for n, x in enumerate(loop.body) if name in names_in(x))
    before, between = loop.body[:first], loop.body[first : at[0]]
    after = loop.body[at[0] + 1 :]
    if name in names_in(value) or any(isinstance(x, s.Refer) for x in s.below(loop.body)):
        raise NotUnderstood(f"a loop-carried dependence through {name}")
    _may_come_first(value, between, apart, form)
    return found, Scan(name, value, tuple(before), tuple(between), tuple(after))


def _value(statement: Any, found: Found) -> Any:
    """What is added: one operand of one operation."""
    assign = statement.value
    plain = isinstance(assign, s.Assign) and len(found.values) == 1 and assign.operator != "-"
    if not plain or "-" in _own_operators(assign, found.place):
        raise NotUnderstood("a scan with a subtraction")
    return found.values[0]


def _own_operators(assign: Any, place: Any) -> set[str]:
    value = assign.value
    if not assign.operator and isinstance(value, s.Binary) and place in (value.left, value.right):
        return {value.operator}
    return set()


def _may_come_first(
    value: Any, between: Sequence[Any], apart: Callable[[str, str], bool], form: s.KernelForm
) -> None:
    """Raises NotUnderstood unless what is added is the same before these statements."""
    if not is_pure(value, FUNCTIONS):
        raise NotUnderstood("a scan of a function call's value")
    written = written_names(tuple(between), form)
    if written is None or names_in(value) & (written | declared_in(tuple(between))):
        raise NotUnderstood("a scan of a value derived from it")
    reads = {root_of(x) for x in s.below(value) if isinstance(x, s.Index)}
    reads |= {root_of(x) for x in s.below(value) if isinstance(x, s.Unary) and x.operator == "*"}
    stores = {root_of(t) for t in targets_in(tuple(between)) if not isinstance(t, s.Name)}
    if any(isinstance(x, s.Call) for x in s.below(tuple(between))) and reads:
        raise NotUnderstood("calls between a scan's value and its use")
    for read in reads:
        if any(x is None or read is None or not apart(read, x) for x in stores):
            raise NotUnderstood("a scan of memory that the loop stores")
