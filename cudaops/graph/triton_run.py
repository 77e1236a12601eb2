"""Runs of Triton programs: `run`, `verify` and `profile` of a Python file with `@triton.jit`.

The graph of agents is for CUDA C++. What these share with its runs: options, folder, events, gates
by name, statistics, judge, record and reports.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cudaops import __version__
from cudaops.domain.base import Dim3
from cudaops.domain.judge import judge, mean_times_us
from cudaops.domain.judgement import Attempt, Gate, Policy, TunedSetting, WorkloadTime
from cudaops.domain.model_use import ModelUse
from cudaops.domain.rewrite import LaunchPlan, Rewrite, Tune
from cudaops.domain.run import (
    LaunchConfiguration,
    ProgramSummary,
    RunOptions,
    RunRecord,
    VerifySummary,
)
from cudaops.errors import InputError, ModelUnavailable
from cudaops.executors.cuda.telemetry import whole_gpus
from cudaops.executors.isolation.level import notices as isolation_notices
from cudaops.executors.ledger import LEDGER, seconds_by_tool
from cudaops.executors.untrusted_files import remove
from cudaops.graph.events import EventLog, OnEvent, judgement_data, utc_now
from cudaops.graph.folder import iteration_folder, run_folder, run_id_of, write_json, write_whole
from cudaops.graph.model_setup import check_model
from cudaops.graph.record import timing_summary, with_summary
from cudaops.graph.services import confine
from cudaops.graph.triton_certificate import write_triton_certificate
from cudaops.graph.triton_model import Tried, Unusable, Written, open_writer
from cudaops.problem.reference import find_interpreter
from cudaops.program.patch import file_patch
from cudaops.reports import markdown
from cudaops.settings import Settings
from cudaops.triton.bench import TritonBench, axes, open_bench
from cudaops.triton.hygiene import spliced, values_set, why_refused
from cudaops.triton.judging import TritonCandidate, TritonJudgement, judge_candidate, tune
from cudaops.triton.source import OPTIONS, TritonProgram
from cudaops.triton.worker_process import Host

NO_TIMES = (
    "Triton's interpreter has no times, so nothing can be tuned on cpu: --executor cuda; "
    "`cudaops verify` compares the results of a rewrite here"
)
NOTHING_FASTER = "no other values of the meta-parameters are faster than the author's"
INTERPRETED = "compared in Triton's interpreter on cpu: no times"
TRIALS = 3
"""Times `--max-trials`: configurations that the tuner measures."""


Judged = tuple[Rewrite, TritonJudgement]


class Proposal(NamedTuple):
    """A rewrite's text, and whose it is."""

    source: str
    proposer: str
    why: str


def _submitted(text: str) -> Proposal:
    return Proposal(text, "user", "submitted to cudaops verify")


class _Open(NamedTuple):
    options: RunOptions
    bench: TritonBench
    script: Path
    started: float
    intake_s: float
    events: EventLog
    seed: int
    """Of the drawn inputs."""


def start(options: RunOptions, on_event: OnEvent, settings: Settings) -> RunRecord:
    """Tune the meta-parameters of the most expensive kernel. Raises InputError."""
    asks = options.optimizer == "llm" and options.model is not None
    if options.executor != "cuda" and not asks:
        raise InputError(NO_TIMES)
    if options.optimizer == "llm" and options.model is not None:
        check_model(options.model, options, settings)
    with _opened(options, on_event, settings) as run:
        notices: list[str] = []
        use = None
        judged: list[Judged] = []
        if asks:
            use, said = _written(run, settings, judged)
            notices += said
        tried: list[dict[str, Any]] = []
        if not run.bench.host.on_gpu:
            notices.append(INTERPRETED)
        elif not _kept(judged):
            tried = _tuned(run, required=not asks)
            _judge_settings(run, tried, judged, notices)
        return _finish(run, judged, tried, notices, settings, use)


def _kept(judged: Sequence[Judged]) -> bool:
    return any(one.judgement.outcome == "accepted" for _, one in judged)


def _judge_settings(
    run: _Open, tried: Sequence[dict[str, Any]], judged: list[Judged], notices: list[str]
) -> None:
    """Judge what the tuner measured to be faster, until one is accepted."""
    better = [t for t in tried[1:] if t["time_us"] is not None
              and t["time_us"] < tried[0]["time_us"]]  # fmt: skip
    if not better:
        notices.append(NOTHING_FASTER)
    for setting in better[: run.options.max_iterations]:
        changed = {n: v for n, v in setting["values"].items() if run.bench.values[n] != v}
        judged.append(_judge(run, len(judged) + 1, _retuned(run, changed)))
        if _kept(judged):
            break


