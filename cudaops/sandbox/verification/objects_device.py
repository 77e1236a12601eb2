"""Device code of a unit as nvcc makes it: its PTX, and the cubin that a GPU is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.ptx import Facts, Findings, PtxModule, facts_of, findings, read_ptx
from cudaops.domain.execution import Compiled, Unit
from cudaops.domain.judgement import Precision
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.toolchain import compiling
from cudaops.executors.cuda.build import IMAGE, MAX_LOG, read_nvcc_failure
from cudaops.executors.cuda.source import (
    MARK,
    shown_entries,
    target_arch,
    unit_source,
    unit_texts,
)
from cudaops.executors.cuda.symbols import Image, UnknownEntry, demangled, find_launchables
from cudaops.program.candidate import NAMESPACE
from cudaops.sandbox.process import run_bounded
from cudaops.sandbox.toolchain import nvcc_version, require_nvcc
from cudaops.sandbox.verification.objects_elf import FUNCTION, OBJECT, ElfFile, read_elf
from cudaops.sandbox.verification.preprocessed import CODE_FLAGS
from cudaops.storage import TEMPORARY, entry_of, make_once, raise_if_full
from cudaops.storage import Facts as Noted

FORMAT = 1
"""Of what is noted beside a PTX text."""
PTX = "unit.ptx"
TIMEOUT_S = 180.0
"""0.2 s for a small unit, 3 s with cub's headers (nvcc 13.0.88, 2 cores, 2026-11-20)."""
_ENTRY_BIT = 0x10
"""In `st_other` of what a host can launch: see `executors.cuda.symbols`."""
_FILE_TAG = re.compile(
    r"\d+_INTERNAL_[0-9a-f]{8}_\d+_cudaops_unit_cu_[0-9a-f]{8}"
    r"|\d+_GLOBAL__N__[0-9a-f]{8}_\d+_cudaops_unit_cu_[0-9a-f]{8}(?:_\d+)?"
)
"""What nvcc puts into names of internal linkage; another one in every unit."""


class NotCompiled(Exception):
    """nvcc makes no PTX of a unit; says why in one line."""


class DeviceLook(NamedTuple):
    """What a candidate's device code does beyond its baseline's."""

    findings: Findings
    unlaunched: tuple[str, ...]
    """Kernels of the candidate that its plan does not launch, which therefore never run."""
    numbers: dict[str, float]


class _Ptx(NamedTuple):
    """One unit's PTX, with the kernels that are launched by entry."""

    module: PtxModule
    launched: dict[int, str]
    """Entry to symbol."""
    names: dict[str, str]
    """Symbol of a kernel or variable to its name."""


def look_at_device_code(
    candidate: Unit, baseline: Unit, sm_arch: str, cache: Path, allowed: Precision | None
) -> DeviceLook:
    """Compile both to PTX (once each, under `cache`) and compare what their kernels do.

    Raises NotCompiled, PtxError, PrerequisiteError, SandboxUnavailable.
    """
    ours, authors = (_ptx(unit, sm_arch, cache) for unit in (candidate, baseline))
    steps = {symbol for entry, symbol in ours.launched.items() if entry != BASELINE_ENTRY}
    facts = facts_of(ours.module, steps)
    known = facts_of(authors.module, [authors.launched[BASELINE_ENTRY]])

    def shown(symbol: str) -> str:
        return _without_tags(ours.names.get(symbol, symbol))

    found = findings(facts, known, allowed, shown)
    others = _others(ours, authors)
    foreign = [name for name in others if not ours.names[name].startswith(f"{NAMESPACE}::")]
    foreign = [name for name in foreign if f" {NAMESPACE}::" not in ours.names[name]]
    refused = (*found.refused, *(f"`{shown(n)}` is a kernel of nobody" for n in foreign))
    return DeviceLook(
        found._replace(refused=refused),
        tuple(shown(n) for n in others if n not in foreign),
        _numbers(ours.module, facts),
    )


class CubinLook(NamedTuple):
    """What a cubin holds beyond what its PTX told."""

    refused: tuple[str, ...]
    numbers: dict[str, float]


