"""Start, resume, profile and verify: what the command line and other programs call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from cudaops.agents import profiler, research
from cudaops.agents.tools import Toolbox
from cudaops.cuda.ncu_pages import metrics_parsed
from cudaops.domain.model_use import ModelUse
from cudaops.domain.run import (
    AwaitsReview,
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.errors import InputError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.cpu.toolchain import build_runtime, is_runtime_built
from cudaops.executors.ledger import LEDGER, seconds_by_tool
from cudaops.executors.stopping import Ahead, stoppable
from cudaops.executors.untrusted_files import remove
from cudaops.graph import triton_run
from cudaops.graph.build import build_graph
from cudaops.graph.certificate import write_certificate
from cudaops.graph.context import Context
from cudaops.graph.events import EventLog, OnEvent, profile_data, provenance, utc_now
from cudaops.graph.folder import (
    alone,
    run_folder,
    run_id_of,
    taken_home,
    write_best,
    write_json,
    write_whole,
)
from cudaops.graph.model_setup import Development, check_model, develop
from cudaops.graph.record import build_record, with_library_time, with_summary
from cudaops.graph.remembering import open_memory
from cudaops.graph.services import (
    build_toolbox,
    check_database,
    compilation_of,
    make_executor,
    open_bench,
    warm,
    with_found_device,
)
from cudaops.graph.state import State
from cudaops.graph.verify_files import judge_candidate, replaced_by, require_replaced
from cudaops.problem.kernelbench import MODEL_NEW, model_new
from cudaops.program.splice import require_replaceable
from cudaops.reports import markdown
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

THREAD = "run"
"""LangGraph's name for the one run whose checkpoints a run folder holds."""


OnReview = Callable[[ReviewRequest], ReviewAnswer | None]
"""Asks a person; None where nobody is there to answer now."""


def nobody(_request: ReviewRequest) -> ReviewAnswer | None:
    """No person is there to be asked."""
    return None


def start(
    options: RunOptions, on_event: OnEvent, settings: Settings, on_review: OnReview = nobody
) -> RunRecord:
    """The main job, from a `.cu` to a record in `options.out`.

    Raises InputError (nothing is left behind), EnvironmentFailure (the run can be resumed where
    it got past intake) and AwaitsReview (likewise, with the answer).
    """
    if options.is_triton:
        return triton_run.start(options, on_event, settings)
    started = time.monotonic()
    open_run = begin(options, on_event, settings)
    return _to_its_end(open_run, settings, started, on_review)


def resume(
    folder: Path, on_event: OnEvent, settings: Settings, on_review: OnReview = nobody
) -> RunRecord:
    """Go on where a killed run stopped; stages that finished are not run again.

    Raises InputError where the folder holds no run, AwaitsReview as `start` does.
    """
    started = time.monotonic()
    open_run = reopen(folder, on_event, settings)
    open_run.events.emit("supervisor", "supervisor", "notice", "resumed")
    return _to_its_end(open_run, settings, started, on_review)


class OpenRun(NamedTuple):
    """A run that got past intake; all of it can be read again from its folder."""

    options: RunOptions
    bench: Workbench
    events: EventLog
    date: str
    """When intake ended; UTC, ISO 8601."""
    intake_seconds: float

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.options.out)


def begin(options: RunOptions, on_event: OnEvent, settings: Settings) -> OpenRun:
    """Intake into the new folder `options.out`. Raises as `start` does; nothing is left then.

    Whoever begins or reopens a run closes its bench's executor.
    """
    if options.is_triton:
        raise InputError(
            "Triton programs are supported by `cudaops run`, `verify` and `profile` only"
        )
    check_database(settings)
    check_model(options, settings)
    folder = Path(options.out)
    with run_folder(folder):
        events = EventLog(folder / "events.jsonl", on_event)
        bench, options, seconds = _intake(options, events, settings)
        with _closed_where_it_fails(bench.executor):
            require_replaceable(bench.program, bench.kernel.name)
            date = utc_now()
            write_json(folder / "state" / "intake.json", {"date": date, "seconds": seconds})
            # Last: what `resume` looks for first.
            write_json(folder / "state" / "options.json", options.model_dump(mode="json"))
    return OpenRun(options, bench, events, date, seconds)


