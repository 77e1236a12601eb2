"""The pool of connections, the tables, and database trouble turned into ServiceUnavailable."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection, AsyncCursor, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from cudaops.errors import ServiceUnavailable
from cudaops.rag.server import describe, first_line

SCHEMA = "cudaops_service"
QUEUE_SCHEMA = "cudaops_queue"
"""procrastinate's tables, apart from ours."""

SCHEMA_VERSION = 2
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
    from cudaops.service.queue import create_queue

    async with (
        await AsyncConnection.connect(conninfo, row_factory=dict_row) as connection,
        connection.cursor() as cursor,
    ):
        await cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
        for schema in (SCHEMA, QUEUE_SCHEMA):
            await cursor.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
            )
        for text in _schemas():
            await cursor.execute(text)
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


def _schemas() -> list[LiteralString]:
    """Our SQL: schema.sql, then those of other parts of the service by name."""
    folder = files("cudaops.service")
    names = sorted(one.name for one in folder.iterdir() if re.match(r"schema.*\.sql$", one.name))
    names.sort(key=lambda name: name != "schema.sql")
    return [folder.joinpath(name).read_text("utf-8") for name in names]


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
