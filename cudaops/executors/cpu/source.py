"""The translation units that g++ compiles: the author's files, rerouted, and what is appended."""

from __future__ import annotations

import json
from typing import NamedTuple

from cudaops.domain.execution import Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.toolchain import INCLUDE
from cudaops.program.candidate import NAMESPACE, candidate_text
from cudaops.program.plans import instance
from cudaops.program.reroute import device_view_files, rerouted_files

BASELINE_ENTRY = 1000
"""Index of the baseline's entry; a rewrite's steps have their own, from 0."""
MAIN = "cudaops_unit.cpp"
"""The file that is compiled; it includes the author's."""
CANDIDATE = "cudaops_candidate.inc"
"""Where a rewrite's text is written; its `#line` says `candidate.cu`."""


class Source(NamedTuple):
    """Files of one translation unit, and the system includes that can be precompiled."""

    files: dict[str, str]
    includes: tuple[str, ...]


def program_source(program: Program) -> Source:
    """The whole program with its launches going to the shim."""
    files = rerouted_files(program)
    main = f'#include "{program.main_path}"\n' + _globals(program)
    return Source({**files, MAIN: main}, precompilable(program))


def unit_source(unit: Unit) -> Source:
    """What the kernels need of the program, the rewrite's text, and one entry a launch step."""
    files = device_view_files(unit.program)
    lines = ["#include <cudaops/widen.h>"] if unit.widened else []
    lines.append(f'#include "{unit.program.main_path}"')
    if unit.rewrite is not None:
        files = {**files, CANDIDATE: candidate_text(unit.rewrite)}
        lines.append(f'#include "{CANDIDATE}"')
        lines.append(f"namespace {NAMESPACE} {{")
        for index, step in enumerate(unit.rewrite.plan.launches):
            lines.append(_entry(index, instance(unit.rewrite, step)))
        lines.append("}")
    lines.append(_entry(BASELINE_ENTRY, unit.callee))
    main = "\n".join(lines) + "\n" + _globals(unit.program)
    return Source({**files, MAIN: main}, precompilable(unit.program))


def _entry(index: int, callee: str) -> str:
    return f"CUDAOPS_ENTRY({index}, {json.dumps(callee)}, {callee});"


def _globals(program: Program) -> str:
    """Registration of the variables whose contents are part of a launch's state."""
    return "".join(
        f"CUDAOPS_GLOBAL({json.dumps(v.qualified_name)}, {v.qualified_name});\n"
        for v in program.global_variables
    )


def precompilable(program: Program) -> tuple[str, ...]:
    """System includes of the program that are not ours."""
    return tuple(i for i in program.system_includes if not (INCLUDE / i).is_file())
