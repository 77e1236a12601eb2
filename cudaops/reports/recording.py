"""A recorded run, read from its folder alone: what is there, and what of it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from cudaops.domain.judgement import Attempt
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.errors import InputError
from cudaops.reports.recorded_calls import RecordedCall, RecordedTool, read_entry

MOST_BYTES = 64 * 2**20
"""Of one file; a longer one is not read. Chosen: 100 times the largest that a run has written
(`run.json` with the 2,207 metrics of ncu's raw page: 0.6 MB)."""

REWRITE = "rewrite.json"
"""Name of a candidate's rewrite in its iteration's folder, where there is no evaluation."""

Model = TypeVar("Model", bound=BaseModel)


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


class Trial(BaseModel):
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
    trials: tuple[Trial, ...]

    @property
    def why(self) -> str | None:
        """The proposer's reason."""
        return self.rewrite.why if self.rewrite else None


class Recording(NamedTuple):
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


def read_recording(folder: Path) -> Recording:
    """Everything in `folder` that can be read; what cannot is listed as damage.

    Raises InputError where the folder holds no run.
    """
    reader = _Reader(folder)
    record = reader.model("run.json", RunRecord)
    events = reader.events()
    if record is None and not events:
        told = f" ({reader.damage[0].text})" if reader.damage else ""
        raise InputError(f"{folder} holds no run to replay: no run.json, no event{told}")
    options = record.options if record else reader.model("state/options.json", RunOptions)
    patch = reader.text("best.patch")
    return Recording(
        folder=folder,
        events=events,
        options=options,
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

    def model(self, name: str, kind: type[Model]) -> Model | None:
        """One record of a file; None where it is not there or is none."""
        data = self.text(name)
        if data is None:
            return None
        try:
            return kind.model_validate_json(data)
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
        attempt = self.model(f"{where}/attempt.json", Attempt) or known
        trials = self._trials(f"{where}/trials.json")
        return Iteration(number, attempt, self._rewrite(where), trials)

    def _rewrite(self, where: str) -> Rewrite | None:
        """From the evaluation; a portable recording has the rewrite alone."""
        evaluation = self._object(f"{where}/evaluation.json")
        if evaluation is None:
            return self.model(f"{where}/{REWRITE}", Rewrite)
        try:
            return Rewrite.model_validate(evaluation.get("rewrite"))
        except ValidationError as error:
            self._spoilt(f"{where}/evaluation.json", first_fault(error))
            return None

    def _trials(self, name: str) -> tuple[Trial, ...]:
        data = self.text(name)
        if data is None:
            return ()
        try:
            return _TRIALS.validate_json(data)
        except ValidationError as error:
            self._spoilt(name, first_fault(error))
            return ()

    def calls(self) -> tuple[RecordedCall | RecordedTool, ...]:
        """What the model was asked and what tools told it, in that order."""
        found = []
        for path in self._listed("state/calls"):
            name = f"state/calls/{path.name}"
            if path.name.startswith("."):
                self._spoilt(name, "half-written")
            entry = self._object(name) if _ENTRY.fullmatch(path.name) else None
            if entry is None:
                continue
            try:
                found.append(read_entry(path.name, entry))
            except ValidationError as error:
                self._spoilt(name, first_fault(error))
        return tuple(sorted(found, key=lambda recorded: recorded.number))

    def _object(self, name: str) -> dict[str, Any] | None:
        data = self.text(name)
        if data is None:
            return None
        try:
            value = from_json(data, allow_inf_nan=True)
        except ValueError as error:
            self._spoilt(name, str(error))
            return None
        if not isinstance(value, dict):
            self._spoilt(name, "holds no JSON object")
            return None
        return value

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
_TRIALS = TypeAdapter(tuple[Trial, ...])


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong with a record, with its place in it."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
