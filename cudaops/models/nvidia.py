"""ChatNVIDIA as we need it: nothing from the environment, no telemetry, HTTP answers seen."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from cudaops.errors import InputError
from cudaops.models.failures import HttpAnswer

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_nvidia_ai_endpoints import ChatNVIDIA


class _Seen(HttpAnswer):
    response: Any = None
    """aiohttp's, to be closed where the client forgets to: after an answer it cannot read."""


_seen: ContextVar[_Seen | None] = ContextVar("seen", default=None)

_NOISE = (
    "Reasoning content was parsed from <think> tags",
    "Model '.*' is not known to support tools",
)
"""Warnings of the client about what `cudaops.models.caller` handles."""


def build_nvidia(model: str, *, api_key: str, base_url: str, timeout_s: float) -> ChatNVIDIA:
    """A client for one model on one NIM.

    The constructor would ask the hosted endpoint for its list of models where it does not know the
    id; such an id is made known first, so that no connection is opened.

    Raises InputError where `base_url` is no address of a NIM.
    """
    from langchain_nvidia_ai_endpoints import ChatNVIDIA, Model, register_model
    from langchain_nvidia_ai_endpoints._statics import determine_model

    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated or unlisted: the server has the last word
        if "//integrate.api.nvidia.com" in base_url and determine_model(model) is None:
            endpoint = f"{base_url.rstrip('/')}/chat/completions"
            register_model(
                Model(id=model, model_type="chat", client="ChatNVIDIA", endpoint=endpoint)
            )
        try:
            client = ChatNVIDIA(
                model=model,
                api_key=api_key,
                base_url=base_url,
                timeout=timeout_s,
                usage_telemetry_enabled=False,
            )
        except ValueError as error:
            raise InputError(
                "NVIDIA_BASE_URL must be the address of a NIM, http://HOST:PORT/v1, "
                "with no key and nothing after /v1"
            ) from error
    _watch(client)
    return client


def with_tool_calls(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
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
