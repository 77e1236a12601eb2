"""g++ and what is built once for all units: the runtime objects and the precompiled headers.

Floating point: nvcc contracts `a * b + c` into a fused multiply-add, so `-ffp-contract=fast` is
given together with `-mfma` where this processor has the instruction; where it has not, nothing is
contracted. Baseline, candidate and widened baseline are always built with the same flags.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.cuda.nvcc_line import NOT_FORTIFIED
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded
from cudaops.storage import Facts, entry_of, make_once, raise_if_full

Build = Literal["plain", "checked", "traced", "lockstep"]
"""`plain`: as fast as it gets. `checked`: every access of a kernel goes through the checker.
`traced`: every access goes to the statistics of `cudaops/trace.h`. `lockstep`: before an access the
lanes of a warp wait for each other, as hardware before Volta had them do."""

INCLUDE = Path(__file__).with_name("include")
SOURCE = Path(__file__).with_name("src")

HEADER = "prelude.h"
"""What is precompiled."""
COMPILE_TIMEOUT_S = 120.0

INSTALL_GXX = (
    "install it: `apt-get install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), "
    "on macOS run cudaops in a Linux container"
)

BASE_FLAGS = (
    "-std=gnu++17", "-fno-pie", "-fno-strict-aliasing", "-fno-builtin-printf", "-w", NOT_FORTIFIED,
)  # fmt: skip
"""Device code casts freely between types: strict aliasing would miscompile it."""
INSTRUMENTED_FLAGS = (
    "-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "-g", "-gdwarf-4",
    "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-tree-sra",
    "-fno-optimize-sibling-calls", "-fno-crossjumping", "-fno-tree-tail-merge",
    "-DCUDAOPS_INSTRUMENTED",
)  # fmt: skip
"""Every access keeps its author's width: nothing is vectorised, and vector types stay whole. Nor do
accesses that are in two places of the text become one."""
ASKED_FLAGS = ("-fsanitize=alignment,shift-exponent,float-cast-overflow,signed-integer-overflow",)
"""Of `checked` alone: g++ tests each address against the type that is accessed there, counts of
shifts, conversions of floats and arithmetic of signed integers, which wraps then; and what
`cpu/src/alignment.cpp` and `arithmetic.cpp` define is called where they do not fit. No sanitizer
library is linked."""
WRAPPING_FLAGS = ("-fwrapv",)
"""Sums of signed integers wrap, as the instructions of a GPU do."""
LINES_ALONE = ("-fno-var-tracking", "-fno-var-tracking-assignments")
"""Where variables lie is asked by nobody: a fifth to a third of a compile, and the same code.
Measured: g++ 12.2, the units of examples/naive_matmul.cu, 2026-11-30."""
AS_WRITTEN_FLAGS = ("-O0",)
"""Of `lockstep` alone: every access of the text is made, in its order. An optimizer may keep in a
register what another lane is to see where it is not volatile, and mostly old code is not."""
_CHECKED = ("-DCUDAOPS_INSTRUMENTED",)
CLOCKS = (
    "clock_gettime", "gettimeofday", "clock",
    "_ZNSt6chrono3_V212steady_clock3nowEv", "_ZNSt6chrono3_V212system_clock3nowEv",
)  # fmt: skip
"""Whose readings say what a program times: those of `cudaops/clock_reads.h`."""
_WRAPPED = ("printf", "__assert_fail", *CLOCKS)
LINK_FLAGS = ("-no-pie", *(f"-Wl,--wrap={name}" for name in _WRAPPED), "-ldl", "-pthread")
_WRAPPED_FOR_CHECKS = (
    "memcpy", "memset", "memmove", "malloc", "free",
    "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm",
)  # fmt: skip
"""Copies that a kernel asks the library for, and its heap: `new` and `delete` as g++ calls them."""
INSTRUMENTED_LINK_FLAGS = tuple(f"-Wl,--wrap={name}" for name in _WRAPPED_FOR_CHECKS)


class Toolchain(NamedTuple):
    """A g++ that was found, with the flags that suit this machine."""

    gxx: str
    version: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"g++ {self.version}"


@functools.cache
def find_toolchain() -> Toolchain:
    """g++ on PATH, or what CXX names. Raises PrerequisiteError with the install command."""
    if platform.system() != "Linux":
        raise PrerequisiteError(
            f"the cpu executor needs Linux, this is {platform.system()}", INSTALL_GXX
        )
    gxx = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("g++")
    if gxx is None:
        raise PrerequisiteError("g++ is not installed", INSTALL_GXX)
    asked = run_bounded([gxx, "-dumpfullversion", "-dumpversion"], cwd=Path("/"), timeout_s=20)
    version = asked.stdout.strip()
    if asked.exit_code != 0 or not version.split(".")[0].isdigit():
        raise PrerequisiteError(
            f"{gxx} does not tell its version: {asked.stderr.strip()[:200]}", INSTALL_GXX
        )
    if int(version.split(".")[0]) < 11:
        raise PrerequisiteError(f"g++ {version} is too old, 11 or newer is needed", INSTALL_GXX)
    return Toolchain(gxx, version, BASE_FLAGS + _machine_flags())


def _machine_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        return ("-ffp-contract=fast",)
    with contextlib.suppress(OSError):
        features = Path("/proc/cpuinfo").read_text("utf-8").split()
        fused = ("-mfma", "-ffp-contract=fast") if "fma" in features else ("-ffp-contract=off",)
        return (*fused, *(("-mf16c",) if "f16c" in features else ()), "-fcf-protection=none")
    return ("-ffp-contract=off", "-fcf-protection=none")


def code_flags(build: Build) -> tuple[str, ...]:
    """Every flag of a compile that the code depends on; the same for baseline and candidate. Where
    this checkout lies is none of them: what is compiled in one serves all."""
    kinds: dict[Build, tuple[str, ...]] = {
        "plain": ("-g1", "-gdwarf-4", *WRAPPING_FLAGS),
        "checked": (*INSTRUMENTED_FLAGS, *ASKED_FLAGS),
        "traced": INSTRUMENTED_FLAGS,
        "lockstep": (*INSTRUMENTED_FLAGS, *AS_WRITTEN_FLAGS),
    }
    return (*find_toolchain().flags, "-O2", *LINES_ALONE, *kinds[build])


def compile_flags(build: Build) -> tuple[str, ...]:
    """The same with the folder of our headers: every flag but input and output."""
    return (*code_flags(build), f"-I{INCLUDE}")


def compile_command(build: Build, source: str, output: str, extra: Sequence[str] = ()) -> list[str]:
    """`g++ ... -c SOURCE -o OUTPUT`, run in the folder that holds the unit's files."""
    return [
        find_toolchain().gxx,
        *compile_flags(build),
        *extra,
        "-x",
        "c++",
        "-c",
        source,
        "-o",
        output,
    ]


