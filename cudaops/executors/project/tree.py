"""A copy of an author's tree in which their own build command runs, and runs again for a candidate.

    <cache>/project-5f0c.../tree.tar      what the author's tree held
            projecttree-91ab.../tree/     the same, built: one for each command and kind
            projectprogram-77de.../       a program that came of it, with its shared libraries

Nothing of the author's is written to. A candidate's files replace the author's in the built tree,
the command runs again, and makes what it would make for the author's next edit.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import ValidationError

from cudaops.domain.program import Build, Program
from cudaops.errors import InputError
from cudaops.executors.isolation.phases import GIB, Confinement, limits_of
from cudaops.executors.isolation.places import interpreter, is_everybodys
from cudaops.executors.isolation.view import is_run_folder
from cudaops.executors.process import Finished, python_path, run_bounded
from cudaops.executors.project.application import INTERPRETER_TIMEOUT_S, interpreter_itself
from cudaops.executors.project.driver import CONFIG, FOLDER, LOG, PROGRAMS, DriverConfig
from cudaops.executors.project.units import (
    CompilerInvocation,
    Units,
    linked_programs,
    options_in_tree,
)
from cudaops.program.parse import callers_of, parse_files
from cudaops.storage import Facts, entry_of, locked, make_once, raise_if_full, used

FORMAT = 3
"""Of what is kept; part of every key."""
BUILD_TIMEOUT_S = 1800.0
"""Of the whole command, from nothing."""
MOST_BYTES = 2 * GIB
"""Of a tree. Chosen: it is copied and archived."""
MOST_FILES = 50_000
ARCHIVE = "tree.tar"
MADE = (".o", ".obj", ".d", ".cubin", ".fatbin", ".ptx", ".ii", ".gch", ".pyc")
NEVER = frozenset({".git", ".hg", ".svn", ".cudaops", "CMakeFiles", "CMakeCache.txt",
                    ".ninja_log", ".ninja_deps", "__pycache__"})  # fmt: skip
"""What a tree without git leaves behind: builds of the author's, which would be taken for ours."""
CACHE_TAG = "CACHEDIR.TAG"
"""In a folder that can be made anew, as cargo's `target`. Source: Cache Directory Tagging
Specification (bford.info/cachedir)."""
_COMPILERS = ("g++", "c++", "gcc", "cc", "clang++", "clang")
_VERSIONS = range(7, 30)
"""Of compilers that builds name, as in `CXX=g++-13`."""
_BUILDERS = ("make", "cmake", "ctest", "ninja", "meson")
_RUST = ("cargo", "rustc")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib")
_ERROR = re.compile(
    r"\berror\b.*:|undefined reference|multiple definition|not found|No rule|No such file", re.I
)
_OF_MAKE = re.compile(r"^(?:g?make|ninja)(?:\[\d+\])?: ")
"""What a build tool says of what another program said."""
_OF_LIBRARIES = re.compile(
    r"\b(?:thrust|cub|cuda|cuda_(?:occupancy|\w+_interop)|cooperative_groups|cutlass|"
    r"cu(?:blas|fft|rand|solver|sparse|dnn)\w*)"
    r"[/.]\S*: No such file"
)
"""A header of a library on top of CUDA, none of which is there for a processor."""
_OF_PYTHON = re.compile(r"^[\w.]*(?:Error|Exception|Exit)\b(?:: |$)")
"""The last line of a traceback."""


class Tools(NamedTuple):
    """What is behind the compilers of a build."""

    kind: str
    """With versions and flags: another one builds another tree."""
    config: Callable[[Path], DriverConfig]
    """Of a tree."""
    reads: tuple[Path, ...]
    """What it needs beside the tree and the system's."""
    toolkit: Mapping[str, Path]
    """Folders of a CUDA toolkit by their names in it: `include`, `lib64`."""
    no_interpreter: str = ""
    """Why none can run what it builds; empty where one can."""
    sm_arch: str = ""
    """Of the GPU it builds for, where a build cannot ask: it sees none."""

    def noting_only(self) -> Tools:
        """The same with empty objects in place of what is compiled."""

        def config(tree: Path) -> DriverConfig:
            return self.config(tree)._replace(notes_only=True)

        return self._replace(kind=f"{self.kind} noted", config=config)


