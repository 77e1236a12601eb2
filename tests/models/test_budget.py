"""Limits on what a run spends: passed by at most one request, however many are asked at once."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from cudaops.domain.model_use import Price, TokenCount
from cudaops.errors import InputError
from cudaops.models.budget import Budget, BudgetSpent
from cudaops.models.scripted import Scripted
from tests.models.asked import DIALOGUE, caller

DOLLAR = Price(input_usd_per_mtok=1e6, output_usd_per_mtok=1e6, source="a dollar a token")


class Planned(NamedTuple):
    """A request as a test has it made."""

    worst: int
    actual: int
    begins: int
    """Turns of the loop before it is asked for."""
    lasts: int
    """Turns of the loop that it takes."""


def requests() -> st.SearchStrategy[Planned]:
    return st.builds(
        lambda worst, share, begins, lasts: Planned(worst, worst * share // 10, begins, lasts),
        st.integers(1, 100),
        st.integers(0, 10),
        st.integers(0, 6),
        st.integers(0, 6),
    )


async def make(budget: Budget, planned: list[Planned]) -> list[bool]:
    """Makes all requests, each in its own task; True for those that were allowed."""

    async def one(request: Planned) -> bool:
        for _ in range(request.begins):
            await asyncio.sleep(0)
        try:
            async with budget.request(
                most=TokenCount(input_tokens=request.worst), least=TokenCount()
            ) as ticket:
                for _ in range(request.lasts):
                    await asyncio.sleep(0)
                ticket.spent = TokenCount(input_tokens=request.actual)
        except BudgetSpent:
            return False
        return True

    return list(await asyncio.gather(*map(one, planned)))


@given(st.lists(requests(), max_size=12), st.integers(1, 200), st.booleans())
def test_the_limit_is_passed_by_at_most_one_request(
    planned: list[Planned], limit: int, dollars: bool
) -> None:
    budget = (
        Budget(max_cost_usd=float(limit), price=DOLLAR) if dollars else Budget(max_tokens=limit)
    )
    allowed = asyncio.run(make(budget, planned))
    taken = [p for p, went in zip(planned, allowed, strict=True) if went]
    spent = budget.spent.tokens
    assert spent == sum(p.actual for p in taken)
    assert spent < limit + max((p.worst for p in taken), default=1)
    if not all(allowed):
        assert spent >= limit  # refused only where nothing was left


def test_a_request_waits_for_those_under_way() -> None:
    budget = Budget(max_tokens=100)
    order: list[str] = []

    async def one(name: str, worst: int, actual: int) -> None:
        most = TokenCount(output_tokens=worst)
        async with budget.request(most=most, least=TokenCount()) as ticket:
            order.append(f"{name} begins")
            await asyncio.sleep(0.01)
            ticket.spent = TokenCount(output_tokens=actual)
            order.append(f"{name} ends")

    async def both() -> None:
        await asyncio.gather(one("first", 100, 30), one("second", 100, 30))

    asyncio.run(both())
    assert order == ["first begins", "first ends", "second begins", "second ends"]


def test_a_cancelled_request_gives_its_place_back() -> None:
    budget = Budget(max_tokens=100)

    async def holds() -> None:
        async with budget.request(most=TokenCount(input_tokens=100), least=TokenCount()) as ticket:
            ticket.spent = TokenCount(input_tokens=5)
            await asyncio.sleep(60)

    async def course() -> bool:
        task = asyncio.create_task(holds())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return (await make(budget, [Planned(10, 10, 0, 0)]))[0]

    assert asyncio.run(course())
    assert budget.spent.tokens == 15


def test_a_prompt_that_cannot_fit_is_not_sent() -> None:
    budget = Budget(max_tokens=100)
    budget.count(TokenCount(input_tokens=90))

    async def ask() -> None:
        async with budget.request(
            most=TokenCount(input_tokens=40), least=TokenCount(input_tokens=11)
        ):
            raise AssertionError("sent")

    with pytest.raises(BudgetSpent, match=r"prompt alone.*--max-tokens"):
        asyncio.run(ask())


def test_no_request_begins_after_the_deadline() -> None:
    now = 10.0
    budget = Budget(deadline=20.0, clock=lambda: now)
    assert asyncio.run(make(budget, [Planned(1, 1, 0, 0)])) == [True]
    assert budget.remaining_s() == 10.0
    now = 20.0
    with pytest.raises(BudgetSpent, match="--budget-minutes") as raised:
        asyncio.run(_one(budget))
    assert raised.value.kind == "time"


async def _one(budget: Budget) -> None:
    async with budget.request(most=TokenCount(), least=TokenCount()):
        pass


def test_money_without_a_price_is_refused() -> None:
    with pytest.raises(InputError, match="CUDAOPS_MODEL_PRICE"):
        Budget(max_cost_usd=1.0)


def test_a_caller_stops_within_one_request_of_the_money() -> None:
    budget = Budget(max_cost_usd=250.0, price=DOLLAR)
    answer = Scripted("kernel", input_tokens=90, output_tokens=10)
    asks, model = caller(answer, budget=budget, repeat_last=True)
    prompt = [HumanMessage("x" * 180)]  # 90 tokens at most by its length

    async def all_at_once() -> list[object]:
        questions = (
            asks.ask("coder", prompt, scope=f"01/b{n}", max_output_tokens=10) for n in range(9)
        )
        return list(await asyncio.gather(*questions, return_exceptions=True))

    results = asyncio.run(all_at_once())
    refused = [r for r in results if isinstance(r, BudgetSpent)]
    assert len(model.requests) == 3
    assert len(refused) == 6
    assert "--max-cost" in refused[0].remedy
    assert asks.use().cost_usd == 300.0
    assert asks.use().calls == 3


def test_a_continuation_that_is_not_affordable_leaves_what_there_is() -> None:
    answer = Scripted("half a ker", input_tokens=90, output_tokens=10, finish_reason="length")
    asks, model = caller(answer, budget=Budget(max_tokens=100), repeat_last=True)
    result = asyncio.run(asks.ask("coder", DIALOGUE, scope="01"))
    assert (result.text, result.call.outcome) == ("half a ker", "cut_off")
    assert "100 tokens for the model are spent" in (result.call.problem or "")
    assert len(model.requests) == 1
