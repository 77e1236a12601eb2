"""A loop's sum, product, minimum or maximum in several that do not wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import has_jump, is_volatile, synchronises
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.loops import (
    Counted,
    by_several,
    conditions,
    copy_of,
    counted,
    hottest,
    is_innermost,
    looks_ahead,
    loop_of,
    plainly_declared,
    scalars_of,
    scoped,
    size_of,
)
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed, swapped

_MOST_SETTINGS = 6
_FACTORS = (4, 8, 16, 2)
_LARGEST = 60
"""Operations of an iteration, beyond which its chain of additions is the least of its costs."""
_SUMS = frozenset({"fma", "fmaf", "__fmaf_rn"})
_EXTREMES = frozenset({"min", "max", "fmin", "fminf", "fmax", "fmaxf"})
_NEUTRAL = {("+", "float"): "0.0f", ("+", "double"): "0.0",
            ("*", "float"): "1.0f", ("*", "double"): "1.0"}  # fmt: skip
_VECTORS = {f"{kind}{n}": kind for kind in ("float", "double") for n in (2, 3, 4)}


@dataclass(frozen=True)
class Update:
    """One statement that takes a value into an accumulator."""

    place: Any
    """A name, or a member of one."""
    operation: str
    """`+`, `*`, or what chooses: the text of the function or comparison."""
    value: Any
    """What is taken in; None where it is spread over the statement."""
    statement: Any


@dataclass(frozen=True)
class Accumulator:
    """A variable, or a field of one, that a loop only takes values into."""

    place: Any
    """A name, or a member of one."""
    type: str
    update: Update

    @property
    def name(self) -> str:
        """A word for it."""
        if isinstance(self.place, s.Member):
            return f"{_base(self.place).partition('#')[0]}_{self.place.name}"
        return s.plain_name(_base(self.place))


class Accumulators:
    """A loop that sums floating numbers takes several at a time, each into a sum of its own.

    Legal: the loop counts, only its step moves the variable, nothing leaves it early, and an
    accumulator is a variable of the thread that nothing in the loop reads but its own updates, all
    of one associative operation. All else in the body keeps its order. Floating sums and products
    are then added up in another order, which the gates measure; minima and maxima are the same.
    """

    name = "accumulators"
    title = "independent partial sums"
    family: Family = "unrolling"
    relieves = frozenset({
        "stall_wait", "stall_long_scoreboard", "stall_short_scoreboard", "low_parallelism",
        "occupancy_grid", "occupancy_registers", "fp64_pipe", "stall_branch", "issue_slots",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """The hottest loops, by 4, 8 and 16; shorter ones by less."""
        found = []
        for placed in hottest(draft):
            try:
                loop, _ = _read(draft, placed.number)
                conditions(draft, loop, 1)
            except NotUnderstood:
                continue
            trips = loop.trips() or max(_FACTORS)
            factors = [f for f in _FACTORS if f <= trips][:3]
            found += [placed.setting | {"factor": f} for f in factors]
        return tuple(found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The loop, a loop for what is left, and the sum of the sums."""
        loop, found = _read(draft, setting["loop"])
        factor = int(setting["factor"])
        trips = loop.trips()
        if trips is not None and trips < factor:
            raise NotUnderstood("a trip count below the factor")
        made = _taken_apart(draft, loop, found, factor)
        body = swapped(draft.form.kernel.body, loop.node, made)
        names = " and ".join(x.name for x in found)
        says = (
            f"The loop over {loop.variable.partition('#')[0]} takes {factor} iterations at a time, "
            f"with {factor} independent partial results for {names}."
        )
        needs = () if trips is not None else conditions(draft, loop, factor - 1)
        edited = draft.with_body(body).requiring(*needs)
        return edited.stepped(Step(self.name, setting, says))


# Reading


