"""libclang over CUDA programs: what every reading of one begins with is compiled once.

A program is read as CUDA, host side: `<<<...>>>` is part of the language then, and templates are
instantiated. cudaops' own headers of the CPU executor stand in for the toolkit's. Every function
without a qualifier counts as host and device code, as `nvcc` does not but no analysis minds.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clang import cindex
from clang.cindex import Cursor

from cudaops.program.clang_bodies import SHARED
from cudaops.program.clang_classes import ROOT

HEADERS = Path(__file__).parents[1] / "executors" / "cpu" / "include"
_PRELUDE = """\
#include <cstdio>
#include <exception>
#include <new>
#pragma clang force_cuda_host_device begin
#define __syncthreads cudaops__syncthreads  // clang's own is for the device alone
#include <cuda_runtime.h>
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __shared__
#undef __launch_bounds__
#undef __noinline__  // a word of clang's, which `__attribute__((__noinline__))` may name
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __shared__ __attribute__((annotate("@shared@")))
#define __launch_bounds__(...) \\
  __attribute__((launch_bounds(__VA_ARGS__), annotate("launch_bounds", __VA_ARGS__)))
#pragma clang force_cuda_host_device end
extern "C" {  // what a kernel may call of C's library, beside the host's own
__device__ int printf(const char*, ...);
__device__ void __assert_fail(const char*, const char*, unsigned, const char*);
__device__ void* malloc(unsigned long);
__device__ void free(void*);
__device__ void* memcpy(void*, const void*, unsigned long);
__device__ void* memset(void*, int, unsigned long);
}
#pragma clang force_cuda_host_device begin
extern "C" int __cudaPushCallConfiguration(dim3 grid, dim3 block, unsigned long shared_bytes = 0,
                                           struct CUstream_st* stream = 0);
""".replace("@shared@", SHARED)
_OPTIONS = (
    "-x", "cuda", "--cuda-host-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_80",
    "-std=gnu++17", "-nostdinc", "-nostdinc++", "-ferror-limit=0", "-w",
    # What host code asks of templates is instantiated where it is compiled once, not in each of
    # the readings that include it: 258 ms to 70 ms of a draft below a program with <vector>.
    "-fpch-instantiate-templates",
)  # fmt: skip

_STANDARD = "-std=gnu++17"
"""Where a build names none."""
_AUTHORS = re.compile(r'#include "([^"\n]+)"\n')
"""How a rewrite begins that is below its author's program."""
_WHOLE = "/cudaops-whole.cu"
"""Includes the program's main file."""
_ASKED, _INSTANCE = "static auto* ", "cudaops_instance"
"""How it asks for an instance, and under which name."""
_AUTHOR = "/cudaops-author.h"
"""Includes the author's, for all rewrites that are below it."""
_FUNCTIONS: tuple[tuple[str, list[Any], Any], ...] = (
    ("clang_getCursorBinaryOperatorKind", [Cursor], ctypes.c_int),
    ("clang_getCursorUnaryOperatorKind", [Cursor], ctypes.c_int),
    ("clang_Cursor_getVarDeclInitializer", [Cursor], Cursor),
    ("clang_Cursor_Evaluate", [Cursor], ctypes.c_void_p),
    ("clang_EvalResult_getKind", [ctypes.c_void_p], ctypes.c_int),
    ("clang_EvalResult_getAsLongLong", [ctypes.c_void_p], ctypes.c_longlong),
    ("clang_EvalResult_getAsUnsigned", [ctypes.c_void_p], ctypes.c_ulonglong),
    ("clang_EvalResult_isUnsignedInt", [ctypes.c_void_p], ctypes.c_uint),
    ("clang_EvalResult_getAsDouble", [ctypes.c_void_p], ctypes.c_double),
    ("clang_EvalResult_dispose", [ctypes.c_void_p], None),
    ("clang_getFileLocation", [cindex.SourceLocation, *[ctypes.c_void_p] * 3,
                               ctypes.POINTER(ctypes.c_uint)], None),
)  # fmt: skip
"""What clang.cindex 18 leaves out."""


def _library() -> Any:
    lib = cindex.conf.lib
    for name, arguments, result in _FUNCTIONS:
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


