"""One request to a model: streamed, put together, its tokens counted, its thoughts told apart; and
an answer that was cut off made one text again with its continuation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import add_ai_message_chunks, add_usage
from langchain_core.runnables import RunnableConfig

from cudaops.domain.model_use import TokenCount
from cudaops.models.clients import Timeouts, in_the_words_of
from cudaops.models.names import Provider

MALFORMED = "malformed_json"
"""Name of the one argument of a tool call whose arguments could not be read; its value is the text.
The tool then refuses it in words that the model understands."""

_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length"}

_WRITTEN = ("cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Tokens written to a provider's cache, as LangChain calls them; the first is 0 where one of the
others is not (langchain-anthropic 1.7.7)."""

_OWN_FIELDS = {"reasoning_content", "reasoning", "_reasoning_api_fields", "tool_calls"}
"""Of `additional_kwargs`: what a later request must not send back."""

CONTINUE = (
    "Your answer was cut off at the limit of its length. Continue exactly where it stopped: begin "
    "with the very next character, repeat nothing, open no new code fence inside an open one, and "
    "write no introduction."
)
"""Asks for the rest."""

LEAST_OVERLAP = 16
"""Characters that end one piece and begin the next before they count as repeated. Chosen: a closing
brace and its line break occur twice rightly, a whole statement hardly ever does."""

LONGEST_OVERLAP = 2000
"""Characters of a repetition looked for."""