def link_command(
    build: Build, objects: Sequence[str], output: str, extra: Sequence[str] = ()
) -> list[str]:
    """The command that makes an executable of a unit's object and the runtime's."""
    wraps = () if build == "plain" else INSTRUMENTED_LINK_FLAGS
    return [find_toolchain().gxx, *objects, "-o", output, *LINK_FLAGS, *wraps, *extra]


@functools.cache
def source_digest() -> str:
    """Digest of compiler, flags and every file of the runtime; part of every key."""
    digest = hashlib.sha256(repr((find_toolchain(), INSTRUMENTED_FLAGS, LINK_FLAGS)).encode())
    for path in sorted(p for folder in (INCLUDE, SOURCE) for p in folder.rglob("*")):
        if path.suffix in (".h", ".cpp"):
            name = path.relative_to(INCLUDE.parent).as_posix()
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def around(cache: Path, build: Build, unit_object: str, *, runner: bool) -> list[str]:
    """Objects of an executable in link order, the runtime's built on first use.

    `first` and `last` stand around the author's object: between them lies its shared memory. Where
    two objects have the same function, it is the former's: `runtime`'s of this kind of build.
    """
    names = ("first", "last", "runtime", *_OF_EVERY_KIND, *(("runner",) if runner else ()))
    with ThreadPoolExecutor() as pool:  # made once on a machine; each sees the stop of this work
        made = [
            pool.submit(copy_context().run, _runtime_object, cache, build, name) for name in names
        ]
    first, *rest = (str(one.result()) for one in made)
    return [first, unit_object, *rest]


