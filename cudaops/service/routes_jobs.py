"""Jobs over HTTP: six ways to start one, looking, following, cancelling.

A job is started by JSON or by a form with the source as a file. It is answered 202 at once, or
after as long as `Prefer: wait=` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Receive, Scope, Send

from cudaops.domain.base import Record
from cudaops.errors import ServiceUnavailable
from cudaops.service import tracing
from cudaops.service.auth import allows, require
from cudaops.service.context import Service, ended, service_of, stream
from cudaops.service.problems import Refused, WrongField, refuse_invalid, responses
from cudaops.service.records import (
    ENDED,
    EXAMPLES,
    MAX_FILES,
    REQUESTS,
    Job,
    JobKind,
    JobStatus,
    JobSummary,
)
from cudaops.service.store import IdempotencyConflict, Identity, QueueFull

# From a request's body to a typed request: JSON, or a form with the source as a file.

JSON = "application/json"
FORM = "multipart/form-data"
MAX_FIELDS = 8
MAX_FIELD_BYTES = 2 << 20
"""Longest text part: a source of records.MAX_TEXT_CHARS, up to four bytes each."""

R = TypeVar("R", bound=Record)


async def read_request(request: Request, model: type[R]) -> R:
    """The body as `model`. Raises Refused: 400 malformed, 413, 415 another kind of body, 422."""
    if media_type(request) == FORM:
        return _validated(json.dumps(await _form(request)).encode(), model)
    return await read_json(
        request, model, f"{JSON}, or {FORM} with the parts source, files and options"
    )


async def read_json(request: Request, model: type[R], wanted: str = JSON) -> R:
    """The same of a body that is JSON alone."""
    if media_type(request) != JSON:
        accepted = ", ".join(kind for kind in (JSON, FORM) if kind in wanted)
        raise Refused("media-type", f"send {wanted}", headers={"Accept": accepted})
    return _validated(await request.body(), model)


def media_type(request: Request) -> str:
    """Of the body, without its parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


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
        _malformed("a name occurs twice in an object")
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


# Jobs that were started: looking, following, cancelling.

READING = ("no-token", "too-often", "invalid-request", "unavailable", "busy", "malformed-request")
OF_A_JOB = (*READING, "not-found")

Reader = Annotated[Identity, Depends(require("read"))]
Starter = Annotated[Identity, Depends(require("run"))]
Serving = Annotated[Service, Depends(service_of)]

EVENT_EXAMPLE = (
    'event: status\nid: 1\ndata: {"seq":1,"time":"2026-11-22T02:30:00.000Z","attempt":0,'
    '"stage":"job","agent":"supervisor","kind":"status","message":"queued","data":{}}\n\n'
)

router = APIRouter(tags=["jobs"])


def as_json(record: Record, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A record as it is: it was validated when it was made."""
    return Response(
        record.model_dump_json(), status, media_type="application/json", headers=headers
    )


@router.get(
    "/jobs",
    operation_id="listJobs",
    response_model=list[JobSummary],
    responses=responses(*OF_A_JOB),
)
async def list_jobs(
    request: Request,
    identity: Reader,
    service: Serving,
    status: Annotated[JobStatus | None, Query(description="Only those.")] = None,
    kind: Annotated[JobKind | None, Query(description="Only those.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Most jobs to list.")] = 50,
    before: Annotated[UUID | None, Query(description="Only those older than this job.")] = None,
) -> Response:
    """Your jobs, newest first; everybody's for an admin. `Link: rel="next"` leads to older ones."""
    if before is not None:
        await service.visible(before, identity)
    everybody = allows(identity.scope, "admin")
    found = await service.store.jobs(
        owner=None if everybody else identity.name,
        status=status, kind=kind, before=before, limit=limit,
    )  # fmt: skip
    headers = {}
    if len(found) == limit:
        older = request.url.include_query_params(before=str(found[-1].id))
        headers["Link"] = f'<{older.path}?{older.query}>; rel="next"'
    body = "[" + ",".join(job.model_dump_json() for job in found) + "]"
    return Response(body, media_type="application/json", headers=headers)


@router.get("/jobs/{id}", operation_id="getJob", response_model=Job, responses=responses(*OF_A_JOB))
async def get_job(id: UUID, identity: Reader, service: Serving) -> Response:
    """A job: its status, and at the end its result and the list of its artefacts."""
    return as_json(await service.visible_job(id, identity))


class EventStream(StreamingResponse):
    """Names the media type for OpenAPI."""

    media_type = "text/event-stream"


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, each a JobEvent; the last is `end` with a JobSummary.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EVENT_EXAMPLE}},
    }
}


