"""Runs a kernel's body once with unknowns in place of numbers, and lists what it writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number, of
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.reading.expressions import Around, SymbolicExpressions, integer_type
from cudaops.recipes.reading.values import (
    RANK,
    Apply,
    Below,
    Carried,
    Reduced,
    SymbolicInteger,
    SymbolicPointer,
    SymbolicStructure,
    Value,
    conjuncts,
    converted,
    is_zero,
    negated,
    parts,
)


@dataclass(frozen=True)
class SymbolicLoop:
    """A loop around a write: variable = 0 .. count-1."""

    variable: Symbol
    count: Polynomial


@dataclass(frozen=True)
class SymbolicStore:
    """One write to memory."""

    place: SymbolicPointer
    value: Value
    guards: tuple[Value, ...]
    loops: tuple[SymbolicLoop, ...]
    after_barriers: int
    """`__syncthreads()` passed before it, in the text's order."""


@dataclass
class Effects:
    """All that a body does to the outside, in the text's order."""

    stores: list[SymbolicStore] = field(default_factory=list)
    barriers: list[tuple[SymbolicLoop, ...]] = field(default_factory=list)
    """Loops around each barrier."""
    shared: dict[str, tuple[Polynomial, ...]] = field(default_factory=dict)
    """Extents of each shared array."""
    nonnegative: list[Polynomial] = field(default_factory=list)
    """Of the launch's own numbers: taken not to be negative."""


