"""Cubins and programs for an NVIDIA GPU: NVRTC for the search, nvcc for what may be accepted."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from cudaops.cuda.nvcc_line import nvcc_words
from cudaops.cuda.ptxas import PtxasLogError, parse_ptxas
from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.domain.program import Application, Program
from cudaops.errors import CudaOpsError, InputError, PrerequisiteError, SandboxUnavailable
from cudaops.executors.cpu.build import read_failure
from cudaops.executors.cuda.driver_recorder import driver_recorder
from cudaops.executors.cuda.nvrtc import Nvrtc
from cudaops.executors.cuda.platform import NVIDIA, Executable, Module
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.cuda.recorded_source import (
    LINKED_FLAGS,
    NVCC_FLAGS,
    RECORDER,
    recorded_in_place,
    recorded_source,
    recorder_files,
)
from cudaops.executors.cuda.source import (
    NVRTC_INCLUDE,
    nvrtc_text,
    shown_entries,
    target_arch,
    unit_source,
    unit_texts,
)
from cudaops.executors.cuda.symbols import (
    Image,
    UnknownEntry,
    demangled,
    find_launchables,
    find_variables,
    read_image,
)
from cudaops.executors.cuda.toolchain import (
    cuda_includes,
    nvcc_command,
    nvcc_version,
    require_nvcc,
    toolkit_home,
    words_of_author,
)
from cudaops.executors.isolation.phases import Confinement, Phase
from cudaops.executors.isolation.places import interpreter
from cudaops.executors.process import Finished, run_bounded
from cudaops.executors.project.driver import DriverConfig
from cudaops.executors.project.products import project_program
from cudaops.executors.project.tree import Tools
from cudaops.executors.untrusted_files import temporary_folder
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.lexing import byte_text, line_of
from cudaops.program.outline import outline
from cudaops.storage import (
    TEMPORARY,
    CacheEntry,
    CacheSlot,
    Facts,
    entry_of,
    make_once,
    raise_if_full,
    write_texts,
)

IMAGE = "unit.cubin"
PROGRAM = "program"
RECORDER_OBJECT = "recorder.o"
COMPILE_TIMEOUT_S = 180.0
"""A small unit takes 0.3 s, one with cub's headers 3 s, a program with thrust 8 s (2 cores)."""
MAX_LOG = 16 * 1024

FINAL_FLAGS = ("-cubin", "-O3", "-std=c++17", "-lineinfo", "-w", "-Xptxas", "-v")
"""-lineinfo changes no instruction: nvdisasm shows the same SASS with and without it for the eight
kernels of examples/ and tests/data/calibration/, sm_86 and sm_90 (nvcc 13.0.88, 2026-11-20)."""
WIDENED_FLAGS = ("-D__NV_NO_VECTOR_DEPRECATION_DIAG",)
DRAFT_FLAGS = ("-std=c++17", "-default-device", "-w", "--ptxas-options=-v")
"""NVRTC does not make nvcc's code: of the same text and with any options, NVRTC 13.0.88 makes 160
registers without a spill where nvcc 13.0.88 makes 128 with one (tests/data/calibration/reg128.cu,
sm_86, 2026-11-20). A draft's time is a hint."""
CLEAN_REMEDY = "install a CUDA toolkit of a version that cudaops knows (docs/gpu.md)"
FORMAT = 2
"""Of what is noted beside a build; a change makes old builds unknown."""


