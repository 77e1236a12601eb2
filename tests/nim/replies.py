"""What the server can be told to answer, and how an answer is worded in NIM's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

from cudaops.models.scripted import Scripted, ScriptedToolCall

Fault = Literal["hang", "stall", "cut", "cut_silently", "malformed", "stream_error", "no_events"]
"""hang: no byte comes. stall: half of the answer comes, then nothing more. cut: the connection
ends in mid-answer, against its framing. cut_silently: the same where nothing frames the answer.
malformed: JSON that ends too early. stream_error: an error object in the stream. no_events: a
stream that ends before it began."""


class Usage(NamedTuple):
    """Tokens that the server says it used."""

    prompt: int
    completion: int
    cached: int | None = 0
    """None: the server says nothing of a cache."""


class Reply(NamedTuple):
    """One answer to /v1/chat/completions."""

    text: str = ""
    status: int = 200
    retry_after: str | None = None
    """Value of the header of that name."""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    finish_reason: str = "stop"
    reasoning: str = ""
    """Sent as `reasoning_content`."""
    usage: Usage | Literal["counted"] | None = "counted"
    """counted: four characters a token. None: the server leaves it out."""
    fault: Fault | None = None
    wait_s: float = 0.0
    """Before the first byte."""
    when: tuple[str, ...] = ()
    """Text that the prompt must hold; the server answers 422 where it does not."""

    @classmethod
    def from_script(cls, answer: Scripted) -> Reply:
        """A script's answer over HTTP. Its `role` is not looked at: clients do not send it."""
        usage = Usage(
            answer.input_tokens or 0, answer.output_tokens or 0, answer.cached_input_tokens
        )
        return cls(
            text=answer.text,
            status=answer.status or 200,
            tool_calls=answer.tool_calls,
            finish_reason=answer.finish_reason,
            reasoning=answer.reasoning,
            usage=None if answer.input_tokens is None else usage,
            wait_s=answer.seconds,
            when=answer.phrases,
        )


class Asked(NamedTuple):
    """One request as it came."""

    path: str
    body: dict[str, Any]
    authorization: str | None

    @property
    def prompt(self) -> str:
        """All messages of a chat, one after the other."""
        return "\n".join(str(message.get("content") or "") for message in self.messages)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of a chat."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


def error_body(status: int, detail: str) -> tuple[str, bytes]:
    """Content type and body of an error, as NVIDIA's gateway, NIM and proxies word it."""
    title = HTTPStatus(status).phrase
    if status in (502, 503, 504):
        page = f"<html><head><title>{status} {title}</title></head><body>nginx</body></html>"
        return "text/html", page.encode()
    if status in (400, 404, 422):
        said = {"object": "error", "message": detail or title, "type": title, "code": status}
        return "application/json", json.dumps(said).encode()
    problem = {"status": status, "title": title, "detail": detail or title}
    return "application/problem+json", json.dumps(problem).encode()


def completion(reply: Reply, asked: Asked) -> dict[str, Any]:
    """The body of an answer that comes at once."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            _tool_call(index, call, json.dumps(call.arguments))
            for index, call in enumerate(reply.tool_calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    body = {**_envelope("chat.completion", asked), "choices": [choice]}
    counted = _usage(reply, asked)
    return body if counted is None else {**body, "usage": counted}


def events(reply: Reply, asked: Asked) -> Iterator[dict[str, Any]]:
    """The same as a stream: role, text in pieces, tool calls, finish reason, usage."""
    envelope = _envelope("chat.completion.chunk", asked)

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**envelope, "choices": [choice]}

    yield event({"role": "assistant", "content": ""})
    yield from (event({"reasoning_content": piece}) for piece in _pieces(reply.reasoning))
    yield from (event({"content": piece}) for piece in _pieces(reply.text))
    for index, call in enumerate(reply.tool_calls):
        yield event({"tool_calls": [_tool_call(index, call, "")]})
        for piece in _pieces(json.dumps(call.arguments)):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, reply.finish_reason)
    counted = _usage(reply, asked)
    if counted is not None and (asked.body.get("stream_options") or {}).get("include_usage"):
        yield {**envelope, "choices": [], "usage": counted}


def _envelope(kind: str, asked: Asked) -> dict[str, Any]:
    return {"id": "chat-1", "object": kind, "created": 1, "model": asked.body["model"]}


def _tool_call(index: int, call: ScriptedToolCall, arguments: str) -> dict[str, Any]:
    return {
        "index": index,
        "id": call.id or f"call-{index + 1}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _usage(reply: Reply, asked: Asked) -> dict[str, Any] | None:
    if reply.usage is None:
        return None
    if reply.usage == "counted":
        usage = Usage(len(asked.prompt) // 4 + 1, len(reply.text) // 4 + 1)
    else:
        usage = reply.usage
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
    if usage.cached is not None:
        told["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return told


def _pieces(text: str, length: int = 24) -> Iterator[str]:
    return (text[start : start + length] for start in range(0, len(text), length))
