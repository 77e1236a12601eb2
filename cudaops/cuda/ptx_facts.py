"""What device code does beside computing: state, clocks, precision, calls. Read from its PTX.

Facts are of what kernels can reach, so that another kernel of the same file neither accuses nor
excuses one. Names and errors of instructions: PTX ISA 9.0, chapters 9 (instructions) and 10 (its
special registers).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from cudaops.cuda.ptx_module import Function, Instruction, PtxModule, names_in
from cudaops.cuda.ptx_state import written_variables

Kind = Literal[
    "launches", "calls", "breakpoint", "state", "clock", "place", "sleeps", "discards", "profiler",
    "dependents", "heap", "prints", "matrix", "arithmetic", "rounding", "holds", "approximation",
]  # fmt: skip


class Trait(NamedTuple):
    """One thing that code does, and with what."""

    kind: Kind
    """`launches`: kernels, from the device. `calls`: a function that is not in the module. `state`:
    a variable that outlives the launch. `place`: asks where it runs. `matrix`, `arithmetic`,
    `rounding`, `holds`: operands, results, conversions and values of a precision."""
    what: str
    """Name of a variable, register, function, instruction or precision."""


Facts = frozenset[Trait]

_CLOCKS = re.compile(r"%(clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?)(?![\w$])")
_PLACES = re.compile(r"%(n?smid|n?warpid|gridid|pm\d+(?:_64)?)(?![\w$])")
"""Where on the chip, and how many grids were launched before. `%envreg` (cooperative groups) and
`%lanemask` (warp collectives) are no such question."""

NARROW = {
    "f16": "fp16", "f16x2": "fp16", "bf16": "bf16", "bf16x2": "bf16", "tf32": "tf32",
    **dict.fromkeys(
        ("e4m3", "e5m2", "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "e2m3", "e3m2", "e2m1", "e2m3x2",
         "e3m2x2", "e2m1x2", "ue8m0x2", "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"), "fp8"),
}  # fmt: skip
"""Type of an instruction to precision; `fp8` stands for all formats of 8 bits and fewer."""
_WIDE = {"f32": "fp32", "f64": "fp64"}
_FLOATS = NARROW | _WIDE
_OPERATIONS = frozenset(
    {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"}
) | {"tanh", "red", "atom"}
"""What rounds its result; `neg`, `abs`, `min`, `max`, comparisons and moves are exact."""
_COARSE = frozenset({"sin", "cos", "lg2", "tanh"})
"""`.approx` forms of coarse error: absolute 2^-20.5 (sin, cos in -pi to pi) and 2^-22 (lg2, which
relative to results near 0 is without bound), relative 2^-11 (tanh). Of the library's functions only
cbrtf, erfinvf, normcdfinvf and their like begin with one, lg2 (nvcc 13.0.88, 2026-11-20). `ex2`,
`rcp`, `rsqrt`, `sqrt`, `div` stay within 2 ulp and are part of expf, sqrtf and division."""
_PARAMETER_TYPES = {"6__half": "fp16", "7__half2": "fp16", "13__nv_bfloat16": "bf16"}
"""In a kernel's mangled name: bf16 is widened by a shift, which no instruction's type tells."""
_QUIET = frozenset({"__assertfail"})
_CALLEE = re.compile(r"^(?:\([^)]*\)\s*,\s*)?([%\w$]+)")


def facts_of(module: PtxModule, entries: Collection[str]) -> Facts:
    """What these kernels do, with every function that they can call. Raises KeyError: no such."""
    reached = [module.functions[name] for name in _reached(module, entries)]
    found = {t for f in reached for i in f.instructions for t in _traits(i, module)}
    found |= {Trait("state", v) for v in written_variables(module, reached)}
    for entry in entries:
        found |= {Trait("holds", p) for word, p in _PARAMETER_TYPES.items() if word in entry}
    narrow = {t.what for t in found if t.kind in ("matrix", "arithmetic", "rounding")}
    return frozenset(found | {Trait("holds", p) for p in narrow})


def _reached(module: PtxModule, entries: Collection[str]) -> set[str]:
    """Every function that a kernel can come to; by a pointer, every one that is no kernel."""
    others = {f.name for f in module.functions.values() if not f.is_entry}
    seen: set[str] = set()
    todo = list(entries)
    while todo:
        function = module.functions[todo.pop()]
        if function.name in seen:
            continue
        seen.add(function.name)
        todo += _mentioned(module, function) & module.functions.keys()
        if any(i.name == "call" and _callee(i).startswith("%") for i in function.instructions):
            todo += others
    return seen


def _mentioned(module: PtxModule, function: Function) -> set[str]:
    names = {n for i in function.instructions for n in names_in(i.operands)}
    return names | {w for n in names & module.variables.keys() for w in module.variables[n].words}


def _callee(call: Instruction) -> str:
    found = _CALLEE.match(call.operands)
    return found[1] if found else ""


def _traits(one: Instruction, module: PtxModule) -> Iterator[Trait]:
    yield from (Trait("clock", f"%{m[1]}") for m in _CLOCKS.finditer(one.operands))
    yield from (Trait("place", f"%{m[1]}") for m in _PLACES.finditer(one.operands))
    match one.name:
        case "call":
            yield from _call(_callee(one), module)
        case "brkpt":
            yield Trait("breakpoint", "brkpt")
        case "nanosleep":
            yield Trait("sleeps", "nanosleep")
        case "discard":
            yield Trait("discards", one.opcode)
        case "pmevent":
            yield Trait("profiler", "pmevent")
        case "griddepcontrol":
            yield Trait("dependents", one.opcode)
        case "mma" | "wmma" | "wgmma" | "tcgen05":
            yield from _matrix(one)
        case "cvt":
            yield from _conversion(one)
        case name if name in _OPERATIONS:
            yield from _arithmetic(one)


def _call(name: str, module: PtxModule) -> Iterator[Trait]:
    if name in module.functions or name.startswith("%") or name in _QUIET:
        return
    if name == "vprintf":
        yield Trait("prints", "printf")
    elif name in ("malloc", "free"):
        yield Trait("heap", name)
    elif name.startswith("cuda"):
        yield Trait("launches", name)
    else:
        yield Trait("calls", name)


def _types(one: Instruction) -> list[str]:
    return [_FLOATS[m] for m in one.modifiers if m in _FLOATS]


def _matrix(one: Instruction) -> Iterator[Trait]:
    """Operands and accumulators: `.d.a.b.c`, `.d.a.b` (wgmma), `.d.c` (wmma on halves)."""
    if one.name == "wmma" and one.modifiers[:1] != ("mma",):
        return
    types = _types(one)
    accumulators, operands = types[:1] + types[3:], types[1:3]
    if one.name == "wmma" and len(types) == 2:
        accumulators, operands = types, ["fp16"]
    elif one.name == "tcgen05":
        accumulators, operands = [], types
    yield from (Trait("matrix", p) for p in operands if p not in _WIDE.values())
    yield from (Trait("arithmetic", p) for p in accumulators if p not in _WIDE.values())


def _conversion(one: Instruction) -> Iterator[Trait]:
    types = [m for m in one.modifiers if re.fullmatch(r"[a-z]+\d\w*", m) and m != "relu"][-2:]
    if types and types[0] in NARROW:
        yield Trait("rounding", NARROW[types[0]])
    if types[1:] and types[1] in NARROW:
        yield Trait("holds", NARROW[types[1]])


def _arithmetic(one: Instruction) -> Iterator[Trait]:
    types = _types(one)
    if one.name in ("red", "atom") and "add" not in one.modifiers:
        return
    yield from (Trait("arithmetic", p) for p in types[:1])
    if one.name in _COARSE and "approx" in one.modifiers and types[:1] == ["fp32"]:
        yield Trait("approximation", f"{one.name}.approx.f32")
