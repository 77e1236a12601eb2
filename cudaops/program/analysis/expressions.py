"""Follows expressions: what they are worth, and the accesses they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from cudaops.program import syntax as s
from cudaops.program.analysis import intervals
from cudaops.program.analysis.environment import Environment, Frame
from cudaops.program.analysis.facts import Depends, Guard
from cudaops.program.analysis.intervals import INTEGERS, Interval
from cudaops.program.analysis.library_calls import (
    ATOMICS,
    EFFECTS,
    LANE_STARTS,
    LOADS,
    ORDERING,
    STORES,
    is_pure,
)
from cudaops.program.analysis.polynomials import (
    Polynomial,
    Symbol,
    divide,
    number,
    of,
    remainder,
)
from cudaops.program.analysis.values import (
    LANE,
    MEMORY,
    NOTHING,
    Address,
    Data,
    Env,
    MemoryName,
    Structure,
    Table,
    Value,
    Whole,
    below_zero,
    bound_of_both,
    bound_of_either,
    constant_of,
    is_in_memory,
    literal,
    nowhere,
    pointer_to,
    retyped,
    rough_interval,
)

_DEEPEST_CALL = 12


class Expressions(Environment, ABC):
    """Values of expressions; statements are left to who derives from it."""

    # Conditions

    def _condition(
        self, node: s.Expression
    ) -> tuple[tuple[Guard, ...], tuple[Guard, ...], Depends]:
        """Guards of both sides."""
        depends = self._depends(self._value(node))
        sides = []
        for truth in (True, False):
            bounds = self._bounds(node, truth=truth)
            guards = tuple(Guard(self._depends(self._whole(b)), b) for b in bounds or ())
            # A part that is no bound stays as what it depends on.
            sides.append(guards if bounds else (Guard(depends),))
        return sides[0], sides[1], depends

    def _bounds(self, node: s.Expression, *, truth: bool) -> tuple[Polynomial, ...] | None:
        """Polynomials that are all below 0 where the condition has this value; None where it is
        more than that."""
        if any(isinstance(n, s.Assign | s.Step) for n in s.below(node)):
            return None  # its value is that of another moment
        match node:
            case s.Unary("!", operand):
                return self._bounds(operand, truth=not truth)
            case s.Binary("&&" | "||" as operator, left, right):
                if (operator == "&&") != truth:
                    return None
                parts = [self._bounds(side, truth=truth) for side in (left, right)]
                known = [p for p in parts if p is not None]
                return tuple(b for p in known for b in p) if len(known) == 2 else None
            case s.Binary("<" | "<=" | ">" | ">=" | "==" as operator, left, right):
                a, b = self._quiet(left), self._quiet(right)
                if isinstance(a, Whole) and isinstance(b, Whole):
                    return below_zero(operator, a.value, b.value, truth=truth)
        return None

    def _quiet(self, node: s.Expression) -> Value:
        """The value without what it does: no access is recorded, no variable changed."""
        recording, self._recording = self._recording, False
        env, self._frame.env = self._frame.env, dict(self._frame.env)
        try:
            return self._value(node)
        finally:
            self._recording, self._frame.env = recording, env

    def _refine(self, node: s.Expression, *, truth: bool) -> bool:
        """Narrow the intervals of variables by a condition that holds. False: it never does."""
        match node:
            case s.Unary("!", operand):
                return self._refine(operand, truth=not truth)
            case s.Binary("&&" | "||" as operator, left, right):
                if (operator == "&&") != truth:
                    return True
                return self._refine(left, truth=truth) and self._refine(right, truth=truth)
            case s.Name(type=kind) if kind in INTEGERS:
                known = constant_of(self._quiet(node))
                return known is None or bool(known) == truth
        bounds = self._bounds(node, truth=truth)
        for bound in bounds or ():
            if bound.constant is not None and bound.constant >= 0:
                return False
            for name in {n.text for n in s.below(node) if isinstance(n, s.Name)}:
                held = self._held(name)
                if isinstance(held, Whole):
                    self._narrow_by(name, held, bound)
        return True

    @abstractmethod
    def _body(self, body: Sequence[s.Statement]) -> None:
        """Follow statements, until one leaves."""

    # Expressions

    def _value(self, node: s.Expression) -> Value:
        match node:
            case s.Number(text):
                return literal(text)
            case s.Name():
                return self._name(node)
            case s.Member(s.Name(base), axis) if base in s.BUILTINS and axis in "xyz":
                return self._whole(of(Symbol(f"{base}.{axis}")))
            case s.Member():
                return self._member(node)
            case s.Index(base, index) if isinstance(
                table := self._value_or_row(base) if node.type.endswith("*") else None, Table
            ):
                return self._row(table, self._value(index))
            case s.Index() | s.Unary("*"):
                return self._load(self._place(node), node.type)
            case s.Cast(kind, operand):
                return self._converted(self._value(operand), kind)
            case s.Unary("&", operand):
                return self._address_of(operand)
            case s.Unary(operator, operand):
                return self._unary(operator, operand, node.type)
            case s.Step(target, by, gives_old):
                before = self._quiet(target) if gives_old else None
                after = self._assign(target, "+", Whole(number(by), Interval(by, by)))
                return after if before is None else before
            case s.Assign(target, operator, value):
                return self._assign(target, operator, self._value(value))
            case s.Binary("&&" | "||" as operator, left, right):
                first = self._value(left)
                return self._binary(operator, first, self._second(first, right), node.type)
            case s.Binary(operator, left, right):
                return self._binary(operator, self._value(left), self._value(right), node.type)
            case s.Choice(condition, yes, no):
                return self._choice(condition, yes, no)
            case s.Call():
                return self._call(node)
            case s.Values(items):
                return Data(self._all_depends([self._value(i) for i in items]))
            case s.Unmodelled("cxx_reinterpret_cast_expr", (operand,)):
                place = self._place(operand)
                return self._load(replace(retyped(place, node.type), member=""), node.type)
            case s.Unmodelled("string_literal"):
                return Data(NOTHING)
            case s.Unmodelled("cxx_null_ptr_literal_expr"):
                return nowhere("void")
            case s.Unmodelled(what, parts):
                self._note(what)
                depends = self._all_depends([self._value(p) for p in parts])
                return self._as(node.type, what, depends)
        raise AssertionError(node)

    def _name(self, node: s.Name) -> Value:
        if node.text in ("true", "false"):
            return Whole(number(int(node.text == "true")), Interval(0, 1))
        found = self._held(node.text)
        if isinstance(found, MemoryName):
            return self._load(found.place, node.type)
        if found is not None:
            return found
        if node.text == "warpSize":
            return Whole(number(32), Interval(32, 32))
        return self._of_module(node)

    def _of_module(self, node: s.Name) -> Value:
        """A `__device__` or `__constant__` variable."""
        place = self._module_place(node)
        if "[" in node.type:
            return replace(place, extents=place.extents[1:])
        return self._load(place, node.type)

    def _member(self, node: s.Member) -> Value:
        base = node.base
        if isinstance(base, s.Unary) and base.operator == "*":
            inner = self._value(base.operand)
            if isinstance(inner, Structure):
                return self._field(inner, node)
            if isinstance(inner, Address):
                return self._load(self._field_place(inner, node), node.type)
        if isinstance(base, s.Index) or (isinstance(base, s.Member) and is_in_memory(base)):
            return self._load(self._place(node), node.type)
        if isinstance(base, s.Name) and isinstance(held := self._held(base.text), MemoryName):
            return self._load(self._field_place(held.place, node), node.type)
        value = self._value(base)
        if isinstance(value, Structure):
            return self._field(value, node)
        if isinstance(value, Address):
            return self._load(self._field_place(value, node), node.type)
        return self._as(node.type, f".{node.name}", self._depends(value))

    def _field(self, structure: Structure, node: s.Member) -> Value:
        path = f"{structure.path}.{node.name}"
        kind = node.type
        if kind.endswith("]*") and "( )" not in kind:
            return Table(path, kind.partition("[")[0].strip(), kind.count("["))
        if kind.endswith("*"):
            return pointer_to(path, "global", kind[:-1])
        if kind.endswith("]"):
            array = pointer_to(path, "local", kind)
            return replace(array, extents=array.extents[1:])
        return self._given(path, kind)

    def _field_place(self, base: Address, node: s.Member) -> Address:
        return replace(base, member=f"{base.member}.{node.name}", extents=())

    def _place(self, node: s.Expression) -> Address:
        """Where an lvalue in memory stands; an unknown place where it is none."""
        match node:
            case s.Index(base, index):
                return self._indexed(self._value_or_row(base), self._value(index))
            case s.Unary("*", operand):
                found = self._value(operand)
                return found if isinstance(found, Address) else nowhere(node.type)
            case s.Member(base):
                if isinstance(base, s.Unary) and base.operator == "*":
                    inner = self._value(base.operand)
                    found = inner if isinstance(inner, Address) else nowhere(node.type)
                else:
                    found = self._place(base)
                return self._field_place(found, node)
            case s.Cast(kind, operand):
                return replace(self._place(operand), type=kind)
            case s.Name(text):
                held = self._held(text)
                if isinstance(held, MemoryName):
                    return held.place
                if isinstance(held, Address):
                    return held
                if held is None:
                    return self._module_place(node)
        return nowhere(getattr(node, "type", ""))

    def _value_or_row(self, node: s.Expression) -> Value:
        """A base that is indexed: a row of an array is not read."""
        if isinstance(node, s.Index):
            inner = self._value_or_row(node.base)
            if isinstance(inner, Address) and inner.extents:
                return self._indexed(inner, self._value(node.index))
        if isinstance(node, s.Member) and node.type.endswith("]") and is_in_memory(node):
            place = self._place(node)
            return replace(place, offset=None, interval=Interval())
        return self._value(node)

    def _row(self, base: Table, index: Value) -> Table | Address:
        """A pointer of a table, or a row of them."""
        which = constant_of(index)
        path = f"{base.path}[{'..' if which is None else which}]"
        if base.rank > 1:
            return replace(base, path=path, rank=base.rank - 1)
        found = pointer_to(path, "global", base.pointee)
        return replace(found, depends=self._depends(index))

    def _indexed(self, base: Value, index: Value) -> Address:
        if not isinstance(base, Address):
            return replace(nowhere(""), depends=self._depends(base) | self._depends(index))
        depends = base.depends | self._depends(index)
        inner: int | None = self._type_bytes.get(base.type)
        for extent in base.extents:
            inner = None if extent is None or inner is None else inner * extent
        rest = base.extents[1:]
        if base.offset is None or inner is None or not isinstance(index, Whole):
            return replace(base, offset=None, interval=Interval(), depends=depends, extents=rest)
        moved = index.interval * Interval(inner, inner) + base.interval
        offset = base.offset + index.value * number(inner)
        return replace(
            base, offset=offset, interval=moved.meet(self._interval(offset)), depends=depends,
            extents=rest,
        )  # fmt: skip

    def _address_of(self, operand: s.Expression) -> Value:
        if isinstance(operand, s.Name) and not isinstance(self._held(operand.text), MemoryName):
            name = self._resolved(operand.text)
            held = self._frame.env.get(name)
            if isinstance(held, Whole | Data):
                # From here on the variable is memory: it may be written through the pointer.
                place = Address(name, "local", operand.type, number(0), Interval(0, 0))
                self._frame.env[name] = MemoryName(place)
                self._contents[name] = self._contents.get(name, NOTHING) | self._depends(held)
                return place
            if isinstance(held, Address | Structure):
                return held
        if isinstance(operand, s.Member) and not is_in_memory(operand):
            value = self._value(operand)
            return value if isinstance(value, Structure) else nowhere(operand.type)
        return self._place(operand)

    def _load(self, place: Address, kind: str) -> Value:
        if place.extents or kind.endswith("]"):
            return place  # an array decays
        self._record("read", place)
        is_own = place.space == "local"
        depends = self._depends(place)
        depends |= self._contents.get(place.array, NOTHING) if is_own else MEMORY
        hint = f"{place.array or '*'}{place.member}[..]"
        known = self._launched.contents.get(place.array) if not place.member else None
        return self._as(kind or place.type, hint, depends, known, place.array)

    def _assign(self, target: s.Expression, operator: str, value: Value) -> Value:
        if isinstance(target, s.Name):
            name = self._resolved(target.text)
            held = self._frame.env.get(name)
            if held is not None and not isinstance(held, MemoryName):
                if operator:
                    value = self._binary(operator, held, value, target.type)
                value = self._converted(value, target.type, name)
                self._bind(name, value, target.type)
                return value
            place = held.place if isinstance(held, MemoryName) else self._module_place(target)
        elif isinstance(target, s.Member) and not is_in_memory(target):
            return self._assign_field(target, value)
        else:
            place = self._place(target)
        if operator:
            self._record("read", place)
        self._store(place, self._depends(value) | self._depends(place))
        depends = self._depends(value) | (MEMORY if operator else NOTHING)
        return self._as(getattr(target, "type", ""), "value", depends) if operator else value

    def _module_place(self, node: s.Name) -> Address:
        return pointer_to(node.text, "module", node.type)

    def _assign_field(self, target: s.Member, value: Value) -> Value:
        """A field of a variable: the whole variable depends on it."""
        base: s.Expression = target
        while isinstance(base, s.Member):
            base = base.base
        if isinstance(base, s.Unary) or not isinstance(base, s.Name):
            self._value(base)
            return value
        name = self._resolved(base.text)
        held = self._frame.env.get(name)
        if isinstance(held, MemoryName):
            self._store(replace(held.place, member=f".{target.name}"), self._depends(value))
        elif held is not None:
            self._frame.env[name] = Data(self._depends(held) | self._depends(value))
        return value

    def _unary(self, operator: str, operand: s.Expression, kind: str) -> Value:
        value = self._value(operand)
        match operator, value:
            case "+", _:
                return value
            case "-", Whole(polynomial, interval):
                return Whole(-polynomial, -interval)
            case "~", Whole(polynomial, interval):
                one = number(1)
                return Whole(-polynomial - one, -interval - Interval(1, 1))
        known = Interval(0, 1) if operator == "!" else None
        return self._as(kind, operator, self._depends(value), known)

    def _binary(self, operator: str, left: Value, right: Value, kind: str) -> Value:
        if operator == ",":
            return right
        if isinstance(left, Address) or isinstance(right, Address):
            return self._shifted(operator, left, right, kind)
        depends = self._depends(left) | self._depends(right)
        if operator in ("<", "<=", ">", ">=", "==", "!=", "&&", "||"):
            return self._as("bool", "condition", depends, Interval(0, 1))
        if isinstance(left, Whole) and isinstance(right, Whole):
            found = self._arithmetic(operator, left, right, kind)
            if found is not None:
                return found
        return self._as(kind, f"..{operator}..", depends)

    def _shifted(self, operator: str, left: Value, right: Value, kind: str) -> Value:
        """A pointer and an integer."""
        if operator == "+" and isinstance(right, Address):
            left, right = right, left
        depends = self._depends(left) | self._depends(right)
        if isinstance(left, Address) and isinstance(right, Whole) and operator in "+-":
            sign = number(1 if operator == "+" else -1)
            index = Whole(
                right.value * sign, right.interval if operator == "+" else -right.interval
            )
            row = self._indexed(left, index)
            return replace(row, extents=left.extents)
        if operator in "+-" and isinstance(left, Address) and not isinstance(right, Address):
            return replace(left, offset=None, interval=Interval(), depends=depends)
        return self._as(kind, "pointers", depends)

    def _arithmetic(self, operator: str, left: Whole, right: Whole, kind: str) -> Whole | None:
        a, b, i, j = left.value, right.value, left.interval, right.interval
        amount = b.constant
        whole = self._is_sure(a, i)
        match operator:
            case "+":
                return self._whole(a + b, i + j)
            case "-":
                known = self._whole(a - b, i - j)
                wraps = kind.startswith("unsigned") and not self._is_sure(known.value, i - j)
                return None if wraps else known
            case "*":
                return self._whole(a * b, i * j)
            case "<<" if amount is not None and 0 <= amount < 63:
                scale = 1 << amount
                return self._whole(a * number(scale), i * Interval(scale, scale))
            case "/" if whole and self._is_sure(b, j):
                return self._whole(divide(a, b), i.divided_by(j))
            case "%" if whole and self._is_sure(b, j):
                return self._whole(remainder(a, b), i.remainder_by(j))
            case ">>" if amount is not None and 0 <= amount < 63 and whole:
                scale = 1 << amount
                return self._whole(divide(a, number(scale)), i.divided_by(Interval(scale, scale)))
            case "&" if amount is not None and amount >= 0:
                if amount & (amount + 1) == 0 and whole:
                    return self._whole(remainder(a, number(amount + 1)), Interval(0, amount))
                depends = self._depends(left) | self._depends(right)
                return self._fresh("..&..", Interval(0, amount), depends)
        rough = rough_interval(operator, i, j)
        if rough is None:
            return None
        depends = self._depends(left) | self._depends(right)
        return self._fresh(f"..{operator}..", rough.meet(intervals.of_type(kind)), depends)

    def _second(self, first: Value, second: s.Expression) -> Value:
        """The second part of a condition, which is only looked at after some of the first."""
        outer, depends = self._guards, self._depends(first)
        self._guards = (*outer, Guard(depends)) if depends & MEMORY else outer
        value = self._value(second)
        self._guards = outer
        return value

    def _choice(self, condition: s.Expression, yes: s.Expression, no: s.Expression) -> Value:
        guards_yes, guards_no, depends = self._condition(condition)
        env, outer = self._frame.env, self._guards
        found = []
        for side, guards, truth in ((yes, guards_yes, True), (no, guards_no, False)):
            self._frame.env, self._guards = dict(env), (*outer, *guards)
            self._refine(condition, truth=truth)
            found.append(self._value(side))
        self._frame.env, self._guards = env, outer
        return self._either("..?..:..", found[0], found[1], depends)

    # Calls

    def _call(self, node: s.Call) -> Value:
        name = node.function
        is_own = name in self._functions and len(self._stack) < _DEEPEST_CALL
        if is_own and not any(frame.name == name for frame in self._stack):
            return self._inlined(self._functions[name], node)
        if name in ORDERING:
            self._barrier(node)
            return self._as(node.type, name, NOTHING)
        if name in ATOMICS:
            return self._atomic(node)
        values = [self._value(a) for a in node.arguments]
        depends = self._all_depends(values)
        first = values[0] if values else None
        if isinstance(first, Address) and (name in LOADS or name in STORES):
            if name in LOADS:
                return self._load(first, node.type)
            self._store(first, depends)
            return Data(NOTHING)
        if name.startswith(LANE_STARTS):
            self._collectives += self._met(name)
            return self._as(node.type, name, depends | LANE)
        if name in ("min", "max", "umin", "umax") and len(values) == 2:
            return self._extreme(name, values, node.type)
        self._outside(name, values)
        return self._as(node.type, f"{name}(..)", depends)

    def _outside(self, name: str, values: Sequence[Value]) -> None:
        """A function of a library: without effect where that is known of it."""
        pure = is_pure(name)
        if self._recording and (name in EFFECTS or not pure):
            self._calls[name] = None
        for value in values:
            if isinstance(value, Address) and (value.array or not pure):
                somewhere = replace(value, offset=None, interval=Interval())
                self._record("read", somewhere)
                if not pure or name.startswith("sincos"):
                    self._store(somewhere, self._all_depends(values) | MEMORY)

    def _extreme(self, name: str, values: Sequence[Value], kind: str) -> Value:
        a, b = values
        depends = self._all_depends(values)
        if not (isinstance(a, Whole) and isinstance(b, Whole)):
            return self._as(kind, f"{name}(..)", depends)
        if a == b:
            return a
        i, j = a.interval, b.interval
        if name.endswith("min"):
            known = Interval(bound_of_both(min, i.low, j.low), bound_of_either(min, i.high, j.high))
        else:
            known = Interval(bound_of_either(max, i.low, j.low), bound_of_both(max, i.high, j.high))
        return self._fresh(f"{name}(..)", known, depends)

    def _barrier(self, node: s.Call) -> None:
        for argument in node.arguments:
            self._value(argument)
        self._barriers += self._met(node.function)

    def _atomic(self, node: s.Call) -> Value:
        target, *rest = (self._value(a) for a in node.arguments)
        place = target if isinstance(target, Address) else nowhere(node.type)
        self._record("atomic", place)
        depends = self._depends(place) | self._all_depends(rest) | MEMORY
        # What one thread finds there is not what another finds.
        return self._as(node.type, f"{place.array}[..]", depends | LANE)

    def _inlined(self, function: s.Function, node: s.Call) -> Value:
        """A function of the program, with these arguments."""
        env: Env = {}
        back: dict[str, str] = {}
        arguments = list(node.arguments)
        if len(arguments) == len(function.parameters) + 1:  # a method's object
            env["this"] = self._object(arguments.pop(0))
        for parameter, argument in zip(function.parameters, arguments, strict=False):
            is_reference = parameter.is_reference
            held = self._held(argument.text) if isinstance(argument, s.Name) else None
            if is_reference and isinstance(held, MemoryName):
                env[parameter.name] = held
            elif is_reference and isinstance(argument, s.Name) and self._is_variable(argument.text):
                back[parameter.name] = self._resolved(argument.text)
                env[parameter.name] = self._frame.env[back[parameter.name]]
            elif is_reference and is_in_memory(argument):
                env[parameter.name] = MemoryName(self._place(argument))
            else:
                kind = parameter.type + ("*" if parameter.is_pointer else "")
                value = self._value(argument)
                known = kind in INTEGERS or parameter.is_pointer
                env[parameter.name] = self._converted(value, kind) if known else value
        frame = Frame(function.name, env)
        caller, states, guards = self._frame, self._states, self._guards
        self._stack.append(frame)
        self._frame, self._states = frame, []
        self._body(function.body)
        self._stack.pop()
        self._frame, self._states, self._guards, self._dead = caller, states, guards, False
        for inner, outer in back.items():
            self._bind(outer, frame.env.get(inner, env[inner]), "")
        if not frame.given:
            return Data(NOTHING)
        found = frame.given[0]
        for other in frame.given[1:]:
            found = self._either(function.name, found, other, NOTHING)
        return self._converted(found, function.result) if function.result in INTEGERS else found

    def _is_variable(self, name: str) -> bool:
        return isinstance(self._held(name), Whole | Data | Address | Structure)

    def _object(self, node: s.Expression) -> Value:
        if isinstance(node, s.Unary) and node.operator == "*":
            return self._value(node.operand)
        return self._address_of(node)
