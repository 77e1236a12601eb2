"""One candidate through every gate, in order of cost; the first that fails ends it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.execution import Compiled, CompileFailed, Misbehaved
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.program.hygiene import check_source
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.verification.verifier import Subject, Verification, Verifier
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench

FLOOR_TOLERANCE = 0.95
"""A time may undercut the physical floor by this factor before it is called impossible: boost
clocks exceed the published ones by a few percent."""


def evaluate(bench: Workbench, rewrite: Rewrite, min_speedup: float) -> Evaluation:
    """Run the gates, cheapest first. Never decides: that is `judge`.

    What fails a gate, or does not reach `min_speedup`, is not taken through the dearer ones.
    """
    gates: list[Gate] = [_hygiene(rewrite)]
    if not gates[-1].passed:
        return Evaluation(rewrite=rewrite, gates=tuple(gates))
    started = time.monotonic()
    compiled = _compile_all(bench, rewrite)
    if isinstance(compiled, CompileFailed):
        gates.append(_timed("compile", False, compiled.placed, started))
        return Evaluation(rewrite=rewrite, gates=tuple(gates), failure=compiled)
    gates.append(_timed("compile", True, f"{compiled[0].compiler}", started))
    comparisons = bench.compare(rewrite)
    if isinstance(comparisons, Misbehaved | CompileFailed):
        gates.append(_timed("checker", False, comparisons.placed, started))
        return Evaluation(rewrite=rewrite, gates=tuple(gates), failure=comparisons)
    misbehaved = None
    if weighted_speedup(comparisons) >= min_speedup:
        verification = _verify(bench, rewrite, compiled)
        gates += verification.gates
        misbehaved = verification.misbehaved
        if gates[-1].passed:
            gates.append(_physical_floor(bench, comparisons))
        if gates[-1].passed:
            gates += whole_program_gates(bench, rewrite)
    return Evaluation(
        rewrite=rewrite,
        gates=tuple(gates),
        comparisons=comparisons,
        failure=misbehaved,
        profile=comparisons[0].candidate.profile,
    )


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


def _verify(bench: Workbench, rewrite: Rewrite, compiled: Sequence[Compiled]) -> Verification:
    folder = bench.folder / "work" / f"verify-{rewrite.id}"
    subjects = [
        Subject(one, bench.plan(workload, rewrite), bench.oracle(workload))
        for workload, one in zip(bench.workloads, compiled, strict=True)
    ]
    verification = Verifier(bench.executor, bench.policy, folder, bench.timeout_s).verify(subjects)
    bench.discard(folder.name)
    return verification


def _physical_floor(bench: Workbench, comparisons: Sequence[Comparison]) -> Gate:
    """Nothing runs faster than its flops over the peak, or its bytes over the bandwidth.

    Bytes that fit in L2 may stay there between two launches, so only what exceeds it counts.
    """
    started = time.monotonic()
    comparison = comparisons[0]
    profile = comparison.candidate.profile or comparison.baseline.profile
    if profile is None:
        return _timed("physical_floor", False, "no counts to compute the floor from", started)
    where = device(comparison.candidate.device)
    roofline = diagnose(profile, where).roofline
    if roofline is None:
        return _timed("physical_floor", False, "flops or bytes of the kernel are unknown", started)
    buffers = sum(a.size_bytes for a in bench.workloads[0].allocations)
    cold_bytes = max(0.0, min(roofline.dram_bytes, buffers) - where.l2_bytes)
    floor_us = max(
        roofline.flops / roofline.peak_gflops / 1e3,
        cold_bytes / roofline.peak_bandwidth_gb_s / 1e3,
    )
    taken = comparison.candidate.median_us
    passed = taken >= floor_us * FLOOR_TOLERANCE
    text = f"{taken:.1f} us against a floor of {floor_us:.1f} us"
    gate = _timed("physical_floor", passed, text, started)
    return gate.model_copy(update={"numbers": {"candidate_us": taken, "floor_us": floor_us}})


def _timed(name: str, passed: bool, summary: str, started: float) -> Gate:
    return Gate.model_validate(
        {"name": name, "passed": passed, "summary": summary, "seconds": time.monotonic() - started}
    )
