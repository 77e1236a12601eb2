"""One candidate through every gate, in order of cost; the first that fails ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cudaops.domain.execution import Compiled, CompileFailed, Misbehaved
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.program.hygiene import check_source
from cudaops.sandbox.clocks import clocks_gate
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.physical_floor import floor_gate
from cudaops.sandbox.verification.verifier import Subject, Verifier
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench

Say = Callable[[str], None]
"""Takes one line on what is going on, every gate's among them."""


class _Gates:
    """The gates so far; each is announced as soon as it is decided."""

    def __init__(self, say: Say) -> None:
        self.all: list[Gate] = []
        self.say = say

    def add(self, gate: Gate) -> bool:
        """Keep it. Whether it passed."""
        self.all.append(gate)
        self.say(gate.line)
        return gate.passed


def evaluate(
    bench: Workbench, rewrite: Rewrite, min_speedup: float, say: Say = lambda line: None
) -> Evaluation:
    """Run the gates, cheapest first. Never decides: that is `judge`.

    What fails a gate, or does not reach `min_speedup`, is not taken through the dearer ones.
    """
    gates = _Gates(say)
    if not gates.add(_hygiene(rewrite)):
        return Evaluation(rewrite=rewrite, gates=tuple(gates.all))
    started = time.monotonic()
    compiled = _compile_all(bench, rewrite)
    if isinstance(compiled, CompileFailed):
        gates.add(_timed("compile", False, compiled.placed, started))
        return Evaluation(rewrite=rewrite, gates=tuple(gates.all), failure=compiled)
    gates.add(_timed("compile", True, compiled[0].compiler, started))
    comparisons = bench.compare(rewrite)
    if isinstance(comparisons, Misbehaved | CompileFailed):
        gates.add(_timed("checker", False, comparisons.placed, started))
        return Evaluation(rewrite=rewrite, gates=tuple(gates.all), failure=comparisons)
    found = _Found(None, comparisons[0].candidate.profile)
    if weighted_speedup(comparisons) >= min_speedup:
        found = _dear_gates(bench, rewrite, compiled, comparisons, gates)
    return Evaluation(
        rewrite=rewrite,
        gates=tuple(gates.all),
        comparisons=comparisons,
        failure=found.misbehaved,
        profile=found.profile,
    )


class _Found(NamedTuple):
    """What the dear gates saw beside what they decided."""

    misbehaved: Misbehaved | None
    profile: Profile | None


def _dear_gates(
    bench: Workbench,
    rewrite: Rewrite,
    compiled: Sequence[Compiled],
    comparisons: Sequence[Comparison],
    gates: _Gates,
) -> _Found:
    """Correctness, clocks, the physical floor and the whole program; what the candidate did wrong.

    Where time is measured, the profile that the floor needs is taken now, of what would otherwise
    win, and serves the next iteration too.
    """
    folder = bench.folder / "work" / f"verify-{rewrite.id}"
    if not bench.has_oracles:
        gates.say("running the author's kernel for reference: captured, perturbed, exact inputs")
    subjects = [
        Subject(one, bench.plan(workload, rewrite), bench.oracle(workload))
        for workload, one in zip(bench.workloads, compiled, strict=True)
    ]
    gates.say("looking for accesses out of bounds, races and divergent barriers")
    verifier = Verifier(bench.executor, bench.policy, folder, bench.timeout_s)
    passed = all(gates.add(gate) for gate in verifier.gates(subjects))
    bench.discard(folder.name)
    profile: Profile | Misbehaved | CompileFailed | None = comparisons[0].candidate.profile
    if not bench.models_time:
        passed = passed and gates.add(clocks_gate(comparisons))
        if passed:
            bench.executor.prepare(bench.spliced(rewrite))
        profile = bench.profile(rewrite) if passed else None
    if passed and gates.add(floor_gate(profile, comparisons[0], bench.workloads[0])):
        for gate in whole_program_gates(bench, rewrite):
            gates.add(gate)
    return _Found(verifier.misbehaved, profile if isinstance(profile, Profile) else None)


def _hygiene(rewrite: Rewrite) -> Gate:
    problems = check_source(rewrite.source)
    summary = (
        problems[0]
        if problems
        else "device code only: no host function, no constructor, no assembly"
    )
    return Gate(
        name="hygiene",
        passed=not problems,
        summary=summary,
        numbers={"problems": float(len(problems))},
    )


def _compile_all(bench: Workbench, rewrite: Rewrite) -> tuple[Compiled, ...] | CompileFailed:
    """Compile for every workload, and resolve its plan there; a bad plan is a compile failure."""
    compiled: list[Compiled] = []
    for workload in bench.workloads:
        try:
            bench.plan(workload, rewrite)
        except PlanError as error:
            return CompileFailed(message=f"launch plan: {error}", log=str(error))
        outcome = bench.executor.compile(bench.unit(workload, rewrite))
        if isinstance(outcome, CompileFailed):
            return outcome
        compiled.append(outcome)
    return tuple(compiled)


def _timed(name: str, passed: bool, summary: str, started: float) -> Gate:
    return Gate.model_validate(
        {"name": name, "passed": passed, "summary": summary, "seconds": time.monotonic() - started}
    )
