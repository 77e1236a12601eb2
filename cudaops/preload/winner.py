"""What a library is made of: the rewrite that a run kept, built for one GPU, and for which of the
author's kernels it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.source import target_arch, unit_texts
from cudaops.executors.cuda.symbols import PlacedParameter, is_local, kernel_parameters
from cudaops.preload.plan_source import CubinKernel, authors_arguments, size_of
from cudaops.program.lexing import byte_text
from cudaops.program.outline import outline
from cudaops.program.serving import serves

MOST_PARAMETERS = 512
"""Of one kernel: what `source/rewrite.h` has room for."""
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")
_FILE_NAMES = ("_GLOBAL__N_", "_INTERNAL_")
"""In a symbol: what nvcc writes with the name of the file that it compiled."""


class Instance(NamedTuple):
    """One instance of the author's kernel, with what replaces it."""

    callee: str
    """As launched: `reg_matmul<64, 64>`."""
    symbol: str
    """Mangled, as the driver knows it in the author's program."""
    parameters: tuple[PlacedParameter, ...]
    workloads: tuple[Workload, ...]
    """Its captured launches."""
    image: Path
    """The cubin."""
    taken: tuple[CubinKernel, ...]
    """The rewrite's kernels, one a step of its plan."""
    constants: tuple[str, ...]
    """Symbols of the author's `__constant__` variables that the rewrite reads."""


class Winner(NamedTuple):
    """A rewrite with all the instances that it stands for."""

    rewrite: Rewrite
    kernel: Kernel
    sm_arch: str
    """What the cubins are for: `sm_90`, `sm_90a`."""
    instances: tuple[Instance, ...]


def build_winner(
    program: Program,
    workloads: Sequence[Workload],
    rewrite: Rewrite,
    builder: GpuBuilder,
) -> Winner:
    """Compile a rewrite for every captured instance that it serves.

    Args:
        program: The author's.
        workloads: Captured launches, most expensive first; those of other instances are left out.
        rewrite: With its tuned values.
        builder: For the architecture that the library is for.

    Raises InputError where the author's kernel cannot be told or the rewrite needs what a library
    cannot give it; PrerequisiteError without nvcc.
    """
    hottest = workloads[0]
    kernel = program.kernel(hottest.kernel)
    _refuse_variables(program, rewrite)
    callees = dict.fromkeys(
        w.callee for w in workloads if serves(rewrite, kernel, hottest.callee, w.callee)
    )
    units = {
        c: Unit(program=program, kernel=kernel.name, callee=c, rewrite=rewrite) for c in callees
    }
    instances = tuple(
        _instance(unit, tuple(w for w in workloads if w.callee == callee), builder)
        for callee, unit in units.items()
    )
    sm_arch = target_arch(unit_texts(units[hottest.callee]), builder.sm_arch)
    return Winner(rewrite, kernel, sm_arch, instances)


def capability_of(sm_arch: str) -> tuple[int, int, bool]:
    """Major and minor compute capability, and whether code for it runs on that one alone.

    Raises InputError where it is no `sm_90` and the like.
    """
    found = _ARCH.fullmatch(sm_arch)
    if found is None:
        raise InputError(f"--arch {sm_arch} is no architecture of a GPU; write it as sm_90")
    return int(found[1]), int(found[2]), found[3] == "a"


def _instance(unit: Unit, workloads: tuple[Workload, ...], builder: GpuBuilder) -> Instance:
    module = builder.unit(unit, draft=False)
    if isinstance(module, CompileFailed):
        raise InputError(
            f"the rewrite of `{unit.callee}` does not compile for {builder.sm_arch}: "
            f"{module.placed}"
        )
    assert unit.rewrite is not None
    symbol = module.launchable(BASELINE_ENTRY).symbol
    _refuse_ambiguous(unit.program, unit.callee, symbol, module)
    parameters = kernel_parameters(module.image, symbol)
    sizes = [size_of(a) for a in authors_arguments(workloads)]
    if sizes != [one.size_bytes for one in parameters] or len(sizes) > MOST_PARAMETERS:
        raise InputError(
            f"the parameters of `{unit.callee}` in its cubin are not those of the captured "
            "launches; it cannot be replaced by a library"
        )
    return Instance(
        callee=unit.callee,
        symbol=symbol,
        parameters=parameters,
        workloads=workloads,
        image=module.image,
        taken=tuple(_taken(module, step) for step in range(len(unit.rewrite.plan.launches))),
        constants=_constants(unit.program, unit.rewrite, module),
    )


def _taken(module: Module, step: int) -> CubinKernel:
    launchable = module.launchable(step)
    return CubinKernel(launchable, kernel_parameters(module.image, launchable.symbol))


def _refuse_ambiguous(program: Program, callee: str, symbol: str, module: Module) -> None:
    """A launch is told by its kernel's mangled name alone."""
    if program.build is not None and is_local(module.image, symbol):
        raise InputError(
            f"`{callee}` is static or in an anonymous namespace: other files of the program may "
            "have a kernel of its name, which the library could not tell from it; build best.cu "
            "instead (cudaops apply)"
        )


def _refuse_variables(program: Program, rewrite: Rewrite) -> None:
    """A cubin has variables of its own: what the rewrite writes there, or reads of what the
    author's kernels wrote, would be in the wrong place."""
    named = _reached_names(program, rewrite)
    for variable in program.global_variables:
        if variable.space != "constant" and variable.name in named:
            raise InputError(
                f"the rewrite uses the program's variable `{variable.qualified_name}`, of which a "
                "library would have a copy; build best.cu instead (cudaops apply)"
            )


def _constants(program: Program, rewrite: Rewrite, module: Module) -> tuple[str, ...]:
    named = _reached_names(program, rewrite)
    found = []
    for variable in program.global_variables:
        symbol = module.variables.get(variable.qualified_name)
        if variable.space != "constant" or variable.name not in named or symbol is None:
            continue
        if any(text in symbol for text in _FILE_NAMES):
            raise InputError(
                f"`{variable.qualified_name}` has no name that a library could find it by; build "
                "best.cu instead (cudaops apply)"
            )
        found.append(symbol)
    return tuple(found)


def _reached_names(program: Program, rewrite: Rewrite) -> frozenset[str]:
    """Every name in the rewrite's text, and in what those name in the program: functions, types
    and macros. More than it uses, never less."""
    meant: dict[str, set[str]] = {}
    for text in (f.text for f in program.files):
        for name, words in _named_parts(text):
            meant.setdefault(name, set()).update(words)
    reached: set[str] = set()
    new = {word for _, words in _named_parts(rewrite.source) for word in words}
    while new:
        reached |= new
        new = {word for name in new for word in meant.get(name, ())} - reached
    return frozenset(reached)


def _named_parts(text: str) -> Iterator[tuple[str, set[str]]]:
    """What a text declares outside of bodies and as macros, each with the names in it."""
    facts = outline(byte_text(text))
    for item in facts.items:
        if item.is_host_only:
            continue
        yield (
            item.name.rpartition("::")[2],
            {t.text for t in facts.tokens[item.first : item.last] if t.kind == "name"},
        )
    for directive in facts.lexed.directives:
        words = [t.text for t in facts.lexed.tokens[directive.first : directive.last]]
        if directive.keyword == "define" and len(words) > 2:
            yield words[2], {*words}