class TreeCopy(NamedTuple):
    """A tree that was copied."""

    sha256: str
    archive: Path


def unpack(archive: Path, folder: Path) -> None:
    """Put the files of a snapshot into a folder. What links lead out of the tree is the author's,
    who is trusted with the archive. Raises InputError for names that lead out."""
    with tarfile.open(archive) as found:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4; Debian 12 has 3.11.2
            found.extractall(folder, filter="tar")
            return
        names = [PurePosixPath(member.name) for member in found]
        if any(name.is_absolute() or ".." in name.parts for name in names):
            raise InputError(f"{archive} is no copy of a project's tree: a name leads out of it")
        found.extractall(folder)


def take_snapshot(cache: Path, folder: Path) -> TreeCopy:
    """Copy the author's tree into an archive, once for the same contents.

    With git: what it tracks or would. Else everything but objects and CMake's files. Raises
    InputError for a tree that is no project's or too large.
    """
    folder = folder.resolve()
    if is_everybodys(folder):
        raise InputError(f"{folder} is not a project folder; start cudaops in your project's")
    files = sorted(_files(folder))
    sizes = [p.lstat().st_size for p in files]
    if len(files) > MOST_FILES or sum(sizes) > MOST_BYTES:
        text = f"{len(files)} files of {sum(sizes) / GIB:.3g} GiB"
        raise InputError(
            f"{folder} holds {text}, too much to be copied for a build ({MOST_FILES} files, "
            f"{MOST_BYTES // GIB} GiB); let git ignore what the build does not need"
        )
    digest = hashlib.sha256()
    for path in files:
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{path.lstat().st_mode & 0o777}\0{len(content)}\0".encode())
        digest.update(content)
    entry = entry_of(cache.absolute(), "project", FORMAT, digest.hexdigest())

    def make(target: Path) -> Facts:
        with tarfile.open(target / ARCHIVE, "w") as archive:
            for path in files:
                archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
        return {}

    make_once(entry, {}, make)
    return TreeCopy(digest.hexdigest(), entry.folder / ARCHIVE)


def _files(folder: Path) -> Iterator[Path]:
    listed = _by_git(folder)
    for path in _without_builds(folder) if listed is None else (folder / name for name in listed):
        above = path.relative_to(folder).parents[:-1]
        ours = any(_is_run(folder / part) for part in above)
        if not ours and (path.is_symlink() or path.is_file()):
            yield path


def _without_builds(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in NEVER]
        if CACHE_TAG in names and Path(at) != folder:
            folders.clear()
            continue
        for name in names:
            if name not in NEVER and Path(name).suffix not in MADE:
                yield Path(at, name)


_is_run = functools.lru_cache(maxsize=4096)(is_run_folder)


