"""How many tokens a text is, where nobody says: bounds by its length.

Measured 2026-11-20 with the Llama 2 tokenizer in wordllama 0.4.0.post1 over 78 of our own CUDA,
Python and Markdown files: 2.5 to 3.5 bytes a token. Later vocabularies are larger, so their tokens
are longer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

BYTES_PER_TOKEN_LEAST = 2.0
"""For upper bounds: shorter than the shortest mean that was measured."""

BYTES_PER_TOKEN_MOST = 8.0
"""For lower bounds: twice the longest mean of a present vocabulary on code full of blanks."""

TOKENS_PER_MESSAGE = 8
"""Marks around a message; 4 to 6 in the chat templates of Llama 3 and Nemotron. Chosen above."""


def most_tokens(text: str) -> int:
    """Upper bound for a text in source code or English."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN_LEAST)


def least_tokens(text: str) -> int:
    """Lower bound for the same."""
    return int(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN_MOST)


def prompt_text(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> str:
    """Everything that the model reads, as one text."""
    parts = [_content(message.content) for message in messages]
    parts += [json.dumps(calls) for m in messages if (calls := getattr(m, "tool_calls", None))]
    parts += [json.dumps(tool) for tool in tools]
    return "\n".join(parts)


def most_prompt_tokens(
    messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()
) -> int:
    """Upper bound for a prompt with its tools."""
    return most_tokens(prompt_text(messages, tools)) + TOKENS_PER_MESSAGE * len(messages)


def _content(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content, default=str)
