"""From the final state of the graph to the RunRecord."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

from cudaops import __version__
from cudaops.cuda import devices, metrics
from cudaops.cuda.ncu_pages import metrics_parsed
from cudaops.cuda.verdict import diagnose
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import MEASURED, CompileFailed, Measurement, ProgramRan
from cudaops.domain.instructions import InstructionChange
from cudaops.domain.judgement import Attempt, Comparison, Gate, Judgement, Qualification
from cudaops.domain.performance_limit import Library
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.program import SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import (
    ApproximateCost,
    LaunchConfiguration,
    Outcome,
    ProfileSummary,
    ProgramSummary,
    RawCost,
    RawProfile,
    RawRunRecord,
    RawVerify,
    RegimeSummary,
    ResearchFindings,
    RunOptions,
    RunRecord,
    TimingSummary,
    VerifySummary,
)
from cudaops.domain.search import SearchSummary
from cudaops.errors import CudaOpsError, EnvironmentFailure
from cudaops.executors.cuda.toolchain import nvcc_for
from cudaops.executors.isolation.level import notices as isolation_notices
from cudaops.graph.context import end_of_state, why_nothing
from cudaops.graph.state import Json, State
from cudaops.program.parse import parse_files
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.libraries import library_for
from cudaops.recipes.library_calls import SAYS, TOLERANCE, library_call, library_program
from cudaops.sandbox.workbench import Workbench

PRINTED_TOLERANCE = 0.1
"""Share by which `KERNEL_MS` may differ from our own time without a warning. Source: one program's
own mean of 20 launches spread under 0.3 % on an H200 (tests/data/calibration/README.md); the rest
is room for launch gaps that host timers include."""

CORRECTNESS_GATES = (
    "checker",
    "correctness_captured",
    "correctness_exact",
    "correctness_perturbed",
    "repeat",
    "correctness_domain",
)


def build_record(
    run_id: str,
    date: str,
    options: RunOptions,
    bench: Workbench,
    state: State,
    intake_seconds: float,
    seconds_by_tool: dict[str, float],
) -> RunRecord:
    """Everything the run found, tried and decided."""
    attempts = tuple(Attempt.model_validate(a) for a in state.get("attempts", []))
    incumbent = state.get("incumbent")
    seconds = {"intake": intake_seconds, **state.get("seconds_by_stage", {})}
    outcome = _outcome(incumbent)
    program = program_summary(bench, incumbent)
    shown = _verify_summary(options, attempts, state)
    notices = (
        *state.get("notices", []),
        *printed_time_notices(program, shown),
        *isolation_notices(),
    )
    return RunRecord(
        run_id=run_id,
        date=date,
        cudaops_version=__version__,
        outcome=outcome,
        reason=_reason(state, incumbent),
        executor=bench.executor.name,
        time_source=bench.executor.time_source,
        device=bench.executor.device,
        sm_arch=options.sm_arch,
        device_row=devices.to_record(devices.device(bench.executor.device)),
        options=options,
        program=program,
        profile=_profile_summary(state),
        end=end_of_state(state),
        library=library_for(bench.program, bench.kernel, bench.workloads),
        research=_findings(state),
        verify=shown,
        best=Rewrite.model_validate(incumbent["rewrite"]) if incumbent else None,
        judgement=Judgement.model_validate(incumbent["judgement"]) if incumbent else None,
        qualification=_qualification(state),
        instructions=instruction_change(bench, incumbent),
        attempts=attempts,
        transformations=tuple(
            SearchSummary.model_validate(one) for one in state.get("transformations", [])
        ),
        notices=tuple(dict.fromkeys(notices)),
        seconds_by_stage={name: round(value, 3) for name, value in seconds.items()},
        seconds_by_tool=seconds_by_tool,
        loop_time_seconds=round(sum(seconds.values()), 3),
        tools=dict(bench.executor.tools()),
    )


def approximate_cost(record: RunRecord, gpu_usd_per_hour: float | None) -> ApproximateCost | None:
    """What the run's GPU and language model cost, and what an accepted percent of speedup did."""
    on_gpu, model = record.executor == "cuda", record.model
    if not on_gpu and model is None:
        return None
    gpu = None
    if on_gpu and gpu_usd_per_hour is not None:
        gpu = record.loop_time_seconds / 3600 * gpu_usd_per_hour
    tokens = None if model is None else model.cost_usd
    parts = ([gpu] if on_gpu else []) + ([] if model is None else [tokens])
    known = [part for part in parts if part is not None]
    total = sum(known) if len(known) == len(parts) else None
    speedup = record.verify.speedup if record.outcome == "accepted" else None
    percent = 100 * (speedup - 1) if speedup is not None else 0.0
    return ApproximateCost(
        gpu=gpu,
        gpu_usd_per_hour=gpu_usd_per_hour if on_gpu else None,
        model_tokens=tokens,
        total=total,
        per_accepted_percent=total / percent if total is not None and percent > 0 else None,
    )