def reopen(folder: Path, on_event: OnEvent, settings: Settings) -> OpenRun:
    """What `begin` left in `folder`. Raises InputError where the folder holds no run."""
    try:
        options = RunOptions.model_validate_json(
            (folder / "state" / "options.json").read_text("utf-8")
        )
    except FileNotFoundError as error:
        raise InputError(f"{folder} has no run that finished its intake; start it again") from error
    check_database(settings)
    check_model(options, settings)
    options = options.model_copy(update={"out": str(folder)})
    executor = make_executor(options, settings)
    with _closed_where_it_fails(executor):
        bench = Workbench.load(
            folder,
            executor,
            options.policy,
            sm_arch=options.sm_arch,
            timeout_s=options.timeout_seconds,
        )
        intake = json.loads((folder / "state" / "intake.json").read_text("utf-8"))
        events = EventLog(folder / "events.jsonl", on_event)
    return OpenRun(options, bench, events, intake["date"], float(intake["seconds"]))


def profile_only(options: RunOptions, on_event: OnEvent, settings: Settings) -> ProfileSummary:
    """Metrics and verdict of the kernel, without touching it. Leaves no folder behind."""
    if options.is_triton:
        raise InputError("Triton programs have no metrics: `cudaops profile` lists their launches")
    folder = Path(options.out)
    with run_folder(folder, keep=False):
        events = EventLog(folder / "events.jsonl", on_event)
        bench, _, _ = _intake(options, events, settings, judged=False)
        try:
            return asyncio.run(_profile(bench, events, settings, options.ncu_every_metric))
        finally:
            close_executor(bench.executor)


def verify_files(
    base: Path, candidate: Path, options: RunOptions, on_event: OnEvent, settings: Settings
) -> RunRecord:
    """Judge a rewrite somebody else wrote: device source with directives, or a whole program.

    Where no kernel is named and a program replaces one, that one is judged.
    """
    if options.is_triton:
        return triton_run.verify_files(base, candidate, options, on_event, settings)
    started = time.monotonic()
    folder = Path(options.out)
    with contextlib.ExitStack() as after:
        with run_folder(folder):
            events = EventLog(folder / "events.jsonl", on_event)
            replaced = frozenset[str]()
            if options.kernel is None:
                replaced = replaced_by(base, candidate, compilation_of(options))
            kernel = next(iter(replaced)) if len(replaced) == 1 else options.kernel
            options = options.model_copy(update={"source": str(base), "kernel": kernel})
            bench, options, _ = _intake(options, events, settings)
            after.callback(close_executor, bench.executor)
            after.callback(bench.ahead.end)
            require_replaced(bench, replaced)
            warm(bench)
            seconds = time.monotonic() - started
            state = judge_candidate(bench, candidate, events)
        judged = OpenRun(options, bench, events, utc_now(), seconds)
        return finish(judged, state, started, settings)


def _intake(
    options: RunOptions, events: EventLog, settings: Settings, *, judged: bool = True
) -> tuple[Workbench, RunOptions, float]:
    """The open program, the options with the device that is there, and the seconds it took.
    `judged`: whether rewrites will be."""
    started = time.monotonic()
    runs = len(options.program_runs)
    often = "once" if runs == 1 else f"{runs} times"
    words = f"reading {Path(options.source).name} and running it {often}"
    if options.compiles_itself:
        words = (
            f"running {Path(options.source).name} for what it compiles, and {often} with that built"
        )
    elif options.kernel_source is not None:
        kernels = Path(options.kernel_source).name
        words = f"drawing inputs with {Path(options.source).name} and running {kernels} on them"
    events.emit("intake", "intake", "started", words)
    executor = make_executor(options, settings)
    building = Ahead()
    with contextlib.ExitStack() as failing:
        failing.callback(close_executor, executor)
        failing.callback(building.end)
        options = with_found_device(options, executor)
        if executor.name == "cpu" and not is_runtime_built(executor.cache):
            events.announcing("intake", "intake")(
                "compiling the runtime that executes kernels on the CPU (once per machine)"
            )
            building.begin(lambda: build_runtime(executor.cache))
        bench = open_bench(options, executor, judged=judged)
        seconds = time.monotonic() - started
        _tell_intake(bench, options, seconds, events)
        failing.pop_all()
    return bench, options, seconds


