"""Wrapper of nvcc and the host compilers while an author's build runs.

Says what was asked of which compiler, and has it done: for a GPU by the same command for that GPU
alone, for a processor by g++ with cudaops' own headers and runtime. Runs confined, in the copy of
the tree, and knows nothing but `driver.json` there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cudaops.cuda.nvcc_line import (
    NOT_FORTIFIED,
    NvccLine,
    object_name,
    preprocessor_words,
    read_nvcc_line,
    retargeted,
)

FOLDER = ".cudaops"
"""In the tree: what is ours."""
CONFIG = "driver.json"
LOG = "driver.jsonl"
PROGRAMS = "bin"
"""What comes first on the build's PATH."""
REFUSED = 97
"""Exit code of a command that only a GPU could serve."""

WITHIN = "CUDAOPS_WITHIN_NVCC"
"""Set for what the real nvcc starts: its host compiler."""
_MARK = b"_ZN7cudaops"
"""In every object that our headers made: they call our runtime."""
_RECORDED = b"_ZN15cudaops_capture"
"""In the main file's where its launches go to the recorder."""
_RUNTIME = frozenset({
    "cudart", "cudart_static", "cudadevrt", "cuda", "nvToolsExt", "nvidia-ml", "culibos", "cublas",
    "cublas_static", "curand", "curand_static",
})  # fmt: skip
"""Libraries that our runtime stands for, and those whose host functions our headers have."""
_GPU_LIBRARIES = ("cublas", "cufft", "curand", "cusolver", "cusparse", "cudnn", "npp", "nvrtc")
_OLD_STANDARD = re.compile(r"(?<=-std=)(?:c|gnu)\+\+(?:98|03|0x|11|1y|14)")
_DEPENDENCIES = frozenset({"-MD", "-MMD", "-MP"})
_OURS_FIRST = ["-include", "cudaops/cuda.h"]
_HERE = Path()
_COMPILES = frozenset({"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"})


class DriverConfig(NamedTuple):
    """`driver.json`."""

    for_gpu: bool
    tree: str
    nvcc: str
    """The real one; empty where there is none."""
    sm_arch: str = ""
    """For a GPU: what all is compiled for."""
    recorder: Sequence[str] = ()
    """For a GPU: what a recorded program is linked with."""
    gxx: str = ""
    """For a processor, as all that follows."""
    compile_flags: Sequence[str] = ()
    """Of a CUDA source."""
    include: str = ""
    """Our headers."""
    first: str = ""
    last: Sequence[str] = ()
    """Objects of the runtime, around the author's."""
    link_flags: Sequence[str] = ()
    notes_only: bool = False
    """Objects are left empty: only what is asked of the compilers is wanted."""


class NeedsGpu(Exception):
    """This cannot be done without a GPU; says what."""


def main(arguments: Sequence[str]) -> NoReturn:
    """`driver TREE NAME ARGS...`: what a build asked of the compiler NAME."""
    tree, name, *words = arguments
    own = Path(tree, FOLDER)
    config = DriverConfig(**json.loads((own / CONFIG).read_text("utf-8")))
    shims = str(own / PROGRAMS)
    os.environ["PATH"] = os.pathsep.join(
        p for p in os.environ.get("PATH", "").split(os.pathsep) if p != shims
    )
    note: dict[str, Any] = {"tool": name, "cwd": str(Path.cwd()), "words": words}
    try:
        code = _left_empty(words) if config.notes_only else None
        if code is None:
            code = _nvcc(config, words) if name == "nvcc" else _host(config, name, words)
    except NeedsGpu as problem:
        note["refused"] = str(problem)
        sys.stderr.write(f"cudaops: {problem}\n")
        code = REFUSED
    with (own / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps({**note, "exit": code}) + "\n")
    sys.exit(code)


def _left_empty(words: list[str]) -> int | None:
    """An empty object and its dependencies in place of a compilation; None for anything else."""
    line = read_nvcc_line(words, lambda path: Path(path).read_text("utf-8"))
    if line.phase != "compile" or len(line.sources()) != 1:
        return None
    (source,) = line.sources()
    output = line.output or object_name(source)
    note_dependencies(line, output, [source])
    return _done(["gcc", "-x", "c", "-c", os.devnull, "-o", output])


def _nvcc(config: DriverConfig, words: list[str]) -> int:
    line = read_nvcc_line(words, lambda path: Path(path).read_text("utf-8"))
    # CMake asks a compiler who it is by what it says of itself and by what it makes.
    asked = line.has("v") or "CompilerIdCUDA" in Path.cwd().parts
    if line.phase == "aside" or not line.inputs or asked:
        if not config.nvcc:
            raise NeedsGpu("the build asks nvcc itself, which is not installed")
        os.environ[WITHIN] = "1"
        return _done([config.nvcc, *words])
    if config.for_gpu:
        os.environ[WITHIN] = "1"
        links = line.phase == "link"
        linked = _recorder(config, words, is_library=line.has("shared")) if links else []
        if config.recorder:
            words = _as_our_headers_need(words)
        return _done([config.nvcc, *linked, *retargeted(words, config.sm_arch)])
    return _Processor(config, line).run()


