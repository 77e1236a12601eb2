"""Asking a model within one run: the journal and the accounts around every question."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, messages_from_dict
from langchain_core.messages.base import message_to_dict
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from cudaops.domain.model_use import ModelCall, ModelRole, ModelUse
from cudaops.models.asking import FAILED, Asking, Course, Result
from cudaops.models.backoff import Backoff
from cudaops.models.budget import Budget
from cudaops.models.build import ModelAccess, Timeouts, build_model, request_options
from cudaops.models.journal import CallEntry, Journal, question_key
from cudaops.models.names import ModelName
from cudaops.models.scripted import ScriptedModel
from cudaops.models.usage import summary

OUTPUT_TOKENS: dict[ModelRole, int] = {
    "planner": 4096, "coder": 8192, "fixer": 8192, "reflector": 1024,
}  # fmt: skip
"""Most tokens of one answer, thoughts included. Chosen: a tiled kernel with its directives is some
2,000 tokens, and a reasoning model thinks as much again before it. ChatNVIDIA's own 1,024 cuts a
kernel in two."""

HOST_TIMEOUTS = Timeouts(first_token_s=900.0, total_s=900.0)
"""A host's answer comes in one piece, and a person may be asked first."""


class Answer(NamedTuple):
    """What a model said, and what that took."""

    text: str
    """Without thoughts."""
    tool_calls: tuple[ToolCall, ...]
    """Each with an id. Arguments that were no JSON: see `streaming.MALFORMED`."""
    call: ModelCall
    message: AIMessage
    """The same for the dialogue, with what the provider wants to see again."""


class _Asked(NamedTuple):
    """A question as the journal knows it."""

    scope: str
    key: str
    sent: dict[str, Any]
    at: datetime
    begun: float
    """By the caller's clock."""


class Caller:
    """Asks one model in one run. For one event loop; several questions may be under way at once."""

    def __init__(
        self,
        model: BaseChatModel,
        name: ModelName,
        access: ModelAccess,
        *,
        budget: Budget | None = None,
        journal: Journal | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What the journal holds already counts towards the budget and the totals."""
        self.name = name
        self.budget = budget or Budget()
        self._access = access
        self._journal = journal
        self._clock = clock
        self._asking = Asking(model, name, access, self.budget, backoff or Backoff())
        self._calls: list[ModelCall] = list(journal.calls) if journal else []
        for call in self._calls:
            self.budget.count(call.tokens)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """Every call of the run, those from before it was resumed included; oldest first."""
        return tuple(self._calls)

    def use(self, fell_back: str | None = None) -> ModelUse:
        """What the run's calls took so far."""
        return summary(
            self._calls, model=self.name.text, price=self.budget.price, fell_back=fell_back
        )

    async def ask(
        self,
        role: ModelRole,
        messages: Sequence[BaseMessage],
        *,
        scope: str,
        tools: Sequence[dict[str, Any] | BaseTool] = (),
        max_output_tokens: int | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """The model's answer, from the journal where this was answered before.

        Args:
            role: Who asks.
            messages: The dialogue so far.
            scope: Iteration and branch, for the journal.
            tools: What the model may call. A model that refuses tools is asked without.
            max_output_tokens: Of one piece; None: `OUTPUT_TOKENS` of the role.
            on_text: Is given the answer's text as it comes; pieces of a try that fails as well.

        Raises ModelUnavailable where no answer comes, BudgetSpent where a limit forbids to ask.
        """
        limit = max_output_tokens or OUTPUT_TOKENS[role]
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        sent = {
            "model": self.name.text,
            "messages": [_written(m) for m in messages],
            "tools": schemas,
            "options": request_options(self.name, self._access, limit),
        }
        asked = _Asked(scope, question_key(sent), sent, datetime.now(UTC), self._clock())
        known = self._journal.recall(scope, asked.key) if self._journal else None
        if known is not None:
            return _recalled(known)
        course = Course(role, list(messages), schemas, limit, on_text)
        try:
            result = await self._asking.pursue(course)
        except BaseException:  # cancelled ones have cost something too
            if course.tries:
                self._finished(asked, course, FAILED)
            raise
        return self._finished(asked, course, result)

    def _finished(self, asked: _Asked, course: Course, result: Result) -> Answer:
        """The answer with its accounts, written down before anybody uses it."""
        call = ModelCall(
            scope=asked.scope,
            role=course.role,
            model=self.name.text,
            key=asked.key,
            started=asked.at.isoformat(),
            seconds=self._clock() - asked.begun,
            tokens=course.tokens,
            cost_usd=self.budget.cost_usd(course.tokens),
            tries=course.tries,
            outcome=result.outcome,
            problem="; ".join(course.problems) or None,
        )
        self._calls.append(call)
        message = result.piece.message
        answer = Answer(result.text, result.piece.tool_calls, call, message)
        if self._journal:
            entry = CallEntry(
                call=call,
                messages=tuple(asked.sent["messages"]),
                tools=tuple(asked.sent["tools"]),
                options=asked.sent["options"],
                answer=answer.text,
                tool_calls=tuple(_plain(c) for c in answer.tool_calls),
                message=message_to_dict(message),
            )
            self._journal.record(entry)
        return answer


def connect(
    name: ModelName,
    access: ModelAccess,
    *,
    budget: Budget | None = None,
    journal: Journal | None = None,
    backoff: Backoff | None = None,
) -> Caller:
    """A caller for the model of this name. Opens no connection; raises what `build_model` does."""
    model = build_model(name, access)
    if name.provider == "host":
        access = replace(access, timeouts=HOST_TIMEOUTS)
    if isinstance(model, ScriptedModel) and journal is not None:
        # A script has no memory of its own: it goes on behind what the journal holds.
        model.skip(sum(call.tries for call in journal.calls))
    return Caller(model, name, access, budget=budget, journal=journal, backoff=backoff)


def _written(message: BaseMessage) -> dict[str, Any]:
    """A message as the journal keeps it."""
    written: dict[str, Any] = {"role": message.type, "content": message.content}
    if calls := getattr(message, "tool_calls", None):
        written["tool_calls"] = [_plain(call) for call in calls]
    if answered := getattr(message, "tool_call_id", None):
        written["tool_call_id"] = answered
    return written


def _plain(call: ToolCall) -> dict[str, Any]:
    return {"name": call["name"], "args": call["args"], "id": call["id"]}


def _recalled(entry: CallEntry) -> Answer:
    calls = tuple(
        ToolCall(name=c["name"], args=c["args"], id=c["id"], type="tool_call")
        for c in entry.tool_calls
    )
    message = AIMessage(entry.answer, tool_calls=list(calls))
    if entry.message:
        read = messages_from_dict([entry.message])[0]
        message = read if isinstance(read, AIMessage) else message
    return Answer(entry.answer, calls, entry.call, message)