def _tell_intake(bench: Workbench, options: RunOptions, seconds: float, events: EventLog) -> None:
    workload = bench.workloads[0]
    launches = sum(w.launches for w in bench.workloads)
    count, runs = len(bench.workloads), len(bench.captured.runs)
    of = f" of {runs} runs" if runs > 1 else ""
    timed = bench.captured.timed.captured
    warm_ups = next((c.warm_ups for c in timed.counts if c.kernel == timed.kernel), 0)
    without = f" without {warm_ups} warm-ups" if warm_ups else ""
    kernel = bench.kernel
    shown = kernel.full_names[1] if kernel.is_overloaded else workload.callee
    found = (
        f"{shown} on grid {workload.grid} block {workload.block}, "
        f"{launches} launch{'es' * (launches != 1)}{without}, "
        f"{count} workload{'s' if count > 1 else ''}{of} captured"
    )
    data = {
        "seconds": round(seconds, 3),
        "kernel": workload.callee,
        "provenance": provenance(bench.executor.time_source, options.device),
        "min_speedup": options.policy.min_speedup,
    }
    problem = bench.program.problem
    if problem is not None:
        right = f"{bench.program.main_path} computes what {Path(problem.script).name} does"
        draws = f"on {len(bench.draws)} draws, {len(bench.draws) - 1} of them secret"
        events.emit("intake", "intake", "progress", f"{right}, {draws}")
    events.emit("intake", "intake", "finished", found, data)
    for limit in (*bench.limits, *_left_alone(bench)):
        events.emit("intake", "intake", "notice", limit)


def _left_alone(bench: Workbench) -> tuple[str, ...]:
    """What was captured of other instances of the kernel."""
    others = sorted({w.callee for w in bench.captured.workloads} - {bench.callee})
    return tuple(
        f"{other} is left as it is, but by a rewrite whose launches name the template parameters: "
        f"{bench.callee} takes more time"
        for other in others
    )


@contextlib.contextmanager
def _closed_where_it_fails(executor: Executor) -> Iterator[None]:
    try:
        yield
    except BaseException:
        close_executor(executor)
        raise


def _to_its_end(
    open_run: OpenRun, settings: Settings, started: float, on_review: OnReview
) -> RunRecord:
    try:
        return asyncio.run(stoppable(_run(open_run, settings, started, on_review)))
    finally:
        close_executor(open_run.bench.executor)


