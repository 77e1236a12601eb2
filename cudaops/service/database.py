"""PostgreSQL under the service: the pool of connections, the tables, one LISTEN connection for all
who wait for news, and the queue, which is procrastinate's.

The queue only delivers ids; `jobs` is the truth (decision 007). Database trouble comes out as
ServiceUnavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, LiteralString
from uuid import UUID

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job as Delivery
from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection, AsyncCursor, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from cudaops.domain.options import ExecutorChoice
from cudaops.errors import ServiceUnavailable
from cudaops.rag.server import describe, first_line

# The pool of connections, the tables, and database trouble turned into ServiceUnavailable.

SCHEMA = "cudaops_service"
QUEUE_SCHEMA = "cudaops_queue"
"""procrastinate's tables, apart from ours."""

SCHEMA_VERSION = 3
"""Raised with every change of schema.sql."""

CREATE_LOCK = 0x6375_6462
"""Key of the advisory lock under which tables are made: that of rag/store.py plus one."""

CONNECTION_WAIT_S = 30.0
"""How long a statement waits for a connection of the pool before the service says it is busy."""

REMEDY = "check that PostgreSQL runs and what DATABASE_URL names, then try again"

TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
"""What is the database's fault or the connection's; anything else of psycopg is ours."""

Cursor = AsyncCursor[DictRow]


class Pool:
    """Connections to one database whose search path has our tables and the queue's."""

    def __init__(
        self, conninfo: str, pool: AsyncConnectionPool[AsyncConnection[DictRow]],
        on_close: Callable[[], None],
    ) -> None:  # fmt: skip
        self.conninfo = conninfo
        """With the search path; for a connection beside the pool."""
        self.connections = pool
        self._on_close = on_close

    @classmethod
    async def open(
        cls, conninfo: str, size: int, on_close: Callable[[], None] = lambda: None
    ) -> Pool:
        """Connect and create the tables. `on_close` lets go of what keeps the server alive.

        Raises ServiceUnavailable: no connection, no rights, or tables of a newer cudaops.
        """
        within = _with_search_path(conninfo)
        try:
            await _create_tables(within)
            connections = AsyncConnectionPool(
                within,
                connection_class=AsyncConnection[DictRow],
                kwargs={"row_factory": dict_row},
                min_size=1,
                max_size=size,
                timeout=CONNECTION_WAIT_S,
                open=False,
                check=AsyncConnectionPool.check_connection,
            )
            await connections.open(wait=True, timeout=CONNECTION_WAIT_S)
        except psycopg.Error as error:
            raise unavailable(error, conninfo) from error
        return cls(within, connections, on_close)

    async def close(self) -> None:
        """Close every connection, then let go of the server."""
        await self.connections.close()
        self._on_close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Cursor]:
        """A cursor in a transaction; database trouble comes out as ServiceUnavailable."""
        try:
            async with self.connections.connection() as connection, connection.cursor() as cursor:
                yield cursor
        except TROUBLE as error:
            raise unavailable(error, self.conninfo) from error

    async def fetch(self, query: LiteralString, values: Sequence[Any] = ()) -> list[DictRow]:
        """The rows of a query that changes nothing."""
        async with self.transaction() as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()


def unavailable(error: psycopg.Error, conninfo: str) -> ServiceUnavailable:
    """What a user is told of it: the server's first line, and never its password."""
    return ServiceUnavailable(
        f"the service's database {describe(conninfo)} does not do its work: {first_line(error)}",
        REMEDY,
    )


def _with_search_path(conninfo: str) -> str:
    given = conninfo_to_dict(conninfo).get("options") or ""
    path = f"-c search_path={SCHEMA},{QUEUE_SCHEMA}"
    # A machine that is gone answers nothing: half a minute, not the system's quarter of an hour.
    dead = {
        "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
    }  # fmt: skip
    return make_conninfo(conninfo, **dead, options=f"{given} {path}".strip())


