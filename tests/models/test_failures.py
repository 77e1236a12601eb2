"""Failures of the real clients, against the local server and with nobody listening."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from cudaops.errors import ModelUnavailable
from cudaops.models.clients import ModelAccess, Timeouts, build_model, http_answer, request_options
from cudaops.models.failures import LONGEST_MESSAGE, Failure, HttpAnswer, classify, one_line
from cudaops.models.names import parse_model
from cudaops.models.streaming import send
from tests.nim import Nim, Reply

NVIDIA = parse_model("nvidia:test/chat")
CLIENTS = ["nvidia", "openai"]


def failure_of(
    nim: Nim | None, provider: str, key: str = "test-key", first_token_s: float = 60.0
) -> Failure:
    """What a client's one request fails with."""
    if provider == "openai":
        pytest.importorskip("langchain_openai")
    name = parse_model(f"{provider}:test/chat")
    url = nim.url if nim else "http://127.0.0.1:9/v1"
    access = ModelAccess(
        nvidia_api_key=key,
        nvidia_base_url=url,
        base_url=url,
        api_keys={"openai": key},
        timeouts=Timeouts(first_token_s=first_token_s),
    )
    model = build_model(name, access)

    async def ask() -> Failure:
        options = request_options(name, access, 10)
        question = [HumanMessage("hello")]
        with http_answer() as seen:
            try:
                await send(model, name.provider, access.timeouts, question, (), {}, options, [])
            except Exception as error:  # noqa: BLE001
                return classify(error, name, seen=seen, secrets=access.secrets)
        raise AssertionError("the request did not fail")

    return asyncio.run(ask())


@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "bad_request", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (410, "not_found", False),
        (413, "too_long", False),
        (422, "bad_request", False),
        (429, "rate", True),
        (500, "server", True),
        (502, "server", True),
        (503, "server", True),
        (504, "timeout", True),
    ],
)
def test_each_status_has_its_kind(provider: str, status: int, kind: str, retryable: bool) -> None:
    with Nim(Reply("some detail", status=status)) as nim:
        failure = failure_of(nim, provider)
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert f"HTTP {status}" in failure.problem
    assert f"{provider}:test/chat" in failure.problem
    assert isinstance(failure.unavailable(), ModelUnavailable)


@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", "timeout"),
        ("cut", "network"),
        ("cut_silently", "network"),
        ("malformed", "server"),
        ("stream_error", "server"),
        ("no_events", "server"),
    ],
)
def test_each_fault_of_a_server_has_its_kind(provider: str, fault: Any, kind: str) -> None:
    with Nim(Reply("an answer of some length", fault=fault)) as nim:
        failure = failure_of(nim, provider, first_token_s=0.5 if fault == "hang" else 60.0)
    assert (failure.kind, failure.retryable) == (kind, True), failure.problem


@pytest.mark.parametrize("provider", CLIENTS)
def test_nobody_listens(provider: str) -> None:
    failure = failure_of(None, provider)
    assert (failure.kind, failure.retryable) == ("network", True)


@pytest.mark.parametrize("provider", CLIENTS)
def test_a_refused_key_is_named_by_its_variable_and_never_shown(provider: str) -> None:
    key = "nvapi-very-secret-key"
    with Nim() as nim:
        failure = failure_of(nim, provider, key)
    assert failure.kind == "auth"
    assert f"{provider.upper()}_API_KEY" in failure.remedy
    assert key not in failure.problem + failure.remedy


@pytest.mark.parametrize("provider", CLIENTS)
def test_a_server_says_how_long_to_wait(provider: str) -> None:
    with Nim(Reply(status=429, retry_after="7")) as nim:
        assert failure_of(nim, provider).retry_after_s == 7.0


@pytest.mark.parametrize("provider", CLIENTS)
def test_a_prompt_that_does_not_fit(provider: str) -> None:
    said = "This model's maximum context length is 8192 tokens. Please reduce the messages."
    with Nim(Reply(said, status=400)) as nim:
        assert failure_of(nim, provider).kind == "too_long"


def test_the_servers_words_without_the_clients_frame() -> None:
    error = Exception(
        "[404] The model `x` does not exist.\n{'object': 'error', 'message': 'The model'}"
    )
    assert classify(error, NVIDIA).problem == (
        "the model nvidia:test/chat was not found (HTTP 404): The model `x` does not exist."
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[###] Unknown Error\n<html><head><title>502 Bad Gateway</title>", "server"),
        ("[error] Unknown Error\nsomething", "server"),
        ("BadRequestError: This model's maximum context length is 4096 tokens", "too_long"),
        ("[429] Too Many Requests\ninsufficient_quota: check your billing", "rate"),
    ],
)
def test_words_of_nvidias_client(text: str, kind: str) -> None:
    failure = classify(Exception(text), NVIDIA)
    assert failure.kind == kind
    assert failure.retryable == (kind == "server")


def test_a_status_that_the_client_lost() -> None:
    error = Exception("[###] Unknown Error\n>nothing to read</html>")
    assert classify(error, NVIDIA, seen=HttpAnswer(status=403)).kind == "auth"


@pytest.mark.parametrize("error", [TypeError("no len()"), KeyError("choices"), ValueError("x")])
def test_what_nobody_foresaw_is_no_reason_to_try_again(error: Exception) -> None:
    assert not classify(error, NVIDIA).retryable


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3.5", 3.5), ("-1", 0.0), ("Fri, 20 Nov 2020 10:00:00 GMT", 0.0), ("soon", None)],
)
def test_retry_after(header: str, seconds: float | None) -> None:
    error = Exception("[429] Too Many Requests")
    seen = HttpAnswer(status=429, retry_after=header)
    assert classify(error, NVIDIA, seen=seen).retry_after_s == seconds


@pytest.mark.parametrize(
    "secret", ["nvapi-AbC_123-x", "sk-proj-0123456789", "AIzaSyA0123456789abcdefg", "my-own-key"]
)
def test_keys_stay_out_of_messages(secret: str) -> None:
    text = f"Incorrect API key provided: {secret}.\n\x1b[31mHeader: Bearer {secret}"
    shown = one_line(text, ["my-own-key"])
    assert secret not in shown
    assert shown.isprintable()


def test_a_message_is_short() -> None:
    assert len(one_line("word " * 500)) == LONGEST_MESSAGE


def test_anthropics_client() -> None:
    pytest.importorskip("langchain_anthropic")
    import anthropic
    import httpx

    name = parse_model("anthropic:claude-sonnet-5-5")
    response = httpx.Response(
        529,
        headers={"retry-after": "4"},
        request=httpx.Request("POST", "https://api.anthropic.com/v1/messages"),
    )
    error = anthropic.APIStatusError("Overloaded", response=response, body=None)  # type: ignore[arg-type]
    failure = classify(error, name)
    assert (failure.kind, failure.retryable, failure.retry_after_s) == ("server", True, 4.0)
    assert classify(anthropic.APITimeoutError(response.request), name).kind == "timeout"  # type: ignore[arg-type]
