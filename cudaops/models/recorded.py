"""A recorded run's answers as a script: the journal of its calls, given again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from cudaops.domain.model_use import ModelRole
from cudaops.errors import InputError
from cudaops.models.journal import CallEntry
from cudaops.models.script import Script, Scripted, ScriptedToolCall, first_fault

_CALL = re.compile(rf"\d+-({'|'.join(get_args(ModelRole))})\.json")


def recorded_script(folder: Path) -> Script:
    """The answers that a run's journal holds, in the order in which they came.

    Each is for the role that asked. Any order: branches that were developed at the same time ask
    in another order the next time. Calls that brought no answer are left out.

    Raises InputError where the folder holds no call, or an entry cannot be read.
    """
    where = f"journal {folder}"
    paths = sorted(path for path in _files(folder, where) if _CALL.fullmatch(path.name))
    answers = [answer for path in paths for answer in _answers(path, where)]
    if not answers:
        raise InputError(f"{where}: no answer of a model is recorded there")
    return Script(answers=tuple(answers), order="any", about=f"recorded in {folder}")


def _files(folder: Path, where: str) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}") from None


def _answers(path: Path, where: str) -> list[Scripted]:
    """One answer; two where it was empty, since an empty one is asked for again; none where the
    call failed."""
    try:
        entry = CallEntry.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{where}: {path.name}: {error.strerror or error}") from None
    except ValidationError as error:
        raise InputError(f"{where}: {path.name}: {first_fault(error)}") from None
    if entry.call.outcome == "failed":
        return []
    answer = _answer(entry)
    again = [Scripted(role=answer.role)] if entry.call.outcome == "empty" else []
    return [*again, answer]


def _answer(entry: CallEntry) -> Scripted:
    """What was said, its pieces joined; tokens that were only estimated are not repeated."""
    tokens = entry.call.tokens
    said = not tokens.estimated
    return Scripted(
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
