"""The object file that g++ made of a unit: nothing in it may run by itself or stand for ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.cpu.build import OBJECT as UNIT_OBJECT
from cudaops.executors.cpu.toolchain import around
from cudaops.executors.cuda.symbols import demangled
from cudaops.program.candidate import NAMESPACE
from cudaops.sandbox.verification.objects_elf import (
    FUNCTION,
    GLOBAL,
    IFUNC,
    LOCAL,
    OBJECT,
    ElfFile,
    Symbol,
    read_elf,
)

BY_ITSELF = (".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors", ".init", ".fini")
_KNOWN_SECTIONS = (
    ".text", ".rodata", ".data", ".bss", ".tbss", ".tdata", ".rel", ".debug", ".eh_frame", ".group",
    ".comment", ".note", ".symtab", ".strtab", ".shstrtab", ".gcc_except_table", *BY_ITSELF,
)  # fmt: skip
_OURS = f"{len(NAMESPACE)}{NAMESPACE}"
_IN_NAMESPACE = re.compile(rf"_Z(?:Z|GV|T[VISTtch]|GR)*N?K?{_OURS}")
_ENTRY = re.compile(r"cudaops_entry_\d+")
_HOST_API = re.compile(r"_Z\d+cu(?:da)?[A-Z]|cu(?:da)?[A-Z]")
_ALLOCATORS = re.compile(r"_Z(?:nw|na|dl|da)")

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2
    expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma lgamma_r
    llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter pow
    remainder remquo rint round scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
"""
"""Source: ISO C, section 7.12, with the Bessel functions, exp10 and sincos that CUDA has too."""
_ALLOWED = frozenset({
    *_MATH.split(), *(f"{name}f" for name in _MATH.split()),
    "memcpy", "memmove", "memset", "memcmp", "printf", "malloc", "free", "clock", "abort",
    "__assert_fail",
    "_Znwm", "_Znam", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm",
    "_GLOBAL_OFFSET_TABLE_", "__tls_get_addr", "__stack_chk_fail", "_Unwind_Resume",
    "__gxx_personality_v0",
})  # fmt: skip
"""Device functions that a processor's libraries have under the same names, and what g++ itself
calls; `abort` is a trap. Clocks, printf and the heap are judged as device code."""
_COMPILERS_OWN = re.compile(
    r"__(?:u?(?:div|mod|divmod)[a-z]i\d|(?:mul|div)[a-z]c3|(?:extend|trunc|fix|float)\w+"
    r"|powi[a-z]f2|(?:popcount|clz|ctz|parity|bswap)[a-z]i2|(?:ash|lsh)\w+|mul[a-z]i3)"
)
"""Source: GCC internals manual, chapter 4, libgcc."""


class HostLook(NamedTuple):
    """What stands in a candidate's object and not in the baseline's."""

    refused: tuple[str, ...]
    numbers: dict[str, float]


def look_at_object(candidate: Compiled, baseline: Compiled, rewrite: Rewrite) -> HostLook:
    """Compare two objects of the `cpu` executor.

    Raises ElfError where one of them is not there, PrerequisiteError without c++filt.
    """
    ours = read_elf(Path(candidate.folder) / UNIT_OBJECT)
    authors = read_elf(Path(baseline.folder) / UNIT_OBJECT)
    runtime = _runtime_symbols(Path(candidate.folder).parent)
    called = (step.kernel.partition("<")[0] for step in rewrite.plan.launches)
    kernels = {name.strip().rpartition("::")[2] for name in called}
    found = [
        *_by_itself(ours, authors),
        *_startup(ours, authors, kernels),
        *_called(ours, authors, runtime),
        *_defined(ours, authors, runtime),
    ]
    folder = Path(candidate.folder)
    numbers = {
        "init_array_bytes": float(ours.size_of(*BY_ITSELF)),
        "init_array_bytes_baseline": float(authors.size_of(*BY_ITSELF)),
        "undefined_symbols": float(len(_undefined(ours))),
    }
    return HostLook(tuple(dict.fromkeys(_readable(line, folder) for line in found)), numbers)


