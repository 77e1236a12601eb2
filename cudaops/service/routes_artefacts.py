"""What a job left: its files, and its report for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from cudaops.domain.run import Event, RunRecord
from cudaops.service.auth import require
from cudaops.service.context import Service, service_of
from cudaops.service.problems import Refused, responses
from cudaops.service.records import ENDED, Artefact, JobEvent
from cudaops.service.routes_jobs import OF_A_JOB
from cudaops.service.store import Identity

# A run's report as HTML: what reports/ makes of a record, for the record of a job.


class Renderer(Protocol):
    """Makes HTML of a run record; whatever came from outside is escaped."""

    def document(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """One self-contained page."""
        ...

    def sections(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """Its sections alone."""
        ...


class HtmlReports:
    """The renderer of `cudaops.reports.html`."""

    def document(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """One self-contained page."""
        from cudaops.reports import html

        return html.document(record, run_events(events))

    def sections(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """Its sections alone."""
        from cudaops.reports import html

        return html.sections(record, run_events(events))


REPORT = "report.html"
"""Artefact in which a worker leaves the report of a run."""


def fragment_of(document: str) -> str:
    """The sections of a report that was written as a page."""
    from cudaops.reports import html

    return html.fragment_of(document)


def style_sheet() -> Path:
    """The report's style sheet, which the service's page uses too."""
    from cudaops.reports import html

    return Path(html.__file__).with_name("style.css")


def run_events(events: Sequence[JobEvent]) -> tuple[Event, ...]:
    """The last attempt's events as a run's own; the job's status changes are no part of a run."""
    last = max((event.attempt for event in events), default=0)
    kept = [event for event in events if event.attempt == last and event.kind != "status"]
    return tuple(
        Event.model_validate({**event.model_dump(exclude={"attempt"}), "seq": seq})
        for seq, event in enumerate(kept)
    )


# What a job left: its files, and its report for people.

TEXT = "text/plain; charset=utf-8"
DOCUMENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self'; sandbox allow-popups"
)
"""Of the report: it carries its own style sheet, and may run nothing."""
MAX_EVENTS = 20_000
"""Most events that a report is drawn from; a run has hundreds."""

Reader = Annotated[Identity, Depends(require("read"))]
Serving = Annotated[Service, Depends(service_of)]
IfNoneMatch = Annotated[
    str | None, Header(description="The `ETag` of what you have already: answers 304 then.")
]

_ETAG = {"ETag": {"description": "The content's hash.", "schema": {"type": "string"}}}
_ANY = {"schema": {"type": "string"}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "headers": _ETAG,
        "content": {"text/plain": _ANY, "application/json": {"schema": {}},
                    "application/octet-stream": _ANY, "text/html": _ANY},
    },
    304: {"description": "You have it already."},
}  # fmt: skip
_REPORT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The report.", "content": {"text/html": _ANY}}
}


def build_artefacts_router(renderer: Renderer | None) -> APIRouter:
    """Artefacts; and the report, where there is something to render it."""
    router = APIRouter(tags=["results"])
    router.add_api_route(
        "/jobs/{id}/artefacts",
        list_artefacts,
        operation_id="listArtefacts",
        response_model=list[Artefact],
        responses=responses(*OF_A_JOB),
    )
    for method in ("GET", "HEAD"):
        router.add_api_route(
            "/jobs/{id}/artefacts/{name:path}",
            get_artefact,
            methods=[method],
            operation_id="getArtefact" if method == "GET" else "headArtefact",
            response_class=Response,
            responses={**responses(*OF_A_JOB), **_FILE},
        )
    if renderer is not None:
        router.add_api_route(
            "/jobs/{id}/report",
            _reporter(renderer),
            operation_id="getReport",
            summary="Read the report",
            response_class=Response,
            responses={**responses(*OF_A_JOB, "not-ended"), **_REPORT},
        )
    return router


async def list_artefacts(id: UUID, identity: Reader, service: Serving) -> Response:
    """The files that a job left, by name. Empty until it has ended."""
    found = (await service.visible_job(id, identity)).artefacts
    body = "[" + ",".join(each.model_dump_json() for each in found) + "]"
    return Response(body, media_type="application/json")


async def get_artefact(
    id: UUID, name: str, identity: Reader, service: Serving, if_none_match: IfNoneMatch = None
) -> Response:
    """One file, as `best.cu` or `iterations/01/candidate.cu`."""
    await service.visible(id, identity)
    found = await service.store.artefact(id, name)
    if found is None:
        raise Refused("not-found", "no such file; GET /jobs/{id}/artefacts lists them")
    artefact, content = found
    tag = f'"{artefact.sha256}"'
    headers = {
        "ETag": tag,
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="{safe_name(artefact.name)}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_shown_as(artefact.media_type), headers=headers)


def safe_name(name: str) -> str:
    """The last part of an artefact's name, in characters that no header and no shell minds."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.rsplit("/", 1)[-1]).lstrip(".") or "artefact"


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether the client has this content already (RFC 9110, section 13.1.2)."""
    if if_none_match is None:
        return False
    given = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return "*" in given or tag in given


def _shown_as(media_type: str) -> str:
    """Media types that browsers act on are few: the rest is text or bytes."""
    plain = media_type.split(";")[0].strip()
    if plain in ("application/json", "text/html", "application/octet-stream"):
        return plain
    return TEXT if plain.startswith("text/") else "application/octet-stream"


def _reporter(renderer: Renderer) -> Any:
    async def get_report(
        id: UUID,
        identity: Reader,
        service: Serving,
        fragment: Annotated[
            bool, Query(description="Only the sections, for a page that has its own head.")
        ] = False,
    ) -> Response:
        """The report of a job with a run record (verify, optimize), as HTML for people."""
        summary = await service.visible(id, identity)
        if summary.status not in ENDED:
            raise Refused("not-ended", "ask again when the job has ended")
        record = (await service.visible_job(id, identity)).result
        if not isinstance(record, RunRecord):
            raise Refused("not-found", "this job has no run record to report on")
        html = await _written(service, id, fragment)
        if html is None:
            events = await _all_events(service, id)
            render = renderer.sections if fragment else renderer.document
            html = await run_in_threadpool(render, record, events)
        policy = {"Content-Security-Policy": DOCUMENT_POLICY}
        return Response(html, media_type="text/html", headers=policy)

    return get_report


async def _written(service: Service, id: UUID, fragment: bool) -> str | None:
    """The report as the worker wrote it, who had patch and certificate at hand; None without."""
    stored = await service.store.artefact(id, REPORT)
    if stored is None:
        return None
    text = stored[1].decode("utf-8")
    return fragment_of(text) if fragment else text


async def _all_events(service: Service, id: UUID) -> tuple[JobEvent, ...]:
    found: tuple[JobEvent, ...] = ()
    while len(found) < MAX_EVENTS:
        batch = await service.store.events(id, found[-1].seq if found else 0)
        if not batch:
            break
        found += batch
    return found
