"""What a kernel does with memory: every access, loop, barrier and guard, as facts to reason with.

An index is a polynomial over named unknowns: `threadIdx.x`, parameters, a loop's iteration number,
and values that are not known in advance (`cols[..]#3`, the contents of `cols`). Integer arithmetic
is that of the integers: a program whose index overflows is outside of its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cudaops.program.analysis.intervals import Interval
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number
from cudaops.program.grammar import SIZES
from cudaops.program.syntax import Range, TypedParameter, normal_type

Space = Literal["global", "shared", "local", "module", "unknown"]
"""`module`: a `__device__` or `__constant__` variable. `unknown`: a pointer not followed."""
Kind = Literal["read", "write", "atomic"]
Depends = frozenset[str]
"""What a value depends on: `threadIdx.x`, `blockIdx.y`, `lane` (through a shuffle or a vote),
`memory`, and loops by the name of their iteration number."""

ELEMENT_BYTES = {normal_type(name): size for name, size in SIZES.items()} | {
    "float3": 12, "int3": 12, "uint3": 12, "uchar4": 4, "char4": 4, "short2": 4, "ushort2": 4,
}  # fmt: skip
"""sizeof on the device, of what a program may touch without a pointer to it that clang sized."""


@dataclass(frozen=True)
class Unknown:
    """A symbol of the polynomials: how large it may be, and what it depends on."""

    interval: Interval
    depends: Depends = frozenset()
    array: str = ""
    """What it was read from."""


@dataclass(frozen=True)
class Loop:
    """A loop around something; its iteration number counts from 0."""

    symbol: Symbol
    variable: str
    """The variable that steps, empty where none does by a fixed amount."""
    start: Polynomial | None
    step: Polynomial | None
    count: Polynomial | None
    """Iterations; where it is not positive there is none. None: not known in advance."""
    trips: Interval
    depends: Depends
    """Of the condition: with `threadIdx` in it, threads may leave at different times."""
    ends_early: bool
    """It holds a `break` or `return`: `count` is the most there can be."""
    where: Range | None = None


@dataclass(frozen=True)
class Guard:
    """A condition under which something happens."""

    depends: Depends
    below: Polynomial | None = None
    """The condition is `below < 0`; None for any other."""


@dataclass(frozen=True)
class Access:
    """One place of the text that reads or writes memory, as it is under one set of loops."""

    kind: Kind
    array: str
    """Parameter, field (`p.data`), variable; empty where it is not known."""
    space: Space
    type: str
    """Of the element that is touched: `float4` for a vector access of a `float*`."""
    offset_bytes: Polynomial | None
    """Of the element, from the array's begin; of all dimensions together. None: not known."""
    interval_bytes: Interval
    """Of the offset."""
    depends: Depends
    """Of the offset."""
    loops: tuple[Loop, ...]
    """Outermost first."""
    guards: tuple[Guard, ...]
    element_bytes: int | None = None
    """Of the element; None where its size is not known."""
    member: str = ""
    """The field of a structure that is touched: `.x`."""
    where: Range | None = None

    @property
    def index(self) -> Polynomial | None:
        """In elements; None where it is not known, or is not seen to be a whole number of them."""
        if self.offset_bytes is None or not self.element_bytes:
            return None
        size = self.element_bytes
        if any(coefficient % size for _, coefficient in self.offset_bytes.terms):
            return None
        return divide(self.offset_bytes, number(size))

    def stride_bytes(self, name: str) -> Polynomial | None:
        """By how many bytes the offset moves when this unknown grows by one; None where that is no
        fixed number for a launch."""
        if self.offset_bytes is None:
            return None
        parts = self.offset_bytes.linear_in(Symbol(name))
        return None if parts is None else parts[0]


@dataclass(frozen=True)
class Barrier:
    """`__syncthreads()` and its kin."""

    function: str
    loops: tuple[Loop, ...]
    guards: tuple[Guard, ...]
    where: Range | None = None

    @property
    def is_divergent(self) -> bool:
        """Whether some threads of a block may pass it and others not, as far as can be told."""
        conditions = (*(g.depends for g in self.guards), *(o.depends for o in self.loops))
        return any(varies_in_block(d) for d in conditions)


@dataclass(frozen=True)
class KernelVariable:
    """A variable of the kernel with all that it may hold, over all its assignments."""

    name: str
    type: str
    interval: Interval
    depends: Depends


@dataclass(frozen=True)
class KernelFacts:
    """All of it, in the order of the text; device functions at their calls."""

    parameters: tuple[TypedParameter, ...]
    accesses: tuple[Access, ...]
    loops: tuple[Loop, ...]
    barriers: tuple[Barrier, ...]
    variables: tuple[KernelVariable, ...]
    calls: tuple[str, ...]
    """Functions that are neither the program's nor known to be without effect, each once."""
    unmodelled: tuple[str, ...]
    """What was not understood, by clang's name for it, each once: accesses may be missing."""
    unknowns: Mapping[str, Unknown] = field(default_factory=dict)
    """By the symbol's name."""
    collectives: tuple[Barrier, ...] = ()
    """Shuffles, votes and what else lanes of a warp do together."""

    @property
    def touches_the_same(self) -> bool:
        """Whether the same places are touched whatever is in memory: no address, and no loop or
        condition, depends on what was read. False where something was not followed."""
        if self.calls or self.unmodelled or any(loop.ends_early for loop in self.loops):
            return False
        if any(not a.array or a.offset_bytes is None for a in self.accesses):
            return False
        decides = [access.depends for access in self.accesses]
        decides += [loop.depends for loop in self.loops]
        decides += [guard.depends for access in self.accesses for guard in access.guards]
        decides += [guard.depends for barrier in self.barriers for guard in barrier.guards]
        return all("memory" not in depends for depends in decides)

    @property
    def scatters(self) -> bool:
        """Whether memory contents may have two threads write to one place: it decides where
        something is written, or which threads of a block write to a place of the block. True where
        something was not followed."""
        if self.calls or self.unmodelled:
            return True
        for access in self.accesses:
            if access.kind != "write" or access.space in ("shared", "local"):
                continue
            guarded = any("memory" in guard.depends for guard in access.guards)
            if "memory" in access.depends or (guarded and not varies_in_block(access.depends)):
                return True
        return False

    @property
    def is_idempotent(self) -> bool:
        """Whether the same launch once more leaves what the first left: nothing is both read and
        written, where each parameter points at memory of its own. False where something was not
        followed."""
        if self.calls or self.unmodelled or any(not a.array for a in self.accesses):
            return False
        lasting = [a for a in self.accesses if a.space not in ("shared", "local")]
        written = {a.array for a in lasting if a.kind != "read"}
        read = {a.array for a in lasting if a.kind != "write"}
        return not written & read and written <= {p.name for p in self.parameters}

    def touching(self, array: str) -> tuple[Access, ...]:
        """Accesses of one array."""
        return tuple(a for a in self.accesses if a.array == array)


def varies_in_block(depends: Depends) -> bool:
    """Whether threads of one block may differ in it."""
    return "lane" in depends or any(d.startswith("threadIdx.") for d in depends)
