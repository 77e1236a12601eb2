"""Intake: an untouched `.cu` with its quoted local includes becomes a Program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.program import (
    PLAIN,
    Application,
    Build,
    Compilation,
    GlobalVariable,
    Kernel,
    LaunchSite,
    Program,
    ReferenceProblem,
    SourceFile,
    first_site,
)
from cudaops.errors import InputError
from cudaops.program.compilation import options_from, own_folders
from cudaops.program.instances import plain_arguments
from cudaops.program.launches import ByteRange, LaunchCall, find_launches, joined
from cudaops.program.lexing import Lexed, byte_text, closing, lex, line_of, plain_text
from cudaops.program.limits import find_limits
from cudaops.program.macros import Macro, alias_of, kernel_macros, resolve_launched, text_made
from cudaops.program.outline import (
    Declaration,
    Outline,
    declarators,
    kernel_declarations,
    outline,
    spaces_of,
)
from cudaops.program.overloads import sharing_names, told_apart
from cudaops.program.signature import read_parameters, read_template_parameters

MAX_BYTES = 5_000_000
"""Largest program, all files together. Larger ones are generated or not programs at all."""


def load_program(
    path: Path,
    compilation: Compilation = PLAIN,
    *,
    host: str = "",
    problem: ReferenceProblem | None = None,
) -> Program:
    """Read and parse a program; `host`: text that is put behind its main file's, of a `problem`.
    Raises InputError with one line that says what to do."""
    found: dict[Path, str] = {}
    external: list[str] = []
    headers = _Headers(folders=own_folders(compilation))
    _collect(path.resolve(), read_source(path) + host, found, external, headers)
    if not any("__global__" in text or "<<<" in joined(text) for text in found.values()):
        raise InputError(_without_cuda(path, len(found)))
    if sum(len(t) for t in found.values()) > MAX_BYTES:
        raise InputError(f"{path}: larger than 5 MB with its local includes; reduce it first")
    root = Path(os.path.commonpath([p.parent for p in found]))
    files = tuple(SourceFile(path=p.relative_to(root).as_posix(), text=t) for p, t in found.items())
    program = parse_files(path.stem, files, tuple(external), problem=problem)
    options = options_from(compilation, root, tuple(found))
    program = program.model_copy(update={"compilation": compilation, "options": options})
    require_runnable(path, program)
    return program


def _without_cuda(path: Path, files: int) -> str:
    """Why nothing of a program of so many files runs on a GPU."""
    read = " nor in what it includes" if files > 1 else ""
    instead = "is it a .cu file?"
    if path.suffix == ".cu":
        instead = "there is nothing to optimize"
    return f"{path}: no CUDA code in it{read} (no `__global__`, no `<<<`); {instead}"


def load_kernels(path: Path) -> Program:
    """Kernels that another program launches: a file without launches and without a `main`. Raises
    InputError with one line that says what to do."""
    found: dict[Path, str] = {}
    external: list[str] = []
    _collect(path.resolve(), read_source(path), found, external, _Headers())
    root = Path(os.path.commonpath([p.parent for p in found]))
    files = tuple(SourceFile(path=p.relative_to(root).as_posix(), text=t) for p, t in found.items())
    program = parse_files(path.stem, files, tuple(external))
    if not program.kernels:
        why = _limit(program, "defines a kernel") or "no `__global__` function with a body"
        raise InputError(f"{path}: no kernel in it ({why})")
    if program.launches or any(_has_main(text) for text in found.values()):
        raise InputError(
            f"{path} launches kernels itself; --run without --build is for a file of kernels that "
            "another program launches: leave --run out, or say with --build how it is built"
        )
    return program


def load_unit(path: Path, root: Path, folders: Sequence[Path] = ()) -> Program:
    """One file of a build with what it includes of the tree under `root`; it may lack kernels,
    launches and a `main`. `folders`: where its compiler looks for headers, first to last.

    Paths are relative to `root`. Raises InputError where a file cannot be read.
    """
    root = root.resolve()
    found: dict[Path, str] = {}
    external: list[str] = []
    headers = _Headers(root, [p.resolve() for p in folders])
    _collect(path.resolve(), read_source(path), found, external, headers)
    files = tuple(SourceFile(path=p.relative_to(root).as_posix(), text=t) for p, t in found.items())
    return parse_files(path.stem, files, tuple(external), of_build=True)


def parse_files(
    root_name: str,
    files: tuple[SourceFile, ...],
    external: tuple[str, ...] = (),
    build: Build | None = None,
    problem: ReferenceProblem | None = None,
    application: Application | None = None,
    *,
    of_build: bool = False,
) -> Program:
    """Parse files that are already read, the main file first. `external`: quoted includes that are
    not local; `of_build`: they are of one, which is not known yet. Of a build's callers launches of
    the others' kernels are taken alone. Never fails: what is not there is absent from the Program.
    """
    spaces = spaces_of(byte_text(f.text) for f in files)
    everything = [_FileFacts(f.path, outline(byte_text(f.text), spaces)) for f in files]
    beside = () if build is None else build.callers
    read = [facts for facts in everything if facts.path not in beside]
    made = kernel_macros([facts.lexed for facts in everything])
    kernels = told_apart([k for facts in read for k in facts.kernels(made)])
    kernels = sharing_names(kernels, [facts.outline for facts in read])
    names = {k.plain_name for k in kernels}
    sites: list[LaunchSite] = []
    for facts in everything:
        first = first_site(facts.path) if of_build or build is not None else len(sites)
        found = facts.launches(first, names)
        own = {k.plain_name for k in facts.kernels(made)} if facts.path in beside else set()
        sites += [s for s in found if facts.path not in beside or s.kernel in names - own]
    lexed = [facts.lexed for facts in read]
    return Program(
        root_name=root_name,
        main_path=files[0].path,
        files=files,
        system_includes=tuple(
            name
            for name in dict.fromkeys([*_system_includes(lexed), *external])
            if not any(f"/{f.path}".endswith(f"/{name}") for f in files)
        ),
        kernels=kernels,
        global_variables=tuple(v for facts in read for v in facts.global_variables()),
        launches=tuple(sites),
        limits=find_limits([(facts.path, facts.outline) for facts in read], kernels, made),
        build=build,
        problem=problem,
        application=application,
    )


def callers_of(program: Program, units: Iterable[Program]) -> tuple[SourceFile, ...]:
    """Files of a build's other `units` that are none of the program's and whose own launch its
    kernels, or declare them for who does."""
    found = {file.path: file for file in program.files}
    known = {kernel.qualified_name: kernel.plain_name for kernel in program.kernels}
    for unit in units:
        kernels = {site.kernel for site in unit.launches} - {k.plain_name for k in unit.kernels}
        kernels &= set(known.values())
        declared = _declared(unit) if kernels else {}
        named = {item for items in declared.values() for item in items}
        # Another file's kernel may be called the same in another namespace.
        kernels -= {item.name for item in named if item.qualified_name not in known}
        for file in unit.files if kernels else ():
            launched = {s.kernel for s in unit.launches if s.file == file.path}
            if kernels & (launched | {item.name for item in declared[file.path]}):
                found.setdefault(file.path, file)
    return tuple(found.values())[len(program.files) :]


def _declared(program: Program) -> dict[str, tuple[Declaration, ...]]:
    """Kernels that each file declares, by path."""
    texts = {file.path: byte_text(file.text) for file in program.files}
    spaces = spaces_of(texts.values())
    return {path: kernel_declarations(outline(raw, spaces)) for path, raw in texts.items()}


def read_source(path: Path, *, may_be_empty: bool = False) -> str:
    """The text of a CUDA source. Raises InputError where it cannot be one."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory; name the .cu file in it")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be read ({problem.strerror}); check its permissions"
        ) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than 5 MB; is it CUDA source?")
    if not data.strip() and not may_be_empty:
        raise InputError(f"{path}: is empty; give a CUDA program")
    if b"\0" in data:
        raise InputError(f"{path}: is a binary file; give the .cu source it was built from")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class _Headers(NamedTuple):
    """Where the headers of a program are."""

    root: Path = Path("/")
    """None outside of this folder is the program's."""
    folders: Sequence[Path] = ()
    """Looked in for any header, for one between quotes after the folder of who includes it."""

    def find(self, name: str, *beside: Path) -> Path | None:
        """The program's own header of this name, looked for in `beside` first."""
        for folder in () if Path(name).is_absolute() else (*beside, *self.folders):
            target = Path(os.path.normpath(folder / name))
            if target.is_file() and target.resolve().is_relative_to(self.root):
                return target.resolve()
        return None