def _host(config: DriverConfig, name: str, words: list[str]) -> int:
    """A host compiler: what it compiles finds our headers, what it links our runtime."""
    if WITHIN in os.environ:
        return _done([name, *words])
    if _COMPILES & set(words):
        if config.for_gpu:
            return _done([name, *words])
        return _done([name, *_with_our_headers(config, name, [f"-I{config.include}", *words])])
    if config.for_gpu:
        linked = _recorder(config, words, is_library="-shared" in words)
        return _done([name, *_for_host_linker(linked), *words])
    if not _holds(words, _MARK):
        return _done([name, *words])
    return _done([config.gxx, *_linked(config, words)])


def _with_our_headers(config: DriverConfig, name: str, words: list[str]) -> list[str]:
    """The words for a file of C++ that includes one of our headers: all of them first, so that no
    macro of the author's meets them, by C++17 where it asks for an older standard."""
    left, kept = iter(words), list[str]()
    for word in left:
        if word in ("-o", "-MF", "-MT", "-MQ"):
            next(left, None)
        elif not word.startswith(("-MF", "-MT", "-MQ")) and word not in _COMPILES | _DEPENDENCIES:
            kept.append(word)
    if not _includes([name, *kept], None, config.include):
        return words
    is_c = any(word.endswith(".c") for word in kept) and "++" not in name
    first = [] if is_c or "-c" not in words else _OURS_FIRST
    return [*first, *(_OLD_STANDARD.sub("gnu++17", word) for word in words)]


def _as_our_headers_need(words: Sequence[str]) -> list[str]:
    """nvcc's words, by C++17 where they ask for an older standard: what is before the author's
    launches is written in it."""
    joined = "\0".join(words)
    joined = re.sub(r"(?<![^\0])(--?std)\0(?=(?:c|gnu)\+\+)", r"\1=", joined)
    return _OLD_STANDARD.sub("c++17", joined).split("\0")


def _includes(command: Sequence[str], source: str | None, folder: str) -> bool:
    """Whether what a host compiler is to compile includes a header of the folder, in C too, which
    has not all that such a header includes itself."""
    words = [*command, "-M", "-MG", *([] if source is None else [source])]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return folder in asked.stdout


def _for_host_linker(words: Sequence[str]) -> Iterator[str]:
    """nvcc's `-Xlinker X` as g++ has it."""
    left = iter(words)
    for word in left:
        yield f"-Wl,{next(left)}" if word == "-Xlinker" else word


def _recorder(config: DriverConfig, words: Sequence[str], *, is_library: bool) -> list[str]:
    """What a link is given more, as nvcc takes it, where launches go to the recorder; a library
    without what keeps a program in its place."""
    linked = list(config.recorder) if _is_recorded(words) else []
    if is_library and "-no-pie" in linked:
        at = linked.index("-no-pie")
        del linked[at - 1 : at + 1]  # with its -Xlinker
    return linked


class _Processor:
    """One command of nvcc, done by g++."""

    def __init__(self, config: DriverConfig, line: NvccLine) -> None:
        self.config = config
        self.line = line
        self.tree = Path(config.tree)

    def run(self) -> int:
        line = self.line
        if line.phase == "dlink":
            # Device code of several files is linked with the rest.
            output = line.output or "a_dlink.o"
            empty = self.tree / FOLDER / "empty.cpp"
            empty.touch()
            return _done([self.config.gxx, "-c", str(empty), "-o", output])
        made: dict[str, str] = {}
        for number, source in enumerate(line.sources()):
            target = object_name(source)
            if line.phase != "compile":  # of two folders there may be two of a name
                target = str(self.tree / FOLDER / f"{number}_{target}")
            elif line.output:
                target = line.output
            if code := self._compile(source, target):
                return code
            made[source] = target
        if line.phase == "compile":
            return 0
        objects = [made.get(path, path) for path in line.inputs]
        if line.phase == "lib":
            Path(line.output or "a.a").unlink(missing_ok=True)
            return _done(["ar", "rcs", line.output or "a.a", *objects])
        return self._link(objects)

    def _compile(self, source: str, output: str) -> int:
        if not self.line.is_cuda(source):
            return self._compile_for_host(source, output)
        name = hashlib.sha256(repr((Path.cwd(), source, output)).encode()).hexdigest()[:16]
        shadow = self.tree / FOLDER / "units" / name
        folders = [Path(p).absolute() for p in self.line.values("I", "isystem")]
        main, headers = self._write_unit(source, folders, shadow)
        inside = (p.relative_to(self.tree) for p in folders if p.is_relative_to(self.tree))
        found = [f"-I{shadow / p}" for p in inside]
        beside = ["-iquote", str(Path(source).absolute().parent)]
        command = [
            self.config.gxx, *self.config.compile_flags, *found, *beside,
            *preprocessor_words(self.line.options), "-include", "cudaops/cuda.h",
            "-include", "cudaops/entry.h", f"-ffile-prefix-map={shadow}=.",
            "-x", "c++", "-c", main, "-o", output,
        ]  # fmt: skip
        code = _done(command)
        if code == 0:
            note_dependencies(self.line, output, [source, *headers])
        return code

    def _compile_for_host(self, source: str, output: str) -> int:
        words = [NOT_FORTIFIED, f"-I{self.config.include}"]
        words += preprocessor_words(self.line.options)
        words += [*self.line.host_flags(), f"-O{self.line.value('O') or 2}"]
        is_c = source.endswith(".c") and self.line.value("x") is None
        gxx = [self.config.gxx, *words]
        # Our headers are C++, whatever the file is.
        if _includes([*gxx, *(["-x", "c"] if is_c else [])], source, self.config.include):
            gxx += _OURS_FIRST
        elif is_c:
            gxx += ["-x", "c"]
        return _done([*gxx, "-c", source, "-o", output])

    def _write_unit(
        self, source: str, folders: Sequence[Path], shadow: Path
    ) -> tuple[str, list[str]]:
        """The file to compile, in which launches go to the shim, and headers of the tree that it
        includes. All is written under `shadow`, each file at its place in the tree."""
        # What reads CUDA takes a while to load, and most commands of a build need none of it.
        from cudaops.executors.cpu.build import MAIN, program_source
        from cudaops.program.parse import load_unit
        from cudaops.storage import write_texts

        program = load_unit(Path(source), self.tree, folders)
        write_texts(shadow, program_source(program).files)
        headers = [str(self.tree / f.path) for f in program.files if f.path != program.main_path]
        return str(shadow / MAIN), headers

    def _link(self, objects: Sequence[str]) -> int:
        line = self.line
        words = ["-o", line.output or "a.out", *objects]
        words += [f"-L{folder}" for folder in line.values("L")]
        words += [f"-l{name}" for name in line.values("l")]
        words += [f"-Wl,{word}" for word in line.values("Xlinker")]
        words += line.host_flags()
        words += ["-shared"] if line.has("shared") else []
        return _done([self.config.gxx, *_linked(self.config, words)])