async def _run(
    open_run: OpenRun, settings: Settings, started: float, on_review: OnReview
) -> RunRecord:
    options = open_run.options
    config: RunnableConfig = {
        "configurable": {"thread_id": THREAD},
        "recursion_limit": recursion_limit(options),
    }
    checkpoints = str(open_run.folder / "state" / "checkpoints.sqlite")
    async with (
        services_of(open_run, settings) as services,
        AsyncSqliteSaver.from_conn_string(checkpoints) as saver,
    ):
        graph = build_graph(
            options.max_iterations,
            saver,
            reviewed=options.policy.review,
            strategy=options.search.strategy,
        )
        going_on = await saver.aget_tuple(config) is not None
        before = cast(State, (await graph.aget_state(config)).values) if going_on else State()
        context, development = open_context(services, open_run.intake_seconds, before)

        def keep(state: State) -> None:
            use = development.use(state.get("model_out"))
            finish(open_run, state, started, settings, use, goes_on=True, ended=False)

        context = replace(context, keep=keep)
        given: State | Command[Any] | None = None
        if not going_on:
            given = beginning(context, development)
        lost = resuming(context, development, before) if going_on else State()
        while True:
            # A checkpoint is on disk before the next stage starts: a kill costs one stage at most.
            await graph.ainvoke(given, config, context=context, durability="sync")
            reached = await graph.aget_state(config)
            if not reached.interrupts:
                break
            request = ReviewRequest.model_validate(reached.interrupts[0].value)
            answer = on_review(request)
            if answer is None:
                raise AwaitsReview(request)
            given = Command(resume=answer.model_dump(mode="json"))
        state = cast(State, reached.values)
    use = development.use(state.get("model_out"))
    state = {**state, "notices": [*state.get("notices", []), *lost.get("notices", [])]}
    return finish(open_run, state, started, settings, use)


def recursion_limit(options: RunOptions) -> int:
    """Most steps of LangGraph that a run of these options can take."""
    return 20 + options.max_iterations * (12 + 2 * options.search.rounds)


@contextlib.asynccontextmanager
async def services_of(open_run: OpenRun, settings: Settings) -> AsyncIterator[Services]:
    """What the nodes of this run work with: its tools, open, and its folder locked against other
    processes. Raises InputError where another process is at work on it."""
    options, bench = open_run.options, open_run.bench
    warm(bench)
    async with build_toolbox(bench, settings) as toolbox:
        with alone(open_run.folder):
            warming = asyncio.create_task(research.warm(toolbox))
            try:
                yield Services(options, settings, bench, toolbox, open_run.events)
            finally:
                warming.cancel()
                await asyncio.to_thread(bench.ahead.end)


async def _profile(
    bench: Workbench, events: EventLog, settings: Settings, every_metric: bool
) -> ProfileSummary:
    events.emit("profiler", "profiler", "started", "profiling the kernel")
    async with build_toolbox(bench, settings) as toolbox:
        diagnosis = await profiler.profile(toolbox, None, every_metric=every_metric)
    data = profile_data(diagnosis.profile, diagnosis.verdict)
    events.emit("profiler", "profiler", "finished", diagnosis.verdict.summary, data)
    return ProfileSummary(
        verdict=diagnosis.verdict.summary,
        subtype=diagnosis.verdict.subtype,
        metrics_parsed=metrics_parsed(diagnosis.profile),
        baseline=diagnosis.profile,
        verdict_detail=diagnosis.verdict,
    )


NOT_ENDED = "the run did not finish and has no certificate; resume it"


def finish(
    open_run: OpenRun,
    state: State,
    started: float,
    settings: Settings,
    use: ModelUse | None = None,
    *,
    goes_on: bool = False,
    ended: bool = True,
) -> RunRecord:
    """Write the run's results and clear what can be made again. `started`: by `time.monotonic`.
    `goes_on`: the bench is worked with further, so that it keeps everything. `ended`: False where
    these are the results so far."""
    options, bench, folder = open_run.options, open_run.bench, open_run.folder
    run_id = run_id_of(bench.kernel.name, folder)
    spent = seconds_by_tool(LEDGER.since(started), time.monotonic() - started)
    record = build_record(
        run_id, open_run.date, options, bench, state, open_run.intake_seconds, spent
    )
    notices = record.notices if ended else (*record.notices, NOT_ENDED)
    record = record.model_copy(update={"model": use, "ended": ended, "notices": notices})
    record = with_summary(record, settings.gpu_price)
    if ended:
        record = with_library_time(record, bench)
    if record.best is not None:
        if not goes_on:  # thousands of files, and every gate that reads them is over
            bench.ahead.begin(lambda: remove(folder / "work" / "domain"))
        spliced = bench.spliced(record.best)
        write_best(folder, *taken_home(bench.program, spliced))
        if ended:
            open_run.events.announcing("report", "report")(
                "writing the certificate: reference results on its public inputs"
            )
        # Its anchors are run on this machine's processor: once, at the end.
        unsigned = (
            write_certificate(folder, record, bench, state, settings.signing_key) if ended else None
        )
        if unsigned is not None:
            notice = f"the certificate is not signed: {unsigned}"
            record = record.model_copy(update={"notices": (*record.notices, notice)})
    record = with_model_new(record, bench, folder)
    write_whole(folder / "report.md", markdown.run_report(record))
    write_whole(folder / "run.json", record.model_dump_json(indent=2) + "\n")
    if not goes_on:
        bench.ahead.end()
        remove(folder / "work")
    return record


