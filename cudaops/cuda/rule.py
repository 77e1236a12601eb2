"""What a verdict rule is, and when it fires."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import Fact
from cudaops.cuda.gains import Gain, gain_of
from cudaops.cuda.subtypes import SUBTYPES, Subtype
from cudaops.domain.profile import Evidence, Finding

Comparison = Literal[">=", "<=", ">", "<", "=="]
Severity = Literal["info", "warning", "critical"]

_COMPARE: Mapping[Comparison, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq,
}  # fmt: skip


_LOADS = (ncu.GLOBAL_LD_INST, ncu.SHARED_LD_INST)


class Condition(NamedTuple):
    """One comparison of a fact with a threshold."""

    fact: str
    """Raw metric name or derived name (`cudaops__...`)."""
    comparison: Comparison
    threshold: float
    source: str
    """Where the threshold comes from."""


class Rule(NamedTuple):
    """One way to recognise what limits a kernel.

    All `conditions` must hold; one whose fact is unknown does not hold. Any `unless` that is known
    to hold keeps the rule silent; one whose fact is unknown does not.
    """

    id: str
    subtype: Subtype
    priority: int
    """Lower decides first, but `by_gain`; equal priorities: the larger value of the first
    condition's fact."""
    severity: Severity
    conditions: tuple[Condition, ...]
    text: str
    """Said of a launch that fired it; `{0}`, `{1}` are the conditions' values in order."""
    unless: tuple[Condition, ...] = ()
    """What shows that something else is meant."""
    also: tuple[tuple[str, str], ...] = ()
    """(fact, phrase with `{}`): said in addition where the fact is known."""

    @property
    def relief(self) -> str:
        """What usually helps."""
        return SUBTYPES[self.subtype].relief


class Fired(NamedTuple):
    """A rule that fired, with what orders it among others."""

    rule: Rule
    finding: Finding
    gain: Gain | None
    """What removing the cause saves at most."""
    strength: float
    """Value of the first condition's fact; how far below the threshold where that must be low."""


def fire(rule: Rule, facts: Mapping[str, Fact]) -> Fired | None:
    """The rule's finding, None where it stays silent."""
    known = [facts.get(condition.fact) for condition in rule.conditions]
    values = [fact for fact in known if fact is not None]
    if len(values) < len(rule.conditions):
        return None
    pairs = zip(values, rule.conditions, strict=True)
    if not all(holds(condition, fact) for fact, condition in pairs):
        return None
    if any(holds(condition, facts.get(condition.fact)) for condition in rule.unless):
        return None
    first = rule.conditions[0]
    gain = gain_of(rule.subtype, facts)
    sign = 1.0 if first.comparison in (">", ">=", "==") else -1.0
    finding = Finding(
        rule=rule.id,
        severity=rule.severity,
        subtype=rule.subtype,
        bottleneck_class=SUBTYPES[rule.subtype].bottleneck_class,
        text=_said(rule, values, facts),
        relief=_relief(rule, facts),
        gain_at_most_pct=gain.at_most_pct if gain is not None else None,
        then=gain.then if gain is not None else "",
        evidence=tuple(
            Evidence(
                metric=condition.fact,
                label=fact.label,
                value=fact.value,
                unit=fact.unit,
                comparison=condition.comparison,
                threshold=condition.threshold,
                source=condition.source,
            )
            for fact, condition in zip(values, rule.conditions, strict=True)
        ),
    )
    return Fired(rule, finding, gain, sign * values[0].value)


def _relief(rule: Rule, facts: Mapping[str, Fact]) -> str:
    """What usually helps a launch like this one: no loads are moved in one that has none."""
    info = SUBTYPES[rule.subtype]
    loads = [facts[name].value for name in _LOADS if name in facts]
    computes = len(loads) == len(_LOADS) and not any(loads)
    return info.relief_without_loads if computes and info.relief_without_loads else info.relief


def holds(condition: Condition, fact: Fact | None) -> bool:
    """Whether the fact is known and meets the condition."""
    return fact is not None and _COMPARE[condition.comparison](fact.value, condition.threshold)


def shown(value: float) -> str:
    """A number as a sentence shows it: no more digits than mean something."""
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 10:
        return f"{value:,.0f}"
    if magnitude >= 1:
        return f"{value:.1f}"
    return f"{value:.2g}"


def _said(rule: Rule, values: list[Fact], facts: Mapping[str, Fact]) -> str:
    text = rule.text.format(*(_amount(fact) for fact in values))
    phrases = [phrase.format(_amount(facts[name])) for name, phrase in rule.also if name in facts]
    return text + "".join(phrases)


def _amount(fact: Fact) -> str:
    """A fact in a sentence: what is counted is whole."""
    is_whole = fact.unit == "" and fact.value == round(fact.value)
    return f"{fact.value:,.0f}" if is_whole else shown(fact.value)
