"""Contents by their SHA-256, for one owner each, in pieces in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import IO, NamedTuple

from cudaops.service.database import Pool

CHUNK_BYTES = 1 << 20
MAX_BLOB_BYTES = 2 << 30
"""Largest contents of one file."""
MAX_TOTAL_BYTES = 8 << 30
"""Of all contents together. What was used least recently goes first."""
KEPT_HOURS = 24
"""After its last use."""
IN_USE_MINUTES = 15
"""What was used within is not removed for want of space: a call may be about to need it."""


class NoRoom(Exception):
    """Contents in use fill the room there is."""


class Stored(NamedTuple):
    """Contents that are there."""

    sha256: str
    size_bytes: int


class Blobs:
    """Statements about contents; each is a transaction of its own."""

    def __init__(self, pool: Pool, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._pool = pool
        self._max_total_bytes = max_total_bytes

    async def missing(self, owner: str, references: Sequence[str]) -> tuple[str, ...]:
        """Those that are not there. The others count as used now."""
        wanted = list(dict.fromkeys(references))
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE blobs SET used_at = now() WHERE owner = %s AND sha256 = ANY(%s)"
                " AND used_at < now() - interval '1 minute'",
                [owner, wanted],
            )
            await cursor.execute(
                "SELECT sha256 FROM blobs WHERE owner = %s AND sha256 = ANY(%s)", [owner, wanted]
            )
            there = {row["sha256"] for row in await cursor.fetchall()}
        return tuple(reference for reference in wanted if reference not in there)

    async def find(self, owner: str, sha256: str) -> Stored | None:
        """Its size; None where it is not there."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE blobs SET used_at = now() WHERE owner = %s AND sha256 = %s"
                " RETURNING size_bytes",
                [owner, sha256],
            )
            row = await cursor.fetchone()
        return None if row is None else Stored(sha256, row["size_bytes"])

    async def put(self, owner: str, sha256: str, file: IO[bytes]) -> Stored:
        """Keep what `file` holds from where it stands; its hash was checked by the caller.

        Raises NoRoom.
        """
        start = file.tell()
        size = file.seek(0, 2) - start
        file.seek(start)
        await self._make_room(size)
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "INSERT INTO blobs (owner, sha256, size_bytes) VALUES (%s, %s, %s)"
                " ON CONFLICT (owner, sha256) DO UPDATE SET used_at = now()"
                " RETURNING (xmax = 0) AS inserted",
                [owner, sha256, size],
            )
            row = await cursor.fetchone()
            if row is not None and row["inserted"]:
                for number in range((size + CHUNK_BYTES - 1) // CHUNK_BYTES):
                    piece = await asyncio.to_thread(file.read, CHUNK_BYTES)
                    await cursor.execute(
                        "INSERT INTO blob_chunks VALUES (%s, %s, %s, %b)",
                        [owner, sha256, number, piece],
                    )
        return Stored(sha256, size)

    async def read(self, owner: str, stored: Stored, start: int = 0) -> AsyncIterator[bytes]:
        """The contents from byte `start` on, in pieces. Ends early where they vanish meanwhile.

        No connection is held while the receiver takes its time.
        """
        for number in range(start // CHUNK_BYTES, -(-stored.size_bytes // CHUNK_BYTES)):
            async with self._pool.transaction() as cursor:
                await cursor.execute(
                    "SELECT content FROM blob_chunks"
                    " WHERE owner = %s AND sha256 = %s AND number = %s",
                    [owner, stored.sha256, number],
                    binary=True,
                )
                row = await cursor.fetchone()
            if row is None:
                return
            skipped = max(0, start - number * CHUNK_BYTES)
            yield bytes(row["content"])[skipped:]

    async def prune(self) -> int:
        """Remove what nobody used for a day. How many went."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "DELETE FROM blobs WHERE used_at < now() - make_interval(hours => %s)", [KEPT_HOURS]
            )
            return cursor.rowcount

    async def _make_room(self, needed: int) -> None:
        async with self._pool.transaction() as cursor:
            await cursor.execute("SELECT coalesce(sum(size_bytes), 0)::bigint AS total FROM blobs")
            row = await cursor.fetchone()
            excess = (int(row["total"]) if row else 0) + needed - self._max_total_bytes
            if excess <= 0:
                return
            await cursor.execute(
                "WITH old AS (SELECT owner, sha256, size_bytes,"
                " sum(size_bytes) OVER (ORDER BY used_at, sha256) - size_bytes AS before FROM blobs"
                " WHERE used_at < now() - make_interval(mins => %s)),"
                " gone AS (DELETE FROM blobs USING old WHERE blobs.owner = old.owner"
                " AND blobs.sha256 = old.sha256 AND old.before < %s"
                " RETURNING blobs.size_bytes)"
                " SELECT coalesce(sum(size_bytes), 0)::bigint AS freed FROM gone",
                [IN_USE_MINUTES, excess],
            )
            row = await cursor.fetchone()
        if row is None or row["freed"] < excess:
            raise NoRoom
