"""Models from names: clients that are told their key and address and look nothing up themselves.

ChatNVIDIA as we need it as well: nothing from the environment, no telemetry, HTTP answers seen.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudaops.domain.base import Record
from cudaops.errors import InputError, ModelUnavailable, PrerequisiteError
from cudaops.models.failures import HttpAnswer
from cudaops.models.names import (
    KEY_VARIABLES,
    PACKAGES,
    URL_VARIABLE,
    ModelName,
    Provider,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage
    from langchain_nvidia_ai_endpoints import ChatNVIDIA

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


SAMPLING = {"temperature": 0.2, "top_p": 0.95}
"""Low: code that compiles matters more than variety, which comes from the hypotheses."""

NEMOTRON_3_SAMPLING = {"temperature": 1.0, "top_p": 0.95}
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
        from cudaops.models.mcp_sampling import sampling_model_of_host

        return sampling_model_of_host(name)
    if name.provider == "nvidia":
        return _build_nvidia(name.model, access)
    return _build_other(name, access)


def request_options(name: ModelName, access: ModelAccess, max_output_tokens: int) -> dict[str, Any]:
    """Keyword arguments of one request, in the words of the provider's client.

    The present models of OpenAI and Anthropic refuse temperature and top_p (platform.claude.com,
    Claude Sonnet 5; docs.litellm.ai, GPT-6; both read 2026-11-20), so those get neither.
    """
    drawn = NEMOTRON_3_SAMPLING if "nemotron-3" in name.model.lower() else SAMPLING
    if name.provider == "google_genai":
        return {"max_output_tokens": max_output_tokens}
    if name.provider == "ollama":
        return {"options": {"num_predict": max_output_tokens, **drawn}}
    if name.provider == "nvidia" or (name.provider == "openai" and access.base_url):
        return {"max_tokens": max_output_tokens, **drawn}
    return {"max_tokens": max_output_tokens}


def _require_parts(name: ModelName, access: ModelAccess) -> None:
    provider = name.provider
    if provider == "scripted":
        if not Path(name.model).is_file():
            raise InputError(f"{name.model} is not a file of scripted answers")
        return
    if provider == "host":
        return
    wanted = PACKAGES[provider]
    parts = (wanted.package, "langchain") if wanted.optional else (wanted.package,)
    for package in parts:
        if importlib.util.find_spec(package) is None:
            raise PrerequisiteError(f"{name} needs the Python package {package}", INSTALL)
    variable = KEY_VARIABLES.get(provider)
    if variable and not access.key(provider) and not access.own_server(provider):
        raise ModelUnavailable(f"no key for {name}", f"set {variable}{_or_server(provider)}")


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


class _Seen(HttpAnswer):
    response: Any = None
    """aiohttp's, to be closed where the client forgets to: after an answer it cannot read."""


_seen: ContextVar[_Seen | None] = ContextVar("seen", default=None)

_NOISE = (
    "Reasoning content was parsed from <think> tags",
    "Model '.*' is not known to support tools",
)
"""Warnings of the client about what `cudaops.models.caller` handles."""


def _build_nvidia(model: str, access: ModelAccess) -> ChatNVIDIA:
    """A client for one model on one NIM.

    The constructor would ask the hosted endpoint for its list of models where it does not know the
    id; such an id is made known first, so that no connection is opened.

    Raises InputError where the address is no address of a NIM.
    """
    from langchain_nvidia_ai_endpoints import ChatNVIDIA, Model, register_model
    from langchain_nvidia_ai_endpoints._statics import determine_model

    base_url = access.nvidia_base_url or OFFICIAL_URLS["nvidia"]
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated or unlisted: the server decides
        if "//integrate.api.nvidia.com" in base_url and determine_model(model) is None:
            endpoint = f"{base_url.rstrip('/')}/chat/completions"
            register_model(
                Model(id=model, model_type="chat", client="ChatNVIDIA", endpoint=endpoint)
            )
        try:
            client = ChatNVIDIA(
                model=model,
                api_key=access.key("nvidia") or NO_KEY,
                base_url=base_url,
                timeout=access.timeouts.first_token_s,
                usage_telemetry_enabled=False,
            )
        except ValueError as error:
            raise InputError(
                "NVIDIA_BASE_URL must be the address of a NIM, http://HOST:PORT/v1, "
                "with no key and nothing after /v1"
            ) from error
    _watch(client)
    return client


def in_the_words_of(provider: Provider, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The dialogue as this provider's client must be given it to send all of it."""
    if provider == "nvidia":
        return _with_tool_calls(messages)
    return _with_cache_mark(messages) if provider == "anthropic" else list(messages)


def _with_cache_mark(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The dialogue with its system message marked as the end of a prefix to be cached.

    Anthropic caches what is marked and nothing else; tools come before the system message in its
    prefix. It holds for five minutes from its last use; a prefix below the model's least length
    (1,024 tokens and more) is not cached, and no error.
    """
    from langchain_core.messages import SystemMessage

    first = messages[0] if messages else None
    if not isinstance(first, SystemMessage) or not first.text:
        return list(messages)
    block = {"type": "text", "text": str(first.text), "cache_control": {"type": "ephemeral"}}
    return [SystemMessage([block]), *messages[1:]]


def _with_tool_calls(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The dialogue with its tool calls where the client looks for them.

    ChatNVIDIA 1.5.0 sends those in `additional_kwargs` only, in OpenAI's form, and drops
    `AIMessage.tool_calls`; the server then refuses the results that follow.
    """
    from langchain_core.messages import AIMessage

    ready: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            calls = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
                }
                for call in message.tool_calls
            ]
            known = {**message.additional_kwargs, "tool_calls": calls}
            message = message.model_copy(update={"additional_kwargs": known})
        ready.append(message)
    return ready


@contextmanager
def http_answer() -> Iterator[HttpAnswer]:
    """What NVIDIA's server answers while the block runs, in this task only.

    The client keeps neither Retry-After nor the status of an error page that is no JSON.
    """
    answer = _Seen()
    token = _seen.set(answer)
    try:
        yield answer
    finally:
        _seen.reset(token)
        if answer.response is not None:
            answer.response.close()


def _watch(client: ChatNVIDIA) -> None:
    """Has every HTTP session of the client report to `http_answer`."""
    sessions = client._async_client
    open_session = sessions.get_async_session_fn

    def watched() -> Any:
        import aiohttp

        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(_report)
        session = open_session()
        trace.freeze()
        session.trace_configs.append(trace)
        return session

    sessions.get_async_session_fn = watched


async def _report(session: Any, context: Any, ended: Any) -> None:
    answer = _seen.get()
    if answer is not None:
        answer.response = ended.response
        answer.status = ended.response.status
        answer.retry_after = ended.response.headers.get("Retry-After")
