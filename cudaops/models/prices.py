"""What models cost: list prices of the providers, each with its source and date, and what a run's
calls took together.

NVIDIA publishes no price by token for its hosted NIM (rate-limits.apis.io on nvidia, read
2026-11-20: free credits, then a licence), and a server of one's own costs what it costs: for both
the price is unknown until a user gives one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from cudaops.domain.model_use import ModelCall, ModelRole, ModelUse, Price, RoleUse, TokenCount
from cudaops.errors import InputError
from cudaops.models.names import PRICE_VARIABLE, ModelName, Provider

_ANTHROPIC = "platform.claude.com/docs/en/about-claude/pricing, stored copy read 2026-11-20"
_CLAUDE_MODELS = "platform.claude.com/docs, table of models, stored copy read 2026-11-20"
_OPUS_5_5 = _CLAUDE_MODELS + "; cache reads: github.com/TheKrush/PromptFuel, 2026-09-23"
_SONNET_5_5 = _CLAUDE_MODELS + "; cache reads as cut on 2026-10-07 (github.com/kurofune/claudit)"
_GPT_6 = "litellm's and codexometer's notes on OpenAI's price list of 2026-09-22, to 272k tokens"
_GPT_6_1 = "docs.laozhang.ai on OpenAI's price list of 2026-10-13, prompts to 272k tokens"
_GEMINI = "ai.google.dev/gemini-api/docs/pricing of 2026-09-20 (api-evangelist/gemini)"


class Listed(NamedTuple):
    """One row: US dollars per million tokens."""

    provider: Provider
    pattern: str
    """Of the model's id; dated and suffixed ids of the same model included."""
    input: float
    output: float
    cached: float | None
    source: str


LIST: tuple[Listed, ...] = (
    Listed("anthropic", r"claude-fable-5-1", 10.0, 50.0, 0.25, _ANTHROPIC),
    Listed("anthropic", r"claude-fable-5", 10.0, 50.0, 1.0, _ANTHROPIC),
    Listed("anthropic", r"claude-opus-5-5", 4.0, 20.0, 0.2, _OPUS_5_5),
    Listed("anthropic", r"claude-opus-(5|4-[5678])", 5.0, 25.0, 0.5, _ANTHROPIC),
    Listed("anthropic", r"claude-sonnet-5-5", 2.0, 10.0, 0.1, _SONNET_5_5),
    Listed("anthropic", r"claude-sonnet-5", 2.0, 10.0, 0.2, _CLAUDE_MODELS),
    Listed("anthropic", r"claude-sonnet-4-[56]", 3.0, 15.0, 0.3, _ANTHROPIC),
    Listed("anthropic", r"claude-haiku-4-5", 1.0, 5.0, 0.1, _ANTHROPIC),
    Listed("openai", r"gpt-6\.1-sol", 2.0, 10.0, 0.1, _GPT_6_1),
    Listed("openai", r"gpt-6-sol", 2.0, 10.0, 0.2, _GPT_6),
    Listed("openai", r"gpt-6-luna", 0.1, 0.5, 0.01, _GPT_6),
    Listed("google_genai", r"gemini-3\.5-flash", 1.5, 9.0, None, _GEMINI),
    Listed("google_genai", r"gemini-3\.1-pro-preview", 2.0, 12.0, None, _GEMINI + ", to 200k"),
)
"""First match counts. `cached` None where no source said it: it then counts as any token."""

ANTHROPIC_CACHE_WRITE = 1.25
"""Factor on the price of input for tokens that Anthropic writes to its cache for five minutes.
Source: platform.claude.com pricing as docs.electronhub.ai/guides/prompt-caching and
docs.aihubmix.com/en/api/Claude-Cache give it (stored copies read 2026-11-30)."""

_DATED = r"(-\d{8}|-\d{4}-\d{2}-\d{2}|-latest)?"


def known_price(name: ModelName, *, own_server: bool = False) -> Price | None:
    """The list price of a model; None where there is none, as on a server of one's own."""
    if own_server:
        return None
    model = name.model.lower()
    for row in LIST:
        if row.provider == name.provider and re.fullmatch(row.pattern + _DATED, model):
            return Price(
                input_usd_per_mtok=row.input,
                output_usd_per_mtok=row.output,
                cached_input_usd_per_mtok=row.cached,
                cache_write_usd_per_mtok=(
                    row.input * ANTHROPIC_CACHE_WRITE if row.provider == "anthropic" else None
                ),
                source=row.source,
            )
    return None


def parse_price(text: str) -> Price:
    """A price as a user gives it: `INPUT,OUTPUT[,CACHED[,WRITTEN]]`.

    Raises InputError in one line.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        figures = [float(part) for part in parts]
    except ValueError:
        figures = []
    if len(figures) not in (2, 3, 4) or not all(math.isfinite(f) and f >= 0 for f in figures):
        raise InputError(
            f'{PRICE_VARIABLE} is "INPUT,OUTPUT[,CACHED[,WRITTEN]]" in US dollars for a million '
            f'tokens, like "0.5,2": {text!r} is not'
        )
    return Price(
        input_usd_per_mtok=figures[0],
        output_usd_per_mtok=figures[1],
        cached_input_usd_per_mtok=figures[2] if len(figures) > 2 else None,
        cache_write_usd_per_mtok=figures[3] if len(figures) > 3 else None,
        source="set by the user",
    )


def require_price(
    name: ModelName, given: Price | None = None, *, own_server: bool = False
) -> Price:
    """The price that a limit on money needs: the user's, or else the list's.

    Raises InputError, one line, where there is neither.
    """
    price = given or known_price(name, own_server=own_server)
    if price is None:
        raise InputError(
            f"--max-cost needs a price and none is known for {name}: set "
            f'{PRICE_VARIABLE}="INPUT,OUTPUT[,CACHED[,WRITTEN]]" in US dollars per million tokens'
        )
    return price


def summary(
    calls: Sequence[ModelCall],
    *,
    model: str,
    price: Price | None = None,
    fell_back: str | None = None,
) -> ModelUse:
    """Totals over all calls and by role; a dollar sum only where every call has one."""
    tokens = _tokens(calls)
    roles: dict[ModelRole, list[ModelCall]] = {}
    for call in calls:
        roles.setdefault(call.role, []).append(call)
    return ModelUse(
        model=model,
        calls=len(calls),
        tokens=tokens,
        cost_usd=_cost(calls, price),
        cache_saved_usd=None if price is None else price.saved_usd(tokens),
        price=price,
        seconds=_seconds_under_way(calls),
        by_role={
            role: RoleUse(calls=len(of), tokens=_tokens(of), cost_usd=_cost(of, price))
            for role, of in roles.items()
        },
        fell_back=fell_back,
    )


def _seconds_under_way(calls: Iterable[ModelCall]) -> float:
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