@router.get(
    "/jobs/{id}/events",
    operation_id="followJob",
    response_class=EventStream,
    responses={**responses(*OF_A_JOB), **_STREAM},
)
async def follow_job(
    id: UUID,
    identity: Reader,
    service: Serving,
    after: Annotated[
        int | None, Query(ge=0, lt=2**31, description="Only events with a greater `seq`.")
    ] = None,
    last_event_id: Annotated[
        str,
        Header(
            pattern="^[0-9]{0,9}$",
            description="The same, as a browser says it; `after` goes first.",
        ),
    ] = "",
) -> Response:
    """What a job does, as server-sent events: those so far, then those to come, until its end.

    The event's name is the JobEvent's `kind`, its id the `seq`. Connect again with `after` or
    `Last-Event-ID` to miss nothing. After `end` there is nothing more: close the stream.
    """
    await service.visible(id, identity)
    start = after if after is not None else int(last_event_id or 0)
    return _Following(service, identity, stream(service, id, start))


class _Following(EventStream):
    """An event stream that counts as one of the open ones for as long as it is sent."""

    def __init__(self, service: Service, who: Identity, blocks: AsyncIterator[bytes]) -> None:
        # nginx holds events back otherwise.
        super().__init__(blocks, headers={"X-Accel-Buffering": "no"})
        self._service, self._who = service, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.waiting(self._who):
            await super().__call__(scope, receive, send)


@router.post(
    "/jobs/{id}/cancel",
    operation_id="cancelJob",
    response_model=Job,
    status_code=202,
    responses={
        **responses(*OF_A_JOB, "scope", "foreign-origin"),
        200: {"model": Job, "description": "It has ended, by this or before."},
    },
    response_description="It runs, and its worker was asked to stop it.",
)
async def cancel_job(id: UUID, identity: Starter, service: Serving) -> Response:
    """Cancel a job: at once where it is queued, within seconds where it runs."""
    await service.visible(id, identity)
    await service.store.cancel(id, identity.name)
    job = await service.visible_job(id, identity)
    return as_json(job, 200 if job.status in ENDED else 202)


# Six ways to start a job. Each answers 202 at once, or waits as long as `Prefer: wait=` says.

MAX_WAIT_S = 60
"""Longest `Prefer: wait=`: proxies commonly cut a silent request soon after."""
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)

Submitter = Annotated[Identity, Depends(require("run", "submit"))]
Prefer = Annotated[
    str | None,
    Header(
        description="`wait=SECONDS` (RFC 7240), at most 60: answers 200 with the finished job where"
        " it ends within that time, else 202 as without it.",
        examples=["wait=30"],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="Any text of your choice, once a job: the same request sent again with it gives"
        " the same job, not another one.",
    ),
]


class Words(NamedTuple):
    """How the OpenAPI page tells of an operation."""

    summary: str
    description: str


WORDS: dict[JobKind, Words] = {
    "compile": Words(
        "Compile a kernel",
        "Compiles the program's kernel, or a rewrite of it. What the compiler refuses is a result:"
        " the job succeeds with `ok: false`.",
    ),
    "run": Words(
        "Run a program",
        "Runs the whole program once, confined, and gives its exit code and what it printed.",
    ),
    "profile": Words(
        "Say what limits a kernel",
        "Captures the kernel's launches, collects metrics (measured by ncu on a GPU, modelled on a"
        " processor) and reaches a verdict by rules.",
    ),
    "verify": Words(
        "Judge a rewrite",
        "Whether `candidate` computes the same function at the same precision, and is faster by"
        " `min_speedup`. The result is a run record with every gate.",
    ),
    "benchmark": Words(
        "Time a kernel and a rewrite",
        "Times on every captured workload, side by side. Judges nothing; correctness is not asked.",
    ),
    "optimize": Words(
        "Optimise a kernel",
        "The main job: profile, diagnose, rewrite, verify. The result is a run record; `best.cu`,"
        " `best.patch` and `certificate.json` are among the artefacts of one that found something.",
    ),
}
PROBLEMS = (
    "malformed-body", "malformed-request", "no-token", "scope", "foreign-origin", "slow-request",
    "too-large", "media-type", "invalid-request", "not-source", "key-reused", "too-often",
    "unavailable", "busy", "queue-full",
)  # fmt: skip


