"""The most that a run may spend on its model: money, tokens, time.

A request may start while what is spent and the worst case of the requests under way stay below the
limit. So the limit is passed by at most one request, however many are asked at once. One event loop
only: between a look at the books and an entry in them nothing is awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from cudaops.domain.model_use import Price, TokenCount
from cudaops.errors import InputError, ModelUnavailable
from cudaops.models.names import PRICE_VARIABLE

LimitKind = Literal["cost", "tokens", "time"]

_OPTIONS: dict[LimitKind, str] = {
    "cost": "--max-cost", "tokens": "--max-tokens", "time": "--budget-minutes",
}  # fmt: skip


class BudgetSpent(ModelUnavailable):
    """A limit that the user set is reached: no further request begins."""

    def __init__(self, kind: LimitKind, problem: str) -> None:
        super().__init__(problem, f"raise {_OPTIONS[kind]} to continue")
        self.kind = kind


class Spending(NamedTuple):
    """Money and tokens, of one request or of many."""

    usd: float
    tokens: int


class Ticket:
    """Leave to send one request."""

    def __init__(self, worst: Spending) -> None:
        self.worst = worst
        self.spent = TokenCount()
        """What it took; set by whoever sends, before the ticket is given back."""


class Budget:
    """Counts what requests take and lets none begin that the limits forbid."""

    def __init__(
        self,
        *,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        price: Price | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without limits it only counts.

        Args:
            max_cost_usd: US dollars for the whole run.
            max_tokens: Input and output together for the whole run.
            deadline: By `clock`; no request begins after it.
            price: Of the model; needed for `max_cost_usd`.
            clock: Seconds, as `time.monotonic`.

        Raises InputError for a limit on money without a price.
        """
        if max_cost_usd is not None and price is None:
            raise InputError(f"--max-cost needs the model's price: set {PRICE_VARIABLE}")
        self.price = price
        self._max_cost_usd = max_cost_usd
        self._max_tokens = max_tokens
        self._deadline = deadline
        self._clock = clock
        self._usd = 0.0
        self._tokens = 0
        self._under_way: list[Ticket] = []
        self._freed = asyncio.Event()

    @property
    def spent(self) -> Spending:
        """So far, requests under way left out. Dollars are 0 where no price is known."""
        return Spending(self._usd, self._tokens)

    def cost_usd(self, tokens: TokenCount) -> float | None:
        """US dollars for these tokens; None where no price is known."""
        return None if self.price is None else self.price.cost_usd(tokens)

    def remaining_s(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return float("inf") if self._deadline is None else self._deadline - self._clock()

    def count(self, tokens: TokenCount) -> None:
        """Add what was spent before this process, or outside a ticket."""
        self._usd += self.cost_usd(tokens) or 0.0
        self._tokens += tokens.total

    @asynccontextmanager
    async def request(self, *, most: TokenCount, least: TokenCount) -> AsyncIterator[Ticket]:
        """Leave for one request, held while it is under way.

        Args:
            most: The most tokens that it can take.
            least: The fewest; a request that cannot fit what is left is not sent.

        Raises BudgetSpent where no request may begin, after those under way have ended if it
        depends on them.
        """
        ticket = Ticket(self._spending(most))
        while not self._may_begin(self._spending(least)):
            self._freed.clear()
            await self._freed.wait()
        self._under_way.append(ticket)
        try:
            yield ticket
        finally:
            self._under_way.remove(ticket)
            self.count(ticket.spent)
            self._freed.set()

    def _may_begin(self, least: Spending) -> bool:
        """False: only once a request under way has ended. Raises BudgetSpent for never."""
        if self.remaining_s() <= 0:
            raise BudgetSpent("time", "the time budget of the model is used up")
        waits = False
        limits: tuple[tuple[LimitKind, float | None, int], ...] = (
            ("cost", self._max_cost_usd, 0),
            ("tokens", self._max_tokens, 1),
        )
        for kind, limit, index in limits:
            if limit is None:
                continue
            spent = self.spent[index]
            if spent >= limit:
                raise BudgetSpent(kind, f"{_amount(kind, limit)} for the model are spent")
            if spent + least[index] > limit:
                raise BudgetSpent(
                    kind,
                    f"the next prompt alone exceeds the rest of {_amount(kind, limit)} for the "
                    "model",
                )
            waits = waits or spent + sum(t.worst[index] for t in self._under_way) >= limit
        return not (waits and self._under_way)

    def _spending(self, tokens: TokenCount) -> Spending:
        return Spending(self.cost_usd(tokens) or 0.0, tokens.total)


def _amount(kind: LimitKind, limit: float) -> str:
    return f"${limit:g}" if kind == "cost" else f"{limit:,.0f} tokens"