def _collect(
    path: Path, text: str, found: dict[Path, str], external: list[str], headers: _Headers
) -> None:
    found[path] = text
    for name in _includes(lex(byte_text(text))):
        quoted, bare = name.startswith('"'), name[1:-1]
        target = headers.find(bare, *([path.parent] if quoted else []))
        if target is not None and target not in found:
            _collect(target, read_source(target, may_be_empty=True), found, external, headers)
        elif target is None and quoted:
            external.append(bare)


def quoted_includes(lexed: Lexed) -> list[str]:
    """Names between quotes that the file includes; those are looked for beside it."""
    return [n[1:-1] for n in _includes(lexed) if n.startswith('"')]


def _system_includes(files: Iterable[Lexed]) -> list[str]:
    return [n[1:-1] for lexed in files for n in _includes(lexed) if n.startswith("<")]


def _includes(lexed: Lexed) -> list[str]:
    """Included names with their delimiters; dead branches left out."""
    names = []
    for directive in lexed.directives:
        words = lexed.tokens[directive.first + 2 : directive.last]
        if directive.keyword == "include" and words and not lexed.dead(directive.start):
            name = plain_text(lexed.text[words[0].start : words[-1].end]).strip()
            if name[0] + name[-1] in ('""', "<>"):
                names.append(name)
    return names


