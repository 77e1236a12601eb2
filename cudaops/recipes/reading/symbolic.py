"""Runs a kernel's body once with unknowns in place of numbers, and lists what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number, of
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.reading.expressions import Expressions, integer_type
from cudaops.recipes.reading.values import (
    Apply,
    Below,
    Carried,
    Pointer,
    Reduced,
    Value,
    Whole,
    conjuncts,
    converted,
    negated,
    parts,
)


@dataclass(frozen=True)
class Loop:
    """A loop around a write: variable = 0 .. count-1."""

    variable: Symbol
    count: Polynomial


@dataclass(frozen=True)
class Store:
    """One write to memory."""

    place: Pointer
    value: Value
    guards: tuple[Value, ...]
    loops: tuple[Loop, ...]
    after_barriers: int
    """`__syncthreads()` passed before it, in the text's order."""


@dataclass
class Effects:
    """All that a body does to the outside, in the text's order."""

    stores: list[Store] = field(default_factory=list)
    barriers: list[tuple[Loop, ...]] = field(default_factory=list)
    """Loops around each barrier."""
    shared: dict[str, tuple[Polynomial, ...]] = field(default_factory=dict)
    """Extents of each shared array."""


Inline = Mapping[str, Callable[[tuple[Value, ...]], Value]]


class Execution:
    """One symbolic run of a body."""

    def __init__(self, env: dict[str, Value], inline: Inline) -> None:
        self.effects = Effects()
        self._env = env
        self._guards: tuple[Value, ...] = ()
        self._loops: tuple[Loop, ...] = ()
        self._branch = 0
        self._inline = inline
        self._names = 0

    def run(self, body: tuple[s.Statement, ...]) -> Effects:
        """Everything the body does. Raises NotUnderstood."""
        self._statements(body)
        return self.effects

    @property
    def _read(self) -> Expressions:
        return Expressions(self._env, self._loadable, self._inline)

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
            if not isinstance(value, Pointer) or value.type != node.type:
                raise NotUnderstood("a pointer of another type")
        else:
            value = converted(value, node.type)
        self._env[node.name] = value

    def _pending(self, node: s.Declare) -> None:
        """A variable without a value: its first assignment gives it one, of the declared type."""
        if not node.pointer:
            self._env[f"{node.name}:type"] = Whole(number(0), node.type)

    def _array(self, node: s.Declare) -> None:
        if not node.shared or self._loops or self._branch:
            raise NotUnderstood("a local array")
        self.effects.shared[node.name] = tuple(self._read.whole(e) for e in node.extents)
        self._env[node.name] = Pointer(node.name, number(0), node.type, shared=True)

    def _evaluate(self, node: s.Expression) -> None:
        match node:
            case s.Assign(target, operator, value):
                self._assign(target, operator, self._read.value(value))
            case s.Step(target, by):
                self._assign(target, "+", Whole(number(by)))
            case s.Call("__syncthreads", ()):
                if self._branch:
                    raise NotUnderstood("a barrier under a condition")
                self.effects.barriers.append(self._loops)
            case _:
                raise NotUnderstood("a statement without a known effect")

    def _assign(self, target: s.Expression, operator: str, value: Value) -> None:
        if isinstance(target, s.Name):
            if operator:
                value = self._read.binary(operator, self._read.value(target), value)
            self._bind(target.text, value)
            return
        place = self._read.place(target)
        if operator:
            value = self._read.binary(operator, self._read.load(place), value)
        loops, passed = self._loops, len(self.effects.barriers)
        stored = Store(place, converted(value, place.type), self._guards, loops, passed)
        self.effects.stores.append(stored)

    def _bind(self, name: str, value: Value) -> None:
        pending = self._env.pop(f"{name}:type", None)
        if pending is None and name not in self._env:
            raise NotUnderstood(f"the name {name}")
        old = self._env.get(name, pending)
        if old is None or isinstance(old, Pointer) != isinstance(value, Pointer):
            raise NotUnderstood("a pointer turned into a number")
        self._env[name] = value if isinstance(value, Pointer) else converted(value, old.type)

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
        self._env = {n: _merged(test, first[n], second[n]) for n in first if n in second}
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

    def _joined(self, test: Value, yes: list[Store], no: list[Store]) -> list[Store]:
        """Two writes of both branches to one place are one write of a choice."""
        if len(yes) != 1 or len(no) != 1 or yes[0].place != no[0].place:
            return [*yes, *no]
        chosen = Apply("?:", (test, yes[0].value, no[0].value), yes[0].value.type)
        return [replace(yes[0], value=chosen, guards=self._guards)]

    def _for(self, node: s.For) -> None:
        outer = dict(self._env)
        name, start = self._loop_start(node)
        if name in outer:
            raise NotUnderstood(f"a second {name}")
        step = _loop_step(node, name)
        self._names += 1
        variable = Symbol(f"{name}#{self._names}")
        position = start + of(variable) * number(step)
        self._env[name] = Whole(position)
        count = self._loop_count(node, variable, start, step)
        carried = [n for n in _assigned(node.body) if n in outer and n != name]
        for other in carried:
            self._env[other] = Carried(other, outer[other].type)
        entered, guards = dict(self._env), self._guards
        self._loops += (Loop(variable, count),)
        self._statements(node.body)
        self._loops, self._guards = self._loops[:-1], guards
        if self._env.get(name) != entered[name]:
            raise NotUnderstood("a loop variable that the body modifies")
        after, self._env = self._env, outer
        for other in carried:
            self._env[other] = _accumulated(outer[other], after.get(other), other, variable, count)

    def _loop_start(self, node: s.For) -> tuple[str, Polynomial]:
        match node.first:
            case (s.Declare(kind, name, False, (), False, value),) if value is not None:
                start = converted(self._read.value(value), kind)
            case _:
                raise NotUnderstood("a loop without a variable of its own")
        if not isinstance(start, Whole):
            raise NotUnderstood("a loop that starts at data")
        return name, start.value

    def _loop_count(
        self, node: s.For, variable: Symbol, start: Polynomial, step: int
    ) -> Polynomial:
        """Iterations; not positive where there is none."""
        if node.condition is None:
            raise NotUnderstood("a loop without a bound")
        condition = self._read.value(node.condition)
        if not isinstance(condition, Below):
            raise NotUnderstood("an unsupported loop condition")
        remaining = of(variable) * number(step) - condition.value
        if remaining.has(variable):
            raise NotUnderstood("an unsupported loop condition")
        return remaining if step == 1 else divide(remaining + number(step - 1), number(step))


