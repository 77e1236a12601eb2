"""The graph of one run: its nodes, announced and timed, its conditional edges, and their wiring."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send

from cudaops.domain.options import Strategy
from cudaops.domain.run import AgentName
from cudaops.graph import nodes, search
from cudaops.graph.branches import explore
from cudaops.graph.context import Context
from cudaops.graph.events import stage_data
from cudaops.graph.state import State

Body = Callable[[State, Context], Awaitable[tuple[State, str]]]
"""Takes state and services; gives the partial update and one line on what was found."""


class GraphNode(Protocol):
    """What LangGraph calls."""

    def __call__(self, state: State, *, runtime: Runtime[Context]) -> Awaitable[State]:
        """Run the node; gives the partial update."""


def stage(name: str, agent: AgentName, doing: str, body: Body) -> GraphNode:
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


class BusyTime:
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


def overlapping(body: Callable[[State, Context], Awaitable[State]]) -> GraphNode:
    """Wrap the body of `explore`, whose runs overlap, as `stage` does, without its events: the
    body announces the result."""
    clock = BusyTime()

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
            context.events.emit("explore", "optimizer", "failed", str(error))
            raise
        finally:
            seconds = clock.stop()
        return {**update, "seconds_by_stage": {"explore": seconds}}

    node.__name__ = "explore"
    return node


def route_supervisor(state: State) -> Literal["profiler", "report"]:
    """On with the incumbent's next bottleneck, or to the end."""
    return "profiler" if state["decision"] == "profile" else "report"


def route_optimizer(state: State) -> Literal["sandbox", "report"]:
    """Judge the proposal, or end where there is none left."""
    return "sandbox" if state.get("proposal") else "report"


def route_verify(state: State, max_iterations: int) -> Literal["accepted", "retry", "exhausted"]:
    """Accept, try again with the failed attempt as anti-context, or give up."""
    if state["judgement"]["outcome"] != "rejected":
        return "accepted"
    return "retry" if len(state["attempts"]) < max_iterations else "exhausted"


def route_seed(state: State) -> list[Send] | Literal["report"]:
    """Explore what the search begins with, or end where it has nothing to begin with."""
    return _tasks(state) or "report"


def route_gather(state: State) -> list[Send] | Literal["sandbox", "seed", "report"]:
    """Explore the next round; else judge what was put forward; else begin a new search where one
    of this search was judged, or end."""
    tasks = _tasks(state)
    if tasks:
        return tasks
    if state.get("proposal"):
        return "sandbox"
    return "seed" if state["search"]["judged"] else "report"


SEEN = (
    "profile", "baseline_profile", "verdict", "research", "attempts", "explored", "search",
    "seconds_by_stage",
)  # fmt: skip
"""What a branch is given of the state beside its task and the incumbent's text."""


def _tasks(state: State) -> list[Send]:
    """One a branch. A node that is sent to sees what it is sent and nothing else."""
    under_way = state.get("search") or {}
    shared: dict[str, Any] = {key: value for key, value in state.items() if key in SEEN}
    incumbent = state.get("incumbent")
    if incumbent:
        shared["incumbent"] = {"rewrite": incumbent["rewrite"]}
    shared["search"] = {**under_way, "tasks": [], "recipes": [], "hypotheses": []}
    return [Send("explore", {**shared, "task": task}) for task in under_way.get("tasks", ())]


Graph = CompiledStateGraph[State, Context, State, State]


def build_graph(
    max_iterations: int,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    *,
    reviewed: bool = False,
    strategy: Strategy = "greedy",
) -> Graph:
    """Compile the state machine of one run. `reviewed`: a person decides before acceptance."""
    graph: StateGraph[State, Context, State, State] = StateGraph(State, context_schema=Context)
    graph.add_node(
        "supervisor", stage("supervisor", "supervisor", "deciding what comes next", nodes.supervise)
    )
    graph.add_node("profiler", stage("profiler", "profiler", "profiling the kernel", nodes.profile))
    graph.add_node(
        "research", stage("research", "research", "searching the notes for a remedy", nodes.look_up)
    )
    graph.add_node(
        "sandbox", stage("sandbox", "sandbox", "compiling, verifying and timing it", nodes.evaluate)
    )
    graph.add_node("verify", stage("verify", "verify", "judging the candidate", nodes.verify))
    graph.add_node(
        "accepted", stage("accepted", "supervisor", "keeping the candidate", nodes.accept)
    )
    graph.add_node("report", stage("report", "report", "closing the run", nodes.report))

    graph.add_edge(START, "supervisor")
    graph.add_conditional_edges("supervisor", route_supervisor, ["profiler", "report"])
    graph.add_edge("profiler", "research")
    retry = _add_greedy(graph) if strategy == "greedy" else _add_search(graph)
    if reviewed:
        graph.add_node("review", stage("review", "review", "waiting for a review", nodes.review))
        graph.add_edge("sandbox", "review")
        graph.add_edge("review", "verify")
    else:
        graph.add_edge("sandbox", "verify")
    graph.add_conditional_edges(
        "verify",
        partial(route_verify, max_iterations=max_iterations),
        {"accepted": "accepted", "retry": retry, "exhausted": "report"},
    )
    graph.add_edge("accepted", "supervisor")
    graph.add_edge("report", END)
    return graph.compile(checkpointer=checkpointer)


def _add_greedy(graph: StateGraph[State, Context, State, State]) -> str:
    """One candidate at a time; gives the node that follows a rejection."""
    graph.add_node(
        "optimizer", stage("optimizer", "optimizer", "writing and tuning a rewrite", nodes.optimize)
    )
    graph.add_edge("research", "optimizer")
    graph.add_conditional_edges("optimizer", route_optimizer, ["sandbox", "report"])
    return "optimizer"


def _add_search(graph: StateGraph[State, Context, State, State]) -> str:
    """Rounds of branches, the best of which is judged; gives the node that follows a rejection."""
    one_at_a_time = asyncio.Lock()

    async def branch(state: State, context: Context) -> State:
        return await explore(state, context, one_at_a_time)

    graph.add_node("seed", stage("seed", "optimizer", "looking for places to begin", search.seed))
    graph.add_node("explore", overlapping(branch))
    graph.add_node("gather", stage("gather", "optimizer", "comparing the branches", search.gather))
    graph.add_edge("research", "seed")
    graph.add_conditional_edges("seed", route_seed, ["explore", "report"])
    graph.add_edge("explore", "gather")
    graph.add_conditional_edges("gather", route_gather, ["explore", "sandbox", "seed", "report"])
    return "gather"
