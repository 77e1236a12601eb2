"""The queue: procrastinate on the same PostgreSQL. It only delivers ids; `jobs` is the truth."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from uuid import UUID

import procrastinate
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job as Delivery
from procrastinate.schema import SchemaManager
from psycopg import sql

from cudaops.domain.options import ExecutorChoice
from cudaops.service.database import QUEUE_SCHEMA, SCHEMA, Cursor, Pool, fact, set_fact

TASK = "cudaops.job"

QUEUES: dict[str, str] = {"auto": "any", "cpu": "cpu", "cuda": "cuda"}
"""Executor asked for to the queue in which its jobs stand; any worker takes from `any`."""

HEARTBEAT_LOST_S = 30
"""After which a delivery's worker counts as dead. Source: procrastinate's own default
`stalled_worker_timeout`; its workers write a heartbeat every 10 s."""

WORKER_POLL_S = 1.0
"""How often a worker looks for deliveries beside listening: procrastinate 3.10 forgets a
notification that arrives while it looks (`Worker._fetch_and_process_jobs`), and 1 delivery of 50
waited for the next look (2026-11-22)."""

Perform = Callable[[UUID], Awaitable[None]]


def queue_of(executor: ExecutorChoice | str) -> str:
    """Where a job for this executor waits."""
    return QUEUES.get(executor, "any")


def build_app(pool: Pool, perform: Perform) -> procrastinate.App:
    """procrastinate's app over our pool; `perform` is called with the id of a delivered job."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())

    async def job(id: str) -> None:
        await perform(UUID(id))

    app.task(name=TASK)(job)
    return app


class Queue:
    """Puts jobs into the queue, inside of whoever's transaction."""

    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    @classmethod
    async def open(cls, pool: Pool) -> Queue:
        """A queue over the pool's connections; it does not work jobs off."""

        async def nobody(_id: UUID) -> None:
            return None

        app = build_app(pool, nobody)
        await app.open_async(pool.connections)
        return cls(app)

    async def put(self, cursor: Cursor, id: UUID, executor: str) -> None:
        """Deliver the job to a worker once this transaction has ended; no second delivery of a
        job waits beside a first."""
        delivery = Delivery(
            id=None,
            queue=queue_of(executor),
            lock=None,
            queueing_lock=str(id),
            task_name=TASK,
            task_kwargs={"id": str(id)},
        )
        connection = cursor.connection
        with contextlib.suppress(AlreadyEnqueued):
            async with connection.transaction():
                await self._app.job_manager.defer_job_async(delivery, connection=connection)

    async def forgotten(self, cursor: Cursor) -> list[tuple[UUID, str]]:
        """Queued jobs that nothing will deliver: no delivery waits, and none is with a worker that
        lives. Deliveries of dead workers are removed."""
        await cursor.execute(
            "DELETE FROM procrastinate_jobs d WHERE d.status <> 'todo' AND NOT EXISTS ("
            " SELECT 1 FROM procrastinate_workers w WHERE w.id = d.worker_id"
            " AND w.last_heartbeat > now() - make_interval(secs => %s))",
            [HEARTBEAT_LOST_S],
        )
        await cursor.execute(
            "SELECT j.id, j.executor FROM jobs j WHERE j.status = 'queued' AND NOT EXISTS ("
            " SELECT 1 FROM procrastinate_jobs d WHERE d.queueing_lock = j.id::text)"
            " FOR UPDATE OF j SKIP LOCKED"
        )
        return [(row["id"], row["executor"]) for row in await cursor.fetchall()]


async def create_queue(cursor: Cursor) -> None:
    """procrastinate's tables: created, or brought up to the installed version by its migrations."""
    folder = files("procrastinate.sql") / "migrations"
    texts = {one.name: one for one in folder.iterdir() if one.name.endswith(".sql")}
    known = await fact(cursor, "queue_migration")
    await cursor.execute(
        sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(QUEUE_SCHEMA))
    )
    if known is None:
        await cursor.execute(SchemaManager.get_schema())
    else:
        for name in migrations_since(known, list(texts)):
            await cursor.execute(texts[name].read_text("utf-8"))
    await cursor.execute(
        sql.SQL("SET LOCAL search_path TO {}").format(
            sql.SQL(", ").join([sql.Identifier(SCHEMA), sql.Identifier(QUEUE_SCHEMA)])
        )
    )
    await set_fact(cursor, "queue_migration", max(texts))


def migrations_since(known: str, names: list[str]) -> list[str]:
    """Files that come after `known`, in the order in which procrastinate wants them applied: their
    names begin with version and number."""
    return sorted(name for name in names if name > known)
