"""From a request's body to a typed request: JSON, or a form with the source as a file.

File names are names and nothing more: no part of a body is written to a file here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from cudaops.service.problems import Refused, WrongField, refuse_invalid
from cudaops.service.records import MAX_FILES, ProgramRequest

JSON = "application/json"
FORM = "multipart/form-data"
MAX_FIELDS = 8
MAX_FIELD_BYTES = 2 << 20
"""Longest text part: a source of records.MAX_TEXT_CHARS, up to four bytes each."""

R = TypeVar("R", bound=ProgramRequest)


async def read_request(request: Request, model: type[R]) -> R:
    """The body as `model`. Raises Refused: 400 malformed, 413, 415 another kind of body, 422."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == JSON:
        return _validated(await request.body(), model)
    if kind == FORM:
        return _validated(json.dumps(await _form(request)).encode(), model)
    raise Refused(
        "media-type",
        f"send {JSON}, or {FORM} with the parts source, files and options",
        headers={"Accept": f"{JSON}, {FORM}"},
    )


def _validated(body: bytes, model: type[R]) -> R:
    parse(body)
    try:
        # Strict, so that the published schema is what is taken: no "3" for 3.
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        if any(e["type"] == "json_invalid" for e in errors):
            _malformed("the text is not valid Unicode")
        raise refuse_invalid(errors) from None


def parse(body: bytes | str) -> Any:
    """JSON as RFC 7493 wants it: no name twice, no NaN. Raises Refused (400)."""
    try:
        return json.loads(body, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        _malformed("it is nested too deeply")
    except UnicodeDecodeError:
        _malformed("it is not UTF-8")
    except json.JSONDecodeError as error:
        _malformed(f"it is not JSON at line {error.lineno}, column {error.colno}")
    except ValueError:
        _malformed("a number is out of range")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _malformed("a name stands twice in an object")
    return found


def _no_constant(name: str) -> NoReturn:
    _malformed(f"{name} is not JSON")


def _malformed(why: str) -> NoReturn:
    raise Refused("malformed-body", f"{why}; see the examples at /docs")


class _InMemory(MultiPartParser):
    """Starlette's parser, with files kept in memory: the body's limit bounds them."""

    spool_max_size = 1 << 30


async def _form(request: Request) -> dict[str, Any]:
    """A form's parts as the JSON body that says the same."""
    parser = _InMemory(
        request.headers, request.stream(), max_files=MAX_FILES + 1, max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )  # fmt: skip
    try:
        form = await parser.parse()
    except MultiPartException as error:
        _malformed(f"the form cannot be read ({error.message.rstrip('.')})")
    try:
        return await _from_parts(form.multi_items())
    finally:
        await form.close()


async def _from_parts(parts: Iterable[tuple[str, UploadFile | str]]) -> dict[str, Any]:
    source: tuple[str, str] | None = None
    options: Mapping[str, Any] | None = None
    files: dict[str, str] = {}
    for name, value in parts:
        if name == "source" and source is None:
            given = value.filename if isinstance(value, UploadFile) else None
            source = (given or "", await _text(value, "source"))
        elif name == "files" and isinstance(value, UploadFile):
            path = value.filename or ""
            if path in files:
                _wrong("/files", "two files have the same name")
            files[path] = await _text(value, "files")
        elif name == "options" and options is None:
            options = _options(await _text(value, "options"))
        else:
            _wrong("", "the parts are source (one), files (files) and options (JSON, one)")
    if source is None:
        _wrong("/source", "the form has no file part of this name")
    options = options or {}
    clash = {"source", "files"} & options.keys()
    if clash:
        _wrong("/options", "source and files are parts of their own")
    named = {"filename": source[0]} if source[0] else {}
    return {**named, **options, "source": source[1], "files": files}


def _options(text: str) -> Mapping[str, Any]:
    found = parse(text)
    if not isinstance(found, dict):
        _wrong("/options", "should be a JSON object")
    return found


async def _text(part: UploadFile | str, name: str) -> str:
    """A part's text. An archive, an object file or another encoding is refused by its content."""
    content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else await part.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise Refused(
            "not-source",
            "send CUDA source as UTF-8 text: no archive, no binary; headers one by one as `files`",
            errors=[WrongField(path=f"/{name}", message="should be UTF-8 text without NUL")],
        )
    return text


def _wrong(path: str, message: str) -> NoReturn:
    raise refuse_invalid([{"loc": tuple(path.split("/")[1:]), "msg": message, "type": "form"}])
