"""The order of the rules that fire."""

from __future__ import annotations

from collections.abc import Mapping

from cudaops.cuda.derived import Fact
from cudaops.cuda.rule import Fired, fire
from cudaops.cuda.rules import FEW_SMS_PRIORITY, RULES, STRAINED_PRIORITY


def by_gain(priority: int) -> bool:
    """Whether rules of this priority are ranked by what removing their cause gains: busy units, and
    causes behind them."""
    return FEW_SMS_PRIORITY <= priority <= STRAINED_PRIORITY


def fired_rules(facts: Mapping[str, Fact]) -> tuple[Fired, ...]:
    """Rules that fire, the one that decides first (`_rank`)."""
    fired = [found for rule in RULES if (found := fire(rule, facts)) is not None]
    return tuple(sorted(fired, key=_rank))


def _rank(found: Fired) -> tuple[float, ...]:
    """Tier; in one that goes by gain, that and how busy the cause keeps a unit; priority,
    strength."""
    priority, gain = found.rule.priority, found.gain
    if not by_gain(priority):
        return (priority, 0.0, 0.0, priority, -found.strength)
    saves, busy = (100.0, 0.0) if gain is None else (gain.weight_pct, gain.busy_pct)
    return (FEW_SMS_PRIORITY, -round(saves), -round(busy), priority, -found.strength)
