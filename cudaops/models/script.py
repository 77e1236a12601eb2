"""A script: the answers of a model, written down beforehand; how it is read from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from cudaops.domain.base import Record
from cudaops.domain.model_use import ModelRole
from cudaops.errors import InputError

FORMAT = 1
"""Value of `cudaops_script` in the files that this version reads."""

_CLOSED = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, config=_CLOSED)
class ScriptedToolCall:
    """A tool that the model asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    """None: `call-1`, `call-2` within the answer."""


@dataclass(frozen=True, config=_CLOSED)
class Scripted:
    """One answer, and which prompt it is for."""

    text: str = ""
    """What the model says; may be empty."""
    input_tokens: int | None = Field(default=None, ge=0)
    """None, together with `output_tokens`: the provider says nothing about tokens."""
    output_tokens: int | None = Field(default=None, ge=0)
    cached_input_tokens: int = Field(default=0, ge=0)
    """Part of `input_tokens` that the provider's cache served."""
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
        if self.cached_input_tokens > (self.input_tokens or 0):
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
    written = _read_object(path, where)
    if written.pop("cudaops_script", None) != FORMAT:
        raise InputError(f'{where}: it must hold "cudaops_script": {FORMAT}')
    answers = written.get("answers")
    if not isinstance(answers, list) or not answers:
        raise InputError(f"{where}: `answers` must be a list with at least one answer")
    read = tuple(
        _read_answer(answer, path.parent, f"{where}, answer {number}")
        for number, answer in enumerate(answers, start=1)
    )
    try:
        return Script.model_validate({**written, "answers": read})
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error)}") from None


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
    try:
        return _ANSWER.validate_python(fields)
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error)}") from None


def _read_text(name: str, folder: Path, where: str) -> str:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{where}: `file` {name!r} is outside the script's folder")
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: `file` {name!r} cannot be read: {error}") from None


def _read_object(path: Path, where: str) -> dict[str, Any]:
    try:
        written = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    if not isinstance(written, dict):
        raise InputError(f"{where}: the file must hold one JSON object")
    return written


def first_fault(error: ValidationError) -> str:
    """The first thing that pydantic found wrong, in one line with its place."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else fault["msg"]
