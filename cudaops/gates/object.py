"""Gate `object`: what was compiled, as its files tell it, beside the same unit without the rewrite.

| where | what is looked at |
|---|---|
| `cpu` | g++'s object: nothing runs by itself, calls the host or takes a name of ours |
| nvcc is there | PTX: state, clocks, precision, calls, of what the plan's kernels can reach |
| `cpu` without nvcc | the same words in the preprocessed text, and the summary says so |
| `cuda` | the cubin: it holds the kernels and variables that its PTX holds, and no others |

A look that applies and cannot be made fails the gate.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.nvcc_line import folders_outside, nvcc_words
from cudaops.cuda.ptx import Facts, Findings, PtxError, PtxModule, facts_of, findings, read_ptx
from cudaops.domain.execution import Compiled, CompileFailed, Ran, Unit
from cudaops.domain.judgement import Gate
from cudaops.domain.options import Precision
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Element, Workload
from cudaops.errors import EnvironmentFailure
from cudaops.executors.base import Executor, Trial
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.build import OBJECT as UNIT_OBJECT
from cudaops.executors.cpu.toolchain import around, compiling
from cudaops.executors.cpu.unit import captured_inputs
from cudaops.executors.cuda.build import IMAGE, MAX_LOG, read_nvcc_failure
from cudaops.executors.cuda.source import (
    MARK,
    shown_entries,
    target_arch,
    unit_source,
    unit_texts,
)
from cudaops.executors.cuda.symbols import Image, UnknownEntry, demangled, find_launchables
from cudaops.executors.cuda.toolchain import nvcc_for, nvcc_version, require_nvcc
from cudaops.executors.fields import floating_views
from cudaops.executors.process import run_bounded
from cudaops.gates.elf import (
    FUNCTION,
    GLOBAL,
    IFUNC,
    LOCAL,
    OBJECT,
    ElfError,
    ElfFile,
    ElfSymbol,
    read_elf,
)
from cudaops.gates.preprocessed import CODE_FLAGS, NotPreprocessed, text_by_gxx
from cudaops.program.candidate import NAMESPACE
from cudaops.program.hygiene_facts import text_facts
from cudaops.program.instances import plain_name
from cudaops.program.reroute import device_view_files
from cudaops.sandbox.workbench import Workbench
from cudaops.storage import TEMPORARY, entry_of, make_once, raise_if_full
from cudaops.storage import Facts as Noted

FORMAT = 1
"""Of what is noted beside a PTX text."""
PTX = "unit.ptx"
STATE_S = 30.0
"""Of three launches on a processor; a larger one stays in quarantine."""
TIMEOUT_S = 180.0
"""0.2 s for a small unit, 3 s with cub's headers (nvcc 13.0.88, 2 cores, 2026-11-20)."""
_ENTRY_BIT = 0x10
"""In `st_other` of what a host can launch: see `executors.cuda.symbols`."""
_FILE_TAG = re.compile(r"(\d+)((?:_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}_\d+_cudaops_unit_cu_)")
"""What nvcc puts into names of internal linkage begins so, its length in front; another one in
every unit, and in every build: it ends in eight digits and the build's process, or in a kernel."""

BY_ITSELF = (".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors", ".init", ".fini")
_KNOWN_SECTIONS = (
    ".text", ".rodata", ".data", ".bss", ".tbss", ".tdata", ".rel", ".debug", ".eh_frame", ".group",
    ".comment", ".note", ".symtab", ".strtab", ".shstrtab", ".gcc_except_table", *BY_ITSELF,
)  # fmt: skip
_OURS = f"{len(NAMESPACE)}{NAMESPACE}"
_IN_NAMESPACE = re.compile(rf"_Z(?:Z|GV|T[VISTtch]|GR)*N?K?{_OURS}")
_LAUNCHER = "_ZN7cudaops5Typed"
"""Our template that launches a kernel with its parameters' types (`cpu/include/cudaops/entry.h`):
these may be structures that the candidate declares."""
_ENTRY = re.compile(r"cudaops_entry_\d+")
_HOST_API = re.compile(r"_Z\d+cu(?:da)?[A-Z]|cu(?:da)?[A-Z]")
_ALLOCATORS = re.compile(r"_Z(?:nw|na|dl|da)")

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2
    expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma lgamma_r
    llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter pow
    remainder remquo rint round scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
