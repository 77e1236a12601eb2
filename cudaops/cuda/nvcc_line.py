"""A command line of nvcc, taken apart: what it makes of which files, and with which flags.

Source of the options: `nvcc --help`, 13.0.88.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

Phase = Literal["link", "compile", "lib", "dlink", "aside"]
"""`link`: to a program or a shared library. `compile`: to an object. `lib`: to an archive. `dlink`:
device code of several objects to one. `aside`: anything else (`-ptx`, `-E`, `--version`)."""

_LONG = {
    "output-file": "o", "include-path": "I", "define-macro": "D", "undefine-macro": "U",
    "library-path": "L", "library": "l", "pre-include": "include", "system-include": "isystem",
    "gpu-architecture": "arch", "gpu-code": "code", "generate-code": "gencode",
    "compiler-bindir": "ccbin", "compiler-options": "Xcompiler", "linker-options": "Xlinker",
    "ptxas-options": "Xptxas", "nvlink-options": "Xnvlink", "archive-options": "Xarchive",
    "optimize": "O", "machine": "m", "threads": "t", "options-file": "optf",
    "dependency-output": "MF", "dependency-target-name": "MT", "device-c": "dc",
    "device-w": "dw", "compile": "c", "device-link": "dlink", "generate-dependencies": "M",
    "generate-nonsystem-dependencies": "MM", "generate-dependencies-with-compile": "MD",
    "generate-nonsystem-dependencies-with-compile": "MMD", "preprocess": "E", "version": "V",
    "relocatable-device-code": "rdc", "x": "x", "std": "std", "output-directory": "odir",
    "debug": "g", "device-debug": "G", "verbose": "v", "profile": "pg", "disable-warnings": "w",
    "run": "run",
}  # fmt: skip
"""Long names whose short ones are in the sets below; others keep their own."""
_VALUED = frozenset({
    "o", "I", "D", "U", "L", "l", "include", "isystem", "arch", "code", "gencode", "ccbin",
    "Xcompiler", "Xlinker", "Xptxas", "Xnvlink", "Xarchive", "Xcudafe", "O", "m", "t", "optf", "MF",
    "MT", "MQ", "rdc", "x", "std", "odir", "maxrregcount", "cudart", "cudadevrt", "fmad", "ftz",
    "prec-div", "prec-sqrt", "default-stream", "diag-suppress", "diag-error", "diag-warn",
    "gpu-max-threads", "libdevice-directory", "target-directory", "nvlink-options", "split-compile",
    "fdevice-time-trace", "Werror", "entries", "run-args", "ldir", "jobserver-path",
})  # fmt: skip
_ATTACHED = ("I", "D", "U", "L", "l", "O", "x", "m", "t")
"""Whose value may follow without a space."""
_ASIDE = frozenset({"ptx", "cubin", "fatbin", "E", "M", "MM", "V", "help", "h", "dryrun", "cuda",
                    "optix-ir", "ltoir", "list-gpu-arch", "list-gpu-code"})  # fmt: skip
_FLAGS = frozenset({"lib", "link", "lineinfo", "lto", "minimal", "time", "dlto"})
"""Without a value, whose names begin as an option with an attached one does."""
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx", ".C")
_LINKED = (".o", ".obj", ".a", ".so", ".lib")
_CODE_FLAGS = frozenset({
    "D", "U", "I", "isystem", "include", "std", "use_fast_math", "fmad", "ftz", "prec-div",
    "prec-sqrt", "maxrregcount", "expt-relaxed-constexpr", "expt-extended-lambda",
    "extended-lambda", "default-stream",
})  # fmt: skip
"""What decides about what a file's device code means and becomes, beside its target."""
LIBRARY = (
    r"(?:cuda(?:rt|devrt|GL|_\w+_interop)|cu(?:blas|fft|rand|sparse|solver|pti|dnn|tensor)"
    r"|nv|npp|nccl|nvidia-ml)\w*"
)
"""Names of the toolkit's libraries, and of their headers without `.h`, as a regular expression."""
NOT_FORTIFIED = "-U_FORTIFY_SOURCE"
"""For the host's compiler, before its author's words. Where it optimizes, Ubuntu's g++ by itself
stops a program that writes past a buffer; without -O, as most call nvcc, that program lives."""
_TARGET = frozenset({"arch", "code", "gencode"})

Option = tuple[str, str | None]
"""A short name without dashes, and its value."""


class NvccLine(NamedTuple):
    """Inputs, outputs and flags of one command. Paths are as written, relative to where it ran."""

    phase: Phase
    inputs: tuple[str, ...]
    """Sources, objects, archives, in their order."""
    output: str | None
    options: tuple[Option, ...]
    """All but the inputs, short names."""

    def sources(self) -> tuple[str, ...]:
        """Those of the inputs that are compiled."""
        every = self.value("x") is not None
        return tuple(i for i in self.inputs if i.endswith(_SOURCES) or (every and not _linked(i)))

    def is_cuda(self, source: str) -> bool:
        """Whether a source is CUDA C++, by its name or by `-x cu`."""
        language = self.value("x")
        return source.endswith(".cu") if language is None else language == "cu"

    def value(self, name: str) -> str | None:
        """Of an option, where it is last; None where it is not given."""
        return next((v for n, v in reversed(self.options) if n == name), None)

    def has(self, name: str) -> bool:
        """Whether an option is given."""
        return any(n == name for n, _ in self.options)

    def values(self, *names: str) -> tuple[str, ...]:
        """Of these options, every value in its order."""
        return tuple(v for n, v in self.options if n in names and v is not None)

    def host_flags(self) -> tuple[str, ...]:
        """What the host's compiler is given: `-Xcompiler a,b` as `a`, `b`."""
        return tuple(f for v in self.values("Xcompiler") for f in v.split(",") if f)

    def code_options(self) -> tuple[Option, ...]:
        """Options that decide about a file's code, beside its target."""
        return tuple(o for o in self.options if o[0] in _CODE_FLAGS)


