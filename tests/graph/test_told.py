"""What an event's `data` says beside its sentence."""

from __future__ import annotations

import json

import pytest

from cudaops.domain.judgement import Gate
from cudaops.graph.told import found, provenance, spoken


def test_a_tried_configuration_is_read_with_its_time() -> None:
    line = "tried BM=64, BN=-1: 199.4 us (modelled for A10)"
    assert spoken(line) == {"values": {"BM": 64, "BN": -1}, "time_us": 199.4}
    assert spoken(f"branch 3: {line}") == spoken(line)


@pytest.mark.parametrize(
    ("passed", "quarantined", "outcome"),
    [(True, False, "passed"), (False, False, "failed"), (False, True, "quarantined")],
)
def test_a_gate_is_read_with_its_outcome(passed: bool, quarantined: bool, outcome: str) -> None:
    gate = Gate(name="checker", passed=passed, quarantined=quarantined, summary="a: tried b: 3 us")
    assert spoken(gate.line)["outcome"] == outcome
    assert spoken(gate.line)["gate"] == "checker"


@pytest.mark.parametrize(
    "line",
    [
        "looking for accesses out of bounds",
        "the oracle: 19 of 19 wrong results refused",
        "tried and failed",
        "it does not compile: x.cu:1:1: `passed: ` is not declared",
        "",
    ],
)
def test_any_other_line_has_no_numbers(line: str) -> None:
    assert spoken(line) == {}


def test_a_modelled_number_says_so_and_a_measured_one_needs_no_words() -> None:
    assert provenance("modelled", "A10") == "modelled for A10"
    assert provenance("cuda_event", "A10") == ""


def test_a_stage_that_found_nothing_says_nothing() -> None:
    assert found("optimizer", {"proposal": None, "reason": "no further recipe applies"}) == {}
    assert found("research", {}) == {}
    json.dumps(found("supervisor", {"decision": "profile"}))