def note_dependencies(line: NvccLine, output: str, files: Sequence[str]) -> None:
    """What `-MD -MF FILE -MT NAME` asks for."""
    if not (line.has("MD") or line.has("MMD")):
        return
    target = line.value("MT") or output
    path = line.value("MF") or str(Path(output).with_suffix(".d"))
    names = " \\\n  ".join(name.replace(" ", "\\ ") for name in files)
    Path(path).write_text(f"{target}: {names}\n", "utf-8")


def _linked(config: DriverConfig, words: Sequence[str]) -> list[str]:
    """The arguments of a link with our runtime around the author's objects."""
    if "-shared" in words:
        raise NeedsGpu("the build makes a shared library with kernels; that runs on a GPU only")
    kept = []
    for word in _spelled_out(words):
        library = word[2:] if word.startswith("-l") else Path(word).name.removeprefix("lib")
        library = library.partition(".")[0]
        named = word.startswith("-l") or word.endswith((".a", ".so"))
        if named and library in _RUNTIME:
            continue
        if named and library.startswith(_GPU_LIBRARIES):
            raise NeedsGpu(f"the build links with {library}, which runs on a GPU only")
        kept.append(word)
    return [config.first, *kept, *config.last, *config.link_flags]


def _spelled_out(words: Sequence[str], folder: Path = _HERE) -> Iterator[str]:
    """With the contents of response files, of g++ and of nvcc, in place of their names."""
    left = iter(words)
    for word in left:
        name = word[1:] if word.startswith("@") else ""
        if word in ("--options-file", "-optf"):
            name = next(left, "")
        if not name:
            yield word
            continue
        with contextlib.suppress(OSError, ValueError):
            text = (folder / name).read_text("utf-8")
            yield from _spelled_out(shlex.split(text), folder)


def linked_objects(words: Sequence[str], folder: Path = _HERE) -> Iterator[Path]:
    """What a compiler is to link that runs in `folder`: objects, archives, and libraries by
    name."""
    words = tuple(_spelled_out(words, folder))
    after = ("", *words)
    folders = [
        folder / (word if before == "-L" else word[2:])
        for before, word in zip(after, words, strict=False)
        if before == "-L" or (word.startswith("-L") and len(word) > 2)
    ]
    for word in words:
        if word.startswith("-l"):
            yield from (place / f"lib{word[2:]}.a" for place in folders)
        elif word.endswith((".o", ".obj", ".a", ".rlib")):
            yield folder / word


def _holds(words: Sequence[str], mark: bytes) -> bool:
    """Whether something that is to be linked does."""
    for path in linked_objects(words):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                return True
    return False


def _is_recorded(words: Sequence[str]) -> bool:
    """Whether a link is of the program whose launches go to the recorder; where nvcc compiles and
    links at once, that is not known before, and the recorder may be there for nothing."""
    return any(w.endswith(".cu") for w in _spelled_out(words)) or _holds(words, _RECORDED)


def _done(command: Sequence[str]) -> int:
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.stderr.write(f"cudaops: {command[0]}: not found\n")
        return 127


if __name__ == "__main__":
    main(sys.argv[1:])