class Execution(Around):
    """One symbolic run of a body."""

    def __init__(self, env: dict[str, Value], functions: Mapping[str, s.Function]) -> None:
        self.effects = Effects()
        self._env = env
        self._guards: tuple[Value, ...] = ()
        self._loops: tuple[SymbolicLoop, ...] = ()
        self._branch = 0
        self._functions = functions
        self._names = 0
        self._cells: dict[SymbolicPointer, Value] = {}
        """What a loop has added up so far in elements of global memory, by where they stand."""
        self._outside: tuple[Value, ...] = ()
        """The guards around that loop."""

    def run(self, body: tuple[s.Statement, ...]) -> Effects:
        """Everything the body does. Raises NotUnderstood."""
        self._statements(body)
        return self.effects

    @property
    def _read(self) -> SymbolicExpressions:
        return SymbolicExpressions(self._env, self)

    def loaded(self, place: SymbolicPointer) -> Value | None:
        """See `Around.loaded`."""
        if place in self._cells:
            return self._cells[place]
        if any(cell.array == place.array for cell in self._cells):
            raise NotUnderstood(f"{place.array} read where it is added to")
        if not place.shared and (own := self._last_written(place)) is not None:
            return own.value
        self._loadable(place.array)
        return None

    def called(self, function: str, arguments: tuple[Value, ...]) -> Value | None:
        """See `Around.called`. A function that calls itself is not among those it may call."""
        found = self._functions.get(function)
        if found is None:
            return None
        *lines, last = found.body or (None,)
        if not isinstance(last, s.Give):
            raise NotUnderstood(f"the body of {function}")
        with self._inside(found, arguments):
            self._straight(function, lines)
            return converted(self._read.value(last.value), found.result)

    def _straight(self, function: str, lines: Sequence[s.Statement | None]) -> None:
        """A function's statements, without branches or loops."""
        for line in lines:
            if not isinstance(line, s.Declare | s.Evaluate):
                raise NotUnderstood(f"the body of {function}")
            self._statement(line)

    @contextlib.contextmanager
    def _inside(self, function: s.Function, arguments: tuple[Value, ...]) -> Iterator[None]:
        """While its body runs: its names are its own."""
        if len(function.parameters) != len(arguments) or function.is_method:
            raise NotUnderstood(f"a call of {function.name}")
        env: dict[str, Value] = {}
        for parameter, value in zip(function.parameters, arguments, strict=True):
            if parameter.unclear or parameter.is_reference:
                raise NotUnderstood(f"the parameters of {function.name}")
            env[parameter.name] = converted(value, parameter.type)
        outer, functions, branch = self._env, self._functions, self._branch
        self._functions = {n: f for n, f in functions.items() if f is not function}
        self._env, self._branch = env, branch + 1
        try:
            yield
        finally:
            self._env, self._functions, self._branch = outer, functions, branch

    def is_nonnegative(self, value: Polynomial) -> bool:
        """See `Around.is_nonnegative`: what the launch computes of its own numbers is."""
        if value.sure_nonnegative:
            return True
        names = [a.name for a in value.atoms() if isinstance(a, Symbol)]
        if any("Idx." in name or "#" in name for name in names):
            return False
        self.effects.nonnegative.append(value)
        return True

    def _last_written(self, place: SymbolicPointer) -> SymbolicStore | None:
        """The last write to its array where that is this place, and made wherever what runs now
        runs."""
        last = next(
            (x for x in reversed(self.effects.stores) if x.place.array == place.array), None
        )
        if last is None or last.place != place:
            return None
        same_guards = self._guards[: len(last.guards)] == last.guards
        return last if same_guards and self._loops[: len(last.loops)] == last.loops else None

    def _loadable(self, array: str) -> None:
        writes = [s for s in self.effects.stores if s.place.array == array]
        if array in self.effects.shared:
            passed = len(self.effects.barriers)
            if not writes or any(s.after_barriers >= passed for s in writes):
                raise NotUnderstood(f"{array} read without a barrier after it was written")
        elif writes:
            raise NotUnderstood(f"{array} read after it was written")

    def _statements(self, body: tuple[s.Statement, ...]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: s.Statement) -> None:
        match statement:
            case s.Declare():
                self._declare(statement)
            case s.Evaluate(value):
                self._evaluate(value)
            case s.Block(body):
                self._scoped(body)
            case s.If(condition, (s.Leave("return") | s.Block((s.Leave("return"),)),), ()):
                self._early_return(condition)
            case s.If(condition, yes, no):
                self._if(condition, yes, no)
            case s.For():
                self._for(statement)
            case _:
                raise NotUnderstood(f"a {type(statement).__name__.lower()} statement here")

    def _scoped(self, body: tuple[s.Statement, ...]) -> None:
        outer = dict(self._env)
        guards = self._guards
        self._branch += 1
        self._statements(body)
        self._branch -= 1
        self._guards = guards
        self._env = {name: self._env.get(name, old) for name, old in outer.items()}

    def _declare(self, node: s.Declare) -> None:
        if node.name in self._env:
            raise NotUnderstood(f"a second {node.name}")
        if node.extents:
            self._array(node)
            return
        if node.shared:
            raise NotUnderstood("a shared variable")
        if node.value is None:
            self._pending(node)
            return
        value = self._read.value(node.value)
        if node.pointer:
            if not isinstance(value, SymbolicPointer) or value.type != node.type:
                raise NotUnderstood("a pointer of another type")
        else:
            value = converted(value, node.type)
        self._env[node.name] = value

    def _pending(self, node: s.Declare) -> None:
        """A variable without a value: its first assignment gives it one, of the declared type."""
        if node.type not in RANK and not node.pointer:
            self._env[node.name] = SymbolicStructure("", node.type)
        elif not node.pointer:
            self._env[f"{node.name}:type"] = SymbolicInteger(number(0), node.type)

    def _array(self, node: s.Declare) -> None:
        if not node.shared or self._branch:
            raise NotUnderstood("a local array")
        self.effects.shared[node.name] = tuple(self._read.whole(e) for e in node.extents)
        self._env[node.name] = SymbolicPointer(node.name, number(0), node.type, shared=True)

    def _evaluate(self, node: s.Expression) -> None:
        match node:
            case s.Assign(target, operator, value):
                self._assign(target, operator, self._read.value(value))
            case s.Step(target, by):
                self._assign(target, "+", SymbolicInteger(number(by)))
            case s.Call("__syncthreads", ()):
                if self._branch:
                    raise NotUnderstood("a barrier under a condition")
                self.effects.barriers.append(self._loops)
            case s.Call(name, arguments) if name in self._functions:
                given = tuple(self._read.value(a) for a in arguments)
                function = self._functions[name]
                with self._inside(function, given):
                    self._straight(name, function.body)
            case _:
                raise NotUnderstood("a statement without a known effect")

    def _assign(self, target: s.Expression, operator: str, value: Value) -> None:
        if isinstance(target, s.Name):
            if operator:
                value = self._read.binary(operator, self._read.value(target), value)
            self._bind(target.text, value)
            return
        if isinstance(target, s.Member) and isinstance(target.base, s.Name) and not operator:
            self._set_field(target.base.text, target.name, target.type, value)
            return
        place = self._read.place(target)
        if operator:
            value = self._read.binary(operator, self._read.load(place), value)
        self._store(place, converted(value, place.type))

    def _set_field(self, name: str, field: str, kind: str, value: Value) -> None:
        """Of a structure that is the thread's own."""
        structure = self._env.get(name)
        if not isinstance(structure, SymbolicStructure) or isinstance(value, SymbolicPointer) != (
            "*" in kind
        ):
            raise NotUnderstood(f"an assignment to a member of {name}")
        value = value if isinstance(value, SymbolicPointer) else converted(value, kind)
        self._env[name] = structure.with_field(field, value)

    def _store(self, place: SymbolicPointer, value: Value) -> None:
        while isinstance(value, Apply) and value.operator == "?:":
            if not set(conjuncts(value.operands[0])) <= set(self._guards):
                break
            value = value.operands[1]
        if place in self._cells:
            if self._guards != self._outside:
                raise NotUnderstood(f"{place.array} added to under a condition")
            self._cells[place] = value
            return
        stored = SymbolicStore(place, value, self._guards, self._loops, len(self.effects.barriers))
        last = self.effects.stores[-1] if self.effects.stores else None
        if last is not None and not place.shared and replace(last, value=value) == stored:
            del self.effects.stores[-1]  # nobody has read it
        self.effects.stores.append(stored)

    def _bind(self, name: str, value: Value) -> None:
        pending = self._env.pop(f"{name}:type", None)
        if pending is None and name not in self._env:
            raise NotUnderstood(f"the name {name}")
        old = self._env.get(name, pending)
        if old is None or isinstance(old, SymbolicPointer) != isinstance(value, SymbolicPointer):
            raise NotUnderstood("a pointer turned into a number")
        self._env[name] = (
            value if isinstance(value, SymbolicPointer) else converted(value, old.type)
        )

    def _early_return(self, condition: s.Expression) -> None:
        if self._loops or self._branch:
            raise NotUnderstood("a return inside a loop or branch")
        self._guards += conjuncts(negated(self._read.value(condition)))

    def _if(
        self, condition: s.Expression, yes: tuple[s.Statement, ...], no: tuple[s.Statement, ...]
    ) -> None:
        test = self._read.value(condition)
        before = len(self.effects.stores)
        first = self._guarded(test, yes)
        of_yes = self.effects.stores[before:]
        del self.effects.stores[before:]
        second = self._guarded(negated(test), no)
        self._env = {n: _merged(n, test, first[n], second[n]) for n in first if n in second}
        of_no = self.effects.stores[before:]
        self.effects.stores[before:] = self._joined(test, of_yes, of_no)

    def _guarded(self, test: Value, body: tuple[s.Statement, ...]) -> dict[str, Value]:
        """The environment after `body` under `test`; the one before is put back."""
        outer = dict(self._env)
        guards = self._guards
        self._guards += conjuncts(test)
        self._scoped(body)
        after, self._env, self._guards = self._env, outer, guards
        return after

    def _joined(
        self, test: Value, yes: list[SymbolicStore], no: list[SymbolicStore]
    ) -> list[SymbolicStore]:
        """Two writes of both branches to one place are one write of a choice."""
        if len(yes) != 1 or len(no) != 1 or yes[0].place != no[0].place:
            return [*yes, *no]
        chosen = Apply("?:", (test, yes[0].value, no[0].value), yes[0].value.type)
        return [replace(yes[0], value=chosen, guards=self._guards)]

    def _for(self, node: s.For) -> None:
        loop = _counted(node)
        self._statements(loop.first)
        outer = dict(self._env)
        start, kind = self._loop_start(loop)
        self._names += 1
        variable = Symbol(f"{loop.name}#{self._names}")
        step = self._step(loop)
        position = SymbolicInteger(start + of(variable) * number(step), kind)
        self._env.pop(f"{loop.name}:type", None)
        self._env[loop.name] = position
        count = self._loop_count(loop, variable, step)
        carried = [n for n in _assigned(loop.body) if n in outer and n != loop.name]
        for other in carried:
            self._env[other] = Carried(other, outer[other].type)
        steps = {n: self._moved_by(n, outer[n], loop.body) for n in carried}
        moved = {n: by for n, by in steps.items() if by is not None and not by.has(variable)}
        for other, by in moved.items():
            self._env[other] = _after(outer[other], of(variable) * by)
        entered, guards = dict(self._env), self._guards
        cells, outside = dict(self._cells), self._outside
        self._loops += (SymbolicLoop(variable, count),)
        added = self._begin_cells(loop.body, variable)
        self._statements(loop.body)
        self._loops, self._guards = self._loops[:-1], guards
        if self._env.get(loop.name) != position:
            raise NotUnderstood("a loop variable that the body modifies")
        after, self._env = self._env, outer
        left = {p: self._cells[p] for p in added}
        self._cells, self._outside = cells, outside
        for other in carried:
            if other not in moved:
                total = _accumulated(outer[other], after.get(other), other, variable, count)
                self._env[other] = total
            elif after.get(other) != _after(entered[other], moved[other]):
                raise NotUnderstood(f"an unsupported update of {other} in the loop")
            else:
                self._env[other] = Carried(other, outer[other].type)
        for place, first in added.items():
            self._store(place, _added(first, left[place], _cell(place), variable, count))
        if loop.name in outer or f"{loop.name}:type" in outer:
            self._env[loop.name] = Carried(loop.name, kind)
        gone = {x.name for x in loop.first if isinstance(x, s.Declare)}
        self._env = {n: v for n, v in self._env.items() if n not in gone}

    def _begin_cells(
        self, body: Sequence[s.Statement], variable: Symbol
    ) -> dict[SymbolicPointer, Value]:
        """Elements of global memory to which each iteration adds, with what they held before."""
        found: dict[SymbolicPointer, Value] = {}
        for node in body:
            match node:
                case s.Evaluate(s.Assign(s.Index() | s.Unary() as target, "+", _)):
                    place = self._read.place(target)
                    if not place.shared and not place.offset.has(variable) and place not in found:
                        found[place] = self._read.load(place)
        self._outside = self._guards
        self._cells |= {place: Carried(_cell(place), place.type) for place in found}
        return found

    def _moved_by(self, name: str, first: Value, body: Sequence[s.Statement]) -> Polynomial | None:
        """By how much every iteration moves an index or pointer; None where it does otherwise."""
        changes = [change for target, change in _assignments(body) if target == name]
        if not isinstance(first, SymbolicInteger | SymbolicPointer) or len(changes) != 1:
            return None
        if not any(isinstance(x, s.Evaluate) and x.value is changes[0] for x in body):
            return None
        match changes[0]:
            case s.Step(_, by):
                return number(by)
            case s.Assign(_, "+", by) | s.Assign(_, "", s.Binary("+", s.Name(), by)):
                with contextlib.suppress(NotUnderstood):
                    return self._read.whole(by)
        return None

    def _step(self, loop: _Counted) -> int:
        if isinstance(loop.step, int):
            return loop.step
        step = self._read.whole(loop.step).constant
        if step is None or step < 1:
            raise NotUnderstood("a loop's step")
        return step

    def _loop_start(self, loop: _Counted) -> tuple[Polynomial, str]:
        """The variable's first value and type."""
        known = self._env.get(loop.name) or self._env.get(f"{loop.name}:type")
        if loop.kind and known is not None:
            raise NotUnderstood(f"a second {loop.name}")
        kind = loop.kind or (known.type if known is not None else "")
        start = known if loop.start is None else converted(self._read.value(loop.start), kind)
        if not isinstance(start, SymbolicInteger) or (
            loop.start is None and loop.name not in self._env
        ):
            raise NotUnderstood("a loop that starts at a data-dependent value")
        return start.value, kind

    def _loop_count(self, loop: _Counted, variable: Symbol, by: int) -> Polynomial:
        """Iterations; not positive where there is none."""
        if loop.condition is None:
            raise NotUnderstood("a loop without a bound")
        condition = self._read.value(loop.condition)
        if not isinstance(condition, Below):
            raise NotUnderstood("an unsupported loop condition")
        step = number(by)
        remaining = of(variable) * step - condition.value
        if remaining.has(variable):
            raise NotUnderstood("an unsupported loop condition")
        return remaining if by == 1 else divide(remaining + number(by - 1), step)


