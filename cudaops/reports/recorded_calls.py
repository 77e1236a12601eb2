"""Questions to the model, and results of tools in between, as the run's journal keeps them.

One file each, `state/calls/NNNN-role.json` and `NNNN-tool.json`; what they hold is fixed in
`cudaops.models.journal`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from cudaops.domain.model_use import ModelCall

WITHHELD = "withheld_characters"
"""In place of a message's text where a recording was made portable without prompts."""
_GONE = re.compile(r"withheld: (\d{1,9}) characters")
"""The same in place of a tool's result, which must stay a text."""


class Message(NamedTuple):
    """One message of a prompt."""

    role: str
    """`system`, `human`, `ai`, `tool`."""
    characters: int
    text: str | None
    """None where the recording was made without prompts."""


class RecordedCall(NamedTuple):
    """What the model was asked, and what it answered."""

    number: int
    """Position in the journal, as in the file's name."""
    call: ModelCall
    messages: tuple[Message, ...]
    answer: str
    tool_calls: tuple[str, ...]
    """Tools it asked for instead of, or beside, an answer: name and arguments."""
    entry: dict[str, Any]
    """As it stands in the file."""

    @property
    def scope(self) -> str:
        """Iteration and branch that asked."""
        return self.call.scope


class RecordedTool(NamedTuple):
    """What a tool told the model while it was answering."""

    number: int
    """Position in the journal."""
    scope: str
    """Iteration and branch that asked."""
    tool: str
    characters: int
    """Length of the result."""
    result: str | None
    """None where the recording was made without prompts."""
    entry: dict[str, Any]
    """As it stands in the file."""


def read_entry(name: str, entry: dict[str, Any]) -> RecordedCall | RecordedTool:
    """What a file of the journal holds. Raises pydantic's ValidationError where that is nothing."""
    number = int(name.partition("-")[0])
    if "tool" in entry and "call" not in entry:
        result = _text(entry.get("result"))
        gone = _GONE.fullmatch(result)
        return RecordedTool(
            number=number,
            scope=str(entry.get("scope", "")),
            tool=str(entry["tool"]),
            characters=int(gone.group(1)) if gone else len(result),
            result=None if gone else result,
            entry=entry,
        )
    messages, asked = entry.get("messages"), entry.get("tool_calls")
    return RecordedCall(
        number=number,
        call=ModelCall.model_validate(entry.get("call")),
        messages=tuple(map(_message, messages)) if isinstance(messages, list) else (),
        answer=_text(entry.get("answer")),
        tool_calls=tuple(map(_tool_call, asked)) if isinstance(asked, list) else (),
        entry=entry,
    )


def without_prompt(recorded: RecordedCall | RecordedTool) -> dict[str, Any]:
    """The entry with lengths in place of what the model was sent; its answer stays."""
    if isinstance(recorded, RecordedTool):
        gone = f"withheld: {recorded.characters} characters"
        return {**recorded.entry, "arguments": {}, "result": gone}
    kept = [{"role": m.role, WITHHELD: m.characters} for m in recorded.messages]
    # `message` is the answer once more, with the model's thoughts.
    left_out: dict[str, Any] = {"tools": [], "message": {}}
    return {**recorded.entry, **left_out, "messages": kept}


def _message(raw: Any) -> Message:
    fields = raw if isinstance(raw, dict) else {"content": raw}
    role = str(fields.get("role", "unknown"))
    withheld = fields.get(WITHHELD)
    if isinstance(withheld, int):
        return Message(role, withheld, None)
    text = _text(fields.get("content"))
    calls = fields.get("tool_calls")
    if isinstance(calls, list) and calls:
        text = "\n".join([text, *map(_tool_call, calls)]).strip()
    return Message(role, len(text), text)


def _text(content: Any) -> str:
    """What a message says: its text, or the texts of its parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    if isinstance(content, list):
        return "".join(map(_text, content))
    return json.dumps(content, ensure_ascii=False)


def _tool_call(raw: Any) -> str:
    if not isinstance(raw, dict):
        return _text(raw)
    return f"{raw.get('name', 'unknown')} {json.dumps(raw.get('args', {}), ensure_ascii=False)}"