_RESTART = 60
"""Characters that a continuation shares with the answer's beginning where it starts over."""

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:[^\n`~]{0,120}:[ \t]*\n\s*)?(?:```|~~~)([\w+#.-]*)[ \t]*\n")
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


class StreamCut(ConnectionError):
    """The stream ended before the end of the answer."""


@dataclass
class StreamedAnswer:
    """What one request brought, whether or not it came to its end."""

    text: str = ""
    """As it came, thoughts in <think> included."""
    reasoning: str = ""
    """Thoughts that came in a field of their own."""
    message: AIMessage = field(default_factory=lambda: AIMessage(""))
    """The answer as the provider's client wants it back in a dialogue, thoughts left out; its tool
    calls each with an id."""
    ended: str | None = None
    """The provider's word for why it stopped: `stop`, `length`, `tool_calls`."""
    usage: TokenCount | None = None
    """None: the provider did not say."""
    begun: bool = False
    """At least one piece came: the prompt was read."""

    @property
    def answer(self) -> str:
        """The text without thoughts; empty where nothing visible is in it."""
        said = without_thinking(self.text).strip("\n")
        return said if said.strip() else ""

    @property
    def cut_off(self) -> bool:
        """It stopped at the limit of its length."""
        return (self.ended or "").lower() in _CUT_OFF


async def send(
    model: BaseChatModel,
    provider: Provider,
    timeouts: Timeouts,
    messages: Sequence[BaseMessage],
    tools: Sequence[dict[str, Any]],
    config: RunnableConfig,
    options: dict[str, Any],
    received: list[AIMessage],
) -> None:
    """Ask, and put what comes into `received`, which holds it even where this raises.

    Raises TimeoutError, StreamCut or whatever the provider's client raises.
    """
    dialogue = in_the_words_of(provider, messages)
    asked = model.bind_tools(tools) if tools else model
    stream = asked.astream(dialogue, config, **options)
    async with asyncio.timeout(timeouts.total_s), aclosing(cast("Any", stream)):
        while True:
            async with asyncio.timeout(timeouts.first_token_s):
                chunk = await anext(stream, None)
            if chunk is None:
                break
            received.append(chunk)
    if provider in ("nvidia", "openai") and not any(_ended(c) for c in received):
        raise StreamCut("the answer ended without a finish reason")


def put_together(received: Sequence[AIMessage], provider: Provider) -> StreamedAnswer:
    """The chunks of one request as one answer."""
    text = "".join(str(chunk.text) for chunk in received)
    whole = _merged(received)
    kept = {k: v for k, v in whole.additional_kwargs.items() if k not in _OWN_FIELDS}
    # Providers that answer in blocks want theirs back, with the marks that they put on them.
    blocks = whole.content if isinstance(whole.content, list) else None
    content = without_thinking(text).strip("\n") if blocks is None else blocks
    return StreamedAnswer(
        text=text,
        reasoning=_reasoning(whole, text),
        message=AIMessage(content, additional_kwargs=kept, tool_calls=_tool_calls(whole)),
        ended=next(filter(None, map(_ended, reversed(received))), None),
        usage=_usage(received, provider),
        begun=bool(received),
    )


def without_thinking(text: str) -> str:
    """The answer alone.

    A closing mark with no opening one ends thoughts that the chat template had begun; an opening
    one with no end means that the answer was cut off in mid-thought.
    """
    if "think>" not in text:
        return text
    return _THOUGHTS.sub("", text).rpartition("</think>")[2].partition("<think>")[0]


def join(text: str, rest: str) -> str:
    """`text` with its continuation, what was said twice left out.

    A continuation that starts over replaces what it repeats, if it got at least as far. Within a
    fence, one that opens it again goes: a fence with a language does; a bare one closes, unless
    fences come in pairs after it.
    """
    if not text:
        return rest
    begun = text.lstrip()[:_RESTART]
    if len(begun) == _RESTART and rest.lstrip().startswith(begun):
        return rest if len(rest) >= len(text) else text
    if len(_FENCE.findall(text)) % 2 == 1:
        opened = _OPENING.match(rest)
        if opened and (opened[1] or len(_FENCE.findall(rest)) % 2 == 0):
            rest = rest[opened.end() :]
    longest = min(len(text), len(rest), LONGEST_OVERLAP)
    overlaps = (n for n in range(longest, LEAST_OVERLAP - 1, -1) if text.endswith(rest[:n]))
    return text + rest[next(overlaps, 0) :]


def _merged(received: Sequence[AIMessage]) -> AIMessage:
    chunks = [chunk for chunk in received if isinstance(chunk, AIMessageChunk)]
    if not chunks:  # a model that cannot stream gives one whole message
        return received[-1] if received else AIMessage("")
    try:
        return add_ai_message_chunks(chunks[0], *chunks[1:])
    except (TypeError, ValueError):  # fields that cannot be merged: text and calls are enough
        plain = [
            AIMessageChunk(content=str(c.text), tool_call_chunks=c.tool_call_chunks) for c in chunks
        ]
        return add_ai_message_chunks(plain[0], *plain[1:])


def _usage(received: Sequence[AIMessage], provider: Provider) -> TokenCount | None:
    """LangChain's chunks add up; NVIDIA's client hands on each total as the server says it."""
    said = [
        c.usage_metadata for c in received if c.usage_metadata and c.usage_metadata["total_tokens"]
    ]
    if not said:
        return None
    total = said[-1] if provider == "nvidia" else reduce(add_usage, said)
    details = total.get("input_token_details") or {}
    read, tokens = details.get("cache_read"), total["input_tokens"]
    written = [n for name in _WRITTEN if isinstance(n := details.get(name), int)]
    return TokenCount(
        input_tokens=tokens,
        cached_input_tokens=None if read is None else min(read, tokens),
        cache_write_tokens=min(sum(written), tokens - (read or 0)) if written else None,
        output_tokens=total["output_tokens"],
    )


def _tool_calls(message: AIMessage) -> list[ToolCall]:
    """Calls in order, each with an id; those that cannot be read carry their text."""
    calls = [(c["name"], c["args"], c["id"]) for c in message.tool_calls]
    calls += [
        (c["name"] or "unknown", {MALFORMED: c["args"] or ""}, c["id"])
        for c in message.invalid_tool_calls
    ]
    return [
        ToolCall(name=name, args=args, id=id_ or f"call-{number}", type="tool_call")
        for number, (name, args, id_) in enumerate(calls, start=1)
    ]


def _reasoning(whole: AIMessage, text: str) -> str:
    said = whole.additional_kwargs.get("reasoning_content")
    if isinstance(said, str):
        return "" if "think>" in text else said
    blocks = [b for b in whole.content if isinstance(b, dict)]
    return "".join(str(b.get("thinking") or b.get("reasoning") or "") for b in blocks)


def _ended(chunk: AIMessage) -> str | None:
    metadata = chunk.response_metadata
    for key in ("finish_reason", "stop_reason", "done_reason"):
        if metadata.get(key):
            return str(metadata[key])
    if metadata.get("status") in ("incomplete", "completed"):  # OpenAI's Responses API
        details = metadata.get("incomplete_details") or {}
        return str(details.get("reason") or "stop")
    return None
