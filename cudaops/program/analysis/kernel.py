"""Follows a kernel's body with unknowns for numbers, and lists what it does with memory.

It never refuses what it does not understand: that is listed, and values behind it are unknowns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cudaops.program import syntax as s
from cudaops.program.analysis.environment import LoopState, SwitchState
from cudaops.program.analysis.expressions import Expressions
from cudaops.program.analysis.facts import Depends, Guard, KernelFacts, Loop, Space, Unknown
from cudaops.program.analysis.intervals import INTEGERS, Interval
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number, of
from cudaops.program.analysis.values import (
    NOTHING,
    Address,
    Alias,
    Data,
    Env,
    Launched,
    MemoryName,
    Value,
    Whole,
    constant_of,
    is_in_memory,
)

_MOST_STATEMENTS = 8_000
"""Statements followed, loops and calls counted as often as they are: some seconds at the most."""


def analyse(form: s.KernelForm, launched: Launched | None = None) -> KernelFacts:
    """All accesses of a kernel. `launched` narrows the intervals; indices stay in names. Raises
    NotUnderstood for a kernel that is too large to follow."""
    launched = launched or Launched()
    found = _facts_or_why_not(
        _Form(form), frozenset(launched.values.items()), frozenset(launched.contents.items())
    )
    if isinstance(found, str):
        raise s.NotUnderstood(found)
    return found


class _Form:
    """A form as a key: the very same one. To hash all of it takes long, and `kernel_form` gives one
    object for one text."""

    def __init__(self, form: s.KernelForm) -> None:
        self.form = form

    def __hash__(self) -> int:
        return id(self.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and self.form is other.form


_Known = frozenset[tuple[str, Interval]]


@lru_cache(maxsize=64)
def _facts_or_why_not(form: _Form, values: _Known, contents: _Known) -> KernelFacts | str:
    """Kept either way: a draft is asked about under every transformation, and one that is too large
    takes the longest."""
    try:
        return _Statements(form.form, Launched(dict(values), dict(contents))).facts()
    except s.NotUnderstood as problem:
        return str(problem)


class _Statements(Expressions):
    def facts(self) -> KernelFacts:
        self._declare_builtins()
        for parameter in self._form.kernel.parameters:
            self._frame.env[parameter.name] = self._parameter(parameter)
        self._body(self._form.kernel.body)
        return KernelFacts(
            self._form.kernel.parameters, tuple(self._accesses), tuple(self._loops_found),
            tuple(self._barriers), tuple(self._variables.values()), tuple(self._calls),
            tuple(self._unmodelled), self._unknowns, tuple(self._collectives),
        )  # fmt: skip

    # Statements

    def _body(self, body: Sequence[s.Statement]) -> None:
        for statement in body:
            if self._dead:
                return
            self._steps += 1
            if self._steps > _MOST_STATEMENTS:
                raise s.NotUnderstood("a kernel that is too large to follow")
            if statement.where is not None and self._frame is self._stack[0]:
                self._where = statement.where
            self._statement(statement)

    def _statement(self, node: s.Statement) -> None:
        match node:
            case s.Declare():
                self._declare(node)
            case s.Refer(_, name, target):
                self._refer(name, target)
            case s.Evaluate(value):
                self._value(value)
            case s.Block(body):
                self._body(body)
            case s.If(condition, yes, no):
                self._if(condition, yes, no)
            case s.For(first, condition, step, body):
                self._body(first)
                self._loop(condition, step, body, node, tests_first=True)
            case s.Do(body, condition):
                self._loop(condition, (), body, node, tests_first=False)
            case s.Switch(subject, body):
                self._switch(subject, body)
            case s.Give(value):
                self._frame.given.append(self._value(value))
                self._leave()
            case s.Leave("return"):
                self._leave()
            case s.Leave(word):
                self._jump(word)
            case s.Opaque(what):
                self._note(what)

    def _leave(self) -> None:
        """Out of the function; loops around may end before their count."""
        for state in self._states:
            state.returned = self._guarded | (state.returned or NOTHING)
        self._dead = True

    def _jump(self, word: str) -> None:
        self._dead = True
        if not self._states:
            return
        state = self._states[-1]
        if word == "continue":
            # A switch has a state of its own, which `continue` passes by.
            state = next(
                (x for x in reversed(self._states) if not isinstance(x, SwitchState)), state
            )
            state.continued.append(dict(self._frame.env))
        else:
            state.broken.append(dict(self._frame.env))

    def _declare(self, node: s.Declare) -> None:
        env = self._frame.env
        if node.extents or (node.shared and not node.pointer):
            sizes = tuple(constant_of(self._value(e)) for e in node.extents)
            space: Space = "shared" if node.shared else "local"
            place = Address(node.name, space, node.type, number(0), Interval(0, 0))
            env[node.name] = replace(place, extents=sizes[1:])
            if not node.extents and not node.unsized:
                env[node.name] = MemoryName(place)
            self._initialise(node, place)
            return
        kind = node.type + ("*" if node.pointer else "")
        if node.value is None:
            env[node.name] = (
                Whole(number(0), Interval(0, 0))
                if node.zeroed and kind in INTEGERS
                else self._as(kind, node.name, NOTHING)
            )
            return
        value = self._value(node.value)
        self._bind(node.name, self._converted(value, kind, node.name), kind)

    def _refer(self, name: str, target: s.Expression) -> None:
        env = self._frame.env
        if isinstance(target, s.Name) and self._is_variable(target.text):
            env[name] = Alias(self._resolved(target.text))
        elif isinstance(target, s.Name) and isinstance(held := self._held(target.text), MemoryName):
            env[name] = held
        elif is_in_memory(target):
            env[name] = MemoryName(self._place(target))
        else:
            self._note("reference")
            env[name] = self._as(target.type, name, self._depends(self._value(target)))

    def _initialise(self, node: s.Declare, place: Address) -> None:
        if isinstance(node.value, s.Values):
            depends = self._all_depends([self._value(item) for item in node.value.items])
        elif node.value is not None:
            depends = self._depends(self._value(node.value))
        else:
            depends = NOTHING
        if node.value is not None or node.zeroed:
            self._store(replace(place, offset=None, interval=Interval(0, None)), depends)

    def _if(
        self, condition: s.Expression, yes: Sequence[s.Statement], no: Sequence[s.Statement]
    ) -> None:
        guards_yes, guards_no, depends = self._condition(condition)
        env, outer = dict(self._frame.env), self._guards
        early = [state.exits for state in self._states]
        branches = []
        for statements, guards, truth in ((yes, guards_yes, True), (no, guards_no, False)):
            self._frame.env, self._dead = dict(env), False
            self._guards = (*outer, *guards)
            if not self._refine(condition, truth=truth):
                branches.append((self._frame.env, True, self._guards))
                continue
            self._body(statements)
            branches.append((self._frame.env, self._dead, self._guards))
        live = [b for b in branches if not b[1]]
        self._dead = not live
        if len(live) == 1:
            self._frame.env, _, self._guards = live[0]
            return
        self._guards = outer
        if live:
            self._frame.env = self._joined(live[0][0], live[1][0], depends)
            if early != [state.exits for state in self._states]:
                self._guards = (*outer, Guard(depends))

    def _switch(self, subject: s.Expression, body: Sequence[s.Statement]) -> None:
        depends = self._depends(self._value(subject))
        entry, outer = dict(self._frame.env), self._guards
        state = SwitchState()
        self._states.append(state)
        self._guards = (*outer, Guard(depends))
        for statement in body:
            if isinstance(statement, s.Label):
                after = entry if self._dead else self._joined(entry, self._frame.env, depends)
                self._frame.env, self._dead = dict(after), False
            self._body((statement,))
        self._states.pop()
        env = entry if self._dead else self._joined(entry, self._frame.env, depends)
        for broken in state.broken:
            env = self._joined(env, broken, depends)
        self._frame.env, self._dead, self._guards = env, False, outer

    # Loops

    def _loop(
        self, condition: s.Expression | None, step: Sequence[s.Expression],
        body: Sequence[s.Statement], node: s.For | s.Do, *, tests_first: bool,
    ) -> None:  # fmt: skip
        """Runs the body without recording until it is known how variables move, then once more."""
        self._names += 1
        entry, outer = dict(self._frame.env), self._guards
        changed = _changed((*body, *([condition] if condition else []), *step), entry)
        tested = [n.text for n in s.below(condition) if isinstance(n, s.Name)]
        hint = next((n for n in tested if n in changed), _stepped(step) or "iteration")
        iteration = Symbol(f"{hint}#{self._names}")
        self._unknowns[iteration.name] = Unknown(Interval(0, None), frozenset({iteration.name}))
        once = _Round(self, condition, step, body, tests_first)
        moving, probe = self._movement(once, entry, changed, iteration)
        is_tried = self._probing > 1  # twice around it: what it finds is thrown away
        start = self._entered(entry, changed, moving, iteration, {})
        if not is_tried and any(name not in moving for name in changed):
            start = self._settled(once, entry, changed, moving, iteration, probe.env)
        self._frame.env = dict(start)
        count, depends = self._count(condition, iteration, tests_first=tests_first)
        trips = self._interval(count).meet(Interval(0, None)) if count else Interval(0, None)
        most = None if trips.high is None else max(trips.high - 1, 0)
        self._unknowns[iteration.name] = Unknown(Interval(0, most), frozenset({iteration.name}))
        start = self._renewed(start, moving, iteration, entry)
        variable = self._resolved(hint) if self._resolved(hint) in moving else ""
        first = entry.get(variable)
        early = probe.ends_early or (
            condition is not None and len(list(s.joined_by(condition, "&&"))) > 1
        )
        loop = Loop(
            iteration, variable, first.value if isinstance(first, Whole) else None,
            moving.get(variable), count, trips, depends, early, node.where,
        )  # fmt: skip
        if self._recording:
            self._loops_found.append(loop)
        self._loops += (loop,)
        ended = probe if is_tried else once.run(dict(start))
        self._loops = self._loops[:-1]
        self._guards, self._dead = outer, False
        if ended.returned is not None:
            self._guards = (*outer, Guard(ended.returned - {iteration.name}))
        self._frame.env = self._left(entry, ended, changed, moving, loop)

    def _movement(
        self, once: _Round, entry: Env, changed: Sequence[str], iteration: Symbol
    ) -> tuple[dict[str, Polynomial], _Ended]:
        """By how much each variable moves in every iteration, where that is always as much; and
        the iteration that was followed to find it."""
        known = set(self._unknowns)
        env = self._entered(entry, changed, {}, iteration, {})
        carried = {name: env[name] for name in changed}
        with self._unrecorded():
            probe = once.run(dict(env))
        after = probe.env
        moving = {}
        for name in changed:
            before, now = carried[name], after.get(name)
            delta: Polynomial | None = None
            match before, now:
                case Whole(a), Whole(b):
                    delta = b - a
                case Address(offset=a), Address(offset=b) if (
                    a is not None and b is not None and isinstance(before, Address)
                    and isinstance(now, Address) and before.array == now.array
                    and before.type == now.type
                ):  # fmt: skip
                    delta = b - a
            if delta is None:
                continue
            names = {a.name for a in delta.atoms() if isinstance(a, Symbol)}
            if names <= known and iteration.name not in names:
                moving[name] = delta
        return moving, probe

    def _entered(
        self, entry: Env, changed: Sequence[str], moving: Mapping[str, Polynomial],
        iteration: Symbol, depends: Mapping[str, Depends],
    ) -> Env:  # fmt: skip
        """Variables at the begin of any iteration."""
        env = dict(entry)
        for name in changed:
            value = entry[name]
            also = depends.get(name, NOTHING) | self._depends(value) | {iteration.name}
            if name in moving:
                env[name] = self._moved(value, moving[name], of(iteration))
            elif isinstance(value, Whole):
                env[name] = self._fresh(name, Interval(), also)
            elif isinstance(value, Address):
                offset = self._fresh(name, Interval(), also).value
                env[name] = replace(
                    value, offset=offset if value.array else None, interval=Interval(),
                    depends=value.depends | also,
                )  # fmt: skip
            elif isinstance(value, Data):
                env[name] = Data(also)
        return env

    def _moved(self, value: Value, by: Polynomial, times: Polynomial) -> Value:
        if isinstance(value, Whole):
            return self._whole(value.value + by * times)
        if isinstance(value, Address) and value.offset is not None:
            offset = value.offset + by * times
            return replace(value, offset=offset, interval=self._interval(offset))
        return value

    def _settled(
        self, once: _Round, entry: Env, changed: Sequence[str], moving: Mapping[str, Polynomial],
        iteration: Symbol, after: Env,
    ) -> Env:  # fmt: skip
        """Intervals and dependences of what does not move evenly, such that an iteration keeps
        them: the interval at the entry, with 0; else with what an iteration makes of it; else
        any value."""
        depends = {name: self._depends(after.get(name)) for name in changed}
        start = self._entered(entry, changed, moving, iteration, depends)
        tried = {}
        for name in changed:
            before, now = entry[name], start[name]
            if name not in moving and isinstance(before, Whole) and isinstance(now, Whole):
                hull = before.interval.join(Interval(0, 0))
                tried[name] = hull
                start[name] = self._with_interval(now, hull)
        for attempt in range(4):
            with self._unrecorded():
                ended = once.run(dict(start)).env
            left = {}
            for name, hull in tried.items():
                then = ended.get(name)
                reached = then.interval if isinstance(then, Whole) else Interval()
                if not reached.within(hull):
                    left[name] = hull.join(reached) if attempt == 0 else Interval()
            for name, hull in left.items():
                now = start[name]
                assert isinstance(now, Whole)
                start[name] = self._with_interval(now, hull)
            tried |= left
            if not left:
                break
        return start

    def _with_interval(self, value: Whole, interval: Interval) -> Whole:
        """A fresh unknown with another interval."""
        for atom in value.value.atoms():
            if isinstance(atom, Symbol):
                old = self._unknowns[atom.name]
                self._unknowns[atom.name] = replace(old, interval=interval)
        return Whole(value.value, interval)

    def _renewed(
        self, start: Env, moving: Mapping[str, Polynomial], iteration: Symbol, entry: Env
    ) -> Env:
        """With the iteration's number bounded."""
        env = dict(start)
        for name, by in moving.items():
            env[name] = self._moved(entry[name], by, of(iteration))
        return env

    def _count(
        self, condition: s.Expression | None, iteration: Symbol, *, tests_first: bool
    ) -> tuple[Polynomial | None, Depends]:
        """How often the body runs, and what the condition depends on."""
        if condition is None:
            return None, NOTHING
        depends = self._depends(self._quiet(condition))
        if not tests_first:
            return None, depends - {iteration.name}
        counts = [self._count_of(part, iteration) for part in s.joined_by(condition, "&&")]
        known = [c for c in counts if c is not None and self._stays(c)]
        return (known[0] if known else None), depends - {iteration.name}

    def _stays(self, count: Polynomial) -> bool:
        """Whether what it was read from does not change in the loop, by its type."""
        constant = {p.name for p in self._form.kernel.parameters if p.is_const}
        arrays = {
            self._unknowns[atom.name].array
            for atom in count.atoms()
            if isinstance(atom, Symbol) and atom.name in self._unknowns
        }
        return arrays - {""} <= constant

    def _count_of(self, condition: s.Expression, iteration: Symbol) -> Polynomial | None:
        if any(isinstance(n, s.Assign | s.Step) for n in s.below(condition)):
            return None
        bounds = self._bounds(condition, truth=True)
        if isinstance(condition, s.Binary) and condition.operator == "!=":
            a, b = self._quiet(condition.left), self._quiet(condition.right)
            if isinstance(a, Whole) and isinstance(b, Whole):
                apart = (a.value - b.value).linear_in(iteration)
                if apart and apart[0] in (number(1), number(-1)):
                    return -apart[1] if apart[0] == number(1) else apart[1]
            return None
        if not bounds or len(bounds) != 1:
            return None
        parts = bounds[0].linear_in(iteration)
        if parts is None or not self._interval(parts[0]).is_nonnegative or not parts[0].terms:
            return None
        step, rest = parts
        if step == number(1):
            return -rest
        return divide(step - rest - number(1), step)

    def _left(
        self, entry: Env, ended: _Ended, changed: Sequence[str],
        moving: Mapping[str, Polynomial], loop: Loop,
    ) -> Env:  # fmt: skip
        """Variables after the loop."""
        last = ended.env
        for broken in ended.broken:
            last = self._joined(last, broken, NOTHING)
        env = {name: value for name, value in last.items() if name in entry}
        # Where it may be negative there is no iteration, and that is another number.
        exact = None if loop.ends_early else loop.count
        if exact is not None and not self._interval(exact).is_nonnegative:
            exact = None
        for name in changed:
            before = entry[name]
            if name in moving and exact is not None:
                env[name] = self._moved(before, moving[name], exact)
            else:
                now = last.get(name, before)
                env[name] = self._either(name, before, now, loop.depends)
            env[name] = self._without(env[name], name, loop.symbol)
        return env

    def _without(self, value: Value, name: str, iteration: Symbol) -> Value:
        """The last iteration's number means nothing outside."""
        if isinstance(value, Whole) and value.value.has(iteration):
            depends = self._depends(value) - {iteration.name}
            return self._fresh(name, value.interval, depends)
        return value


