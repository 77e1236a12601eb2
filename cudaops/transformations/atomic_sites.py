"""Atomic operations of a kernel whose result nobody looks at: where they stand, on what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cudaops.domain.workload import PointerArgument
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import written_names
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import declared_in

_INTEGER = ("int", "unsigned", "unsigned long long")
_LIMITS = {"int": ("INT_MAX", "INT_MIN"), "unsigned": ("0xffffffffu", "0u"),
           "unsigned long long": ("0xffffffffffffffffull", "0ull")}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """What an atomic function does, in any order."""

    function: str
    combine: str
    """C for two values in one, with `{a}` and `{b}`."""

    def identity(self, kind: str) -> str:
        """The value that changes nothing, as C."""
        if self.function == "atomicMin":
            return _LIMITS[kind][0].replace("INT_MAX", "0x7fffffff")
        if self.function == "atomicMax":
            return _LIMITS[kind][1].replace("INT_MIN", "(-0x7fffffff - 1)")
        if self.function == "atomicAnd":
            return {"int": "-1"}.get(kind, _LIMITS.get(kind, ("", ""))[0])
        return {"float": "0.0f", "double": "0.0"}.get(kind, "0")

    def takes(self, kind: str) -> bool:
        """Whether order is of no matter, to the bit or as sums of floats may be reordered."""
        return kind in _INTEGER or (self.function == "atomicAdd" and kind in ("float", "double"))


OPERATIONS = {
    one.function: one
    for one in (
        Operation("atomicAdd", "{a} += {b}"),
        Operation("atomicMin", "{a} = min({a}, {b})"),
        Operation("atomicMax", "{a} = max({a}, {b})"),
        Operation("atomicAnd", "{a} &= {b}"),
        Operation("atomicOr", "{a} |= {b}"),
        Operation("atomicXor", "{a} ^= {b}"),
    )
}


@dataclass(frozen=True)
class AtomicSite:
    """One statement: `atomicAdd(&base[index], value);`, or a call of a function that is no more."""

    statement: s.Evaluate
    operation: Operation
    base: str
    """A pointer, an array, or a variable in memory."""
    index: s.Expression
    value: s.Expression
    type: str
    """Of the element."""


def sites_of(draft: Draft) -> tuple[AtomicSite, ...]:
    """All of them, in the text's order."""
    wrappers = {f.name: call for f in draft.form.functions if (call := _wrapped(f)) is not None}
    return tuple(_found(draft.form.kernel.body, wrappers))


def _wrapped(function: s.Function) -> s.Call | None:
    """The atomic call that a function consists of: `{ atomicAdd(address, value); }`."""
    match function.body:
        case (s.Evaluate(s.Call(name, (s.Name(to), s.Name(by))) as call),) if name in OPERATIONS:
            if [p.name for p in function.parameters] == [to, by]:
                kinds = {function.parameters[0].type, function.parameters[1].type}
                return call if len(kinds) == 1 else None
    return None


def _found(body: Any, wrappers: dict[str, s.Call]) -> Iterator[AtomicSite]:
    for node in s.below(body):
        match node:
            case s.Evaluate(s.Call(name, (address, value))):
                name = wrappers[name].function if name in wrappers else name
                place = _place(address)
                if name in OPERATIONS and place is not None:
                    base, index, kind = place
                    operation = OPERATIONS[name]
                    if operation.takes(kind):
                        yield AtomicSite(node, operation, base, index, value, kind)


def _place(address: s.Expression) -> tuple[str, s.Expression, str] | None:
    """Base, index and the element's type."""
    kind = getattr(address, "type", "")
    inner = address
    if isinstance(address, s.Cast):
        kind, inner = address.type, address.operand
    if not kind.endswith("*") or kind.endswith("**"):
        return None
    match inner:
        case s.Name(base, type=own):
            index: s.Expression = s.Number("0", type="int")
        case s.Unary("&", s.Index(s.Name(base, type=own), index)):
            pass
        case s.Unary("&", s.Name(base, type=own)):
            own, index = f"{own}*", s.Number("0", type="int")
        case s.Unary("&", s.Unary("*", s.Name(base, type=own))):
            index = s.Number("0", type="int")
        case s.Binary("+", s.Name(base, type=own), index) if own.endswith(("*", "]")):
            pass
        case _:
            return None
    if own.endswith("]") and own.count("[") == 1:
        own = f"{own.partition('[')[0].strip()}*"
    same = ELEMENT_BYTES.get(own[:-1]) == ELEMENT_BYTES.get(kind[:-1])
    return (base, index, kind[:-1]) if own.endswith("*") and same else None


def prove_only_atomic(draft: Draft, base: str, sites: tuple[AtomicSite, ...]) -> str:
    """The parameter that these sites go to. Raises NotUnderstood where the kernel does anything
    else to that memory, after which an order of two accesses might matter."""
    facts = draft.facts
    where = {site.statement.where for site in sites}
    own = [a for a in facts.accesses if a.kind == "atomic" and a.where in where]
    arrays = {a.array for a in own}
    if len(arrays) != 1 or not (array := next(iter(arrays))) or None in where:
        raise NotUnderstood(f"the target of pointer {base} is unknown")
    parameter = next((p for p in facts.parameters if p.name == array and p.is_pointer), None)
    if parameter is None or any(a.space != "global" for a in own):
        raise NotUnderstood(f"{array} is no parameter")
    if len(own) > len(sites):
        raise NotUnderstood(f"more than one access to {array} in a statement")
    first = min(w.start for w in where if w is not None)
    for access in facts.accesses:
        if access.space == "unknown":
            raise NotUnderstood("a pointer of unknown target")
        if access.array != array or access in own:
            continue
        earlier = access.where is not None and access.where.end <= first
        if access.kind == "atomic" or not earlier or _shares_loop(access, own):
            raise NotUnderstood(f"{array} has other accesses")
    _prove_apart(draft, array)
    return array


def _shares_loop(access: Any, own: list[Any]) -> bool:
    mine = {loop.symbol for loop in access.loops}
    return any(loop.symbol in mine for other in own for loop in other.loops)


def _prove_apart(draft: Draft, array: str) -> None:
    """Whatever else the kernel touches stands in other allocations, as captured."""
    allocations = Allocations(draft)
    if not allocations.is_given(array):
        raise NotUnderstood(f"the target of pointer {array} is unknown")
    for name in sorted({a.array for a in draft.facts.accesses if a.space == "global"} - {array}):
        if not allocations.apart(name, array):
            raise NotUnderstood(f"{name} may alias {array}")


def elements_of(draft: Draft, array: str, size: int) -> int:
    """How many elements stand from the pointer to the end of its allocation, at most."""
    return max(lengths_of(draft, array, size), default=0)


def lengths_of(draft: Draft, array: str, size: int) -> tuple[int, ...]:
    """The same for each captured launch."""
    return tuple(
        (workload.allocations[a.allocation].size_bytes - a.offset_bytes) // size
        for workload in draft.workloads
        for a in workload.arguments
        if isinstance(a, PointerArgument) and a.name == array
    )


def is_fixed(draft: Draft, base: str) -> bool:
    """Whether a pointer is a parameter that is never changed."""
    kernel = draft.form.kernel
    written = written_names(kernel.body, draft.form)
    if written is None or base in declared_in(kernel.body):
        return False
    stepped = {
        t.text
        for x in s.below(kernel.body)
        if isinstance(x, s.Assign | s.Step) and isinstance(t := x.target, s.Name)
    }
    return base not in stepped and any(p.name == base and p.is_pointer for p in kernel.parameters)
