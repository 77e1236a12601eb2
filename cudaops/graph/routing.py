"""Conditional edges: pure functions of the state that return a routing key and write nothing."""

from __future__ import annotations

from typing import Literal

from cudaops.graph.state import State


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
