"""Jobs that were started: looking, following, cancelling."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cudaops.domain.base import Record
from cudaops.service.auth import allows, require
from cudaops.service.context import Service, service_of
from cudaops.service.events_stream import stream
from cudaops.service.problems import responses
from cudaops.service.records import ENDED, Job, JobKind, JobStatus, JobSummary
from cudaops.service.store import Identity

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
