"""One request to a model: streamed, put together, its tokens counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks, add_usage

from cudaops.domain.model_use import TokenCount
from cudaops.models.build import Timeouts
from cudaops.models.names import Provider
from cudaops.models.nvidia import with_tool_calls
from cudaops.models.thinking import VisibleText, without_thinking

MALFORMED = "malformed_json"
"""Name of the one argument of a tool call whose arguments could not be read; its value is the text.
The tool then refuses it in words that the model understands."""

_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length"}

_OWN_FIELDS = {"reasoning_content", "reasoning", "_reasoning_api_fields", "tool_calls"}
"""Of `additional_kwargs`: what a later request must not send back."""


class StreamCut(ConnectionError):
    """The stream ended, and nothing said that the answer had."""


@dataclass
class Piece:
    """What one request brought, whether or not it came to its end."""

    text: str = ""
    """As it came, thoughts in <think> included."""
    reasoning: str = ""
    """Thoughts that came in a field of their own."""
    tool_calls: tuple[ToolCall, ...] = ()
    message: AIMessage = field(default_factory=lambda: AIMessage(""))
    """The answer as the provider's client wants it back in a dialogue, thoughts left out."""
    ended: str | None = None
    """The provider's word for why it stopped: `stop`, `length`, `tool_calls`."""
    usage: TokenCount | None = None
    """None: the provider did not say."""
    begun: bool = False
    """At least one piece came: the prompt was read."""

    @property
    def cut_off(self) -> bool:
        """It stopped at the limit of its length."""
        return (self.ended or "").lower() in _CUT_OFF


class Request:
    """One request; `piece` holds what came even where `send` raises."""

    def __init__(
        self,
        model: BaseChatModel,
        provider: Provider,
        timeouts: Timeouts,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._model = model
        self._provider = provider
        self._timeouts = timeouts
        self._show = on_text
        self._chunks: list[AIMessageChunk] = []
        self._said: UsageMetadata | None = None
        self.piece = Piece()

    async def send(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[dict[str, Any]],
        options: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Piece:
        """Ask, and take the answer in.

        Raises TimeoutError, StreamCut or whatever the provider's client raises.
        """
        dialogue = with_tool_calls(messages) if self._provider == "nvidia" else list(messages)
        asked = self._model.bind_tools(tools) if tools else self._model
        stream = cast(
            "AsyncIterator[AIMessageChunk]",
            asked.astream(dialogue, {"metadata": metadata}, **options),
        )
        async with asyncio.timeout(self._timeouts.total_s):
            await self._take_in(stream)
        self._put_together()
        if self.piece.ended is None and self._provider in ("nvidia", "openai"):
            raise StreamCut("the answer ended without a finish reason")
        return self.piece

    async def _take_in(self, stream: AsyncIterator[AIMessageChunk]) -> None:
        visible = VisibleText()
        async with aclosing(cast("Any", stream)):
            while True:
                async with asyncio.timeout(self._timeouts.first_token_s):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                self._add(chunk)
                if self._show and (shown := visible.feed(str(chunk.text))):
                    self._show(shown)
        if self._show and (shown := visible.rest()):
            self._show(shown)

    def _add(self, chunk: AIMessage) -> None:
        piece = self.piece
        piece.begun = True
        piece.text += str(chunk.text)
        piece.reasoning += _reasoning(chunk)
        piece.ended = _ended(chunk.response_metadata) or piece.ended
        if chunk.usage_metadata and chunk.usage_metadata["total_tokens"]:
            piece.usage = self._usage(chunk.usage_metadata)
        if isinstance(chunk, AIMessageChunk):
            self._chunks.append(chunk)
        else:  # a model that cannot stream gives one whole message
            piece.tool_calls = _tool_calls(chunk)
            piece.message = _for_dialogue(chunk, piece)

    def _usage(self, said: UsageMetadata) -> TokenCount:
        """LangChain's chunks add up; NVIDIA's client hands on each total as the server says it."""
        if self._said is not None and self._provider != "nvidia":
            said = add_usage(self._said, said)
        self._said = said
        details = said.get("input_token_details") or {}
        return TokenCount(
            input_tokens=said["input_tokens"],
            cached_input_tokens=min(details.get("cache_read") or 0, said["input_tokens"]),
            output_tokens=said["output_tokens"],
        )

    def _put_together(self) -> None:
        if not self._chunks:
            return
        calls = [
            AIMessageChunk(content="", tool_call_chunks=c.tool_call_chunks) for c in self._chunks
        ]
        self.piece.tool_calls = _tool_calls(add_ai_message_chunks(calls[0], *calls[1:]))
        try:
            whole: AIMessage = add_ai_message_chunks(self._chunks[0], *self._chunks[1:])
        except TypeError:  # fields of two chunks that cannot be merged: the text is enough
            whole = AIMessage(self.piece.text)
        self.piece.message = _for_dialogue(whole, self.piece)


def _tool_calls(message: AIMessage) -> tuple[ToolCall, ...]:
    """Calls in order, each with an id; those that cannot be read carry their text."""
    calls = [
        ToolCall(name=c["name"], args=c["args"], id=c["id"], type="tool_call")
        for c in message.tool_calls
    ]
    calls += [
        ToolCall(
            name=c["name"] or "unknown",
            args={MALFORMED: c["args"] or ""},
            id=c["id"],
            type="tool_call",
        )
        for c in message.invalid_tool_calls
    ]
    for number, call in enumerate(calls, start=1):
        call["id"] = call["id"] or f"call-{number}"
    return tuple(calls)


def _for_dialogue(message: AIMessage, piece: Piece) -> AIMessage:
    """Providers that answer in blocks want theirs back, with the marks that they put on them."""
    kept = {k: v for k, v in message.additional_kwargs.items() if k not in _OWN_FIELDS}
    answer = without_thinking(piece.text).strip("\n")
    content = message.content if isinstance(message.content, list) else answer
    return AIMessage(content, additional_kwargs=kept, tool_calls=list(piece.tool_calls))


def _reasoning(chunk: AIMessage) -> str:
    said = chunk.additional_kwargs.get("reasoning_content")
    if isinstance(said, str):
        return "" if "think>" in str(chunk.text) else said
    if isinstance(chunk.content, str):
        return ""
    blocks = [b for b in chunk.content if isinstance(b, dict)]
    return "".join(str(b.get("thinking") or b.get("reasoning") or "") for b in blocks)


def _ended(metadata: dict[str, Any]) -> str | None:
    for key in ("finish_reason", "stop_reason", "done_reason"):
        if metadata.get(key):
            return str(metadata[key])
    if metadata.get("status") in ("incomplete", "completed"):  # OpenAI's Responses API
        details = metadata.get("incomplete_details") or {}
        return str(details.get("reason") or "stop")
    return None