def _by_git(folder: Path) -> list[str] | None:
    """What git tracks, or would; None where the folder is in no repository."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]  # fmt: skip
    try:
        asked = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    if asked.returncode != 0:
        return None
    return [name for name in os.fsdecode(asked.stdout).split("\0") if name]


class BuiltTree:
    """One tree, held by whoever builds in it."""

    def __init__(self, cache: Path, build: Build, main: str, tools: Tools) -> None:
        """`main`: path of the main file in the tree."""
        self.build = build
        self.tools = tools
        self.main = main
        builders = sorted(map(str, _builders().values()))  # which are in the tree by their paths
        content = (FORMAT, build.tree_sha256, build.command, tools.kind, builders)
        self._entry = entry_of(cache.absolute(), "projecttree", *content)
        self.root = self._entry.folder / "tree"
        self._mark = self._entry.folder / "building"
        self._originals = self._entry.folder / "originals"
        """The author's files that another text stands in for, or did."""
        self._touched = self._entry.folder / "touched"
        """Names of the files that an earlier build compiled with such texts, one a line."""
        self._begun = 0

    @property
    def key(self) -> str:
        """Digest of all that decides about it."""
        return self._entry.key

    def held(self) -> Any:
        """A context in which nobody else builds here."""
        return locked(self._entry.folder)

    def built(self, texts: Mapping[str, str]) -> Finished:
        """Run the command with these texts at their paths; what a killed build left is made anew.
        To be called while it is `held`."""
        whole = self.root.is_dir() and not self._mark.exists()
        self._mark.touch()  # ahead of the files: a tree that was unpacked in part is no tree
        if not whole:
            self._extract()
        used(self._entry.folder)
        wanted: dict[str, str | bytes] = {**self._replaced(texts), **texts}
        if self._write(wanted):
            self._touch()
        self._place_driver()
        self._begun = len(self.log())
        done = self._run()
        self._mark.unlink()
        return done._replace(stdout=self._shown(done.stdout), stderr=self._shown(done.stderr))

    def log(self) -> list[CompilerInvocation]:
        """What the compilers were asked since the tree was made, in order."""
        path = self.root / FOLDER / LOG
        lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
        try:
            return [CompilerInvocation.model_validate_json(line) for line in lines]
        except ValidationError:
            text = f"the build wrote into {FOLDER}/{LOG} of its tree, which is reserved for cudaops"
            raise InputError(f"{text}; let it leave that folder alone") from None

    def failure(self, done: Finished) -> str:
        """Why the build that just ended failed, in one line."""
        return build_failure(done, self.log()[self._begun :], for_gpu=bool(self.tools.sm_arch))

    def _extract(self) -> None:
        for folder in (self.root, self._originals):
            shutil.rmtree(folder, ignore_errors=True)
        archive = Path(self.build.snapshot)
        if not archive.is_file():
            raise InputError(
                f"the copy of the project's tree no longer exists ({archive}); run it again"
            )
        self.root.mkdir(parents=True)
        unpack(archive, self.root)
        now = time.time()
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                # A program or library that the author built is older than all it is made of.
                at = 1.0 if _is_built(path) else now
                os.utime(path, (at, at))

    def _python(self) -> tuple[Path, ...]:
        """The interpreter that is run later, which may build as well, with its headers."""
        if not self.build.interpreter:
            return ()
        found = interpreter(Path(self.build.interpreter))
        return (*found, *(path.parent / "include" for path in found if path.name == "bin"))

    def _shown(self, text: str) -> str:
        """What a compiler said, with paths of the author's tree."""
        return re.sub(rf"{re.escape(str(self.root))}/(?:{re.escape(FOLDER)}/units/\w+/)?", "", text)

    def _replaced(self, texts: Mapping[str, str]) -> dict[str, bytes]:
        """What stood in the place of files that an earlier build was given and this one is not."""
        return {
            name: path.read_bytes()
            for path in self._originals.rglob("*")
            if path.is_file()
            and (name := path.relative_to(self._originals).as_posix()) not in texts
        }

    def _write(self, texts: Mapping[str, str | bytes]) -> bool:
        changed = False
        for name, text in texts.items():
            path, kept = self.root / name, self._originals / name
            data = text if isinstance(text, bytes) else text.encode("utf-8")
            found = path.read_bytes() if path.is_file() else None
            if found is not None and found in (data, _as_latin(text)):
                continue
            if found is not None and not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(found)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            changed = True
        return changed

    def _touch(self) -> None:
        """Make files newer that are compiled with texts that changed, or were in an earlier build,
        for a command that does not know of their headers."""
        known = self._touched.read_text("utf-8").splitlines() if self._touched.is_file() else []
        names = list(dict.fromkeys([*known, self.main, *self.build.callers]))
        for name in names:
            if (self.root / name).is_file():
                os.utime(self.root / name)
        self._touched.write_text("".join(f"{name}\n" for name in names), "utf-8")

    def _place_driver(self) -> None:
        own = self.root / FOLDER
        programs = own / PROGRAMS
        programs.mkdir(parents=True, exist_ok=True)
        config = self.tools.config(self.root)
        (own / CONFIG).write_text(json.dumps(config._asdict()), "utf-8")
        for name, folder in self.tools.toolkit.items():
            link = own / name
            if not (link.is_symlink() and link.readlink() == folder):  # cudaops may have moved
                link.unlink(missing_ok=True)
                link.symlink_to(folder)
        words = [sys.executable, "-P", "-m", "cudaops.executors.project.driver", str(self.root)]
        for name in _compilers():
            _executable(programs / name, f'exec {shlex.join([*words, name])} "$@"')
        for name, found in {**_builders(), **_rust()}.items():
            _executable(programs / name, f'exec {shlex.quote(str(found))} "$@"')

    def _run(self) -> Finished:
        programs = self.root / FOLDER / PROGRAMS
        toolkit = self.root / FOLDER
        begin = (
            f"PATH={shlex.quote(str(programs))}:$PATH NVCC={shlex.quote(str(programs / 'nvcc'))}; "
            f"CUDACXX=$NVCC CUDAHOSTCXX={shlex.quote(str(programs / 'g++'))} "
            f"CUDA_HOME={shlex.quote(str(toolkit))} CUDA_PATH=$CUDA_HOME; "
            "export PATH NVCC CUDACXX CUDAHOSTCXX CUDA_HOME CUDA_PATH; "
        )
        if self.tools.sm_arch:
            digits = re.sub(r"\D", "", self.tools.sm_arch)
            begin += f"export TORCH_CUDA_ARCH_LIST={digits[:-1]}.{digits[-1]}; "
        temporary = self._entry.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        done = run_bounded(
            ["/bin/sh", "-c", f"{begin}{self.build.command}\n"],
            cwd=self.root,
            timeout_s=BUILD_TIMEOUT_S,
            env={
                "TMPDIR": str(temporary),
                "PYTHONPATH": python_path(),
                "CARGO_HOME": str(temporary / "cargo"),
                "CARGO_NET_OFFLINE": "true",
            },
            tool="build",
            confine=Confinement(
                "compile",
                (*self.tools.reads, *(found.parent.parent for found in _builders().values())),
                (self.root, temporary),
                (self.root, *(found.parent.parent for found in _rust().values()), *self._python()),
                limits=limits_of("compile")._replace(disk_entries=MOST_FILES),
            ),
        )
        if done.exit_code != 0:
            raise_if_full(done.stderr, self.root)
        return done


