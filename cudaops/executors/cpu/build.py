"""Builds by content: the same source, flags and compiler are compiled once, whoever asks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.nvcc_line import (
    LIBRARY,
    folders_outside,
    preprocessor_words,
    read_nvcc_line,
)
from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import Compiled, CompileFailed, Unit
from cudaops.domain.program import Compilation, Kernel, Program
from cudaops.executors.cpu.report import shared_memory
from cudaops.executors.cpu.toolchain import (
    COMPILE_TIMEOUT_S,
    INCLUDE,
    SOURCE,
    Build,
    around,
    code_flags,
    compile_command,
    compile_flags,
    compiling,
    find_toolchain,
    link_command,
    precompiled_header,
    source_digest,
)
from cudaops.executors.cuda.toolchain import library_flags
from cudaops.executors.process import Finished, run_bounded
from cudaops.executors.project.driver import DriverConfig
from cudaops.executors.project.products import project_program
from cudaops.executors.project.tree import Tools
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.candidate import NAMESPACE, unit_candidate
from cudaops.program.instances import bound_arguments
from cudaops.program.lexing import byte_text, lex, line_of, plain_text
from cudaops.program.overloads import address, pointer_type
from cudaops.program.plans import instance
from cudaops.program.ptx_asm import asm_statements
from cudaops.program.ptx_text import AsmError
from cudaops.program.reroute import (
    device_view_files,
    kernel_registrations,
    rerouted_files,
)
from cudaops.storage import NOTE, Facts, entry_of, make_once, raise_if_full

EXECUTABLE = "unit"
OBJECT = "unit.o"
_FORMAT = 4
"""Part of every key: raised when the format of the facts changes."""
STATIC_SHARED_LIMIT = 48 * 1024
"""ptxas refuses more. Source: CUDA C++ Programming Guide, technical specifications."""
_CUDA_LIBRARY = re.compile(rf"-l(?:cuda|{LIBRARY})")
"""Those of which a processor's program has none."""


class Built(NamedTuple):
    """A folder with an executable in it."""

    key: str
    folder: Path
    command: str
    seconds: float
    cached: bool
    log: str
    static_shared: int
    """Most bytes of static shared memory any one function has."""
    program: str = EXECUTABLE
    """The executable's place in the folder."""

    @property
    def executable(self) -> Path:
        return self.folder / self.program


def build_program(cache: Path, program: Program, build: Build = "plain") -> Built | CompileFailed:
    """The whole program as one executable."""
    if program.build is not None:
        return _build_project(cache, program, build)
    unfused = () if program.fused else ("-ffp-contract=off",)
    host = (*_host_flags(program), *program.compilation.host)
    linked = (*(f for f in host if f.startswith("-f")), *_libraries(program.compilation))
    return build_source(cache, program_source(program), program, build, (*unfused, *host), linked)


def _host_flags(program: Program) -> tuple[str, ...]:
    """What the headers that it includes need of the host's compiler."""
    return read_nvcc_line(library_flags(program.system_includes)).host_flags()


def _libraries(compilation: Compilation) -> tuple[str, ...]:
    """Of what the author links with, what a processor has."""
    words = compilation.link
    return tuple(w for w in words if w[:2] in ("-l", "-L") and not _CUDA_LIBRARY.fullmatch(w))


def project_tools(cache: Path, build: Build = "plain") -> Tools:
    """What builds an author's tree for this processor."""
    first, _, *last = around(cache, build, OBJECT, runner=False)
    toolchain = find_toolchain()
    nvcc = shutil.which("nvcc") or ""

    def config(tree: Path) -> DriverConfig:
        return DriverConfig(
            for_gpu=False,
            tree=str(tree),
            nvcc=nvcc,
            gxx=toolchain.gxx,
            compile_flags=compile_flags(build),
            include=str(INCLUDE),
            first=first,
            last=last,
            link_flags=link_command(build, [], "")[3:],
        )

    return Tools(
        f"cpu {build} {source_digest()} {code_flags(build)} {bool(nvcc)}",
        config,
        (INCLUDE, SOURCE, *(Path(p).parent for p in (first, *last))),
        {"include": INCLUDE},
        "what runs on a processor is a program of the build's; Python in front needs a GPU",
    )


