"""A job's events as they come: server-sent events, and waiting for a job's end.

Source: WHATWG HTML, section 9.2, for the format. All readers share the store's one listening
connection; each looks into the database only when something was said about its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from cudaops.service.context import Service
from cudaops.service.records import ENDED, JobEvent, JobSummary
from cudaops.service.rows import Identity

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