class GpuBuilder:
    """Implements `Platform` for an NVIDIA GPU. Threads and processes may share its folder."""

    driver = NVIDIA
    program_phase: Phase = "gpu"
    names_faults = False

    def __init__(self, cache: Path, sm_arch: str) -> None:
        """`cache` takes the builds, one folder each; `sm_arch` as nvcc spells it: `sm_90`."""
        self.sm_arch = sm_arch
        self._cache = cache.absolute()
        self._nvrtc = Nvrtc()

    def close(self) -> None:
        """End the NVRTC workers."""
        self._nvrtc.close()

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        """Build the kernels of a unit; `draft`: with NVRTC where that can.

        `Module.compiler` says which compiler it was. Raises PrerequisiteError where nvcc is missing
        or cannot work.
        """
        if draft and not unit.widened and (module := self._draft(unit)) is not None:
            return module
        nvcc = require_nvcc()
        compiler = f"nvcc {nvcc_version(nvcc)}"
        arch = target_arch(unit_texts(unit), self.sm_arch)
        source = unit_source(unit)
        options = nvcc_words(unit.program.code_options)
        flags = (*FINAL_FLAGS, *options, f"-arch={arch}", *(WIDENED_FLAGS if unit.widened else ()))
        files = sorted(source.files.items())
        entry = entry_of(self._cache, "cubin", FORMAT, compiler, flags, files)

        def make(folder: Path) -> Facts | CompileFailed:
            command = [str(nvcc), *flags, "-o", IMAGE, source.main]
            done = _run(command, folder)
            if done.exit_code != 0:
                return _refused(done, unit.program, unit, folder)
            return _described(folder, unit, done.stderr, " ".join(["nvcc", *command[1:]]))

        return _module(entry, compiler, make_once(entry, source.files, make))

    def _draft(self, unit: Unit) -> Module | None:
        """NVRTC's cubin; None where it made none, for whatever reason."""
        nvcc = require_nvcc()
        version = self._nvrtc.version()
        if version is None or version.split(".")[0] != nvcc_version(nvcc).split(".")[0]:
            return None  # headers of another CUDA, or an image the driver may not take
        compiler = f"NVRTC {version}"
        arch = target_arch(unit_texts(unit), self.sm_arch)
        text = nvrtc_text(unit)
        options = nvcc_words(unit.program.code_options)
        flags = (*DRAFT_FLAGS, *options, f"-arch={arch}")
        entry = entry_of(self._cache, "draft", FORMAT, compiler, flags, _nvrtc_headers(), text)

        def make(folder: Path) -> Facts | CompileFailed:
            paths = (f"-I{path}" for path in cuda_includes(nvcc))
            made = self._nvrtc.compile(text, (*flags, f"-I{NVRTC_INCLUDE}", *paths), folder / IMAGE)
            if made.ok:
                return _described(folder, unit, made.log, " ".join(["nvrtc", *flags]))
            if made.final:
                return {"refused": made.log[:MAX_LOG]}
            return CompileFailed(message=f"{compiler} refuses it", log=made.log[:MAX_LOG])

        try:
            module = _module(entry, compiler, make_once(entry, {"unit.cu": text}, make))
        except CudaOpsError:
            return None  # what is wrong with this machine will be wrong for nvcc as well
        return module if isinstance(module, Module) else None

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        """Build the whole program; `recorded`: with its launches going through the recorder.

        Raises PrerequisiteError where nvcc is missing or cannot work.
        """
        if program.build is not None:
            return self._project(program, recorded)
        if program.application is not None:
            return self._application(program.application, recorded)
        nvcc = require_nvcc()
        arch = target_arch((f.text for f in program.files), self.sm_arch)
        files = {f.path: f.text for f in program.files}
        sources: Sequence[str] = (program.main_path,)
        extra = words_of_author(program)
        if not program.fused:
            extra = ("-fmad=false", *extra)
        if recorded:
            made = recorded_source(program)
            recorder = recorder_object(self._cache)
            sources = (made.sources[0], RECORDER if recorder is None else str(recorder))
            files, extra = made.files, (*made.flags, *extra)
        command = nvcc_command(nvcc, Path(sources[0]), Path(PROGRAM), arch, (*sources[1:], *extra))
        compiler = f"nvcc {nvcc_version(nvcc)}"
        content = sorted(files.items())
        entry = entry_of(self._cache, "program", FORMAT, compiler, command[1:], content)

        def make(folder: Path) -> Facts | CompileFailed:
            done = _run(command, folder)
            if done.exit_code != 0:
                return _refused(done, program, None, folder)
            return {"command": " ".join(["nvcc", *command[1:]])}

        built = make_once(entry, files, make)
        if isinstance(built, CompileFailed):
            return built
        command_line = str(built.facts["command"])
        return Executable(entry.folder / PROGRAM, command_line, built.seconds, built.cached)

    def _application(self, application: Application, recorded: bool) -> Executable:
        """The author's program as it is, and what is loaded into it."""
        preload = Path(application.library) if application.library else None
        if recorded:
            preload = driver_recorder(self._cache)
        path = Path(application.path)
        if not path.is_file():
            raise InputError(f"the program that launches the kernels is not there: {path}")
        libraries = (path, *sorted(path.parent.glob("*.so*")))
        needs = interpreter(path) if application.is_interpreter else libraries
        return Executable(path, path.name, 0.0, True, needs=needs, preload=preload)

    def _project(self, program: Program, recorded: bool) -> Executable | CompileFailed:
        texts = {f.path: f.text for f in program.files}
        if recorded:
            texts = recorded_in_place(program)
        tools = project_tools(self._cache, self.sm_arch, recorded=recorded)
        made = project_program(
            self._cache, program, texts, tools, lambda _: {},
            lambda done: _refused(done, program, None, self._cache),
        )  # fmt: skip
        if isinstance(made, CompileFailed):
            return made
        assert program.build is not None
        build, folder = program.build, made.entry.folder
        path = folder / build.executable if build.executable else Path(build.interpreter)
        return Executable(
            path, build.command, made.seconds, made.cached, folder, arguments=build.arguments
        )


