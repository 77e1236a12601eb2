"""One question to a model with the tools it may use before it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from cudaops.agents.tools import Toolbox
from cudaops.domain.model_use import ModelRole
from cudaops.models.caller import Caller
from cudaops.models.journal import Journal
from cudaops.prompts.text import fenced
from cudaops.sandbox.ledger import LEDGER

TOOLS = {
    "knowledge": ("search_knowledge", "read_note", "read_expert_note"),
    "profiler": ("explain_metric",),
    "sandbox": ("compile_rewrite",),
}
"""What a model may call while it writes, by server. Nothing here times or judges: what a candidate
is worth is found out after the answer."""

TOOL_CALLS = 4
"""Calls a model may make before one answer. Chosen: a search, a note and two compiles; what it
does not know then it will not find by asking more."""

TOOL_CHARACTERS = 4000
"""Longest result a model is shown, some 1,000 tokens: five such results fit beside a prompt."""

NO_MORE = "No further tool call is possible. Give the complete answer now, in the form asked for."


class Said(NamedTuple):
    """A model's answer and the dialogue that led to it, to go on from."""

    text: str
    messages: tuple[BaseMessage, ...]


class Conversation:
    """Asks one model in one run. Tool results are journalled as answers are, so that a run that is
    resumed says the same things again and pays for none of them."""

    def __init__(
        self, caller: Caller, toolbox: Toolbox, journal: Journal, say: Callable[[str], None]
    ) -> None:
        self._caller = caller
        self._toolbox = toolbox
        self._journal = journal
        self._say = say
        self._schemas: tuple[dict[str, Any], ...] | None = None

    async def ask(
        self,
        role: ModelRole,
        messages: Sequence[BaseMessage],
        scope: str,
        *,
        with_tools: bool = False,
    ) -> Said:
        """The model's answer, after at most `TOOL_CALLS` calls of tools.

        Raises ModelUnavailable where no answer comes or no money is left.
        """
        dialogue = list(messages)
        schemas = await self._tools() if with_tools else ()
        left = TOOL_CALLS if with_tools else 0
        while True:
            with LEDGER.working("the model"):
                answer = await self._caller.ask(
                    role, dialogue, scope=scope, tools=schemas if left else ()
                )
            if not answer.tool_calls or not left:
                return Said(answer.text, (*dialogue, AIMessage(answer.text)))
            dialogue.append(answer.message)
            for call in answer.tool_calls:
                text = NO_MORE
                if left:
                    left -= 1
                    text = fenced(await self.tool(scope, call["name"], call["args"]))
                dialogue.append(ToolMessage(text, tool_call_id=call["id"] or call["name"]))
            if not left:
                dialogue.append(HumanMessage(NO_MORE))

    async def tool(self, scope: str, name: str, arguments: dict[str, Any]) -> str:
        """The result of a tool as a model sees it, from the journal where it was called before."""
        known = self._journal.recall_tool(scope, name, arguments)
        if known is not None:
            return known
        server = next((server for server, names in TOOLS.items() if name in names), None)
        if server is None:
            offered = ", ".join(name for names in TOOLS.values() for name in names)
            return f"there is no tool {name!r}; there are {offered}"
        self._say(f"the model calls {name} {_short(arguments)}")
        result = await self._toolbox.ask(server, name, arguments)
        text = ("refused: " if result.failed else "") + result.text
        if len(text) > TOOL_CHARACTERS:
            text = text[:TOOL_CHARACTERS] + f"\n(cut after {TOOL_CHARACTERS} characters)"
        self._journal.record_tool(scope, name, arguments, text)
        return text

    async def _tools(self) -> tuple[dict[str, Any], ...]:
        if self._schemas is None:
            self._schemas = await self._toolbox.schemas(TOOLS)
        return self._schemas


def opening(system: str, user: str) -> tuple[BaseMessage, ...]:
    """The start of a dialogue."""
    return (SystemMessage(system), HumanMessage(user))


def _short(arguments: dict[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
