"""Models by name: which client speaks to a model, and which variables it needs."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

from cudaops.domain.base import Record
from cudaops.errors import InputError

Provider = Literal[
    "nvidia", "openai", "anthropic", "google_genai", "ollama", "scripted", "host"
]  # fmt: skip
"""nvidia: NIM, hosted or one's own. openai: OpenAI itself, or any server that speaks its protocol
(vLLM, SGLang, llama.cpp). scripted: answers from a file, no model at all. host: that of the MCP
host that called us (`cudaops.models.mcp_sampling`); nobody types that."""

DEFAULT_MODEL = "nvidia/nemotron-3-super-120b-a12b"
"""Nemotron Super as NVIDIA hosts it. Source: model table of langchain-nvidia-ai-endpoints 1.5.0
(chat, tools, thinking, not deprecated), read 2026-11-20; released 2026-03-11 according to its model
card, https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4."""

MODEL_SETTING = "--model or CUDAOPS_MODEL"
"""Where a user names the model; for messages."""

URL_VARIABLE = "CUDAOPS_MODEL_URL"
"""Names the address of an OpenAI-compatible or Ollama server; for messages."""

PRICE_VARIABLE = "CUDAOPS_MODEL_PRICE"
"""Names the price of a model that is not in our table; for messages."""

KEY_VARIABLES: dict[Provider, str] = {
    "nvidia": "NVIDIA_API_KEY",
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
}
"""Variable that holds a provider's key; those left out need none."""

FORMS = (
    f"a model is written publisher/model for NVIDIA NIM ({DEFAULT_MODEL}), openai:MODEL, "
    "anthropic:MODEL, google_genai:MODEL, ollama:MODEL or scripted:FILE.json"
)
"""What `--model` takes, in one line."""

_WORD = re.compile(r"[A-Za-z0-9][\w./:@+-]*")


class ModelName(Record):
    """Which model, and who serves it."""

    provider: Provider
    model: str
    """As the provider names it; for `scripted` the path of the file."""
    text: str
    """As the user wrote it."""

    def __str__(self) -> str:
        return self.text


class Fetched(NamedTuple):
    """The package that speaks to a provider."""

    package: str
    """As it is imported."""
    optional: bool
    """Comes with the extra `models` only."""


PACKAGES: dict[Provider, Fetched] = {
    "nvidia": Fetched("langchain_nvidia_ai_endpoints", optional=False),
    "openai": Fetched("langchain_openai", optional=True),
    "anthropic": Fetched("langchain_anthropic", optional=True),
    "google_genai": Fetched("langchain_google_genai", optional=True),
    "ollama": Fetched("langchain_ollama", optional=True),
}
"""`scripted` and `host` need none beyond langchain-core."""


def parse_model(text: str) -> ModelName:
    """The model that `text` names.

    `publisher/model` with no provider in front is served by NVIDIA: a NIM serves models of other
    publishers too. `nvidia:NAME` is for a NIM of one's own whose model has no publisher.

    Raises InputError in one line that shows the forms.
    """
    stripped = text.strip()
    head, colon, rest = stripped.partition(":")
    if colon and "/" not in head:
        for provider in get_args(Provider):
            if head == provider:
                return _checked(provider, rest.strip(), stripped)
        raise InputError(f"unknown model provider {head!r}; {FORMS}")
    if "/" not in stripped:
        raise InputError(f"{stripped!r} names no model; {FORMS}")
    return _checked("nvidia", stripped, stripped)


def _checked(provider: Provider, model: str, text: str) -> ModelName:
    known = bool(model) if provider == "scripted" else bool(_WORD.fullmatch(model))
    if not known:
        raise InputError(f"{text!r} names no model; {FORMS}")
    return ModelName(provider=provider, model=model, text=text)
