"""Asking a model within one run: a question pursued to its end (tries, an answer that is empty, one
that is cut off), with the journal and the accounts around it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    messages_from_dict,
)
from langchain_core.messages.base import message_to_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from cudaops.domain.model_use import CallOutcome, ModelCall, ModelRole, ModelUse, TokenCount
from cudaops.errors import CudaOpsError
from cudaops.models.budget import Budget, BudgetSpent
from cudaops.models.clients import (
    ModelAccess,
    Timeouts,
    build_model,
    http_answer,
    request_options,
)
from cudaops.models.failures import Backoff, Failure, classify
from cudaops.models.journal import CallEntry, Journal, question_key
from cudaops.models.names import ModelName
from cudaops.models.prices import summary
from cudaops.models.scripted import ROLE, ScriptedModel
from cudaops.models.streaming import (
    CONTINUE,
    StreamedAnswer,
    join,
    put_together,
    send,
    without_thinking,
)

OUTPUT_TOKENS: dict[ModelRole, int] = {
    "planner": 4096, "coder": 8192, "fixer": 8192, "reflector": 1024, "reasoner": 1024,
}  # fmt: skip
"""Most tokens of one answer, thoughts included. Chosen: a tiled kernel with its directives is some
2,000 tokens, and a reasoning model thinks as much again before it. ChatNVIDIA's own 1,024 cuts a
kernel in two."""

HOST_TIMEOUTS = Timeouts(first_token_s=900.0, total_s=900.0)
"""A host's answer comes in one piece, and a person may be asked first."""

CONTINUATIONS = 3
"""Times an answer that was cut off is asked to go on: four pieces hold any kernel."""

EMPTY_AGAIN = "Your last answer was empty. ModelAnswer now, in the requested form."

ROOM_TO_THINK = 2
"""Factor on the limit of tokens where thinking alone used it up."""

LEAST_OUTPUT_TOKENS = 1024
"""The limit of tokens is halved for a model whose context is too small, down to this."""

BYTES_PER_TOKEN_LEAST = 2.0
BYTES_PER_TOKEN_MOST = 8.0
"""For upper and lower bounds where nobody says how many tokens a text is. Measured 2026-11-20 with
the Llama 2 tokenizer in wordllama 0.4.0.post1 over 78 of our own CUDA, Python and Markdown files:
2.5 to 3.5 bytes a token; later vocabularies are larger, so their tokens are longer, up to twice
that on code full of blanks."""

TOKENS_PER_MESSAGE = 8
"""Marks around a message; 4 to 6 in the chat templates of Llama 3 and Nemotron. Chosen above."""


class ModelAnswer(NamedTuple):
    """A model's answer, with its tokens and time."""

    text: str
    """Without thoughts."""
    tool_calls: tuple[ToolCall, ...]
    """Each with an id. Arguments that were no JSON: see `streaming.MALFORMED`."""
    call: ModelCall
    message: AIMessage
    """The same for the dialogue, with what the provider wants to see again."""


class _Result(NamedTuple):
    """Result of a question."""

    text: str
    """Without thoughts."""
    message: AIMessage
    """Of the last piece; its tool calls are the answer's."""
    outcome: CallOutcome


@dataclass
class _Question:
    """One pending question: what is asked, and everything that was taken for it so far."""

    role: ModelRole
    scope: str
    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    max_output_tokens: int
    sent: dict[str, Any]
    """As the journal keeps it."""
    begun: float
    """By the caller's clock."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    tokens: TokenCount = field(default_factory=TokenCount)
    tries: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Keep what went wrong, once."""
        if problem not in self.problems:
            self.problems.append(problem)