def project_tools(cache: Path, sm_arch: str, *, recorded: bool) -> Tools:
    """What builds an author's tree: nvcc, for this GPU alone. A recorded program is linked with
    the recorder, whoever links it."""
    nvcc = require_nvcc()
    linked: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()
    if recorded:
        recorder = recorder_object(cache.absolute())
        if recorder is None:
            raise PrerequisiteError("nvcc cannot compile cudaops' recorder", CLEAN_REMEDY)
        linked, reads = (str(recorder), *LINKED_FLAGS), (recorder,)
    home = toolkit_home(nvcc)
    folders = {"include": ("include",), "lib64": ("lib64", "lib")}
    toolkit = {
        name: home / found
        for name, names in folders.items()
        if (found := next((n for n in names if (home / n).is_dir()), None)) is not None
    }

    def config(tree: Path) -> DriverConfig:
        return DriverConfig(
            for_gpu=True,
            tree=str(tree),
            nvcc=str(nvcc),
            sm_arch=sm_arch,
            recorder=linked,
        )

    kind = f"cuda {nvcc_version(nvcc)} {sm_arch} {linked}"
    return Tools(kind, config, reads, toolkit, sm_arch=sm_arch)


def recorder_object(cache: Path) -> Path | None:
    """The recorder compiled, once for all programs and GPUs: it takes longer than most programs.

    None where nvcc refuses; then the program's own build says why. Raises PrerequisiteError where
    nvcc is missing or cannot work.
    """
    nvcc = require_nvcc()
    files = recorder_files()
    # Linked into shared libraries as well.
    command = [str(nvcc), "-O3", "-c", "-o", RECORDER_OBJECT, RECORDER, *NVCC_FLAGS,
               "-Xcompiler", "-fPIC"]  # fmt: skip
    compiler = f"nvcc {nvcc_version(nvcc)}"
    content = sorted(files.items())
    entry = entry_of(cache.absolute(), "recorder", FORMAT, compiler, command[1:], content)

    def make(folder: Path) -> Facts | None:
        return {} if _run(command, folder).exit_code == 0 else None

    return entry.folder / RECORDER_OBJECT if make_once(entry, files, make) is not None else None


def _module(
    entry: CacheSlot, compiler: str, made: CacheEntry | CompileFailed
) -> Module | CompileFailed:
    """What was noted of a build, as a record."""
    if isinstance(made, CompileFailed):
        return made
    facts = made.facts
    if "refused" in facts:
        return CompileFailed(message=f"{compiler} refuses it", log=str(facts["refused"]))
    return Module(
        key=entry.key,
        folder=entry.folder,
        image=entry.folder / IMAGE,
        launchables=tuple(Launchable.model_validate(x) for x in facts["launchables"]),
        variables=dict(facts["variables"]),
        resources=tuple(KernelResources.model_validate(x) for x in facts["resources"]),
        command=str(facts["command"]),
        compiler=compiler,
        seconds=made.seconds,
        cached=made.cached,
        log=str(facts["log"]),
    )


def _described(folder: Path, unit: Unit, log: str, command: str) -> Facts | CompileFailed:
    """What is noted beside a cubin: entries, variables, what each kernel takes."""
    image = read_image(folder / IMAGE)
    try:
        launchables = find_launchables(image, shown_entries(unit))
    except UnknownEntry as problem:
        return CompileFailed(message=str(problem), log=log[:MAX_LOG])
    resources = _resources(launchables, image, log)
    return {
        "launchables": [one.model_dump() for one in launchables],
        "variables": find_variables(image, unit.program),
        "resources": [one.model_dump() for one in resources],
        "command": command,
        "log": log[:MAX_LOG],
    }