"""
"""Source: ISO C, section 7.12, with the Bessel functions, exp10 and sincos that CUDA has too."""
_ALLOWED = frozenset({
    *_MATH.split(), *(f"{name}f" for name in _MATH.split()),
    "memcpy", "memmove", "memset", "memcmp", "printf", "malloc", "free", "clock", "abort",
    "__assert_fail",
    "_Znwm", "_Znam", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm",
    "_GLOBAL_OFFSET_TABLE_", "__tls_get_addr", "__stack_chk_fail", "_Unwind_Resume",
    "__gxx_personality_v0",
})  # fmt: skip
"""Device functions that a processor's libraries have under the same names, and what g++ itself
calls; `abort` is a trap. Clocks, printf and the heap are judged as device code."""
_COMPILERS_OWN = re.compile(
    r"__(?:u?(?:div|mod|divmod)[a-z]i\d|(?:mul|div)[a-z][fc]3|(?:extend|trunc|fix|float)\w+"
    r"|(?:add|sub)[hsdtx]f3|(?:neg|eq|ne|lt|le|gt|ge|cmp|unord)[hsdtx]f2"
    r"|powi[a-z]f2|(?:popcount|clz|ctz|parity|bswap)[a-z]i2|(?:ash|lsh)\w+|mul[a-z]i3)"
)
"""Source: GCC internals manual, chapter 4, libgcc."""


class ObjectLook(NamedTuple):
    """What one kind of compiled file told."""

    findings: Findings
    numbers: dict[str, float]
    notices: tuple[str, ...] = ()
    """What a reader of a passed gate should know."""


class CannotLook(Exception):
    """What was compiled cannot be looked at; says why in one line."""


CANNOT_LOOK = (CannotLook, NotPreprocessed, ElfError, PtxError, EnvironmentFailure)
"""Why there may be nothing to look at."""


def object_gate(bench: Workbench, rewrite: Rewrite, compiled: Compiled) -> Gate:
    """Look at what the compilers made of a rewrite.

    Failed: it holds what no rewrite may. Quarantined: it does what honest code seldom needs and the
    baseline does not; the summary says what a person should look at.
    """
    started = time.monotonic()
    try:
        looks = _looks(bench, compiled)
    except CANNOT_LOOK as problem:
        summary = f"cannot be inspected: {problem}"
        gate = Gate(name="object", passed=False, summary=summary)
    else:
        gate = _gate(looks)
        if gate.quarantined and _keeps_state_alone(looks) and _is_restored(bench, compiled):
            gate = gate.model_copy(update={"passed": True, "quarantined": False})
            told = "each launch leaves its own variables as it found them"
            gate = gate.model_copy(update={"summary": told})
    return gate.model_copy(update={"seconds": time.monotonic() - started})


def _looks(bench: Workbench, compiled: Compiled) -> tuple[ObjectLook, ...]:
    if compiled.draft:
        raise CannotLook(f"{compiled.compiler} made a draft, on which nothing is accepted")
    baseline = bench.executor.compile(compiled.unit.model_copy(update={"rewrite": None}))
    if isinstance(baseline, CompileFailed):
        raise CannotLook(f"the baseline does not compile: {baseline.placed}")
    allowed = bench.policy.allow_precision or _own_precision(bench.workloads)
    return tuple(looks_of(bench.executor, compiled, baseline, bench.sm_arch, allowed))


def _keeps_state_alone(looks: Sequence[ObjectLook]) -> bool:
    lines = [line for look in looks for line in look.findings.suspicious]
    return bool(lines) and all(line.startswith("keeps ") for line in lines)


def _is_restored(bench: Workbench, compiled: Compiled) -> bool:
    """Whether the candidate's own variables hold after each of three launches what they held before
    (a counter that the last block resets), on a processor; `correctness_domain` looks again on
    every drawn input."""
    rewrite, processor = compiled.unit.rewrite, bench.executor.processor
    workload = min(bench.workloads, key=lambda w: w.grid.volume * w.block.volume)
    built = processor.compile(bench.unit(workload, rewrite))
    if rewrite is None or isinstance(built, CompileFailed):
        return False
    trial = Trial(workload, bench.plan(workload, rewrite), captured_inputs(workload))
    folder = bench.folder / "work" / f"state-{rewrite.id}"
    ran = processor.run_trials(built, [trial] * 3, folder, limit_s=STATE_S, timeout_s=STATE_S)
    bench.discard(folder.name)
    return all(isinstance(one.outcome, Ran) and not one.leaves_state for one in ran)


def _own_precision(workloads: Sequence[Workload]) -> Precision | None:
    """The type of all floating numbers in memory, where it is one of 16 bits: arithmetic in it is
    no less than what the author asks for, and results say how exact it is."""
    elements = {view.element for w in workloads for view in floating_views(w)}
    own: dict[frozenset[Element], Precision] = {
        frozenset({"f16"}): "fp16",
        frozenset({"bf16"}): "bf16",
    }
    return own.get(frozenset(elements))


def looks_of(
    executor: Executor,
    compiled: Compiled,
    baseline: Compiled,
    sm_arch: str,
    allowed: Precision | None,
) -> Iterator[ObjectLook]:
    """Every look that applies to a rewrite's unit where it was built. Raises `CANNOT_LOOK`."""
    by, cache, rewrite = executor.name, executor.cache, compiled.unit.rewrite
    if rewrite is None:
        raise CannotLook("it is the baseline itself")
    if by == "cpu":
        yield look_at_object(compiled, baseline, rewrite)
    if by == "cpu" and nvcc_for(compiled.unit.program) is None:
        yield _look_at_words(rewrite, compiled, cache, allowed)
        return
    yield look_at_device_code(compiled.unit, baseline.unit, sm_arch, cache, allowed)
    if by == "cuda":
        yield look_at_cubin(compiled, baseline, cache)


