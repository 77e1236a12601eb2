"""Workload: one captured launch, enough to run it again without the program."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Discriminator

from cudaops.domain.base import Dim3, Record

Element = Literal[
    "f16",
    "bf16",
    "f32",
    "f64",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "bool",
    "opaque",
]
"""Scalar type of a buffer's elements; a vector type counts as its scalar (`float4` is `f32`)."""

Role = Literal["in", "out", "inout"]

RunRole = Literal["judged", "timed", "both"]
"""What a run of the author's program is for. `judged`: a rewrite must compute the same on its
launches. `timed`: it is timed on them. `both`: both."""

ELEMENT_BYTES: dict[Element, int] = {
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i16": 2, "u16": 2,
    "i32": 4, "u32": 4, "i64": 8, "u64": 8, "bool": 1, "opaque": 1,
}  # fmt: skip
"""Bytes of one element. Source: CUDA C++ Programming Guide, built-in types; LP64 data model."""

_CODES: dict[Element, str] = {
    "f16": "e", "bf16": "f", "f32": "f", "f64": "d", "i8": "b", "u8": "B", "i16": "h", "u16": "H",
    "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "bool": "B", "opaque": "B",
}  # fmt: skip
"""Of the module `struct`; bfloat16 is the upper half of a float."""

FLOATING: frozenset[Element] = frozenset({"f16", "bf16", "f32", "f64"})


class Field(Record):
    """One number in a structure."""

    path: str
    """As C++ names it, from the structure: `pos.x`, `v[2]`."""
    element: Element
    at_bytes: int
    """Where it is in the structure."""
    wide_at_bytes: int | None = None
    """The same where the structure is compiled with every floating type widened (`Unit.widened`,
    doubles too). None: not known."""
    is_public: bool = True
    """Whether code beside the structure's own may name it."""
    bits: tuple[int, int] | None = None
    """Of a bit-field: its lowest bit in the integer at `at_bytes`, and its width."""

    def value(self, raw: bytes) -> int | float:
        """This number of a structure's bytes; of `bool` 0 or 1."""
        own = raw[self.at_bytes : self.at_bytes + ELEMENT_BYTES[self.element]]
        own = bytes(2) + own if self.element == "bf16" else own
        value: int | float = struct.unpack(f"<{_CODES[self.element]}", own)[0]
        if self.bits is None or not isinstance(value, int):
            return value
        first, width = self.bits
        value = value >> first & (1 << width) - 1
        is_negative = self.element.startswith("i") and value >> width - 1
        return value - (1 << width) if is_negative else value


class DeviceMemory(Record):
    """Contents of a piece of the device's memory around the launch."""

    size_bytes: int
    element: Element = "opaque"
    """From the type of the first parameter that points into it, or the variable's; `opaque` for
    structures of several kinds of numbers."""
    before: str
    """Name of the file with the contents before the launch, relative to the workload's folder."""
    after: str
    """Contents after the baseline ran."""
    fields: tuple[Field, ...] = ()
    """Of an `opaque` one that holds one structure after the other from its first byte on: all that
    is in one and no padding. Empty: not known."""
    structure_bytes: int | None = None
    """From one of these structures to the next; None where there are no `fields`."""
    wide_structure_bytes: int | None = None
    """The same under `Field.wide_at_bytes`; None: not known."""

    def can_widen(self, *, wide_doubles: bool) -> bool:
        """Whether the widened layout is known: a structure's is where doubles are widened too, or
        there are none in it."""
        if self.element != "opaque":
            return True
        known = self.wide_structure_bytes is not None
        return known and (wide_doubles or all(f.element != "f64" for f in self.fields))


class Allocation(DeviceMemory):
    """One device allocation that the launch could reach, with its contents."""

    index: int
    role: Role
    """`in`: unchanged by the launch. `out`: every byte it changes is independent of what stood
    there before. `inout`: anything else."""
    address: int | None = None
    """Where the program had it, in launches that follow pointers in memory: what is there as an
    address of this or another allocation is moved to where that one lies when the launch is run
    again, and back in what it leaves. None: no pointer in memory is followed."""
    holds_pointers: bool = False
    """Whether addresses of allocations are in it. It keeps what was captured."""
    name: str = ""
    """How it is reached where no argument points into it: `rows[0]`, `at->next`."""


class PointerArgument(Record):
    """A pointer into one of the workload's allocations."""

    kind: Literal["pointer"] = "pointer"
    name: str
    element: Element
    allocation: int
    offset_bytes: int = 0
    structure_bytes: int | None = None
    """Of one of the structures that it points to; None where it points to numbers."""


class NullArgument(Record):
    """A null pointer."""

    kind: Literal["null"] = "null"
    name: str


class ScalarArgument(Record):
    """A number passed by value."""

    kind: Literal["scalar"] = "scalar"
    name: str
    element: Element
    value: int | float
    """Integers and bool as int, floating types as float (exact: f32 widened to double)."""


class PointerField(Record):
    """A pointer in a structure that is passed by value, into one of the workload's allocations."""

    path: str
    """As C++ names it, from the parameter: `params.input`, `list.addresses[1][4]`."""
    at_bytes: int
    """Where it is in the structure."""
    is_const: bool
    """Whether what it points to is const."""
    element: Element
    allocation: int
    offset_bytes: int = 0


