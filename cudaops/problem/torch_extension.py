"""Programs in Python that compile CUDA while they run, by `torch.utils.cpp_extension`'s
`load_inline` and `load`, as projects that cudaops builds.

The program is run once until it uses what it had compiled, which says the sources and flags of
every extension. A copy of the tree then holds them as files:

    cudaops_torch/torch_worker.py   builds them, and runs the program with them in their place
                  extensions.json   names and flags
                  NAME/cuda.cu      what is in the program as a string

Host code in these files, which needs PyTorch's headers, is in `#ifdef CUDAOPS_HOST_CODE`: the
build defines it, and what compiles a kernel alone does not (1.1 s, and 55 s of CPU a file with
torch/extension.h: nvcc 13.0 on two cores, 2026-11-30). `as_author_has` puts all back.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import ValidationError

from cudaops.cuda.nvcc_line import Option
from cudaops.domain.base import Record
from cudaops.domain.program import Program, SourceFile
from cudaops.errors import InputError
from cudaops.executors.base import Executor
from cudaops.executors.cuda.platform import NVIDIA
from cudaops.executors.cuda.program import gpu_environment
from cudaops.executors.cuda.session import settle_gpu_level
from cudaops.executors.isolation.phases import Phase
from cudaops.executors.isolation.view import ProgramView
from cudaops.executors.process import last_words
from cudaops.executors.project.tree import take_snapshot, unpack
from cudaops.executors.untrusted_files import (
    UntrustedFileError,
    read_untrusted,
    temporary_folder,
)
from cudaops.problem.reference import Interpreter
from cudaops.program.lexing import (
    Directive,
    Edit,
    apply_edits,
    byte_text,
    line_of,
    plain_text,
)
from cudaops.program.outline import Declaration, Outline, outline
from cudaops.program.whole_program import is_device_side

FOLDER = "cudaops_torch"
"""In the copy of the tree: what is made."""
WORKER = Path(__file__).with_name("torch_worker.py")
HOST_BEGIN = "\n#ifdef CUDAOPS_HOST_CODE\n"
HOST_END = "\n#endif  // CUDAOPS_HOST_CODE\n"
_PIECE = "//cudaops: {} of string {} of {}\n"
_PIECE_LINE = re.compile(r"//cudaops: (begin|end) of string (\d+) of ([^\n]+)\n")
_TORCH_HEADER = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11)/|Python\.h")
_TORCH_NAMES = frozenset({"torch", "at", "c10", "pybind11", "py"})
_HEADERS = (".cuh", ".h", ".hpp")
_MOST_BYTES = 32 << 20


class Recorded(Record):
    """What the program had compiled, as it was written down."""

    class Source(Record):
        """A file that `torch` compiles."""

        name: str
        """Relative to the tree; of one that torch wrote its name alone."""
        is_file: bool
        text: str

    class Extension(Record):
        """One call of `load` or `load_inline`."""

        name: str
        sources: tuple[Recorded.Source, ...]
        extra_cflags: tuple[str, ...]
        extra_cuda_cflags: tuple[str, ...]
        extra_ldflags: tuple[str, ...]
        extra_include_paths: tuple[str, ...]

    extensions: tuple[Recorded.Extension, ...]
    scripts: tuple[str, ...]
    """Files of Python that the program consists of, relative to the tree."""


class TreeChanges(NamedTuple):
    """Files of the copy of the tree that the author's has not, or not so."""

    texts: dict[str, str]
    kernels: tuple[str, ...]
    """Those in which kernels may be."""
    scripts: tuple[SourceFile, ...]
    """The author's files in which strings stand that are among them."""


def open_torch(
    executor: Executor,
    folder: Path,
    script: Path,
    model_new: Path | None,
    kernel: str | None,
    runs: Sequence[Sequence[str]],
    python: Interpreter,
    timeout_s: float,
    *,
    phase: Phase = "gpu",
) -> Program:
    """The program as a project with its extensions built.

    `folder`: the tree; `model_new`: KernelBench's file with `ModelNew`, for the problem `script`;
    `kernel`: the one that is asked for; `runs`: arguments of the program. Raises InputError, one
    line, for what cannot be so.
    """
    names = [_in_tree(folder, path) for path in (script, model_new) if path is not None]
    asked = ":".join(names)
    recorded = record(folder, asked, runs[0] if runs else (), python, timeout_s, phase)
    made = made_files(folder, recorded)
    source = _file_of(made, kernel, names[-1])
    # setuptools asks for a home folder, which a build has not.
    command = shlex.join([str(python.path), f"{FOLDER}/{WORKER.name}", "build"])
    command = f"HOME=$TMPDIR TORCH_EXTENSIONS_DIR=$TMPDIR {command}"
    with temporary_folder("cudaops-torch-") as staged:
        unpack(take_snapshot(executor.cache, folder).archive, staged)
        for name, text in made.texts.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        program = executor.open_project(
            staged, staged / source, command, str(python.path), compiles=False
        )
    assert program.build is not None
    words = (f"{FOLDER}/{WORKER.name}", "run", asked)
    build = program.build.model_copy(
        update={
            "arguments": words,
            "scripts": made.scripts,
            "options": _without_torch(program.build.options, recorded),
        }
    )
    return program.model_copy(update={"build": build})


