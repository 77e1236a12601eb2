"""The graph of one run, from its first stage or its last checkpoint to its end.

Loads LangGraph, LangChain and FastMCP, which takes longer than everything else that a run imports:
`graph.run` has it loaded while the program is compiled and run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from cudaops.agents import profiler, research
from cudaops.agents.tools import Toolbox
from cudaops.cuda.ncu_pages import metrics_parsed
from cudaops.domain.run import (
    AwaitsReview,
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.executors.base import close_executor
from cudaops.executors.stopping import stoppable
from cudaops.graph.build import build_graph
from cudaops.graph.context import Context
from cudaops.graph.events import EventLog, profile_data
from cudaops.graph.finishing import finish
from cudaops.graph.folder import alone
from cudaops.graph.model_setup import Development, develop
from cudaops.graph.opening import OpenRun
from cudaops.graph.remembering import open_memory
from cudaops.graph.services import warm
from cudaops.graph.state import State
from cudaops.graph.toolbox import build_toolbox
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

THREAD = "run"
"""LangGraph's name for the one run whose checkpoints a run folder holds."""


OnReview = Callable[[ReviewRequest], ReviewAnswer | None]
"""Asks a person; None where nobody is there to answer now."""


def to_its_end(
    open_run: OpenRun, settings: Settings, started: float, on_review: OnReview
) -> RunRecord:
    """The run's record. Raises what `graph.run.start` does; closes the bench's executor."""
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


async def profile(
    bench: Workbench, events: EventLog, settings: Settings, every_metric: bool
) -> ProfileSummary:
    """Metrics and verdict of the author's kernel."""
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