_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class OpaqueArgument(Record):
    """A structure passed by value, kept as its bytes, and the pointers and numbers among them."""

    kind: Literal["opaque"] = "opaque"
    name: str
    raw_hex: str
    pointers: tuple[PointerField, ...] = ()
    fields: tuple[Field, ...] = ()
    """Its numbers; empty where clang does not tell all that is in it."""
    wide_bytes: int | None = None
    """Its size where every floating type is widened; None: its layout is not known then."""
    words: tuple[tuple[int, int], ...] = ()
    """Where pointers are in it, null ones too, and where in the widened one; none where that is
    not known."""

    @property
    def members(self) -> dict[str, Field]:
        """Its numbers that an expression beside it may name (`task.rows`), by that name: no
        elements of arrays, nothing private, and no half, with which C++ computes otherwise."""
        return {
            f"{self.name}.{one.path}": one
            for one in self.fields
            if one.is_public and one.element not in ("f16", "bf16") and _PATH.fullmatch(one.path)
        }


Argument = Annotated[
    PointerArgument | NullArgument | ScalarArgument | OpaqueArgument, Discriminator("kind")
]


class Pointer(NamedTuple):
    """What a launch is given of an allocation."""

    name: str
    """The parameter's, or the field's path."""
    element: Element
    allocation: int


class GlobalState(DeviceMemory):
    """Contents of a `__constant__` or `__device__` variable around the launch."""

    name: str
    """Qualified name in the program."""
    is_used: bool = True
    """Whether the kernel names it; True as well where clang does not tell."""


class Workload(Record):
    """One distinct configuration of the target kernel, as the program launched it."""

    id: str
    """`w0`, `w1`, ...: most expensive first."""
    kernel: str
    """Unqualified kernel name."""
    callee: str
    """The launched expression, template arguments included: `reg_matmul<64, 64>`."""
    site: int
    """`LaunchSite.index`."""
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int = 0
    arguments: tuple[Argument, ...]
    """In the order of the kernel's parameters, named as in the baseline's definition."""
    allocations: tuple[Allocation, ...]
    globals: tuple[GlobalState, ...] = ()
    launches: int = 1
    """How often the program launched this configuration, warm-ups left out."""
    time_share: float = 1.0
    """Weight of its time. Share of the kernel's whole time in the program, 0-1, by the capturing
    executor's clock; of several timed runs the share in all of them, as the user weighs them, and 0
    of what is judged only."""
    run: int = 0
    """Which of the program's runs it comes from, in the order in which they were given."""
    role: RunRole = "both"
    first_launch: int = 0
    """Position of the captured launch among all launches of this kernel, from 0: what a profiler
    skips to reach it in the author's program."""
    l2_regime: Literal["cold", "warm"] = "cold"
    """`warm`: in the program most of its launches follow the same launch directly, on the same
    buffers; `cold`: other work is between them, or it is launched once."""
    folder: str
    """Folder that holds the contents, absolute or relative to the run folder."""

    @property
    def size_bytes(self) -> int:
        """Of the memory that its launch is given."""
        return sum(a.size_bytes for a in self.allocations)

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for launches of one instance that differ in data and scalars alone."""
        sizes = tuple((a.element, a.size_bytes) for a in self.allocations)
        return (self.callee, self.grid, self.block, self.dynamic_smem_bytes, sizes)

    @property
    def is_judged(self) -> bool:
        """Whether a rewrite is compared with the author's kernel on it."""
        return self.role != "timed"

    @property
    def is_timed(self) -> bool:
        """Whether a rewrite is timed on it."""
        return self.role != "judged"

    def pointers(self) -> Iterator[Pointer]:
        """Every pointer into an allocation, in order: parameters, fields of structures, and what
        is in memory."""
        for argument in self.arguments:
            if isinstance(argument, PointerArgument):
                yield Pointer(argument.name, argument.element, argument.allocation)
            elif isinstance(argument, OpaqueArgument):
                for field in argument.pointers:
                    yield Pointer(field.path, field.element, field.allocation)
        for allocation in self.allocations:
            if allocation.name:
                yield Pointer(allocation.name, allocation.element, allocation.index)

    def name_of(self, allocation: Allocation) -> str:
        """The parameter, or the field of one, that points into it; where none does, how it is
        reached, or a variable's name."""
        names = (p.name for p in self.pointers() if p.allocation == allocation.index)
        return next(names, allocation.name or f"buffer{allocation.index}")

    def numbers(self) -> dict[str, tuple[Element, int | float]]:
        """Type and value of every number that the launch is given: arguments, then members."""
        found: dict[str, tuple[Element, int | float]] = {
            a.name: (a.element, a.value) for a in self.arguments if isinstance(a, ScalarArgument)
        }
        for argument in self.arguments:
            if isinstance(argument, OpaqueArgument):
                raw = bytes.fromhex(argument.raw_hex)
                members = argument.members.items()
                found |= {name: (field.element, field.value(raw)) for name, field in members}
        return found

    def argument(self, name: str) -> Argument:
        """The argument of this parameter name. Raises KeyError."""
        for candidate in self.arguments:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
