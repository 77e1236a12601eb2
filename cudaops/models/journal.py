"""The journal of calls: what was asked and answered in a run, so that none is paid for twice.

One file a call, `NNNN-role.json`, written whole before the answer is used; `NNNN-tool.json` for the
result of a tool in between. A run that was killed finds them when it is resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from cudaops.domain.base import Record
from cudaops.domain.model_use import ModelCall
from cudaops.errors import SandboxUnavailable


class CallEntry(Record):
    """One call as a file keeps it."""

    format: Literal[1] = 1
    call: ModelCall
    messages: tuple[dict[str, Any], ...]
    """What was asked: `role` (`system`, `human`, `ai`, `tool`), `content`, and where there are any
    `tool_calls`, `tool_call_id`."""
    tools: tuple[dict[str, Any], ...] = ()
    """Schemas of the tools that the model could call."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further parameters of the request: limit of tokens, temperature."""
    answer: str
    """Text without thoughts."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """`name`, `args`, `id`."""
    message: dict[str, Any] = Field(default_factory=dict)
    """The answer as LangChain writes messages down, for the dialogue to go on from."""


class ToolEntry(Record):
    """One result of a tool as a file keeps it."""

    format: Literal[1] = 1
    scope: str
    tool: str
    arguments: dict[str, Any]
    result: str


_ENTRY: TypeAdapter[CallEntry | ToolEntry] = TypeAdapter(CallEntry | ToolEntry)


SECRET_CHARACTERS = 12
"""A shorter key is a word that somebody chose for a server of his own, and is in code too."""


class Journal:
    """Calls of one run, in one folder, written by one process at a time.

    The n-th time a question is asked in a scope it is answered with the n-th answer recorded for
    it there; what was recorded as failed is asked again.
    """

    def __init__(self, folder: Path, secrets: Iterable[str] = ()) -> None:
        """Reads what is there.

        Args:
            folder: Made on the first entry, for its owner alone.
            secrets: Keys, blotted out wherever they occur in what is written.

        Raises SandboxUnavailable where the folder cannot be looked into; so do `record` and
        `record_tool` where it cannot be written to. The run stops there and can be resumed.
        """
        self._folder = folder
        self._secrets = tuple(s for s in secrets if len(s) >= SECRET_CHARACTERS)
        self._calls: list[ModelCall] = []
        self._answers: dict[tuple[str, str], list[CallEntry]] = defaultdict(list)
        self._results: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._asked: dict[tuple[str, str], int] = defaultdict(int)
        self._damaged: list[str] = []
        self._last = 0
        self._read()

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """Every call ever recorded, oldest first, those that failed included."""
        return tuple(self._calls)

    @property
    def damaged(self) -> tuple[str, ...]:
        """Files that are no entry, each with the reason, in one line: they are ignored."""
        return tuple(self._damaged)

    def recall(self, scope: str, key: str) -> CallEntry | None:
        """The answer recorded for this question, or None; counts as having asked it."""
        known = self._answers[scope, key]
        turn = self._turn("call", scope, key)
        return known[turn] if turn < len(known) else None

    def record(self, entry: CallEntry) -> None:
        """Write a call down, and keep it."""
        self._write(entry.call.role, entry)
        self._keep(entry)

    def recall_tool(self, scope: str, name: str, arguments: dict[str, Any]) -> str | None:
        """The result recorded for this call of a tool, or None; counts as having made it."""
        key = _tool_key(name, arguments)
        known = self._results[scope, key]
        turn = self._turn("tool", scope, key)
        return known[turn] if turn < len(known) else None

    def record_tool(self, scope: str, name: str, arguments: dict[str, Any], result: str) -> None:
        """Write the result of a tool down, and keep it."""
        entry = ToolEntry(scope=scope, tool=name, arguments=arguments, result=result)
        self._write("tool", entry)
        self._keep(entry)

    def _turn(self, kind: str, scope: str, key: str) -> int:
        """How often this was asked before, in this process."""
        place = (scope, f"{kind}:{key}")
        self._asked[place] += 1
        return self._asked[place] - 1

    def _keep(self, entry: CallEntry | ToolEntry) -> None:
        if isinstance(entry, ToolEntry):
            key = _tool_key(entry.tool, entry.arguments)
            self._results[entry.scope, key].append(entry.result)
            return
        self._calls.append(entry.call)
        if entry.call.outcome != "failed":
            self._answers[entry.call.scope, entry.call.key].append(entry)

    def _read(self) -> None:
        with _kept_in(self._folder):
            paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            number = path.name.lstrip(".").partition("-")[0]
            self._last = max(self._last, int(number) if number.isdecimal() else 0)
            if path.suffix != ".json":
                self._damaged.append(f"{path.name}: half-written")
                continue
            try:
                self._keep(_ENTRY.validate_json(path.read_bytes()))
            except OSError as error:
                self._damaged.append(f"{path.name}: {error.strerror or error}")
            except ValidationError as error:
                reason = error.errors(include_url=False, include_input=False)[0]["msg"]
                self._damaged.append(f"{path.name}: {reason}".replace("\n", " "))

    def _write(self, what: str, entry: CallEntry | ToolEntry) -> None:
        """Whole or not at all, also where the power fails."""
        blotted = _without(entry.model_dump(mode="json"), self._secrets)
        text = json.dumps(blotted, indent=1, ensure_ascii=False)
        with _kept_in(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._last += 1
            _write_whole(self._folder / f"{self._last:04d}-{what}.json", text + "\n")


def _without(value: Any, secrets: tuple[str, ...]) -> Any:
    """The same with every key in a text blotted out."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, dict):
        return {name: _without(held, secrets) for name, held in value.items()}
    if isinstance(value, list):
        return [_without(held, secrets) for held in value]
    return value


def question_key(asked: dict[str, Any]) -> str:
    """16 hex digits over everything that a request sends."""
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _tool_key(name: str, arguments: dict[str, Any]) -> str:
    return question_key({"tool": name, "arguments": arguments})


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """An OSError within is this machine's fault, not a model's."""
    try:
        yield
    except OSError as error:
        raise SandboxUnavailable(
            f"a run's calls to its model cannot be kept in {folder}: {error.strerror or error}",
            "free space there and make it writable, then resume the run",
        ) from error


def _write_whole(path: Path, text: str) -> None:
    """A file for its owner alone; where this fails nothing of it stays."""
    unfinished = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
