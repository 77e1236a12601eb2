"""From GIMPLE statements to the warp instructions nvcc would make of them.

A reading of optimised x86-bound IL, not of NVIDIA's compiler: multiply-adds are fused where a
product has one use, casts and constant offsets fold into others, an address that is affine in its
loop's counter costs one addition at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from cudaops.timemodel import costs as cost
from cudaops.timemodel.gimple import (
    BINARY,
    CALL,
    COMPARES,
    CONSTANT,
    MEM_TYPE,
    REINTERPRETED,
    GimpleFunction,
    GimpleStatement,
    Place,
    array_base,
    bytes_of,
    is_reference,
    ssa_names,
)
from cudaops.timemodel.work import Mix, ThreadCounts

OWN_HEADERS = frozenset(
    {"context.h", "warp.h", "atomics.h", "vector_types.h", "keywords.h", "narrow_float.h"}
)
"""Files of our header whose statements stand for one instruction of the GPU, or for none."""

COORDINATES = frozenset({
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "cudaops_carry",
})  # fmt: skip
"""Variables of ours that are registers or constants on a GPU."""

BARRIERS = ("__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or")


class SiteKey(NamedTuple):
    """How a statement finds the memory behaviour that the trace saw."""

    file: str
    """Last part of the path."""
    line: int
    size: int
    """Bytes; 0 where the dump does not tell."""
    write: bool
    atomic: bool
    space: Literal["shared", "variable", "any"]
    """`shared`, `variable`: named directly, in shared memory or else in constant or global memory,
    if in any."""


MULTIPLY_ADDS = ("fma", "fms", "fnma", "fnms")
LOGIC = frozenset({"&", "|", "^"})
"""A call that is one instruction: GIMPLE's internal functions, and C's in single and double."""

SQUARED = "powmult_"
"""How g++ names what it makes of `pow(x, 2.0)`: a product. nvcc calls the function (13.0.88). A
product of an integer with itself may have that name too, and is one."""


class Callee(NamedTuple):
    """A device function that stayed a call, a call."""

    mix: Mix
    counts: ThreadCounts


def local_key(array: str, *, write: bool) -> SiteKey:
    """What an array of the function itself is found by: a site only if it is in local memory."""
    return SiteKey(array, 0, 0, write, False, "any")


FindSite = Callable[[SiteKey], int | None]
"""Index into the sites of the kernel; None where the trace saw no such access in device memory."""


@dataclass
class Op:
    """One statement as warp instructions."""

    statement: GimpleStatement
    mix: Mix
    loads: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()
    latency: float = 0.0
    """Its length in a chain of dependent arithmetic, in instructions."""
    kind: Literal["plain", "barrier", "branch"] = "plain"
    loaded_bytes: int = 0


class Translator:
    """Statements of one function to `Op`s."""

    def __init__(
        self, function: GimpleFunction, find_site: FindSite, callees: Mapping[str, Callee]
    ) -> None:
        self._function = function
        self._find = find_site
        self._callees = callees
        self._users: dict[str, int] = {}
        self._defined: dict[str, GimpleStatement] = {}
        for block in function.blocks.values():
            for phi in block.phis:
                for source, _ in phi.sources:
                    self._users[source] = self._users.get(source, 0) + 2
            for s in block.statements:
                if s.target_name:
                    self._defined[s.target_name] = s
                for name in s.uses:
                    self._users[name] = self._users.get(name, 0) + 1

    def op(self, s: GimpleStatement, *, address: bool = False) -> Op:
        """The instructions of one statement.

        `address`: its result is only ever part of an address, so additions of constants,
        multiplications by constants and casts are free.
        """
        header = PurePosixPath(s.place[0]).name if s.place else ""
        if header in OWN_HEADERS:
            return self._own_header(s)
        if s.place and header == cost.HEADER:
            mix = cost.of_header_line(s.place[1], s.value)
            if mix is not None:
                return Op(s, mix, latency=_latency(mix))
        if header in cost.HALF_HEADERS and s.value.startswith("("):
            return Op(s, cost.FREE)
        if s.target is None:
            return self._effect(s)
        if s.target_name is None:
            return self._store(s)
        if REINTERPRETED.match(s.value):
            return Op(s, cost.FREE)
        if is_reference(s.value):
            return self._load(s)
        mix = self._value(s, address)
        return Op(s, mix, latency=_latency(mix))

    def _own_header(self, s: GimpleStatement) -> Op:
        call = CALL.match(s.value)
        name = call.group(1) if call else ""
        if _is_barrier(name):
            return Op(s, cost.ONE_ALU, kind="barrier")
        if "warp_" in name or "__syncwarp" in name:
            return Op(s, cost.SHUFFLE, latency=6.0)
        if "atomic" in name.lower() and "load" not in name:
            return self._atomic(s, name, call.group(2) if call else "")
        return Op(s, cost.FREE)

    def _effect(self, s: GimpleStatement) -> Op:
        if s.value.startswith(("if (", "switch (")):
            return Op(s, cost.COMPARE_AND_BRANCH, kind="branch")
        call = CALL.match(s.value)
        if not call:
            return Op(s, cost.FREE)
        name = call.group(1)
        if _is_barrier(name):
            return Op(s, cost.ONE_ALU, kind="barrier")
        if "atomic" in name.lower():
            return self._atomic(s, name, call.group(2))
        mix = self._call(name, "")
        return Op(s, mix, latency=_latency(mix))

    def _atomic(self, s: GimpleStatement, name: str, arguments: str) -> Op:
        width = re.search(r"_(1|2|4|8|16)$", name)
        size = int(width.group(1)) if width else 0
        returns = s.target_name is not None and self._users.get(s.target_name, 0) > 0
        if "compare_exchange" in name.lower():
            given = [a.strip() for a in arguments.split(",")]
            flags = int(given[3]) if len(given) > 3 and given[3].isdigit() else 0
            # Our header's own loops, which stand for one instruction, ask for the weak form.
            returns = flags == 0 or (flags % 256 == flags and flags > 1)
            size = size or flags % 256
        site = self._site(s.place, size, write=True, atomic=True, reference="")
        if site is None:
            return Op(s, cost.ONE_ALU)
        return Op(s, cost.FREE, loads=(site,) if returns else (), stores=() if returns else (site,))

    def _store(self, s: GimpleStatement) -> Op:
        assert s.target is not None
        loads: tuple[int, ...] = ()
        size = self._reference_bytes(s.target) or bytes_of(self._function.type_of(s.value))
        if is_reference(s.value):
            size = size or self._reference_bytes(s.value)
            source = self._memory(s.place, s.value, size, write=False)
            loads = () if source is None else (source,)
        target = self._memory(s.place, s.target, size, write=True)
        stores = () if target is None else (target,)
        call = CALL.match(s.value) if not loads and not s.value.startswith("(") else None
        mix = self._call(call.group(1), "") if call else cost.FREE
        return Op(s, mix, loads, stores, _latency(mix), loaded_bytes=size if loads else 0)

    def _load(self, s: GimpleStatement) -> Op:
        assert s.target_name is not None
        size = self._reference_bytes(s.value) or bytes_of(self._function.type_of(s.target_name))
        site = self._memory(s.place, s.value, size, write=False)
        if site is not None:
            return Op(s, cost.FREE, loads=(site,), loaded_bytes=size)
        base = array_base(s.value)
        if base in COORDINATES or base in self._function.parameters:
            return Op(s, cost.FREE)
        if base in self._function.types:
            return Op(s, cost.ONE_ALU if ssa_names(s.value) else cost.FREE)
        return Op(s, cost.ONE_ALU)

    def _memory(self, place: Place | None, reference: str, size: int, *, write: bool) -> int | None:
        base = array_base(reference)
        declared = base is not None and base in self._function.types
        if base is not None and declared and base not in self._function.statics:
            return self._find(local_key(base, write=write))
        if base in COORDINATES:
            return None
        return self._site(place, size, write=write, atomic=False, reference=base or "")

    def _site(
        self, place: Place | None, size: int, *, write: bool, atomic: bool, reference: str
    ) -> int | None:
        file, line = (PurePosixPath(place[0]).name, place[1]) if place else ("", 0)
        space: Literal["shared", "variable", "any"] = "any"
        if reference:
            space = "shared" if reference in self._function.statics else "variable"
        return self._find(SiteKey(file, line, size, write, atomic, space))

    def _reference_bytes(self, reference: str) -> int:
        typed = MEM_TYPE.match(reference)
        if typed and "." not in reference.rpartition("]")[2]:
            return bytes_of(self._function.resolved(typed.group(1) or typed.group(2)))
        if reference.startswith("*"):
            pointer = self._function.type_of(reference[1:])
            plain = pointer.removesuffix("restrict").rstrip()
            return bytes_of(plain.rpartition("*")[0]) if plain.endswith("*") else 0
        base = array_base(reference)
        if base and "." not in reference and base in self._function.arrays:
            return bytes_of(self._function.resolved(self._function.types[base]))
        return 0

    def _call(self, name: str, kind: str) -> Mix:
        bare = _bare(name, kind)
        for table in (cost.CALLS, cost.FAST_CALLS):
            if found := table.get(bare.partition("<")[0]):
                return found
        if bare in self._callees:
            return self._callees[bare].mix
        if bare.rstrip("f") in MULTIPLY_ADDS:
            return cost.ONE_FP32 if kind == "float" else cost.ONE_FP64
        if counted := next((m for n, m in cost.BIT_COUNTS.items() if bare.startswith(n)), None):
            return counted + counted if bare.endswith("ll") else counted
        if bare.startswith(("bswap", "expect")):
            return cost.ONE_ALU
        if bare.startswith(("unreachable", "memcpy", "assume", "assoc_barrier")) or "lane" in bare:
            return cost.FREE
        return cost.UNKNOWN_CALL

    def _value(self, s: GimpleStatement, address: bool) -> Mix:
        assert s.target_name is not None
        kind = self._function.type_of(s.target_name)
        value = s.value
        call = CALL.match(value)
        if call and not value.startswith("("):
            return self._call(call.group(1), kind)
        if s.target_name.startswith(SQUARED) and kind in ("float", "double"):
            return cost.CALLS["pow" if kind == "double" else "powf"]
        if value.startswith("("):
            return self._cast(value, kind)
        if value.startswith(("MAX_EXPR", "MIN_EXPR")) or " ? " in value:
            return cost.ONE_FP64 if kind == "double" and " ? " not in value else cost.ONE_ALU
        binary = BINARY.match(value)
        if binary is None:
            inverts = value.startswith("~") and not address
            return cost.ONE_ALU if inverts and s.target_name not in self._absorbed() else cost.FREE
        left, operator, right = binary.groups()
        if operator in COMPARES or operator.startswith(("un", "lt", "ord")):
            return cost.ONE_FP64 if self._function.type_of(left) == "double" else cost.ONE_ALU
        if kind in ("float", "double", "_Float16", "__bf16") or kind.startswith("vector"):
            return self._floating(s, kind, operator)
        return self._integer(s, kind, operator, left, right, address)

    def _cast(self, value: str, kind: str) -> Mix:
        source = self._function.type_of(value.rpartition(" ")[2])
        floating = [t in ("float", "double", "_Float16", "__bf16") for t in (kind, source)]
        if any(floating) and kind != source:
            return cost.CONVERT_FLOAT
        return cost.FREE

    def _floating(self, s: GimpleStatement, kind: str, operator: str) -> Mix:
        double = kind == "double"
        if operator == "/":
            return cost.DOUBLE_DIVIDE if double else cost.FLOAT_DIVIDE
        if operator == "*" and self.fused(s):
            return cost.FREE
        return cost.ONE_FP64 if double else cost.ONE_FP32

    def fused(self, s: GimpleStatement) -> bool:
        """Whether this product disappears into the one addition that uses it."""
        if s.target_name is None or self._users.get(s.target_name, 0) != 1:
            return False
        return s.target_name in self._fusable()

    def _fusable(self) -> set[str]:
        if not hasattr(self, "_fusable_names"):
            names: set[str] = set()
            for s in self._defined.values():
                binary = BINARY.match(s.value)
                if binary and binary.group(2) in ("+", "-"):
                    taken = next((n for n in s.uses if self._is_product(n)), None)
                    if taken:
                        names.add(taken)
            self._fusable_names = names
        return self._fusable_names

    def _is_product(self, name: str) -> bool:
        if name.startswith(SQUARED):
            return False
        return self._operator_of(name) == "*" and self._users.get(name, 0) == 1

    def _absorbed(self) -> set[str]:
        """Results of `&`, `|`, `^` and `~` that are one of three inputs of the only operation that
        uses them: LOP3 takes three, inverted or not."""
        if not hasattr(self, "_absorbed_names"):
            names: set[str] = set()
            full: set[str] = set()  # has three inputs already
            for name, s in self._defined.items():
                if self._operator_of(name) not in LOGIC:
                    continue
                operands = [n for n in s.uses if self._users.get(n, 0) == 1]
                names.update(n for n in operands if self._is_inverse(n))
                paired = (n for n in operands if n not in full)
                taken = next((n for n in paired if self._operator_of(n) in LOGIC), None)
                if taken:
                    names.add(taken)
                    full.add(name)
            self._absorbed_names = names
        return self._absorbed_names

    def _is_inverse(self, name: str) -> bool:
        made = self._defined.get(name)
        return made is not None and made.value.startswith("~")

    def _operator_of(self, name: str) -> str | None:
        """What makes it out of two operands, if something does."""
        made = self._defined.get(name)
        binary = BINARY.match(made.value) if made else None
        return binary.group(2) if binary else None

    def adds_product(self, s: GimpleStatement) -> bool:
        """Whether this addition takes a product in and so is a multiply-add."""
        binary = BINARY.match(s.value)
        return bool(
            binary and binary.group(2) in ("+", "-") and any(n in self._fusable() for n in s.uses)
        )

    def _integer(
        self, s: GimpleStatement, kind: str, operator: str, left: str, right: str, address: bool
    ) -> Mix:
        constant = bool(CONSTANT.match(right)) or bool(CONSTANT.match(left))
        wide = bytes_of(kind) == 8
        if operator in "/%" and constant:
            number = right if right.isdigit() else "0"
            power = number != "0" and int(number) & (int(number) - 1) == 0
            return cost.INT_DIVIDE_POWER_OF_TWO if power else cost.INT_DIVIDE_CONSTANT
        if operator in "/%":
            return cost.LONG_DIVIDE if wide else cost.INT_DIVIDE
        if address:
            free = (operator in "+-*" and constant) or operator == "<<"
            return cost.FREE if free or (operator == "*" and self.fused(s)) else cost.ONE_ALU
        if operator == "*":
            return cost.FREE if self.fused(s) else cost.TWO_IMAD if wide else cost.ONE_IMAD
        if operator == "+" and self.adds_product(s):
            return cost.TWO_IMAD if wide else cost.ONE_IMAD
        if s.target_name in self._absorbed():
            return cost.FREE
        return cost.TWO_ALU if wide else cost.ONE_ALU

    def thread_counts(self, op: Op) -> ThreadCounts:
        """What one thread executes in one pass over the statement."""
        s, mix = op.statement, op.mix
        kind = self._function.type_of(s.target_name) if s.target_name else ""
        kind = kind.removeprefix("complex ")
        call = None if s.value.startswith("(") else CALL.match(s.value)
        name = _bare(call.group(1), kind) if call else ""
        if name in self._callees:
            return self._callees[name].counts
        if op.loads or op.stores:
            return ThreadCounts(integer=mix.issued)
        binary = BINARY.match(s.value)
        operator = binary.group(2) if binary else ""
        floating = kind in ("float", "double", "_Float16", "__bf16")
        simple = binary is not None and mix.issued == 1 and operator in ("+", "-", "*")
        if not floating:
            return ThreadCounts(
                integer=mix.alu + mix.fp32, convert=mix.convert, special=mix.sfu,
                branches=mix.branch,
            )  # fmt: skip
        fma = name.rstrip("f") in MULTIPLY_ADDS or (simple and self.adds_product(s))
        if mix == cost.ONE_FP32 and (simple or fma):
            return ThreadCounts(ffma=fma, fadd=operator in "+-" and not fma, fmul=operator == "*")
        if mix == cost.ONE_FP64 and (simple or fma):
            return ThreadCounts(dfma=fma, dadd=operator in "+-" and not fma, dmul=operator == "*")
        # What a library function is made of: mostly multiply-adds, the rest counted as products.
        return ThreadCounts(
            ffma=0.7 * mix.fp32, fmul=0.3 * mix.fp32, dfma=0.8 * mix.fp64, dmul=0.2 * mix.fp64,
            integer=mix.alu, convert=mix.convert, special=mix.sfu, branches=mix.branch,
        )  # fmt: skip


def prologue(function: GimpleFunction) -> Op:
    """What a kernel does before its author's first statement, and its end: its place in the grid
    and each parameter are fetched into a register."""
    text = "\n".join(s.value for b in function.blocks.values() for s in b.statements)
    coordinates = len(set(re.findall(r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\.\w", text)))
    fetched = 1.0 + coordinates + len(function.parameters)
    return Op(GimpleStatement("", None, None, ""), Mix(issued=fetched))


def _is_barrier(name: str) -> bool:
    return name.removeprefix("::") in BARRIERS


def _latency(mix: Mix) -> float:
    """Instructions in a row that one statement stands for: a quarter of a long sequence overlaps,
    and the special function unit answers late."""
    in_a_row = 0.0 if mix.issued == 0 else 1.0 if mix.issued <= 2 else 0.75 * mix.issued
    return in_a_row + cost.SFU_LATENCY * mix.sfu


def _bare(name: str, kind: str) -> str:
    """A called function's name as the cost tables have it; `kind`: type of its result."""
    bare = name.removeprefix("__builtin_").removeprefix("std::").removeprefix("::")
    return bare[1:].lower() + ("f" if kind == "float" else "") if bare.startswith(".") else bare