@dataclass(frozen=True)
class _Counted:
    """A loop that steps one variable up."""

    name: str
    kind: str
    """Type of a variable of its own; empty for one from before."""
    start: s.Expression | None
    """None: the value it has from before."""
    step: s.Expression | int
    condition: s.Expression | None
    first: tuple[s.Statement, ...]
    """What else stands in its header."""
    body: tuple[s.Statement, ...]
    """With what else is stepped at its end."""


def _counted(node: s.For) -> _Counted:
    """Also a `while` whose body ends in the step. Raises NotUnderstood."""
    steps, body = tuple(node.step), tuple(node.body)
    if not steps and body and isinstance(body[-1], s.Evaluate):
        steps, body = (body[-1].value,), body[:-1]
    if any(isinstance(x, s.Leave) for x in s.below(body)):
        raise NotUnderstood("a loop with break, return or continue")
    compared = {x.text for x in s.below((node.condition,)) if isinstance(x, s.Name)}
    found = [step for step in map(_loop_step, steps) if step[0] in compared]
    if len(found) != 1:
        raise NotUnderstood("a loop's step")
    name, step = found[0]
    others = tuple(s.Evaluate(x) for x in steps if _loop_step(x)[0] != name)
    kind, start = "", None
    first: list[s.Statement] = []
    for line in node.first:
        match line:
            case s.Declare(own, declared, False, (), False, value) if declared == name:
                if value is None:
                    raise NotUnderstood("a loop without a start")
                kind, start = own, value
            case s.Evaluate(s.Assign(s.Name(assigned), "", value)) if assigned == name:
                start = value
            case _:
                first.append(line)
    return _Counted(name, kind, start, step, node.condition, tuple(first), (*body, *others))


