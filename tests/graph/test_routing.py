"""Routers return a key and write nothing; the supervisor decides from state alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cudaops.agents.supervisor import attempt_of, decide
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import Measurement, Timing
from cudaops.domain.judgement import Attempt, Comparison, Judgement
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Verdict
from cudaops.domain.rewrite import LaunchPlan, Rewrite
from cudaops.graph.branches import incumbent_us
from cudaops.graph.build import route_optimizer, route_supervisor, route_verify
from cudaops.graph.context import kept_us


def attempt(outcome: str = "rejected", **more: Any) -> Attempt:
    judgement = Judgement.model_validate({"outcome": outcome, "reason": "r", "gates": []})
    return Attempt(
        iteration=1,
        rewrite_id="a",
        source_id="b",
        title="t",
        proposer="p",
        judgement=judgement,
        lesson="l",
        **more,
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
    end = PerformanceLimit(kind="roofline", says="it is full", numbers={})
    assert decide([], None, 3, end=end).next == "profile"
    assert decide([attempt()], verdict("memory_bound"), 3, end=end).next == "finish"


class TestTheTimeToBeat:
    """A search times rewrites by CUDA events, short launches are judged by their own time: a bar of
    the one clock stops every search by the other."""

    def test_it_is_of_the_clock_that_a_search_uses(self) -> None:
        own, launched = (1.3,) * 4, (4.6,) * 4
        timing = Timing(regime="warm", launched_us=launched)
        side = Measurement(
            source="cupti", device="H200", samples_us=own, workload="w0", timing=timing
        )
        pair = Comparison(workload="w0", weight=1.0, baseline=side, candidate=side)
        rewrite = Rewrite(
            title="t", why="", source="", plan=LaunchPlan(launches=()), proposer="user"
        )
        accepted = attempt("accepted").judgement
        kept = attempt_of(Evaluation(rewrite=rewrite, gates=(), comparisons=(pair,)), accepted, 1)
        assert (kept.candidate_us, kept.candidate_launched_us) == (1.3, 4.6)
        state: Any = {"attempts": [kept.model_dump(mode="json")]}
        assert kept_us(state) == 4.6
        assert incumbent_us(state) == 4.6

    def test_a_record_of_before_has_one_clock_alone(self) -> None:
        state: Any = {"attempts": [attempt("accepted", candidate_us=9.0).model_dump(mode="json")]}
        assert kept_us(state) == 9.0

    def test_nothing_was_kept(self) -> None:
        state: Any = {"attempts": [attempt(candidate_us=9.0).model_dump(mode="json")]}
        assert kept_us(state) is None
