"""Routers return a key and write nothing; the supervisor decides from state alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cudaops.agents.supervisor import decide
from cudaops.domain.judgement import Attempt, Judgement
from cudaops.domain.profile import Verdict
from cudaops.graph.build import route_optimizer, route_supervisor, route_verify


def attempt(outcome: str = "rejected") -> Attempt:
    judgement = Judgement.model_validate({"outcome": outcome, "reason": "r", "gates": []})
    return Attempt(
        iteration=1,
        rewrite_id="a",
        source_id="b",
        title="t",
        proposer="p",
        judgement=judgement,
        lesson="l",
    )


@pytest.mark.parametrize(
    ("state", "limit", "key"),
    [
        ({"judgement": {"outcome": "accepted"}, "attempts": [1]}, 3, "accepted"),
        ({"judgement": {"outcome": "provisional"}, "attempts": [1]}, 3, "accepted"),
        ({"judgement": {"outcome": "provisional"}, "attempts": [1, 2, 3]}, 3, "accepted"),
        ({"judgement": {"outcome": "rejected"}, "attempts": [1]}, 3, "retry"),
        ({"judgement": {"outcome": "rejected"}, "attempts": [1, 2, 3]}, 3, "exhausted"),
    ],
)
def test_route_verify(state: Any, limit: int, key: str) -> None:
    before = copy.deepcopy(state)
    assert route_verify(state, limit) == key
    assert state == before


def test_other_routers() -> None:
    assert route_supervisor({"decision": "profile"}) == "profiler"
    assert route_supervisor({"decision": "finish"}) == "report"
    assert route_optimizer({"proposal": {"source": "x"}}) == "sandbox"
    assert route_optimizer({"proposal": None}) == "report"
    assert route_optimizer({}) == "report"


def verdict(bottleneck_class: str) -> Verdict:
    return Verdict.model_validate(
        {
            "bottleneck_class": bottleneck_class,
            "subtype": "near_peak",
            "summary": "at 92 % of the roofline",
            "evidence": [],
            "relief": "none",
            "source": "modelled",
        }
    )


def test_supervisor() -> None:
    assert decide([], None, 3).next == "profile"
    assert decide([attempt()], verdict("memory_bound"), 3).next == "profile"
    assert decide([attempt()] * 3, verdict("memory_bound"), 3).next == "finish"
    assert decide([attempt()], verdict("near_peak"), 3).next == "finish"
    assert decide([], verdict("near_peak"), 3).next == "profile"
