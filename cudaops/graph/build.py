"""The wiring, in one place."""

from __future__ import annotations

from functools import partial

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from cudaops.graph import nodes
from cudaops.graph.context import Context
from cudaops.graph.review import review
from cudaops.graph.routing import route_optimizer, route_supervisor, route_verify
from cudaops.graph.stage import stage
from cudaops.graph.state import State

Graph = CompiledStateGraph[State, Context, State, State]


def build_graph(
    max_iterations: int,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    *,
    reviewed: bool = False,
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
        "optimizer", stage("optimizer", "optimizer", "writing and tuning a rewrite", nodes.optimize)
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
    graph.add_edge("research", "optimizer")
    graph.add_conditional_edges("optimizer", route_optimizer, ["sandbox", "report"])
    if reviewed:
        graph.add_node("review", stage("review", "review", "waiting for a person", review))
        graph.add_edge("sandbox", "review")
        graph.add_edge("review", "verify")
    else:
        graph.add_edge("sandbox", "verify")
    graph.add_conditional_edges(
        "verify",
        partial(route_verify, max_iterations=max_iterations),
        {"accepted": "accepted", "retry": "optimizer", "exhausted": "report"},
    )
    graph.add_edge("accepted", "supervisor")
    graph.add_edge("report", END)
    return graph.compile(checkpointer=checkpointer)