def _merged(test: Value, yes: Value, no: Value) -> Value:
    if yes == no:
        return yes
    if isinstance(yes, Whole | Pointer) or isinstance(no, Whole | Pointer):
        raise NotUnderstood("an index that depends on a condition")
    return Apply("?:", (test, yes, no), yes.type)


def _loop_step(node: s.For, name: str) -> int:
    match node.step:
        case (s.Step(s.Name(text), 1),) if text == name:
            return 1
        case (s.Assign(s.Name(text), "+", s.Number(amount)),) if text == name and amount.isdigit():
            if int(amount) > 0:
                return int(amount)
    raise NotUnderstood("a loop's step")


def _assigned(body: tuple[s.Statement, ...]) -> Iterator[str]:
    """Names of variables that a body assigns, each once."""
    seen: set[str] = set()
    for node in s.below(body):
        if isinstance(node, s.Evaluate) and isinstance(node.value, s.Assign | s.Step):
            target = node.value.target
            if isinstance(target, s.Name) and target.text not in seen:
                seen.add(target.text)
                yield target.text


def _accumulated(
    first: Value, after: Value | None, name: str, variable: Symbol, count: Polynomial
) -> Value:
    """What a loop leaves in a variable to which each iteration adds one term."""
    start = Carried(name, first.type)
    match after:
        case Reduced(begin, inner, inner_count, inner_term, kind) if begin == start:
            nothing = Whole(number(0)) if integer_type(kind) else converted(Whole(number(0)), kind)
            term: Value = Reduced(nothing, inner, inner_count, inner_term, kind)
        case Apply("+", (left, right)) if start in (left, right):
            term = right if left == start else left
        case Apply("cast", (Apply("+", (left, right)),)) if start in (left, right):
            term = right if left == start else left
        case Apply("fma", (left, right, begin), kind) if begin == start:
            term = Apply("*", (left, right), kind)
        case _:
            raise NotUnderstood(f"an unsupported update of {name} in the loop")
    if any(isinstance(p, Carried) for p in parts(term)):
        raise NotUnderstood(f"an unsupported update of {name} in the loop")
    return Reduced(first, variable, count, term, first.type)
