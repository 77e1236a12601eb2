"""Which symbol of a cubin is which kernel and which variable of the program."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.program import Program
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.cuda.source import MARK
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded

TOOL_TIMEOUT_S = 30.0
_A_TIME = 500
"""Names demangled by one process: a command line holds 128 KiB at least."""
_REMEMBERED = 20_000
_names: dict[str, str] = {}
"""Symbol to demangled name, of all that was asked in this process."""
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
"""Source: System V ABI, chapter 4, 64-bit objects."""
_SYMTAB, _OBJECT, _FUNCTION = 2, 1, 2
_LOCAL = 0
_ENTRY_BIT = 0x10
"""Set in `st_other` of what the host can launch. Seen in cubins of nvcc 13.0 and 12.x alike."""
_ATTRIBUTE = struct.Struct("<BBH")
_PARAMETER_INFO = struct.Struct("<IHHI")
_SIZED, _PARAMETER = 4, 0x17
"""Of `.nv.info.KERNEL`: form, attribute, then its size where the form says so, else its value; a
parameter's size is above bit 18. Source: what cuobjdump prints as EIATTR_KPARAM_INFO, beside
the bytes of cubins of nvcc 13.0 (2026-11-25)."""
_MARK = re.compile(rf"^void (?:\w+::)*{MARK}<(?P<entry>\d+), (?P<rest>.*)>\(\)$")
_INTERNAL = re.compile(r"_INTERNAL_\w+::|\(anonymous namespace\)::")
_LASTING = (".nv.global", ".nv.constant3")
"""Sections whose variables live as long as the module; `__shared__` ones are in others. Source:
CUDA Binary Utilities, and cubins of nvcc 13.0."""
_RESERVED_FROM_SM, _RESERVED_BYTES = 90, 1024
"""Since sm_90 a kernel's shared section holds 1 KiB of the system's, which ptxas does not count.
Source: CUDA C++ Programming Guide, compute capability 9.0; seen in cubins of nvcc 13.0."""


class Image(NamedTuple):
    """Contents of a cubin."""

    kernels: tuple[str, ...]
    """Symbols that the host can launch, marks included."""
    variables: tuple[str, ...]
    sections: dict[str, int]
    """Name to size in bytes."""
    names: dict[str, str]
    """Symbol to demangled name."""

    def constant_bytes(self, symbol: str) -> int | None:
        """Bank 0 of a kernel; None where it has none."""
        return self.sections.get(f".nv.constant0.{symbol}")

    def static_smem_bytes(self, symbol: str, sm_arch: str) -> int:
        """Static shared memory of a block, as ptxas counts it."""
        size = self.sections.get(f".nv.shared.{symbol}", 0)
        number = int(re.sub(r"\D", "", sm_arch))
        reserved = _RESERVED_BYTES if size and number >= _RESERVED_FROM_SM else 0
        return max(0, size - reserved)


class UnknownEntry(Exception):
    """No symbol, or several, match this entry."""


def read_image(path: Path) -> Image:
    """Symbols and sections of a cubin. Raises SandboxUnavailable where it is none."""
    data = path.read_bytes()
    try:
        kernels, variables, sections = _read_elf(data)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as problem:
        raise SandboxUnavailable(
            f"{path} is not a cubin that cudaops can read ({problem})", "remove it and run again"
        ) from problem
    names = demangled([*kernels, *variables], path.parent)
    return Image(tuple(kernels), tuple(variables), sections, names)


def _read_elf(data: bytes) -> tuple[list[str], list[str], dict[str, int]]:
    sections, called = _sections(data)
    sizes = {name: int(s[5]) for name, s in zip(called, sections, strict=True)}
    lasting = {n for n, name in enumerate(called) if name.startswith(_LASTING)}
    kernels: list[str] = []
    variables: list[str] = []
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            name, info, other, index, _, _ = _SYMBOL.unpack_from(data, at)
            if index and info & 15 == _FUNCTION and other & _ENTRY_BIT:
                kernels.append(_text(data, strings + name))
            elif index in lasting and info & 15 == _OBJECT:
                variables.append(_text(data, strings + name))
    return kernels, variables, sizes


def _sections(data: bytes) -> tuple[list[tuple[int, ...]], list[str]]:
    """Section headers and their names."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    header = _HEADER.unpack_from(data)
    start, size, count, names_at = header[5], header[10], header[11], header[12]
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    return sections, [_text(data, sections[names_at][4] + s[0]) for s in sections]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8")


class PlacedParameter(NamedTuple):
    """Where one parameter is in a buffer of all of a kernel's."""

    offset: int
    size_bytes: int


def kernel_parameters(path: Path, symbol: str) -> tuple[PlacedParameter, ...]:
    """A kernel's parameters in order, as its cubin tells the driver.

    Raises SandboxUnavailable where it does not.
    """
    data = path.read_bytes()
    try:
        sections, called = _sections(data)
        section = sections[called.index(f".nv.info.{symbol}")]
        found = dict(_parameters(data, section[4], section[4] + section[5]))
        return tuple(found[ordinal] for ordinal in range(len(found)))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, ValueError) as problem:
        raise SandboxUnavailable(
            f"{path} does not say what parameters {symbol} has", "remove it and run again"
        ) from problem


def _parameters(data: bytes, at: int, end: int) -> Iterator[tuple[int, PlacedParameter]]:
    while at < end:
        form, attribute, size = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form != _SIZED:
            continue
        if attribute == _PARAMETER:
            _, ordinal, offset, flags = _PARAMETER_INFO.unpack_from(data, at)
            yield ordinal, PlacedParameter(offset, flags >> 18)
        at += size


