"""What models cost, and what a run's calls took together."""

from __future__ import annotations

import re

import pytest

from cudaops.domain.model_use import ModelCall, ModelRole, TokenCount
from cudaops.errors import InputError
from cudaops.models.names import DEFAULT_MODEL, parse_model
from cudaops.models.prices import LIST, known_price, parse_price, require_price, summary

SONNET = "anthropic:claude-sonnet-5-5"


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
    assert parse_price("0.5,2,0.05,0.6").cache_write_usd_per_mtok == 0.6


def test_anthropic_charges_more_for_what_it_writes_to_its_cache() -> None:
    sonnet, gpt = (known_price(parse_model(n)) for n in (SONNET, "openai:gpt-6-sol"))
    assert sonnet is not None
    assert gpt is not None
    assert (sonnet.cache_write_usd_per_mtok, gpt.cache_write_usd_per_mtok) == (2.5, None)
    written = TokenCount(input_tokens=10**6, cached_input_tokens=0, cache_write_tokens=10**6)
    read = TokenCount(input_tokens=10**6, cached_input_tokens=10**6, cache_write_tokens=0)
    assert (sonnet.cost_usd(written), sonnet.cost_usd(read)) == pytest.approx((2.5, 0.1))
    assert sonnet.saved_usd(written) == pytest.approx(-0.5)
    assert sonnet.saved_usd(written + read) == pytest.approx(1.4)


def test_what_a_cache_saved_is_not_known_where_nobody_said() -> None:
    price, silent = parse_price("2,10,0.2"), TokenCount(input_tokens=10**6)
    assert price.saved_usd(silent) is None
    assert price.saved_usd(silent + TokenCount(cached_input_tokens=0)) == 0.0
    assert parse_price("2,10").saved_usd(TokenCount(input_tokens=9, cached_input_tokens=9)) is None
    assert (silent + TokenCount()).cached_input_tokens is None


@pytest.mark.parametrize("text", ["", "1", "1,2,3,4,5", "a,b", "-1,2", "nan,1", "1,inf", "1;2"])
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
    assert use.cache_saved_usd is None


def test_a_summary_says_what_the_cache_saved() -> None:
    call = _call("coder", "2026-11-20T12:00:00+00:00", 1.0, 1.0)
    use = summary([call, call], model="openai:x", price=parse_price("2,10,0.2"))
    assert use.cache_saved_usd == pytest.approx(80 * 1.8 / 1e6)


def test_one_call_without_a_price_leaves_the_sum_unknown() -> None:
    calls = [
        _call("coder", "2026-11-20T12:00:00+00:00", 1.0, 1.0),
        _call("coder", "2026-11-20T12:00:02+00:00", 1.0, None),
    ]
    assert summary(calls, model="openai:x").cost_usd is None
    assert summary([], model="openai:x").cost_usd is None