def _without_torch(options: Sequence[Option], recorded: Recorded) -> tuple[Option, ...]:
    """Options of a kernel by itself: no folders of headers but the tree's and the author's."""
    own = {path for one in recorded.extensions for path in one.extra_include_paths}
    return tuple(
        (name, value)
        for name, value in options
        if name not in ("I", "isystem") or value in own or not Path(value or "").is_absolute()
    )


def _in_tree(folder: Path, path: Path) -> str:
    path = path.resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{path} is not in {folder}; start cudaops in the folder of your program")
    return path.relative_to(folder.resolve()).as_posix()


def record(
    folder: Path,
    script: str,
    arguments: Sequence[str],
    python: Interpreter,
    timeout_s: float,
    phase: Phase,
) -> Recorded:
    """What the program has compiled. `script` as `torch_worker.py` takes it. Raises InputError."""
    name = script.rpartition(":")[2]
    if phase == "gpu":
        settle_gpu_level(NVIDIA)
    with temporary_folder("cudaops-record-") as out, ProgramView(folder, arguments) as view:
        done = python.run(
            WORKER,
            ("record", str(out / "recorded.json"), script, *arguments),
            cwd=view.folder,
            reads=view.reads,
            writes=(view.root, out),
            timeout_s=timeout_s,
            env={
                **gpu_environment(),
                "XDG_CACHE_HOME": str(out / "cache"),
                "TORCH_EXTENSIONS_DIR": str(out),
            },
            phase=phase,
        )
        if done.timed_out:
            raise InputError(
                f"{name} does not use its extension within {timeout_s:g} s; raise --timeout"
            )
        if done.exit_code != 0:
            said = last_words(done.stderr) or "no message"
            raise InputError(f"{name} does not run: {said}")
        try:
            data = read_untrusted(out, "recorded.json", _MOST_BYTES)
            found = Recorded.model_validate_json(data)
        except (UntrustedFileError, ValidationError) as error:
            text = " ".join(str(error).split())[:200]
            raise InputError(f"{name} changed its recorded files ({text})") from error
    if not any(".cu" in Path(s.name).suffix for e in found.extensions for s in e.sources):
        raise InputError(
            f"{name} compiles no CUDA by torch.utils.cpp_extension.load or load_inline; name the "
            "kernels for it with --source K.cu, or how they are built with --build"
        )
    return found


def made_files(folder: Path, recorded: Recorded) -> TreeChanges:
    """The files that are built. Raises InputError where a source is none of the tree's, or device
    code needs PyTorch's headers."""
    texts: dict[str, str] = {}
    scripts = [
        SourceFile(path=name, text=(folder / name).read_text("utf-8"))
        for name in recorded.scripts
        if (folder / name).is_file()
    ]
    used: dict[str, None] = {}
    listed = []
    for one in recorded.extensions:
        names = []
        for source in one.sources:
            name, text = source.name, source.text
            if not source.is_file:
                name = f"{FOLDER}/{one.name}/{source.name}"
                text, origins = _with_pieces(text, scripts)
                used |= dict.fromkeys(origins)
            if name.endswith(".cu"):
                text = host_code_apart(text, name)
            if name.endswith(".cu") or not source.is_file:
                texts[name] = text
            names.append(name)
        listed.append(_listed(one, names, texts))
    for path in folder.rglob("*"):
        if path.suffix in _HEADERS and path.is_file() and FOLDER not in path.parts:
            text = path.read_text("utf-8", "replace")
            if _TORCH_HEADER.search(text):
                name = path.relative_to(folder).as_posix()
                texts[name] = host_code_apart(text, name)
    kernels = tuple(n for one in listed for n in one["sources"] if n.endswith(".cu"))
    texts |= {
        f"{FOLDER}/{WORKER.name}": WORKER.read_text("utf-8"),
        f"{FOLDER}/extensions.json": json.dumps(listed, indent=1),
    }
    return TreeChanges(texts, kernels, tuple(s for s in scripts if s.path in used))


