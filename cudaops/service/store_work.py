"""What workers say to the database: leases, events, ends, and the sweep behind the dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID, uuid4

from psycopg.types.json import Json

from cudaops.domain.base import Record
from cudaops.service.database import Cursor, Pool, Queue, one
from cudaops.service.records import Artefact, JobEvent, JobStatus, Problem
from cudaops.service.rows import (
    SUMMARY,
    WORKER_SEEN_S,
    Claim,
    WorkerRow,
    append,
    finish,
    note,
    request_of,
    status_event,
    summary,
)

MAX_ATTEMPTS = 3
"""A job over which this many workers have died fails: it is likely what kills them."""

SWEEP_LOCK = 0x6375_6463
"""Key of the advisory lock of whoever sweeps: that of database.py plus one."""

WORKER_GONE = "1 day"
"""After which a worker that was not seen is forgotten."""


class Working:
    """The workers' part of the store."""

    def __init__(self, pool: Pool, queue: Queue) -> None:
        super().__init__()
        self.pool = pool
        self._queue = queue

    async def fetch(self, query: LiteralString, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query that changes nothing, by column."""
        return await self.pool.fetch(query, values)

    async def claim(self, id: UUID, worker: str, lease_s: float) -> Claim | None:
        """Take a queued job, or a running one whose lease has run out; None where somebody else
        has it or it has ended."""
        lease = uuid4()
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "UPDATE jobs SET status = 'running', lease = %s, worker = %s,"
                " lease_until = now() + make_interval(secs => %s), attempts = attempts + 1,"
                " losses = losses + CASE WHEN status = 'running' THEN 1 ELSE 0 END,"
                " started_at = coalesce(started_at, now())"
                " WHERE id = %s AND (status = 'queued' OR"
                " status = 'running' AND lease_until < now() AND losses + 1 < %s"
                " AND NOT cancel_requested) RETURNING "
                + SUMMARY
                + ", request::text AS request, losses, trace",
                [lease, worker, lease_s, id, MAX_ATTEMPTS],
            )
            if row is None:
                return None
            attempt = int(row["attempts"])
            await status_event(cursor, id, attempt, "running", {"worker": worker})
            await note(cursor, f"worker {worker}", "started", id, {"attempt": attempt})
        return Claim(
            job=summary(row),
            request=request_of(row["kind"], row["request"]),
            lease=lease,
            attempt=attempt,
            losses=row["losses"],
            trace=row["trace"],
        )

    async def renew(self, id: UUID, lease: UUID, lease_s: float) -> bool | None:
        """Keep the lease; whether cancelling was asked for. None: the lease is lost, stop."""
        async with self.pool.transaction() as cursor:
            row = await one(
                cursor,
                "UPDATE jobs SET lease_until = now() + make_interval(secs => %s)"
                " WHERE id = %s AND lease = %s RETURNING cancel_requested",
                [lease_s, id, lease],
            )
        return None if row is None else bool(row["cancel_requested"])

    async def add_events(self, id: UUID, lease: UUID, events: Sequence[JobEvent]) -> int | None:
        """Append; `seq` is given here. The last seq; None: the lease is lost."""
        async with self.pool.transaction() as cursor:
            if await _held(cursor, id, lease) is None:
                return None
            return await append(cursor, id, list(events))

    async def end(
        self,
        id: UUID,
        lease: UUID,
        status: JobStatus,
        *,
        result: Record | None = None,
        problem: Problem | None = None,
        artefacts: Sequence[tuple[Artefact, bytes]] = (),
        events: Sequence[JobEvent] = (),
    ) -> bool:
        """End the job with its artefacts and its last events, all or nothing. False: the lease is
        lost, or it has ended already; nothing was written then."""
        async with self.pool.transaction() as cursor:
            row = await _held(cursor, id, lease)
            if row is None:
                return False
            if events:
                await append(cursor, id, list(events))
            await cursor.executemany(
                "INSERT INTO artefacts (job, name, media_type, sha256, content)"
                " VALUES (%s, %s, %s, %s, %s)",
                [(id, one.name, one.media_type, one.sha256, content) for one, content in artefacts],
            )
            actor = f"worker {row['worker']}"
            await finish(cursor, id, row["attempts"], status, actor, result=result, problem=problem)
        return True

    async def release(
        self, id: UUID, lease: UUID, *, lost: bool = False, why: str | None = None
    ) -> bool:
        """Put a job back into the queue: its worker shuts down, or its child died (`lost`), or
        `why`. One that was to be cancelled is cancelled."""
        async with self.pool.transaction() as cursor:
            row = await _held(cursor, id, lease)
            if row is None:
                return False
            await self._requeue(cursor, row, int(lost), f"worker {row['worker']}", why)
        return True

    async def sweep(self, max_attempts: int = MAX_ATTEMPTS) -> int:
        """Queue again every job whose lease has run out or that the queue forgot; those over which
        `max_attempts` workers have died fail, with a problem that says so. How many were touched;
        0 while another process sweeps."""
        async with self.pool.transaction() as cursor:
            row = await one(cursor, "SELECT pg_try_advisory_xact_lock(%s) AS ours", [SWEEP_LOCK])
            if row is None or not row["ours"]:
                return 0
            await cursor.execute(
                "SELECT " + HELD + " FROM jobs WHERE status = 'running' AND lease_until < now()"
                " FOR UPDATE SKIP LOCKED"
            )
            lost = await cursor.fetchall()
            for row in lost:
                if row["losses"] + 1 >= max_attempts and not row["cancel_requested"]:
                    await finish(
                        cursor, row["id"], row["attempts"], "failed", "sweep",
                        problem=_gave_up(row["losses"] + 1),
                    )  # fmt: skip
                else:
                    await self._requeue(cursor, row, 1, "sweep")
            forgotten = await self._queue.forgotten(cursor)
            for id, executor in forgotten:
                await self._queue.put(cursor, id, executor)
            await cursor.execute(
                "DELETE FROM workers WHERE seen_at < now() - %s::interval", [WORKER_GONE]
            )
        return len(lost) + len(forgotten)

    async def forget(self, days: int) -> int:
        """Remove jobs that ended more than `days` days ago, with their events and artefacts, and
        batches of which none is left; the audit stays. How many jobs."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "DELETE FROM jobs WHERE ended_at < now() - make_interval(days => %s)", [days]
            )
            removed = max(0, cursor.rowcount)
            await cursor.execute(
                "DELETE FROM batches b WHERE NOT EXISTS"
                " (SELECT 1 FROM batch_jobs WHERE batch = b.id)"
            )
            return removed

    async def _requeue(
        self, cursor: Cursor, row: dict[str, Any], losses: int, actor: str, why: str | None = None
    ) -> None:
        id, attempt = row["id"], row["attempts"]
        if row["cancel_requested"]:
            await finish(cursor, id, attempt, "cancelled", actor)
            return
        await cursor.execute(
            "UPDATE jobs SET status = 'queued', lease = NULL, lease_until = NULL,"
            " losses = losses + %s WHERE id = %s",
            [losses, id],
        )
        why = why or (
            "its worker or the process at it died" if losses else "its worker was shut down"
        )
        await status_event(cursor, id, attempt, "queued", {"why": why})
        await note(cursor, actor, "queued again", id, {"attempt": attempt, "lost": bool(losses)})
        await self._queue.put(cursor, id, row["executor"])

    async def beat(
        self,
        name: str,
        executors: Sequence[str],
        device: str | None,
        version: str,
        gauges: dict[str, Any] | None = None,
    ) -> None:
        """Say that a worker lives, and what it measures of its machine."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "INSERT INTO workers (name, executors, device, version, gauges)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET"
                " executors = excluded.executors, device = excluded.device,"
                " version = excluded.version, gauges = excluded.gauges, seen_at = now()",
                [name, list(executors), device, version, Json(gauges or {})],
            )

    async def retire(self, name: str) -> None:
        """Forget a worker that ends."""
        async with self.pool.transaction() as cursor:
            await cursor.execute("DELETE FROM workers WHERE name = %s", [name])

    async def workers(self, seen_within_s: float = WORKER_SEEN_S) -> tuple[WorkerRow, ...]:
        """Those seen lately, by name."""
        async with self.pool.transaction() as cursor:
            await cursor.execute(
                "SELECT name, executors, device, version, seen_at, gauges FROM workers"
                " WHERE seen_at > now() - make_interval(secs => %s) ORDER BY name",
                [seen_within_s],
            )
            return tuple(WorkerRow.model_validate(row) for row in await cursor.fetchall())


HELD = "id, attempts, losses, worker, executor, cancel_requested"


async def _held(cursor: Cursor, id: UUID, lease: UUID) -> dict[str, Any] | None:
    """The job's row, locked; None where the lease is lost."""
    return await one(
        cursor,
        "SELECT " + HELD + " FROM jobs WHERE id = %s AND lease = %s FOR UPDATE",
        [id, lease],
    )


def _gave_up(losses: int) -> Problem:
    return Problem(
        type="urn:cudaops:problem:job-lost",
        title="The job was given up",
        status=500,
        detail=(
            f"{losses} times the worker or the process at this job died over it; the service's log"
            " says why, and a smaller input may pass"
        ),
    )
