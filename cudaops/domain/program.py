"""Program: a `.cu` file with its local headers, parsed."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.workload import ELEMENT_BYTES, Element

FILE_SITES = 1000
"""Launch sites that a file of a build has numbers for. Chosen: no file has as many."""
SITES_OF_BUILDS = range(1_000_000, 901_000_000, FILE_SITES)
"""Where the launch sites of a build's files may begin; nine digits are what a recorder reports."""


def first_site(path: str) -> int:
    """Index of the first launch site of this file of a build: the same whichever file is worked on,
    and whichever includes it."""
    digest = hashlib.sha256(path.encode()).digest()
    return SITES_OF_BUILDS[int.from_bytes(digest[:8]) % len(SITES_OF_BUILDS)]


class SourceFile(Record):
    """One file of the program: the main file or a header it includes with quotes."""

    path: str
    """POSIX path relative to `Program.root_name`'s folder; never absolute, never with `..`."""
    text: str


class Parameter(Record):
    """One parameter of a kernel, as written."""

    name: str
    type_text: str
    """The type as written, with qualifiers, without the name: `const float* __restrict__`."""
    is_pointer: bool
    is_const: bool
    """For a pointer: whether what it points to is const."""


class Kernel(Record):
    """A `__global__` function definition."""

    name: str
    """Unqualified name; of one that is overloaded with the types of its parameters:
    `scale(float*, int)`."""
    qualified_name: str
    """With enclosing namespaces, never with types: `ops::naive_matmul`."""
    parameters: tuple[Parameter, ...]
    template_parameters: tuple[str, ...] = ()
    """As written: `int TILE`, `typename T`. Empty for a plain function."""
    launch_bounds: str | None = None
    """Text between the parentheses of `__launch_bounds__`."""
    file: str
    first_line: int
    last_line: int
    start_byte: int
    """Offset of the definition (template header included) in the UTF-8 bytes of its file."""
    end_byte: int
    text: str
    """The definition as written, template header and attributes included."""
    uses_dynamic_shared: bool = False
    shares_name: bool = False
    """Whether functions that are no kernels of the program have its qualified name too."""

    @property
    def plain_name(self) -> str:
        """Unqualified name as its author writes it, which other kernels may have too."""
        return self.name.partition("(")[0]

    @property
    def is_overloaded(self) -> bool:
        """Whether another kernel has the same qualified name."""
        return "(" in self.name

    @property
    def needs_types(self) -> bool:
        """Whether its name alone means several functions."""
        return self.is_overloaded or self.shares_name

    @property
    def full_names(self) -> tuple[str, str]:
        """What it is called by who means no other, with and without namespaces."""
        return self.name, self.qualified_name + self.name.removeprefix(self.plain_name)

    @property
    def identifier(self) -> str:
        """The name as a word of C++ that no other kernel has."""
        spelled = self.name.replace("*", " p ").replace("[", " p ")
        return "_".join(re.findall(r"\w+", spelled))


class GlobalVariable(Record):
    """A `__constant__`, `__device__` or `__managed__` variable at namespace scope that is not
    const."""

    name: str
    qualified_name: str
    space: str
    """`constant`, `device` or `managed`."""
    type_text: str
    file: str
    line: int


class LaunchSite(Record):
    """One `kernel<<<grid, block, smem, stream>>>(args)` expression."""

    index: int
    """Position among the launches of the program, in file order; the capture shim reports it. Of a
    build each file counts its own, from `first_site`."""
    kernel: str
    """Unqualified name of the launched kernel."""
    callee: str
    """The launched expression as written: `ops::reg_matmul<64, 64>`."""
    template_arguments: str | None = None
    """Text between `<` and `>` where written; None where absent or deduced."""
    grid: str
    block: str
    smem: str | None = None
    stream: str | None = None
    args: tuple[str, ...]
    file: str
    line: int
    start_byte: int
    end_byte: int
    """End of the launch expression: just after the closing parenthesis of the arguments."""
    enclosing_start_byte: int
    """Start of the top-level declaration (with template header) that holds this launch."""
    in_macro: bool = False
    """Whether it is in a `#define`."""


