"""A recording that can be given away: small, without this machine's paths, without keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from cudaops.domain.run import RunOptions
from cudaops.reports.recording import (
    REWRITE,
    Iteration,
    RecordedCall,
    RecordedTool,
    Recording,
    without_prompt,
)

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
    """Absolute paths that still stand in it: of folders that the run did not name itself."""


def portable(recording: Recording, *, prompts: bool, home: str, secrets: Sequence[str]) -> Portable:
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


def _record_files(recording: Recording) -> list[tuple[str, str]]:
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
        source = PurePath(options.source)
        working = PurePath(options.working_folder)
        inside = source.is_relative_to(working)
        found |= {} if inside else {str(source.parent): "."}
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
