"""Tokens and the audit. Of a token only its hash is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from cudaops.errors import InputError
from cudaops.service.database import Pool, one
from cudaops.service.records import Scope
from cudaops.service.rows import AuditRow, Identity, TokenRow, note

PREFIX = "cudaops_"
"""By which people, and tools that look for leaked secrets, know a token."""
TOKEN_BYTES = 32

CACHE_S = 3.0
"""How long a token that was found is taken without asking again, so that many clients do not mean
as many look-ups; a removed token may be taken that long by other processes."""
MAX_CACHED = 1024

USE_NOTED_S = 60
"""How often the time of a token's last use is written, at most."""


class Tokens:
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
