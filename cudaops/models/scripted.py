"""ScriptedModel: a chat model that gives answers written down beforehand; its scripts, and how they
are read from files and from the journals of recorded runs.

For tests, demonstrations and replays. It is a LangChain chat model like any other: it streams,
takes tools, reports tokens, fails as NVIDIA's client fails, and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Self, get_args

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import (
    BaseChatModel,
    agenerate_from_stream,
    generate_from_stream,
)
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from cudaops.domain.base import Record
from cudaops.domain.model_use import ModelRole
from cudaops.errors import CudaOpsError, InputError, ModelUnavailable
from cudaops.models.journal import CallEntry

FORMAT = 1
"""Value of `cudaops_script` in the files that this version reads."""

ROLE = "cudaops_role"
"""Key of a call's `config["metadata"]` that says which role asks. Clients never send it."""

PIECE = 24
"""Characters a streamed piece: short enough to cut words, fences and numbers in two."""

_SHOWN = 300
"""Characters of a prompt's end that an error shows."""
_CALL = re.compile(rf"\d+-({'|'.join(get_args(ModelRole))})\.json")

_CLOSED = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@checked_dataclass(frozen=True, config=_CLOSED)
class ScriptedToolCall:
    """A tool that the model asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    """None: `call-1`, `call-2` within the answer."""


@checked_dataclass(frozen=True, config=_CLOSED)
class Scripted:
    """One answer, and which prompt it is for."""

    text: str = ""
    """What the model says; may be empty."""
    input_tokens: int | None = Field(default=None, ge=0)
    """None, together with `output_tokens`: the provider says nothing about tokens."""
    output_tokens: int | None = Field(default=None, ge=0)
    cached_input_tokens: int | None = Field(default=0, ge=0)
    """Part of `input_tokens` that the provider's cache served; null: it said nothing of one."""
    finish_reason: str = "stop"
    """`length`: the answer was cut off at the limit of output tokens."""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    reasoning: str = ""
    """What a reasoning model thinks beside its answer, as `reasoning_content`."""
    status: int | None = Field(default=None, ge=400, le=599)
    """Instead of an answer, an HTTP error with this status, worded as NVIDIA's client words it;
    `text` is its detail."""
    seconds: float = Field(default=0.0, ge=0)
    """Wait before the first token."""
    role: ModelRole | None = None
    """The answer is only for a request of this role; None: for any."""
    when: str | tuple[str, ...] = ()
    """Text that the prompt must hold, to the letter; several: all of them."""

    @model_validator(mode="after")
    def _tokens_agree(self) -> Self:
        if (self.input_tokens is None) != (self.output_tokens is None):
            raise ValueError("give input_tokens and output_tokens, or neither")
        if (self.cached_input_tokens or 0) > (self.input_tokens or 0):
            raise ValueError("cached_input_tokens is part of input_tokens: it cannot be more")
        return self

    @property
    def phrases(self) -> tuple[str, ...]:
        """`when` as a tuple."""
        return (self.when,) if isinstance(self.when, str) else self.when


Matching = Literal["strict", "any"]
"""strict: each request gets the next answer, which must fit. any: it gets the first answer not yet
given that fits; for requests made at the same time, whose order nobody can foretell."""


class Script(Record):
    """A dialogue in full."""

    answers: tuple[Scripted, ...]
    order: Matching = "strict"
    repeat_last: bool = False
    """Past the end: give the last answer that fits once more, instead of an error."""
    about: str = ""
    """For people."""


def read_script(path: Path) -> Script:
    """Read a script from a JSON file; docs/language-models.md describes it.

    Raises InputError, one line, where the file cannot be read or does not hold a script.
    """
    where = f"script {path}"
    with _told(where):
        written = json.loads(path.read_text("utf-8"))
    if not isinstance(written, dict):
        raise InputError(f"{where}: the file must hold one JSON object")
    if written.pop("cudaops_script", None) != FORMAT:
        raise InputError(f'{where}: it must hold "cudaops_script": {FORMAT}')
    answers = written.get("answers")
    if not isinstance(answers, list) or not answers:
        raise InputError(f"{where}: `answers` must be a list with at least one answer")
    read = tuple(
        _read_answer(answer, path.parent, f"{where}, answer {number}")
        for number, answer in enumerate(answers, start=1)
    )
    with _told(where):
        return Script.model_validate({**written, "answers": read})


_ANSWER = TypeAdapter(Scripted)


def _read_answer(written: object, folder: Path, where: str) -> Scripted:
    if not isinstance(written, dict):
        raise InputError(f"{where}: an answer is an object")
    fields = dict(written)
    if "file" in fields:
        if "text" in fields:
            raise InputError(f"{where}: give `text` or `file`, not both")
        fields["text"] = _read_text(str(fields.pop("file")), folder, where)
    elif isinstance(fields.get("text"), list):
        fields["text"] = "\n".join(map(str, fields["text"]))
    with _told(where):
        return _ANSWER.validate_python(fields)


