"""Who waits for news of a job hears of it: one LISTEN connection for all who watch in a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, sql

from cudaops.service.database import Cursor

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