def _look_at_words(
    rewrite: Rewrite, compiled: Compiled, cache: Path, allowed: Precision | None
) -> ObjectLook:
    # As written too: on a processor `__sinf` is a macro for sinf.
    candidate = text_facts([text_by_gxx(compiled.unit, rewrite, cache).text, rewrite.source])
    authors = text_facts(device_view_files(compiled.unit.program, dialect="cuda").values())
    found = findings(candidate, authors, allowed)
    notice = "nvcc is not installed: PTX was not inspected, the source was"
    return ObjectLook(found, {"written_variables": _count_state(candidate)}, (notice,))


def _count_state(facts: frozenset[tuple[str, str]]) -> float:
    return float(sum(kind == "state" for kind, _ in facts))


def _gate(looks: tuple[ObjectLook, ...]) -> Gate:
    refused = [line for look in looks for line in look.findings.refused]
    suspicious = [line for look in looks for line in look.findings.suspicious]
    notices = [line for look in looks for line in look.notices]
    allowed = sorted({p for look in looks for p in look.findings.allowed})
    numbers = {name: value for look in looks for name, value in look.numbers.items()}
    if refused:
        summary = refused[0]
    elif suspicious:
        summary = "; ".join(suspicious)
    else:
        summary = "no global constructors, no persistent device state, no reduced precision"
    if allowed and not refused:
        notices.append(f"{', '.join(allowed)}: allowed by --allow-precision, or the buffers' own")
    numbers |= {"refused": float(len(refused)), "suspicious": float(len(suspicious))}
    return Gate(
        name="object",
        passed=not refused and not suspicious,
        quarantined=bool(suspicious) and not refused,
        summary="; ".join([summary, *notices]),
        numbers=numbers,
    )


class _Ptx(NamedTuple):
    """One unit's PTX, with the kernels that are launched by entry."""

    module: PtxModule
    launched: dict[int, str]
    """Entry to symbol."""
    names: dict[str, str]
    """Symbol of a kernel or variable to its name."""
    text: str


def same_device_code(bench: Workbench, one: Rewrite, other: Rewrite) -> bool | None:
    """Whether nvcc makes the same PTX of both, and so the same machine code; None where that cannot
    be told: there is no nvcc, or it refuses one of them."""
    workload, cache = bench.workloads[0], bench.executor.cache
    if nvcc_for(bench.program) is None:
        return None
    try:
        texts = [
            _ptx(bench.unit(workload, each), bench.sm_arch, cache).text for each in (one, other)
        ]
    except CANNOT_LOOK:
        return None
    plain = [re.sub(r"//[^\n]*|^[ \t]*\.(?:loc|file)\b[^\n]*", "", t, flags=re.M) for t in texts]
    return plain[0].split() == plain[1].split()


