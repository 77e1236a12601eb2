"""Models from names: clients that are told their key and address and look nothing up themselves."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudaops.domain.base import Record
from cudaops.errors import InputError, ModelUnavailable, PrerequisiteError
from cudaops.models.names import (
    KEY_VARIABLES,
    PACKAGES,
    URL_VARIABLE,
    ModelName,
    Provider,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

INSTALL = "pip install 'cudaops[models]'"
"""Brings the clients of every provider but NVIDIA, whose client is always there."""

NO_KEY = "no-key"
"""Sent where a server of one's own wants none. A client that is given no key takes one from the
environment, or refuses."""

OFFICIAL_URLS: dict[Provider, str] = {
    "nvidia": "https://integrate.api.nvidia.com/v1",
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
"""Given explicitly, so that no variable that we do not document leads a key elsewhere. Source: the
defaults of langchain-nvidia-ai-endpoints 1.5.0, openai 3.52.0 and anthropic 2.11.0."""


class Timeouts(Record):
    """How long to wait for one request, in seconds."""

    first_token_s: float = 120.0
    """Until the first piece of an answer; also between two pieces. A cold NIM loads its model."""
    total_s: float = 900.0
    """Until the last piece: 16,384 tokens, the most that is asked for, at 20 a second are 820 s."""


class Sampling(Record):
    """How an answer is drawn; None leaves a parameter to the server."""

    temperature: float | None = 0.2
    """Low: code that compiles matters more than variety, which comes from the hypotheses."""
    top_p: float | None = 0.95
    seed: int | None = None


NEMOTRON_3_SAMPLING = Sampling(temperature=1.0, top_p=0.95)
"""Nemotron 3 thinks before it answers and is to be drawn so for all tasks. Source: model card of
NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4 on Hugging Face, read 2026-11-20."""


@dataclass(frozen=True, kw_only=True)
class ModelAccess:
    """Addresses and keys: what the environment says, handed on by an entry point."""

    nvidia_api_key: str | None = field(default=None, repr=False)
    nvidia_base_url: str | None = None
    """A NIM of one's own; None: NVIDIA's hosted one."""
    base_url: str | None = None
    """An OpenAI-compatible server, or an Ollama that is not on this machine."""
    api_keys: Mapping[Provider, str] = field(default_factory=dict, repr=False)
    """By provider, NVIDIA aside."""
    timeouts: Timeouts = field(default_factory=Timeouts)

    def key(self, provider: Provider) -> str | None:
        """The provider's key, if there is one."""
        found = self.nvidia_api_key if provider == "nvidia" else self.api_keys.get(provider)
        return found or None

    def own_server(self, provider: Provider) -> bool:
        """Somebody runs the model himself: no key is needed and no price is known."""
        if provider == "nvidia":
            return bool(self.nvidia_base_url)
        return provider == "ollama" or (provider == "openai" and bool(self.base_url))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every key, to be kept out of messages and files."""
        return tuple(k for k in (self.nvidia_api_key, *self.api_keys.values()) if k)


def available(name: ModelName, access: ModelAccess) -> str | None:
    """Why the model cannot be asked, in one line; None where nothing speaks against it.

    Looks at no network: a wrong id or a refused key shows at the first question only.
    """
    try:
        _require_parts(name, access)
    except (ModelUnavailable, PrerequisiteError, InputError) as error:
        return str(error)
    return None


def build_model(name: ModelName, access: ModelAccess) -> BaseChatModel:
    """The chat model, with no connection opened.

    Raises ModelUnavailable where its key is missing, PrerequisiteError where its package is, and
    InputError where an address or a script cannot be used.
    """
    _require_parts(name, access)
    if name.provider == "scripted":
        from cudaops.models.scripted import ScriptedModel

        return ScriptedModel.from_file(Path(name.model))
    if name.provider == "host":
        return _lent(name)
    if name.provider == "nvidia":
        from cudaops.models.nvidia import build_nvidia

        return build_nvidia(
            name.model,
            api_key=access.key("nvidia") or NO_KEY,
            base_url=access.nvidia_base_url or OFFICIAL_URLS["nvidia"],
            timeout_s=access.timeouts.first_token_s,
        )
    return _build_other(name, access)


def request_options(
    name: ModelName, access: ModelAccess, max_output_tokens: int, sampling: Sampling | None = None
) -> dict[str, Any]:
    """Keyword arguments of one request, in the words of the provider's client.

    The present models of OpenAI and Anthropic refuse temperature and top_p (platform.claude.com,
    Claude Sonnet 5; docs.litellm.ai, GPT-6; both read 2026-11-20), so those get neither.
    """
    drawn = (sampling or default_sampling(name)).model_dump(exclude_none=True)
    if name.provider == "google_genai":
        return {"max_output_tokens": max_output_tokens}
    if name.provider == "ollama":
        return {"options": {"num_predict": max_output_tokens, **drawn}}
    if name.provider == "nvidia" or (name.provider == "openai" and access.base_url):
        return {"max_tokens": max_output_tokens, **drawn}
    return {"max_tokens": max_output_tokens}


def default_sampling(name: ModelName) -> Sampling:
    """The model maker's advice where there is some."""
    return NEMOTRON_3_SAMPLING if "nemotron-3" in name.model.lower() else Sampling()


def _require_parts(name: ModelName, access: ModelAccess) -> None:
    provider = name.provider
    if provider == "scripted":
        if not Path(name.model).is_file():
            raise InputError(f"{name.model} is no file of scripted answers")
        return
    if provider == "host":
        _lent(name)
        return
    wanted = PACKAGES[provider]
    parts = (wanted.package, "langchain") if wanted.optional else (wanted.package,)
    for package in parts:
        if importlib.util.find_spec(package) is None:
            raise PrerequisiteError(f"{name} needs the Python package {package}", INSTALL)
    variable = KEY_VARIABLES.get(provider)
    if variable and not access.key(provider) and not access.own_server(provider):
        raise ModelUnavailable(f"no key for {name}", f"set {variable}{_or_server(provider)}")


def _lent(name: ModelName) -> BaseChatModel:
    from cudaops.models.host import lent

    return lent(name)


def _or_server(provider: Provider) -> str:
    if provider == "nvidia":
        return ", or NVIDIA_BASE_URL to a NIM of your own"
    return f", or {URL_VARIABLE} to a server of your own" if provider == "openai" else ""


def _build_other(name: ModelName, access: ModelAccess) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    provider = name.provider
    own = access.own_server(provider)
    told: dict[str, Any] = {"model_provider": provider}
    if provider == "ollama":
        told["client_kwargs"] = {"timeout": access.timeouts.first_token_s}
    else:
        told |= {
            "api_key": access.key(provider) or NO_KEY,
            "timeout": access.timeouts.first_token_s,
            "max_retries": 0 if provider != "google_genai" else 1,  # there 1 means no second try
        }
    if url := (access.base_url if own else None) or OFFICIAL_URLS.get(provider):
        told["base_url"] = url
    if provider == "openai":
        told["stream_usage"] = True
        if own:
            told["use_responses_api"] = False
    try:
        built: BaseChatModel = init_chat_model(name.model, **told)
    except ImportError as error:
        raise PrerequisiteError(f"{name} cannot be loaded: {error}", INSTALL) from error
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{name} cannot be set up: {reason}") from error
    return built