def _build_project(cache: Path, program: Program, build: Build) -> Built | CompileFailed:
    texts = {f.path: f.text for f in program.files}
    made = project_program(
        cache, program, texts, project_tools(cache, build), _described_project,
        lambda done: _refused(done, program),
    )  # fmt: skip
    if isinstance(made, CompileFailed):
        return made
    assert program.build is not None
    return Built(
        made.entry.key, made.entry.folder, program.build.command, made.seconds, made.cached, "",
        made.facts["shared"], program.build.executable,
    )  # fmt: skip


def _described_project(executable: Path) -> Facts:
    shared = shared_memory(executable)
    return {"shared": max(shared.bytes_of.values(), default=0), "guards": shared.guards}


def build_source(
    cache: Path,
    source: GccSource,
    program: Program,
    build: Build = "plain",
    compile_extra: Sequence[str] = (),
    link_extra: Sequence[str] = (),
) -> Built | CompileFailed:
    """A whole program in a form of its own. The extra flags become part of the key."""
    return _build(cache, source, program, build, compile_extra, link_extra, runner=False)


def build_unit(
    cache: Path,
    unit: Unit,
    build: Build = "plain",
    compile_extra: Sequence[str] = (),
    link_extra: Sequence[str] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> Built | CompileFailed:
    """A baseline or rewrite with our runner. The extra flags become part of the key.

    `headers`: texts by name that are included before the author's.
    """
    source = unit_source(unit)
    source = source._replace(files={**source.files, **(headers or {})})
    included = [word for name in headers or {} for word in ("-include", name)]
    built = _build(
        cache, source, unit.program, build, (*compile_extra, *included), link_extra, runner=True
    )
    if isinstance(built, Built) and not unit.widened and built.static_shared > STATIC_SHARED_LIMIT:
        text = f"{built.static_shared} bytes of static shared memory"
        text = f"uses {text}; a block has at most {STATIC_SHARED_LIMIT}"
        return CompileFailed(message=text, log="")
    return built


def shared_guards(executable: Path) -> tuple[int, ...]:
    """`SharedMemory.guards` of a build, as noted when it was linked."""
    note = json.loads((executable.parent / NOTE).read_text("utf-8"))
    return tuple(note["facts"]["guards"])


def own_variables(executable: Path) -> tuple[tuple[int, int], ...]:
    """`SharedMemory.own` of a unit, as noted when it was linked."""
    note = json.loads((executable.parent / NOTE).read_text("utf-8"))
    return tuple((at, size) for at, size in note["facts"].get("own", ()))


def as_compiled(built: Built, unit: Unit) -> Compiled:
    """The record of a build."""
    return Compiled(
        key=built.key,
        folder=str(built.folder),
        unit=unit,
        command=built.command,
        compiler=find_toolchain().name,
        seconds=built.seconds,
        cached=built.cached,
        log=built.log,
    )


def _build(
    cache: Path,
    source: GccSource,
    program: Program,
    build: Build,
    compile_extra: Sequence[str],
    link_extra: Sequence[str],
    *,
    runner: bool,
) -> Built | CompileFailed:
    options = program.code_options
    compile_extra = (*preprocessor_words(options), *compile_extra)
    flags = (code_flags(build), tuple(compile_extra), tuple(link_extra), runner)
    entry = entry_of(
        cache,
        "unit",
        _FORMAT,
        source_digest(),
        flags,
        sorted(source.files.items()),
        source.includes,
    )

    def make(folder: Path) -> Facts | CompileFailed:
        header = precompiled_header(cache, build, source.includes)
        objects = around(cache, build, OBJECT, runner=runner)
        reads = [*folders_outside(options), *([header.parent] if header else [])]
        command = compile_command(build, MAIN, OBJECT, _placed(folder, header, compile_extra))
        done = _step(command, folder, reads)
        if done.exit_code == 0:
            log = done.stderr
            linked = [Path(p) for p in (*objects, *link_extra) if Path(p).is_absolute()]
            done = _step(link_command(build, objects, EXECUTABLE, link_extra), folder, linked)
        if done.exit_code != 0:
            return _refused(done, program)
        shared = shared_memory(folder / EXECUTABLE)
        return {
            "command": " ".join(command).replace(str(folder), "."),
            "log": log[:4096],
            "shared": max(shared.bytes_of.values(), default=0),
            "guards": shared.guards,
            "own": shared.own,
        }

    made = make_once(entry, source.files, make)
    if isinstance(made, CompileFailed):
        return made
    facts = made.facts
    return Built(
        entry.key, entry.folder, facts["command"], made.seconds, made.cached, facts["log"],
        facts["shared"],
    )  # fmt: skip


def _placed(work: Path, header: Path | None, extra: Sequence[str]) -> list[str]:
    """Flags that depend on where the build happens, and none of which change the code."""
    prelude = (
        ["-include", str(header)]
        if header
        else ["-include", "cudaops/cuda.h", "-include", "cudaops/entry.h"]
    )
    return [f"-ffile-prefix-map={work}=.", *prelude, *extra]


def _step(command: list[str], folder: Path, reads: Sequence[Path]) -> Finished:
    confine = compiling(folder, reads)
    done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    if done.exit_code != 0:
        raise_if_full(done.stderr, folder)
    return done


def _refused(done: Finished, program: Program) -> CompileFailed:
    if done.timed_out:
        text = f"{NOT_FINISHED} {COMPILE_TIMEOUT_S:g} s"
        return CompileFailed(message=text, log=done.stderr[:4096])
    return _said_of_asm(read_failure(done.stderr, [f.path for f in program.files]), program)


def _said_of_asm(failed: CompileFailed, program: Program) -> CompileFailed:
    """What g++ or its assembler cannot do with an asm statement, in the words of who reads those:
    the statement at that place or, where a macro holds it, the first that could not be read."""
    if failed.message != _NOT_ASSEMBLED and not re.search(r"\basm\b", failed.message):
        return failed
    unread = [
        (SourceLocation(file=file.path, line=line_of(lexed.text, one.at)), one.message)
        for file in program.files
        for lexed in (lex(byte_text(file.text)),)
        for one in asm_statements(lexed, author=True)
        if isinstance(one, AsmError)
    ]
    near = [one for one in unread if failed.location and one[0].line == failed.location.line]
    for location, message in [*near, *unread][:1]:
        text = f"inline PTX cannot run on the cpu executor: {message}; use --executor cuda"
        return failed.model_copy(update={"message": plain_text(text), "location": location})
    return failed


NOT_FINISHED = "g++ did not finish within"
BASELINE_ENTRY = 1000
"""Index of the baseline's entry; a rewrite's steps have their own, from 0."""
MAIN = "cudaops_unit.cpp"
"""The file that is compiled; it includes the author's."""
CANDIDATE = "cudaops_candidate.inc"
"""Where a rewrite's text is written; its `#line` says `candidate.cu`."""


class GccSource(NamedTuple):
    """Files of one translation unit, and the system includes that can be precompiled."""

    files: dict[str, str]
    includes: tuple[str, ...]


def program_source(program: Program) -> GccSource:
    """The whole program with its launches going to the shim."""
    files = rerouted_files(program)
    lines = [f'#include "{program.main_path}"', *kernel_registrations(program)]
    main = "\n".join([*lines, _globals(program)])
    return GccSource({**files, MAIN: main}, precompilable(program))


def unit_source(unit: Unit) -> GccSource:
    """What the kernels need of the program, the rewrite's text, and one entry a launch step."""
    files = device_view_files(unit.program, widened=unit.widened)
    lines = ["#define CUDAOPS_WIDE_DOUBLES 1"] if unit.wide_doubles else []
    lines += ["#include <cudaops/widen.h>"] if unit.widened else []
    lines.append(f'#include "{unit.program.main_path}"')
    if unit.rewrite is not None:
        files = {**files, CANDIDATE: unit_candidate(unit)}
        lines.append(f'#include "{CANDIDATE}"')
        lines.append(f"namespace {NAMESPACE} {{")
        bound = bound_arguments(unit.program.kernel(unit.kernel), unit.callee)
        for index, step in enumerate(unit.rewrite.plan.launches):
            lines.append(_entry(index, instance(unit.rewrite, step, bound)))
        lines.append("}")
    author = unit.program.kernel(unit.kernel)
    lines.append(pointer_type(author) + _entry(BASELINE_ENTRY, unit.callee, author))
    main = "\n".join(lines) + "\n" + _globals(unit.program)
    return GccSource({**files, MAIN: main}, precompilable(unit.program, widened=unit.widened))


def _entry(index: int, callee: str, author: Kernel | None = None) -> str:
    """Of a kernel of the rewrite's, or of this one of the author's."""
    place = f"&{callee}" if author is None else address(author, callee)
    return f"CUDAOPS_ENTRY({index}, {json.dumps(callee)}, {place});"


def _globals(program: Program) -> str:
    """Registration of the variables whose contents are part of a launch's state."""
    return "".join(
        f"CUDAOPS_GLOBAL({json.dumps(v.qualified_name)}, {v.qualified_name});\n"
        for v in program.global_variables
    )


HALVES = frozenset({"cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp4.h"})
"""Headers of ours that are precompiled for those who include them."""


def precompilable(program: Program, *, widened: bool = False) -> tuple[str, ...]:
    """System includes of the program that are not ours, and our half and bfloat16: their text is
    another where `float` says double. Widened, also what those of ours include: the text of C++'s
    headers is not to be another."""
    kept = frozenset() if widened else HALVES
    ours = [i for i in program.system_includes if (INCLUDE / i).is_file()]
    others = [i for i in program.system_includes if i in kept or i not in ours]
    if widened:
        more = {name for i in ours for name in _included_by(INCLUDE / i)}
        others += sorted(more - _included_by(INCLUDE / "cudaops" / "cuda.h"))
    return tuple(dict.fromkeys(others))


_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


@cache
def _included_by(header: Path) -> frozenset[str]:
    """Headers of C++ and of the system that one of ours includes, at any depth."""
    found: set[str] = set()
    waiting, seen = [header], set[Path]()
    while waiting:
        at = waiting.pop().resolve()
        if at in seen:
            continue
        seen.add(at)
        for mark, name in _INCLUDED.findall(at.read_text("utf-8")):
            places = ([at.parent / name] if mark == '"' else []) + [INCLUDE / name]
            own = next((place for place in places if place.is_file()), None)
            if own is not None:
                waiting.append(own)
            elif mark == "<":
                found.add(name)
    return frozenset(found)


MAX_LOG = 16 * 1024
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<text>.*)$"
)
_PLACE = re.compile(r"(?:from |^)(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::(?P<column>\d+))?")
_ASSEMBLER = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+): Error: (?P<text>.*)$")
_NOT_ASSEMBLED = "inline assembly that this processor does not have"
_UNLINKED = r"(?P<text>(?:undefined reference to|multiple definition of) .*)$"
_LINKER = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): " + _UNLINKED)
_LINKER_BARE = re.compile(_UNLINKED)


