"""Jobs in PostgreSQL: what the routes and the workers say to the database, one method a statement.

Every method is a transaction of its own and safe from several processes at once. Raises
ServiceUnavailable where the database cannot be reached. What workers say stands in
`store_work.py`, tokens and the audit in `store_tokens.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, LiteralString
from uuid import UUID, uuid4

from cudaops.errors import EnvironmentFailure, InputError, KnowledgeUnavailable, ServiceUnavailable
from cudaops.rag.server import open_database
from cudaops.service.database import Pool, one
from cudaops.service.notify import LISTENING_LOOK_S, Notices, tell
from cudaops.service.queue import Queue
from cudaops.service.records import (
    ENDED,
    Artefact,
    Job,
    JobEvent,
    JobKind,
    JobRequest,
    JobStatus,
    JobSummary,
)
from cudaops.service.rows import (
    SUMMARY,
    AuditRow,
    Claim,
    Identity,
    Submitted,
    TokenRow,
    WorkerRow,
    digest,
    finish,
    full,
    note,
    request_of,
    status_event,
    summary,
)
from cudaops.service.store_tokens import Tokens
from cudaops.service.store_work import Working
from cudaops.settings import Settings

__all__ = [
    "AuditRow",
    "Claim",
    "IdempotencyConflict",
    "Identity",
    "QueueFull",
    "Store",
    "Submitted",
    "TokenRow",
    "WorkerRow",
    "open_store",
]  # fmt: skip

MAX_QUEUED = 10_000
"""Jobs that may wait before no further one is taken."""


class IdempotencyConflict(InputError):
    """The idempotency key was used for another request before."""


class QueueFull(EnvironmentFailure):
    """Too many jobs wait."""


async def open_store(
    settings: Settings, *, pool_size: int = 8, max_queued: int = MAX_QUEUED
) -> Store:
    """The store on the database of the settings, the embedded one where they name none.

    Holds a share in an embedded server until it is closed. Raises ServiceUnavailable.
    """
    url = settings.database_url.get_secret_value() if settings.database_url else None
    try:
        database = await asyncio.to_thread(open_database, url, settings.knowledge_folder)
    except KnowledgeUnavailable as error:
        raise ServiceUnavailable(error.problem, error.remedy) from error
    try:
        return await Store.open(
            database.conninfo, pool_size=pool_size, max_queued=max_queued, on_close=database.close
        )
    except BaseException:
        database.close()
        raise


class Store(Working, Tokens):
    """Connection pool, statements, and the queue's delivery of what is submitted."""

    def __init__(self, pool: Pool, queue: Queue, max_queued: int) -> None:
        super().__init__(pool, queue)
        self._notices = Notices(pool.conninfo)
        self._max_queued = max_queued

    @classmethod
    async def open(
        cls,
        conninfo: str,
        *,
        pool_size: int = 8,
        max_queued: int = MAX_QUEUED,
        on_close: Callable[[], None] = lambda: None,
    ) -> Store:
        """Connect, create or migrate the tables (advisory lock), open the queue.

        `on_close` is called at the end of `close`.
        """
        pool = await Pool.open(conninfo, pool_size, on_close)
        return cls(pool, await Queue.open(pool), max_queued)

    async def close(self) -> None:
        """Close every connection. Nothing may be asked afterwards."""
        await self._notices.close()
        await self.pool.close()

    async def check(self) -> None:
        """Raise ServiceUnavailable where the database does not answer (readyz)."""
        async with self.pool.transaction() as cursor:
            await cursor.execute("SELECT 1")

    async def submit(
        self,
        kind: JobKind,
        request: JobRequest,
        owner: str,
        idempotency_key: str | None,
        *,
        trace: str | None = None,
    ) -> Submitted:
        """Keep a job and put it into the queue, both or neither (one transaction).

        Raises IdempotencyConflict where the key was used for another request by this owner, and
        QueueFull where more than `max_queued` jobs wait.
        """
        id, sha256 = uuid4(), digest(kind, request)
        async with self.pool.transaction() as cursor:
            if idempotency_key is not None:
                earlier = await _earlier(cursor, owner, idempotency_key, sha256)
                if earlier is not None:
                    return earlier
            await self._raise_if_full(cursor)
            row = await one(
                cursor,
                "INSERT INTO jobs (id, kind, status, request, filename, kernel, executor, owner,"
                " idempotency_key, request_sha256, trace)"
                " VALUES (%s, %s, 'queued', %s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
                " RETURNING " + SUMMARY,
                [
                    id, kind, request.model_dump_json(), request.filename, request.kernel,
                    request.executor, owner, idempotency_key, sha256, trace,
                ],
            )  # fmt: skip
            if row is not None:
                await status_event(cursor, id, 0, "queued")
                await note(cursor, owner, "submitted", id, {"kind": kind})
                await self._queue.put(cursor, id, request.executor)
                return Submitted(summary(row), created=True)
            # Somebody was quicker with the same key; the insert has waited for them.
            earlier = await _earlier(cursor, owner, idempotency_key or "", sha256)
        if earlier is None:
            raise ServiceUnavailable("a job was removed while it was looked up", "submit it again")
        return earlier

    async def _raise_if_full(self, cursor: Any) -> None:
        row = await one(
            cursor,
            "SELECT count(*) AS waiting FROM"
            " (SELECT 1 FROM jobs WHERE status = 'queued' LIMIT %s) AS queued",
            [self._max_queued],
        )
        if row is not None and row["waiting"] >= self._max_queued:
            raise QueueFull(f"{self._max_queued} jobs wait already", "try again when some have run")

    async def job(self, id: UUID) -> Job | None:
        """A job with result and list of artefacts."""
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "SELECT " + SUMMARY + ", result::text AS result FROM jobs WHERE id = %s",
                [id],
            )
            if row is None:
                return None
            await cursor.execute(
                "SELECT name, media_type, octet_length(content) AS size_bytes, sha256"
                " FROM artefacts WHERE job = %s ORDER BY name",
                [id],
            )
            return full(row, await cursor.fetchall())

    async def summary(self, id: UUID) -> JobSummary | None:
        """A job without its result."""
        async with self.pool.transaction() as cursor:
            row = await one(cursor, "SELECT " + SUMMARY + " FROM jobs WHERE id = %s", [id])
        return None if row is None else summary(row)

    async def request(self, id: UUID) -> JobRequest | None:
        """What was asked for."""
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor, "SELECT kind, request::text AS request FROM jobs WHERE id = %s", [id]
            )
        return None if row is None else request_of(row["kind"], row["request"])

    async def jobs(
        self,
        *,
        owner: str | None,
        status: JobStatus | None = None,
        kind: JobKind | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> tuple[JobSummary, ...]:
        """Newest first; `owner` None: everybody's; `before`: those older than this job."""
        conditions: list[LiteralString] = []
        values: list[Any] = []
        asked: list[tuple[LiteralString, Any]] = [
            ("owner = %s", owner),
            ("status = %s", status),
            ("kind = %s", kind),
            ("(created_at, id) < (SELECT created_at, id FROM jobs WHERE id = %s)", before),
        ]
        for condition, value in asked:
            if value is not None:
                conditions.append(condition)
                values.append(value)
        where: LiteralString = " WHERE " + " AND ".join(conditions) if conditions else ""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT " + SUMMARY + " FROM jobs" + where + " ORDER BY created_at DESC, id DESC"
                " LIMIT %s",
                [*values, limit],
            )
            rows = await cursor.fetchall()
        return tuple(summary(row) for row in rows)

    async def events(self, id: UUID, after: int, limit: int = 500) -> tuple[JobEvent, ...]:
        """Events with `seq` > `after`, in order."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT event::text AS event FROM events WHERE job = %s AND seq > %s"
                " ORDER BY seq LIMIT %s",
                [id, after, limit],
            )
            rows = await cursor.fetchall()
        return tuple(JobEvent.model_validate_json(row["event"]) for row in rows)

    def watch(self, id: UUID, every_s: float = LISTENING_LOOK_S) -> AsyncGenerator[None]:
        """Yields at once, then whenever something about the job may have changed (LISTEN/NOTIFY
        over one connection for all watchers; at least every 5 s without one). For
        `contextlib.aclosing`."""
        return self._notices.watch(id, every_s)

    async def artefact(self, id: UUID, name: str) -> tuple[Artefact, bytes] | None:
        """A file that the job left, with its content."""
        if "\0" in name:  # which PostgreSQL does not take in a text
            return None
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "SELECT name, media_type, octet_length(content) AS size_bytes, sha256, content"
                " FROM artefacts WHERE job = %s AND name = %s",
                [id, name],
            )
        if row is None:
            return None
        content: bytes = row.pop("content")
        return Artefact.model_validate(row), content

    async def cancel(self, id: UUID, actor: str | None = None) -> JobStatus | None:
        """Ask for it: a queued job is cancelled at once, and one whose worker has gone; a running
        one by its worker; an ended one stays as it is. The status afterwards; None for an unknown
        job. `actor`: who asks."""
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "SELECT status, attempts, owner, cancel_requested,"
                " coalesce(lease_until < now(), true) AS held_by_nobody"
                " FROM jobs WHERE id = %s FOR UPDATE",
                [id],
            )
            if row is None:
                return None
            status: JobStatus = row["status"]
            who = actor or str(row["owner"])
            if status not in ENDED and row["held_by_nobody"]:
                await finish(cursor, id, row["attempts"], "cancelled", who)
                return "cancelled"
            if status == "running" and not row["cancel_requested"]:
                await cursor.execute("UPDATE jobs SET cancel_requested = true WHERE id = %s", [id])
                await note(cursor, who, "cancel asked", id, {})
                await tell(cursor, id)
            return status

    async def queue_depth(self) -> dict[tuple[JobKind, JobStatus], int]:
        """Jobs by kind and status, for metrics; ended ones of the last day only."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT kind, status, count(*) AS jobs FROM jobs"
                " WHERE ended_at IS NULL OR ended_at > now() - interval '1 day'"
                " GROUP BY kind, status"
            )
            return {(row["kind"], row["status"]): row["jobs"] for row in await cursor.fetchall()}


async def _earlier(cursor: Any, owner: str, key: str, sha256: str) -> Submitted | None:
    """The job that this owner submitted under the key. Raises IdempotencyConflict."""
    row = await one(
        cursor,
        "SELECT " + SUMMARY + ", request_sha256 FROM jobs"
        " WHERE owner = %s AND idempotency_key = %s",
        [owner, key],
    )
    if row is None:
        return None
    if row["request_sha256"] != sha256:
        raise IdempotencyConflict(
            "this Idempotency-Key was used for another request before; use a new one"
        )
    return Submitted(summary(row), created=False)