def look_at_device_code(
    candidate: Unit, baseline: Unit, sm_arch: str, cache: Path, allowed: Precision | None
) -> ObjectLook:
    """Compile both to PTX (once each, under `cache`) and compare what their kernels do.

    Kernels of the candidate that its plan does not launch never run; a reader is told of them.

    Raises CannotLook, PtxError, PrerequisiteError, SandboxUnavailable.
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
    refused = (*found.refused, *(f"`{shown(n)}` is an unknown kernel" for n in foreign))
    names = ", ".join(f"`{shown(n)}`" for n in others if n not in foreign)
    notices = (f"its plan does not launch {names}",) if names else ()
    return ObjectLook(found._replace(refused=refused), _numbers(ours.module, facts), notices)


def look_at_cubin(compiled: Compiled, baseline: Compiled, cache: Path) -> ObjectLook:
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
            f"`{n}` is called and not defined in the source"
            for n in sorted(_called_from(ours) - _called_from(authors) - external)
        ),
    ]
    numbers = {"nv_global_bytes": float(ours.size_of(".nv.global"))}
    return ObjectLook(Findings(tuple(refused), (), ()), numbers)


def _ptx(unit: Unit, sm_arch: str, cache: Path) -> _Ptx:
    nvcc = require_nvcc()
    compiler = f"nvcc {nvcc_version(nvcc)}"
    arch = target_arch(unit_texts(unit), sm_arch)
    source = unit_source(unit)
    program = unit.program
    options = (*nvcc_words(program.code_options), *program.compilation.relocatable_words)
    flags = (*CODE_FLAGS, *options, f"-arch={arch}", "-ptx")
    entry = entry_of(cache, "ptx", FORMAT, compiler, flags, sorted(source.files.items()))

    def make(folder: Path) -> Noted:
        _compile([str(nvcc), *flags, "-o", PTX, source.main], unit, folder)
        module = read_ptx((folder / PTX).read_text("utf-8"))
        return {"names": demangled([*module.entries, *module.variables], folder)}

    made = make_once(entry, source.files, make)
    text = (entry.folder / PTX).read_text("utf-8")
    module = read_ptx(text)
    names = {str(symbol): str(name) for symbol, name in made.facts["names"].items()}
    image = Image(module.entries, (), {}, {symbol: names[symbol] for symbol in module.entries})
    try:
        found = find_launchables(image, shown_entries(unit))
    except UnknownEntry as problem:
        raise CannotLook(f"in its PTX {problem}") from problem
    return _Ptx(module, {one.entry: one.symbol for one in found}, names, text)


def _compile(command: list[str], unit: Unit, folder: Path) -> None:
    done = run_bounded(
        command,
        cwd=folder,
        timeout_s=TIMEOUT_S,
        env={"TMPDIR": str(folder / TEMPORARY)},
        confine=compiling(folder, folders_outside(unit.program.code_options)),
    )
    raise_if_full(done.stderr, folder)
    if done.timed_out:
        raise CannotLook(f"nvcc -ptx did not finish within {TIMEOUT_S:g} s")
    if done.exit_code != 0:
        log = done._replace(stderr=done.stderr[:MAX_LOG])
        raise CannotLook(
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


def _called_from(cubin: ElfFile) -> set[str]:
    return {_plain(name) for name in _undefined(cubin)}


def _arch_of(compiled: Compiled) -> str:
    found = re.search(r"-arch=(sm_\w+)", compiled.command)
    if found is None:
        raise CannotLook("the command of the build names no architecture")
    return found[1]


def _plain(symbol: str) -> str:
    """A mangled name without such tags."""
    kept, at = "", 0
    for tag in _FILE_TAG.finditer(symbol):
        ends = ((tag.start(2) + int(tag[1][-n:]), n) for n in (3, 2))  # digits may end another name
        end, digits = next((x for x in ends if tag.end() < x[0] <= len(symbol)), (at, 0))
        if digits:
            kept, at = kept + symbol[at : tag.start(2) - len(tag[1][-digits:])], end
    return kept + symbol[at:]


def _without_tags(name: str) -> str:
    text = re.sub(r"_INTERNAL_\w+::|\(anonymous namespace\)::", "", name)
    return text.replace(f"{NAMESPACE}::", "")


def look_at_object(candidate: Compiled, baseline: Compiled, rewrite: Rewrite) -> ObjectLook:
    """Compare two objects of the `cpu` executor: in the candidate's nothing may run by itself or
    stand for ours.

    Raises ElfError where one of them is not there, PrerequisiteError without c++filt.
    """
    ours = read_elf(Path(candidate.folder) / UNIT_OBJECT)
    authors = read_elf(Path(baseline.folder) / UNIT_OBJECT)
    runtime = _runtime_symbols(Path(candidate.folder).parent)
    kernels = {plain_name(step.kernel) for step in rewrite.plan.launches}
    found = [
        *_by_itself(ours, authors),
        *_startup(ours, authors, kernels),
        *_called(ours, authors, runtime),
        *_defined(ours, authors, runtime),
    ]
    folder = Path(candidate.folder)
    numbers = {
        "init_array_bytes": float(ours.size_of(*BY_ITSELF)),
        "init_array_bytes_baseline": float(authors.size_of(*BY_ITSELF)),
        "undefined_symbols": float(len(_undefined(ours))),
    }
    refused = tuple(dict.fromkeys(_readable(line, folder) for line in found))
    return ObjectLook(Findings(refused, (), ()), numbers)


def _by_itself(ours: ElfFile, authors: ElfFile) -> Iterator[str]:
    size, known = ours.size_of(*BY_ITSELF), authors.size_of(*BY_ITSELF)
    if size > known:
        yield f"{size} bytes of global constructors or destructors, the baseline has {known}"
    there = {s.name for s in authors.sections}
    for section in ours.sections:
        new = section.name and section.name not in there
        if new and not section.name.startswith(_KNOWN_SECTIONS):
            yield f"section `{section.name}` is none of a kernel"
    for symbol in ours.symbols:
        if symbol.type == IFUNC:
            yield f"`{symbol.name}` is chosen by a function that runs while loading"


def _startup(ours: ElfFile, authors: ElfFile, kernels: Collection[str]) -> Iterator[str]:
    """What runs before main registers the unit's entries, and does nothing for the candidate."""
    known = {r.symbol.name for r in authors.within(_starters(authors))}
    for reference in ours.within(_starters(ours)):
        symbol = reference.symbol
        if not symbol.name:
            symbol = ours.at(symbol.section, reference.offset) or symbol
        theirs = _OURS in symbol.name
        if reference.calls and symbol.name not in known and not _is_registration(symbol.name):
            yield f"`{symbol.name}` is called before the kernels are launched"
        elif theirs and symbol.type == FUNCTION and not symbol.name.startswith(_LAUNCHER):
            if not any(f"{len(k)}{k}" in symbol.name for k in kernels):
                yield f"`{symbol.name}` is passed on before the kernels are launched"
        elif theirs and symbol.type == OBJECT and not _ENTRY.search(symbol.name):
            yield f"`{symbol.name}` is set before the kernels are launched"


