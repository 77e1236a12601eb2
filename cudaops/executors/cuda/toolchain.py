"""Where the CUDA compiler is, and the one command line that every kept rewrite compiles with."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from cudaops.cuda.nvcc_line import NOT_FORTIFIED, folders_outside, nvcc_words
from cudaops.domain.program import Program
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.process import run_bounded

INSTALL_NVCC = (
    "install it: `python -m pip install 'cudaops[toolkit]'`, or put a CUDA toolkit on PATH"
)

LIBRARIES: dict[str, tuple[str, ...]] = {
    "cublas.h": ("-lcublas",), "cublas_v2.h": ("-lcublas",), "cublasLt.h": ("-lcublasLt",),
    "cufft.h": ("-lcufft",), "curand.h": ("-lcurand",), "cusolverDn.h": ("-lcusolver",),
    "cusparse.h": ("-lcusparse",), "nvrtc.h": ("-lnvrtc",), "omp.h": ("-Xcompiler", "-fopenmp"),
}  # fmt: skip
"""What a program that includes a header must be linked with. Source: each library's manual."""


def find_tool(
    name: str, *, inside: Sequence[str] = ("bin",), homes: Sequence[str] = ()
) -> Path | None:
    """A program of the CUDA toolkit; None where it is nowhere.

    On PATH; in these folders of CUDA_HOME, CUDA_PATH and `homes`; in NVIDIA's wheels, newest first.
    """
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *homes):
        for folder in inside if home else ():
            if (candidate := Path(str(home)) / folder / name).is_file():
                return candidate
    spec = importlib.util.find_spec("nvidia")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for candidate in sorted(Path(location).glob(f"cu*/bin/{name}"), reverse=True):
            return candidate
    return None


def find_nvcc() -> Path | None:
    """nvcc on PATH, in CUDA_HOME or CUDA_PATH, or in the `toolkit` extra's wheels; else None."""
    return find_tool("nvcc")


def require_nvcc() -> Path:
    """nvcc, wherever it is. Raises PrerequisiteError with what to install."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise PrerequisiteError("nvcc is not installed", INSTALL_NVCC)
    return nvcc


@functools.cache
def nvcc_version(nvcc: Path) -> str:
    """`13.0.88`. Raises PrerequisiteError where it does not tell."""
    asked = run_bounded([str(nvcc), "--version"], cwd=Path("/"), timeout_s=20)
    found = re.search(r"\bV(\d+\.\d+\.\d+)", asked.stdout)
    if asked.exit_code != 0 or found is None:
        text = (asked.stderr.strip() or asked.stdout.strip())[:200]
        raise PrerequisiteError(f"{nvcc} does not tell its version: {text}", INSTALL_NVCC)
    return found[1]


_LIBRARY_HEADER = re.compile(
    r"(?:(?:cublas|curand|cufft|cusparse|cusolver|nvrtc|npp)\w*|nvml|(?:nvtx3/)?nvToolsExt\w*)\.h"
)
_USUAL_FOLDERS = (Path("/usr/include"), Path("/usr/local/include"))


def nvcc_for(program: Program) -> Path | None:
    """nvcc, where it is here and finds the headers of NVIDIA's libraries that the program includes:
    they come apart from it, and on a processor others stand in for some."""
    nvcc = find_nvcc()
    named = [n for n in program.system_includes if _LIBRARY_HEADER.fullmatch(n)]
    if nvcc is None or not named:
        return nvcc
    folders = (*cuda_includes(nvcc), *_USUAL_FOLDERS, *folders_outside(program.code_options))
    return nvcc if all(any((f / n).is_file() for f in folders) for n in named) else None


@functools.cache
def toolkit_home(nvcc: Path) -> Path:
    """The folder with the toolkit's `include` and `lib64`: `nvcc` may be a script that calls it."""
    asked = run_bounded(
        [str(nvcc), "--dryrun", "-c", "-x", "cu", "/dev/null"], cwd=Path("/"), timeout_s=20
    )
    found = re.search(r"^#\$ _?TOP=(.+)$", asked.stderr, re.MULTILINE)
    return Path(found[1].strip()).resolve() if found else nvcc.resolve().parent.parent


def cuda_includes(nvcc: Path) -> tuple[Path, ...]:
    """Folders of the toolkit's headers, libcu++'s last; nvcc itself needs none of them named."""
    include = toolkit_home(nvcc) / "include"
    return tuple(p for p in (include, include / "cccl") if p.is_dir())


def cutlass_includes() -> Path | None:
    """The folder of CUTLASS's and CuTe's headers: of CUTLASS_PATH, else of the package
    nvidia-cutlass; None where neither is there. Raises InputError for a CUTLASS_PATH without
    them."""
    named = os.environ.get("CUTLASS_PATH")
    spec = None if named else importlib.util.find_spec("cutlass_library")
    roots = [Path(named)] if named else []
    roots += [Path(p, "source") for p in (spec.submodule_search_locations or ())] if spec else []
    for folder in (place for root in roots for place in (root / "include", root)):
        if (folder / "cutlass" / "cutlass.h").is_file():
            return folder.resolve()
    if named:
        raise InputError(f"CUTLASS_PATH={named}: there is no include/cutlass/cutlass.h in it")
    return None


@functools.cache
def finds_driver_library(nvcc: Path) -> bool:
    """Whether `-lcuda` links: libcuda comes with a driver, the stub for it with a whole toolkit."""
    stubs = ("lib64/stubs", "lib/stubs", "targets/x86_64-linux/lib/stubs")
    home = toolkit_home(nvcc)
    here = any((home / folder / "libcuda.so").is_file() for folder in stubs)
    return here or ctypes.util.find_library("cuda") is not None


def library_flags(includes: Iterable[str]) -> tuple[str, ...]:
    """Link flags for a program with these system includes."""
    return tuple(dict.fromkeys(f for name in includes for f in LIBRARIES.get(name, ())))


def words_of_author(program: Program) -> tuple[str, ...]:
    """What nvcc is told of a program of one file: its author's flags, and the libraries whose
    headers it includes."""
    libraries = library_flags(program.system_includes)
    return (*nvcc_words(program.code_options), *libraries, *program.compilation.nvcc_words)


BROUGHT_ALONG = "cstdint"
"""A header that programs get from others by the C++ library that their author has, and that later
ones leave out (https://gcc.gnu.org/gcc-13/porting_to.html, header dependency changes). What
recorded programs begin with includes it anyway."""


def nvcc_command(
    nvcc: Path, source: Path, output: Path, sm_arch: str, extra: Sequence[str] = ()
) -> list[str]:
    """`nvcc -O3 -arch=sm_86 -o OUT SOURCE`, static cudart, local headers found beside the source,
    `BROUGHT_ALONG` before it.

    The wheels keep their libraries in `lib` where nvcc expects `lib64`: that folder is added.
    """
    command = [
        str(nvcc),
        "-O3",
        "-Xcompiler",
        NOT_FORTIFIED,
        f"-arch={sm_arch}",
        "-include",
        BROUGHT_ALONG,
        "-cudart",
        "static",
        "-o",
        str(output),
        str(source),
        *extra,
    ]
    library = nvcc.resolve().parent.parent / "lib"
    if library.is_dir():
        command += ["-L", str(library)]
    return command
