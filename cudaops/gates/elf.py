"""ELF files as the object gate reads them: sections, symbols, and what refers to what.

Source of the layout: System V ABI, chapter 4; relocation types: x86-64 and AArch64 psABIs.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _RELA = 2, 4
_EXECUTABLE = 4
"""SHF_EXECINSTR."""
_PC_RELATIVE = {62: frozenset({2, 4, 9, 41, 42})}
"""R_X86_64_PC32, PLT32, GOTPCREL and its relaxed forms: the place is 4 bytes behind the address."""
_CALLS = {62: frozenset({2, 4}), 183: frozenset({282, 283})}
"""R_X86_64_PC32 and PLT32, R_AARCH64_JUMP26 and CALL26: of a function, its call."""

OBJECT, FUNCTION, TLS, IFUNC = 1, 2, 6, 10
LOCAL, GLOBAL = 0, 1


class Section(NamedTuple):
    """One section."""

    name: str
    size_bytes: int


class ElfSymbol(NamedTuple):
    """One symbol."""

    name: str
    type: int
    binding: int
    section: int
    """Index; 0: not defined here."""
    value: int
    size_bytes: int
    other: int

    @property
    def is_defined(self) -> bool:
        return self.section != 0


class ElfReference(NamedTuple):
    """A place in one section that names another place."""

    source: int
    """Section that refers."""
    place: int
    """Where in that section."""
    symbol: ElfSymbol
    offset: int
    """Behind the symbol's own value."""
    calls: bool


class ElfFile(NamedTuple):
    """What stands in one relocatable file."""

    sections: tuple[Section, ...]
    symbols: tuple[ElfSymbol, ...]
    references: tuple[ElfReference, ...]

    def size_of(self, *prefixes: str) -> int:
        """Bytes of all sections whose names begin so."""
        return sum(s.size_bytes for s in self.sections if s.name.startswith(prefixes))

    def within(self, functions: Collection[str]) -> Iterator[ElfReference]:
        """What these functions refer to."""
        for reference in self.references:
            holder = self.at(reference.source, reference.place)
            if holder is not None and holder.name in functions:
                yield reference

    def at(self, section: int, offset: int) -> ElfSymbol | None:
        """The function or variable that holds this byte of a section."""
        for one in self.symbols if section else ():
            inside = one.value <= offset < one.value + max(one.size_bytes, 1)
            if one.section == section and one.type in (OBJECT, FUNCTION, TLS) and inside:
                return one
        return None


class ElfError(Exception):
    """A file that is no ELF file of 64 bits, or a broken one."""


def read_elf(path: Path) -> ElfFile:
    """Read an object file or a cubin. Raises ElfError."""
    try:
        return _read(path.read_bytes())
    except (OSError, struct.error, IndexError, ValueError) as problem:
        raise ElfError(f"{path.name} cannot be read: {problem}") from problem


def _read(data: bytes) -> ElfFile:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(data)
    machine, start, size, count, names_at = header[1], header[5], header[10], header[11], header[12]
    raw = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    names = [_text(data, raw[names_at][4] + s[0]) for s in raw]
    tables = {i: _symbols(data, raw, s) for i, s in enumerate(raw) if s[1] == _SYMTAB}
    references = [
        reference
        for s in raw
        if s[1] == _RELA and s[6] in tables
        for reference in _references(data, raw, s, tables[s[6]], machine)
    ]
    sections = tuple(Section(name, s[5]) for name, s in zip(names, raw, strict=True))
    return ElfFile(sections, tuple(y for t in tables.values() for y in t), tuple(references))


def _symbols(data: bytes, raw: list[tuple[int, ...]], table: tuple[int, ...]) -> list[ElfSymbol]:
    strings = raw[table[6]][4]
    found = []
    for at in range(table[4], table[4] + table[5], _SYMBOL.size):
        name, info, other, section, value, size = _SYMBOL.unpack_from(data, at)
        text = _text(data, strings + name)
        found.append(ElfSymbol(text, info & 15, info >> 4, section, value, size, other))
    return found


def _references(
    data: bytes,
    raw: list[tuple[int, ...]],
    table: tuple[int, ...],
    symbols: list[ElfSymbol],
    machine: int,
) -> list[ElfReference]:
    found = []
    for at in range(table[4], table[4] + table[5], _RELOCATION.size):
        place, info, addend = _RELOCATION.unpack_from(data, at)
        kind, symbol = info & 0xFFFFFFFF, symbols[info >> 32]
        behind = 4 if kind in _PC_RELATIVE.get(machine, frozenset()) else 0
        is_data = 0 < symbol.section < len(raw) and not raw[symbol.section][2] & _EXECUTABLE
        calls = symbol.type in (0, FUNCTION) and kind in _CALLS.get(machine, frozenset())
        found.append(ElfReference(table[7], place, symbol, addend + behind, calls and not is_data))
    return found


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8")
