"""What a report says of the language model that was asked; nothing where none was."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.model_use import ModelUse, Price, TokenCount
from cudaops.reports.quantities import dollars, one_line, significant


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
        said.append("The provider did not say how many tokens all of it took; some are estimates.")
    if use.price is not None:
        said.append(_price(use.price))
    if use.fell_back is not None:
        said.append(f"Recipes went on in its place: {one_line(use.fell_back)}")
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
        f"Price of a million tokens: {dollars(price.input_usd_per_mtok)} in{middle}, "
        f"{dollars(price.output_usd_per_mtok)} out ({one_line(price.source, 300)})"
    )