def _read(draft: Draft, number: int | str) -> tuple[Counted, tuple[Accumulator, ...]]:
    """The loop and its accumulators. Raises NotUnderstood."""
    form = draft.form
    if is_volatile(form.kernel, form):
        raise NotUnderstood("volatile memory or assembly")
    node = loop_of(form.kernel, number)
    if not is_innermost(node):
        raise NotUnderstood("a loop with loops in it")
    loop = counted(node, form)
    looks_ahead(loop)
    if has_jump(loop.body):
        raise NotUnderstood("a loop with break, return or continue")
    if synchronises(loop.body, form):
        raise NotUnderstood("a barrier or warp collective in the loop")
    if size_of(loop.body, form) > _LARGEST:
        raise NotUnderstood("a loop body too large to gain from it")
    found = tuple(_accumulators(form.kernel, loop))
    if not found:
        raise NotUnderstood("no floating sum, product, minimum or maximum that is only updated")
    return loop, found


def _accumulators(function: s.Function, loop: Counted) -> Iterator[Accumulator]:
    inside = {x.name for x in s.below(loop.body) if isinstance(x, s.Declare | s.Refer)}
    numbers, vectors = scalars_of(function), _vectors_of(function)
    updates: dict[Any, list[Update]] = {}
    for update in _updates(loop.body):
        updates.setdefault(update.place, []).append(update)
    for place, found in updates.items():
        base = _base(place)
        kind = (vectors if isinstance(place, s.Member) else numbers).get(base)
        if kind not in ("float", "double") or base in inside:
            continue
        own = [u for p, us in updates.items() if _base(p) == base for u in us]
        alone = _count(loop.node, base) == sum(_count(u.statement, base) for u in own)
        if alone and len({u.operation for u in found}) == 1:
            yield Accumulator(place, kind, found[0])


def _base(place: Any) -> str:
    base: Any = place.base if isinstance(place, s.Member) else place
    return str(base.text)


def _vectors_of(function: s.Function) -> dict[str, str]:
    """Variables like `float4 sum` that nobody takes the address of, with their fields' type."""
    pointed = {_root(x) for x in s.below(function.body)}
    return {
        x.name: _VECTORS[x.type]
        for x in s.below(function.body)
        if isinstance(x, s.Declare) and x.type in _VECTORS and not x.pointer
        and not x.extents and not x.shared and x.name not in pointed
    }  # fmt: skip


def _root(node: Any) -> str:
    """The variable that a reference or an address is taken of, where it is one."""
    match node:
        case s.Unary("&", operand) | s.Refer(target=operand):
            while isinstance(operand, s.Member | s.Index):
                operand = operand.base
            return operand.text if isinstance(operand, s.Name) else ""
    return ""


def _count(node: Any, name: str) -> int:
    return sum(isinstance(x, s.Name) and x.text == name for x in s.below(node))


def _updates(body: Sequence[Any]) -> Iterator[Update]:
    """Statements that take a value into a place, each once."""
    for x in body:
        found = _update(x)
        if found is not None:
            yield found
        elif isinstance(x, s.If):
            yield from _updates(x.yes)
            yield from _updates(x.no)
        elif isinstance(x, s.Block):
            yield from _updates(x.body)


def _update(statement: Any) -> Update | None:
    match statement:
        case s.Evaluate(s.Assign(target, operator, value)) if _is_place(target):
            if operator in ("+", "-"):
                operation, taken = "+", value
            elif operator == "*":
                operation, taken = "*", value
            elif operator == "":
                operation, taken = _merged(target, value)
            else:
                return None
        case s.If(condition, (s.Evaluate(s.Assign(target, "", value)),), ()) if _is_place(target):
            operation, taken = _chosen(condition, target, value), value
        case _:
            return None
    own = _base(target)
    if not operation or (taken is not None and _count(taken, own)):
        return None
    return Update(target, operation, taken, statement)


def _is_place(target: Any) -> bool:
    return isinstance(target, s.Name) or (
        isinstance(target, s.Member) and isinstance(target.base, s.Name)
    )