def with_model_new(record: RunRecord, bench: Workbench, folder: Path) -> RunRecord:
    """Write `model_new.py` of a problem in KernelBench's form, with the best rewrite or else the
    author's kernels; the record, which says so where that cannot be."""
    problem = bench.program.problem
    if problem is None or problem.form != "kernelbench":
        return record
    best = bench.program if record.best is None else bench.spliced(record.best)
    try:
        write_whole(folder / MODEL_NEW, model_new(best))
    except InputError as error:
        notice = f"there is no {MODEL_NEW}: {error}"
        return record.model_copy(update={"notices": (*record.notices, notice)})
    return record


class Services(NamedTuple):
    """What is there before the graph begins."""

    options: RunOptions
    settings: Settings
    bench: Workbench
    toolbox: Toolbox
    events: EventLog


def open_context(
    services: Services, intake_seconds: float, before: State
) -> tuple[Context, Development]:
    """The nodes' context and the run's model. `before`: the state where a resumed run stopped.

    What of its calls cannot be read any more is said here, each time it is resumed.
    Raises InputError where the model's name, its script or its price is wrong.
    """
    options, settings, bench, toolbox, events = services
    memory = open_memory(options, settings, bench)
    deadline = deadline_of(options, intake_seconds, before)
    running = asyncio.current_task()
    development = develop(
        options,
        settings,
        bench,
        toolbox,
        memory.snapshot,
        deadline,
        lambda line: events.emit("optimizer", "optimizer", "progress", line),
    )
    for line in development.damaged:
        events.emit("optimizer", "optimizer", "notice", line)
    context = Context(
        options=options,
        bench=bench,
        toolbox=toolbox,
        events=events,
        developer=development.developer,
        memory=memory,
        deadline=deadline,
        interrupted=lambda: running is not None and running.cancelling() > 0,
    )
    return context, development


def deadline_of(options: RunOptions, intake_seconds: float, before: State) -> float:
    """When the run's minutes are over, by `time.monotonic`. A run that is resumed has what it had
    left; infinite without a budget."""
    if options.budget_minutes is None:
        return float("inf")
    spent_s = intake_seconds + sum(before.get("seconds_by_stage", {}).values())
    return time.monotonic() + 60.0 * options.budget_minutes - spent_s


def resuming(context: Context, development: Development, before: State) -> State:
    """What a resumed run adds to the state where it stopped: a model that is not there any more."""
    if development.notice is None or development.notice in before.get("notices", []):
        return {}
    context.events.emit("optimizer", "optimizer", "notice", development.notice)
    return {"notices": [development.notice]}


def beginning(context: Context, development: Development) -> State:
    """The state that a new run starts with. What was wanted and is not there is said here, once."""
    notices: list[str] = []
    memory = context.memory
    if memory is not None and memory.snapshot.notice is not None:
        notices.append(memory.snapshot.notice)
    if development.notice is not None:
        notices.append(development.notice)
    unasked = [context.options.no_model] if context.options.no_model else []
    for notice in (*unasked, *notices):
        context.events.emit("optimizer", "optimizer", "notice", notice)
    state: State = {"attempts": [], "notices": notices}
    return state