_OF_FILES = "where it is built of several files, say how: --build make --run ./app"


def require_runnable(path: Path | str, program: Program) -> None:
    """Raise InputError, naming `path`, where a program has no kernel, no launch or no `main`."""
    require_kernels(path, program)
    if not any(_has_main(f.text) for f in program.files):
        raise InputError(
            f"{path}: no `main` function; give the whole program, not a kernel alone: {_OF_FILES}"
        )


def require_kernels(path: Path | str, program: Program) -> None:
    """Raise InputError, naming `path`, where a program has no kernel or no launch."""
    if not program.kernels:
        why = _limit(program, "defines a kernel") or "no `__global__` function with a body"
        first = program.launches[0] if program.launches and program.build is None else None
        if first and _defines(program, first.kernel):
            why = f"what defines `{first.kernel}` cannot be read: does nvcc compile it?"
        elif first:
            place = f"{first.file}:{first.line}"
            raise InputError(
                f"{place} launches `{first.kernel}`, which another file defines; {_OF_FILES}"
            )
        raise InputError(f"{path}: no kernel in it ({why})")
    if not program.launches:
        missing = "add a launch"
        if program.build is not None:
            missing = "no other file of the build launches one of its kernels by name either"
        why = _unclosed(program) or _limit(program, "a launch") or missing
        raise InputError(f"{path}: no kernel is launched with `<<<grid, block>>>` ({why})")


def _unclosed(program: Program) -> str:
    """Where the first brace is that is not closed; empty where all are."""
    for file in program.files:
        lexed = lex(byte_text(file.text))
        opened: list[int] = []
        for token in (t for t in lexed.tokens if t.directive < 0 and t.text in ("{", "}")):
            if token.text == "{":
                opened.append(token.start)
            elif opened:
                opened.pop()
        if opened:
            return f"{file.path}:{line_of(lexed.text, opened[0])}: this `{{` is never closed"
    return ""


