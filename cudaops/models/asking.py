"""One question pursued to its end: tries, an answer that is empty, one that is cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from cudaops.domain.model_use import CallOutcome, ModelRole, TokenCount
from cudaops.errors import CudaOpsError
from cudaops.models.backoff import Backoff
from cudaops.models.budget import Budget, BudgetSpent
from cudaops.models.build import ModelAccess, request_options
from cudaops.models.estimate import least_tokens, most_prompt_tokens, most_tokens, prompt_text
from cudaops.models.failures import Failure, classify
from cudaops.models.joining import CONTINUE, join
from cudaops.models.names import ModelName
from cudaops.models.nvidia import http_answer
from cudaops.models.scripted import ROLE
from cudaops.models.streaming import Piece, Request
from cudaops.models.thinking import without_thinking

CONTINUATIONS = 3
"""Times an answer that was cut off is asked to go on: four pieces hold any kernel."""

EMPTY_AGAIN = "Your last answer was empty. Answer now, in the form that was asked for."

ROOM_TO_THINK = 2
"""Factor on the limit of tokens where thinking alone used it up."""

LEAST_OUTPUT_TOKENS = 1024
"""The limit of tokens is halved for a model whose context is too small, down to this."""


@dataclass
class Course:
    """One question on its way: what is asked, and everything that was taken for it so far."""

    role: ModelRole
    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    max_output_tokens: int
    on_text: Callable[[str], None] | None = None
    tokens: TokenCount = field(default_factory=TokenCount)
    tries: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Keep what went wrong, once."""
        if problem not in self.problems:
            self.problems.append(problem)


class Result(NamedTuple):
    """What came of a question."""

    text: str
    """Without thoughts."""
    piece: Piece
    """The last one; its tool calls are the answer's."""
    outcome: CallOutcome


FAILED = Result("", Piece(), "failed")


