"""The model of the host that called us: a chat model that asks back over MCP sampling.

The host chooses the model, pays for it and may show its user what is asked. It says nothing of
tokens, so those are estimated; it is given none of our tools.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from cudaops.errors import ModelUnavailable
from cudaops.models.names import ModelName

GONE = "the host whose model was used has disconnected"
REMEDY = "call optimize_kernel with optimizer=host again, or continue without a model"


class Turn(NamedTuple):
    """One message of a dialogue."""

    role: Literal["user", "assistant"]
    text: str


class HostQuestion(NamedTuple):
    """What the host's model is asked."""

    system: str
    turns: tuple[Turn, ...]
    max_tokens: int


class HostAnswer(NamedTuple):
    """What it said."""

    text: str
    model: str
    """As the host calls it."""
    cut_off: bool
    """It stopped at the limit of its length."""


AskHost = Callable[[HostQuestion], "Future[HostAnswer]"]
"""Sends a question from any thread; cancelling the future takes it back. It raises ModelUnavailable
where the host refuses."""


class HostModel(BaseChatModel):
    """A LangChain chat model that forwards every question to the host."""

    ask: AskHost = Field(repr=False)
    client: str
    """The host's name, as it says itself."""

    @property
    def name_text(self) -> str:
        """`host:NAME`, as records have it."""
        name = re.sub(r"[^\w./:@+-]+", "-", self.client).strip("-.:/@+_")
        return f"host:{name or 'unnamed'}"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The same model: a host's sampling is asked in text alone."""
        return self

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        question = _question(messages, int(kwargs.get("max_tokens") or 8192))
        answer = await asyncio.wrap_future(self.ask(question))
        message = AIMessage(
            answer.text,
            response_metadata={
                "model_name": answer.model,
                "finish_reason": "length" if answer.cut_off else "stop",
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return asyncio.run(self._agenerate(messages, stop, None, **kwargs))

    @property
    def _llm_type(self) -> str:
        return "host"


def _question(messages: list[BaseMessage], max_tokens: int) -> HostQuestion:
    system = "\n\n".join(m.text for m in messages if isinstance(m, SystemMessage))
    turns = tuple(
        Turn("assistant" if isinstance(m, AIMessage) else "user", str(m.text))
        for m in messages
        if not isinstance(m, SystemMessage)
    )
    return HostQuestion(system, turns, max_tokens)


_LENT: ContextVar[HostModel | None] = ContextVar("cudaops_host_model", default=None)


@contextmanager
def lending(model: HostModel | None) -> Iterator[None]:
    """Let runs that are started inside find the host's model under its name."""
    token = _LENT.set(model)
    try:
        yield
    finally:
        _LENT.reset(token)


def sampling_model_of_host(name: ModelName) -> HostModel:
    """The host's model. Raises ModelUnavailable where nobody lends one of this name: a run that is
    resumed later, or a name somebody typed."""
    model = _LENT.get()
    if model is None or model.name_text != name.text:
        raise ModelUnavailable(GONE, REMEDY)
    return model