def _by_itself(ours: ElfFile, authors: ElfFile) -> Iterator[str]:
    size, known = ours.size_of(*BY_ITSELF), authors.size_of(*BY_ITSELF)
    if size > known:
        yield f"{size} bytes of functions that run by themselves, where the baseline has {known}"
    there = {s.name for s in authors.sections}
    for section in ours.sections:
        new = section.name and section.name not in there
        if new and not section.name.startswith(_KNOWN_SECTIONS):
            yield f"section `{section.name}` is none of a kernel"
    for symbol in ours.symbols:
        if symbol.type == IFUNC:
            yield f"`{symbol.name}` is chosen by a function that runs while loading"


def _startup(ours: ElfFile, authors: ElfFile, kernels: Collection[str]) -> Iterator[str]:
    """What runs before main registers the unit's entries, and does nothing for the candidate."""
    known = {r.symbol.name for r in authors.within(_starters(authors))}
    for reference in ours.within(_starters(ours)):
        symbol = reference.symbol
        if not symbol.name:
            symbol = ours.at(symbol.section, reference.offset) or symbol
        theirs = _OURS in symbol.name
        if reference.calls and symbol.name not in known and not _is_registration(symbol.name):
            yield f"`{symbol.name}` is called before the kernels are launched"
        elif theirs and symbol.type == FUNCTION:
            if not any(f"{len(k)}{k}" in symbol.name for k in kernels):
                yield f"`{symbol.name}` is handed over before the kernels are launched"
        elif theirs and symbol.type == OBJECT and not _ENTRY.search(symbol.name):
            yield f"`{symbol.name}` is set before the kernels are launched"


def _is_registration(name: str) -> bool:
    return name.startswith(("_ZN7cudaops5EntryC", "_ZN7cudaops10make_entry"))


def _starters(file: ElfFile) -> set[str]:
    """Functions that `.init_array` names, and those of initialisation that they may call."""
    indices = {i for i, s in enumerate(file.sections) if s.name.startswith(BY_ITSELF)}
    found = {s.name for s in file.symbols if "static_initialization_and_destruction" in s.name}
    for reference in file.references:
        if reference.source in indices:
            symbol = reference.symbol
            held = symbol if symbol.name else file.at(symbol.section, reference.offset)
            found |= {held.name} if held is not None else set()
    return found


def _undefined(file: ElfFile) -> set[str]:
    return {s.name for s in file.symbols if not s.is_defined and s.name}


def _called(ours: ElfFile, authors: ElfFile, runtime: Collection[str]) -> Iterator[str]:
    """Symbols from elsewhere that no device code needs."""
    for name in sorted(_undefined(ours) - _undefined(authors)):
        device = name in runtime and not _HOST_API.match(name)
        if not (device or name in _ALLOWED or _COMPILERS_OWN.fullmatch(name)):
            yield f"`{name}` is a host function"


def _defined(ours: ElfFile, authors: ElfFile, runtime: Collection[str]) -> Iterator[str]:
    """Symbols that others would find, under names that are not the candidate's."""
    known = {s.name for s in authors.symbols if s.is_defined}
    for symbol in ours.symbols:
        new = symbol.is_defined and symbol.name and symbol.name not in known
        if new and symbol.binding != LOCAL and not _may_define(symbol, runtime):
            yield f"`{symbol.name}` is defined outside of the candidate's namespace"


def _may_define(symbol: Symbol, runtime: Collection[str]) -> bool:
    """A strong symbol must be the candidate's; a weak one may be any header's template."""
    name = symbol.name
    if _IN_NAMESPACE.match(name):
        return True
    if symbol.binding == GLOBAL or not name.startswith("_Z"):
        return False
    return name not in runtime and not _HOST_API.match(name) and not _ALLOCATORS.match(name)


def _runtime_symbols(cache: Path) -> frozenset[str]:
    """What our own objects define."""
    paths = [Path(p) for p in around(cache, "plain", UNIT_OBJECT, runner=True)]
    files = [read_elf(p) for p in paths if p.name != UNIT_OBJECT]
    return frozenset(s.name for f in files for s in f.symbols if s.is_defined and s.binding)


def _readable(line: str, folder: Path) -> str:
    """The line with its symbol as it stands in the source."""
    symbol = line.split("`")[1] if "`" in line else ""
    if not symbol.startswith("_Z"):
        return line
    shown = demangled([symbol], folder)[symbol].replace(f"{NAMESPACE}::", "")
    return line.replace(symbol, shown)
