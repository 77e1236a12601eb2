"""What a run's calls took together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from cudaops.domain.model_use import ModelCall, ModelRole, ModelUse, Price, RoleUse, TokenCount


def summary(
    calls: Sequence[ModelCall],
    *,
    model: str,
    price: Price | None = None,
    fell_back: str | None = None,
) -> ModelUse:
    """Totals over all calls and by role; a dollar sum only where every call has one."""
    roles: dict[ModelRole, list[ModelCall]] = {}
    for call in calls:
        roles.setdefault(call.role, []).append(call)
    return ModelUse(
        model=model,
        calls=len(calls),
        tokens=_tokens(calls),
        cost_usd=_cost(calls, price),
        price=price,
        seconds=seconds_under_way(calls),
        by_role={
            role: RoleUse(calls=len(of), tokens=_tokens(of), cost_usd=_cost(of, price))
            for role, of in roles.items()
        },
        fell_back=fell_back,
    )


def seconds_under_way(calls: Iterable[ModelCall]) -> float:
    """Time in which at least one call was under way: those at once count once."""
    spans = sorted((datetime.fromisoformat(c.started).timestamp(), c.seconds) for c in calls)
    total, until = 0.0, float("-inf")
    for begun, seconds in spans:
        ended = begun + seconds
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


def _tokens(calls: Iterable[ModelCall]) -> TokenCount:
    return sum((call.tokens for call in calls), TokenCount())


def _cost(calls: Sequence[ModelCall], price: Price | None) -> float | None:
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    if len(costs) < len(calls) or (not calls and price is None):
        return None
    return sum(costs)