def is_local(path: Path, symbol: str) -> bool:
    """Whether a kernel is its file's own (`static`, an anonymous namespace): other files of the
    program may have another of the same name."""
    data = path.read_bytes()
    sections, _ = _sections(data)
    for section in sections:
        if section[1] == _SYMTAB:
            strings = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, info, *_ = _SYMBOL.unpack_from(data, at)
                if _text(data, strings + name) == symbol:
                    return bool(info >> 4 == _LOCAL)
    return False


def demangled(symbols: Sequence[str], folder: Path) -> dict[str, str]:
    """Symbol to name; what is no mangled name is its own. Names are remembered: the drafts of a
    search have most in common, and a confined process takes as long as the compiler. Raises
    PrerequisiteError."""
    found = {symbol: _names[symbol] for symbol in symbols if symbol in _names}
    unknown = [symbol for symbol in dict.fromkeys(symbols) if symbol not in found]
    for start in range(0, len(unknown), _A_TIME):
        part = unknown[start : start + _A_TIME]
        done = run_bounded(
            ["c++filt", *part],
            cwd=folder,
            timeout_s=TOOL_TIMEOUT_S,
            confine=Confinement("compile"),
        )
        lines = done.stdout.splitlines()
        if done.exit_code != 0 or len(lines) != len(part):
            raise PrerequisiteError(
                f"c++filt failed: {done.stderr.strip()[:200]}", "install binutils"
            )
        found |= zip(part, lines, strict=True)
    if len(_names) + len(unknown) > _REMEMBERED:
        _names.clear()
    _names.update((symbol, found[symbol]) for symbol in unknown)
    return found


def find_launchables(image: Image, shown: Mapping[int, str]) -> tuple[Launchable, ...]:
    """The kernel of every entry, in the order of `shown`. Raises UnknownEntry."""
    marks: dict[int, tuple[str, str]] = {}
    for symbol in image.kernels:
        if mark := _MARK.match(image.names[symbol]):
            kind, _, kernel = _cut(mark["rest"])
            marks[int(mark["entry"])] = (kind, kernel)
    kernels = {s: image.names[s] for s in image.kernels if not _MARK.match(image.names[s])}
    return tuple(_launchable(entry, text, marks, kernels) for entry, text in shown.items())


def _cut(arguments: str) -> tuple[str, str, str]:
    """A mark's last two template arguments: `void (*)(float*, int)` and `k(float*, int)`."""
    parts = split_types(arguments)
    kernel = parts[-1].strip().removeprefix("&")
    if kernel.startswith("(") and kernel.endswith(")") and not kernel.startswith("(anonymous"):
        kernel = kernel[1:-1]
    return ", ".join(parts[:-1]), "&", kernel


def _launchable(
    entry: int, shown: str, marks: Mapping[int, tuple[str, str]], kernels: Mapping[str, str]
) -> Launchable:
    if entry not in marks:
        raise UnknownEntry(f"`{shown}` is not in what was compiled")
    kind, wanted = marks[entry]
    types = function_parameters(kind)
    # A function with C linkage has no types in its symbol, and c++filt leaves those of a function
    # in a namespace out where only its address is taken.
    found = [s for s, name in kernels.items() if name == wanted] or [
        s
        for s, name in kernels.items()
        if _callable(name) == _callable(wanted) and (name == s or split_call(name)[1] == types)
    ]
    if len(found) != 1:
        raise UnknownEntry(f"`{shown}` stands for {len(found)} kernels of what was compiled")
    return Launchable(entry=entry, symbol=found[0], shown=shown, parameter_types=types)


def _callable(name: str) -> str:
    """A function's name with its template arguments: no return type, no parameters."""
    head = split_call(name)[0]
    return split_types(head, " ")[-1] if "<" not in head else head.removeprefix("void ")


def function_parameters(pointer: str) -> tuple[str, ...]:
    """Parameter types of a function pointer's type: `void (*)(float*, int)`."""
    text = pointer.strip().removesuffix("noexcept").strip()
    return split_call(text.replace("(*)", "", 1))[1]


def split_call(name: str) -> tuple[str, tuple[str, ...]]:
    """A demangled function as what is before its parameters, and these."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            if name[at] != "(" or not name.endswith(")"):
                return name, ()
            inside = name[at + 1 : -1].strip()
            return name[:at], () if inside in ("", "void") else split_types(inside)
    return name, ()


def split_types(text: str, separator: str = ",") -> tuple[str, ...]:
    """Parts between separators that are outside of every bracket."""
    parts = [""]
    depth = 0
    for at, character in enumerate(text):
        depth += character in "(<[{"
        depth -= character in ")]}" or (character == ">" and text[at - 1 : at] != "-")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts)


def find_variables(image: Image, program: Program) -> dict[str, str]:
    """Qualified name to symbol of the device variables in the image, those of a rewrite's own text
    among them, the program's first. What nvcc adds itself (`$str`) has no name and is left out.

    Internal linkage is no hindrance: the driver finds a variable by the name in its module's symbol
    table, which for these is the mangled one of nvcc's own namespace.
    """
    known = {_INTERNAL.sub("", image.names[s]): s for s in image.variables}
    names = dict.fromkeys(v.qualified_name for v in program.global_variables)
    ordered = dict.fromkeys((*names, *known))
    return {name: known[name] for name in ordered if name in known and "$" not in name}