def _written(
    run: _Open, settings: Settings, judged: list[Judged]
) -> tuple[ModelUse | None, list[str]]:
    """Judge what the model writes, one after another, until one is accepted or, on `cpu`, agrees.
    What it took, and notices."""
    options, say = run.options, run.events.announcing("optimizer", "optimizer")
    minutes = options.budget_minutes
    deadline = float("inf") if minutes is None else run.started + 60.0 * minutes
    writer = open_writer(options, settings, deadline, say)
    if isinstance(writer, str):
        return None, [writer]
    tried: list[Tried] = []
    for number in range(1, options.max_iterations + 1):
        run.events.emit("optimizer", "optimizer", "started", "the model writes a rewrite")
        try:
            found = writer.write(run.bench, tried)
        except ModelUnavailable as error:
            notice = f"the model is not asked any more: {error.problem} ({error.remedy})"
            return writer.use(notice), [notice]
        if isinstance(found, Unusable):
            notice = f"the model has no usable rewrite: {found.why}"
            return writer.use(notice), [notice]
        run.events.emit("optimizer", "optimizer", "finished", f"{found.title}: {found.why}")
        candidate, proposal = _candidate_of(run, number, found, writer.proposer)
        judged.append(_judge(run, number, candidate, proposal))
        decided = judged[-1][1].judgement
        tried.append(Tried(found.title, decided.outcome, decided.reason, found.source))
        agrees = not run.bench.host.on_gpu and all(gate.passed for gate in decided.gates)
        if _kept(judged) or agrees:
            break
    return writer.use(), []


def _candidate_of(
    run: _Open, number: int, found: Written, proposer: str
) -> tuple[TritonCandidate, Proposal]:
    bench = run.bench
    path = bench.folder / f"rewrite_{number}.py"
    path.write_text(found.source, encoding="utf-8")
    module = TritonProgram(found.source, path.name)
    values = values_set(module, bench.kernel)
    program = spliced(module, bench.program, bench.kernel)
    candidate = TritonCandidate(found.title, path, values, program)
    return candidate, Proposal(found.source, proposer, found.why)


def verify_files(
    base: Path, rewrite: Path, options: RunOptions, on_event: OnEvent, settings: Settings
) -> RunRecord:
    """Judge a rewrite: a file of `@triton.jit` functions. On `cpu` results alone are compared.

    Raises InputError where one of the two is no such file.
    """
    options = options.model_copy(update={"source": str(base)})
    author, text = _program(base), rewrite.read_text("utf-8")
    module = TritonProgram(text, rewrite.name)
    both = [name for name in author.kernels if name in module.kernels]
    named = options.kernel or (both[0] if len(both) == 1 else None)
    if named is None or named not in author.kernels:
        known = ", ".join(author.kernels)
        found = ", ".join(module.kernels) or "no @triton.jit function"
        raise InputError(
            f"{rewrite.name} has {found}, and {base.name} {known}: name the kernel that is "
            "rewritten with --kernel"
        )
    kernel = author.kernels[named]
    problems = why_refused(text, rewrite.name, author, kernel)
    more = {} if problems else values_set(module, kernel)
    program = author.text if problems else spliced(module, author, kernel)
    options = options.model_copy(update={"kernel": named})
    with _opened(options, on_event, settings, more) as run:
        if problems:
            judged = [_refused(run, module, problems)]
        else:
            path = run.bench.folder / "rewrite.py"
            path.write_text(text, encoding="utf-8")
            candidate = TritonCandidate(rewrite.name, path, more, program)
            judged = [_judge(run, 1, candidate, _submitted(text))]
        notices: list[str] = []
        if not run.bench.host.on_gpu:
            notices.append(INTERPRETED)
        return _finish(run, judged, [], notices, settings)


def profile_lines(options: RunOptions, on_event: OnEvent, settings: Settings) -> list[str]:
    """What the program launches, and what can be set there: a line each. Leaves no folder."""
    with _opened(options, on_event, settings, keep=False) as run:
        return [*_told(run.bench)]