class ModelCaller:
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
        self._model = model
        self._access = access
        self._journal = journal
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._takes_tools = True
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
    ) -> ModelAnswer:
        """The model's answer, from the journal where this was answered before.

        Args:
            role: Who asks.
            messages: The dialogue so far.
            scope: Iteration and branch, for the journal.
            tools: What the model may call. A model that refuses tools is asked without.
            max_output_tokens: Of one piece; None: `OUTPUT_TOKENS` of the role.

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
        known = self._journal.recall(scope, question_key(sent)) if self._journal else None
        if known is not None:
            return _recalled(known)
        asked = _Question(role, scope, list(messages), schemas, limit, sent, self._clock())
        try:
            result = await self._pursue(asked)
        except BaseException:  # cancelled ones have cost something too
            if asked.tries:
                self._finished(asked, _Result("", AIMessage(""), "failed"))
            raise
        return self._finished(asked, result)

    async def _pursue(self, asked: _Question) -> _Result:
        """The whole answer: an empty one asked for once more, one cut off continued.

        Raises ModelUnavailable, and BudgetSpent where not one request was allowed.
        """
        piece = await self._piece(asked, asked.messages)
        if not piece.answer and not piece.message.tool_calls:
            asked.note(_why_empty(piece, asked))
            if piece.cut_off:
                asked.max_output_tokens *= ROOM_TO_THINK
            try:
                piece = await self._piece(asked, _nudged(asked.messages, EMPTY_AGAIN))
            except BudgetSpent as stop:
                asked.note(stop.problem)
            if not piece.answer and not piece.message.tool_calls:
                return _Result("", piece.message, "empty")
        if not piece.cut_off:
            return _Result(piece.answer, piece.message, "answered")
        if piece.message.tool_calls:
            asked.note("cut off within a tool call")
            return _Result(piece.answer, piece.message, "cut_off")
        return await self._continued(asked, without_thinking(piece.text).lstrip("\n"))

    async def _continued(self, asked: _Question, text: str) -> _Result:
        asked.note(f"cut off at {asked.max_output_tokens} tokens")
        outcome: CallOutcome = "cut_off"
        for _ in range(CONTINUATIONS):
            dialogue = [*asked.messages, AIMessage(text), HumanMessage(CONTINUE)]
            try:
                piece = await self._piece(asked, dialogue)
            except BudgetSpent as stop:
                asked.note(stop.problem)
                break
            text = join(text, without_thinking(piece.text))
            if not piece.cut_off:
                outcome = "answered"
                break
        text = text.strip("\n")
        return _Result(text, AIMessage(text), outcome)

    async def _piece(self, asked: _Question, messages: Sequence[BaseMessage]) -> StreamedAnswer:
        """One request, sent again while that may help. Raises ModelUnavailable."""
        tried, waited_s = 0, 0.0
        while True:
            tried += 1
            failure, piece = await self._changed_until_taken(asked, messages)
            if failure is None:
                return piece
            asked.note(failure.problem)
            delay = self._backoff.delay_s(tried, failure)
            left_s = min(self.budget.remaining_s(), self._backoff.longest_wait_s - waited_s)
            if delay is None or delay >= left_s:
                raise failure.unavailable()
            self._backoff.announce(f"{failure.problem}; retrying in {delay:.0f} s")
            await self._backoff.sleep(delay)
            waited_s += delay

    async def _changed_until_taken(
        self, asked: _Question, messages: Sequence[BaseMessage]
    ) -> tuple[Failure | None, StreamedAnswer]:
        """One request; where it is refused as such, the same with less asked of the model."""
        tools = asked.tools if self._takes_tools else []
        failure, piece = await self._request(asked, messages, tools)
        if failure is not None and failure.kind == "bad_request" and tools:
            asked.note(f"called without tools: {failure.problem}")
            failure, piece = await self._request(asked, messages, [])
            self._takes_tools = failure is not None
        while (
            failure is not None
            and failure.kind == "too_long"
            and asked.max_output_tokens // 2 >= LEAST_OUTPUT_TOKENS
        ):
            asked.max_output_tokens //= 2
            asked.note(f"asked for {asked.max_output_tokens} tokens: {failure.problem}")
            tools = asked.tools if self._takes_tools else []
            failure, piece = await self._request(asked, messages, tools)
        return failure, piece

    async def _request(
        self, asked: _Question, messages: Sequence[BaseMessage], tools: list[dict[str, Any]]
    ) -> tuple[Failure | None, StreamedAnswer]:
        """One request within the budget; what it took is counted however it ends."""
        prompt = _prompt_text(messages, tools)
        prompt_most = _most_tokens(prompt) + TOKENS_PER_MESSAGE * len(messages)
        options = request_options(self.name, self._access, asked.max_output_tokens)
        provider, timeouts = self.name.provider, self._access.timeouts
        config = RunnableConfig(metadata={ROLE: asked.role})
        failure: Failure | None = None
        received: list[AIMessage] = []
        async with self.budget.request(
            most=TokenCount(input_tokens=prompt_most, output_tokens=asked.max_output_tokens),
            least=TokenCount(input_tokens=int(_bytes(prompt) / BYTES_PER_TOKEN_MOST)),
        ) as ticket:
            asked.tries += 1
            try:
                with http_answer() as seen:
                    await send(
                        self._model, provider, timeouts, messages, tools, config, options, received
                    )
            except CudaOpsError:
                raise
            except Exception as error:  # noqa: BLE001  clients raise whatever they like
                failure = classify(error, self.name, seen=seen, secrets=self._access.secrets)
            finally:
                piece = put_together(received, provider)
                ticket.spent = _taken(piece, prompt_most, failure)
                asked.tokens += ticket.spent
        return failure, piece

    def _finished(self, asked: _Question, result: _Result) -> ModelAnswer:
        """The answer with its accounts, written down before anybody uses it."""
        call = ModelCall(
            scope=asked.scope,
            role=asked.role,
            model=self.name.text,
            key=question_key(asked.sent),
            started=asked.at.isoformat(),
            seconds=self._clock() - asked.begun,
            tokens=asked.tokens,
            cost_usd=self.budget.cost_usd(asked.tokens),
            tries=asked.tries,
            outcome=result.outcome,
            problem="; ".join(asked.problems) or None,
        )
        self._calls.append(call)
        calls = tuple(result.message.tool_calls)
        if self._journal:
            entry = CallEntry(
                call=call,
                messages=tuple(asked.sent["messages"]),
                tools=tuple(asked.sent["tools"]),
                options=asked.sent["options"],
                answer=result.text,
                tool_calls=tuple(map(_plain, calls)),
                message=message_to_dict(result.message),
            )
            self._journal.record(entry)
        return ModelAnswer(result.text, calls, call, result.message)


def connect(
    name: ModelName,
    access: ModelAccess,
    *,
    budget: Budget | None = None,
    journal: Journal | None = None,
    backoff: Backoff | None = None,
) -> ModelCaller:
    """A caller for the model of this name. Opens no connection; raises what `build_model` does."""
    model = build_model(name, access)
    if name.provider == "host":
        access = replace(access, timeouts=HOST_TIMEOUTS)
    if isinstance(model, ScriptedModel) and journal is not None:
        # A script has no memory of its own: it goes on behind what the journal holds.
        model.skip(sum(call.tries for call in journal.calls))
    return ModelCaller(model, name, access, budget=budget, journal=journal, backoff=backoff)


def _taken(piece: StreamedAnswer, prompt_most: int, failure: Failure | None) -> TokenCount:
    """Tokens of one request; our own upper bound where the provider did not say."""
    said = piece.usage
    parts = (said.cached_input_tokens, said.cache_write_tokens) if said else ()
    if said and min(said.input_tokens, said.output_tokens, *(part or 0 for part in parts)) >= 0:
        return said  # a negative count says nothing, and would give money back
    if not piece.begun and (failure is None or failure.kind != "timeout"):
        return TokenCount()  # refused, or never reached: nothing was read
    produced = piece.text + piece.reasoning
    produced += "".join(str(call["args"]) for call in piece.message.tool_calls)
    output = _most_tokens(produced)
    return TokenCount(input_tokens=prompt_most, output_tokens=output, estimated=True)


def _most_tokens(text: str) -> int:
    """Upper bound for a text in source code or English."""
    return math.ceil(_bytes(text) / BYTES_PER_TOKEN_LEAST)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _prompt_text(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> str:
    """Everything that the model reads, as one text."""
    parts = [
        m.content if isinstance(m.content, str) else json.dumps(m.content, default=str)
        for m in messages
    ]
    parts += [json.dumps(calls) for m in messages if (calls := getattr(m, "tool_calls", None))]
    return "\n".join([*parts, *map(json.dumps, tools)])


def _why_empty(piece: StreamedAnswer, asked: _Question) -> str:
    if piece.cut_off:
        return f"reasoning alone used up {asked.max_output_tokens} tokens"
    stopped = f" ({piece.ended})" if piece.ended not in (None, "stop") else ""
    return f"an empty answer{stopped}"


def _nudged(messages: Sequence[BaseMessage], sentence: str) -> list[BaseMessage]:
    """The dialogue with one more sentence; some chat templates forbid two users in a row."""
    last = messages[-1]
    if isinstance(last, HumanMessage) and isinstance(last.content, str):
        return [*messages[:-1], HumanMessage(f"{last.content}\n\n{sentence}")]
    return [*messages, HumanMessage(sentence)]


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


def _recalled(entry: CallEntry) -> ModelAnswer:
    calls = tuple(
        ToolCall(name=c["name"], args=c["args"], id=c["id"], type="tool_call")
        for c in entry.tool_calls
    )
    message = AIMessage(entry.answer, tool_calls=list(calls))
    if entry.message:
        read = messages_from_dict([entry.message])[0]
        message = read if isinstance(read, AIMessage) else message
    return ModelAnswer(entry.answer, calls, entry.call, message)