def look_at_cubin(compiled: Compiled, baseline: Compiled, cache: Path) -> CubinLook:
    """Whether the cubin that is judged holds what its PTX holds, and nothing else.

    Raises ElfError, and what `look_at_device_code` raises.
    """
    ptx = _ptx(compiled.unit, _arch_of(compiled), cache).module
    ours, authors = (read_elf(Path(one.folder) / IMAGE) for one in (compiled, baseline))
    kernels = {_plain(n) for n in ptx.entries}
    variables = {_plain(n) for n in ptx.variables}
    external = {_plain(n) for n in ptx.external}
    refused = [
        *(f"`{n}` is a kernel that its PTX has not" for n in sorted(_entries(ours) - kernels)),
        *(f"`{n}` is a variable that its PTX has not" for n in sorted(_state(ours) - variables)),
        *(
            f"`{n}` is called and stands nowhere in its text"
            for n in sorted(_undefined(ours) - _undefined(authors) - external)
        ),
    ]
    return CubinLook(tuple(refused), {"nv_global_bytes": float(ours.size_of(".nv.global"))})


def _ptx(unit: Unit, sm_arch: str, cache: Path) -> _Ptx:
    nvcc = require_nvcc()
    compiler = f"nvcc {nvcc_version(nvcc)}"
    arch = target_arch(unit_texts(unit), sm_arch)
    source = unit_source(unit)
    flags = (*CODE_FLAGS, f"-arch={arch}", "-ptx")
    entry = entry_of(cache, "ptx", FORMAT, compiler, flags, sorted(source.files.items()))

    def make(folder: Path) -> Noted:
        _compile([str(nvcc), *flags, "-o", PTX, source.main], unit, folder)
        module = read_ptx((folder / PTX).read_text("utf-8"))
        return {"names": demangled([*module.entries, *module.variables], folder)}

    made = make_once(entry, source.files, make)
    module = read_ptx((entry.folder / PTX).read_text("utf-8"))
    names = {str(symbol): str(name) for symbol, name in made.facts["names"].items()}
    image = Image(module.entries, (), {}, {symbol: names[symbol] for symbol in module.entries})
    try:
        found = find_launchables(image, shown_entries(unit))
    except UnknownEntry as problem:
        raise NotCompiled(f"in its PTX {problem}") from problem
    return _Ptx(module, {one.entry: one.symbol for one in found}, names)


def _compile(command: list[str], unit: Unit, folder: Path) -> None:
    done = run_bounded(
        command,
        cwd=folder,
        timeout_s=TIMEOUT_S,
        env={"TMPDIR": str(folder / TEMPORARY)},
        confine=compiling(folder),
    )
    raise_if_full(done.stderr, folder)
    if done.timed_out:
        raise NotCompiled(f"nvcc -ptx did not finish within {TIMEOUT_S:g} s")
    if done.exit_code != 0:
        log = done._replace(stderr=done.stderr[:MAX_LOG])
        raise NotCompiled(
            f"nvcc -ptx refuses it: {read_nvcc_failure(log, unit.program, unit, str).placed}"
        )


def _others(ours: _Ptx, authors: _Ptx) -> list[str]:
    """Kernels that neither the plan launches nor the author wrote, and that are no marks."""
    known = {_plain(n) for n in authors.module.entries}
    launched = set(ours.launched.values())
    return [
        name
        for name in ours.module.entries
        if name not in launched and _plain(name) not in known and f"{len(MARK)}{MARK}I" not in name
    ]


def _numbers(module: PtxModule, facts: Facts) -> dict[str, float]:
    return {
        "ptx_kernels": float(len(module.entries)),
        "ptx_instructions": float(sum(len(f.instructions) for f in module.functions.values())),
        "written_variables": float(sum(t.kind == "state" for t in facts)),
    }


def _entries(cubin: ElfFile) -> set[str]:
    kernels = (s for s in cubin.symbols if s.type == FUNCTION and s.is_defined)
    return {_plain(s.name) for s in kernels if s.other & _ENTRY_BIT}


def _state(cubin: ElfFile) -> set[str]:
    """Variables in sections that outlive a launch."""
    held = {i for i, s in enumerate(cubin.sections) if s.name.startswith(".nv.global")}
    return {_plain(s.name) for s in cubin.symbols if s.type == OBJECT and s.section in held}


def _undefined(cubin: ElfFile) -> set[str]:
    return {_plain(s.name) for s in cubin.symbols if not s.is_defined and s.name}


def _arch_of(compiled: Compiled) -> str:
    found = re.search(r"-arch=(sm_\w+)", compiled.command)
    if found is None:
        raise NotCompiled("the command of the build names no architecture")
    return found[1]


def _plain(symbol: str) -> str:
    return _FILE_TAG.sub("", symbol)


def _without_tags(name: str) -> str:
    text = re.sub(r"_INTERNAL_\w+::|\(anonymous namespace\)::", "", name)
    return text.replace(f"{NAMESPACE}::", "")