def _merged(place: Any, value: Any) -> tuple[str, Any]:
    """Operation and value of `place = value`; no operation where it is none."""
    if _count(value, _base(place)) == 1:
        for operation, operators in (("+", "+-"), ("*", "*")):
            if _is_term(place, value, operators):
                return operation, None
    match value:
        case s.Call(function, (a, b)) if function in _EXTREMES and place in (a, b):
            return function, b if a == place else a
        case s.Call(function, (_, _, c)) if function in _SUMS and c == place:
            return ("+", None) if _count(value, _base(place)) == 1 else ("", None)
        case s.Choice(condition, yes, no) if no == place:
            return _chosen(condition, place, yes), yes
    return "", None


def _is_term(place: Any, value: Any, operators: str) -> bool:
    """Whether a place is one term of a sum, not of what is taken off, or a factor of a product."""
    if value == place:
        return True
    match value:
        case s.Binary(operator, left, right) if operator in operators:
            return _is_term(place, left, operators) or (
                operator != "-" and _is_term(place, right, operators)
            )
    return False


def _chosen(condition: Any, place: Any, value: Any) -> str:
    """`place` becomes `value` where the condition holds: a minimum or maximum that leaves it alone
    where a number is none."""
    match condition:
        case s.Binary("<" | "<=" as operator, left, right) if (left, right) == (value, place):
            return operator
        case s.Binary("<" | "<=" as operator, left, right) if (left, right) == (place, value):
            return operator.replace("<", ">")
        case s.Binary(">" | ">=" as operator, left, right) if (left, right) == (value, place):
            return operator
        case s.Binary(">" | ">=" as operator, left, right) if (left, right) == (place, value):
            return operator.replace(">", "<")
    return ""


# Writing


def _taken_apart(
    draft: Draft, loop: Counted, found: Sequence[Accumulator], factor: int
) -> tuple[Any, ...]:
    """The statements that stand for the loop."""
    parts = {x.place: _part_names(draft, x, factor) for x in found}
    copies: list[Any] = [*scoped(loop.body)]
    for nth in range(1, factor):
        places: dict[Any, Any] = {s.Name(loop.variable): loop.after(nth)}
        places |= {place: s.Name(names[nth - 1]) for place, names in parts.items()}
        copies += scoped(copy_of(loop.body, places))
    lines: list[Any] = [_parts_declared(x, parts[x.place], draft) for x in found]
    lines += by_several(loop, factor, copies)
    lines += [line for x in found for line in _together(x, parts[x.place])]
    if loop.is_own and not plainly_declared(draft.form.kernel, loop.variable):
        return (s.Block(tuple(lines)),)
    return tuple(lines)


def _part_names(draft: Draft, found: Accumulator, factor: int) -> list[str]:
    stem = f"{found.name}_" if found.name[-1].isdigit() else found.name
    names: list[str] = []
    for n in range(1, factor):
        name = draft.fresh_name(f"{stem}{n}")
        while name in names:
            name = draft.fresh_name(f"{name}_")
        names.append(name)
    return names


def _parts_declared(found: Accumulator, names: Sequence[str], draft: Draft) -> Raw:
    neutral = _NEUTRAL.get((found.update.operation, found.type))
    if neutral is None:
        neutral = draft.printer().expression(found.place)
    declared = ", ".join(f"{name} = {neutral}" for name in names)
    return Raw(f"{found.type} {declared};")


def _together(found: Accumulator, names: Sequence[str]) -> Iterator[Any]:
    """One result again."""
    place, operation = found.place, found.update.operation
    if operation in ("+", "*"):
        yield s.Evaluate(s.Assign(place, "", _tree([place, *map(s.Name, names)], operation)))
        return
    for name in names:
        (again,) = copy_of((found.update.statement,), {})
        yield _with_value(again, found.update.value, s.Name(name))


def _tree(terms: list[Any], operator: str) -> Any:
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [s.Binary(operator, a, b) for a, b in pairs]
    return terms[0]


def _with_value(statement: Any, old: Any, new: Any) -> Any:
    return changed(statement, lambda x: new if x == old else x)
