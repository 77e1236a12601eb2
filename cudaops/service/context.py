"""What every route can reach: the store, the limits, whether the service is closing, and a job's
news as they come (server-sent events, and waiting for its end).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from fastapi import Request

from cudaops.service.auth import ANYONE, Authenticator, ServiceOptions, allows
from cudaops.service.operation import Metrics
from cudaops.service.problems import Refused
from cudaops.service.records import ENDED, Job, JobEvent, JobSummary
from cudaops.service.store import Identity, Store

# What every route can reach: the store, the limits, and whether the service is closing.


@dataclass
class Service:
    """One running API, at `app.state.service`."""

    store: Store
    options: ServiceOptions
    authenticator: Authenticator
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


# A job's events as they come: server-sent events, and waiting for a job's end.

T = TypeVar("T")

KEEP_ALIVE = b": keep-alive\n\n"
BATCH = 500


async def news(service: Service, id: UUID, *, seconds: float) -> AsyncGenerator[bool]:
    """Yields at once and whenever something may have changed (True), or after a silence as long as
    `keep_alive_seconds` (False); ends after `seconds`, or when the service drains."""
    until = time.monotonic() + seconds
    closing = asyncio.ensure_future(service.closing.wait())
    async with contextlib.aclosing(service.store.watch(id)) as watch:
        upcoming: asyncio.Future[Any] = asyncio.ensure_future(anext(watch))
        try:
            while not closing.done() and (left := until - time.monotonic()) > 0:
                await asyncio.wait(
                    {upcoming, closing},
                    timeout=min(left, service.options.keep_alive_seconds),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if upcoming.done():
                    upcoming.result()
                    upcoming = asyncio.ensure_future(anext(watch))
                    yield True
                elif not closing.done():
                    yield False
        finally:
            closing.cancel()
            upcoming.cancel()
            await asyncio.gather(closing, upcoming, return_exceptions=True)


async def ended(
    service: Service,
    id: UUID,
    who: Identity,
    seconds: float,
    gone: Callable[[], Awaitable[bool]],
) -> JobSummary | None:
    """The job once it has ended; None where `seconds` pass first, or `gone` says that nobody
    waits any longer."""
    with service.waiting(who):
        async with contextlib.aclosing(news(service, id, seconds=seconds)) as changes:
            async for _ in changes:
                found = await _undisturbed(service.store.summary(id))
                if found is None or found.status in ENDED:
                    return found
                if await gone():
                    return None
    return None


async def stream(service: Service, id: UUID, after: int) -> AsyncIterator[bytes]:
    """Events with `seq` > `after`: those that are there, then those to come, then `end`."""
    silent_since = time.monotonic()
    seconds = service.options.max_stream_seconds
    async with contextlib.aclosing(news(service, id, seconds=seconds)) as changes:
        async for _ in changes:
            # Asked first: an end that comes in between shows as an event that is still to come.
            summary = await _undisturbed(service.store.summary(id))
            async for batch in _batches(service, id, after):
                after = batch[-1].seq
                yield b"".join(_event(event) for event in batch)
                silent_since = time.monotonic()
            if summary is None or summary.status in ENDED:
                if summary is not None:
                    yield _block("end", None, summary.model_dump_json())
                return
            if time.monotonic() - silent_since >= service.options.keep_alive_seconds:
                yield KEEP_ALIVE
                silent_since = time.monotonic()


async def _batches(service: Service, id: UUID, after: int) -> AsyncIterator[tuple[JobEvent, ...]]:
    while found := await _undisturbed(service.store.events(id, after, BATCH)):
        after = found[-1].seq
        yield found
        if len(found) < BATCH:
            return


async def _undisturbed(asking: Coroutine[Any, Any, T]) -> T:
    """A reader that goes away in the middle of a statement costs nobody a connection."""
    return await asyncio.shield(asyncio.ensure_future(asking))


def _event(event: JobEvent) -> bytes:
    return _block(event.kind, event.seq, event.model_dump_json())


def _block(kind: str, seq: int | None, data: str) -> bytes:
    """One event. JSON has no line breaks, so `data` is one line."""
    id_line = "" if seq is None else f"id: {seq}\n"
    return f"event: {kind}\n{id_line}data: {data}\n\n".encode()