def _merged(name: str, test: Value, yes: Value, no: Value) -> Value:
    """Behind both branches. Indices and pointers that differ are known no longer."""
    if yes == no:
        return yes
    places = SymbolicPointer | SymbolicStructure
    if isinstance(yes, places) or isinstance(no, places):
        return Carried(name, yes.type)
    if isinstance(yes, SymbolicInteger) and isinstance(no, SymbolicInteger):
        return Carried(name, yes.type)
    return Apply("?:", (test, yes, no), yes.type)


def _is_bound(test: Value, variable: Symbol) -> bool:
    """Whether a condition is made of bounds that a loop's variable has no part in."""
    if isinstance(test, Below):
        return not test.value.has(variable)
    return (
        isinstance(test, Apply)
        and test.operator in ("&&", "||", "!")
        and all(_is_bound(x, variable) for x in test.operands)
    )


def _loop_step(step: s.Expression) -> tuple[str, s.Expression | int]:
    """The variable that it moves, and by what."""
    match step:
        case s.Step(s.Name(name), by) if by > 0:
            return name, by
        case s.Assign(s.Name(name), "+", by):
            return name, by
        case s.Assign(s.Name(name), "", s.Binary("+", s.Name(same), by)) if same == name:
            return name, by
    raise NotUnderstood("a loop's step")


