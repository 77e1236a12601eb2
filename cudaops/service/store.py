"""Jobs, tokens and the audit in PostgreSQL: what the routes say to the database, one method a
statement.

Every method is a transaction of its own and safe from several processes at once. Raises
ServiceUnavailable where the database cannot be reached. What is submitted stands in
`store_submit.py`, what workers say in `store_work.py`. Of a token only its hash is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from cudaops.errors import InputError, KnowledgeUnavailable, ServiceUnavailable
from cudaops.rag.server import open_database
from cudaops.service.database import LISTENING_LOOK_S, Notices, Pool, Queue, one, tell
from cudaops.service.records import (
    ENDED,
    Artefact,
    Job,
    JobEvent,
    JobKind,
    JobRequest,
    JobStatus,
    JobSummary,
    Scope,
)
from cudaops.service.rows import (
    SUMMARY,
    AuditRow,
    Claim,
    Identity,
    Submitted,
    TokenRow,
    WorkerRow,
    finish,
    full,
    note,
    request_of,
    summary,
)
from cudaops.service.store_submit import (
    MAX_QUEUED,
    IdempotencyConflict,
    QueueFull,
    Submitting,
)
from cudaops.service.store_work import Working
from cudaops.settings import Settings

# Tokens and the audit. Of a token only its hash is kept.

PREFIX = "cudaops_"
"""By which people, and tools that look for leaked secrets, know a token."""
TOKEN_BYTES = 32

CACHE_S = 3.0
"""How long a token that was found is taken without asking again, so that many clients do not mean
as many look-ups; a removed token may be taken that long by other processes."""
MAX_CACHED = 1024

USE_NOTED_S = 60
"""How often the time of a token's last use is written, at most."""


class TokenStore:
    """The part of the store that knows who may ask."""

    pool: Pool

    def __init__(self) -> None:
        self._found: dict[str, tuple[Identity, float]] = {}
        """By hash: whose it is, and until when (`time.monotonic`) that is taken as known."""

    async def add_token(self, name: str, scope: Scope, days: int | None) -> str:
        """A new random token, shown this once. Raises InputError where the name is taken."""
        token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "INSERT INTO tokens (name, scope, sha256, expires_at) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name) DO NOTHING RETURNING name",
                [name, scope, _hash(token), expires],
            )
            if row is None:
                raise InputError(f"there is a token {name!r} already; remove it or choose a name")
            await note(cursor, "service", "token added", None, {"name": name, "scope": scope})
        return token

    async def remove_token(self, name: str) -> bool:
        """Whether there was one of this name."""
        async with self.pool.transaction() as cursor:
            row = await one(cursor, "DELETE FROM tokens WHERE name = %s RETURNING name", [name])
            if row is not None:
                await note(cursor, "service", "token removed", None, {"name": name})
        self._found.clear()
        return row is not None

    async def tokens(self) -> tuple[TokenRow, ...]:
        """All of them, by name."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT name, scope, created_at, expires_at, last_used_at FROM tokens ORDER BY name"
            )
            return tuple(TokenRow.model_validate(row) for row in await cursor.fetchall())

    async def identify(self, token: str) -> Identity | None:
        """Whose token this is; None: unknown or expired."""
        sha256 = _hash(token)
        known = self._found.get(sha256)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        self._found.pop(sha256, None)
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "SELECT name, scope, sha256, last_used_at IS NULL OR"
                " last_used_at < now() - make_interval(secs => %s) AS stale FROM tokens"
                " WHERE sha256 = %s AND (expires_at IS NULL OR expires_at > now())",
                [USE_NOTED_S, sha256],
            )
            # The index compared hashes, of which a guesser knows nothing; this adds no clue.
            if row is None or not hmac.compare_digest(row["sha256"], sha256):
                return None
            if row["stale"]:
                await cursor.execute(
                    "UPDATE tokens SET last_used_at = now() WHERE sha256 = %s", [sha256]
                )
        if len(self._found) >= MAX_CACHED:
            self._found.clear()
        identity = Identity(row["name"], row["scope"])
        self._found[sha256] = (identity, time.monotonic() + CACHE_S)
        return identity

    async def audit(
        self, actor: str, action: str, job: UUID | None = None, **detail: object
    ) -> None:
        """One line of who did what; never a source text or a secret."""
        async with self.pool.transaction() as cursor:
            await note(cursor, actor, action, job, detail)

    async def audited(self, job: UUID | None = None, limit: int = 100) -> tuple[AuditRow, ...]:
        """Audit lines, oldest first: of one job, or the last ones of all."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT at, actor, action, job, detail FROM (SELECT * FROM audit"
                " WHERE %s::uuid IS NULL OR job = %s ORDER BY id DESC LIMIT %s) AS last"
                " ORDER BY id",
                [job, job, limit],
            )
            return tuple(AuditRow.model_validate(row) for row in await cursor.fetchall())


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Jobs in PostgreSQL: what the routes and the workers say to the database, one method a statement.

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


class Store(Submitting, Working, TokenStore):
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
