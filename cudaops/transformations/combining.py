"""How two lanes' values of an accumulator become one, and with which one a lane begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, root_of
from cudaops.transformations.splitting import Accumulator
from cudaops.transformations.text import Raw

_OPERATORS = {"sum": "+", "product": "*", "and": "&", "or": "|", "xor": "^"}


def merged(a: Accumulator, place: str, other: str) -> str:
    """The statement that takes another lane's value into an accumulator."""
    if a.kind in _OPERATORS:
        return f"{place} {_OPERATORS[a.kind]}= {other};"
    function = {"float": f"f{a.kind}f", "double": f"f{a.kind}"}.get(a.type, a.kind)
    return f"{place} = {function}({place}, {other});"


def neutral(a: Accumulator) -> str:
    """What a lane begins with so that it adds nothing; empty where the author's own will do."""
    if a.kind not in ("sum", "product", "xor"):
        return ""
    digit = "1" if a.kind == "product" else "0"
    return digit + {"float": ".0f", "double": ".0"}.get(a.type, "")


def starts_neutral(before: Sequence[Any], a: Accumulator) -> bool:
    """Whether the statements before a loop leave the neutral value in an accumulator."""
    root = root_of(a.place)
    for x in reversed(before):
        match x:
            case s.Declare(name=name) if name == root:
                return (x.zeroed and a.kind != "product") or _is_number(x.value, neutral(a))
            case s.Evaluate(s.Assign(place, "", value)) if place == a.place and a.extent is None:
                return _is_number(value, neutral(a))
        if not isinstance(x, Raw) and root in names_in(x):
            return False
    return False


def _is_number(value: Any, wanted: str) -> bool:
    text = value.text.rstrip("fFuUlL") if isinstance(value, s.Number) else ""
    try:
        return float(text) == float(wanted.rstrip("f"))
    except ValueError:
        return False
