"""What a build compiled: its notes, and the files that came into the program that is run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.nvcc_line import NvccLine, Option, object_name, read_nvcc_line
from cudaops.domain.base import Record
from cudaops.domain.program import Program, SourceFile
from cudaops.errors import InputError
from cudaops.executors.project.driver import linked_objects
from cudaops.program.lexing import byte_text
from cudaops.program.outline import Declaration, Outline, outline, spaces_of
from cudaops.program.parse import load_unit

_NO_PROGRAM = frozenset({"-c", "-S", "-E", "-M", "-MM"})
"""With one of them a host compiler links nothing."""


class CompilerInvocation(Record):
    """One compiler call of a build, as the wrapper recorded it; a build may have done so in
    its stead."""

    tool: str
    cwd: str
    words: tuple[str, ...]
    exit: int
    refused: str = ""
    """What only a GPU could have done."""

    def line(self) -> NvccLine:
        """The command taken apart, files of options in it as far as they are still there."""
        return read_nvcc_line(self.words, self._text)

    def _text(self, path: str) -> str:
        try:
            return Path(self.cwd, path).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


class CompiledSource(NamedTuple):
    """What one command made of one source."""

    source: str
    """In the tree."""
    cwd: Path
    line: NvccLine


class SourceUnit(NamedTuple):
    """A file that the build compiles, with what it includes."""

    compiled: CompiledSource
    program: Program

    def launches(self) -> set[str]:
        """Names of what it launches."""
        return {site.kernel for site in self.program.launches}

    def kernels(self) -> set[str]:
        """Names of those that it defines."""
        return {kernel.plain_name for kernel in self.program.kernels}


class Units:
    """All that nvcc compiled in a build for the program that is run, the last first."""

    def __init__(self, root: Path, log: Sequence[CompilerInvocation], executable: str) -> None:
        """`executable`: the program in the tree; empty where an interpreter is run."""
        self._root = root
        self._read: dict[str, SourceUnit] = {}
        found = list(_compilations(root, log))
        if not found:
            raise InputError(
                "the build called no nvcc that cudaops can intercept; call "
                "nvcc by its name, or as $NVCC or $CUDA_HOME/bin/nvcc"
            )
        own = _Links(log).of(root / executable, found) if executable else found
        self._compiled = {one.source: one for one in reversed(own or found)}
        everything = {one.source for one in found}
        self._beside = f" for {executable}" if everything - self._compiled.keys() else ""
        """Whose files those are, where the build compiles more."""

    def __iter__(self) -> Iterator[SourceUnit]:
        return map(self._unit, reversed(self._compiled))

    def _unit(self, source: str) -> SourceUnit:
        if source not in self._read:
            one = self._compiled[source]
            program = load_unit(self._root / source, self._root, _folders(one))
            self._read[source] = SourceUnit(one, program)
        return self._read[source]

    def first(self) -> SourceUnit:
        """One that defines kernels, where any does."""
        return next((unit for unit in self if unit.kernels()), next(iter(self)))

    def of(self, name: str) -> SourceUnit:
        """The file that the user named, or one that includes it: that in which the kernels are
        which it launches, or which are launched of it."""
        found = [unit for unit in self if any(f.path == name for f in unit.program.files)]
        if name in self._compiled:
            found = [self._unit(name)]
        if not found:
            compiled = ", ".join(reversed(self._compiled))
            raise InputError(
                f"the build does not compile {name}{self._beside}; nvcc compiled {compiled}"
            )
        for unit in found:
            if {k.plain_name for k in unit.program.kernels if k.file == name} & unit.launches():
                return unit
        launched = {s.kernel for u in found for s in u.program.launches if s.file == name}
        launched = launched or {kernel for unit in found for kernel in unit.launches()}
        for unit in chain(found, self):
            own = unit.kernels()
            if own & launched or (unit in found and own & self._launched_beside(unit)):
                return unit
        return found[0]

    def _launched_beside(self, unit: SourceUnit) -> set[str]:
        """Kernels that files launch which do not define them."""
        others = (other for other in self if other is not unit)
        return {kernel for other in others for kernel in other.launches() - other.kernels()}

    def parts_of(self, unit: SourceUnit) -> list[SourceUnit]:
        """Others that define device functions which its device code may call, and theirs: linked
        with it as `-rdc=true` has it."""
        parts: list[SourceUnit] = []
        waiting = [unit]
        while waiting:
            one = waiting.pop()
            if not is_relocatable(one.compiled.line):
                continue
            wanted = device_names(one.program)
            for other in self:
                taken = other in (unit, *parts) or not is_relocatable(other.compiled.line)
                if not taken and wanted & device_functions(other.program):
                    parts.append(other)
                    waiting.append(other)
        return parts

    def files_beside(self, program: Program) -> Iterator[SourceFile]:
        """Files that are none of the program's."""
        taken = {file.path for file in program.files}
        for file in chain.from_iterable(unit.program.files for unit in self):
            if file.path not in taken:
                taken.add(file.path)
                yield file


def is_relocatable(line: NvccLine) -> bool:
    """Whether its device code is linked with other files'."""
    return line.has("dc") or line.value("rdc") == "true"


