"""What is submitted to the database: a job, or a batch of them, each once under its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from cudaops.domain.batch import Batch, BatchRow, batch_of
from cudaops.errors import EnvironmentFailure, InputError, ServiceUnavailable
from cudaops.service.database import Cursor, Pool, Queue, one
from cudaops.service.records import JobKind, JobRequest, JobSummary, OptimizeRequest, batch_row
from cudaops.service.rows import SUMMARY, Submitted, digest, note, status_event, summary

MAX_QUEUED = 10_000
"""Jobs that may wait before no further one is taken."""


class IdempotencyConflict(InputError):
    """The idempotency key was used for another request before."""


class QueueFull(EnvironmentFailure):
    """Too many jobs wait."""


class SubmittedBatch(NamedTuple):
    """What submitting a batch came to."""

    id: UUID
    created: bool
    """False: the idempotency key had been used for this very request before."""


class Submitting:
    """The part of the store that takes jobs."""

    pool: Pool
    _queue: Queue
    _max_queued: int

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
        sha256 = digest(kind, request)
        async with self.pool.transaction() as cursor:
            if idempotency_key is not None:
                earlier = await _earlier(cursor, owner, idempotency_key, sha256)
                if earlier is not None:
                    return earlier
            await self._raise_if_full(cursor)
            kept = await self._keep(cursor, kind, request, owner, idempotency_key, trace)
            if kept is not None:
                return Submitted(kept, created=True)
            # Somebody was quicker with the same key; the insert has waited for them.
            earlier = await _earlier(cursor, owner, idempotency_key or "", sha256)
        if earlier is None:
            raise ServiceUnavailable("a job was removed while it was looked up", "submit it again")
        return earlier

    async def submit_batch(
        self,
        requests: Sequence[OptimizeRequest],
        owner: str,
        idempotency_key: str | None,
        *,
        trace: str | None = None,
    ) -> SubmittedBatch:
        """Keep a batch with a job of each request, all or none. Raises as `submit` does."""
        id, sha256 = uuid4(), _digest_of_all(requests)
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "INSERT INTO batches (id, owner, idempotency_key, request_sha256)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (owner, idempotency_key)"
                " WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING id",
                [id, owner, idempotency_key, sha256],
            )
            if row is None:
                earlier = await _earlier_batch(cursor, owner, idempotency_key or "", sha256)
                return SubmittedBatch(earlier, created=False)
            await self._raise_if_full(cursor, len(requests))
            for position, request in enumerate(requests):
                job = await self._keep(cursor, "optimize", request, owner, None, trace)
                assert job is not None, "a job without a key is new"
                await cursor.execute(
                    "INSERT INTO batch_jobs (batch, position, job) VALUES (%s, %s, %s)",
                    [id, position, job.id],
                )
        return SubmittedBatch(id, created=True)

    async def batch(self, id: UUID, owner: str | None) -> Batch | None:
        """A batch with a row for each job that is still kept; `owner` None: anybody's. None: there
        is none, or it is somebody else's."""
        async with self.pool.transaction() as cursor:
            found = await one(
                cursor,
                "SELECT created_at FROM batches WHERE id = %s AND (%s::text IS NULL OR owner = %s)",
                [id, owner, owner],
            )
            if found is None:
                return None
            await cursor.execute(
                "SELECT " + SUMMARY + ", figures::text AS figures FROM jobs"
                " JOIN batch_jobs ON batch_jobs.job = jobs.id WHERE batch = %s ORDER BY position",
                [id],
            )
            rows = await cursor.fetchall()
        created_at: datetime = found["created_at"]
        return batch_of(id, created_at, [_batch_row(row) for row in rows])

    async def _keep(
        self,
        cursor: Cursor,
        kind: JobKind,
        request: JobRequest,
        owner: str,
        idempotency_key: str | None,
        trace: str | None,
    ) -> JobSummary | None:
        """A new job in the queue; None where the key was used before."""
        row = await one(
            cursor,
            "INSERT INTO jobs (id, kind, status, request, filename, kernel, executor, owner,"
            " idempotency_key, request_sha256, trace)"
            " VALUES (%s, %s, 'queued', %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
            " RETURNING " + SUMMARY,
            [
                uuid4(), kind, request.model_dump_json(), request.filename, request.kernel,
                request.executor, owner, idempotency_key, digest(kind, request), trace,
            ],
        )  # fmt: skip
        if row is None:
            return None
        job = summary(row)
        await status_event(cursor, job.id, 0, "queued")
        await note(cursor, owner, "submitted", job.id, {"kind": kind})
        await self._queue.put(cursor, job.id, request.executor)
        return job

    async def _raise_if_full(self, cursor: Cursor, more: int = 1) -> None:
        row = await one(
            cursor,
            "SELECT count(*) AS waiting FROM"
            " (SELECT 1 FROM jobs WHERE status = 'queued' LIMIT %s) AS queued",
            [self._max_queued],
        )
        if row is not None and row["waiting"] + more > self._max_queued:
            raise QueueFull(
                f"{row['waiting']} jobs wait already, and at most {self._max_queued} may",
                "try again when some have run",
            )


async def _earlier(cursor: Cursor, owner: str, key: str, sha256: str) -> Submitted | None:
    """The job that this owner submitted under the key. Raises IdempotencyConflict."""
    row = await one(
        cursor,
        "SELECT " + SUMMARY + ", request_sha256 FROM jobs"
        " WHERE owner = %s AND idempotency_key = %s",
        [owner, key],
    )
    if row is None:
        return None
    _raise_if_other(row["request_sha256"], sha256)
    return Submitted(summary(row), created=False)


async def _earlier_batch(cursor: Cursor, owner: str, key: str, sha256: str) -> UUID:
    """The batch that this owner submitted under the key. Raises IdempotencyConflict."""
    row = await one(
        cursor,
        "SELECT id, request_sha256 FROM batches WHERE owner = %s AND idempotency_key = %s",
        [owner, key],
    )
    if row is None:
        raise ServiceUnavailable("a batch was removed while it was looked up", "submit it again")
    _raise_if_other(row["request_sha256"], sha256)
    found: UUID = row["id"]
    return found


def _raise_if_other(known: str, sha256: str) -> None:
    if known != sha256:
        raise IdempotencyConflict(
            "this Idempotency-Key was used for another request before; use a new one"
        )


def _digest_of_all(requests: Sequence[OptimizeRequest]) -> str:
    return hashlib.sha256(
        "".join(digest("optimize", each) for each in requests).encode()
    ).hexdigest()


def _batch_row(row: dict[str, Any]) -> BatchRow:
    """A job's row as one of its batch."""
    job = summary(row)
    figures = json.loads(row["figures"]) if row["figures"] else None
    return batch_row(job, figures, f"/jobs/{job.id}/report")
