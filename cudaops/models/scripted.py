"""ScriptedModel: a chat model that gives answers written down beforehand.

For tests, demonstrations and replays. It is a LangChain chat model like any other: it streams,
takes tools, reports tokens, fails as NVIDIA's client fails, and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from cudaops.errors import CudaOpsError, InputError, ModelUnavailable
from cudaops.models.recorded import recorded_script
from cudaops.models.script import Matching, Script, Scripted, ScriptedToolCall, read_script
from cudaops.models.scripted_messages import answer_chunks, answer_message

__all__ = ["ROLE", "Request", "Scripted", "ScriptedModel", "ScriptedToolCall"]

ROLE = "cudaops_role"
"""Key of a call's `config["metadata"]` that says which role asks. Clients never send it."""

_SHOWN = 300
"""Characters of a prompt's end that an error shows."""


@dataclass(frozen=True)
class Request:
    """What the model was asked once."""

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...]
    """In OpenAI's form."""
    role: str | None
    """None where the caller did not say."""
    options: dict[str, Any]
    """Whatever else came with the call: `max_tokens`, `stop`."""

    @property
    def text(self) -> str:
        """All messages, one after the other."""
        return "\n".join(message.text for message in self.messages)


class ScriptedModel(BaseChatModel):
    """Gives the script's answers, one a request; `tests/nim` does the same over HTTP.

    A request that no answer fits raises InputError, one line that says what was asked and what was
    expected. Past the end it raises ModelUnavailable: a run goes on with recipes then. Not for
    several event loops or threads at once.
    """

    answers: tuple[Scripted, ...] = Field(repr=False)
    order: Matching = "strict"
    repeat_last: bool = False
    """Past the end: give the last answer that fits once more."""
    model: str = "scripted"
    """Name in errors and in `response_metadata`."""

    _requests: list[Request] = PrivateAttr(default_factory=list)
    _unused: list[int] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        """Every answer is still to come."""
        super().model_post_init(context)
        self._unused = list(range(len(self.answers)))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The script of a JSON file (docs/language-models.md). Raises InputError."""
        return cls._of(read_script(path), f"scripted:{path}")

    @classmethod
    def from_journal(cls, folder: Path) -> Self:
        """The answers that a run's journal of calls holds. Raises InputError."""
        return cls._of(recorded_script(folder), f"scripted:{folder}")

    @classmethod
    def _of(cls, script: Script, model: str) -> Self:
        return cls(
            answers=script.answers,
            order=script.order,
            repeat_last=script.repeat_last,
            model=model,
        )

    @property
    def requests(self) -> tuple[Request, ...]:
        """Everything asked so far, what was answered with an error included."""
        return tuple(self._requests)

    @property
    def left(self) -> int:
        """Answers not yet given."""
        return len(self._unused)

    def skip(self, count: int) -> None:
        """Count the next `count` answers as given: a resumed run has them in its journal."""
        del self._unused[:count]

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The same model; its requests then carry these tools."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=[convert_to_openai_tool(t) for t in tools], **choice, **kwargs)

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """As any chat model's; LangChain does not hand `config` on to `_astream`."""
        async for chunk in super().astream(input, config, stop=stop, **_with_role(config, kwargs)):
            yield chunk

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """As any chat model's."""
        yield from super().stream(input, config, stop=stop, **_with_role(config, kwargs))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._take(messages, stop, run_manager, kwargs)
        await asyncio.sleep(answer.seconds)
        for chunk in answer_chunks(answer, self.model):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._take(messages, stop, run_manager, kwargs)
        time.sleep(answer.seconds)
        for chunk in answer_chunks(answer, self.model):
            yield ChatGenerationChunk(message=chunk)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._take(messages, stop, run_manager, kwargs)
        await asyncio.sleep(answer.seconds)
        return _result(answer, self.model)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._take(messages, stop, run_manager, kwargs)
        time.sleep(answer.seconds)
        return _result(answer, self.model)

    def _take(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        run_manager: AsyncCallbackManagerForLLMRun | CallbackManagerForLLMRun | None,
        kwargs: dict[str, Any],
    ) -> Scripted:
        options = {**kwargs, **({} if stop is None else {"stop": stop})}
        role = options.pop(ROLE, None)
        if role is None and run_manager is not None:
            role = run_manager.metadata.get(ROLE)
        request = Request(tuple(messages), tuple(options.pop("tools", ())), role, options)
        self._requests.append(request)
        return self.answers[self._choose(request)]

    def _choose(self, request: Request) -> int:
        wanted = self._unused if self.order == "any" else self._unused[:1]
        for index in wanted:
            if _misfit(self.answers[index], request) is None:
                self._unused.remove(index)
                return index
        if self.repeat_last and (self.order == "any" or not self._unused):
            for index in reversed(range(len(self.answers))):
                if _misfit(self.answers[index], request) is None:
                    return index
        raise self._refusal(request)

    def _refusal(self, request: Request) -> CudaOpsError:
        total, asked = len(self.answers), f"asked was {_shown(request)}"
        if not self._unused:
            problem = f"{self.model} has given all of its answers ({total}); {asked}"
            return ModelUnavailable(problem, "add answers to the script, or set `repeat_last`")
        if self.order == "any":
            fault = f"none of the {len(self._unused)} answers left of {total} is for this request"
        else:
            index = self._unused[0]
            fault = f"answer {index + 1} of {total} is for {_misfit(self.answers[index], request)}"
        return InputError(f"{self.model}: {fault}; {asked}")

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "answers": len(self.answers)}


def _result(answer: Scripted, model: str) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=answer_message(answer, model))])


def _with_role(config: RunnableConfig | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    role = ((config or {}).get("metadata") or {}).get(ROLE)
    return kwargs if role is None else {**kwargs, ROLE: role}


def _misfit(answer: Scripted, request: Request) -> str | None:
    """What the answer expects of a request that this one is not; None where it fits."""
    if answer.role is not None and request.role != answer.role:
        return f"the role {answer.role}"
    missing = [phrase for phrase in answer.phrases if phrase not in request.text]
    return f"a prompt that holds {missing[0]!r}" if missing else None


def _shown(request: Request) -> str:
    text = request.messages[-1].text if request.messages else ""
    said = "no role" if request.role is None else f"the role {request.role}"
    return f"{said}, with a prompt that ends in {text[-_SHOWN:]!r}"
