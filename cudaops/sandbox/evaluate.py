"""One candidate through every gate, in order of cost; the first that fails ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cudaops.cuda.devices import Device, device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.execution import Compiled, CompileFailed, Measurement, Misbehaved
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.program.hygiene import check_source
from cudaops.sandbox.clocks import clocks_gate
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.verification.verifier import Subject, Verifier
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench

Say = Callable[[str], None]
"""Takes one line on what is going on, every gate's among them."""

FLOOR_TOLERANCE = 0.95
"""A time may undercut the physical floor by this factor before it is called impossible: boost
clocks exceed the published ones by a few percent."""


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
    misbehaved = None
    if weighted_speedup(comparisons) >= min_speedup:
        misbehaved = _dear_gates(bench, rewrite, compiled, comparisons, gates)
    return Evaluation(
        rewrite=rewrite,
        gates=tuple(gates.all),
        comparisons=comparisons,
        failure=misbehaved,
        profile=comparisons[0].candidate.profile,
    )


def _dear_gates(
    bench: Workbench,
    rewrite: Rewrite,
    compiled: Sequence[Compiled],
    comparisons: Sequence[Comparison],
    gates: _Gates,
) -> Misbehaved | None:
    """Correctness, the physical floor and the whole program; what the candidate did wrong."""
    folder = bench.folder / "work" / f"verify-{rewrite.id}"
    if not bench.has_oracles:
        gates.say("running the author's kernel for reference: captured, perturbed, exact inputs")
    subjects = [
        Subject(one, bench.plan(workload, rewrite), bench.oracle(workload))
        for workload, one in zip(bench.workloads, compiled, strict=True)
    ]
    verifier = Verifier(bench.executor, bench.policy, folder, bench.timeout_s)
    passed = all(gates.add(gate) for gate in verifier.gates(subjects))
    bench.discard(folder.name)
    if bench.executor.time_source != "modelled":
        passed = passed and gates.add(clocks_gate(comparisons))
    if passed and gates.add(_physical_floor(bench, rewrite, comparisons)):
        for gate in whole_program_gates(bench, rewrite):
            gates.add(gate)
    return verifier.misbehaved


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


def _physical_floor(bench: Workbench, rewrite: Rewrite, comparisons: Sequence[Comparison]) -> Gate:
    """Nothing runs faster than its flops over the peak, or its bytes over the bandwidth.

    Bytes that fit in L2 may stay there between two launches, so only what exceeds it counts.
    """
    started = time.monotonic()
    comparison = comparisons[0]
    profile = comparison.candidate.profile or bench.profile(rewrite, detail="counts")
    if not isinstance(profile, Profile):
        text = f"no counts to compute the floor from: {profile.placed}"
        return _timed("physical_floor", False, text, started)
    where = device(comparison.candidate.device)
    roofline = diagnose(profile, where).roofline
    if roofline is None:
        return _timed("physical_floor", False, "flops or bytes of the kernel are unknown", started)
    buffers = sum(a.size_bytes for a in bench.workloads[0].allocations)
    cold_bytes = max(0.0, min(roofline.dram_bytes, buffers) - where.l2_bytes)
    floor_us = max(
        roofline.flops / (roofline.peak_gflops * _boost(comparison.candidate, where)) / 1e3,
        cold_bytes / roofline.peak_bandwidth_gb_s / 1e3,
    )
    taken = comparison.candidate.median_us
    passed = taken >= floor_us * FLOOR_TOLERANCE
    text = f"{taken:.1f} us against a floor of {floor_us:.1f} us{comparison.candidate.provenance}"
    gate = _timed("physical_floor", passed, text, started)
    return gate.model_copy(update={"numbers": {"candidate_us": taken, "floor_us": floor_us}})


def _boost(measured: Measurement, where: Device) -> float:
    """How far above the published clock the SMs ran meanwhile; many cards do, by 10 % and more."""
    seen = measured.timing.sm_clock_mhz if measured.timing is not None else ()
    return max([1.0, *(clock / where.sm_clock_mhz for clock in seen)])


def _timed(name: str, passed: bool, summary: str, started: float) -> Gate:
    return Gate.model_validate(
        {"name": name, "passed": passed, "summary": summary, "seconds": time.monotonic() - started}
    )
