"""What a run cost, for its reports: what was asked of the language model, by role; the GPU's time;
what the provider's cache saved; dollars for each accepted percent."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.model_use import ModelUse, Price, TokenCount
from cudaops.domain.run import RunRecord
from cudaops.reports.quantities import dollars, one_line, significant


def cost_sentence(record: RunRecord) -> str | None:
    """What the run cost in one line; None where no price of anything that it used is known."""
    cost = record.cost_usd_approx
    if cost is None or (cost.gpu is None and cost.model_tokens is None):
        return None
    parts = []
    if record.executor == "cuda":
        parts.append("GPU: no price known (set CUDAOPS_GPU_PRICE)")
    if cost.gpu is not None and cost.gpu_usd_per_hour is not None:
        taken = f"{record.loop_time_seconds:.1f} s at {dollars(cost.gpu_usd_per_hour)} per hour"
        parts = [f"GPU {dollars(cost.gpu)} ({taken})"]
    if record.model is not None:
        parts.append(f"model tokens {dollars(cost.model_tokens)}{_saved(record.model)}")
    total = f" {dollars(cost.total)}" if cost.total is not None and len(parts) > 1 else ""
    percent = cost.per_accepted_percent
    gained = "" if percent is None else f"; {dollars(percent)} per accepted percent of speedup"
    return f"Approximate cost{total}: {', '.join(parts)}{gained}."


def _saved(use: ModelUse) -> str:
    saved = use.cache_saved_usd
    if saved is None:
        return ""
    if saved < 0:
        return f" (the prompt cache cost {dollars(-saved)} more than it saved)"
    return f" (the prompt cache saved {dollars(saved)})"


class RoleRow(NamedTuple):
    """What one role took."""

    role: str
    calls: str
    tokens: str
    cost: str


def tokens_text(tokens: TokenCount) -> str:
    """`6,812 tokens in (5,900 cached), 1,240 out`; `about` before numbers that we estimated."""
    cached = f" ({tokens.cached_input_tokens:,} cached)" if tokens.cached_input_tokens else ""
    about = "about " if tokens.estimated else ""
    return f"{about}{tokens.input_tokens:,} tokens in{cached}, {tokens.output_tokens:,} out"


def calls_text(calls: int) -> str:
    """`1 call`, `14 calls`."""
    return f"{calls:,} call" if calls == 1 else f"{calls:,} calls"


def model_sentences(use: ModelUse) -> list[str]:
    """The model and what it took, its price, and why recipes went on where they did."""
    took = f"{dollars(use.cost_usd)}, {significant(round(use.seconds, 1))} s"
    asked = f"{calls_text(use.calls)}, {tokens_text(use.tokens)}"
    said = [f"{one_line(use.model, 120)}: {asked}, {took}"]
    if use.tokens.estimated:
        said.append("The provider did not report all token counts; some are estimates.")
    if use.price is not None:
        said.append(_price(use.price))
    if use.fell_back is not None:
        said.append(f"Recipes proposed instead: {one_line(use.fell_back)}")
    return said


def role_rows(use: ModelUse) -> list[RoleRow]:
    """What each role took, in the order of `by_role`."""
    return [
        RoleRow(role, calls_text(part.calls), tokens_text(part.tokens), dollars(part.cost_usd))
        for role, part in use.by_role.items()
    ]


def _price(price: Price) -> str:
    cached = price.cached_input_usd_per_mtok
    middle = "" if cached is None else f", {dollars(cached)} cached"
    return (
        f"Price per million tokens: {dollars(price.input_usd_per_mtok)} in{middle}, "
        f"{dollars(price.output_usd_per_mtok)} out ({one_line(price.source, 300)})"
    )
