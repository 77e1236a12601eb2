"""Conditional edges: pure functions of the state that return a routing key and write nothing."""

from __future__ import annotations

from typing import Any, Literal

from langgraph.types import Send

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


SEEN = ("profile", "verdict", "research", "attempts", "explored", "search", "seconds_by_stage")
"""What a branch is given of the state beside its task and the incumbent's text."""


def _tasks(state: State) -> list[Send]:
    """One a branch. A node that is sent to sees what it is sent and nothing else."""
    search = state.get("search") or {}
    shared: dict[str, Any] = {key: value for key, value in state.items() if key in SEEN}
    incumbent = state.get("incumbent")
    if incumbent:
        shared["incumbent"] = {"rewrite": incumbent["rewrite"]}
    shared["search"] = {**search, "tasks": [], "recipes": [], "hypotheses": []}
    return [Send("explore", {**shared, "task": task}) for task in search.get("tasks", ())]