def read_nvcc_line(words: Sequence[str], read_file: Callable[[str], str] | None = None) -> NvccLine:
    """Take a command apart, `words` without nvcc's own name. `read_file`: of `--options-file`."""
    options: list[Option] = []
    inputs: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            inputs.append(word)
            continue
        name, value = _split(word)
        if value is None and name in _VALUED and left:
            value = left.pop(0)
        if name == "optf" and value is not None and read_file is not None:
            left = [*_words(read_file(value)), *left]
            continue
        if name in ("I", "isystem", "L", "l") and value is not None:
            options += [(name, one) for one in value.split(",")]
        else:
            options.append((name, value))
    names = {name for name, _ in options}
    output = next((v for n, v in reversed(options) if n == "o"), None)
    return NvccLine(_phase(names), tuple(inputs), output, tuple(options))


def words_of(line: str) -> list[str]:
    """A line as a shell splits it, without nvcc's own name. Raises ValueError for an open quote."""
    words = shlex.split(line)
    return words[1:] if words and PurePath(words[0]).name == "nvcc" else words


def flags_of(line: str) -> list[str]:
    """The words of a line of nvcc's that are neither its name, nor a file, nor what it makes."""
    left_out = (*_TARGET, "o", "O", "")
    return [word for name, own in _taken(words_of(line)) if name not in left_out for word in own]


def retargeted(words: Sequence[str], sm_arch: str) -> list[str]:
    """The same command for one target, `sm_90`, in place of those that it names."""
    kept = [word for name, own in _taken(words) if name not in _TARGET for word in own]
    return [*kept, f"-arch={sm_arch}"]


def _taken(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option's short name, empty for a file, with the words that say it."""
    left = list(words)
    while left:
        own = [left.pop(0)]
        name, value = _split(own[0]) if own[0].startswith("-") else ("", None)
        if value is None and name in _VALUED and left:
            own.append(left.pop(0))
        yield name, own


def _phase(names: set[str]) -> Phase:
    if names & _ASIDE:
        return "aside"
    if names & {"c", "dc", "dw"}:
        return "compile"
    if "dlink" in names:
        return "dlink"
    return "lib" if "lib" in names else "link"


def _split(word: str) -> Option:
    """`-arch=sm_80` and `--gpu-architecture sm_80` have one name; the latter's value comes next."""
    text, equals, value = word.lstrip("-").partition("=")
    short = _LONG.get(text, text) if word.startswith("--") else text
    if short in _VALUED | _ASIDE | _FLAGS or short in _LONG.values():
        return short, value if equals else None
    if not word.startswith("--"):
        for name in _ATTACHED:
            if text.startswith(name) and len(word) > 2:
                return name, word[2:]
    return short, value if equals else None


def _linked(path: str) -> bool:
    return path.endswith(_LINKED) or ".so." in PurePath(path).name


def _words(text: str) -> list[str]:
    """Of a file of options: as a shell splits them."""
    return shlex.split(text)


def object_name(source: str) -> str:
    """What a compilation without `-o` writes."""
    return f"{PurePath(source).stem}.o"


_PREPROCESSOR = frozenset({"D", "U", "I", "isystem", "include"})
_NEWER = ("20", "23")
"""Standards of C++ beyond that which cudaops' own headers are compiled by."""


def preprocessor_words(options: Sequence[Option]) -> list[str]:
    """What of a file's options decides about its text, in g++'s words."""
    words: list[str] = []
    for name, value in options:
        if name in _PREPROCESSOR and value is not None:
            words += [f"-{name}{value}"] if len(name) == 1 else [f"-{name}", value]
        elif name == "std" and value is not None and value[3:] in _NEWER:
            words.append(f"-std=gnu++{value[3:]}")
    return words


def folders_outside(options: Sequence[Option]) -> tuple[Path, ...]:
    """Folders of headers, and headers, that are not in the author's tree."""
    named = (v for n, v in options if n in ("I", "isystem", "include") and v is not None)
    return tuple(Path(v) for v in named if Path(v).is_absolute())


def nvcc_words(options: Sequence[Option]) -> list[str]:
    """A file's options in nvcc's words; paths are words of their own."""
    words: list[str] = []
    for name, value in options:
        if name == "std" and (value or "")[3:] not in _NEWER:
            continue
        if value is None:
            words.append(f"--{name}")
        elif name in _PREPROCESSOR:
            words += [f"-{name}", value]
        else:
            words.append(f"--{name}={value}")
    return words
