"""What models cost, and what a run's calls took together."""

from __future__ import annotations

import re

import pytest

from cudaops.domain.model_use import ModelCall, ModelRole, TokenCount
from cudaops.errors import InputError
from cudaops.models.names import DEFAULT_MODEL, parse_model
from cudaops.models.prices import LIST, known_price, parse_price, require_price, summary


def test_every_row_names_its_source_and_a_date() -> None:
    for row in LIST:
        assert re.search(r"20\d\d-\d\d-\d\d", row.source), row
        assert row.cached is None or 0 < row.cached < row.input < row.output


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("anthropic:claude-sonnet-5-5", (2.0, 10.0, 0.1)),
        ("anthropic:claude-sonnet-5-5-20260928", (2.0, 10.0, 0.1)),
        ("anthropic:claude-sonnet-5", (2.0, 10.0, 0.2)),
        ("anthropic:claude-opus-5", (5.0, 25.0, 0.5)),
        ("anthropic:claude-opus-5-5", (4.0, 20.0, 0.2)),
        ("openai:gpt-6.1-sol", (2.0, 10.0, 0.1)),
        ("google_genai:gemini-3.5-flash", (1.5, 9.0, None)),
    ],
)
def test_list_prices(text: str, figures: tuple[float, float, float | None]) -> None:
    price = known_price(parse_model(text))
    assert price is not None
    assert (
        price.input_usd_per_mtok,
        price.output_usd_per_mtok,
        price.cached_input_usd_per_mtok,
    ) == figures


@pytest.mark.parametrize(
    "text", [DEFAULT_MODEL, "ollama:qwen3:8b", "openai:gpt-6-sol-turbo", "anthropic:gpt-6-sol"]
)
def test_what_has_no_source_has_no_price(text: str) -> None:
    name = parse_model(text)
    assert known_price(name) is None
    with pytest.raises(InputError, match=r"CUDAOPS_MODEL_PRICE") as raised:
        require_price(name)
    assert "\n" not in str(raised.value)


def test_a_server_of_ones_own_has_no_list_price() -> None:
    name = parse_model("openai:gpt-6-sol")
    assert known_price(name) is not None
    assert known_price(name, own_server=True) is None


def test_the_users_price_comes_first() -> None:
    given = parse_price("0.5, 2")
    assert require_price(parse_model("openai:gpt-6-sol"), given) is given
    assert given.source == "set by the user"
    assert parse_price("0.5,2,0.05").cached_input_usd_per_mtok == 0.05


@pytest.mark.parametrize("text", ["", "1", "1,2,3,4", "a,b", "-1,2", "nan,1", "1,inf", "1;2"])
def test_a_bad_price_is_one_line_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r'like "0\.5,2"'):
        parse_price(text)


def _call(role: ModelRole, started: str, seconds: float, cost: float | None) -> ModelCall:
    return ModelCall(
        scope="01",
        role=role,
        model="openai:x",
        key="0" * 16,
        started=started,
        seconds=seconds,
        tokens=TokenCount(input_tokens=100, cached_input_tokens=40, output_tokens=10),
        cost_usd=cost,
        outcome="answered",
    )


def test_a_summary_adds_up_and_counts_simultaneous_time_once() -> None:
    use = summary(
        [
            _call("planner", "2026-11-20T12:00:00+00:00", 10.0, 0.5),
            _call("coder", "2026-11-20T12:00:20+00:00", 30.0, 1.0),
            _call("coder", "2026-11-20T12:00:30+00:00", 30.0, 1.0),
        ],
        model="openai:x",
        fell_back="out of money",
    )
    assert (use.calls, use.cost_usd, use.seconds) == (3, 2.5, 50.0)
    assert use.tokens.total == 330
    assert use.by_role["coder"].calls == 2
    assert use.by_role["coder"].cost_usd == 2.0
    assert use.fell_back == "out of money"


def test_one_call_without_a_price_leaves_the_sum_unknown() -> None:
    calls = [
        _call("coder", "2026-11-20T12:00:00+00:00", 1.0, 1.0),
        _call("coder", "2026-11-20T12:00:02+00:00", 1.0, None),
    ]
    assert summary(calls, model="openai:x").cost_usd is None
    assert summary([], model="openai:x").cost_usd is None
