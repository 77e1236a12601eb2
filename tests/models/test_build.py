"""Building models: what is missing is said before anything is sent, and nothing is sent."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

from cudaops.errors import InputError, ModelUnavailable, PrerequisiteError
from cudaops.models.clients import (
    INSTALL,
    NO_KEY,
    OFFICIAL_URLS,
    ModelAccess,
    build_model,
    request_options,
)
from cudaops.models.names import DEFAULT_MODEL, PACKAGES, parse_model

KEYED = ModelAccess(
    nvidia_api_key="nvapi-mine",
    api_keys={"openai": "sk-mine", "anthropic": "sk-ant-mine", "google_genai": "AIza-mine"},
)
OWN = ModelAccess(nvidia_base_url="http://nim:8000", base_url="http://vllm:8000/v1")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any look at the network fails, and the environment names somebody else's key and server."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"the network was used: {args[:2]}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for variable in ("NVIDIA_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "from-the-environment")
    for variable in ("NVIDIA_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(variable, "http://elsewhere.example/v1")


@pytest.mark.parametrize(
    "text",
    [DEFAULT_MODEL, "nvidia/llama-3.3-nemotron-super-49b-v1.5", "somebody/not-in-the-table"],
)
def test_nvidia_hosted(text: str) -> None:
    model: Any = build_model(parse_model(text), KEYED)
    client = model._async_client
    assert client.infer_url == f"{OFFICIAL_URLS['nvidia']}/chat/completions"
    assert client.api_key.get_secret_value() == "nvapi-mine"
    assert client.usage_telemetry_enabled is False
    assert model.model == text
    assert "nvapi-mine" not in repr(model)
    assert "nvapi-mine" not in repr(KEYED)


def test_the_default_model_is_one_that_the_client_knows() -> None:
    from langchain_nvidia_ai_endpoints._statics import determine_model

    known = determine_model(DEFAULT_MODEL)
    assert known is not None
    assert known.supports_tools
    assert not known.deprecated


def test_a_nim_of_ones_own_needs_no_key() -> None:
    model: Any = build_model(parse_model("nvidia:my-model"), OWN)
    assert model._async_client.infer_url == "http://nim:8000/v1/chat/completions"
    assert model._async_client.api_key.get_secret_value() == NO_KEY


def test_an_address_that_is_none_is_the_users_mistake() -> None:
    access = ModelAccess(nvidia_base_url="nim:8000")
    with pytest.raises(InputError, match="NVIDIA_BASE_URL"):
        build_model(parse_model("nvidia:my-model"), access)


@pytest.mark.parametrize(
    ("text", "package", "address", "attribute"),
    [
        ("openai:gpt-6-sol", "langchain_openai", OFFICIAL_URLS["openai"], "openai_api_base"),
        (
            "anthropic:claude-sonnet-5-5",
            "langchain_anthropic",
            OFFICIAL_URLS["anthropic"],
            "anthropic_api_url",
        ),
    ],
)
def test_other_providers_are_told_key_and_address(
    text: str, package: str, address: str, attribute: str
) -> None:
    pytest.importorskip(package)
    model: Any = build_model(parse_model(text), KEYED)
    assert getattr(model, attribute) == address
    assert model.max_retries == 0
    assert "mine" not in repr(model)


def test_an_openai_compatible_server_of_ones_own() -> None:
    pytest.importorskip("langchain_openai")
    model: Any = build_model(parse_model("openai:Qwen/Qwen3-Coder"), OWN)
    assert model.openai_api_base == "http://vllm:8000/v1"
    assert model.openai_api_key.get_secret_value() == NO_KEY
    assert model.stream_usage is True


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        (DEFAULT_MODEL, "NVIDIA_API_KEY"),
        ("openai:gpt-6-sol", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_names_its_variable(text: str, variable: str) -> None:
    name = parse_model(text)
    if importlib.util.find_spec(PACKAGES[name.provider].package) is None:
        pytest.skip(f"{PACKAGES[name.provider].package} is not installed")
    with pytest.raises(ModelUnavailable, match=variable):
        build_model(name, ModelAccess())
    assert build_model(name, KEYED) is not None


@pytest.mark.parametrize("text", ["google_genai:gemini-3.5-flash", "ollama:qwen3:8b"])
def test_a_missing_package_says_what_to_install(text: str) -> None:
    name = parse_model(text)
    if importlib.util.find_spec(PACKAGES[name.provider].package):
        pytest.skip(f"{PACKAGES[name.provider].package} is installed")
    with pytest.raises(PrerequisiteError) as raised:
        build_model(name, KEYED)
    assert raised.value.remedy == INSTALL


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    name = parse_model(f"scripted:{tmp_path}/none.json")
    with pytest.raises(InputError, match="is not a file"):
        build_model(name, KEYED)


@pytest.mark.parametrize(
    ("text", "access", "options"),
    [
        ("meta/llama-3.3-70b", KEYED, {"max_tokens": 9, "temperature": 0.2, "top_p": 0.95}),
        (DEFAULT_MODEL, KEYED, {"max_tokens": 9, "temperature": 1.0, "top_p": 0.95}),
        ("openai:gpt-6-sol", KEYED, {"max_tokens": 9}),
        ("openai:qwen", OWN, {"max_tokens": 9, "temperature": 0.2, "top_p": 0.95}),
        ("anthropic:claude-sonnet-5-5", KEYED, {"max_tokens": 9}),
        ("google_genai:gemini-3.5-flash", KEYED, {"max_output_tokens": 9}),
        (
            "ollama:qwen3:8b",
            KEYED,
            {"options": {"num_predict": 9, "temperature": 0.2, "top_p": 0.95}},
        ),
        ("scripted:a.json", KEYED, {"max_tokens": 9}),
    ],
)
def test_each_client_is_asked_in_its_own_words(
    text: str, access: ModelAccess, options: dict[str, Any]
) -> None:
    assert request_options(parse_model(text), access, 9) == options