class Build(Record):
    """How the author builds a program of several files: by their own command, in a copy of their
    tree. The program's paths are relative to that tree."""

    tree_sha256: str
    """Digest over names, modes and contents of the tree's files."""
    snapshot: str
    """Absolute path of the archive that the tree was copied into."""
    command: str
    """For a shell, in the tree's root."""
    source: str
    """The file that the user named: the main file, or a header that it includes."""
    executable: str = ""
    """What is run, relative to the tree; empty where an interpreter is."""
    interpreter: str = ""
    """Absolute path of a program of this machine that is run in the built tree: the Python of
    `--run "python3 app.py"`."""
    arguments: tuple[str, ...] = ()
    """What comes before the arguments of every run: of a program that compiles its CUDA itself,
    cudaops' own way to start it (`problem.torch_extension`)."""
    scripts: tuple[SourceFile, ...] = ()
    """The author's files in Python in which files of the tree stand as strings."""
    options: tuple[tuple[str, str | None], ...] = ()
    """Of nvcc, short names without dashes with their values: what decides about the main file's
    device code. Folders in the tree are relative to it."""
    callers: tuple[str, ...] = ()
    """Files that the main file does not include and whose own launch its kernels, or declare them
    for who does."""
    parts: tuple[str, ...] = ()
    """Files that the main file does not include and that define device functions which its device
    code names (`-rdc=true`): they are put behind it where its kernels are compiled alone."""


class Compilation(Record):
    """How the author compiles a program of one file, where that is more than `nvcc FILE`; of every
    other program nothing."""

    options: tuple[tuple[str, str | None], ...] = ()
    """As `Build.options`, folders absolute."""
    link: tuple[str, ...] = ()
    """Words of nvcc's for linking: `-lcublas`."""
    host: tuple[str, ...] = ()
    """Flags of the host's compiler that decide about what the program does: `-fopenmp`."""

    @property
    def nvcc_words(self) -> tuple[str, ...]:
        """For linking, and for host code."""
        return (*self.link, *(f"-Xcompiler={flag}" for flag in self.host))

    @property
    def relocatable_words(self) -> tuple[str, ...]:
        """What lets kernels launch kernels, where the author says so."""
        return tuple(word for word in self.link if word == "-rdc=true")


PLAIN = Compilation()
"""`nvcc FILE`."""


class Application(Record):
    """A program of the author's that launches the kernels by CUDA's driver API, from a file that
    holds kernels alone. It is run as it is: nothing of it is compiled."""

    path: str
    """Absolute: the program, or the interpreter that runs it."""
    is_interpreter: bool
    """Whether it is a program of this machine rather than of the author's folder."""
    sha256: str
    """Over the author's files that its command names, themselves and where they lie."""
    library: str = ""
    """Absolute path of what is preloaded: the rewrite that stands in for the author's kernel
    (`cudaops.preload`). Empty: nothing."""


class ProblemArray(Record):
    """An array that a problem's reference takes or gives."""

    name: str
    element: Element
    shape: tuple[int, ...]
    """Empty: one element, without a dimension."""
    origin: Literal["input", "state", "output"] = "input"
    """`state`: a parameter or buffer of its `Model`."""
    path: str = ""
    """What it is called there (`conv.weight`); of a `Model`'s arguments the position."""

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Of its elements."""
        return self.count * ELEMENT_BYTES[self.element]


class ProblemNumber(Record):
    """A number that a problem's reference takes."""

    name: str
    is_integer: bool
    value: int | float
    """As drawn with the first seed; another draw may have another."""
    origin: Literal["input", "init"] = "input"
    """`init`: an argument of its `Model`'s constructor."""
    path: str = ""