def _read_text(name: str, folder: Path, where: str) -> str:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{where}: `file` {name!r} is outside the script's folder")
    with _told(f"{where}: `file` {name!r}"):
        return path.read_text("utf-8")


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What cannot be read within is a user's mistake, in one line with its place."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where} cannot be read: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = "".join(f"{part}." for part in fault["loc"]).rstrip(".")
        raise InputError(f"{where}: {place}{': ' if place else ''}{fault['msg']}") from None
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None


def recorded_script(folder: Path) -> Script:
    """The answers that a run's journal holds, in the order in which they came.

    Each is for the role that asked. Any order: branches that were developed at the same time ask
    in another order the next time. Calls that brought no answer are left out.

    Raises InputError where the folder holds no call, or an entry cannot be read.
    """
    where = f"journal {folder}"
    with _told(where):
        paths = sorted(path for path in folder.iterdir() if _CALL.fullmatch(path.name))
    answers = [answer for path in paths for answer in _recorded(path, where)]
    if not answers:
        raise InputError(f"{where}: no answer of a model is recorded there")
    return Script(answers=tuple(answers), order="any", about=f"recorded in {folder}")


def _recorded(path: Path, where: str) -> list[Scripted]:
    """One answer; two where it was empty, since an empty one is asked for again; none where the
    call failed."""
    with _told(f"{where}: {path.name}"):
        entry = CallEntry.model_validate_json(path.read_bytes())
    if entry.call.outcome == "failed":
        return []
    tokens = entry.call.tokens
    said = not tokens.estimated  # what was only estimated is not repeated
    answer = Scripted(
        text=entry.answer,
        input_tokens=tokens.input_tokens if said else None,
        output_tokens=tokens.output_tokens if said else None,
        cached_input_tokens=tokens.cached_input_tokens if said else 0,
        finish_reason="tool_calls" if entry.tool_calls else "stop",
        tool_calls=tuple(
            ScriptedToolCall(name=call["name"], arguments=call["args"], id=call["id"])
            for call in entry.tool_calls
        ),
        role=entry.call.role,
    )
    again = [Scripted(role=answer.role)] if entry.call.outcome == "empty" else []
    return [*again, answer]


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
        role = ((config or {}).get("metadata") or {}).get(ROLE)
        told = kwargs if role is None else {**kwargs, ROLE: role}
        async for chunk in super().astream(input, config, stop=stop, **told):
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._take(messages, stop, run_manager, kwargs)
        await asyncio.sleep(answer.seconds)
        for chunk in _chunks(answer, self.model):
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
        for chunk in _chunks(answer, self.model):
            yield ChatGenerationChunk(message=chunk)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, run_manager, **kwargs))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))

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


def _chunks(answer: Scripted, model: str) -> Iterator[AIMessageChunk]:
    """The answer in the pieces that a server streams; the usage comes with the last.

    Raises what NVIDIA's client raises where the answer has a status.
    """
    if answer.status is not None:
        known = {status.value: status.phrase for status in HTTPStatus}
        title = known.get(answer.status, "Unknown Error")
        raise Exception(f"[{answer.status}] {title}\n{answer.text}".rstrip())
    for piece in _pieces(answer.reasoning):
        yield AIMessageChunk(content="", additional_kwargs={"reasoning_content": piece})
    for piece in _pieces(answer.text):
        yield AIMessageChunk(content=piece)
    for index, call in enumerate(answer.tool_calls):
        # Name and id first, the arguments' JSON after them in pieces, as servers send them.
        id_ = call.id or f"call-{index + 1}"
        told = [tool_call_chunk(name=call.name, args="", id=id_, index=index)]
        arguments = json.dumps(call.arguments)
        told += [tool_call_chunk(args=piece, index=index) for piece in _pieces(arguments)]
        yield from (AIMessageChunk(content="", tool_call_chunks=[chunk]) for chunk in told)
    ended = {"finish_reason": answer.finish_reason, "model_name": model}
    yield AIMessageChunk(content="", response_metadata=ended)
    usage: UsageMetadata | None = None
    if answer.input_tokens is not None and answer.output_tokens is not None:
        usage = UsageMetadata(
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            total_tokens=answer.input_tokens + answer.output_tokens,
            input_token_details=_cache_details(answer.cached_input_tokens),
        )
    yield AIMessageChunk(content="", usage_metadata=usage, chunk_position="last")


def _cache_details(read: int | None) -> InputTokenDetails:
    return InputTokenDetails() if read is None else InputTokenDetails(cache_read=read)


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
