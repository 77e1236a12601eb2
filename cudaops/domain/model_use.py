"""What language models were asked, and what that took."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record

ModelRole = Literal["planner", "coder", "fixer", "reflector", "reasoner"]
"""reasoner: what the knowledge base says, in sentences with sources. planner: hypotheses from the
verdict. coder: one hypothesis into one rewrite. fixer: a compiler's or a gate's complaint back into
the same rewrite. reflector: one line on what was learnt."""

CallOutcome = Literal["answered", "cut_off", "empty", "failed"]
"""cut_off: still incomplete after every continuation. failed: no answer came at all."""


class TokenCount(Record):
    """Tokens of one call or of several."""

    input_tokens: int = 0
    """All of the prompt, what the provider had cached included."""
    cached_input_tokens: int | None = None
    """Part of `input_tokens` that the provider's cache served; None: the provider did not say. Of
    several calls: of those where it said so."""
    cache_write_tokens: int | None = None
    """Part of `input_tokens` that the provider wrote to its cache; None likewise."""
    output_tokens: int = 0
    estimated: bool = False
    """The provider did not say; counted by us from the length of the texts."""

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TokenCount) -> TokenCount:
        return TokenCount(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=_sum(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_tokens=_sum(self.cache_write_tokens, other.cache_write_tokens),
            output_tokens=self.output_tokens + other.output_tokens,
            estimated=self.estimated or other.estimated,
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


class Price(Record):
    """What a model's tokens cost."""

    input_usd_per_mtok: float
    """US dollars per million tokens of prompt."""
    output_usd_per_mtok: float
    cached_input_usd_per_mtok: float | None = None
    """None: what the cache serves costs like any other."""
    cache_write_usd_per_mtok: float | None = None
    """None: what is written to the cache costs like any other."""
    source: str
    """Where the figures come from, with a date; `set by the user`."""

    def cost_usd(self, tokens: TokenCount) -> float:
        """US dollars for these tokens."""
        read, written = tokens.cached_input_tokens or 0, tokens.cache_write_tokens or 0
        fresh, read_price = self.input_usd_per_mtok, self.cached_input_usd_per_mtok
        write_price = self.cache_write_usd_per_mtok
        return (
            (tokens.input_tokens - read - written) * fresh
            + read * (fresh if read_price is None else read_price)
            + written * (fresh if write_price is None else write_price)
            + tokens.output_tokens * self.output_usd_per_mtok
        ) / 1e6

    def saved_usd(self, tokens: TokenCount) -> float | None:
        """US dollars by which the cache made these tokens cheaper; negative where writing to it
        cost more than it has served yet.

        None where the provider said nothing of its cache, or no price for what it serves is known.
        """
        if tokens.cached_input_tokens is None or self.cached_input_usd_per_mtok is None:
            return None
        uncached = TokenCount(input_tokens=tokens.input_tokens, output_tokens=tokens.output_tokens)
        return self.cost_usd(uncached) - self.cost_usd(tokens)


class ModelCall(Record):
    """One question to a model with all its continuations and tries."""

    scope: str
    """Iteration and branch that asked: `01`, `02/b3`."""
    role: ModelRole
    model: str
    key: str
    """16 hex digits over everything that was sent: the same question has the same key."""
    started: str
    """UTC, ISO 8601."""
    seconds: float
    tokens: TokenCount
    cost_usd: float | None
    """None where no price is known for the model."""
    tries: int = 1
    """Requests sent, those that failed and continuations included."""
    outcome: CallOutcome
    problem: str | None = None
    """What went wrong on the way, in one line."""


class RoleUse(Record):
    """What one role's calls took together."""

    calls: int
    tokens: TokenCount
    cost_usd: float | None


class ModelUse(Record):
    """Model calls of a run."""

    model: str
    calls: int
    tokens: TokenCount
    cost_usd: float | None
    """None where no price is known for the model."""
    price: Price | None = None
    seconds: float
    """Time in which a call was under way."""
    by_role: dict[ModelRole, RoleUse] = Field(default_factory=dict)
    cache_saved_usd: float | None = None
    """US dollars that the provider's cache of prompts saved, of the calls where it reported its
    use; negative where writing to it cost more. None where it reported none, or no price for
    cached tokens is known."""
    fell_back: str | None = None
    """Why recipes went on in the model's place; None where they did not."""
