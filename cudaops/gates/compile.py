"""Gate `compile`: our own command line takes the rewrite, and its launch plan can be resolved."""

from __future__ import annotations

import time
from typing import NamedTuple

from cudaops.domain.execution import Compiled, CompileFailed
from cudaops.domain.judgement import Gate
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.sandbox.workbench import Workbench


class CompileOutcome(NamedTuple):
    """The gate, and the compiler's result."""

    gate: Gate
    outcome: tuple[Compiled, ...] | CompileFailed
    """One build a workload that the rewrite is for, in the bench's order."""


def compile_gate(bench: Workbench, rewrite: Rewrite) -> CompileOutcome:
    """Compile for every workload and resolve the plan there; a bad plan is a compile failure."""
    started = time.monotonic()
    outcome = _compile_all(bench, rewrite)
    gate = Gate(
        name="compile",
        passed=not isinstance(outcome, CompileFailed),
        summary=outcome.placed if isinstance(outcome, CompileFailed) else outcome[0].compiler,
        seconds=time.monotonic() - started,
    )
    return CompileOutcome(gate, outcome)


def _compile_all(bench: Workbench, rewrite: Rewrite) -> tuple[Compiled, ...] | CompileFailed:
    compiled: list[Compiled] = []
    for workload in bench.workloads_of(rewrite):
        try:
            bench.plan(workload, rewrite)
        except PlanError as error:
            return CompileFailed(message=f"launch plan: {error}", log=str(error))
        outcome = bench.executor.compile(bench.unit(workload, rewrite))
        if isinstance(outcome, CompileFailed):
            return outcome
        compiled.append(outcome)
    return tuple(compiled)