def _listed(one: Recorded.Extension, names: Sequence[str], texts: dict[str, str]) -> dict[str, Any]:
    """An extension for the worker. Two of its sources may not have one name but for the ending, as
    setuptools names objects: C++ is then included in a file of another name."""
    sources = list(names)
    stems = [str(PurePosixPath(name).with_suffix("")) for name in names]
    for at, name in enumerate(names):
        if stems.count(stems[at]) > 1 and not name.endswith(".cu"):
            sources[at] = f"{FOLDER}/{one.name}/host_{at}.cpp"
            texts[sources[at]] = f'#include "../../{name}"\n'
    return {**one.model_dump(), "sources": sources}


def _with_pieces(text: str, scripts: Iterable[SourceFile]) -> tuple[str, list[str]]:
    """The text that torch wrote with a line around each part that is in a script as a string,
    and the scripts' paths. Torch joins strings by line ends."""
    found: list[tuple[int, int, int, str]] = []
    for script in scripts:
        for number, constant in enumerate(_constants(script.text)):
            value = constant.value.strip("\n")
            at = text.find(value) if "\n" in value or "{" in value else -1
            inside = any(at < end and start < at + len(value) for start, end, *_ in found)
            if at >= 0 and not inside and text[:at].rpartition("\n")[2].strip() == "":
                found.append((at, at + len(value), number, script.path))
    for start, end, number, path in sorted(found, reverse=True):
        begin, stop = (_PIECE.format(word, number, path) for word in ("begin", "end"))
        start = text.rfind("\n", 0, start) + 1
        after = text[end:].removeprefix("\n")
        text = f"{text[:start]}{begin}{text[start:end]}\n{stop}{after}"
    return text, [path for *_, path in found]


class _Constant(NamedTuple):
    value: str
    start: int
    end: int
    """Bytes of the script's text; a literal of several tokens from the first to the last."""


def _constants(script: str) -> list[_Constant]:
    """Strings that are in a script by themselves, in order: none of an f-string's."""
    try:
        tree = ast.parse(script)
    except SyntaxError:
        return []
    parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    starts = [0]
    for line in script.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return sorted(
        (
            _Constant(
                node.value,
                starts[node.lineno - 1] + node.col_offset,
                starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0),
            )
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in parts
        ),
        key=lambda one: one.start,
    )


def host_code_apart(text: str, name: str) -> str:
    """A CUDA text with its host code, and includes of PyTorch's headers, where only a whole build
    sees them. Raises InputError where device code needs those headers."""
    facts = outline(byte_text(text))
    spans = [(d.start, d.end) for d in facts.lexed.directives if _is_torch_include(facts, d)]
    for item in facts.items:
        names = _torch_names(facts, item)
        if is_device_side(item) and not (names and item.kind in ("type", "other", "variable")):
            if names:
                line = line_of(facts.lexed.text, item.start)
                raise InputError(
                    f"{name}:{line}: device code uses `{names[0]}::`, which PyTorch's headers "
                    "define; let the kernel take pointers and numbers"
                )
            continue
        spans.append((item.start, item.end))
    edits = [
        edit
        for start, end in _joined(sorted(spans), facts.lexed.text)
        for edit in (Edit(start, start, HOST_BEGIN), Edit(end, end, HOST_END))
    ]
    return plain_text(apply_edits(facts.lexed.text, edits))


def _is_torch_include(facts: Outline, directive: Directive) -> bool:
    text = facts.lexed.text[directive.start : directive.end]
    written = re.search(r'include\s*[<"]([^>"]+)', text)
    return (
        directive.keyword == "include"
        and written is not None
        and _TORCH_HEADER.match(written[1]) is not None
    )


def _torch_names(facts: Outline, item: Declaration) -> list[str]:
    tokens = facts.tokens[item.first : item.last]
    return [a.text for a, b in pairwise(tokens) if a.text in _TORCH_NAMES and b.text == "::"]


def _joined(spans: Sequence[tuple[int, int]], text: str) -> Iterator[tuple[int, int]]:
    """Spans with nothing but white space between them as one."""
    begun: tuple[int, int] | None = None
    for start, end in spans:
        if begun is not None and (start <= begun[1] or not text[begun[1] : start].strip()):
            begun = (begun[0], max(end, begun[1]))
            continue
        if begun is not None:
            yield begun
        begun = (start, end)
    if begun is not None:
        yield begun


