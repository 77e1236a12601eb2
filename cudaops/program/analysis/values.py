"""Values that the analysis follows, and arithmetic on them that needs no kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cudaops.domain.workload import ScalarArgument, Workload
from cudaops.program import syntax as s
from cudaops.program.analysis import intervals
from cudaops.program.analysis.facts import Depends, Space
from cudaops.program.analysis.intervals import Interval
from cudaops.program.analysis.polynomials import Polynomial, number

NOTHING: Depends = frozenset()
MEMORY: Depends = frozenset({"memory"})
LANE: Depends = frozenset({"lane"})


@dataclass(frozen=True)
class Whole:
    """An integer."""

    value: Polynomial
    interval: Interval


@dataclass(frozen=True)
class Data:
    """Anything whose value is not followed."""

    depends: Depends


@dataclass(frozen=True)
class Address:
    """A pointer, or an array's name."""

    array: str
    space: Space
    type: str
    """Of what it points to."""
    offset: Polynomial | None
    """Bytes from the array's begin, and their interval."""
    interval: Interval
    depends: Depends = NOTHING
    extents: tuple[int | None, ...] = ()
    """Of an array of several dimensions: those behind the first index."""
    member: str = ""


@dataclass(frozen=True)
class MemoryName:
    """A name for a place in memory: a shared variable, a reference, a variable pointed at."""

    place: Address


@dataclass(frozen=True)
class Alias:
    """A reference to a variable."""

    name: str


@dataclass(frozen=True)
class Structure:
    """A structure that the kernel was given, or a field of it that is one."""

    path: str


@dataclass(frozen=True)
class Table:
    """An array of pointers in a structure that the kernel was given."""

    path: str
    pointee: str
    rank: int
    """Indices that lead to a pointer."""


Value = Whole | Data | Address | MemoryName | Alias | Structure | Table
Env = dict[str, Value]


@dataclass
class Launched:
    """What is known of a launch: intervals of builtins, parameters and arrays' contents."""

    values: Mapping[str, Interval] = field(default_factory=dict)
    """`gridDim.x`, `blockDim.y`, parameters by name, fields of structures by path."""
    contents: Mapping[str, Interval] = field(default_factory=dict)
    """Of the contents of an array of integers, by the array's name."""

    @classmethod
    def by(cls, workloads: Sequence[Workload]) -> Launched:
        """What holds for all of these launches, of which there is at least one."""
        seen: dict[str, list[Interval]] = {}
        for workload in workloads:
            for root, sizes in (("gridDim", workload.grid), ("blockDim", workload.block)):
                for axis, size in zip("xyz", (sizes.x, sizes.y, sizes.z), strict=True):
                    seen.setdefault(f"{root}.{axis}", []).append(Interval(size, size))
            for argument in workload.arguments:
                if isinstance(argument, ScalarArgument) and isinstance(argument.value, int):
                    only = Interval(argument.value, argument.value)
                    seen.setdefault(argument.name, []).append(only)
        return cls({name: intervals.around(found) for name, found in seen.items()})


def pointer_to(array: str, space: Space, pointee: str) -> Address:
    """To the begin of an array; what points to rows steps by rows."""
    element, bracket, rest = pointee.replace("( )", "").partition("[")
    sizes = [int(x) if x.isdigit() else None for x in rest.rstrip("]").split("][")]
    extents = tuple(sizes) if bracket else ()
    element = s.normal_type(element.strip())
    return Address(array, space, element, number(0), Interval(0, 0), extents=extents)


def nowhere(kind: str) -> Address:
    return Address("", "unknown", kind, None, Interval())


def retyped(address: Address, kind: str) -> Address:
    """The same place as a pointer to another type."""
    same = kind in (address.type, "void")
    return address if same else replace(address, type=kind, extents=())


def constant_of(value: Value) -> int | None:
    return value.value.constant if isinstance(value, Whole) else None


def is_in_memory(node: s.Expression) -> bool:
    """Whether a place is reached through a pointer or an array."""
    match node:
        case s.Index():
            return True
        case s.Unary("*", s.Name("this")):
            return False
        case s.Unary("*"):
            return True
        case s.Member(base):
            return is_in_memory(base)
    return False


def literal(text: str) -> Value:
    """A number as written; one that is no integer is not followed."""
    try:
        found = s.integer_literal(text)
    except ValueError:
        found = None
    if found is None:
        return Data(NOTHING)
    return Whole(number(found[0]), Interval(found[0], found[0]))


def below_zero(
    operator: str, a: Polynomial, b: Polynomial, *, truth: bool
) -> tuple[Polynomial, ...] | None:
    one = number(1)
    if not truth:
        if operator not in s.ORDERS:
            return None
        operator = s.NEGATED[operator]
    match operator:
        case "<":
            return (a - b,)
        case "<=":
            return (a - b - one,)
        case ">":
            return (b - a,)
        case ">=":
            return (b - a - one,)
    return (a - b - one, b - a - one)


def rough_interval(operator: str, i: Interval, j: Interval) -> Interval | None:
    """Of operations that have no polynomial."""
    match operator:
        case "/":
            return i.divided_by(j)
        case "%":
            return i.remainder_by(j)
        case "&" if i.is_nonnegative or j.is_nonnegative:
            ends = [x.high for x in (i, j) if x.is_nonnegative and x.high is not None]
            return Interval(0, min(ends, default=None))
        case "^" | "|" if i.is_nonnegative and j.is_nonnegative:
            if i.high is None or j.high is None:
                return Interval(0, None)
            return Interval(0, (1 << max(i.high, j.high).bit_length()) - 1)
        case ">>" if i.is_nonnegative:
            return Interval(0, i.high)
        case "<<" if i.is_nonnegative:
            return Interval(0, None)
    return None


def bound_of_either(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else choose(a, b)


def bound_of_both(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else choose(a, b)
