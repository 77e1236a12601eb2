"""Loops that count the set bits of an unsigned integer, as the one instruction that does it.

`while (v) { v &= v - 1; ++c; }` goes round once for each set bit, `while (v) { c += v & 1; v >>= 1;
}` once for each bit up to the highest, `for (b = 0; b < 32; ++b) c += (v >> b) & 1;` once for each
of them; a warp as often as its slowest thread. `c += __popc(v)` is the same for every `v`. Where
`v` is used afterwards it is zero, as after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, plain_variables
from cudaops.program.analysis.intervals import INTEGERS, of_type
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.loops import counted, literal
from cudaops.transformations.trees import lists_changed


class _Count(NamedTuple):
    """A loop that adds the number of bits set in `of` to `to`."""

    of: s.Name
    to: s.Name
    bits: int
    """How many are looked at, from the lowest."""
    spends: bool
    """Whether `of` is zero afterwards."""


def with_bit_counts(function: s.Function, form: s.KernelForm) -> tuple[Any, ...] | None:
    """Another body of the function; None where it counts no bits."""
    own = plain_variables(function)

    def change(body: tuple[Any, ...]) -> tuple[Any, ...]:
        lines: list[Any] = []
        for statement in body:
            count = _count(statement, form, own)
            if count is None:
                lines.append(statement)
            else:
                lines += _spelled(statement, count, function)
        return body if len(lines) == len(body) and lines == list(body) else tuple(lines)

    made = lists_changed(function.body, change)
    return None if made is function.body else made


def _spelled(loop: s.For, count: _Count, function: s.Function) -> Iterator[Any]:
    width = _width(count.of)
    value: Any = count.of
    if count.bits < width:
        ones = s.Number(
            f"{(1 << count.bits) - 1:#x}{'ull' if width == 64 else 'u'}", type=value.type
        )
        value = s.Binary("&", value, ones, type=value.type)
    called = s.Call("__popcll" if width == 64 else "__popc", (value,), type="int")
    first = list(loop.first) if count.spends else []
    begins = s.Evaluate(s.Assign(count.to, "", s.Number("0", type="int"), type=count.to.type))
    operator = "+"
    if first and first[-1] == begins:
        first, operator = first[:-1], ""
    yield from first
    yield s.Evaluate(s.Assign(count.to, operator, called, type=count.to.type))
    if count.spends and _is_used_beside(count.of.text, loop, function):
        zero = s.Number("0", type="int")
        yield s.Evaluate(s.Assign(count.of, "", zero, type=count.of.type))


def _is_used_beside(name: str, loop: s.For, function: s.Function) -> bool:
    """Whether a variable stands anywhere else than in the loop and where it is declared."""
    inside = sum(isinstance(x, s.Name) and x.text == name for x in s.below(loop))
    return sum(isinstance(x, s.Name) and x.text == name for x in s.below(function.body)) > inside


def _count(statement: Any, form: s.KernelForm, own: frozenset[str]) -> _Count | None:
    if not isinstance(statement, s.For):
        return None
    found = _until_zero(statement) or _bit_after_bit(statement, form)
    if found is None or found.of == found.to or not _width(found.of):
        return None
    plain = {found.of.text, found.to.text} <= own and found.to.type in INTEGERS - {"bool"}
    return found if plain else None


def _width(v: s.Name) -> int:
    """Bits of a variable without sign; 0 of any other."""
    span = of_type(v.type)
    has_none = v.type != "bool" and span.low == 0 and span.high is not None
    return (span.high or 0).bit_length() if has_none else 0


def _until_zero(loop: s.For) -> _Count | None:
    """`while (v)` with two effects: one bit less in `v`, and one more counted."""
    match loop.condition:
        case s.Name() as v:
            pass
        case s.Binary("!=" | ">", s.Name() as v, zero) if s.integer_of(zero) == 0:
            pass
        case _:
            return None
    if any(isinstance(x, s.Declare) or v.text in names_in(x) for x in loop.first):
        return None
    effects = (*loop.body, *(s.Evaluate(x) for x in loop.step))
    if len(effects) != 2:
        return None
    for counting, taking in (effects, effects[::-1]):
        to = _one_more(counting)
        if to is not None and _is_without_lowest(taking, v):
            return _Count(v, to, _width(v), spends=True)
    to = _adds_bit(effects[0], _lowest(v))
    if to is not None and _is_shifted(effects[1], v):
        return _Count(v, to, _width(v), spends=True)
    return None


def _bit_after_bit(node: s.For, form: s.KernelForm) -> _Count | None:
    """A loop over places from 0 on, each of which is looked at."""
    try:
        loop = counted(node, form)
    except NotUnderstood:
        return None
    trips, body = loop.trips(), loop.body
    if not (loop.is_own and trips and loop.stride == 1 and loop.sign == "+" and len(body) == 1):
        return None
    at = s.Name(loop.variable)
    for x in s.below(body):
        if not (isinstance(x, s.Name) and _width(x) >= trips) or x == at:
            continue
        there = (_lowest(s.Binary(">>", x, at)), _set_at(x, at))
        to = _adds_bit(body[0], there[0]) or _adds_bit(body[0], there[1])
        if literal(loop.start) == 0 and to is not None and to != at:
            return _Count(x, to, trips, spends=False)
    return None


# Effects


def _lowest(value: Any) -> tuple[Any, ...]:
    """`value & 1`, in either order."""
    one = s.Number("1")
    return s.Binary("&", value, one), s.Binary("&", one, value)


def _set_at(v: s.Name, at: s.Name) -> tuple[Any, ...]:
    """`v & (1 << at)`: not zero where the bit is set, and no number of bits. The one is as wide as
    `v`: a narrower one has no such bit, or many."""
    is_wide = _width(v) == 64
    return tuple(
        s.Binary("&", *sides)
        for one in (("1ull", "1ULL") if is_wide else ("1", "1u", "1U"))
        for shifted in (s.Binary("<<", s.Number(one), at),)
        for sides in ((v, shifted), (shifted, v))
    )


def _one_more(statement: Any) -> s.Name | None:
    """The variable that a statement adds one to."""
    match statement:
        case s.Evaluate(s.Step(s.Name() as to, 1)):
            return to
        case s.Evaluate(s.Assign(s.Name() as to, "+", one)) if s.integer_of(one) == 1:
            return to
        case s.Evaluate(s.Assign(s.Name() as to, "", s.Binary("+", left, right))):
            if (left == to and s.integer_of(right) == 1) or (
                right == to and s.integer_of(left) == 1
            ):
                return to
    return None


def _adds_bit(statement: Any, bits: Sequence[Any]) -> s.Name | None:
    """The variable that counts one of these, which are zero or one; or counts one where one of them
    is not zero."""
    match statement:
        case s.Evaluate(s.Assign(s.Name() as to, "+", value)) if _is_one_of(value, bits):
            return to if not any(_shifts_one(x) for x in bits) else None
        case s.If(condition, (counting,), ()):
            asked: Any = condition
            match condition:
                case s.Binary("!=", value, zero) if s.integer_of(zero) == 0:
                    asked = value
                case s.Binary("==", value, one) if s.integer_of(one) == 1:
                    asked = value if not any(_shifts_one(x) for x in bits) else None
            return _one_more(counting) if _is_one_of(asked, bits) else None
    return None


def _is_one_of(value: Any, bits: Sequence[Any]) -> bool:
    """As written, or with `1u` for `1`."""
    while isinstance(value, s.Cast) and value.type in INTEGERS - {"bool"}:
        value = value.operand
    return any(value == x or _plain(value) == x for x in bits)


def _plain(value: Any) -> Any:
    """`x & 1u` as `x & 1`."""
    match value:
        case s.Binary("&", left, right) if s.integer_of(right) == 1:
            return s.Binary("&", left, s.Number("1"))
        case s.Binary("&", left, right) if s.integer_of(left) == 1:
            return s.Binary("&", s.Number("1"), right)
    return value


def _shifts_one(value: Any) -> bool:
    return any(isinstance(x, s.Binary) and x.operator == "<<" for x in s.below(value))


def _is_without_lowest(statement: Any, v: s.Name) -> bool:
    """`v &= v - 1`."""
    match statement:
        case s.Evaluate(s.Assign(target, "&", s.Binary("-", x, one))):
            return bool(target == v == x) and s.integer_of(one) == 1
        case s.Evaluate(s.Assign(target, "", s.Binary("&", left, right))):
            less, other = (right, left) if left == v else (left, right)
            match less:
                case s.Binary("-", x, one):
                    return bool(target == v == x == other) and s.integer_of(one) == 1
    return False


def _is_shifted(statement: Any, v: s.Name) -> bool:
    """`v >>= 1`, or half of it."""
    by = {">>": 1, "/": 2}
    match statement:
        case s.Evaluate(s.Assign(target, ">>" | "/" as operator, value)):
            return bool(target == v) and s.integer_of(value) == by[operator]
        case s.Evaluate(s.Assign(target, "", s.Binary(">>" | "/" as operator, x, value))):
            return bool(target == v == x) and s.integer_of(value) == by[operator]
    return False