def _file_of(made: TreeChanges, kernel: str | None, name: str) -> str:
    """The file with the kernel; with any, where none is asked for."""
    defined = {
        path: [i.name for i in outline(byte_text(made.texts[path])).items if i.is_kernel]
        for path in made.kernels
        if path in made.texts
    }
    for path, kernels in defined.items():
        if kernel in kernels or (kernel is None and kernels):
            return path
    if kernel is None:
        raise InputError(f"{name} compiles no file that defines a kernel")
    known = ", ".join(k for kernels in defined.values() for k in kernels)
    raise InputError(
        f"there is no kernel {kernel!r} in the sources that {name} compiles; it has {known}"
    )


def is_torch(program: Program) -> bool:
    """Whether this is a program of `open_torch`."""
    return program.build is not None and bool(program.build.arguments)


def as_author_has(program: Program) -> Program:
    """The author's own files, each with the text that it has in the program: scripts with their
    strings, sources of `load`. What is put together while the program runs is none of them: it
    stays by itself, as the main file (`require_own_text`)."""
    assert program.build is not None
    texts = {f.path: _unmarked(f.text) for f in program.files}
    changed: dict[str, dict[int, str]] = {}
    for text in texts.values():
        for path, number, value in _pieces(text):
            changed.setdefault(path, {})[number] = value
    scripts = [
        SourceFile(path=s.path, text=_with_strings(s.text, changed.get(s.path, {})))
        for s in program.build.scripts
    ]
    files = [
        SourceFile(path=path, text=text)
        for path, text in texts.items()
        if not path.startswith(f"{FOLDER}/")
    ]
    main = program.main_path
    if main.startswith(f"{FOLDER}/"):
        named = [path for path, *_ in _pieces(texts[main])]
        files += [] if named else [SourceFile(path=main, text=texts[main])]
        main = (named or [main])[0]
    found = sorted([*files, *scripts], key=lambda f: f.path != main)
    return program.model_copy(update={"files": tuple(found), "main_path": main})


def require_own_text(program: Program) -> None:
    """Of a program as its author has it: that the kernel is in one of the files. Raises
    InputError."""
    if program.main_path.startswith(f"{FOLDER}/"):
        raise InputError(
            "the kernel's text is put together while the program runs, and is no string of its "
            "files; best.cu of the run holds it with the rewrite"
        )


def _unmarked(text: str) -> str:
    return text.replace(HOST_BEGIN, "").replace(HOST_END, "")


def _pieces(text: str) -> Iterator[tuple[str, int, str]]:
    """Script, number of the string in it, and what it is now; what a rewrite put before the first
    of them is the first's."""
    parts = _PIECE_LINE.split(text)
    before = "".join(
        line
        for line in parts[0].splitlines(keepends=True)
        if line.strip() and not re.search(r"<(?:torch/types|cuda|cuda_runtime)\.h>", line)
    )
    for at in range(1, len(parts), 8):
        value = parts[at + 3]
        yield parts[at + 2], int(parts[at + 1]), before + value.removesuffix("\n")
        before = ""


def _with_strings(script: str, values: Mapping[int, str]) -> str:
    """The script with other strings, each as its author writes it where that can be."""
    data = script.encode()
    constants = _constants(script)
    for number in sorted(values, reverse=True):
        one, inner = constants[number], values[number]
        stripped = one.value.strip("\n")
        if inner == stripped:
            continue
        lead, _, tail = one.value.partition(stripped)
        literal = _literal(data[one.start : one.end].decode(), f"{lead}{inner}{tail}")
        data = data[: one.start] + literal.encode() + data[one.end :]
    return data.decode()


def _literal(written: str, value: str) -> str:
    """A string as a literal, by the quotes of the one that it replaces."""
    opening = re.match(r"([rRuU]?)(\"\"\"|'''|\"|')", written)
    quotes = opening[2] if opening is not None and len(opening[2]) == 3 else '"""'
    prefix = opening[1] if opening is not None else ""
    escaped = value.replace("\\", "\\\\")
    for text in (f"{prefix}{quotes}{value}{quotes}", f"{quotes}{escaped}{quotes}"):
        try:
            if ast.literal_eval(text) == value:
                return text
        except (SyntaxError, ValueError):
            continue
    return repr(value)
