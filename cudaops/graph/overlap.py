"""A node that runs several times at once: its time is counted once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from cudaops.domain.run import AgentName
from cudaops.graph.context import Context
from cudaops.graph.stage import Node
from cudaops.graph.state import State


class Clock:
    """Time in which at least one of several was at work."""

    def __init__(self) -> None:
        self._active = 0
        self._began = 0.0

    def start(self) -> None:
        """One more begins."""
        if not self._active:
            self._began = time.monotonic()
        self._active += 1

    def stop(self) -> float:
        """One ends; seconds since the first began where it is the last, else 0."""
        self._active -= 1
        return 0.0 if self._active else time.monotonic() - self._began


def overlapping(
    name: str, agent: AgentName, body: Callable[[State, Context], Awaitable[State]]
) -> Node:
    """Wrap a body as `stage` does, without its events: the body announces what came of it."""
    clock = Clock()

    async def node(state: State, *, runtime: Runtime[Context]) -> State:
        context = runtime.context
        if context.interrupted():
            raise KeyboardInterrupt
        clock.start()
        update: State = {}
        try:
            update = await body(state, context)
        except GraphBubbleUp:
            raise
        except Exception as error:
            context.events.emit(name, agent, "failed", str(error))
            raise
        finally:
            seconds = clock.stop()
        return {**update, "seconds_by_stage": {name: seconds}}

    node.__name__ = name
    return node
