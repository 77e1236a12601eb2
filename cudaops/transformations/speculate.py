"""Loads under a condition made without it, from a safe address where the condition does not hold.

`if (inside) s += a[i];` waits for its load before the next such statement begins its own: a branch
is around it. `a[inside ? i : 0]` loads in any case, so that the loads of several statements, or of
several turns of a loop, are on their way together; what is done with the value stays under the
condition, and the index is only computed where it holds.

Legal where nothing in the launch writes the array (`memory`), the load is reached whenever the
condition holds, and the first element can be read: the pointer is not null, which every launch is
asked, and does not point past the end of its allocation, as captured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.domain.workload import PointerArgument
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, may_write, names_in, plain_variables
from cudaops.program.launch_expression import LaunchExpression, Variable
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.ranges import Ranges
from cudaops.transformations.trees import bodies_of, changed, renamed

MOST_STATEMENTS = 12
"""Under a condition: more are worth a branch."""
MOST_LOADS = 4
_DEEPEST = 8
_LAZY = ("&&", "||")


class Speculate:
    """Loads before the conditions they stand under."""

    name = "speculate"
    title = "speculative loads"
    family: Family = "other"
    relieves = frozenset({"stall_long_scoreboard", "stall_branch", "divergence"})

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there are such loads."""
        return ({},) if next(_found(draft), None) is not None else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them."""
        found = {id(x.statement): x for x in _found(draft)}
        if not found:
            raise NotUnderstood("no conditional load that is safe without its condition")
        names = _Names(draft)
        kernel = draft.form.kernel

        def visit(body: tuple[Any, ...]) -> tuple[Any, ...]:
            lines: list[Any] = []
            for statement in body:
                known = found.get(id(statement))
                lines += _ahead(known, names) if known else (_within(statement, visit),)
            same = len(lines) == len(body) and all(a is b for a, b in zip(lines, body, strict=True))
            return body if same else tuple(lines)

        edited = draft.with_body(visit(kernel.body))
        guards = [_exists(draft, array) for x in found.values() for array in x.arrays]
        step = Step(self.name, setting, "Loads are hoisted above their conditions.")
        return edited.requiring(*(g for g in guards if g is not None)).stepped(step)


@dataclass(frozen=True)
class _Conditional:
    """One `if`, and the loads in it that can go ahead of it."""

    statement: s.If
    loads: tuple[tuple[s.Index, s.Expression], ...]
    """The load, and its index as it can be written before the `if`."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """That are loaded from."""
        return tuple(x.base.text for x, _ in self.loads if isinstance(x.base, s.Name))


def _found(draft: Draft) -> Iterator[_Conditional]:
    memory, ranges = Memory(draft), Ranges(draft)
    kernel = draft.form.kernel
    plain = plain_variables(kernel)
    pointers = {
        p.name for p in kernel.parameters
        if p.is_pointer and memory.is_read_only(p.name) and _has_first(draft, p.name)
    }  # fmt: skip
    # In a switch a declaration would stand between its cases.
    kept = {id(y) for x in s.below(kernel.body) if isinstance(x, s.Switch) for y in s.below(x)}
    for x in s.below(kernel.body):
        if (
            id(x) in kept
            or not isinstance(x, s.If)
            or x.no
            or not 0 < len(x.yes) <= MOST_STATEMENTS
        ):
            continue
        if any(isinstance(y, s.For | s.Do | s.Switch | s.Opaque) for y in s.below(x.yes)):
            continue
        loads: dict[s.Index, s.Expression] = {}
        for load in _reached(x.yes):
            if not isinstance(load.base, s.Name) or load.base.text not in pointers:
                continue
            index = _before(load.index, x, ranges, plain, draft.form)
            if index is not None and load.base.text not in names_in(x.condition):
                loads[load] = index
        if loads and len(loads) <= MOST_LOADS:
            yield _Conditional(x, tuple(loads.items()))


def _reached(body: tuple[Any, ...]) -> Iterator[s.Index]:
    """Loads that are made whenever the body is entered."""
    for statement in body:
        if not isinstance(statement, s.Declare | s.Evaluate | s.If):
            return
        node = statement.condition if isinstance(statement, s.If) else statement
        yield from _always(node)
        if isinstance(statement, s.If) and any(
            isinstance(x, s.Leave | s.Give) for x in s.below(statement)
        ):
            return


def _always(node: Any) -> Iterator[s.Index]:
    """Loads in an expression that are made whenever it is evaluated."""
    match node:
        case s.Choice(condition):
            yield from _always(condition)
        case s.Binary(operator, left, _) if operator in _LAZY:
            yield from _always(left)
        case s.Unary("&", _):
            return
        case s.Index(base, index):
            yield node
            yield from _always(base)
            yield from _always(index)
        case _:
            for child in s.children(node):
                yield from _always(child)


def _before(
    index: s.Expression, conditional: s.If, ranges: Ranges, plain: frozenset[str],
    form: s.KernelForm,
) -> s.Expression | None:  # fmt: skip
    """The index over what is known before the `if`."""
    for _ in range(_DEEPEST):
        inside = {n for n in names_in(index) - s.BUILTINS if may_write(conditional.yes, {n}, form)}
        if not inside:
            break
        values = {n: ranges.value_as(n) for n in inside}
        if None in values.values():
            return None
        index = renamed(index, values)
    names = names_in(index) - s.BUILTINS
    known = is_pure(index) and not any(isinstance(x, s.Index | s.Choice) for x in s.below(index))
    return (
        index if known and names <= plain and not may_write(conditional.yes, names, form) else None
    )


def _has_first(draft: Draft, pointer: str) -> bool:
    """Whether the first element lies in the allocation at every launch."""
    for workload in draft.workloads:
        given = next((a for a in workload.arguments if a.name == pointer), None)
        if not isinstance(given, PointerArgument):
            return False
        sizes = {a.index: a.size_bytes for a in workload.allocations}
        element = dict(draft.form.sizes).get(_pointee(draft, pointer), 16)
        if given.offset_bytes + element > sizes[given.allocation]:
            return False
    return True


def _pointee(draft: Draft, pointer: str) -> str:
    return next(p.type for p in draft.form.kernel.parameters if p.name == pointer)


def _exists(draft: Draft, pointer: str) -> LaunchExpression | None:
    given = draft.author_argument(pointer)
    return None if given is None else given.differs(Variable("nullptr"))


class _Names:
    """New ones for a draft, each once."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._taken: set[str] = set()

    def free(self, wanted: str) -> str:
        """This, or with a number."""
        name, at = self._draft.fresh_name(wanted), 2
        while name in self._taken:
            name, at = self._draft.fresh_name(f"{wanted}{at}"), at + 1
        self._taken.add(name)
        return name


