"""The wiring, in one place."""

from __future__ import annotations

import asyncio
from functools import partial

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from cudaops.domain.search import Strategy
from cudaops.graph import nodes, search
from cudaops.graph.context import Context
from cudaops.graph.explore import explore
from cudaops.graph.overlap import overlapping
from cudaops.graph.review import review
from cudaops.graph.routing import (
    route_gather,
    route_optimizer,
    route_seed,
    route_supervisor,
    route_verify,
)
from cudaops.graph.stage import stage
from cudaops.graph.state import State

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
        "research", stage("research", "research", "looking up the remedy", nodes.look_up)
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
        graph.add_node("review", stage("review", "review", "waiting for a person", review))
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
    graph.add_node("explore", overlapping("explore", "optimizer", branch))
    graph.add_node("gather", stage("gather", "optimizer", "comparing the branches", search.gather))
    graph.add_edge("research", "seed")
    graph.add_conditional_edges("seed", route_seed, ["explore", "report"])
    graph.add_edge("explore", "gather")
    graph.add_conditional_edges("gather", route_gather, ["explore", "sandbox", "seed", "report"])
    return "gather"