def read_failure(log: str, author_files: Collection[str]) -> CompileFailed:
    """The first error of a compiler's log. `author_files` are the program's own paths."""
    known = {*author_files, CANDIDATE_FILE}
    lines = log.splitlines()
    for index, line in enumerate(lines):
        if found := _ERROR.match(line):
            location = _location(found, known) or _instantiation(lines, index, known)
            return _failed(found["text"], location, log)
    for line in lines:
        if found := _ASSEMBLER.match(line):
            return _failed(_NOT_ASSEMBLED, _location(found, known), log)
    for line in lines:
        if found := _LINKER.search(line):
            return _failed(found["text"], _location(found, known), log)
        if found := _LINKER_BARE.search(line):
            return _failed(found["text"], None, log)
    return _failed(
        next((line for line in lines if line.strip()), "the compiler failed without a message"),
        None,
        log,
    )


def _failed(text: str, location: SourceLocation | None, log: str) -> CompileFailed:
    return CompileFailed(message=_readable(text), location=location, log=log[:MAX_LOG])


def _readable(text: str) -> str:
    """Our own names are not the author's business."""
    text = text.replace("‘", "`").replace("’", "`").replace("::cudaops::", "")
    return " ".join(text.split())[:400]


def _location(found: re.Match[str], known: Collection[str]) -> SourceLocation | None:
    file = found["file"].removeprefix("./")
    if file not in known:
        return None
    column = found.groupdict().get("column")
    return SourceLocation(
        file=file, line=int(found["line"]), column=int(column) if column else None
    )


def _instantiation(lines: list[str], index: int, known: Collection[str]) -> SourceLocation | None:
    """An error inside a header: the nearest line that names a place in the author's text.

    g++ writes the chain `In file included from`, `required from` above the error, notes below.
    """
    above = [found for line in reversed(lines[:index]) if (found := _PLACE.search(line))]
    below = [found for line in lines[index + 1 : index + 12] if (found := _PLACE.search(line))]
    for found in (*above, *below):
        if location := _location(found, known):
            return location
    return None