def _is_registration(name: str) -> bool:
    return name.startswith(("_ZN7cudaops5EntryC", "_ZN7cudaops10make_entry"))


def _starters(file: ElfFile) -> set[str]:
    """Functions that `.init_array` names, and those of initialisation that they may call."""
    indices = {i for i, s in enumerate(file.sections) if s.name.startswith(BY_ITSELF)}
    found = {s.name for s in file.symbols if "static_initialization_and_destruction" in s.name}
    for reference in file.references:
        if reference.source in indices:
            symbol = reference.symbol
            held = symbol if symbol.name else file.at(symbol.section, reference.offset)
            found |= {held.name} if held is not None else set()
    return found


def _undefined(file: ElfFile) -> set[str]:
    return {s.name for s in file.symbols if not s.is_defined and s.name}


def _called(ours: ElfFile, authors: ElfFile, runtime: Collection[str]) -> Iterator[str]:
    """Symbols from elsewhere that no device code needs."""
    for name in sorted(_undefined(ours) - _undefined(authors)):
        device = name in runtime and not _HOST_API.match(name)
        if not (device or name in _ALLOWED or _COMPILERS_OWN.fullmatch(name)):
            yield f"`{name}` is a host function"


def _defined(ours: ElfFile, authors: ElfFile, runtime: Collection[str]) -> Iterator[str]:
    """Symbols that others would find, under names that are not the candidate's."""
    known = {s.name for s in authors.symbols if s.is_defined}
    for symbol in ours.symbols:
        new = symbol.is_defined and symbol.name and symbol.name not in known
        if new and symbol.binding != LOCAL and not _may_define(symbol, runtime):
            yield f"`{symbol.name}` is defined outside of the candidate's namespace"


def _may_define(symbol: ElfSymbol, runtime: Collection[str]) -> bool:
    """A strong symbol must be the candidate's; a weak one may be any header's template."""
    name = symbol.name
    if _IN_NAMESPACE.match(name):
        return True
    if symbol.binding == GLOBAL or not name.startswith("_Z"):
        return False
    return name not in runtime and not _HOST_API.match(name) and not _ALLOCATORS.match(name)


def _runtime_symbols(cache: Path) -> frozenset[str]:
    """What our own objects define."""
    paths = [Path(p) for p in around(cache, "plain", UNIT_OBJECT, runner=True)]
    files = [read_elf(p) for p in paths if p.name != UNIT_OBJECT]
    return frozenset(s.name for f in files for s in f.symbols if s.is_defined and s.binding)


def _readable(line: str, folder: Path) -> str:
    """The line with its symbol as it stands in the source."""
    symbol = line.split("`")[1] if "`" in line else ""
    if not symbol.startswith("_Z"):
        return line
    shown = demangled([symbol], folder)[symbol].replace(f"{NAMESPACE}::", "")
    return line.replace(symbol, shown)
