"""What each kind of job does, with the code that the command line calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudaops.domain.base import Record
from cudaops.domain.execution import Compiled, CompileFailed, Misbehaved, Unit
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison
from cudaops.domain.options import ExecutorChoice
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.errors import InputError, PlanError
from cudaops.graph import run as graph
from cudaops.graph.events import EventLog
from cudaops.graph.folder import write_whole
from cudaops.graph.html_report import REPORT_NAME, html_report
from cudaops.graph.resolve_options import place, resolve
from cudaops.graph.services import make_executor, open_bench, with_found_device
from cudaops.graph.verify_files import read_candidate
from cudaops.program.given import check_arguments
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.program.whole_program import standing_beside
from cudaops.sandbox.workbench import Workbench
from cudaops.service.job_folder import CANDIDATE, JobFolder, JobTask
from cudaops.service.records import (
    BenchmarkRequest,
    BenchmarkResult,
    CompileRequest,
    OptimizeRequest,
    ProfileRequest,
    ProgramRequest,
    RunRequest,
    RunResult,
    VerifyRequest,
    compile_result,
)

OnEvent = Callable[[Event], None]


def perform(task: JobTask, on_event: OnEvent) -> Record:
    """The result of the job.

    An attempt after the first goes on in the run folder that an earlier one left on this machine,
    or takes the record where that one had finished. Raises InputError and EnvironmentFailure.
    """
    request, folder = task.request, task.folder
    done = _finished(folder) if isinstance(request, OptimizeRequest | VerifyRequest) else None
    if done is not None:
        return done
    goes_on = isinstance(request, OptimizeRequest) and _can_resume(folder)
    if task.attempt > 1 and goes_on:
        return graph.resume(folder.run, on_event, task.settings)
    folder.empty_run()
    source = folder.write(request)
    options = _options(task, source)
    if isinstance(request, OptimizeRequest):
        return graph.start(options, on_event, task.settings)
    if isinstance(request, VerifyRequest):
        candidate = folder.candidate_file(request)
        return graph.verify_files(source, candidate, options, on_event, task.settings)
    folder.run.mkdir(parents=True)
    if isinstance(request, ProfileRequest):
        return graph.profile_only(options, on_event, task.settings)
    events = EventLog(folder.run / "events.jsonl", on_event)
    return _small(task, options, events)


def write_report(folder: JobFolder, record: RunRecord, scrub: Callable[[str], str]) -> None:
    """Write the run's report as one HTML file, from records without this machine's paths."""
    told = scrub((folder.run / "events.jsonl").read_text("utf-8"))
    events = [Event.model_validate_json(line) for line in told.splitlines()]
    write_whole(folder.run / REPORT_NAME, html_report(folder.run, record, events))


def _small(task: JobTask, options: RunOptions, events: EventLog) -> Record:
    """The kinds that are one step: its start and end are told here."""
    request = task.request
    if isinstance(request, RunRequest):
        events.emit("sandbox", "sandbox", "started", "compiling the program and running it once")
        executor = make_executor(options, task.settings)
        program = load_program(Path(options.source))
        ran = executor.run_program(program, options.program_runs[0].argv, options.timeout_seconds)
        events.emit("sandbox", "sandbox", "finished", ran.kind.replace("_", " "))
        return RunResult(outcome=ran)
    if isinstance(request, CompileRequest):
        events.emit("sandbox", "sandbox", "started", "compiling the kernel")
        compiled = compile_result(_compile(task, options))
        events.emit("sandbox", "sandbox", "finished", compiled.message)
        return compiled
    assert isinstance(request, BenchmarkRequest)
    return _benchmark(task, options, events)


def _finished(folder: JobFolder) -> RunRecord | None:
    """The record of a run that had finished when its worker died."""
    try:
        text = (folder.run / "run.json").read_text("utf-8")
        record = RunRecord.model_validate_json(text)
        return record if record.ended else None
    except (OSError, ValueError):
        return None


def _can_resume(folder: JobFolder) -> bool:
    return (folder.run / "state" / "options.json").is_file()


def _executor(asked: ExecutorChoice, executors: tuple[str, ...]) -> ExecutorChoice:
    """Where it runs here. `auto` is the GPU where this worker has one to use."""
    if asked == "auto":
        return "auto" if "cuda" in executors else "cpu"
    return asked


def _options(task: JobTask, source: Path) -> RunOptions:
    """The options of the run. What a client may not choose is fixed here: paths, the model, trust
    and memory, which would carry one owner's kernels to another."""
    request = task.request
    check_arguments(request.program_words)
    return resolve(
        request,
        source,
        task.folder.run,
        place(_executor(request.executor, task.executors), request.device, request.arch),
        task.settings,
        working_folder=str(task.folder.program),
        use_memory=False,
    )


