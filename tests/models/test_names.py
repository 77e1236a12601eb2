"""Models by name."""

from __future__ import annotations

import pytest

from cudaops.errors import InputError
from cudaops.models.names import DEFAULT_MODEL, parse_model


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        (DEFAULT_MODEL, "nvidia", DEFAULT_MODEL),
        ("meta/llama-3.3-70b-instruct", "nvidia", "meta/llama-3.3-70b-instruct"),
        ("nvidia:my-model", "nvidia", "my-model"),
        ("qwen/qwen3:free", "nvidia", "qwen/qwen3:free"),
        (" openai:gpt-6-sol ", "openai", "gpt-6-sol"),
        ("openai:Qwen/Qwen3-Coder", "openai", "Qwen/Qwen3-Coder"),
        ("anthropic:claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("google_genai:gemini-3.5-flash", "google_genai", "gemini-3.5-flash"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("scripted:a folder/answers.json", "scripted", "a folder/answers.json"),
    ],
)
def test_a_name_says_who_serves_the_model(text: str, provider: str, model: str) -> None:
    name = parse_model(text)
    assert (name.provider, name.model, str(name)) == (provider, model, text.strip())


@pytest.mark.parametrize(
    "text",
    ["", "gpt-6", "openai:", "scripted:", "azure:gpt", "nvidia/two words", "openai:a\nb", ":x"],
)
def test_a_bad_name_is_one_line_that_shows_the_forms(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_model(text)
    said = str(raised.value)
    assert "\n" not in said
    assert "openai:MODEL" in said
    assert DEFAULT_MODEL in said
