"""Batches over HTTP: several programs as one request, and one table of their results."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from cudaops.domain.batch import Batch
from cudaops.service import tracing
from cudaops.service.auth import allows
from cudaops.service.context import Service
from cudaops.service.problems import Refused, responses
from cudaops.service.records import BATCH_EXAMPLE, BatchRequest
from cudaops.service.routes_artefacts import DOCUMENT_POLICY
from cudaops.service.routes_jobs import (
    JSON,
    OF_A_JOB,
    PROBLEMS,
    IdempotencyKey,
    Reader,
    Serving,
    Submitter,
    as_json,
    read_json,
    submitting,
)
from cudaops.service.store import Identity

_HTML: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The page.",
        "content": {"text/html": {"schema": {"type": "string"}}},
    }
}
_TEXT = {"schema": {"type": "string"}}
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Kept, and a job of each program queued.",
        "headers": {
            "Location": {"description": "The batch's own address.", **_TEXT},
            "Idempotent-Replayed": {
                "description": "`true` where the key had been used for this request before.",
                **_TEXT,
            },
        },
    }
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"$ref": "#/components/schemas/BatchRequest"},
                "examples": {"bars": BATCH_EXAMPLE},
            }
        },
    }
}


router = APIRouter(tags=["batches"])


@router.post(
    "/batches",
    operation_id="startBatch",
    status_code=202,
    response_model=Batch,
    responses={**responses(*(name for name in PROBLEMS if name != "not-source")), **_ACCEPTED},
    openapi_extra=_BODY,
)
async def start_batch(
    request: Request,
    identity: Submitter,
    service: Serving,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Optimise several programs, or several kernels of one: a job each, all queued or none. Each
    counts as a new job. Follow the batch by its address, and each job as any."""
    asked = await read_json(request, BatchRequest)
    address = request.client.host if request.client else None
    service.authenticator.count_jobs(identity, address, len(asked.programs))
    with submitting():
        kept = await service.store.submit_batch(
            asked.requests, identity.name, idempotency_key, trace=tracing.current()
        )
    headers = {"Location": f"/batches/{kept.id}"}
    if not kept.created:
        headers["Idempotent-Replayed"] = "true"
    return as_json(await _visible(service, kept.id, identity), 202, headers)


@router.get(
    "/batches/{id}",
    operation_id="getBatch",
    response_model=Batch,
    responses=responses(*OF_A_JOB),
)
async def get_batch(id: UUID, identity: Reader, service: Serving) -> Response:
    """A batch: how many have come to what, and a row for each program."""
    return as_json(await _visible(service, id, identity))


@router.get(
    "/batches/{id}/report",
    operation_id="getBatchReport",
    summary="Read the table of a batch",
    response_class=Response,
    responses={**responses(*OF_A_JOB), **_HTML},
)
async def get_batch_report(id: UUID, identity: Reader, service: Serving) -> Response:
    """The rows of a batch as HTML for people, each with a link to its job's report."""
    from cudaops.reports import html

    found = await _visible(service, id, identity)
    page = await run_in_threadpool(html.batch_document, found)
    policy = {"Content-Security-Policy": DOCUMENT_POLICY}
    return Response(page, media_type="text/html", headers=policy)


async def _visible(service: Service, id: UUID, identity: Identity) -> Batch:
    """The batch, where it is the caller's own or the caller an admin's. Raises Refused (404)."""
    everybody = allows(identity.scope, "admin")
    found = await service.store.batch(id, None if everybody else identity.name)
    if found is None:
        raise Refused("not-found", "no such batch; POST /batches starts one")
    return found
