"""The run as one graph that LangGraph's own tools can open: intake, the run itself, its record.

`cudaops run` opens a program first and then runs `graph.build`'s graph over it. Here both are nodes
of an outer graph with a plain input, so that LangGraph Studio and its server can start a run, show
the agents at work and stop before acceptance; the inner graph is the very same. Checkpoints are
whoever serves it keeps; everything else is in the run folder, as always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from cudaops.domain.base import Record
from cudaops.domain.options import (
    BeamOptions,
    JudgeOptions,
    LimitOptions,
    MemoryOptions,
    ModelOptions,
    OptimizerOptions,
    PlaceOptions,
    ProgramOptions,
    Strategy,
)
from cudaops.domain.run import RunOptions, RunRecord
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.executors.base import close_executor
from cudaops.graph.build import Graph, build_graph
from cudaops.graph.finishing import finish
from cudaops.graph.loop import (
    beginning,
    open_context,
    recursion_limit,
    resuming,
    services_of,
)
from cudaops.graph.opening import OpenRun, begin, reopen
from cudaops.graph.resolve_options import new_folder, place, resolve, source_file
from cudaops.graph.state import Json, State
from cudaops.reports import markdown
from cudaops.settings import Settings

DEFAULT_ITERATIONS = 3


class Asked(
    ProgramOptions, PlaceOptions, OptimizerOptions, ModelOptions, BeamOptions, LimitOptions,
    JudgeOptions, MemoryOptions,
):  # fmt: skip
    """What a run is asked for; everything but `source` may be left out. How it searches is the
    graph's."""

    source: str
    """Path of the `.cu` on the machine that serves this graph."""


class Served(Asked):
    """State of the outer graph."""

    folder: str | None = None
    """The run folder, once intake is through."""
    record: Json | None = None
    report: str | None = None


class StudioOutput(Record):
    """What comes out."""

    folder: str
    """The run folder, with `best.cu`, the patch and the certificate."""
    record: Json
    """`run.json`."""
    report: str
    """`report.md`."""


Outer = CompiledStateGraph[Served, None, Asked, StudioOutput]


def studio_graph(
    load: Callable[[], Settings], strategy: Strategy = "greedy", *, reviewed: bool = False
) -> Outer:
    """The outer graph; `load` is called when a run begins. Nodes raise ValueError
    where the input is wrong and RuntimeError where this machine cannot.

    Args:
        reviewed: Whether it stops before acceptance; resume it with a ReviewAnswer.
    """
    default = build_graph(DEFAULT_ITERATIONS, reviewed=reviewed, strategy=strategy)

    async def intake(state: Asked) -> dict[str, Any]:
        with _shown():
            settings = await asyncio.to_thread(load)
            options = await asyncio.to_thread(_options, state, settings, strategy, reviewed)
            open_run = await asyncio.to_thread(begin, options, _silent, settings)
            # The next node may run elsewhere, or days later: it opens the folder itself.
            await asyncio.to_thread(close_executor, open_run.bench.executor)
        return {"folder": str(open_run.folder)}

    async def optimize(state: Served, config: RunnableConfig) -> dict[str, Any]:
        assert state.folder is not None
        # LangGraph finds the inner graph, to show it, by this name in this function.
        inner = default
        if state.max_iterations != DEFAULT_ITERATIONS:
            inner = build_graph(state.max_iterations, reviewed=reviewed, strategy=strategy)
        with _shown():
            record = await _run(inner, Path(state.folder), load, config)
        return {"record": record.model_dump(mode="json"), "report": markdown.run_report(record)}

    graph: StateGraph[Served, None, Asked, StudioOutput] = StateGraph(
        Served, input_schema=Asked, output_schema=StudioOutput
    )
    graph.add_node("intake", intake, input_schema=Asked)
    graph.add_node("optimize", optimize)
    graph.add_edge(START, "intake")
    graph.add_edge("intake", "optimize")
    graph.add_edge("optimize", END)
    return graph.compile(name="cudaops")


async def _run(
    graph: Graph, folder: Path, load: Callable[[], Settings], config: RunnableConfig
) -> RunRecord:
    """The inner graph with its context, from its beginning or from its last checkpoint."""
    started, settings = time.monotonic(), await asyncio.to_thread(load)
    open_run = await asyncio.to_thread(reopen, folder, _silent, settings)
    try:
        return await _to_its_end(graph, open_run, settings, started, config)
    finally:
        await asyncio.to_thread(close_executor, open_run.bench.executor)


async def _to_its_end(
    graph: Graph, open_run: OpenRun, settings: Settings, started: float, config: RunnableConfig
) -> RunRecord:
    before = cast(State, (await graph.aget_state(config)).values or State())
    async with services_of(open_run, settings) as services:
        context, development = open_context(services, open_run.intake_seconds, before)
        given = beginning(context, development) if not before else None
        lost = resuming(context, development, before) if before else State()
        limited: RunnableConfig = {**config, "recursion_limit": recursion_limit(open_run.options)}
        state = cast(State, await graph.ainvoke(cast(Any, given), limited, context=context))
    use = development.use(state.get("model_out"))
    state = {**state, "notices": [*state.get("notices", []), *lost.get("notices", [])]}
    return await asyncio.to_thread(finish, open_run, state, started, settings, use)


def _options(asked: Asked, settings: Settings, strategy: Strategy, reviewed: bool) -> RunOptions:
    path = source_file(Path(asked.source))
    where = place(asked.executor or settings.executor, asked.device, asked.arch)
    folder = new_folder(None, settings.runs, path, asked.kernel)
    options = resolve(asked, path, folder, where, settings)
    search = options.search.model_copy(update={"strategy": strategy})
    policy = options.policy.model_copy(update={"review": reviewed})
    return options.model_copy(update={"search": search, "policy": policy})


@contextmanager
def _shown() -> Iterator[None]:
    """What is wrong, as an error whose text LangGraph's server shows: it keeps that of any class
    it does not know to itself. Source: langgraph_api 0.16.7, serde.py."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error
    except EnvironmentFailure as error:
        raise RuntimeError(str(error)) from error


def _silent(_event: object) -> None:
    """Nobody listens: whoever serves the graph streams its nodes."""
