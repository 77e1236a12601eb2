"""Instructions of PTX that compute or reach global memory, and what each computes, as C++.

Loads and stores go through the same checks as any access of C++. A rewrite may hold these and what
`ptx_machine.warp_operation` has; the rest is refused: whatever branches, waits for other threads,
reads a register of the machine, or reaches memory in another way. Source of names, operands and
corner cases: PTX ISA 9.0, chapter 9. The functions are `executors/cpu/include/cudaops/ptx.h`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

Kind = Literal["f32", "f64", "u32", "s32", "u64", "s64", "u16", "pred"]
BITS: dict[str, int] = {
    "f32": 32, "f64": 64, "u32": 32, "s32": 32, "b32": 32, "u64": 64, "s64": 64, "b64": 64,
    "u16": 16, "s16": 16, "b16": 16, "pred": 1,
}  # fmt: skip
"""Types of registers and their widths; a predicate counts as one."""
_UNSIGNED: dict[int, Kind] = {16: "u16", 32: "u32", 64: "u64", 1: "pred"}


class PtxOperation(NamedTuple):
    """What one instruction reads, writes and computes."""

    writes: Kind | None
    """Of every register that it writes; None of a store, and of what computes nothing."""
    reads: tuple[str, ...]
    """In order; of a load nothing, of a store the kind of what is stored. Of the author's own there
    are more, see `ptx_machine`."""
    expression: str = ""
    """C++ of the result, with `{0}`, `{1}`, ... for what is read."""
    memory: Literal["", "load", "store"] = ""
    vector: int = 1
    """Registers between braces: of a load, of a store, of what is packed or unpacked."""
    unpacks: bool = False
    """`mov.b64 {a, b}, c`."""
    packs: bool = False
    """`mov.b64 c, {a, b}`."""
    optional: int = 0
    """How many of the last operands may be left out; the one before them stands for them."""
    beside: bool = False
    """Whether a predicate may be written too: `d|p`, `{p}` in the expression."""
    space: Literal["global", "shared"] = "global"
    """Of a load or store; addresses without a space are as those of global memory."""
    stands_as: str = ""
    """Of a load or store: its type in memory where that is narrower than the register may be."""
    order: Literal["", "_volatile", "_relaxed", "_acquire", "_release"] = ""
    """Of a load or store: the ending of the function that makes it."""


def operation(opcode: str) -> PtxOperation | None:
    """The instruction of this name; None where it is not allowed."""
    return instructions().get(opcode) or _memory(opcode)


def unsigned(bits: int) -> Kind:
    """The kind in which a register of this width is kept."""
    return _UNSIGNED[bits]


_MEMORY = re.compile(
    r"(?:ld\.global(?:\.nc)?(?:\.c[ags]|(?P<hint>\.L1::))?"
    r"|st\.global(?:\.(?:wb|cg|cs|wt)|(?P<store_hint>\.L1::))?)"
    r"(?(hint)(?:evict_(?:normal|unchanged|first|last)|no_allocate))"
    r"(?(store_hint)(?:evict_(?:normal|unchanged|first|last)|no_allocate))"
    r"(?P<prefetch>\.L2::(?:64B|128B|256B))?"
    r"(?:\.v(?P<vector>[24]))?\.(?P<type>[bus]32|[bus]64|f32|f64)"
)
"""Cache hints change when memory is reached and never what is there."""


def _memory(opcode: str) -> PtxOperation | None:
    found = _MEMORY.fullmatch(opcode)
    if found is None:
        return None
    bits, vector = BITS[found["type"]], int(found["vector"] or 1)
    if bits * vector > 128 or (found["prefetch"] and opcode.startswith("st")):
        return None
    kind = unsigned(bits)
    if opcode.startswith("ld"):
        return PtxOperation(kind, (), memory="load", vector=vector)
    return PtxOperation(None, (kind,), memory="store", vector=vector)


@cache
def instructions() -> dict[str, PtxOperation]:
    """Name to meaning of all that compute; loads and stores have too many hints to be listed."""
    return {**_floats(), **_doubles(), **_integers(), **_bits(), **_moves(), **_conversions()}


def _floats() -> dict[str, PtxOperation]:
    one = {
        "rsqrt.approx": "rsqrt_f32", "rcp.approx": "rcp_f32", "sqrt.approx": "sqrt_f32",
        "ex2.approx": "ex2_f32", "lg2.approx": "lg2_f32", "sin.approx": "sin_f32",
        "cos.approx": "cos_f32", "rcp.rn": "rcp_f32", "sqrt.rn": "sqrt_f32", "abs": "abs_f32",
        "neg": "neg_f32",
    }  # fmt: skip
    two = {
        "div.approx": "div_approx_f32", "div.full": "div_f32", "div.rn": "div_f32",
        "min": "min_f32", "max": "max_f32", "min.NaN": "min_nan_f32", "max.NaN": "max_nan_f32",
    }  # fmt: skip
    rounded = {"add": 2, "add.rn": 2, "sub": 2, "sub.rn": 2, "mul": 2, "mul.rn": 2, "fma.rn": 3}
    rounded["mad.rn"] = 3
    found = {"tanh.approx.f32": _of("f32", 1, "tanh_f32")}
    found["copysign.f32"] = _of("f32", 2, "copysign_f32")
    for count, functions in ((1, one), (2, two)):
        for name, function in functions.items():
            stem, _, last = name.partition(".NaN")
            nan = ".NaN" if last or name.endswith(".NaN") else ""
            found[f"{name}.f32"] = _of("f32", count, function)
            found[f"{stem}.ftz{nan}.f32"] = _flushed(count, function)
    for name, count in rounded.items():
        function = name.removesuffix(".rn").replace("mad", "fma") + "_f32"
        for end, wrapped in (("", "{0}"), (".sat", "::cudaops_ptx::sat({0})")):
            for flush, made in (("", _of), (".ftz", None)):
                plain = made("f32", count, function) if made else _flushed(count, function)
                expression = wrapped.replace("{0}", plain.expression)
                found[f"{name}{flush}{end}.f32"] = plain._replace(expression=expression)
    return found


def _of(kind: Kind, count: int, function: str, writes: Kind | None = None) -> PtxOperation:
    listed = ", ".join(f"{{{i}}}" for i in range(count))
    reads: tuple[Kind, ...] = (kind,) * count
    return PtxOperation(writes or kind, reads, f"::cudaops_ptx::{function}({listed})")


def _flushed(count: int, function: str) -> PtxOperation:
    listed = ", ".join(f"::cudaops_ptx::ftz({{{i}}})" for i in range(count))
    call = f"::cudaops_ptx::ftz(::cudaops_ptx::{function}({listed}))"
    return _of("f32", count, function)._replace(expression=call)


def _doubles() -> dict[str, PtxOperation]:
    counts = {
        "add": 2, "add.rn": 2, "sub": 2, "sub.rn": 2, "mul": 2, "mul.rn": 2, "fma.rn": 3,
        "mad.rn": 3, "div.rn": 2, "rcp.rn": 1, "sqrt.rn": 1, "abs": 1, "neg": 1, "min": 2, "max": 2,
    }  # fmt: skip
    return {
        f"{name}.f64": _of(
            "f64", count, name.removesuffix(".rn").replace("mad", "fma").replace(".", "_") + "_f64"
        )
        for name, count in counts.items()
    }


def _integers() -> dict[str, PtxOperation]:
    found = {}
    kinds: tuple[Kind, ...] = ("u32", "s32", "u64", "s64")
    for kind in kinds:
        plain = unsigned(BITS[kind])
        found[f"add.{kind}"] = PtxOperation(plain, (plain, plain), "({0} + {1})")
        found[f"sub.{kind}"] = PtxOperation(plain, (plain, plain), "({0} - {1})")
        found[f"mul.lo.{kind}"] = PtxOperation(plain, (plain, plain), "({0} * {1})")
        found[f"mad.lo.{kind}"] = PtxOperation(plain, (plain, plain, plain), "({0} * {1} + {2})")
        found[f"mul.hi.{kind}"] = _of(kind, 2, "mul_hi")
        found[f"mad.hi.{kind}"] = _of(kind, 3, "mad_hi")
        found[f"min.{kind}"] = PtxOperation(kind, (kind, kind), "({1} < {0} ? {1} : {0})")
        found[f"max.{kind}"] = PtxOperation(kind, (kind, kind), "({0} < {1} ? {1} : {0})")
        found[f"bfe.{kind}"] = PtxOperation(
            kind, (kind, "u32", "u32"), "::cudaops_ptx::bfe({0}, {1}, {2})"
        )
        found[f"shr.{kind}"] = PtxOperation(kind, (kind, "u32"), "::cudaops_ptx::shr({0}, {1})")
        if kind.startswith("s"):
            found[f"abs.{kind}"] = PtxOperation(plain, (kind,), "::cudaops_ptx::magnitude({0})")
            found[f"neg.{kind}"] = PtxOperation(plain, (plain,), "(0 - {0})")
    wide: dict[Kind, Kind] = {"u32": "u64", "s32": "s64"}
    for kind, double in wide.items():
        product = f"(::cudaops_ptx::{double}){{0}} * (::cudaops_ptx::{double}){{1}}"
        found[f"mul.wide.{kind}"] = PtxOperation(double, (kind, kind), f"({product})")
        sum_of = f"((::cudaops_ptx::u64)({product}) + {{2}})"
        found[f"mad.wide.{kind}"] = PtxOperation("u64", (kind, kind, "u64"), sum_of)
        found[f"sad.{kind}"] = PtxOperation(
            "u32", (kind, kind, "u32"), "::cudaops_ptx::sad({0}, {1}, {2})"
        )
    return found


def _bits() -> dict[str, PtxOperation]:
    found = {}
    for bits in (32, 64):
        kind = unsigned(bits)
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            found[f"{name}.b{bits}"] = PtxOperation(kind, (kind, kind), f"({{0}} {sign} {{1}})")
        found[f"not.b{bits}"] = PtxOperation(kind, (kind,), "(~{0})")
        found[f"shl.b{bits}"] = PtxOperation(kind, (kind, "u32"), "::cudaops_ptx::shl({0}, {1})")
        found[f"shr.b{bits}"] = PtxOperation(kind, (kind, "u32"), "::cudaops_ptx::shr({0}, {1})")
        inserted = "::cudaops_ptx::bfi({0}, {1}, {2}, {3})"
        found[f"bfi.b{bits}"] = PtxOperation(kind, (kind, kind, "u32", "u32"), inserted)
        found[f"popc.b{bits}"] = _of(kind, 1, "popc", "u32")
        found[f"clz.b{bits}"] = _of(kind, 1, "clz", "u32")
        found[f"brev.b{bits}"] = _of(kind, 1, "brev")
    for way in ("l", "r"):
        found[f"shf.{way}.wrap.b32"] = _of("u32", 3, f"shf_{way}_wrap")
        found[f"shf.{way}.clamp.b32"] = _of("u32", 3, f"shf_{way}_clamp")
    found["prmt.b32"] = _of("u32", 3, "prmt")
    found["lop3.b32"] = _of("u32", 4, "lop3")
    kinds: tuple[Kind, Kind] = ("u32", "s32")
    for a in kinds:
        for b in kinds:
            call = f"::cudaops_ptx::dp4a<{int(a == 's32')}, {int(b == 's32')}>({{0}}, {{1}}, {{2}})"
            found[f"dp4a.{a}.{b}"] = PtxOperation("u32", ("u32",) * 3, call)
    for name, sign in (("and", "&&"), ("or", "||"), ("xor", "!=")):
        found[f"{name}.pred"] = PtxOperation("pred", ("pred", "pred"), f"({{0}} {sign} {{1}})")
    found["not.pred"] = PtxOperation("pred", ("pred",), "(!{0})")
    return found


_FLOATING: dict[str, Kind] = {"f32": "f32", "f64": "f64"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _moves() -> dict[str, PtxOperation]:
    found = {}
    for kind, bits in BITS.items():
        if kind == "pred":
            continue
        plain = _FLOATING.get(kind) or unsigned(bits)
        found[f"mov.{kind}"] = PtxOperation(plain, (plain,), "{0}")
        found[f"selp.{kind}"] = PtxOperation(plain, (plain, plain, "pred"), "({2} ? {0} : {1})")
    kinds: tuple[Kind, ...] = ("u32", "s32", "u64", "s64", "f32", "f64")
    for kind in kinds:
        for name, sign in _COMPARED.items():
            compared = f"({{0}} {sign} {{1}})"
            if kind.startswith("f") and name == "ne":  # of numbers: false where one is none
                compared = "({0} < {1} || {0} > {1})"
            found[f"setp.{name}.{kind}"] = PtxOperation("pred", (kind, kind), compared)
            if kind == "f32":
                flushed = compared.replace("{0}", "::cudaops_ptx::ftz({0})")
                flushed = flushed.replace("{1}", "::cudaops_ptx::ftz({1})")
                found[f"setp.{name}.ftz.f32"] = PtxOperation("pred", (kind, kind), flushed)
    for bits in (32, 64):
        for name in ("eq", "ne"):
            found[f"setp.{name}.b{bits}"] = found[f"setp.{name}.u{bits}"]
    found["cvta.to.global.u64"] = PtxOperation("u64", ("u64",), "{0}")
    return found


def _conversions() -> dict[str, PtxOperation]:
    found = {}
    kinds: tuple[Kind, ...] = ("u32", "s32", "u64", "s64")
    floats: tuple[Kind, ...] = ("f32", "f64")
    for to in kinds:
        for of in kinds:
            found[f"cvt.{to}.{of}"] = PtxOperation(to, (of,), f"(::cudaops_ptx::{to}){{0}}")
        for of in floats:
            for way in ("rni", "rzi", "rmi", "rpi"):
                call = f"::cudaops_ptx::{way}<::cudaops_ptx::{to}>"
                found[f"cvt.{way}.{to}.{of}"] = PtxOperation(to, (of,), call + "({0})")
                if of == "f32":
                    found[f"cvt.{way}.ftz.{to}.f32"] = PtxOperation(
                        to, (of,), call + "(::cudaops_ptx::ftz({0}))"
                    )
    for of in kinds:
        for to in floats:
            found[f"cvt.rn.{to}.{of}"] = PtxOperation(to, (of,), f"(::cudaops_ptx::{to}){{0}}")
    found["cvt.f64.f32"] = PtxOperation("f64", ("f32",), "(::cudaops_ptx::f64){0}")
    found["cvt.rn.f32.f64"] = PtxOperation("f32", ("f64",), "(::cudaops_ptx::f32){0}")
    return found


PACK = PtxOperation(
    "u64", ("u32", "u32"), "((::cudaops_ptx::u64){1} << 32 | {0})", vector=2, packs=True
)
"""`mov.b64 d, {low, high}`."""
UNPACK = PtxOperation("u32", ("u64",), vector=2, unpacks=True)
"""`mov.b64 {low, high}, a`."""