def _is_built(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith((b"\x7fELF", b"!<arch>\n"))


def _as_latin(text: str | bytes) -> bytes:
    """A file that is no UTF-8 was read as Latin-1."""
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def _compilers() -> Iterator[str]:
    """As builds name them; Debian's Python has `x86_64-linux-gnu-g++` link its extensions."""
    yield "nvcc"
    for name in _COMPILERS:
        versions = (f"{name}-{version}" for version in _VERSIONS)
        yield from filter(shutil.which, (name, f"{platform.machine()}-linux-gnu-{name}", *versions))


def _builders() -> dict[str, Path]:
    """Build tools that the operator's PATH has and the system's has not, as in a virtual
    environment, whose prefix they read. A prefix that others use too, such as ~/.local, is not
    opened for them."""
    shared = {Path.home(), Path.home() / ".local", Path("/")}
    found = {name: Path(at) for name in _BUILDERS if (at := shutil.which(name))}
    return {
        name: path
        for name, path in found.items()
        if path.parent.parent not in shared
        and not any(path.is_relative_to(place) for place in _SYSTEM)
    }


@functools.lru_cache(maxsize=1)
def _rust() -> dict[str, Path]:
    """cargo and rustc themselves, where what stands on PATH only starts them, as rustup's does:
    that needs the operator's home folder, in which tokens may lie."""
    found = shutil.which("rustc")
    if found is None:
        return {}
    asked = run_bounded(
        [found, "--print", "sysroot"], cwd=Path("/"), timeout_s=INTERPRETER_TIMEOUT_S,
        env={"HOME": str(Path.home())},
    )  # fmt: skip
    programs = Path(asked.stdout.strip() or "/", "bin")
    return {name: programs / name for name in _RUST if (programs / name).is_file()}


def _executable(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
    path.chmod(0o755)


def open_project(
    cache: Path,
    folder: Path,
    source: Path | None,
    command: str,
    executable: str | None,
    tools: Tools,
) -> Program:
    """Build the author's tree, and read the file that is worked on as the build compiles it.

    `folder`: the tree, in which `command` is run; `source`: a file in it, None for all as one
    program, to be run and no more; `executable`: what is run of it, None where the build links one
    alone. Raises InputError, one line, for what is wrong.
    """
    folder, source = folder.resolve(), None if source is None else source.resolve()
    if source is not None and not source.is_relative_to(folder):
        raise InputError(f"{source} is not in {folder}; start cudaops in your project's folder")
    name = "" if source is None else source.relative_to(folder).as_posix()
    taken = take_snapshot(cache, folder)
    build = Build(
        tree_sha256=taken.sha256,
        snapshot=str(taken.archive),
        command=command,
        source=name,
        interpreter=executable if executable and Path(executable).is_absolute() else "",
    )
    tree = BuiltTree(cache, build, name, tools)
    with tree.held():
        done = tree.built({})
        log = tree.log()
        if done.exit_code != 0 or done.timed_out:
            raise InputError(tree.failure(done))
        run = _run_of(tree, executable, log, name)
        units = Units(tree.root, log, run.get("executable", ""))
        unit = units.of(name) if name else units.first()
        callers = callers_of(unit.program, [one.program for one in units] if name else [])
        parts = units.parts_of(unit) if name else []
        beside = (*(f for part in parts for f in part.program.files), *callers)
        others = beside if name else tuple(units.files_beside(unit.program))
        options = options_in_tree(unit.compiled, tree.root)
    build = build.model_copy(
        update={
            "interpreter": "",
            **run,
            "options": options,
            "callers": tuple(f.path for f in callers),
            "parts": tuple(part.program.main_path for part in parts),
        }
    )
    program = unit.program
    files = tuple({file.path: file for file in (*program.files, *others)}.values())
    found = parse_files(program.root_name, files, program.system_includes, build)
    if name:
        return found
    # What one file defines is not to be named in another.
    known = {kernel.plain_name for kernel in found.kernels}
    launches = tuple(site for site in found.launches if site.kernel in known)
    return found.model_copy(update={"global_variables": (), "launches": launches})


def _run_of(
    tree: BuiltTree, asked: str | None, log: Sequence[CompilerInvocation], source: str
) -> dict[str, str]:
    """What is run: `executable` or `interpreter` of a `Build`. A build that compiled nothing, or
    not the `source`, says so first."""
    try:
        return _executable_of(tree, asked, log)
    except InputError:
        units = Units(tree.root, log, "")
        if source:
            units.of(source)
        raise


def _executable_of(
    tree: BuiltTree, asked: str | None, log: Sequence[CompilerInvocation]
) -> dict[str, str]:
    if asked is not None:
        path = Path(os.path.normpath(tree.root / asked))
        if path.is_file() and os.access(path, os.X_OK) and path.is_relative_to(tree.root):
            return {"executable": path.relative_to(tree.root).as_posix()}
        named = shutil.which(asked) if "/" not in asked or Path(asked).is_absolute() else None
        if named is None:
            raise InputError(f"the build made no program {asked}; name it by its path in the tree")
        if tree.tools.no_interpreter:
            raise InputError(f"the build made no program {asked}, and {tree.tools.no_interpreter}")
        return {"interpreter": interpreter_itself(Path(named).absolute())}
    linked = [
        p
        for p in dict.fromkeys(linked_programs(log))
        if p.is_file() and p.is_relative_to(tree.root)
    ]
    if len(linked) != 1:
        names = ", ".join(p.relative_to(tree.root).as_posix() for p in linked) or "none"
        raise InputError(f"--run says which program is run; the build linked {names}")
    return {"executable": linked[0].relative_to(tree.root).as_posix()}


def build_failure(
    done: Finished, log: Sequence[CompilerInvocation], *, for_gpu: bool = True
) -> str:
    """Why a build failed, in one line. CMake says below its own what is missing."""
    for note in log:
        if note.refused:
            return note.refused
    if done.timed_out:
        return f"the build did not finish within {BUILD_TIMEOUT_S:g} s"
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    wrong = [one for one in lines if _ERROR.search(one) and not re.search("warning", one, re.I)]
    compilers = [one for one in wrong if not (_OF_MAKE.match(one) or _OF_PYTHON.match(one))]
    raised = [one for one in lines if _OF_PYTHON.match(one)][-1:]
    said = compilers or raised or wrong or lines[-1:] or ["nothing"]
    rest = lines[lines.index(said[0]) + 1 :][:3] if said[0].startswith("CMake Error") else []
    text = f"the build fails with exit code {done.exit_code}: {' '.join([said[0], *rest])[:300]}"
    if not for_gpu and _OF_LIBRARIES.search(said[0]):
        text += "; programs with CUDA's libraries need a GPU: --executor cuda"
    return text