def with_summary(record: RunRecord, gpu_usd_per_hour: float | None) -> RunRecord:
    """The record with its cost, and with the block of the source write-up's field names."""
    cost = approximate_cost(record, gpu_usd_per_hour)
    record = record.model_copy(update={"cost_usd_approx": cost})
    modelled = ", modelled" if record.executor == "cpu" else ""
    found, checked = record.profile, record.verify
    profile = None
    if found is not None:
        values = {name: metric.value for name, metric in found.baseline.metrics.items()}
        profile = RawProfile(
            verdict=found.verdict,
            sm_throughput_pct=values.get(metrics.SM_THROUGHPUT),
            l1_throughput_pct=values.get(metrics.L1_THROUGHPUT),
            dram_throughput_pct=values.get(metrics.DRAM_THROUGHPUT),
            l1_hit_rate_pct=values.get(metrics.L1_HIT_RATE),
            achieved_occupancy_pct=values.get(metrics.ACHIEVED_OCCUPANCY),
            metrics_parsed=found.metrics_parsed,
        )
    raw = RawRunRecord(
        date=record.date,
        gpu=f"{record.device} ({record.sm_arch}{modelled})",
        provider=_machine_vendor(),
        kernel=None if record.program is None else record.program.kernel,
        profile=profile,
        verify=RawVerify(**{name: getattr(checked, name) for name in RawVerify.model_fields}),
        loop_time_seconds=record.loop_time_seconds,
        cost_usd_approx=RawCost(
            gpu=None if cost is None else cost.gpu,
            nim_tokens=None if cost is None else cost.model_tokens,
        ),
    )
    return record.model_copy(update={"raw": raw})


def _machine_vendor() -> str | None:
    """`Amazon EC2`, `Google`, `Dell Inc.`: the system manufacturer (DMI type 1). Source: Linux,
    Documentation/ABI/testing/sysfs-firmware-dmi-tables and drivers/firmware/dmi-id.c."""
    try:
        return Path("/sys/class/dmi/id/sys_vendor").read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _findings(state: State) -> ResearchFindings | None:
    found = state.get("baseline_research")
    return None if found is None else ResearchFindings.model_validate(found)


def instruction_change(bench: Workbench, incumbent: Json | None) -> InstructionChange | None:
    """What changed in SASS, of what was built for the judgement."""
    if incumbent is None or bench.executor.name != "cuda":
        return None
    found = []
    for rewrite in (None, Rewrite.model_validate(incumbent["rewrite"])):
        try:
            compiled = bench.compile(rewrite)
            told = (
                compiled.placed
                if isinstance(compiled, CompileFailed)
                else bench.executor.instructions(compiled)
            )
        except EnvironmentFailure as problem:
            told = problem.problem
        if isinstance(told, str):
            return InstructionChange(missing=told)
        found.append(told)
    author, best = found
    return InstructionChange(author=author, best=best)


def _qualification(state: State) -> Qualification | None:
    """Of the run's oracle, from whichever candidate met it."""
    for kept in (state.get("incumbent"), state):
        raw = kept.get("evaluation") if kept else None
        if isinstance(raw, dict) and raw.get("qualification"):
            return Qualification.model_validate(raw["qualification"])
    return None


def _outcome(incumbent: Json | None) -> Outcome:
    if incumbent is None:
        return "nothing_found"
    return "accepted" if incumbent["judgement"]["outcome"] == "accepted" else "provisional"


def _reason(state: State, incumbent: Json | None) -> str:
    if incumbent is not None:
        return f"{incumbent['rewrite']['title']}: {incumbent['judgement']['reason']}"
    return why_nothing(state)


