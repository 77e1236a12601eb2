"""What a run needs while its graph is under way: memory, the model, and its nodes' context."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from cudaops.agents.tools import Toolbox
from cudaops.domain.run import RunOptions
from cudaops.graph.context import Context
from cudaops.graph.developing import Development, develop
from cudaops.graph.events import EventLog
from cudaops.graph.remembering import open_memory
from cudaops.graph.state import State
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings


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
    told = [context.options.no_model] if context.options.no_model else []
    for notice in (*told, *notices):
        context.events.emit("optimizer", "optimizer", "notice", notice)
    state: State = {"attempts": [], "notices": notices}
    return state
