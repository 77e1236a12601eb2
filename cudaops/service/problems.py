"""Errors over HTTP as problem details (RFC 9457), and the one way to refuse a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from cudaops.domain.base import Record
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.service.records import Problem

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
MAX_PATH_CHARS = 120
"""A wrong field's name comes from outside: no longer than this is said back."""


class Kind(NamedTuple):
    """What `urn:cudaops:problem:NAME` means."""

    status: int
    title: str


KINDS: dict[str, Kind] = {
    "malformed-body": Kind(400, "The body cannot be read"),
    "malformed-request": Kind(400, "The request is not HTTP"),
    "no-token": Kind(401, "No valid token"),
    "scope": Kind(403, "The token does not allow this"),
    "foreign-origin": Kind(403, "Request from a page of another origin"),
    "foreign-host": Kind(403, "Request with a foreign host name"),
    "not-found": Kind(404, "Not found"),
    "method": Kind(405, "Method not allowed"),
    "slow-request": Kind(408, "The request came too slowly"),
    "not-ended": Kind(409, "The job has not ended"),
    "too-large": Kind(413, "The body is too large"),
    "address-too-long": Kind(414, "The address is too long"),
    "media-type": Kind(415, "The body is of a kind that is not read here"),
    "invalid-request": Kind(422, "The request is wrong"),
    "not-source": Kind(422, "The upload is not source text"),
    "key-reused": Kind(422, "The idempotency key belongs to another request"),
    "too-often": Kind(429, "Too many requests"),
    "headers-too-large": Kind(431, "The headers are too large"),
    "fault": Kind(500, "A fault of cudaops"),
    "unavailable": Kind(503, "The service cannot do it now"),
    "not-ready": Kind(503, "The service is not ready"),
    "busy": Kind(503, "The service is busy"),
    "queue-full": Kind(503, "The queue is full"),
}


class WrongField(Record):
    """One thing that is wrong with a request."""

    path: str
    """JSON pointer into the body, `/max_iterations`; or the parameter's name."""
    message: str
    """What it should be. Never what was given."""


class InvalidRequest(Problem):
    """Problem details of a request that is wrong, with every field that is."""

    errors: tuple[WrongField, ...] = ()


class Refused(Exception):
    """Ends a request with a problem; `kind` is a name of KINDS."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[WrongField] = (),
        instance: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.headers = dict(headers or {})
        status, title = KINDS[kind]
        urn = f"urn:cudaops:problem:{kind}"
        if errors:
            self.problem: Problem = InvalidRequest(
                type=urn, title=title, status=status, detail=detail, instance=instance,
                errors=tuple(errors),
            )  # fmt: skip
        else:
            self.problem = Problem(
                type=urn, title=title, status=status, detail=detail, instance=instance
            )

    def answer(self) -> Response:
        """The response that says so."""
        return Response(
            self.problem.model_dump_json(exclude_none=True),
            self.problem.status,
            media_type=MEDIA_TYPE,
            headers=self.headers,
        )


def wrong_fields(errors: Sequence[Mapping[str, Any]]) -> list[WrongField]:
    """Pydantic's errors without what was given: that may be somebody's source."""
    seen = [
        WrongField(path=_pointer(error["loc"]), message=_said(error))
        for error in errors[:MAX_ERRORS]
    ]
    return seen or [WrongField(path="", message="cannot be used")]


def _pointer(where: Sequence[int | str]) -> str:
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in where]
    pointer = "".join(f"/{part}" for part in parts)
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in pointer)
    return clean[:MAX_PATH_CHARS]


def _said(error: Mapping[str, Any]) -> str:
    if error["type"] == "string_pattern_mismatch" and "\\x00" in str(error.get("ctx")):
        return "must not contain a NUL character"
    return str(error["msg"])


def refuse_invalid(errors: Sequence[Mapping[str, Any]]) -> Refused:
    """What is wrong with a body or a parameter, as a refusal."""
    wrong = wrong_fields(errors)
    first = f"{wrong[0].path}: {wrong[0].message}" if wrong[0].path else wrong[0].message
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Refused("invalid-request", f"{first}{more}; see /docs", errors=wrong)


def unavailable(error: EnvironmentFailure) -> Refused:
    """Broken infrastructure; its remedy is the operator's, so the client gets the problem alone."""
    return Refused("unavailable", f"{error.problem}; try again", headers={"Retry-After": "5"})


def install(app: FastAPI) -> None:
    """Every error of `app` becomes problem details."""

    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> Response:
        return error.answer()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        shown = [{**e, "loc": e["loc"][1:] or e["loc"]} for e in error.errors()]
        return refuse_invalid(shown).answer()

    @app.exception_handler(InputError)
    async def _input(request: Request, error: InputError) -> Response:
        return Refused("invalid-request", str(error)).answer()

    @app.exception_handler(EnvironmentFailure)
    async def _environment(request: Request, error: EnvironmentFailure) -> Response:
        return unavailable(error).answer()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        return of_status(error.status_code, dict(error.headers or {})).answer()


def of_status(status: int, headers: Mapping[str, str]) -> Refused:
    """What the framework itself refuses, in our words."""
    if status == 404:
        return Refused("not-found", "no such address; /docs lists them", headers=headers)
    if status == 405:
        allowed = headers.get("allow", headers.get("Allow", ""))
        return Refused("method", f"use {allowed or 'another method'}; see /docs", headers=headers)
    if status == 413:
        return Refused("too-large", "send less", headers=headers)
    if 400 <= status < 500:
        return Refused("malformed-body", "the request cannot be read; see /docs", headers=headers)
    return Refused("fault", "this is a fault of cudaops; please report it", headers=headers)


def responses(*names: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` for these kinds of problem, one entry a status."""
    found: dict[int | str, dict[str, Any]] = {}
    for name in names:
        status, title = KINDS[name]
        entry = found.setdefault(status, {"description": title, "content": {MEDIA_TYPE: {}}})
        if title not in entry["description"]:
            entry["description"] += f"; or: {title[:1].lower()}{title[1:]}"
        schema = "InvalidRequest" if name == "invalid-request" else "Problem"
        body = entry["content"][MEDIA_TYPE]
        if body.get("schema") is None or schema == "InvalidRequest":
            body["schema"] = {"$ref": f"#/components/schemas/{schema}"}
        body.setdefault("example", {
            "type": f"urn:cudaops:problem:{name}", "title": title, "status": status,
            "detail": "What to do, in one line.",
        })  # fmt: skip
    return found