def _resources(
    launchables: Sequence[Launchable], image: Image, log: str
) -> tuple[KernelResources, ...]:
    """ptxas's numbers; what it leaves out is in the cubin itself."""
    try:
        known = {kernel.symbol: kernel for kernel in parse_ptxas(log)}
    except PtxasLogError as problem:
        raise SandboxUnavailable(str(problem), CLEAN_REMEDY) from problem
    found = []
    for one in launchables:
        kernel = known.get(one.symbol)
        if kernel is None:
            raise _silent(one.shown)
        stack = kernel.cumulative_stack_bytes
        smem, constant = kernel.static_smem_bytes, kernel.constant_bytes
        numbers = {
            "registers": kernel.registers,
            "stack_bytes": kernel.stack_frame_bytes if stack is None else stack,
            "spill_store_bytes": kernel.spill_store_bytes,
            "spill_load_bytes": kernel.spill_load_bytes,
            "static_smem_bytes": image.static_smem_bytes(one.symbol, kernel.sm_arch)
            if smem is None
            else smem,
            "constant_bytes": image.constant_bytes(one.symbol) if constant is None else constant,
        }
        known_numbers = {name: value for name, value in numbers.items() if value is not None}
        if len(known_numbers) != len(numbers):
            raise _silent(one.shown)
        found.append(KernelResources(kernel=one.shown, sm_arch=kernel.sm_arch, **known_numbers))
    return tuple(found)


def _silent(kernel: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"ptxas does not say what `{kernel}` takes",
        CLEAN_REMEDY,
    )


@functools.cache
def _nvrtc_headers() -> str:
    """Contents of our stand-in headers, part of every draft's key."""
    files = sorted(p for p in NVRTC_INCLUDE.rglob("*") if p.is_file())
    return repr([(str(p.relative_to(NVRTC_INCLUDE)), p.read_text("utf-8")) for p in files])


def _run(command: list[str], folder: Path) -> Finished:
    temporary = {"TMPDIR": str(folder / TEMPORARY)}
    named = tuple(Path(word) for word in command[1:] if Path(word).is_absolute())
    done = run_bounded(
        command,
        cwd=folder,
        timeout_s=COMPILE_TIMEOUT_S,
        env=temporary,
        confine=Confinement("compile", named, (folder,)),
    )
    if done.exit_code != 0:
        raise_if_full(done.stderr, folder)
    return done


def _refused(done: Finished, program: Program, unit: Unit | None, folder: Path) -> CompileFailed:
    if done.timed_out:
        text = f"nvcc did not finish within {COMPILE_TIMEOUT_S:g} s"
        return CompileFailed(message=text, log=done.stderr[:MAX_LOG])
    return read_nvcc_failure(done, program, unit, lambda s: demangled([s], folder)[s])


def refused_by_nvcc(program: Program, sm_arch: str) -> CompileFailed | None:
    """What nvcc says of a program of one file as its author has it; None where it takes it. Raises
    PrerequisiteError where nvcc is missing or cannot work."""
    nvcc = require_nvcc()
    with temporary_folder("cudaops-nvcc-") as folder:
        write_texts(folder, {file.path: file.text for file in program.files})
        (folder / TEMPORARY).mkdir()
        source, made = Path(program.main_path), folder / "program.o"
        relocatable = program.compilation.relocatable_words
        flags = (*nvcc_words(program.code_options), *relocatable)
        done = _run([*nvcc_command(nvcc, source, made, sm_arch, flags), "-c"], folder)
        return None if done.exit_code == 0 else _refused(done, program, None, folder)


_ERROR = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic |internal )?error"
    r"(?: #[\w-]+)?: (?P<text>.*)$"
)
_INSTANTIATION = re.compile(r'at line (?P<line>\d+)(?: of "?(?P<file>[^"\s]+)"?)?')
_PTXAS = re.compile(r"^ptxas (?:[^;]*; )?(?:error|fatal)\s*: (?P<text>.*)$")
_PTXAS_LAST = "Ptx assembly aborted due to errors"
_QUOTED = re.compile(r"'(?P<symbol>\w+)'")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_DRIVER = re.compile(r"^nvcc (?:fatal|error)\s*: (?P<text>.*)$")
_OURS = ("unsupported GNU version", "unsupported clang version")
"""What nvcc's own headers say of a host compiler."""
HOST_REMEDY = "install a g++ that this nvcc supports, or a newer CUDA toolkit"