def _ahead(conditional: _Conditional, names: _Names) -> tuple[Any, ...]:
    statement = conditional.statement
    lines: list[Any] = []
    condition = statement.condition
    if not isinstance(condition, s.Name):
        name = names.free("holds")
        lines.append(s.Declare("const bool", name, value=condition))
        condition = s.Name(name, type="bool")
    values: dict[s.Index, s.Name] = {}
    for load, index in conditional.loads:
        assert isinstance(load.base, s.Name)
        value = s.Name(names.free(f"{load.base.text}_value"), type=load.type)
        safe = s.Choice(condition, index, s.Number("0", type="int"), type="int")
        read = s.Index(load.base, safe, type=load.type)
        lines.append(s.Declare(f"const {load.type}", value.text, value=read))
        values[load] = value
    yes = changed(
        statement.yes,
        lambda x: values.get(x, x) if isinstance(x, s.Index) else x,
    )
    return (*lines, replace(statement, condition=condition, yes=yes))


def _within(statement: Any, visit: Any) -> Any:
    """A statement with the bodies in it visited."""
    for body in bodies_of(statement):
        new = visit(body)
        if new is not body:
            statement = _with(statement, body, new)
    return statement


def _with(statement: Any, old: tuple[Any, ...], new: tuple[Any, ...]) -> Any:
    if isinstance(statement, s.If):
        is_yes = statement.yes is old
        return replace(statement, yes=new) if is_yes else replace(statement, no=new)
    return replace(statement, body=new)