@dataclass
class _Ended:
    """One iteration, followed to its end."""

    env: Env
    broken: list[Env]
    returned: Depends | None

    @property
    def ends_early(self) -> bool:
        """By a `break` or a `return`."""
        return bool(self.broken) or self.returned is not None


@dataclass
class _Round:
    """An iteration of a loop."""

    analysis: _Statements
    condition: s.Expression | None
    step: Sequence[s.Expression]
    body: Sequence[s.Statement]
    tests_first: bool

    def run(self, env: Env) -> _Ended:
        """From these variables at its begin."""
        walk = self.analysis
        outer = walk._guards
        walk._frame.env, walk._dead = env, False
        state = LoopState()
        walk._states.append(state)
        if self.condition is not None and self.tests_first:
            guards, _, _ = walk._condition(self.condition)
            walk._guards = (*outer, *guards)
            walk._refine(self.condition, truth=True)
        walk._body(self.body)
        for continued in state.continued:
            live = walk._frame.env
            joined = continued if walk._dead else walk._joined(live, continued, NOTHING)
            walk._frame.env, walk._dead = joined, False
        for expression in self.step:
            walk._value(expression)
        if self.condition is not None and not self.tests_first:
            walk._value(self.condition)
        walk._states.pop()
        walk._guards, walk._dead = outer, False
        return _Ended(walk._frame.env, state.broken, state.returned)


def _changed(nodes: Sequence[s.Statement | s.Expression], env: Env) -> tuple[str, ...]:
    """Variables of `env` that are assigned somewhere below, or may be by a call; each once."""
    found: dict[str, None] = {}
    for node in s.below(tuple(nodes)):
        match node:
            case s.Assign(target) | s.Step(target):
                base: s.Expression = target
                while isinstance(base, s.Member):
                    base = base.base
                names = [base.text] if isinstance(base, s.Name) else []
            case s.Call(_, arguments):
                names = [a.text for a in arguments if isinstance(a, s.Name)]
            case _:
                continue
        for name in names:
            held = env.get(name)
            name = held.name if isinstance(held, Alias) else name
            if isinstance(env.get(name), Whole | Data | Address):
                found[name] = None
    return tuple(found)


def _stepped(step: Sequence[s.Expression]) -> str:
    """The variable that a loop's step changes."""
    for node in step:
        if isinstance(node, s.Assign | s.Step) and isinstance(node.target, s.Name):
            return node.target.text
    return ""
