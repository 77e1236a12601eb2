"""run.json: the record itself, under the field names of the domain."""

from __future__ import annotations

import json

from pydantic import ValidationError

from cudaops import __version__
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError


def dumps(record: RunRecord) -> str:
    """The record as indented JSON with a newline at the end."""
    return record.model_dump_json(indent=2) + "\n"


def loads(text: str, origin: str) -> RunRecord:
    """The record from the text of a run.json.

    Args:
        text: the file's contents.
        origin: what the text is called in an error.

    Raises:
        InputError: it is not a record, or of another version of cudaops.
    """
    try:
        return RunRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise InputError(
            f"{origin} is not a run record{_version(text)}: {where}: {first['msg']}"
        ) from None


def _version(text: str) -> str:
    """Who wrote it, where that was another version; what reads it."""
    try:
        written = json.loads(text)["cudaops_version"]
    except (ValueError, LookupError, TypeError):
        return ""
    if written == __version__:
        return ""
    return f" of cudaops {__version__} (cudaops {written!s} wrote it; read it with that)"
