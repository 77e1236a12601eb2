"""Routes of a search, and the time of what runs at once."""

from __future__ import annotations

import asyncio
import copy
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from langgraph.types import Send

from cudaops.errors import SandboxUnavailable
from cudaops.graph.branches import BranchSearch
from cudaops.graph.build import BusyTime, build_graph, overlapping, route_gather, route_seed
from cudaops.graph.context import Context
from cudaops.graph.state import State


def state(tasks: int = 0, *, judged: int = 0, proposal: Any = None) -> State:
    search = {
        **BranchSearch(judged=judged).model_dump(mode="json"),
        "tasks": [{"order": i} for i in range(tasks)],
    }
    given: State = {
        "search": search,
        "proposal": proposal,
        "attempts": [],
        "explored": [{"search": 1}],
        "profile": {"kernel": "k"},
        "incumbent": {"rewrite": {"source": "x"}, "evaluation": {"large": "y"}},
        "trials": [{"values": {}}],
    }
    return given


def test_routes_leave_the_state_alone() -> None:
    for given in (state(3), state(proposal={"source": "x"}), state(judged=1), state()):
        before = copy.deepcopy(given)
        route_seed(given)
        route_gather(given)
        assert given == before


def test_where_a_search_goes() -> None:
    assert route_seed(state()) == "report"
    assert route_seed({"proposal": None}) == "report"
    assert route_gather(state(proposal={"source": "x"})) == "sandbox"
    assert route_gather(state(judged=1)) == "seed"
    assert route_gather(state()) == "report"


@pytest.mark.parametrize("route", [route_seed, route_gather])
def test_one_message_a_branch_with_what_a_branch_needs_and_no_more(route: Any) -> None:
    sent = route(state(3))
    assert all(isinstance(one, Send) and one.node == "explore" for one in sent)
    assert [one.arg["task"]["order"] for one in sent] == [0, 1, 2]
    for one in sent:
        assert one.arg["incumbent"] == {"rewrite": {"source": "x"}}
        assert one.arg["search"]["tasks"] == []
        assert {"trials", "proposal"}.isdisjoint(one.arg)


def test_each_strategy_has_its_nodes() -> None:
    greedy, beam = build_graph(1), build_graph(1, strategy="beam")
    assert {"optimizer"} == set(greedy.nodes) - set(beam.nodes)
    assert {"seed", "explore", "gather"} == set(beam.nodes) - set(greedy.nodes)


def test_time_of_several_at_once_is_counted_once() -> None:
    clock = BusyTime()
    started = time.monotonic()
    clock.start()
    clock.start()
    assert clock.stop() == 0.0
    seconds = clock.stop()
    assert 0.0 <= seconds <= time.monotonic() - started


def test_a_branch_that_the_sandbox_cannot_run_ends_the_run_with_the_remedy() -> None:
    said: list[str] = []

    async def body(state: State, context: Context) -> State:
        raise SandboxUnavailable("g++ is gone", "install it")

    events = SimpleNamespace(emit=lambda *args: said.append(args[3]))
    context = SimpleNamespace(interrupted=lambda: False, events=events)
    runtime = cast(Any, SimpleNamespace(context=context))
    node = overlapping(body)
    with pytest.raises(SandboxUnavailable, match="install it"):
        asyncio.run(cast(Any, node({}, runtime=runtime)))
    assert said == ["g++ is gone; install it"]


def test_no_branch_begins_after_an_interrupt() -> None:
    async def body(state: State, context: Context) -> State:
        raise AssertionError

    runtime = cast(Any, SimpleNamespace(context=SimpleNamespace(interrupted=lambda: True)))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cast(Any, overlapping(body)({}, runtime=runtime)))
