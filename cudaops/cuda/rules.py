"""Every verdict rule, and which of them fire for a launch."""

from __future__ import annotations

from collections.abc import Mapping

from cudaops.cuda.facts import Fact
from cudaops.cuda.rule import Fired, Rule, fire
from cudaops.cuda.rules_causes import CAUSE_RULES
from cudaops.cuda.rules_latency import LAST_RULES, STALL_RULES, STRUCTURE_RULES
from cudaops.cuda.rules_throughput import COMPUTE_RULES, OVERALL_RULES, PATH_RULES
from cudaops.cuda.subtypes import SUBTYPES, Subtype, SubtypeInfo

__all__ = ["RULES", "SUBTYPES", "Subtype", "SubtypeInfo", "fired_rules", "rules_reading"]

RULES: tuple[Rule, ...] = (
    *OVERALL_RULES,
    *COMPUTE_RULES,
    *CAUSE_RULES,
    *PATH_RULES,
    *STRUCTURE_RULES,
    *STALL_RULES,
    *LAST_RULES,
)
"""Order here is for readers; `Rule.priority` decides."""


def fired_rules(facts: Mapping[str, Fact]) -> tuple[Fired, ...]:
    """Rules that fire, the one that decides first: by priority, then by strength."""
    fired = [found for rule in RULES if (found := fire(rule, facts)) is not None]
    return tuple(sorted(fired, key=lambda found: (found.rule.priority, -found.strength)))


def rules_reading(fact: str) -> tuple[Rule, ...]:
    """Rules with a condition on this metric or derived number."""
    return tuple(rule for rule in RULES if any(c.fact == fact for c in rule.conditions))
