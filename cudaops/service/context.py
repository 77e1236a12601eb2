"""What every route can reach: the store, the limits, and whether the service is closing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from uuid import UUID

from fastapi import Request

from cudaops.service.auth import ANYONE, Doorkeeper, allows
from cudaops.service.metrics import Metrics
from cudaops.service.options import ServiceOptions
from cudaops.service.problems import Refused
from cudaops.service.records import Job, JobSummary
from cudaops.service.store import Identity, Store


@dataclass
class Service:
    """One running API, at `app.state.service`."""

    store: Store
    options: ServiceOptions
    doorkeeper: Doorkeeper
    metrics: Metrics | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service drains: streams end, and nobody waits any longer."""
    _waiting: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def waiting(self, who: Identity) -> Iterator[None]:
        """Around a stream or a wait. Raises Refused (503) where too many are open, or where half
        of all that may be are this token's."""
        most = self.options.max_streams
        shared = who.name != ANYONE.name
        if self._waiting.total() >= most or (shared and self._waiting[who.name] >= -(-most // 2)):
            raise Refused(
                "busy", "too many event streams are open; ask GET /jobs/{id} now and then",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        self._waiting[who.name] += 1
        try:
            with self.metrics.stream() if self.metrics else nullcontext():
                yield
        finally:
            self._waiting[who.name] -= 1
            self._waiting += Counter()  # forgets those at 0

    async def visible(self, id: UUID, identity: Identity) -> JobSummary:
        """The job, where it is the caller's own or the caller an admin's. Raises Refused (404):
        nobody learns that a job of somebody else exists."""
        found = await self.store.summary(id)
        if found is None or not owns(identity, found):
            raise Refused("not-found", "no such job; GET /jobs lists yours")
        return found

    async def visible_job(self, id: UUID, identity: Identity) -> Job:
        """The same, with result and artefacts."""
        found = await self.store.job(id)
        if found is None or not owns(identity, found):
            raise Refused("not-found", "no such job; GET /jobs lists yours")
        return found


def owns(identity: Identity, job: JobSummary) -> bool:
    """Whether the caller may see the job."""
    return job.owner == identity.name or allows(identity.scope, "admin")


async def service_of(request: Request) -> Service:
    """The service that answers this request."""
    service: Service = request.app.state.service
    return service