def _after(value: Value, by: Polynomial) -> Value:
    """An index or pointer so much further on."""
    if isinstance(value, SymbolicPointer):
        return replace(value, offset=value.offset + by)
    assert isinstance(value, SymbolicInteger)
    return replace(value, value=value.value + by)


def _assignments(body: Sequence[s.Statement]) -> Iterator[tuple[str, s.Assign | s.Step]]:
    """Statements that assign a variable, in the text's order, with its name."""
    for node in s.below(body):
        match node:
            case s.Evaluate(s.Assign(s.Name(name)) | s.Step(s.Name(name)) as change):
                yield name, change
            case s.Evaluate(s.Assign(s.Member(s.Name(name))) as change):
                yield name, change


def _assigned(body: Sequence[s.Statement]) -> tuple[str, ...]:
    """Names of variables that a body assigns, each once."""
    return tuple(dict.fromkeys(name for name, _ in _assignments(body)))


def _cell(place: SymbolicPointer) -> str:
    """A name for what stands there."""
    return f"{place.array}[{place.offset.text()}]"


def _added(first: Value, after: Value, cell: str, variable: Symbol, count: Polynomial) -> Value:
    """What a loop leaves in an element to which each iteration adds one term: its sum beside what
    stood there, which rounds as another order does."""
    total = _accumulated(first, after, cell, variable, count)
    if is_zero(first) or not isinstance(total, Reduced):
        return total
    alone = replace(total, first=converted(SymbolicInteger(number(0)), total.type))
    return Apply("+", (first, alone), total.type)


def _accumulated(
    first: Value, after: Value | None, name: str, variable: Symbol, count: Polynomial
) -> Value:
    """What a loop leaves in a variable to which each iteration adds one term."""
    start = Carried(name, first.type)
    match after:
        case Reduced(begin, inner, inner_count, inner_term, kind) if begin == start:
            nothing = (
                SymbolicInteger(number(0))
                if integer_type(kind)
                else converted(SymbolicInteger(number(0)), kind)
            )
            term: Value = Reduced(nothing, inner, inner_count, inner_term, kind)
        case Apply("+", (left, right)) if start in (left, right):
            term = right if left == start else left
        case Apply("cast", (Apply("+", (left, right)),)) if start in (left, right):
            term = right if left == start else left
        case Apply("fma", (left, right, begin), kind) if begin == start:
            term = Apply("*", (left, right), kind)
        case Apply("?:", (test, more, begin), kind) if begin == start and _is_bound(test, variable):
            total = _accumulated(first, more, name, variable, count)
            return Apply("?:", (test, total, first), kind)
        case _:
            raise NotUnderstood(f"an unsupported update of {name} in the loop")
    if any(isinstance(p, Carried) for p in parts(term)):
        raise NotUnderstood(f"an unsupported update of {name} in the loop")
    return Reduced(first, variable, count, term, first.type)
