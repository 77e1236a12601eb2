"""Routes for whoever runs the service: alive, ready, metrics, version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response

from cudaops.domain.base import Record
from cudaops.service.health import Health, Readiness, readiness
from cudaops.service.metrics import MEDIA_TYPE, Metrics
from cudaops.service.problems import Refused, responses
from cudaops.service.store import Store


class Version(Record):
    """What runs here."""

    version: str
    """Of cudaops."""


class _Options(Protocol):
    @property
    def version(self) -> str: ...


def build_operation_router(
    store: Store, metrics: Metrics, options: _Options, *, dependencies: Sequence[Any] = ()
) -> APIRouter:
    """`/healthz`, `/readyz` and `/version` for everybody; `/metrics` behind `dependencies`."""
    router = APIRouter(tags=["operation"])
    ready = _Readiness(store)

    @router.get("/healthz", operation_id="health", summary="Is the process alive?")
    async def healthz() -> Health:
        """Answers without looking at anything else. For a supervisor that restarts."""
        return Health()

    @router.get(
        "/readyz",
        operation_id="readiness",
        summary="Can jobs be taken and done?",
        responses=responses("not-ready"),
    )
    async def readyz() -> Readiness:
        """The database answers, and a worker was seen in the last 30 s. For a load balancer."""
        found = await ready.now()
        if isinstance(found, str):
            raise Refused("not-ready", found, headers={"Retry-After": "5"})
        return found

    @router.get("/version", operation_id="version", summary="What runs here")
    async def version() -> Version:
        """Version of cudaops."""
        return Version(version=options.version)

    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        dependencies=list(dependencies),
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus text format; docs/service.md lists the families",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **responses("no-token", "scope", "too-often"),
        },
    )
    async def exposition(request: Request) -> Response:
        """Queue, jobs, stages, candidates, workers and GPUs; HTTP requests of this process."""
        return Response(await metrics.exposition(), headers={"Content-Type": MEDIA_TYPE})

    return router


class _Readiness:
    """Asked for by anybody, often: all who wait share one look into the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking: asyncio.Task[Readiness | str] | None = None

    async def now(self) -> Readiness | str:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(readiness(self._store))
        return await asyncio.shield(self._looking)