def build_submit_router() -> APIRouter:
    """POST /compile /run /profile /verify /benchmark /optimize."""
    router = APIRouter(tags=["start a job"])
    accepted = {"description": "Kept and queued.", "headers": submit_headers()}
    finished = {
        "model": Job,
        "description": "Finished within the wait.",
        "headers": submit_headers(),
    }
    for kind, words in WORDS.items():
        router.add_api_route(
            f"/{kind}",
            _submitter(kind),
            methods=["POST"],
            operation_id=kind,
            summary=words.summary,
            description=words.description,
            status_code=202,
            response_model=Job,
            responses={**responses(*PROBLEMS), 200: finished, 202: accepted},
            openapi_extra={"requestBody": _body(kind)},
        )
    return router


def _submitter(kind: JobKind) -> Callable[..., Awaitable[Response]]:
    async def submit(
        request: Request,
        identity: Submitter,
        service: Serving,
        prefer: Prefer = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        asked: Any = await read_request(request, REQUESTS[kind])
        with submitting():
            job, created = await service.store.submit(
                kind, asked, identity.name, idempotency_key, trace=tracing.current()
            )
        headers = {"Location": f"/jobs/{job.id}"}
        if not created:
            headers["Idempotent-Replayed"] = "true"
        return await answer(request, service, identity, job, wait_seconds(prefer), headers)

    return submit


@contextmanager
def submitting() -> Iterator[None]:
    """What the store refuses, as a refusal of the request."""
    try:
        yield
    except IdempotencyConflict as error:
        raise Refused("key-reused", str(error)) from None
    except QueueFull as error:
        raise Refused(
            "queue-full", f"{error.problem}; {error.remedy}", headers={"Retry-After": "30"}
        ) from None


async def answer(
    request: Request,
    service: Service,
    identity: Identity,
    job: JobSummary,
    wait_s: int | None,
    headers: dict[str, str],
) -> Response:
    """A job that was started, as it is, or as it is after waiting for its end."""
    if wait_s is not None:
        # It is kept already: whatever goes wrong while waiting, its address is the answer.
        with suppress(Refused, ServiceUnavailable):
            if job.status not in ENDED:
                gone = request.is_disconnected
                job = await ended(service, job.id, identity, wait_s, gone) or job
            headers["Preference-Applied"] = f"wait={wait_s}"
            if job.status in ENDED:
                return as_json(await service.visible_job(job.id, identity), 200, headers)
    elif job.status in ENDED:
        return as_json(await service.visible_job(job.id, identity), 200, headers)
    return as_json(Job(**dict(job)), 202, headers)


def wait_seconds(prefer: str | None) -> int | None:
    """Seconds of `wait=` in a Prefer header; None without one."""
    found = _WAIT.search(prefer or "")
    return min(int(found[1]), MAX_WAIT_S) if found else None


def _body(kind: JobKind) -> dict[str, Any]:
    """OpenAPI's requestBody: the record as JSON, or as a form."""
    binary = {"type": "string", "format": "binary"}
    options = form_options(kind)
    form = {
        "type": "object",
        "required": ["source", *(["options"] if options["required"] else [])],
        "additionalProperties": False,
        "properties": {
            "source": {
                **binary,
                "description": "The `.cu` file, as UTF-8 text; its name becomes `filename`.",
            },
            "files": {
                "type": "array",
                "items": binary,
                "maxItems": MAX_FILES,
                "description": "Local headers; a part's file name is the path to include it by.",
            },
            "options": {**options, "description": "The other fields of the JSON body."},
        },
    }
    schema = {"$ref": f"#/components/schemas/{REQUESTS[kind].__name__}"}
    return {
        "required": True,
        "content": {JSON: {"schema": schema, "examples": EXAMPLES[kind]}, FORM: {"schema": form}},
    }


def form_options(kind: JobKind) -> dict[str, Any]:
    """JSON schema of a form's part `options`: the request without what are parts of their own."""
    schema = REQUESTS[kind].model_json_schema(ref_template="#/components/schemas/{model}")
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in schema["required"] if name != "source"],
        "properties": {
            name: field
            for name, field in schema["properties"].items()
            if name not in ("source", "files")
        },
    }


def submit_headers() -> dict[str, Any]:
    """OpenAPI's headers of what starts a job."""
    text = {"type": "string"}
    return {
        "Location": {"description": "The job's own address.", "schema": text},
        "Preference-Applied": {"description": "The wait that was applied.", "schema": text},
        "Idempotent-Replayed": {
            "description": "`true` where the key had been used for this request before.",
            "schema": text,
        },
    }