def build_runtime(cache: Path) -> None:
    """All of it that a run comes to need, in the order in which it does."""
    builds: tuple[Build, ...] = ("plain", "traced", "checked")
    for build in builds:
        around(cache, build, "", runner=True)


def is_runtime_built(cache: Path) -> bool:
    """Whether anything of it is there: of which version and kind, only a build finds out."""
    return any(cache.glob(f"{_RUNTIME}-*"))


_RUNTIME = "runtime"
_OF_EVERY_KIND = ("host", "graphs")
"""Objects of the runtime that are the same in each kind of build. No kernel runs in them, so that
-O1 will do: a third less to compile."""


def _runtime_object(cache: Path, build: Build, name: str) -> Path:
    """One of the runtime's objects. Without line tables: they would be most of every executable,
    and no line of ours is ever shown."""
    toolchain = find_toolchain()
    defines: dict[Build, tuple[str, ...]] = {
        "plain": (),
        "checked": _CHECKED,
        "traced": (*_CHECKED, "-DCUDAOPS_TRACE"),
        "lockstep": (*_CHECKED, "-DCUDAOPS_LOCKSTEP"),
    }
    of_every_kind = name in _OF_EVERY_KIND
    flags = (*toolchain.flags, *(("-O1",) if of_every_kind else ("-O2", *defines[build])))
    entry = entry_of(cache, _RUNTIME, source_digest(), flags, name)
    found = (f"-I{INCLUDE}", f"-I{SOURCE}")
    output = f"{name}.o"

    def make(folder: Path) -> Facts:
        source = str(SOURCE / f"{name}.cpp")
        _must([toolchain.gxx, *flags, *found, "-c", source, "-o", output], folder)
        return {}

    make_once(entry, {}, make)
    return entry.folder / output


def precompiled_header(cache: Path, build: Build, includes: Sequence[str]) -> Path | None:
    """A header of these system includes and our own, precompiled: 0.2 to 0.6 s saved a compile.

    None where the compiler refuses it (an include that does not exist): the unit then reads its
    includes itself and the compiler's message names the author's line.
    """
    text = "".join(f"#if __has_include(<{i}>)\n#include <{i}>\n#endif\n" for i in includes)
    text += "#include <cudaops/cuda.h>\n#include <cudaops/entry.h>\n"
    entry = entry_of(cache, "header", source_digest(), code_flags(build), text)

    def make(folder: Path) -> Facts:
        made = f"{HEADER}.gch"
        flags = (*compile_flags(build), "-x", "c++-header", HEADER, "-o", made)
        command = [find_toolchain().gxx, *flags]
        confine = compiling(folder)
        done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
        if done.exit_code != 0:
            raise_if_full(done.stderr, folder)
        return {"refused": done.stderr[:4096]} if done.exit_code != 0 else {}

    made = make_once(entry, {HEADER: text}, make)
    return None if "refused" in made.facts else entry.folder / HEADER


def compiling(folder: Path, reads: Sequence[Path] = ()) -> Confinement:
    """What g++ and what looks at its output may touch: this folder, and our own headers."""
    return Confinement("compile", (INCLUDE, SOURCE, *reads), (folder,))


def _must(command: list[str], folder: Path) -> None:
    confine = compiling(folder)
    done = run_bounded(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    if done.exit_code != 0:
        text = (done.stderr.strip() or "no message").splitlines()
        first = next((line for line in text if "error" in line), text[0])
        raise_if_full(done.stderr, folder)
        raise SandboxUnavailable(
            f"g++ cannot build the cpu executor's runtime: {first}",
            "if g++ is older than 11, install a newer one; otherwise report a bug of cudaops",
        )