class Asking:
    """Puts questions to one model until they are answered, given up or no longer affordable."""

    def __init__(
        self,
        model: BaseChatModel,
        name: ModelName,
        access: ModelAccess,
        budget: Budget,
        backoff: Backoff,
    ) -> None:
        self._model = model
        self._name = name
        self._access = access
        self._budget = budget
        self._backoff = backoff
        self._takes_tools = True

    async def pursue(self, course: Course) -> Result:
        """The whole answer: an empty one asked for once more, one cut off continued.

        Raises ModelUnavailable, and BudgetSpent where not one request was allowed.
        """
        piece = await self._piece(course, course.messages)
        text = _answer_text(piece)
        if not text and not piece.tool_calls:
            course.note(_why_empty(piece, course))
            if piece.cut_off:
                course.max_output_tokens *= ROOM_TO_THINK
            try:
                piece = await self._piece(course, _nudged(course.messages, EMPTY_AGAIN))
            except BudgetSpent as stop:
                course.note(stop.problem)
            text = _answer_text(piece)
            if not text and not piece.tool_calls:
                return Result("", piece, "empty")
        if not piece.cut_off:
            return Result(text, piece, "answered")
        if piece.tool_calls:
            course.note("cut off within a tool call")
            return Result(text, piece, "cut_off")
        return await self._continued(course, without_thinking(piece.text).lstrip("\n"))

    async def _continued(self, course: Course, text: str) -> Result:
        course.note(f"cut off at {course.max_output_tokens} tokens")
        outcome: CallOutcome = "cut_off"
        for _ in range(CONTINUATIONS):
            dialogue = [*course.messages, AIMessage(text), HumanMessage(CONTINUE)]
            try:
                piece = await self._piece(course, dialogue)
            except BudgetSpent as stop:
                course.note(stop.problem)
                break
            text = join(text, without_thinking(piece.text))
            if not piece.cut_off:
                outcome = "answered"
                break
        text = text.strip("\n")
        return Result(text, Piece(text=text, message=AIMessage(text)), outcome)

    async def _piece(self, course: Course, messages: Sequence[BaseMessage]) -> Piece:
        """One request, sent again while that may help. Raises ModelUnavailable."""
        tried, waited_s = 0, 0.0
        while True:
            tried += 1
            failure, piece = await self._changed_until_taken(course, messages)
            if failure is None:
                return piece
            course.note(failure.problem)
            delay = self._backoff.delay_s(tried, failure)
            left_s = min(self._budget.remaining_s(), self._backoff.longest_wait_s - waited_s)
            if delay is None or delay >= left_s:
                raise failure.unavailable()
            self._backoff.announce(f"{failure.problem}; asking again in {delay:.0f} s")
            await self._backoff.sleep(delay)
            waited_s += delay

    async def _changed_until_taken(
        self, course: Course, messages: Sequence[BaseMessage]
    ) -> tuple[Failure | None, Piece]:
        """One request; where it is refused as such, the same with less asked of the model."""
        tools = course.tools if self._takes_tools else []
        failure, piece = await self._request(course, messages, tools)
        if failure is not None and failure.kind == "bad_request" and tools:
            course.note(f"asked without tools: {failure.problem}")
            failure, piece = await self._request(course, messages, [])
            self._takes_tools = failure is not None
        while (
            failure is not None
            and failure.kind == "too_long"
            and course.max_output_tokens // 2 >= LEAST_OUTPUT_TOKENS
        ):
            course.max_output_tokens //= 2
            course.note(f"asked for {course.max_output_tokens} tokens: {failure.problem}")
            tools = course.tools if self._takes_tools else []
            failure, piece = await self._request(course, messages, tools)
        return failure, piece

    async def _request(
        self, course: Course, messages: Sequence[BaseMessage], tools: list[dict[str, Any]]
    ) -> tuple[Failure | None, Piece]:
        """One request within the budget; what it took is counted however it ends."""
        prompt_most = most_prompt_tokens(messages, tools)
        options = request_options(self._name, self._access, course.max_output_tokens)
        request = Request(self._model, self._name.provider, self._access.timeouts, course.on_text)
        failure: Failure | None = None
        async with self._budget.request(
            most=TokenCount(input_tokens=prompt_most, output_tokens=course.max_output_tokens),
            least=TokenCount(input_tokens=least_tokens(prompt_text(messages, tools))),
        ) as ticket:
            course.tries += 1
            try:
                with http_answer() as seen:
                    await request.send(messages, tools, options, {ROLE: course.role})
            except CudaOpsError:
                raise
            except Exception as error:  # noqa: BLE001  clients raise whatever they like
                failure = classify(error, self._name, seen=seen, secrets=self._access.secrets)
            finally:
                ticket.spent = _taken(request.piece, prompt_most, failure)
                course.tokens += ticket.spent
        return failure, request.piece


def _taken(piece: Piece, prompt_most: int, failure: Failure | None) -> TokenCount:
    """Tokens of one request; our own upper bound where the provider did not say."""
    said = piece.usage
    if said and min(said.input_tokens, said.cached_input_tokens, said.output_tokens) >= 0:
        return said  # a negative count says nothing, and would give money back
    if not piece.begun and (failure is None or failure.kind != "timeout"):
        return TokenCount()  # refused, or never reached: nothing was read
    produced = piece.text + piece.reasoning + "".join(str(c["args"]) for c in piece.tool_calls)
    return TokenCount(input_tokens=prompt_most, output_tokens=most_tokens(produced), estimated=True)


def _answer_text(piece: Piece) -> str:
    text = without_thinking(piece.text).strip("\n")
    return text if text.strip() else ""


def _why_empty(piece: Piece, course: Course) -> str:
    if piece.cut_off:
        return f"thinking alone used up {course.max_output_tokens} tokens"
    stopped = f" ({piece.ended})" if piece.ended not in (None, "stop") else ""
    return f"an empty answer{stopped}"


def _nudged(messages: Sequence[BaseMessage], sentence: str) -> list[BaseMessage]:
    """The dialogue with one more sentence; some chat templates forbid two users in a row."""
    last = messages[-1]
    if isinstance(last, HumanMessage) and isinstance(last.content, str):
        return [*messages[:-1], HumanMessage(f"{last.content}\n\n{sentence}")]
    return [*messages, HumanMessage(sentence)]
