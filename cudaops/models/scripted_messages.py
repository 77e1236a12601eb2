"""A scripted answer as LangChain's messages: whole, or in the pieces that a server streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk

from cudaops.models.script import Scripted, ScriptedToolCall

PIECE = 24
"""Characters a streamed piece: short enough to cut words, fences and numbers in two."""


def answer_message(answer: Scripted, model: str) -> AIMessage:
    """The answer in one message. Raises what NVIDIA's client raises where it has a status."""
    _raise_status(answer)
    return AIMessage(
        content=answer.text,
        tool_calls=[
            tool_call(name=call.name, args=call.arguments, id=call.id or f"call-{number}")
            for number, call in enumerate(answer.tool_calls, start=1)
        ],
        additional_kwargs=_reasoning(answer.reasoning),
        usage_metadata=_usage(answer),
        response_metadata=_ended(answer, model),
    )


def answer_chunks(answer: Scripted, model: str) -> Iterator[AIMessageChunk]:
    """The answer in pieces; the usage comes with the last. Raises as `answer_message` does."""
    _raise_status(answer)
    for piece in _pieces(answer.reasoning):
        yield AIMessageChunk(content="", additional_kwargs=_reasoning(piece))
    for piece in _pieces(answer.text):
        yield AIMessageChunk(content=piece)
    yield from _tool_chunks(answer.tool_calls)
    yield AIMessageChunk(content="", response_metadata=_ended(answer, model))
    yield AIMessageChunk(content="", usage_metadata=_usage(answer), chunk_position="last")


def _raise_status(answer: Scripted) -> None:
    if answer.status is not None:
        known = {status.value: status.phrase for status in HTTPStatus}
        title = known.get(answer.status, "Unknown Error")
        raise Exception(f"[{answer.status}] {title}\n{answer.text}".rstrip())


def _ended(answer: Scripted, model: str) -> dict[str, Any]:
    return {"finish_reason": answer.finish_reason, "model_name": model}


def _usage(answer: Scripted) -> UsageMetadata | None:
    if answer.input_tokens is None or answer.output_tokens is None:
        return None
    return UsageMetadata(
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        total_tokens=answer.input_tokens + answer.output_tokens,
        input_token_details=InputTokenDetails(cache_read=answer.cached_input_tokens),
    )


def _reasoning(text: str) -> dict[str, Any]:
    return {"reasoning_content": text} if text else {}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _tool_chunks(calls: Sequence[ScriptedToolCall]) -> Iterator[AIMessageChunk]:
    """Name and id first, the arguments' JSON after them in pieces, as servers send them."""
    for index, call in enumerate(calls):
        head = tool_call_chunk(
            name=call.name, args="", id=call.id or f"call-{index + 1}", index=index
        )
        yield AIMessageChunk(content="", tool_call_chunks=[head])
        for piece in _pieces(json.dumps(call.arguments)):
            chunk = tool_call_chunk(name=None, args=piece, id=None, index=index)
            yield AIMessageChunk(content="", tool_call_chunks=[chunk])
