"""A recorded run, read from its folder alone: what is there, and what of it cannot be read.

`portable` makes of it what can be given away: small, without this machine's paths, without keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from cudaops.domain.judgement import Attempt
from cudaops.domain.model_use import ModelCall
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.errors import InputError

MOST_BYTES = 64 * 2**20
"""Of one file; a longer one is not read. Chosen: 100 times the largest that a run has written
(`run.json` with the 2,207 metrics of ncu's raw page: 0.6 MB)."""

REWRITE = "rewrite.json"
"""Name of a candidate's rewrite in its iteration's folder, where there is no evaluation."""

WITHHELD = "withheld_characters"
"""In place of a message's text where a recording was made portable without prompts."""
_GONE = re.compile(r"withheld: (\d{1,9}) characters")
"""The same in place of a tool's result, which must stay a text."""

Kind = TypeVar("Kind")


class Damage(NamedTuple):
    """Something of the recording that is there and cannot be read."""

    file: str
    """Relative to the run folder."""
    problem: str
    line: int | None = None
    """1-based, in files of one record a line."""

    @property
    def text(self) -> str:
        """Where and what, in one line."""
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{place}: {self.problem}"


class RecordedTrial(BaseModel):
    """One configuration that the tuner tried."""

    model_config = ConfigDict(frozen=True)

    values: dict[str, int]
    time_us: float | None
    failure: str | None


class Iteration(NamedTuple):
    """One candidate and everything that was kept about it."""

    number: int
    """1-based."""
    attempt: Attempt | None
    """None where only its text is left."""
    rewrite: Rewrite | None
    """Its text and what its proposer said of it; None where that was not kept."""
    trials: tuple[RecordedTrial, ...]

    @property
    def why(self) -> str | None:
        """The proposer's reason."""
        return self.rewrite.why if self.rewrite else None


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
    """As it is in the file."""

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
    """As it is in the file."""


class RunRecording(NamedTuple):
    """What a run folder holds."""

    folder: Path
    events: tuple[Event, ...]
    options: RunOptions | None
    record: RunRecord | None
    """None where the run did not finish."""
    iterations: tuple[Iteration, ...]
    calls: tuple[RecordedCall | RecordedTool, ...]
    """The journal, in the order in which it was written."""
    patch: str | None
    """`best.patch`; None where nothing was accepted."""
    damage: tuple[Damage, ...]


def read_recording(folder: Path) -> RunRecording:
    """Everything in `folder` that can be read; what cannot is listed as damage.

    Raises InputError where the folder holds no run.
    """
    reader = _Reader(folder)
    record = reader.read("run.json", TypeAdapter(RunRecord))
    events = reader.events()
    if record is None and not events:
        told = f" ({reader.damage[0].text})" if reader.damage else ""
        raise InputError(f"{folder} holds no run to replay: no run.json, no event{told}")
    options = TypeAdapter(RunOptions)
    asked = record.options if record else reader.read("state/options.json", options)
    patch = reader.text("best.patch")
    return RunRecording(
        folder=folder,
        events=events,
        options=asked,
        record=record,
        iterations=reader.iterations(record.attempts if record else ()),
        calls=reader.calls(),
        patch=None if patch is None else patch.decode("utf-8", "replace"),
        damage=tuple(reader.damage),
    )


class _Reader:
    """Reads files of one folder and keeps what went wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.damage: list[Damage] = []

    def text(self, name: str) -> bytes | None:
        """The bytes of a file; None where it is not there or cannot be read."""
        path = self._folder / name
        try:
            if not path.is_file():
                return None
            if path.stat().st_size > MOST_BYTES:
                self._spoilt(name, f"longer than {MOST_BYTES // 2**20} MB, not read")
                return None
            return path.read_bytes()
        except (OSError, ValueError) as error:
            self._spoilt(name, getattr(error, "strerror", None) or str(error))
            return None

    def read(self, name: str, kind: TypeAdapter[Kind]) -> Kind | None:
        """What a JSON file holds; None where it is not there or holds something else."""
        data = self.text(name)
        if data is None:
            return None
        try:
            return kind.validate_json(data)
        except ValidationError as error:
            self._spoilt(name, first_fault(error))
            return None

    def events(self) -> tuple[Event, ...]:
        """Whole lines of events.jsonl in the order they were written."""
        data = self.text("events.jsonl") or b""
        lines = data.split(b"\n")
        found = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                found.append(Event.model_validate_json(line))
            except ValidationError as error:
                # Only the last line has no end where a kill came between.
                cut = "cut short" if number == len(lines) else first_fault(error)
                self._spoilt("events.jsonl", cut, number)
        return tuple(found)

    def iterations(self, attempts: Sequence[Attempt]) -> tuple[Iteration, ...]:
        """By number, from the folders; from the record where a folder is not there."""
        known = {attempt.iteration: attempt for attempt in attempts}
        folders = {
            int(path.name): path.name
            for path in self._listed("iterations")
            if re.fullmatch(r"[0-9]{1,6}", path.name) and path.is_dir()
        }
        return tuple(
            self._iteration(number, folders.get(number), known.get(number))
            for number in sorted({*known, *folders})
        )

    def _iteration(self, number: int, name: str | None, known: Attempt | None) -> Iteration:
        if name is None:
            return Iteration(number, known, None, ())
        where = f"iterations/{name}"
        attempt = self.read(f"{where}/attempt.json", TypeAdapter(Attempt)) or known
        evaluated = self.read(f"{where}/evaluation.json", TypeAdapter(_Evaluation))
        rewrite = evaluated.rewrite if evaluated else None
        if rewrite is None:
            rewrite = self.read(f"{where}/{REWRITE}", TypeAdapter(Rewrite))
        trials = self.read(f"{where}/trials.json", TypeAdapter(tuple[RecordedTrial, ...])) or ()
        return Iteration(number, attempt, rewrite, trials)

    def calls(self) -> tuple[RecordedCall | RecordedTool, ...]:
        """What the model was asked and what tools told it, in that order."""
        found = []
        for path in self._listed("state/calls"):
            name = f"state/calls/{path.name}"
            if path.name.startswith("."):
                self._spoilt(name, "half-written")
            known = _ENTRY.fullmatch(path.name)
            entry = self.read(name, TypeAdapter(dict[str, Any])) if known else None
            if entry is None:
                continue
            try:
                found.append(read_entry(path.name, entry))
            except ValidationError as error:
                self._spoilt(name, first_fault(error))
        return tuple(sorted(found, key=lambda recorded: recorded.number))

    def _listed(self, name: str) -> list[Path]:
        try:
            return sorted((self._folder / name).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            self._spoilt(name, error.strerror or str(error))
            return []

    def _spoilt(self, name: str, problem: str, line: int | None = None) -> None:
        self.damage.append(Damage(name, problem, line))


_ENTRY = re.compile(r"[0-9]{1,9}-[a-z]+\.json")


class _Evaluation(BaseModel):
    """What a replay needs of `evaluation.json`; a portable recording has the rewrite alone."""

    rewrite: Rewrite


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong with a record, with its place in it."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


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


KEYS = re.compile(
    r"\b(?:nvapi-[\w-]{8,}|sk-[\w-]{16,}|AIza[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{16,}"
    r"|Bearer\s+[\w.~+/-]{16,})"
)
"""What keys of model providers and of code hosts look like. Source: the prefixes that NVIDIA,
OpenAI, Anthropic, Google, Hugging Face and GitHub give theirs."""

REMOVED = "[key removed]"

_FOREIGN_PATH = re.compile(
    r"(?<![\w./)\]-])/(?:root|home|Users|tmp|work|mnt|srv|private|scratch|workspace|data)"
    r"/[\w.+@~-]+(?:/[\w.+@~-]+)*"
)
"""Absolute paths that name a machine or its user; the system's own (/usr, /proc) do not."""


_AFTER = r"(?:(?P<inside>/)(?=[\w.~@+-])|(?![\w/-]|\.\w))"
"""What may follow a folder's path: a file in it, or nothing that would make it another path."""


class Portable(NamedTuple):
    """A recording as files."""

    files: dict[str, str]
    """Path in the new folder to text."""
    keys_removed: int
    paths_left: tuple[str, ...]
    """Absolute paths that still are in it: of folders that the run did not name itself."""


def portable(
    recording: RunRecording, *, prompts: bool, home: str, secrets: Sequence[str]
) -> Portable:
    """The recording with paths relative to the run, for another machine.

    What only this machine can use is left out: captured buffers, checkpoints, profiles behind the
    measurements, the certificate, whose signature covers this machine's compile lines.

    Args:
        recording: what was read.
        prompts: whether what the model was asked stays whole; else its length stays.
        home: folder of the user, of which paths in messages may tell.
        secrets: values that must not appear, beside what looks like a key.
    """
    scrub = _Scrub(_prefixes(recording.options, home), secrets)
    files = {
        name: scrub(text)
        for name, text in (
            ("events.jsonl", "".join(e.model_dump_json() + "\n" for e in recording.events)),
            *_record_files(recording),
            *(file for iteration in recording.iterations for file in _iteration_files(iteration)),
            *(_journal_file(recorded, prompts=prompts) for recorded in recording.calls),
        )
    }
    left = sorted({path for text in files.values() for path in _FOREIGN_PATH.findall(text)})
    return Portable(files, scrub.keys, tuple(left))


def _record_files(recording: RunRecording) -> list[tuple[str, str]]:
    files = []
    if recording.record is not None:
        files.append(("run.json", _json(recording.record.model_dump(mode="json"))))
    elif recording.options is not None:
        files.append(("state/options.json", _json(recording.options.model_dump(mode="json"))))
    if recording.patch is not None:
        files.append(("best.patch", recording.patch))
    return files


def _iteration_files(iteration: Iteration) -> list[tuple[str, str]]:
    where = f"iterations/{iteration.number:02d}"
    files = []
    if iteration.attempt is not None:
        files.append((f"{where}/attempt.json", _json(iteration.attempt.model_dump(mode="json"))))
    if iteration.trials:
        trials = [trial.model_dump(mode="json") for trial in iteration.trials]
        files.append((f"{where}/trials.json", _json(trials)))
    if iteration.rewrite is not None:
        files.append((f"{where}/{REWRITE}", _json(iteration.rewrite.model_dump(mode="json"))))
        files.append((f"{where}/candidate.cu", iteration.rewrite.source))
    return files


def _journal_file(recorded: RecordedCall | RecordedTool, *, prompts: bool) -> tuple[str, str]:
    what = recorded.call.role if isinstance(recorded, RecordedCall) else "tool"
    entry = recorded.entry if prompts else without_prompt(recorded)
    return f"state/calls/{recorded.number:04d}-{what}.json", _json(entry)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _prefixes(options: RunOptions | None, home: str) -> dict[str, str]:
    """Folders of this machine to what stands for them, inner ones first."""
    found = {home: "~"} if len(PurePath(home).parts) > 2 else {}
    if options is not None:
        working = PurePath(options.working_folder)
        for source in map(PurePath, filter(None, (options.source, options.kernel_source))):
            found |= {} if source.is_relative_to(working) else {str(source.parent): "."}
        found |= {str(working): ".", options.out: "."}
    usable = {path: name for path, name in found.items() if PurePath(path).is_absolute()}
    return {
        path: usable[path]
        for path in sorted(usable, key=len, reverse=True)
        if len(PurePath(path).parts) > 1
    }


class _Scrub:
    """Replaces folders and keys in texts, and counts the keys."""

    def __init__(self, prefixes: dict[str, str], secrets: Sequence[str]) -> None:
        self.keys = 0
        self._folders = [
            (re.compile(rf"(?<![\w/.-]){re.escape(path)}{_AFTER}"), name)
            for path, name in prefixes.items()
        ]
        known = [re.escape(secret) for secret in secrets if len(secret) >= 8]
        self._secrets = re.compile("|".join(known)) if known else None

    def __call__(self, text: str) -> str:
        for pattern in filter(None, (self._secrets, KEYS)):
            text, count = pattern.subn(REMOVED, text)
            self.keys += count
        for pattern, name in self._folders:
            text = pattern.sub(_replacement(name), text)
        return text


def _replacement(name: str) -> Callable[[re.Match[str]], str]:
    """A file in the working folder stands as a relative path, the folder itself as a dot."""
    inside = "" if name == "." else f"{name}/"
    return lambda found: inside if found.group("inside") else name
