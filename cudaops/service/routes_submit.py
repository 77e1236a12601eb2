"""Six ways to start a job. Each answers 202 at once, or waits as long as `Prefer: wait=` says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Request, Response

from cudaops.errors import ServiceUnavailable
from cudaops.service import tracing
from cudaops.service.auth import require
from cudaops.service.context import Service, service_of
from cudaops.service.events_stream import ended
from cudaops.service.examples import EXAMPLES
from cudaops.service.problems import Refused, responses
from cudaops.service.records import ENDED, MAX_FILES, REQUESTS, Job, JobKind, JobSummary
from cudaops.service.routes_jobs import as_json
from cudaops.service.store import IdempotencyConflict, Identity, QueueFull
from cudaops.service.uploads import FORM, JSON, read_request

MAX_WAIT_S = 60
"""Longest `Prefer: wait=`: proxies commonly cut a silent request soon after."""
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)

Starter = Annotated[Identity, Depends(require("run", "submit"))]
Serving = Annotated[Service, Depends(service_of)]
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
    accepted = {"description": "Kept and queued.", "headers": _headers()}
    finished = {"model": Job, "description": "Finished within the wait.", "headers": _headers()}
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
        identity: Starter,
        service: Serving,
        prefer: Prefer = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        asked: Any = await read_request(request, REQUESTS[kind])
        try:
            job, created = await service.store.submit(
                kind, asked, identity.name, idempotency_key, trace=tracing.current()
            )
        except IdempotencyConflict as error:
            raise Refused("key-reused", str(error)) from None
        except QueueFull as error:
            raise Refused(
                "queue-full", f"{error.problem}; {error.remedy}", headers={"Retry-After": "30"}
            ) from None
        headers = {"Location": f"/jobs/{job.id}"}
        if not created:
            headers["Idempotent-Replayed"] = "true"
        return await _answer(request, service, identity, job, wait_seconds(prefer), headers)

    return submit


async def _answer(
    request: Request,
    service: Service,
    identity: Identity,
    job: JobSummary,
    wait_s: int | None,
    headers: dict[str, str],
) -> Response:
    """The job as it is, or as it is after waiting for its end."""
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


def _headers() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "Location": {"description": "The job's own address.", "schema": text},
        "Preference-Applied": {"description": "The wait that was applied.", "schema": text},
        "Idempotent-Replayed": {
            "description": "`true` where the key had been used for this request before.",
            "schema": text,
        },
    }
