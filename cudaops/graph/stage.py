"""A node of the graph: announced, timed, and with its failure written down."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from cudaops.domain.run import AgentName
from cudaops.graph.context import Context
from cudaops.graph.events import stage_data
from cudaops.graph.state import State

Body = Callable[[State, Context], Awaitable[tuple[State, str]]]
"""Takes state and services; gives the partial update and one line on what was found."""


class Node(Protocol):
    """What LangGraph calls."""

    def __call__(self, state: State, *, runtime: Runtime[Context]) -> Awaitable[State]:
        """Run the node; gives the partial update."""


def stage(name: str, agent: AgentName, doing: str, body: Body) -> Node:
    """Wrap a body: `started` and `finished` events, seconds by stage."""

    async def node(state: State, *, runtime: Runtime[Context]) -> State:
        context = runtime.context
        if context.interrupted():
            # Whatever swallowed the cancellation that Ctrl-C is, the next stage does not begin.
            raise KeyboardInterrupt
        context.events.emit(name, agent, "started", doing)
        started = time.monotonic()
        try:
            update, found = await body(state, context)
        except GraphBubbleUp:
            raise  # the run waits for a person here: nothing has failed
        except Exception as error:
            context.events.emit(name, agent, "failed", str(error))
            raise
        seconds = time.monotonic() - started
        data = {"seconds": round(seconds, 3), **stage_data(name, update)}
        context.events.emit(name, agent, "finished", found, data)
        return {**update, "seconds_by_stage": {name: seconds}}

    node.__name__ = name
    return node