def _defines(program: Program, kernel: str) -> bool:
    """Whether its text does, though no kernel could be read."""
    head = re.compile(rf"__global__[^;{{}}]*\b{re.escape(kernel)}\s*\([^;{{}}]*\)\s*{{")
    return any(head.search(file.text) for file in program.files)


def _limit(program: Program, words: str) -> str:
    """What is not followed in it and stands instead of what is missing; empty where nothing is."""
    return next((limit for limit in program.limits if words in limit), "")


def is_program(path: Path) -> bool:
    """Whether a file, or a header that it includes with quotes, defines `main`. Raises InputError
    where one of them cannot be read."""
    found: dict[Path, str] = {}
    _collect(path.resolve(), read_source(path), found, [], _Headers())
    return any(map(_has_main, found.values()))


def _has_main(text: str) -> bool:
    items = outline(byte_text(text)).items
    return any(i.kind == "function" and i.qualified_name == "main" for i in items)


class _Lines(NamedTuple):
    first: int
    last: int


class _FileFacts:
    """What one file's outline says, as records."""

    def __init__(self, path: str, facts: Outline) -> None:
        self.path, self.outline, self.lexed = path, facts, facts.lexed

    def text(self, part: ByteRange) -> str:
        return plain_text(self.lexed.text[part.start : part.end])

    def _lines(self, item: Declaration) -> _Lines:
        return _Lines(line_of(self.lexed.text, item.start), line_of(self.lexed.text, item.end))

    def _between(self, indices: tuple[int, int]) -> str:
        tokens = self.outline.tokens
        return self.text(ByteRange(tokens[indices[0]].end, tokens[indices[1]].start))

    def kernels(self, made: Mapping[str, Macro]) -> list[Kernel]:
        """`made`: the program's macros that define kernels."""
        found = []
        for item in self.outline.items:
            if item.is_kernel and item.parameters:
                found.append(self._kernel(item))
            elif item.is_made:
                found += self._made(item, made)
        return found

    def _made(self, item: Declaration, macros: Mapping[str, Macro]) -> list[Kernel]:
        """Those that a macro defines, where it is used: with their own text."""
        text = text_made(macros, self.outline, item)
        if text is None:
            return []
        place = self._lines(item)
        return [
            k.model_copy(
                update={
                    "qualified_name": "::".join((*item.namespaces, k.qualified_name)),
                    "first_line": place.first,
                    "last_line": place.last,
                    "start_byte": item.start,
                    "end_byte": item.end,
                }
            )
            for k in _FileFacts(self.path, outline(text)).kernels({})
        ]

    def _kernel(self, item: Declaration) -> Kernel:
        text = self.text(ByteRange(item.start, item.end))
        lines = self._lines(item)
        assert item.parameters is not None
        return Kernel(
            name=item.name,
            qualified_name=item.qualified_name,
            parameters=read_parameters(self._between(item.parameters)),
            template_parameters=()
            if item.template is None
            else read_template_parameters(self._between(item.template)),
            launch_bounds=self._launch_bounds(item),
            file=self.path,
            first_line=lines.first,
            last_line=lines.last,
            start_byte=item.start,
            end_byte=item.end,
            text=text,
            uses_dynamic_shared=self._uses_dynamic_shared(item),
        )

    def _launch_bounds(self, item: Declaration) -> str | None:
        tokens = self.outline.tokens
        for index in range(item.first, item.body[0] if item.body else item.last):
            if tokens[index].text == "__launch_bounds__":
                end = index + 2
                depth = 1
                while depth and end < item.last:
                    depth += (tokens[end].text == "(") - (tokens[end].text == ")")
                    end += 1
                return self.text(ByteRange(tokens[index + 1].end, tokens[end - 1].start)).strip()
        return None

    def _uses_dynamic_shared(self, item: Declaration) -> bool:
        words = [t.text for t in self.outline.tokens[item.first : item.last]]
        inside = any(
            a == "extern" and "__shared__" in words[i : i + 8] for i, a in enumerate(words)
        )
        return inside or bool(self._shared_names() & set(words))

    def _shared_names(self) -> set[str]:
        return {
            i.name
            for i in self.outline.items
            if i.kind == "variable" and {"extern", "__shared__"} <= i.specifiers
        }

    def global_variables(self) -> list[GlobalVariable]:
        return [v for i in self.outline.items for v in self._variable(i)]

    def _variable(self, item: Declaration) -> list[GlobalVariable]:
        space = next(
            (s for s in ("constant", "managed", "device") if f"__{s}__" in item.spaces), None
        )
        if space is None or item.kind not in ("variable", "type"):
            return []
        tokens = self.outline.tokens
        names = declarators(tokens, item)
        if not names:
            return []
        until = next(
            (i for i in range(item.first, names[0]) if tokens[i].text in ("*", "{")), names[0]
        )
        base = [
            t.text
            for t in tokens[item.first : until]
            if t.text not in (f"__{space}__", "static", "extern", "__device__")
        ]
        found = []
        for at in names:
            start = at
            while tokens[start - 1].text in ("*", "&", "const", "volatile", "__restrict__"):
                start -= 1
            own = [t.text for t in tokens[max(start, until) : at]]
            behind_pointer = own[len(own) - own[::-1].index("*") :] if "*" in own else base
            if {"const", "constexpr"} & set(behind_pointer):
                continue  # of no use to who restores what a launch finds: nothing changes it
            name = tokens[at].text
            qualified = "::".join((*item.namespaces, name))
            found += [
                GlobalVariable(
                    name=name + arguments,
                    qualified_name=qualified + arguments,
                    space=space,
                    type_text=" ".join([*base, *own]) + self._extents(item, at),
                    file=self.path,
                    line=line_of(self.lexed.text, tokens[at].start),
                )
                for arguments in self._instances(item)
            ]
        return found

    def _instances(self, item: Declaration) -> list[str]:
        """Nothing of a variable; of a template of one the arguments with which this file names it,
        of those that mean the same anywhere: numbers and C++'s own types of one word."""
        if item.template is None:
            return [""]
        named = plain_arguments(self.outline.tokens, item.name)
        return [f"<{','.join(each)}>" for each in named]

    def _extents(self, item: Declaration, at: int) -> str:
        """`[4][16]` after the name."""
        tokens = self.outline.tokens
        end = at + 1
        while end < item.last and tokens[end].text == "[":
            end = closing(tokens, end) + 1
        return self.text(ByteRange(tokens[at].end, tokens[end - 1].end)).strip()

    def launches(self, first: int, kernels: set[str]) -> list[LaunchSite]:
        found: list[LaunchSite] = []
        for launch in find_launches(self.lexed):
            if self.outline.is_in_device_code(launch.start):
                continue
            holder = self.outline.item_at(launch.start)
            found.append(self._site(first + len(found), launch, holder, kernels))
        return found

    def _site(
        self, index: int, launch: LaunchCall, holder: Declaration | None, kernels: set[str]
    ) -> LaunchSite:
        written = [self.text(p) for p in launch.geometry]
        grid, block, smem, stream = [*written, *[None] * 4][:4]
        named = alias_of(launch, holder, self.outline, kernels) or launch
        return LaunchSite(
            index=index,
            kernel=resolve_launched(launch, holder, self.outline, kernels),
            callee=self.text(named.callee),
            template_arguments=None if named.template is None else self.text(named.template),
            grid=grid or "",
            block=block or "",
            smem=smem,
            stream=stream,
            args=tuple(self.text(p) for p in launch.arguments),
            file=self.path,
            line=line_of(self.lexed.text, launch.start),
            start_byte=launch.start,
            end_byte=launch.end,
            enclosing_start_byte=self._enclosing(launch, holder),
            in_macro=launch.directive is not None,
        )

    def _enclosing(self, launch: LaunchCall, holder: Declaration | None) -> int:
        if launch.directive is not None:
            return launch.directive.start
        return launch.start if holder is None else holder.start