def device_functions(program: Program) -> set[str]:
    """Last names of the device functions that a file itself defines, for other files too."""
    main = _outlines(program)[program.main_path]
    return {
        item.name.rpartition("::")[2]
        for item in main.items
        if _is_device(item) and "static" not in item.specifiers
    }


def device_names(program: Program) -> set[str]:
    """What its device code names and defines nowhere, beside much else."""
    named: set[str] = set()
    defined: set[str] = set()
    for facts in _outlines(program).values():
        for item in facts.items:
            if item.kind == "type" or item.spaces & {"__global__", "__device__"}:
                named |= {t.text for t in facts.tokens[item.first : item.last] if t.kind == "name"}
            if _is_device(item):
                defined.add(item.name.rpartition("::")[2])
    return named - defined


def _is_device(item: Declaration) -> bool:
    return item.kind == "function" and "__device__" in item.spaces and item.body is not None


def _outlines(program: Program) -> dict[str, Outline]:
    texts = {file.path: byte_text(file.text) for file in program.files}
    spaces = spaces_of(texts.values())
    return {path: outline(raw, spaces) for path, raw in texts.items()}


def _compilations(root: Path, log: Sequence[CompilerInvocation]) -> Iterator[CompiledSource]:
    """The last of each source comes first."""
    for note in reversed(log):
        if note.tool != "nvcc" or note.exit != 0:
            continue
        cwd, line = Path(note.cwd), note.line()
        if line.phase not in ("compile", "link", "lib"):
            continue
        for source in line.sources():
            path = (cwd / source).resolve()
            # CMake's own trials are no sources of the author's, and mostly gone.
            kept = path.is_file() and "CMakeFiles" not in path.parts
            if line.is_cuda(source) and kept and path.is_relative_to(root.resolve()):
                yield CompiledSource(path.relative_to(root.resolve()).as_posix(), cwd, line)


class _Links:
    """What a build linked of objects and archives, as far as its compilers were asked to."""

    def __init__(self, log: Sequence[CompilerInvocation]) -> None:
        self._inputs: dict[str, set[str]] = {}
        """Of each program."""
        self._shared: set[str] = set()
        """What came into shared libraries, which any program may load."""
        for note in log:
            path = _linked_by(note)
            if path is not None:
                found = {str(one) for one in linked_objects(note.words, Path(note.cwd))}
                self._inputs[str(path)] = {os.path.realpath(one) for one in found}
            elif note.exit == 0 and "-shared" in note.words:
                found = {str(one) for one in linked_objects(note.words, Path(note.cwd))}
                self._shared |= {os.path.realpath(one) for one in found}

    def of(self, executable: Path, found: Sequence[CompiledSource]) -> list[CompiledSource]:
        """Those of the compilations that are not known to be another program's alone."""
        own = self._inputs.get(os.path.normpath(executable))
        if own is None:
            return list(found)
        own = own | self._shared
        others = set().union(*self._inputs.values()) - own
        return [one for one in found if not self._is_others(one, executable, own, others)]

    def _is_others(
        self, one: CompiledSource, executable: Path, own: set[str], others: set[str]
    ) -> bool:
        if one.line.phase == "link":
            output = os.path.normpath(one.cwd / (one.line.output or "a.out"))
            return output in self._inputs and output != os.path.normpath(executable)
        made = os.path.realpath(one.cwd / (one.line.output or object_name(one.source)))
        return not _is_among(made, own) and _is_among(made, others)


def _is_among(made: str, linked: set[str]) -> bool:
    """Whether an object is one of those, or has the name of a member of an archive of them."""
    name = Path(made).name.encode()
    archives = (path for path in linked if path.endswith((".a", ".lib", ".rlib")))
    return made in linked or any(name in _content(path) for path in archives)


def _content(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _folders(compiled: CompiledSource) -> list[Path]:
    return [compiled.cwd / folder for folder in compiled.line.values("I", "isystem")]


def options_in_tree(compiled: CompiledSource, root: Path) -> tuple[Option, ...]:
    """Options of a compilation, folders in the tree relative to it."""
    options: list[Option] = []
    for name, value in compiled.line.code_options():
        if name in ("I", "isystem") and value is not None:
            path = (compiled.cwd / value).resolve()
            inside = path.is_relative_to(root.resolve())
            value = path.relative_to(root.resolve()).as_posix() if inside else str(path)
        options.append((name, value))
    return tuple(dict.fromkeys(options))


def linked_programs(log: Sequence[CompilerInvocation]) -> Iterator[Path]:
    """What a build linked to programs, in order; one that it linked again comes again."""
    return (path for note in log if (path := _linked_by(note)) is not None)


def _linked_by(note: CompilerInvocation) -> Path | None:
    line = note.line()
    aside = note.exit != 0 or {*_NO_PROGRAM, "-shared"} & set(note.words)
    if aside or line.phase != "link" or not line.inputs or line.has("shared"):
        return None
    path = Path(os.path.normpath(Path(note.cwd, line.output or "a.out")))
    return None if "CMakeFiles" in path.parts else path
