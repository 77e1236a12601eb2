"""The recorder of programs that launch kernels by CUDA's driver API: a library for LD_PRELOAD, and
the list of kernels that it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cudaops.domain.program import Kernel, Parameter, Program
from cudaops.domain.workload import ELEMENT_BYTES
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.cuda.recorded_source import FOLDER, RECORDER, recorder_files
from cudaops.executors.cuda.toolchain import require_nvcc, toolkit_home
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.preload.hooks import SOURCE, check_platform
from cudaops.executors.process import run_bounded
from cudaops.program.front_end import kernel_form
from cudaops.program.instances import SPELLED, VECTORS, element_of
from cudaops.program.syntax import NotUnderstood, normal_type
from cudaops.storage import TEMPORARY, Facts, entry_of, make_once, raise_if_full

LIBRARY = "librecorder.so"
KERNELS = "kernels.tsv"
FRONT = "cudaops_capture/front.cpp"
EXPORTS = "exports.map"
COMPILE_TIMEOUT_S = 180.0
"""It takes 4 s on 2 cores, once an account."""
FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w",
    "-DCUDAOPS_CAPTURE_PRELOADED", "-I.", "-Icudaops_capture", f"-Wl,--version-script={EXPORTS}",
    "-Wl,-z,defs", "-static-libstdc++", "-static-libgcc",
)  # fmt: skip
"""With a C++ library of its own: the program may bring another."""
_EXPORTED = "{ global: cu*; dlsym; local: *; };\n"
_SHARED = ("hooks.h", "driver.h", "arguments.h")
"""Of `executors/preload`: how a program's calls of the driver are met."""


def driver_recorder(cache: Path) -> Path:
    """The library, compiled once for all programs. Raises PrerequisiteError where nothing can be
    preloaded or compiled here."""
    check_platform()
    files = _files()
    gxx = find_toolchain().gxx
    include = toolkit_home(require_nvcc()) / "include"
    command = [
        gxx, *FLAGS, f"-I{include}", "-o", LIBRARY, RECORDER, FRONT, "-ldl", "-lpthread",
    ]  # fmt: skip
    entry = entry_of(cache.absolute(), "driverrecorder", command, sorted(files.items()))

    def make(folder: Path) -> Facts:
        done = run_bounded(
            command,
            cwd=folder,
            timeout_s=COMPILE_TIMEOUT_S,
            env={"TMPDIR": str(folder / TEMPORARY)},
            confine=Confinement("compile", (include,), (folder,)),
        )
        if done.exit_code != 0:
            raise_if_full(done.stderr, folder)
            lines = done.stderr.splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line), lines[0])
            raise SandboxUnavailable(f"g++ cannot compile the recorder: {first}", "report it")
        return {}

    make_once(entry, files, make)
    return entry.folder / LIBRARY


def kernel_list(program: Program) -> str:
    """What the library reads: the program's kernels, and what C++ calls each element."""
    lines = [_kernel_line(program, kernel) for kernel in program.kernels]
    variables = [
        f"variable\t{v.qualified_name}\t{_symbol(v.qualified_name)}"
        for v in program.global_variables
    ]
    return "\n".join([*lines, *variables, *_element_lines(), ""])


def _files() -> dict[str, str]:
    named = {f"cudaops_capture/{name}": SOURCE / name for name in _SHARED}
    named |= {f"cudaops_capture/{p.name}": p for p in sorted((FOLDER / "driver").iterdir())}
    texts = {name: path.read_text("utf-8") for name, path in named.items()}
    return {**recorder_files(), **texts, EXPORTS: _EXPORTED}


def _symbol(qualified_name: str) -> str:
    """Of a variable (Itanium ABI). A static one is none that another module could name."""
    parts = qualified_name.split("::")
    if len(parts) == 1:
        return qualified_name
    return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E"


def _kernel_line(program: Program, kernel: Kernel) -> str:
    return "\t".join(["kernel", kernel.name, kernel.qualified_name, *_types(program, kernel)])


def _types(program: Program, kernel: Kernel) -> tuple[str, ...]:
    """Of parameters, as a demangler spells them. Those of a template are in its mangled name."""
    if kernel.template_parameters:
        return ()
    named = tuple(map(_as_written, kernel.parameters))
    if all(element_of(base) != "opaque" for base, _ in named):
        return tuple(base + pointer for base, pointer in named)
    try:  # an alias, a macro or a structure: what it means clang knows, in half a second
        parameters = kernel_form(program, kernel).kernel.parameters
    except NotUnderstood:
        parameters = ()
    if len(parameters) != len(named):
        return tuple(base + pointer for base, pointer in named)
    return tuple(
        one.type + (" const" if one.is_const else "") + ("*" if one.is_pointer else "")
        for one in parameters
    )


def _as_written(parameter: Parameter) -> tuple[str, str]:
    """A value's type, or what a pointer points to; and how the pointer is spelled."""
    plain = normal_type(parameter.type_text.replace("__restrict__", " "))
    if not parameter.is_pointer:
        return plain, ""
    return plain[:-1], " const*" if parameter.is_const else "*"


def _element_lines() -> Iterator[str]:
    """Also what `normal_type` does away with: the library sees what a demangler writes."""
    scalars = [*SPELLED.values(), "char", "unsigned", "half", "long", "unsigned long"]
    for name in scalars:
        element = element_of(normal_type(name))
        is_scalar = element not in ("f16", "bf16")  # structures, to C++
        yield f"element\t{name}\t{element}\t{ELEMENT_BYTES[element]}\t{int(is_scalar)}"
    for base, element in VECTORS.items():
        for count in range(1, 5):
            yield f"element\t{base}{count}\t{element}\t{count * ELEMENT_BYTES[element]}\t0"
    for name, element in (("__half2", "f16"), ("__nv_bfloat162", "bf16")):
        yield f"element\t{name}\t{element}\t4\t0"
