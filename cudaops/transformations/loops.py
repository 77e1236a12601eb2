"""Loops that count, as their trees tell: what unrolling, splitting and register windows ask of one.

Nothing here looks at values: whatever it says holds for every launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    all_written_names,
    names_in,
    reached,
    reads_memory,
    root_of,
    writes_memory,
)
from cudaops.program.analysis.facts import Loop
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.analysis.polynomials import Polynomial, Symbol
from cudaops.program.expressions import folded
from cudaops.program.launch_expression import LaunchExpression, build
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import changed, declared_in

Found = TypeVar("Found")

_SCALARS = INTEGERS | {"float", "double"}
_MOST = 2**31 - 1
"""Of an `int`."""


@dataclass(frozen=True)
class Counted:
    """`for (v = start; v < bound; v += step) body`, where only the step moves `v`, and neither the
    bound nor the step changes in the body. A `while` that ends in its step is one too."""

    node: s.For
    variable: str
    type: str
    """Of the variable."""
    start: Any
    """Expression; None where the variable has its value from before."""
    is_own: bool
    """The variable is declared in the loop's header."""
    operator: str
    """`<`, `<=`, `>` or `>=`, the variable on the left."""
    bound: Any
    step: Any
    """What is added; for a step down, what is taken away."""
    body: tuple[s.Statement, ...]
    """Without the step of a `while`."""

    @property
    def sign(self) -> str:
        """Of the step."""
        return "+" if self.operator in ("<", "<=") else "-"

    @property
    def stride(self) -> int | None:
        """The step where it is a literal."""
        return literal(self.step)

    def after(self, iterations: int) -> Any:
        """The variable so many iterations later."""
        name = s.Name(self.variable, type=self.type)
        return name if not iterations else s.Binary(self.sign, name, self.moved(iterations))

    def moved(self, iterations: int) -> Any:
        """By how much so many iterations move the variable, in its own type."""
        if self.stride is not None:
            return s.Number(str(self.stride * iterations), type="int")
        step = self.step
        if getattr(step, "type", "") != self.type:
            step = s.Cast(self.type, step)
        return (
            step if iterations == 1 else s.Binary("*", s.Number(str(iterations), type="int"), step)
        )

    def trips(self) -> int | None:
        """How often it runs, where all of it is literal."""
        start, bound, step = literal(self.start), literal(self.bound), self.stride
        if start is None or bound is None or not step:
            return None
        span = bound - start if self.sign == "+" else start - bound
        span += self.operator in ("<=", ">=")
        return max(0, -(-span // step))


def literal(node: Any) -> int | None:
    """An integer as written, with its sign."""
    if isinstance(node, s.Unary) and node.operator == "-":
        inner = literal(node.operand)
        return None if inner is None else -inner
    return s.integer_of(node)


def number(value: int) -> Any:
    """An `int` as a literal with its sign."""
    found = s.Number(str(abs(value)), type="int")
    return s.Unary("-", found, type="int") if value < 0 else found


def computed(node: Any) -> Any:
    """The literal in place of arithmetic of `int` literals: `-5 / 2` is `-2`."""
    value = None if literal(node) is not None else _value(node)
    return node if value is None else number(value)


def _value(node: Any) -> int | None:
    """What literals come to in `int`; None for anything else, and beyond its range."""
    if getattr(node, "type", "") not in ("int", ""):
        return None
    match node:
        case s.Number():
            return literal(node)
        case s.Unary("-", operand):
            inner = _value(operand)
            return None if inner is None else -inner
        case s.Cast("int", operand):
            return _value(operand)
        case s.Binary("+" | "-" | "*" | "/" | "%" as operator, left, right):
            a, b = _value(left), _value(right)
            if a is None or b is None or (operator in "/%" and b == 0):
                return None
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
            results = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - b * quotient}
            return results[operator] if abs(results[operator]) <= _MOST else None
    return None


def counted(node: s.For, form: s.KernelForm) -> Counted:
    """The loop as one that counts. Raises NotUnderstood."""
    step, body = node.step, node.body
    if not step and body and isinstance(body[-1], s.Evaluate):
        if any(isinstance(x, s.Leave) and x.word == "continue" for x in s.below(body)):
            raise NotUnderstood("a `while` with `continue`")
        step, body = (body[-1].value,), body[:-1]
    if len(step) != 1:
        raise NotUnderstood("a loop without a single induction variable")
    variable, by, sign = _stepping(step[0])
    operator, bound = _comparison(node.condition, variable)
    if sign != ("+" if operator in ("<", "<=") else "-"):
        raise NotUnderstood("a step in the wrong direction")
    start, is_own = _beginning(node.first, variable)
    start, bound, by = (computed(x) for x in (start, bound, by))
    if operator == "<=" and (last := literal(bound)) is not None and last < _MOST:
        operator, bound = "<", number(last + 1)
    loop = Counted(node, variable.text, variable.type, start, is_own, operator, bound, by, body)
    if variable.type not in INTEGERS:
        raise NotUnderstood(f"a loop over a {variable.type or 'value'}")
    _stays(loop, form)
    return loop


def _stepping(step: Any) -> tuple[s.Name, Any, str]:
    match step:
        case s.Step(s.Name() as name, by):
            return name, s.Number(str(abs(by)), type="int"), "+" if by > 0 else "-"
        case s.Assign(s.Name() as name, "+" | "-" as sign, by):
            return _upwards(name, by, sign)
        case s.Assign(s.Name() as name, "", s.Binary("+" | "-" as sign, s.Name(text), by)) if (
            text == name.text
        ):
            return _upwards(name, by, sign)
    raise NotUnderstood("an unsupported loop step")


def _upwards(name: s.Name, by: Any, sign: str) -> tuple[s.Name, Any, str]:
    value = literal(by)
    if value is not None and value <= 0:
        raise NotUnderstood("a step that is not positive")
    return name, by, sign


def _comparison(condition: Any, variable: s.Name) -> tuple[str, Any]:
    match condition:
        case s.Binary(operator, s.Name(text), bound) if (
            text == variable.text and operator in s.ORDERS
        ):
            return operator, bound
        case s.Binary(operator, bound, s.Name(text)) if (
            text == variable.text and operator in s.ORDERS
        ):
            return s.MIRRORED[operator], bound
    raise NotUnderstood("a loop that does not compare its variable with a bound")


def _beginning(first: Sequence[Any], variable: s.Name) -> tuple[Any, bool]:
    match tuple(first):
        case ():
            return None, False
        case (s.Declare(name=name, value=value),) if name == variable.text and value is not None:
            return value, True
        case (s.Evaluate(s.Assign(s.Name(name), "", value)),) if name == variable.text:
            return value, False
    raise NotUnderstood("an unsupported loop initialisation")


def _stays(loop: Counted, form: s.KernelForm) -> None:
    """Raises NotUnderstood unless only the step moves the variable, and nothing the bound."""
    fixed = {loop.variable} | names_in(loop.bound) | names_in(loop.step)
    changes = all_written_names(loop.body, form)
    if fixed & changes:
        raise NotUnderstood(f"a loop body that changes {', '.join(sorted(fixed & changes))}")
    ends = (loop.bound, loop.step)
    if any(isinstance(x, s.Call) and x.function not in PURE for x in s.below(ends)):
        raise NotUnderstood("a loop bound from a function call")
    if reads_memory(ends) and writes_memory(loop.body, form):
        raise NotUnderstood("a loop bound in memory that the loop may overwrite")


def size_of(body: Any, form: s.KernelForm) -> int:
    """Operations of it, those of the program's functions included, each function once."""
    return sum(isinstance(x, s.Binary | s.Assign | s.Index | s.Call) for x in reached(body, form))


def is_innermost(loop: s.For) -> bool:
    """Whether no loop stands in it."""
    return not any(isinstance(x, s.For | s.Do) for x in s.below(loop.body))


# Making copies of a body


def copy_of(body: Any, places: Mapping[Any, Any]) -> tuple[Any, ...]:
    """A body once more, with other expressions for variables and fields (by their trees), and
    without its comments. A declared variable that is among them is declared under its new name."""

    def change(x: Any) -> Any:
        match x:
            case s.Name() | s.Member() if x in places:
                return places[x]
            case s.Declare(pointer=True, extents=(), value=value) if value is not None:
                x = replace(x, type="auto", pointer=False)
            case s.Refer():
                x = replace(x, type="auto")
        if isinstance(x, s.Declare | s.Refer) and (new := places.get(s.Name(x.name))) is not None:
            x = replace(x, name=new.text)
        return replace(x, where=None) if isinstance(x, s.Statement) else x

    made = changed(tuple(body), change)
    assert isinstance(made, tuple)
    return made


def by_several(loop: Counted, factor: int, body: Sequence[Any]) -> tuple[Any, ...]:
    """The loop with `body`, which does so many iterations at a time, and one with its own body for
    those that are left; the loop's variable is declared beside them where there may be any."""
    node, trips = loop.node, loop.trips()
    step = (s.Assign(s.Name(loop.variable), loop.sign, loop.moved(factor)),)
    if trips is not None and trips % factor == 0 and node.first:
        return (replace(node, step=step, body=tuple(body)),)
    ahead = s.Binary(loop.operator, loop.after(factor - 1), loop.bound)
    last: Any = node.step or (node.body[-1].value,)  # type: ignore[union-attr]  # of a `while`
    return (
        *node.first,
        replace(node, first=(), condition=ahead, step=step, body=tuple(body)),
        s.For((), node.condition, last, copy_of(loop.body, {})),
    )


def scoped(body: Sequence[Any]) -> tuple[Any, ...]:
    """The statements as they can stand beside others: in braces where they declare something."""
    declares = any(isinstance(x, s.Declare | s.Refer) for x in body)
    return (s.Block(tuple(body)),) if declares else tuple(body)


def plainly_declared(function: s.Function, name: str) -> bool:
    """Whether a variable has its name to itself in the whole function."""
    plain = s.plain_name(name)
    same = [x for x in declared_in(function.body) if s.plain_name(x) == plain]
    return same == [name] and all(p.name != plain for p in function.parameters)


def scalars_of(function: s.Function) -> dict[str, str]:
    """Variables of the function that hold one number each, and nobody's address is taken of, with
    their types; parameters too."""
    found = {p.name: p.type for p in function.parameters if not p.is_pointer and not p.unclear}
    pointed = set()
    for x in s.below(function.body):
        match x:
            case s.Declare(kind, name, pointer=False, extents=(), shared=False):
                found[name] = kind
            case s.Unary("&", operand) | s.Refer(target=operand):
                pointed.add(root_of(operand))
    return {n: t for n, t in found.items() if t in _SCALARS and n not in pointed}


# Which loops there are


@dataclass(frozen=True)
class Placed:
    """A loop of the draft's kernel, or of a function that it calls."""

    function: str
    """Empty for the kernel's own."""
    number: int
    """Among the function's loops, in the text's order, from 0."""
    node: s.For

    @property
    def setting(self) -> dict[str, int | str]:
        """How a setting names it."""
        named: dict[str, int | str] = {"loop": self.number}
        return named | {"function": self.function} if self.function else named


def hottest(draft: Draft, *, functions: bool = False) -> tuple[Placed, ...]:
    """Loops by what they cost in the most expensive launch, as far as it is known, the hottest
    first."""
    weighed: list[tuple[float, int, Placed]] = []
    owners: list[s.Function] = [draft.form.kernel]
    if functions:
        owners += draft.form.functions
    for function in owners:
        name = "" if function is draft.form.kernel else function.name
        for number, node in enumerate(_loops(function.body)):
            weighed.append((-_weight(draft, node), len(weighed), Placed(name, number, node)))
    return tuple(placed for *_, placed in sorted(weighed, key=lambda x: x[:2]))


def analysable_loops(
    draft: Draft, read: Callable[[Draft, s.For], Found]
) -> Iterator[tuple[Placed, Found]]:
    """The loops that can be read, the hottest first, with what was read of each. `read` raises
    NotUnderstood for the others."""
    for placed in hottest(draft):
        try:
            found = read(draft, placed.node)
        except NotUnderstood:
            continue
        yield placed, found


def _loops(body: Any) -> Iterator[s.For]:
    return (x for x in s.below(tuple(body)) if isinstance(x, s.For))


_UNKNOWN_TRIPS = 16


def _weight(draft: Draft, node: s.For) -> float:
    """Statements that run in the loop, inner ones by their trips."""
    try:
        loops = draft.timed_facts.loops
    except NotUnderstood:  # a kernel that is too large to follow
        loops = ()
    return _cost(node, {o.where: o for o in loops if o.where is not None})


def _cost(node: Any, loops: Mapping[Any, Loop]) -> float:
    inside = sum(_cost(x, loops) for x in s.children(node))
    if isinstance(node, s.For):
        found = loops.get(node.where)
        trips = _UNKNOWN_TRIPS if found is None or found.trips.high is None else found.trips.high
        return inside * max(trips, 0)
    return inside + isinstance(node, s.Binary | s.Call | s.Assign | s.Index)


def loop_of(function: s.Function, number: int | str) -> s.For:
    """The one that a setting names. Raises NotUnderstood."""
    for at, node in enumerate(_loops(function.body)):
        if at == number:
            return node
    raise NotUnderstood("no such loop")


# What a launch must keep to


def conditions(draft: Draft, loop: Counted, iterations: int) -> tuple[LaunchExpression, ...]:
    """What `@requires` says for a loop to look so many iterations ahead: its step is positive, and
    the bound not so near to its type's last number that looking ahead passes it.

    A bound that is no parameter is a count of what stands in memory, or of what fits into a launch,
    and never so near. Raises NotUnderstood where the step's sign cannot be told.
    """
    found: list[LaunchExpression] = []
    step = build(loop.stride or 0)
    if loop.stride is None:
        moved = _step_of(draft, loop)
        found += positive(draft, moved)
        step = moved.launch_expression(draft.launch_expression)
    given = {p.name for p in draft.kernel.parameters}
    bound = loop.bound
    is_wide = loop.type.endswith("long long") or loop.sign == "-"
    if isinstance(bound, s.Name) and bound.text in given and not is_wide:
        most = (1 << (32 if loop.type.startswith("unsigned") else 31)) - 1
        found.append(draft.launch_expression(bound.text) <= folded(most - iterations * step))
    return tuple(found)


def _step_of(draft: Draft, loop: Counted) -> Polynomial:
    facts = [x for x in draft.facts.loops if x.where == loop.node.where]
    steps = {x.step for x in facts if x.step is not None}
    if len(steps) != 1:
        raise NotUnderstood("an unknown step")
    step = steps.pop()
    return step if loop.sign == "+" else -step


def positive(draft: Draft, value: Polynomial) -> list[LaunchExpression]:
    """What must hold for a polynomial over a launch to be 1 or more. Raises NotUnderstood."""
    found = []
    parameters = {p.name for p in draft.kernel.parameters}
    for atom in set(value.atoms()):
        if not isinstance(atom, Symbol):
            raise NotUnderstood("a step that is divided for")
        if atom.name in parameters:
            found.append(draft.launch_expression(atom.name) > 0)
        elif not atom.name.startswith(("blockDim.", "gridDim.")):
            raise NotUnderstood(f"a step of {atom.name.partition('#')[0]}")
    if not value.terms or not value.sure_nonnegative:
        raise NotUnderstood("a step that may be negative")
    return sorted(found, key=str)


def looks_ahead(loop: Counted) -> None:
    """Raises NotUnderstood unless `v + k < bound` says that `v < bound` would hold k steps later:
    both signed or both unsigned, or the variable never negative."""
    kinds = {_is_signed(loop.type), _is_signed(getattr(loop.bound, "type", ""))}
    if loop.sign == "-" and kinds != {True}:
        raise NotUnderstood("an unsigned loop that counts down")
    if len(kinds) == 2 and not _is_counted_up(loop.start):
        raise NotUnderstood("a signed variable against an unsigned bound")


def _is_signed(kind: str) -> bool:
    return kind in ("int", "long long", "short", "char", "signed char", "unsigned char",
                    "unsigned short", "bool")  # fmt: skip


def _is_counted_up(start: Any) -> bool:
    """Whether an expression is made of indices and positive numbers alone."""
    match start:
        case s.Number():
            return literal(start) is not None
        case s.Member(s.Name(root)):
            return root in s.BUILTINS
        case s.Binary("+" | "*" | "/" | "%", left, right):
            return _is_counted_up(left) and _is_counted_up(right)
    return False
