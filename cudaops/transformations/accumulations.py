"""Statements that accumulate: `sum += e` in its spellings, extremes, flags, and best ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, root_of
from cudaops.program.analysis.library_calls import PURE

Kind = Literal["sum", "product", "and", "or", "xor", "min", "max", "flag", "best"]
FUNCTIONS = PURE | {"__ldcs", "__ldcg", "__ldca"}
"""With loads that say how they are cached."""
_SUMS: Mapping[str, Kind] = {
    "+": "sum",
    "-": "sum",
    "*": "product",
    "&": "and",
    "|": "or",
    "^": "xor",
}
_EXTREMA: Mapping[str, Kind] = {
    "min": "min", "fminf": "min", "fmin": "min", "max": "max", "fmaxf": "max", "fmax": "max",
    "umin": "min", "umax": "max",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """One statement that accumulates."""

    place: Any
    kind: Kind
    uses: int
    """How often it mentions the place."""
    values: tuple[Any, ...] = ()
    function: str = ""
    moved: tuple[tuple[Any, Any], ...] = ()


def accumulations(body: Any) -> Iterator[Found]:
    """Statements that accumulate, at any depth."""
    for x in body:
        if (found := accumulation(x)) is not None:
            yield found
            continue
        yield from accumulations([y for y in s.children(x) if isinstance(y, s.Statement)])
        if isinstance(x, s.For):
            yield from (f for y in x.step if (f := _assigned(y)) is not None)


def accumulation(x: Any) -> Found | None:
    match x:
        case s.Evaluate(value):
            return _assigned(value)
        case s.If(condition, yes, ()):
            return _best(condition, yes)
    return None


def _assigned(x: Any) -> Found | None:
    """`sum += e` in its spellings."""
    match x:
        case s.Step(place, _):
            return Found(place, "sum", 1)
        case s.Assign(place, operator, value) if operator in _SUMS:
            return Found(place, _SUMS[operator], 1, (value,))
        case s.Assign(place, "", s.Number(text)):
            return Found(place, "flag", 1, (), text)
        case s.Assign(place, "", s.Name("true" | "false" as text)):
            return Found(place, "flag", 1, (), text)
        case s.Assign(place, "", value):
            return _rewritten(place, value)
    return None


def _rewritten(place: Any, value: Any) -> Found | None:
    """`sum = sum + e`, `best = max(best, e)`, `best = e > best ? e : best`."""
    match value:
        case s.Call(function, (a, b)) if function in _EXTREMA and place in (a, b):
            rest = b if a == place else a
            return Found(place, _EXTREMA[function], 2, (rest,), function)
        case s.Choice(s.Binary(operator, a, b), yes, no) if operator in s.ORDERS:
            other = b if a == place else a
            if place not in (a, b) or {repr(yes), repr(no)} != {repr(place), repr(other)}:
                return None
            grows = (operator in (">", ">=")) == (yes == a)
            return Found(place, "max" if grows else "min", 3 - (yes == no), (other,))
        case s.Binary(operator, left, right) if operator in _SUMS:
            chain, at = [right], left
            while at != place and operator in "+-":
                if not isinstance(at, s.Binary) or at.operator not in ("+", "-"):
                    break
                chain.append(at.right)
                at = at.left
            if at == place:
                return Found(place, _SUMS[operator], 2, tuple(chain))
            if right == place and operator != "-":
                return Found(place, _SUMS[operator], 2, (left,))
    return None


def _best(condition: Any, yes: Sequence[Any]) -> Found | None:
    """`if (e < best) { best = e; at = j; }`, other conditions beside."""
    assigned = [
        (x.value.target, x.value.value)
        for x in yes
        if isinstance(x, s.Evaluate) and isinstance(x.value, s.Assign) and not x.value.operator
    ]
    if len(assigned) != len(yes):
        return None
    for part in s.joined_by(condition, "&&"):
        if not isinstance(part, s.Binary) or part.operator not in s.ORDERS:
            continue
        flipped = s.MIRRORED[part.operator]
        for operator, new, old in (
            (part.operator, part.left, part.right), (flipped, part.right, part.left),
        ):  # fmt: skip
            rest = tuple((p, v) for p, v in assigned if p != old)
            if (old, new) not in assigned or len(rest) != len(assigned) - 1:
                continue
            if not is_pure(new, FUNCTIONS) or root_of(old) is None:
                continue
            if not rest:
                grows = operator in (">", ">=")
                return Found(old, "max" if grows else "min", 2, (new,))
            if operator in (">", "<") and all(isinstance(p, s.Name) for p, _ in rest):
                return Found(old, "best", 2, (new,), operator, rest)
    return None