class ReferenceProblem(Record):
    """The reference in Python whose result a program's kernels compute (docs/problems.md)."""

    script: str
    """Absolute path of its file."""
    sha256: str
    """Of that file."""
    python: str
    """Absolute path of the interpreter that runs it."""
    form: Literal["function", "kernelbench"]
    arrays: tuple[ProblemArray, ...]
    numbers: tuple[ProblemNumber, ...] = ()
    outputs: tuple[ProblemArray, ...]
    returns: Literal["one", "tuple", "list", "dict"] = "one"
    """What the reference gives its outputs as."""

    @property
    def shapes(self) -> tuple[object, ...]:
        """All that every draw has in common."""
        arrays = [(a.name, a.element, a.shape) for a in (*self.arrays, *self.outputs)]
        return (*arrays, *((n.name, n.is_integer) for n in self.numbers))


class Program(Record):
    """A parsed CUDA program: host code, kernels, launch sites."""

    root_name: str
    """Name of the main file without its suffix; names the run folder."""
    main_path: str
    files: tuple[SourceFile, ...]
    """The main file first, then quoted local includes, each once; last the callers of a build."""
    system_includes: tuple[str, ...] = ()
    """Names between angle brackets over all files, in order, each once: `cstdio`."""
    kernels: tuple[Kernel, ...] = ()
    global_variables: tuple[GlobalVariable, ...] = ()
    launches: tuple[LaunchSite, ...] = ()
    limits: tuple[str, ...] = Field(default=())
    """What was seen that capture cannot follow, in plain words: textures, device-side launches."""
    build: Build | None = None
    """None: one nvcc command makes the program of the main file."""
    compilation: Compilation = PLAIN
    """What that command says beyond the file."""
    options: tuple[tuple[str, str | None], ...] = ()
    """Those of `compilation`, with the program's own folders relative to its files."""
    problem: ReferenceProblem | None = None
    """The reference that its host code was written around; None: its author wrote all of it."""
    application: Application | None = None
    """What launches its kernels, which no text of it does; None: it does so itself."""
    exit_code: int = 0
    """With which it ends where all went well."""
    fused: bool = True
    """False: built without fused multiply-adds, to see what rounding alone changes in its results.
    Of a program without `build` only."""

    def file(self, path: str) -> SourceFile:
        """The file at `path`. Raises KeyError for a path the program does not have."""
        for candidate in self.files:
            if candidate.path == path:
                return candidate
        raise KeyError(path)

    @property
    def code_options(self) -> tuple[tuple[str, str | None], ...]:
        """What decides about its device code, in nvcc's words."""
        return self.options if self.build is None else self.build.options

    @property
    def main(self) -> SourceFile:
        """The file that was named on the command line."""
        return self.file(self.main_path)

    def kernel(self, name: str) -> Kernel:
        """The kernel with this unqualified or qualified name; of overloaded ones the first, unless
        the name has types. Raises KeyError."""
        for candidate in self.kernels_named(name):
            return candidate
        raise KeyError(name)

    def kernels_named(self, name: str) -> tuple[Kernel, ...]:
        """Those with this name; several where one is meant that is overloaded."""
        exact = tuple(k for k in self.kernels if name in (k.name, k.qualified_name))
        named = exact or tuple(k for k in self.kernels if name == k.plain_name)
        asked = "".join(name.split())
        return named or tuple(
            k
            for k in self.kernels
            if k.is_overloaded and asked in ("".join(one.split()) for one in k.full_names)
        )

    @property
    def sha256(self) -> str:
        """Digest over paths and texts of all files, main file first."""
        digest = hashlib.sha256()
        for f in self.files:
            digest.update(
                PurePosixPath(f.path).as_posix().encode() + b"\0" + f.text.encode() + b"\0"
            )
        if self.build is not None:
            build = self.build
            run = build.executable or PurePosixPath(build.interpreter).name
            named = (build.tree_sha256, build.command, run, build.options)
            digest.update(repr(named).encode())
        if self.compilation != PLAIN:
            digest.update(repr((self.options, self.compilation.nvcc_words)).encode())
        if self.problem is not None:
            digest.update(self.problem.sha256.encode())
        if self.application is not None:
            one = self.application
            digest.update(repr((PurePosixPath(one.path).name, one.sha256)).encode())
        return digest.hexdigest()