def _told(bench: TritonBench) -> Iterator[str]:
    clock = bench.captures[0].device or "Triton's interpreter: no times"
    for number, capture in enumerate(bench.captures):
        for one in sorted(capture.launches, key=lambda x: -x.total_us):
            values = {k: v["value"] for k, v in one.args.items() if v and "value" in v}
            line = f"run {number + 1}: {one.launches}x {one.kernel} on grid {one.grid}"
            if bench.host.on_gpu and one.time_us is not None:
                line += f", {one.time_us:.1f} us"
            yield f"{line}: {', '.join(f'{k}={v}' for k, v in {**values, **one.options}.items())}"
    yield f"by {clock}, Triton {bench.captures[0].triton}"
    for name, value in bench.values.items():
        tried = axes(bench.program, bench.kernel).get(name)
        shown = "it is not tuned" if tried is None else f"the tuner tries {tried}"
        yield f"{bench.kernel.name}: {name} = {value}: {shown}"
    for name, why in bench.fixed.items():
        yield f"{bench.kernel.name}: {name} is not tuned: {why}"
    sets = len(bench.references)
    yield f"{bench.kernel.name} runs alone on {sets} input sets and reproduces its captured launch"


def _program(path: Path) -> TritonProgram:
    try:
        program = TritonProgram(path.read_text("utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not program.kernels:
        raise InputError(f"{path.name} has no @triton.jit function")
    return program


@contextmanager
def _opened(
    options: RunOptions,
    on_event: OnEvent,
    settings: Settings,
    more: dict[str, int] | None = None,
    *,
    keep: bool = True,
) -> Iterator[_Open]:
    """The program, captured. Where that fails nothing of the run's folder is left."""
    started = time.monotonic()
    script = Path(options.source)
    program = _program(script)
    if options.policy.review:
        raise InputError("--review is not supported for Triton kernels; read best.patch")
    if options.odd_sizes:
        raise InputError("--odd-sizes is not supported for Triton kernels; give sizes with --args")
    confine(options, settings)
    interpreter = find_interpreter(options.python)
    folder = Path(options.out)
    with run_folder(folder, keep=keep):
        events = EventLog(folder / "events.jsonl", on_event)
        words = f"running {script.name} and its kernel on drawn inputs"
        events.emit("intake", "intake", "started", words)
        work = folder / "work"
        (work / "cache").mkdir(parents=True)
        on_gpu = options.executor == "cuda"
        gpus = whole_gpus() if on_gpu else []
        host = Host(
            interpreter, on_gpu, options.timeout_seconds, work / "cache", settings.gpu_driver,
            (settings.runs.resolve(), settings.builds_folder.resolve()),
            gpus[0] if len(gpus) == 1 else "",
        )  # fmt: skip
        seed = options.policy.seed if options.policy.seed is not None else secrets.randbits(62)
        bench = open_bench(
            program, options.kernel, options.program_runs, host, work, script, seed, more
        )
        captured = bench.captures[0]
        if host.on_gpu:
            options = options.model_copy(
                update={"device": captured.device, "sm_arch": captured.arch}
            )
        sets = len(bench.references)
        line = f"{bench.kernel.name} on grid {bench.workloads[0].launch.grid}, "
        line += f"{len(bench.workloads)} workloads captured, {sets} sets of inputs"
        events.emit("intake", "intake", "finished", line, {"kernel": bench.kernel.name})
        if bench.wide_problem:
            text = f"no higher-precision reference: {bench.wide_problem}"
            events.emit("intake", "intake", "notice", text)
        seconds = time.monotonic() - started
        try:
            yield _Open(options, bench, script, started, seconds, events, seed)
        finally:
            remove(work)


def _tuned(run: _Open, *, required: bool) -> list[dict[str, Any]]:
    """What the tuner tried, the author's values first. Raises InputError where nothing can be tuned
    and that is `required`."""
    order = axes(run.bench.program, run.bench.kernel)
    trials = TRIALS * run.options.max_trials
    names = ", ".join(order) or "nothing"
    run.events.emit("optimizer", "optimizer", "started", f"tuning {names}")
    if not order and required:
        fixed = "; ".join(f"{n}: {why}" for n, why in run.bench.fixed.items())
        raise InputError(f"{run.bench.kernel.name} has nothing to tune: {fixed}")
    tried = tune(run.bench, order, trials, run.bench.folder / "tune")
    for one in tried:
        shown = ", ".join(f"{n}={v}" for n, v in one["values"].items())
        time_us = one["time_us"]
        text = one["failure"] if time_us is None else f"{time_us:.1f} us"
        run.events.emit("optimizer", "optimizer", "progress", f"tried {shown}: {text}")
    return tried


def _retuned(run: _Open, changed: dict[str, int]) -> TritonCandidate:
    program, kernel = run.bench.program, run.bench.kernel
    text = program.edited(program.with_values(kernel.name, changed))
    title = ", ".join(f"{n}={v}" for n, v in changed.items())
    return TritonCandidate(title, run.bench.module, changed, text)


def _rewrite(bench: TritonBench, candidate: TritonCandidate, proposal: Proposal | None) -> Rewrite:
    text = bench.module.read_text("utf-8")
    shown = proposal or Proposal(text, "tuner", "meta-parameters of the launch")
    names = {**bench.values, **{n: OPTIONS.get(n, 0) for n in candidate.values if n in OPTIONS}}
    plan = LaunchPlan(
        launches=(),
        tune=tuple(Tune(name=n, values=(names.get(n, v),)) for n, v in candidate.values.items()),
    )
    return Rewrite(
        source=shown.source, plan=plan, proposer=shown.proposer, title=candidate.title,
        why=shown.why, tuned=candidate.values,
    )  # fmt: skip


def _judge(
    run: _Open, number: int, candidate: TritonCandidate, proposal: Proposal | None = None
) -> Judged:
    """Take a candidate through the gates; without a proposal it is the tuner's."""
    rewrite = _rewrite(run.bench, candidate, proposal)
    run.events.emit("sandbox", "sandbox", "started", f"judging {candidate.title}")
    say = run.events.announcing("sandbox", "sandbox")
    judged = judge_candidate(
        run.bench, candidate, run.options.policy, say, run.script, number - 1,
        run.bench.folder / f"candidate_{number}",
    )  # fmt: skip
    _write(run, number, rewrite, judged, candidate.program)
    return rewrite, judged


def _refused(run: _Open, module: TritonProgram, problems: Sequence[str]) -> Judged:
    gate = Gate(name="hygiene", passed=False, summary="; ".join(problems[:3]),
                numbers={"refused": float(len(problems))})  # fmt: skip
    run.events.announcing("sandbox", "sandbox")(gate)
    judged = TritonJudgement(judge((gate,), (), Policy()))
    candidate = TritonCandidate(module.name, run.bench.module, {}, run.bench.program.text)
    rewrite = _rewrite(run.bench, candidate, _submitted(module.text))
    _write(run, 1, rewrite, judged, "")
    return rewrite, judged


def _write(
    run: _Open, number: int, rewrite: Rewrite, judged: TritonJudgement, program: str
) -> None:
    decided = judged.judgement
    line = f"{decided.outcome}: {decided.reason}"
    attempt = _attempt(number, rewrite, judged, [])
    run.events.emit("sandbox", "sandbox", "finished", line, judgement_data(decided, attempt))
    target = iteration_folder(Path(run.options.out), number)
    write_whole(target / "candidate.py", rewrite.source)
    if program:
        write_whole(target / "program.py", program)
    write_json(target / "attempt.json", attempt.model_dump(mode="json"))


def _attempt(
    number: int, rewrite: Rewrite, judged: TritonJudgement, tried: Sequence[dict[str, Any]]
) -> Attempt:
    decided, comparisons = judged.judgement, judged.comparisons
    before, after = mean_times_us(comparisons) if comparisons else (None, None)
    return Attempt(
        iteration=number,
        rewrite_id=rewrite.id,
        source_id=rewrite.source_id,
        title=rewrite.title,
        proposer=rewrite.proposer,
        tuned=rewrite.tuned,
        judgement=decided,
        failure=judged.failure,
        baseline_us=before,
        candidate_us=after,
        times=tuple(
            WorkloadTime(
                workload=c.workload, share=c.weight, baseline_us=c.baseline.median_us,
                candidate_us=c.candidate.median_us,
            )
            for c in comparisons
        ),
        configurations_tried=max(1, len(tried)),
        settings=tuple(
            TunedSetting(values=t["values"], time_us=t["time_us"], failure=t["failure"] or None)
            for t in tried
        ),
        lesson=decided.reason,
    )  # fmt: skip


def _finish(
    run: _Open,
    judged: Sequence[Judged],
    tried: Sequence[dict[str, Any]],
    notices: Sequence[str],
    settings: Settings,
    use: ModelUse | None = None,
) -> RunRecord:
    """Record, report, `best.py` and `best.patch`."""
    options, bench, folder = run.options, run.bench, Path(run.options.out)
    attempts = tuple(_attempt(n, r, j, tried) for n, (r, j) in enumerate(judged, 1))
    kept = next(
        ((n, *pair) for n, pair in enumerate(judged, 1)
         if pair[1].judgement.outcome == "accepted"), None,
    )  # fmt: skip
    best = None
    if kept is not None:
        best = kept[1]
        after = (iteration_folder(folder, kept[0]) / "program.py").read_text("utf-8")
        write_whole(folder / "best.py", after)
        patch = file_patch(bench.program.name, bench.program.text, after)
        write_whole(folder / "best.patch", patch)
    ended = time.monotonic() - run.started
    spent = seconds_by_tool(LEDGER.since(run.started), ended)
    outcome = "accepted" if kept is not None else "nothing_found"
    reason = _reason(judged, kept is not None)
    record = RunRecord(
        run_id=run_id_of(bench.kernel.name, folder),
        date=utc_now(),
        cudaops_version=__version__,
        outcome=outcome,
        reason=reason,
        executor="cuda" if bench.host.on_gpu else "cpu",
        time_source="cuda_event" if bench.host.on_gpu else "modelled",
        device=options.device,
        sm_arch=options.sm_arch,
        options=options,
        program=_program_summary(bench),
        verify=_verify_summary(options, attempts, judged, None if kept is None else kept[0]),
        best=best,
        judgement=None if kept is None else kept[2].judgement,
        attempts=attempts,
        model=use,
        notices=(*notices, *isolation_notices()),
        seconds_by_stage={"intake": run.intake_s, "sandbox": ended - run.intake_s},
        seconds_by_tool=spent,
        loop_time_seconds=ended,
        tools={"torch": bench.captures[0].torch, "triton": bench.captures[0].triton},
    )
    record = with_summary(record, settings.gpu_price)
    if kept is not None:
        key, certified = settings.signing_key, kept[2]
        unsigned = write_triton_certificate(
            folder, record, bench, kept[1], certified, run.seed, key
        )
        if unsigned is not None:
            notice = f"the certificate is not signed: {unsigned}"
            record = record.model_copy(update={"notices": (*record.notices, notice)})
    write_whole(folder / "report.md", markdown.run_report(record))
    write_whole(folder / "run.json", record.model_dump_json(indent=2) + "\n")
    return record


def _reason(judged: Sequence[Judged], accepted: bool) -> str:
    if not judged:
        return NOTHING_FASTER
    decided = [j.judgement for _, j in judged]
    if accepted:
        return next(d.reason for d in decided if d.outcome == "accepted")
    last = decided[-1]
    if all(gate.passed for gate in last.gates) and last.time_source is None:
        return f"all {len(last.gates)} gates passed and results match; {last.reason}"
    return last.reason


def _program_summary(bench: TritonBench) -> ProgramSummary:
    launches = [
        one for c in bench.captures for one in c.launches if one.kernel == bench.kernel.name
    ]
    total_us = sum(one.total_us for one in launches)
    timed = [w for w in bench.workloads if w.weight > 0] or list(bench.workloads)
    configurations = []
    for workload in timed:
        launch = workload.launch
        x, y, z = (*launch.grid, 1, 1)[:3]
        warps = launch.options.get("num_warps") or OPTIONS["num_warps"]
        configurations.append(
            LaunchConfiguration(
                workload=workload.name, callee=bench.kernel.name, grid=Dim3(x=x, y=y, z=z),
                block=Dim3(x=32 * int(warps), y=1, z=1), launches=launch.launches,
            )
        )  # fmt: skip
    return ProgramSummary(
        source_sha256=hashlib.sha256(bench.program.text.encode()).hexdigest(),
        kernel=bench.kernel.name,
        callee=bench.kernel.name,
        launches=sum(one.launches for one in launches),
        workloads=len(bench.workloads),
        timed=tuple(configurations),
        kernel_seconds=total_us / 1e6 if bench.host.on_gpu else None,
        limits=tuple(f"{name} is not tuned: {why}" for name, why in bench.fixed.items()),
    )


def _verify_summary(
    options: RunOptions,
    attempts: Sequence[Attempt],
    judged: Sequence[Judged],
    kept: int | None,
) -> VerifySummary:
    shown = attempts[(kept or len(attempts)) - 1] if attempts else None
    gates = () if shown is None else shown.judgement.gates
    compared = [g for g in gates if g.name.startswith(("correctness", "repeat", "checker"))]
    comparisons = judged[(kept or len(judged)) - 1][1].comparisons if judged else ()
    words = "not_reached"
    if compared:
        words = "match" if all(g.passed for g in compared) else "mismatch"
    return VerifySummary(
        compile_ok=any(g.name == "compile" and g.passed for g in gates),
        correctness=words,
        baseline_kernel_ms=None if not comparisons or shown is None or shown.baseline_us is None
        else shown.baseline_us / 1000,
        candidate_kernel_ms=None if not comparisons or shown is None or shown.candidate_us is None
        else shown.candidate_us / 1000,
        speedup=None if shown is None else shown.judgement.speedup,
        iteration_accepted=kept,
        max_iterations=options.max_iterations,
        accept_threshold=options.policy.min_speedup,
        gates=gates,
        timing=timing_summary(comparisons),
    )  # fmt: skip