def program_summary(bench: Workbench, incumbent: Json | None = None) -> ProgramSummary:
    """The author's program, what was captured of it, and what share of it the kernel is."""
    timed = bench.captured.timed
    captured = timed.captured
    counts = next((c for c in captured.counts if c.kernel == captured.kernel), None)
    measured = bench.executor.time_source in MEASURED and not captured.stopped
    problem = bench.program.problem
    kernel_seconds = counts.seconds if measured and counts else None
    ran = bench.program_runs.known(timed) if measured else None
    program_seconds = ran.seconds if ran and not ran.paused else None
    share = 100 * kernel_seconds / program_seconds if kernel_seconds and program_seconds else None
    return ProgramSummary(
        source_sha256=bench.program.sha256,
        kernel=bench.kernel.full_names[1],
        callee=bench.callee,
        launches=counts.launches if counts else sum(w.launches for w in captured.workloads),
        workloads=len(bench.workloads),
        timed=_configurations(bench, incumbent),
        program_seconds=program_seconds,
        kernel_seconds=kernel_seconds,
        kernel_share_pct=share,
        best_program_seconds=_best_program_seconds(incumbent),
        reported_kernel_ms=ran.kernel_ms if ran else None,
        accesses=bench.accesses,
        reference=None if problem is None else problem.form,
        limits=bench.limits,
    )


def _configurations(bench: Workbench, incumbent: Json | None) -> tuple[LaunchConfiguration, ...]:
    """What is timed: of every instance that the best rewrite serves."""
    best = Rewrite.model_validate(incumbent["rewrite"]) if incumbent else None
    timed = [w for w in bench.workloads_of(best) if w.is_timed]
    given = [{a.name: a.value for a in w.arguments if a.kind == "scalar"} for w in timed]
    differing = {name for one in given for name in one if len({g.get(name) for g in given}) > 1}
    return tuple(
        LaunchConfiguration(
            workload=w.id,
            callee=w.callee,
            grid=w.grid,
            block=w.block,
            scalars=", ".join(f"{n} = {v:.9g}" for n, v in scalars.items() if n in differing),
            launches=w.launches,
        )
        for w, scalars in zip(timed, given, strict=True)
    )


def _best_program_seconds(incumbent: Json | None) -> float | None:
    gates: list[Json] = incumbent["judgement"]["gates"] if incumbent else []
    for gate in gates:
        if gate["name"] == "whole_program" and "candidate_program_seconds" in gate["numbers"]:
            return float(gate["numbers"]["candidate_program_seconds"])
    return None


def printed_time_notices(program: ProgramSummary, verify: VerifySummary) -> tuple[str, ...]:
    """A warning where the program prints another kernel time than we measure. Never a verdict."""
    printed, ours = program.reported_kernel_ms, verify.baseline_kernel_ms
    if printed is None or ours is None or abs(printed - ours) <= PRINTED_TOLERANCE * ours:
        return ()
    warning = (
        f"the program prints KERNEL_MS {printed:g}, measured here are {ours:.4g} ms a launch: it "
        "may time more or fewer launches, with copies, or with a warm cache; the verdict rests on "
        "our own time alone"
    )
    return (warning,)


def _profile_summary(state: State) -> ProfileSummary | None:
    if "baseline_profile" not in state:
        return None
    baseline = Profile.model_validate(state["baseline_profile"])
    verdict = Verdict.model_validate(state["baseline_verdict"])
    incumbent = state.get("incumbent")
    raw = incumbent["evaluation"]["profile"] if incumbent else None
    # Not the state's own: those are of what the last round began with, not of what it ended with.
    best = Profile.model_validate(raw) if raw else None
    return ProfileSummary(
        verdict=verdict.summary,
        subtype=verdict.subtype,
        metrics_parsed=metrics_parsed(baseline),
        baseline=baseline,
        verdict_detail=verdict,
        best=best,
        best_verdict=diagnose(best, devices.device(best.device)) if best else None,
    )


def _verify_summary(
    options: RunOptions, attempts: Sequence[Attempt], state: State
) -> VerifySummary:
    incumbent = state.get("incumbent")
    raw = incumbent["evaluation"] if incumbent else state.get("evaluation")
    comparisons = Evaluation.model_validate(raw).decisive if raw else ()
    shown = (
        attempts[incumbent["iteration"] - 1] if incumbent else attempts[-1] if attempts else None
    )
    gates = shown.judgement.gates if shown else ()
    compiled = next((g for g in gates if g.name == "compile"), None)
    return VerifySummary(
        compile_ok=compiled is not None and compiled.passed,
        correctness=_correctness(gates),
        baseline_kernel_ms=shown.baseline_us / 1000 if shown and shown.baseline_us else None,
        candidate_kernel_ms=shown.candidate_us / 1000 if shown and shown.candidate_us else None,
        speedup=shown.judgement.speedup if shown else None,
        iteration_accepted=incumbent["iteration"] if incumbent else None,
        max_iterations=options.max_iterations,
        accept_threshold=options.policy.min_speedup,
        gates=gates,
        timing=timing_summary(comparisons),
    )


