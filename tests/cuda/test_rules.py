"""Every rule fires on what it describes, and is silent one step beside it or without a metric."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from cudaops.cuda.derived import DERIVED, SPECIAL, Fact, label_and_unit
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.rule import Condition, Rule, fire, shown
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES, Subtype
from cudaops.cuda.verdict import fired_rules, rules_reading

ids = [rule.id for rule in RULES]
every_rule = pytest.mark.parametrize("rule", RULES, ids=ids)


def just_inside(conditions: list[Condition]) -> float:
    """A value that all conditions on one fact accept."""
    low = max((c.threshold for c in conditions if c.comparison in (">", ">=", "==")), default=None)
    high = min((c.threshold for c in conditions if c.comparison in ("<", "<=")), default=None)
    if any(c.comparison == "==" for c in conditions) and low is not None:
        return low
    if low is not None and high is not None:
        return (low + high) / 2
    return low + 1.0 if low is not None else (high or 0.0) - 0.1


def matching(rule: Rule) -> dict[str, Fact]:
    names = {condition.fact for condition in rule.conditions}
    return {
        name: Fact(just_inside([c for c in rule.conditions if c.fact == name]), "%", name)
        for name in names
    }


def beyond(condition: Condition) -> float:
    if condition.comparison in (">", ">="):
        return condition.threshold - 0.01 * max(1.0, abs(condition.threshold))
    return condition.threshold + 0.01 * max(1.0, abs(condition.threshold))


@every_rule
def test_fires_on_what_it_describes(rule: Rule) -> None:
    found = fire(rule, matching(rule))
    assert found is not None
    assert found.finding.subtype == rule.subtype
    assert found.finding.bottleneck_class == SUBTYPES[rule.subtype].bottleneck_class
    assert len(found.finding.evidence) == len(rule.conditions)
    assert "{" not in found.finding.text
    assert found.finding.relief


@every_rule
def test_is_silent_just_beyond_each_threshold(rule: Rule) -> None:
    for condition in rule.conditions:
        facts = matching(rule)
        facts[condition.fact] = Fact(beyond(condition), "%", condition.fact)
        assert fire(rule, facts) is None, condition


@every_rule
def test_is_silent_without_any_one_of_its_metrics(rule: Rule) -> None:
    for condition in rule.conditions:
        facts = matching(rule)
        del facts[condition.fact]
        assert fire(rule, facts) is None, condition


@pytest.mark.parametrize("rule", [r for r in RULES if r.unless], ids=lambda r: r.id)
def test_is_silent_where_something_else_is_meant(rule: Rule) -> None:
    for condition in rule.unless:
        assert condition.fact not in matching(rule)
        facts = {**matching(rule), condition.fact: Fact(just_inside([condition]), "%", "")}
        assert fire(rule, facts) is None
        facts[condition.fact] = Fact(beyond(condition), "%", "")
        assert fire(rule, facts) is not None


@every_rule
def test_reads_only_known_facts_and_sources_every_threshold(rule: Rule) -> None:
    for condition in (*rule.conditions, *rule.unless):
        assert condition.fact in METRICS or condition.fact in DERIVED or condition.fact in SPECIAL
        assert label_and_unit(condition.fact)[0]
        assert len(condition.source) > 10
    for name, phrase in rule.also:
        assert label_and_unit(name)[0]
        assert "{}" in phrase


def test_every_subtype_has_a_rule_and_every_rule_a_name_of_its_own() -> None:
    assert set(get_args(Subtype)) == set(SUBTYPES)
    assert {rule.subtype for rule in RULES} == set(SUBTYPES) - {"unknown"}
    assert len(ids) == len(set(ids))


def test_no_facts_no_findings() -> None:
    assert fired_rules({}) == ()


def test_derived_numbers_need_all_their_inputs_to_be_metrics() -> None:
    for row in DERIVED.values():
        assert row.inputs
        assert all(name in METRICS for name in row.inputs), row.name
        for value in (0.0, 1.0, 7.5):
            result = row.compute(*(value for _ in row.inputs))
            assert result is None or math.isfinite(result)


def test_rules_of_a_metric_are_found() -> None:
    readers = rules_reading("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
    assert {"dram_bandwidth", "l1_load_throughput"} <= {rule.id for rule in readers}
    assert rules_reading("launch__stack_size") == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.416, "0.42"), (1.486, "1.5"), (96.5, "96"), (99.28, "99"), (4096, "4,096")],
)
def test_numbers_in_sentences(value: float, text: str) -> None:
    assert shown(value) == text
