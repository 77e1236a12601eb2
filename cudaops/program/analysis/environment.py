"""The state in which expressions are followed: variables, unknowns, and what was found so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

from cudaops.program import syntax as s
from cudaops.program.analysis import intervals
from cudaops.program.analysis.facts import (
    ELEMENT_BYTES,
    Access,
    Barrier,
    Depends,
    Guard,
    KernelVariable,
    Kind,
    Loop,
    Unknown,
)
from cudaops.program.analysis.intervals import INTEGERS, Interval
from cudaops.program.analysis.polynomials import (
    Atom,
    Polynomial,
    Symbol,
    number,
    of,
    recombined,
    symbol,
)
from cudaops.program.analysis.values import (
    MEMORY,
    NOTHING,
    Address,
    Alias,
    Data,
    Env,
    Launched,
    MemoryName,
    Structure,
    Value,
    Whole,
    pointer_to,
    retyped,
)

_MOST_ATOMS = 60
"""Of a polynomial; a longer one is an unknown of its own."""
_MOST = {
    "gridDim.x": (1 << 31) - 1, "gridDim.y": 65535, "gridDim.z": 65535,
    "blockDim.x": 1024, "blockDim.y": 1024, "blockDim.z": 64,
}  # fmt: skip
"""Source: CUDA C++ Programming Guide, technical specifications per compute capability."""


class Frame:
    """One function as it is called: its variables and what its `return`s gave."""

    def __init__(self, name: str, env: Env) -> None:
        self.name = name
        self.env = env
        self.given: list[Value] = []


@dataclass
class LoopState:
    """Where `continue` and `break` of the loop at hand lead."""

    continued: list[Env] = field(default_factory=list)
    broken: list[Env] = field(default_factory=list)
    returned: Depends | None = None
    """What a `return` in it depends on; None without one."""

    @property
    def exits(self) -> tuple[int, int, bool]:
        """How many ways there are out of an iteration, so far."""
        return len(self.continued), len(self.broken), self.returned is not None


class SwitchState(LoopState):
    """Where `break` of a switch leads."""


class Environment:
    """State of the analysis: variables, unknowns, what was found; and moving values about."""

    def __init__(self, form: s.KernelForm, launched: Launched) -> None:
        self._form = form
        self._launched = launched
        self._unknowns: dict[str, Unknown] = {}
        self._functions = {f.name: f for f in form.functions}
        self._type_bytes = ELEMENT_BYTES | dict(form.sizes)
        self._accesses: list[Access] = []
        self._loops_found: list[Loop] = []
        self._barriers: list[Barrier] = []
        self._collectives: list[Barrier] = []
        self._variables: dict[str, KernelVariable] = {}
        self._calls: dict[str, None] = {}
        self._unmodelled: dict[str, None] = {}
        self._contents: dict[str, Depends] = {}
        """Of local arrays: what their elements depend on, over all that was written so far."""
        self._recording = True
        self._probing = 0
        """How deep it is within iterations that are only tried."""
        self._guards: tuple[Guard, ...] = ()
        self._loops: tuple[Loop, ...] = ()
        self._states: list[LoopState] = []
        self._dead = False
        self._steps = 0
        self._where: s.Range | None = None
        self._frame = Frame(form.kernel.name, {})
        self._stack: list[Frame] = [self._frame]
        self._names = 0

    # Names and values

    def _declare_builtins(self) -> None:
        for axis in "xyz":
            for index, dim in (("threadIdx", "blockDim"), ("blockIdx", "gridDim")):
                size = f"{dim}.{axis}"
                known = self._launched.values.get(size, Interval(1, _MOST[size]))
                self._unknowns[size] = Unknown(known)
                most = None if known.high is None else known.high - 1
                name = f"{index}.{axis}"
                self._unknowns[name] = Unknown(Interval(0, most), frozenset({name}))

    def _parameter(self, parameter: s.TypedParameter) -> Value:
        name = parameter.name
        if parameter.is_pointer:
            return pointer_to(name, "global", parameter.type)
        return self._given(name, parameter.type)

    def _given(self, name: str, kind: str) -> Value:
        """A parameter passed by value, or a field of one."""
        if kind in INTEGERS:
            known = self._launched.values.get(name, Interval()).meet(intervals.of_type(kind))
            self._unknowns[name] = Unknown(known)
            return Whole(of(Symbol(name)), known)
        if kind in ELEMENT_BYTES:
            return Data(NOTHING)
        return Structure(name)

    def _fresh(self, hint: str, interval: Interval, depends: Depends, array: str = "") -> Whole:
        """A new unknown, named for what it is; `array`: what it was read from."""
        self._names += 1
        name = f"{hint.partition('#')[0]}#{self._names}"
        self._unknowns[name] = Unknown(interval, depends, array)
        return Whole(of(Symbol(name)), interval)

    def _of_symbol(self, unknown: Symbol) -> Interval:
        found = self._unknowns.get(unknown.name)
        return found.interval if found else Interval()

    def _interval(self, value: Polynomial) -> Interval:
        return intervals.of_polynomial(value, self._of_symbol)

    def _whole(self, value: Polynomial, computed: Interval | None = None) -> Whole:
        if sum(1 for _ in islice(value.atoms(), _MOST_ATOMS)) == _MOST_ATOMS:
            depends = self._depends(Whole(value, Interval()))
            return self._fresh("..", computed or self._interval(value), depends)
        value = recombined(value)
        known = self._interval(value)
        return Whole(value, known if computed is None else known.meet(computed))

    def _is_sure(self, value: Polynomial, interval: Interval) -> bool:
        """Whether it is not negative: by its interval, or by its form over sizes and indices, of
        which a launch's index is below its size, and both as the guards around say."""
        if interval.is_nonnegative:
            return True
        for atom in value.atoms():
            of_run = isinstance(atom, Symbol) and "#" in atom.name
            if isinstance(atom, Symbol) and of_run and not self._of_symbol(atom).is_nonnegative:
                return False
        if value.sure_nonnegative:
            return True
        return value.replace(self._sizes()).sure_nonnegative

    def _sizes(self) -> dict[Atom, Polynomial]:
        """Sizes by what is known to be below them, and a rest that is not negative."""
        found: dict[Atom, Polynomial] = {}
        for axis in "xyz":
            for index, size in (("threadIdx", "blockDim"), ("blockIdx", "gridDim")):
                rest = symbol(f"rest.{size}.{axis}")
                found[Symbol(f"{size}.{axis}")] = symbol(f"{index}.{axis}") + number(1) + rest
        for nth, guard in enumerate(self._guards):
            if guard.below is None:
                continue
            for monomial, coefficient in guard.below.terms:
                if coefficient == -1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
                    bound, rest = monomial[0], symbol(f"rest.{nth}")
                    if "Idx." not in bound.name and bound not in found:
                        found[bound] = guard.below + of(bound) + number(1) + rest
        return found

    def _depends(self, value: Value | None) -> Depends:
        match value:
            case Whole(polynomial):
                found: set[str] = set()
                for atom in polynomial.atoms():
                    if isinstance(atom, Symbol) and atom.name in self._unknowns:
                        found |= self._unknowns[atom.name].depends
                return frozenset(found)
            case Data(depends):
                return depends
            case Address(offset=offset, depends=depends):
                moved = self._depends(Whole(offset, Interval())) if offset else NOTHING
                return depends | moved
            case MemoryName(place):
                return self._depends(place) | MEMORY
            case Alias(name):
                return self._depends(self._frame.env.get(name))
        return NOTHING

    def _all_depends(self, values: Sequence[Value]) -> Depends:
        return frozenset().union(*(self._depends(v) for v in values))

    def _as(
        self, kind: str, hint: str, depends: Depends, known: Interval | None = None, array: str = ""
    ) -> Value:
        """An unknown of a type."""
        if kind in INTEGERS:
            interval = intervals.of_type(kind)
            return self._fresh(hint, interval.meet(known) if known else interval, depends, array)
        if kind.endswith(("*", "]")):
            pointee = kind[:-1] if kind.endswith("*") else kind.partition("[")[0]
            return Address("", "unknown", pointee, None, Interval(), depends)
        return Data(depends)

    def _converted(self, value: Value, kind: str, hint: str = "") -> Value:
        """As a variable of this type holds it."""
        if kind == "auto" or isinstance(value, Structure):
            return value
        if kind.endswith("*"):
            if isinstance(value, Address):
                return retyped(value, kind[:-1])
            return self._as(kind, "", self._depends(value))
        if kind not in INTEGERS:
            return value if isinstance(value, Address) else Data(self._depends(value))
        if not isinstance(value, Whole):
            return self._as(kind, hint or f"({kind})", self._depends(value))
        fits = intervals.of_type(kind)
        if kind.startswith("unsigned") and not self._is_sure(value.value, value.interval):
            return self._as(kind, hint or f"({kind})", self._depends(value))
        if kind in ("int", "unsigned", "long long", "unsigned long long"):
            kept = value.interval.meet(fits)
            return value if kept.is_empty else Whole(value.value, kept)
        if value.interval.within(fits):
            return value
        return self._as(kind, f"({kind})", self._depends(value))

    def _bind(self, name: str, value: Value, kind: str) -> None:
        self._frame.env[name] = value
        if not self._recording or self._frame is not self._stack[0] or "*" in kind:
            return
        interval = value.interval if isinstance(value, Whole) else Interval()
        depends = self._depends(value)
        depends |= self._guarded
        before = self._variables.get(name)
        if before is not None:
            interval = interval.join(before.interval)
            depends |= before.depends
        self._variables[name] = KernelVariable(name, kind, interval, depends)

    def _joined(self, one: Env, other: Env, depends: Depends) -> Env:
        """What variables hold after either of two ways."""
        return {
            name: self._either(name, value, other[name], depends)
            for name, value in one.items()
            if name in other
        }

    def _either(self, name: str, one: Value, other: Value, depends: Depends) -> Value:
        if one == other:
            return one
        both = self._depends(one) | self._depends(other) | depends
        match one, other:
            case Whole(a, i), Whole(b, j):
                if a == b:
                    return Whole(a, i.join(j))
                return self._fresh(name, i.join(j), both)
            case Address(), Address() if one.array == other.array and one.space == other.space:
                if one.type == other.type:
                    moved = one.interval.join(other.interval)
                    offset = self._fresh(name, moved, both).value
                    return replace(one, offset=offset, interval=moved, depends=both)
                return replace(one, offset=None, interval=Interval(), depends=both)
            case Address(), Address():
                return Address("", "unknown", one.type, None, Interval(), both)
        return Data(both)

    @property
    def _guarded(self) -> Depends:
        """What it depends on whether this place is reached."""
        return frozenset().union(*(guard.depends for guard in self._guards))

    def _note(self, what: str) -> None:
        if self._recording:
            self._unmodelled[what] = None

    def _met(self, function: str) -> tuple[Barrier, ...]:
        """Threads meeting here."""
        here = Barrier(function, self._loops, self._guards, self._where)
        return (here,) if self._recording else ()

    def _record(self, kind: Kind, place: Address) -> None:
        if not self._recording:
            return
        found = Access(
            kind, place.array, place.space, place.type, place.offset, place.interval,
            self._depends(place), self._loops, self._guards, self._type_bytes.get(place.type),
            place.member, self._where,
        )  # fmt: skip
        self._accesses.append(found)

    def _store(self, place: Address, depends: Depends) -> None:
        """A value that depends on this is written; a thread's own array depends on it then."""
        self._record("write", place)
        if place.space == "local":
            before = self._contents.get(place.array, NOTHING)
            self._contents[place.array] = before | depends | self._guarded

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        recording, self._recording = self._recording, False
        self._probing += 1
        try:
            yield
        finally:
            self._recording = recording
            self._probing -= 1

    def _resolved(self, name: str) -> str:
        found = self._frame.env.get(name)
        return found.name if isinstance(found, Alias) else name

    def _held(self, name: str) -> Value | None:
        return self._frame.env.get(self._resolved(name))

    def _narrow_by(self, name: str, held: Whole, bound: Polynomial) -> None:
        """By `bound < 0`, in which the variable is once with either sign."""
        for sign in (1, -1):
            rest = bound - held.value * number(sign)
            low = self._interval(rest).low
            if (len(rest.terms) >= len(bound.terms) and bound.terms) or low is None:
                continue
            by = Interval(None, -low - 1) if sign == 1 else Interval(low + 1, None)
            now = self._held(name)
            if isinstance(now, Whole) and not (met := now.interval.meet(by)).is_empty:
                self._frame.env[self._resolved(name)] = Whole(now.value, met)