class Clang:
    """libclang with the prelude compiled once for each standard of C++, into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.lib = _library()
        self._index = cindex.Index.create()
        self._arguments = [*_OPTIONS, f"-I{HEADERS}", *self._system_headers()]
        self._folder = folder
        (folder / "prelude.h").write_text(_PRELUDE, "utf-8")
        self._preludes: dict[str, str] = {}
        self._prelude(_STANDARD)
        self._author = f"{folder}/author.pch"
        self._compiled: tuple[Any, bool] = (None, False)
        """The program that is there, and whether it has no errors."""

    def _prelude(self, standard: str) -> str:
        """What every reading by this standard begins with."""
        if standard not in self._preludes:
            unit = self._index.parse(
                f"{self._folder}/prelude.h",
                [*self._arguments, standard],
                # Incomplete, ForSerialization: as a header is. SkipFunctionBodies: none of them is
                # the program's, and each would be read with every program.
                options=0x2 | 0x10 | 0x40,
            )
            path = f"{self._folder}/prelude{standard}.pch"
            unit.save(path)
            self._preludes[standard] = path
        return self._preludes[standard]

    def parse(
        self, files: dict[str, str], main: str, callee: str | None, flags: Sequence[str] = ()
    ) -> cindex.TranslationUnit:
        """The program with one instance of a template asked for. `flags`: of the author's build;
        folders in their tree are relative."""
        asked = f"{_ASKED}{_INSTANCE} = &::{callee};" if callee else ""
        whole = f"{_including(main)}{asked}\n"
        below = _AUTHORS.match(files[main])
        prefix = self._prelude(_standard(flags))
        if below is not None and self._compile_author(files, main, below[1], flags):
            files = files | {main: " " * (below.end() - 1) + files[main][below.end() - 1 :]}
            prefix = self._author
        return self._parsed(_WHOLE, whole, files, flags, prefix)

    def _compile_author(
        self, files: dict[str, str], main: str, path: str, flags: Sequence[str]
    ) -> bool:
        """Have the program that a rewrite is below compiled once for all rewrites of it. False
        where it has errors, which every reading of it is to see."""
        others = {name: text for name, text in files.items() if name != main}
        asked = (others, path, tuple(flags))
        if asked != self._compiled[0]:
            self._compiled = (asked, False)
            if path in others and "-include" not in flags:
                prelude = self._prelude(_standard(flags))
                unit = self._parsed(_AUTHOR, _including(path), others, flags, prelude, header=True)
                if not any(d.severity >= cindex.Diagnostic.Error for d in unit.diagnostics):
                    unit.save(self._author)
                    self._compiled = (asked, True)
        return self._compiled[1]

    def _parsed(
        self, name: str, text: str, files: dict[str, str], flags: Sequence[str], prefix: str,
        *, header: bool = False,
    ) -> cindex.TranslationUnit:  # fmt: skip
        unsaved = [(f"{ROOT}/{path}", written) for path, written in files.items()]
        return self._index.parse(
            name,
            [*self._arguments, *_rooted(flags), "-include-pch", prefix],
            [*unsaved, (name, text)],
            # KeepGoing: a header that is not there ends nothing; Incomplete, ForSerialization
            options=0x200 | (0x2 | 0x10 if header else 0),
        )

    @staticmethod
    def _system_headers() -> list[str]:
        """Where g++ and, after it, nvcc look for headers: clang's wheel has none."""
        gxx = shutil.which(os.environ.get("CXX", "g++")) or "g++"
        asked = subprocess.run(
            [gxx, "-E", "-x", "c++", "-v", "/dev/null"], capture_output=True, text=True, timeout=20
        )
        listed = asked.stderr.partition("search starts here:\n#include <...>")[2] or asked.stderr
        found = [line.strip() for line in listed.splitlines() if line.startswith(" /")]
        nvcc = shutil.which("nvcc")
        homes = [os.environ.get("CUDA_HOME"), nvcc and str(Path(nvcc).resolve().parents[1])]
        toolkits = [Path(home) / "include" for home in [*homes, "/usr/local/cuda"] if home]
        found += [str(t) for t in toolkits if (t / "cuda_fp8.h").is_file()][:1]
        return [word for folder in found for word in ("-isystem", folder)]


def cursor_at(unit: cindex.TranslationUnit, path: str, offset: int) -> Cursor:
    """What is at this byte of a file that was parsed."""
    file = cindex.File.from_name(unit, path)
    return Cursor.from_location(unit, cindex.SourceLocation.from_offset(unit, file, offset))


def instance_asked_for(unit: cindex.TranslationUnit, main: str) -> Cursor | None:
    """The declaration by which `Clang.parse` asked for an instance of a template, where it did."""
    found = cursor_at(unit, _WHOLE, len(f"{_including(main)}{_ASKED}".encode()))
    return found if found.spelling == _INSTANCE else None


def _including(main: str) -> str:
    return f'#include "{ROOT}/{main}"\n'


def _standard(flags: Sequence[str]) -> str:
    return next((f for f in flags if f.startswith("-std=")), _STANDARD)


def _rooted(flags: Sequence[str]) -> Iterator[str]:
    """Flags of g++ whose folders are those of the program's files."""
    of_path = False
    for flag in flags:
        if of_path or flag.startswith("-I"):
            folder = flag if of_path else flag[2:]
            yield f"{'' if of_path else '-I'}{os.path.normpath(Path(ROOT, folder))}"
        else:
            yield flag
        of_path = flag in ("-isystem", "-include")