def _correctness(gates: Sequence[Gate]) -> Literal["match", "mismatch", "not_reached"]:
    relevant = [g for g in gates if g.name in CORRECTNESS_GATES]
    if any(not g.passed for g in relevant):
        return "mismatch"
    return "match" if len(relevant) == len(CORRECTNESS_GATES) else "not_reached"


def timing_summary(comparisons: Sequence[Comparison]) -> TimingSummary | None:
    """Of the most expensive workload; None where its times are modelled."""
    if not comparisons:
        return None
    baseline, candidate = comparisons[0].baseline, comparisons[0].candidate
    if baseline.timing is None or candidate.timing is None:
        return None
    ours, theirs = candidate.timing, baseline.timing
    return TimingSummary(
        regime=ours.regime,
        cold=_regime(theirs.cold_us, ours.cold_us),
        warm=_regime(theirs.warm_us, ours.warm_us),
        cupti=_regime(theirs.cupti_us, ours.cupti_us),
        launched=_launched(baseline, candidate),
        samples=min(len(baseline.samples_us), len(candidate.samples_us)),
        blocks_redone=ours.blocks_redone,
        sm_clock_mhz=_range(ours.sm_clock_mhz),
        temperature_c=_range(ours.temperature_c),
        notices=ours.notices,
    )


def _launched(baseline: Measurement, candidate: Measurement) -> RegimeSummary | None:
    """As the program launches them, where something else decides."""
    before, after = baseline.back_to_back_us, candidate.back_to_back_us
    if before is None or after is None or not (candidate.timing and candidate.timing.launched_us):
        return None
    return _regime((before,), (after,))


def _regime(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> RegimeSummary | None:
    if not baseline_us or not candidate_us:
        return None
    before, after = median(baseline_us) / 1000, median(candidate_us) / 1000
    return RegimeSummary(baseline_ms=before, candidate_ms=after, speedup=before / after)


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def with_library_time(record: RunRecord, bench: Workbench) -> RunRecord:
    """The record with its library's time on the GPU, or why there is none. Decides nothing."""
    if record.library is None or bench.executor.name != "cuda":
        return record
    try:
        found = _library_timed(record.library, record, bench)
    except (NotUnderstood, CudaOpsError) as problem:
        found = record.library.model_copy(update={"not_timed": f"{problem}"})
    return record.model_copy(update={"library": found})


def _library_timed(library: Library, record: RunRecord, bench: Workbench) -> Library:
    workload = bench.workloads[0]
    call = library_call(bench.program, bench.kernel, bench.workloads, workload)
    timing = record.verify.timing
    regime = workload.l2_regime if timing is None else timing.regime
    text = library_program(call, cold=regime == "cold")
    program = parse_files("library", (SourceFile(path="library.cu", text=text),))
    if nvcc_for(program) is None:
        raise NotUnderstood(f"<{call.header}> is not installed beside nvcc")
    folder = bench.folder / workload.folder
    held = [workload.allocations[index] for index in call.buffers]
    files = [*(one.before for one in held), held[-1].after]
    ran = bench.executor.run_program(
        program, tuple(str(folder / name) for name in files), bench.timeout_s
    )
    if not isinstance(ran, ProgramRan):
        raise NotUnderstood(ran.placed)
    said = SAYS.search(ran.stdout)
    if said is None or ran.exit_code != 0:
        lines = ran.stderr.strip().splitlines() or [f"it ends with exit code {ran.exit_code}"]
        raise NotUnderstood(lines[-1])
    time_us, difference = map(float, said.groups())
    allowed = TOLERANCE.get(held[-1].element, 0.0)
    if not difference <= allowed:
        raise NotUnderstood(
            f"its result differs from the kernel's, relative L2 error {difference:.1e}, allowed "
            f"{allowed:.0e}"
        )
    return library.model_copy(
        update={"time_ms": time_us / 1000, "l2_regime": regime, "difference": difference}
    )