async def _create_tables(conninfo: str) -> None:
    """Create what is missing, one process at a time."""
    async with (
        await AsyncConnection.connect(conninfo, row_factory=dict_row) as connection,
        connection.cursor() as cursor,
    ):
        await cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
        for schema in (SCHEMA, QUEUE_SCHEMA):
            await cursor.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
            )
        await cursor.execute(files("cudaops.service").joinpath("schema.sql").read_text("utf-8"))
        known = await fact(cursor, "schema_version")
        if known is None or int(known) < SCHEMA_VERSION:
            await set_fact(cursor, "schema_version", str(SCHEMA_VERSION))
        elif int(known) > SCHEMA_VERSION:
            raise ServiceUnavailable(
                f"the service's tables are of a newer cudaops (version {known}, this one knows"
                f" {SCHEMA_VERSION})",
                "update cudaops here: python -m pip install -U cudaops",
            )
        await create_queue(cursor)


async def fact(cursor: Cursor, name: str) -> str | None:
    """A remembered value, None where there is none."""
    await cursor.execute("SELECT value FROM facts WHERE name = %s", [name])
    row = await cursor.fetchone()
    return None if row is None else str(row["value"])


async def set_fact(cursor: Cursor, name: str, value: str) -> None:
    """Remember a value under a name."""
    await cursor.execute(
        "INSERT INTO facts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )


async def one(cursor: Cursor, query: LiteralString, values: list[Any]) -> DictRow | None:
    """The first row of a query."""
    await cursor.execute(query, values)
    return await cursor.fetchone()


# Who waits for news of a job hears of it: one LISTEN connection for all who watch in a process.

CHANNEL = "cudaops_service"

LISTENING_LOOK_S = 5.0
"""Every watcher looks this often without news: a notification may have been lost with its
connection."""
DEAF_LOOK_S = 1.0
"""The same while there is no connection to listen on."""
RECONNECT_S = 1.0


async def tell(cursor: Cursor, id: UUID) -> None:
    """Say, once this transaction has ended, that something about the job has changed."""
    await cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, str(id)])


class Notices:
    """Fans notifications out to watchers. Connects when the first one comes."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._watchers: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None
        self._listening = False

    async def watch(self, id: UUID, every_s: float = LISTENING_LOOK_S) -> AsyncGenerator[None]:
        """Yields at once, and then whenever something about the job may have changed; every
        `every_s` without news. Close it (`contextlib.aclosing`) to stop being told."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="notices")
        news, key = asyncio.Event(), str(id)
        self._watchers[key].add(news)
        try:
            while True:
                news.clear()
                yield
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(every_s, self._look_s)):
                        await news.wait()
        finally:
            self._watchers[key].discard(news)
            if not self._watchers[key]:
                del self._watchers[key]

    async def close(self) -> None:
        """Stop listening; those who still watch go on looking by the clock."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None

    @property
    def _look_s(self) -> float:
        return LISTENING_LOOK_S if self._listening else DEAF_LOOK_S

    async def _listen(self) -> None:
        while True:
            # Whoever asks the database next hears that it is away; here we only try again.
            with contextlib.suppress(psycopg.Error, OSError):
                await self._listen_once()
            self._listening = False
            await asyncio.sleep(RECONNECT_S)

    async def _listen_once(self) -> None:
        async with await AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
            self._listening = True
            self._wake(None)  # what was said before we listened was not heard
            async for notification in connection.notifies():
                self._wake(notification.payload)

    def _wake(self, key: str | None) -> None:
        woken = list(self._watchers) if key is None else [key]
        for each in woken:
            for news in self._watchers.get(each, ()):
                news.set()


# The queue: procrastinate on the same PostgreSQL. It only delivers ids; `jobs` is the truth.

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


def build_queue_app(pool: Pool, perform: Perform) -> procrastinate.App:
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

        app = build_queue_app(pool, nobody)
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