Demangle = Callable[[str], str]


def read_nvcc_failure(
    done: Finished, program: Program, unit: Unit | None, demangle: Demangle
) -> CompileFailed:
    """The first error that is the source's fault.

    Raises PrerequisiteError where nvcc itself cannot work: no host compiler, unknown architecture.
    """
    log = done.stderr + done.stdout
    lines = log.splitlines()
    known = {*(f.path for f in program.files), CANDIDATE_FILE}
    for index, line in enumerate(lines):
        if any(text in line for text in _OURS):
            raise PrerequisiteError("nvcc refuses the host compiler", HOST_REMEDY)
        if found := _ERROR.match(line):
            location = _located(found["file"], found["line"], known)
            return _failed(found["text"], location or _instantiation(lines, index, known), log)
    for line in lines:
        found = _PTXAS.match(line)
        if found and found["text"] != _PTXAS_LAST:
            text = _HEX.sub(lambda number: str(int(number[0], 16)), found["text"])
            return _ptxas(text, program, unit, demangle, log)
    for line in lines:
        if found := _DRIVER.match(line):
            _raise_or_pass(found["text"])
            return _failed(found["text"], None, log)
    return read_failure(log, [f.path for f in program.files])


def _failed(text: str, location: SourceLocation | None, log: str) -> CompileFailed:
    return CompileFailed(message=" ".join(text.split())[:400], location=location, log=log[:MAX_LOG])


def _located(file: str, line: str, known: set[str]) -> SourceLocation | None:
    name = file.removeprefix("./")
    return SourceLocation(file=name, line=int(line)) if name in known and int(line) else None


def _instantiation(lines: list[str], index: int, known: set[str]) -> SourceLocation | None:
    """An error in a header of CUDA's: the nearest place in the author's text that led there.

    nvcc lists `detected during` below the message, innermost first; a place without a file is in
    the file of the one before it.
    """
    file = ""
    for line in lines[index + 1 : index + 40]:
        if _ERROR.match(line):
            break
        for found in _INSTANTIATION.finditer(line):
            file = found["file"] or file
            if location := _located(file, found["line"], known):
                return location
    return None


def _ptxas(
    text: str, program: Program, unit: Unit | None, demangle: Demangle, log: str
) -> CompileFailed:
    """ptxas names symbols and its own files: a kernel becomes its name and its definition."""
    location = None
    if quoted := _QUOTED.search(text):
        shown = demangle(quoted["symbol"])
        text = text.replace(quoted[0], f"`{_own_name(shown)}`")
        location = _definition(shown, program, unit)
    return _failed(text, location, log)


def _own_name(demangled: str) -> str:
    return demangled.replace("cudaops_candidate::", "").removeprefix("void ")


def _definition(demangled: str, program: Program, unit: Unit | None) -> SourceLocation | None:
    """First line of the function that a demangled symbol names."""
    name = re.sub(r"<.*", "", re.sub(r"\(.*", "", _own_name(demangled)))
    if "cudaops_candidate::" in demangled:
        if unit is None or unit.rewrite is None:
            return None
        facts = outline(byte_text(unit.rewrite.source))
        for item in facts.items:
            if item.is_kernel and item.qualified_name == name:
                line = line_of(facts.lexed.text, item.start)
                return SourceLocation(file=CANDIDATE_FILE, line=line)
        return None
    for kernel in program.kernels:
        if kernel.qualified_name == name:
            return SourceLocation(file=kernel.file, line=kernel.first_line)
    return None


def _raise_or_pass(text: str) -> None:
    """Tell a toolkit that cannot work from a compiler that fell over the source."""
    if "died due to signal" not in text:
        _refuse(text)


def _refuse(text: str) -> NoReturn:
    if "architecture" in text or "gpu-code" in text:
        raise PrerequisiteError(
            f"nvcc cannot build for this GPU: {text}",
            "install a CUDA toolkit that supports it, or give another --arch",
        )
    raise PrerequisiteError(f"nvcc cannot work: {text}", HOST_REMEDY)