def _compile(task: JobTask, options: RunOptions) -> Compiled | CompileFailed:
    """The kernel or the rewrite, compiled. The program runs only where that is the way to know
    which instance of which kernel is meant."""
    assert isinstance(task.request, CompileRequest)
    executor = make_executor(options, task.settings)
    options = with_found_device(options, executor)
    program = load_program(Path(options.source))
    name, text = _only_kernel(program, task.request), task.request.candidate
    if name is not None and (text is None or "@launch" in text):
        rewrite = None if text is None else _rewrite(standing_beside(program, text))
        return executor.compile(Unit(program=program, kernel=name, callee=name, rewrite=rewrite))
    bench = open_bench(options, executor)
    candidate = task.folder.candidate_file(task.request)
    rewrite = None if text is None else read_candidate(bench, candidate)
    return bench.compile(rewrite)


def _only_kernel(program: Program, request: ProgramRequest) -> str | None:
    """The kernel that is meant where reading alone says it: no template, no namespace, and the
    only one launched or the one asked for."""
    launched = {site.kernel for site in program.launches}
    if request.kernel is not None:
        launched &= {request.kernel}
    if len(launched) != 1:
        return None
    kernel = program.kernel(launched.pop())
    plain = (
        not kernel.template_parameters and kernel.qualified_name == kernel.name
    )  # nor overloaded
    return kernel.name if plain else None


def _rewrite(text: str) -> Rewrite:
    try:
        return make_rewrite(text, proposer="user", title=CANDIDATE, why="submitted by the user")
    except PlanError as error:
        raise InputError(f"{CANDIDATE}:{error}") from error


def _benchmark(task: JobTask, options: RunOptions, events: EventLog) -> BenchmarkResult:
    assert isinstance(task.request, BenchmarkRequest)
    events.emit("intake", "intake", "started", "running the program once")
    executor = make_executor(options, task.settings)
    bench = open_bench(with_found_device(options, executor), executor)
    events.emit("intake", "intake", "finished", f"{bench.callee}, {len(bench.workloads)} workloads")
    events.emit("sandbox", "sandbox", "started", "timing")
    if task.request.candidate is None:
        timed = _alone(bench)
        result = BenchmarkResult(
            kernel=bench.callee, comparisons=timed, provenance=timed[0].baseline.provenance
        )
    else:
        result = _beside(bench, read_candidate(bench, task.folder.candidate_file(task.request)))
    events.emit("sandbox", "sandbox", "finished", "timed")
    return result


def _alone(bench: Workbench) -> tuple[Comparison, ...]:
    """The author's kernel on both sides."""
    return tuple(
        Comparison(workload=b.workload.id, weight=b.share, baseline=b.time, candidate=b.time)
        for b in bench.baseline_times()
    )


def _beside(bench: Workbench, rewrite: Rewrite) -> BenchmarkResult:
    compared = bench.compare(rewrite)
    if isinstance(compared, CompileFailed | Misbehaved):
        return BenchmarkResult(kernel=bench.callee, failure=compared)
    return BenchmarkResult(
        kernel=bench.callee,
        comparisons=compared,
        speedup=weighted_speedup(compared),
        provenance=compared[0].candidate.provenance,
    )
