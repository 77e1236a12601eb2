"""A session for each host that talks to one server over HTTP: bounded, and cleared when idle."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_access_token, get_context

from cudaops.errors import InputError
from cudaops.mcp_servers.session import Session

MOST_SESSIONS = 8
"""Programs open at once. Chosen: one keeps up to some 150 MB of captured buffers on disk, and on a
GPU a few runners with a context each; both go when another is opened in its place."""
IDLE_S = 3600.0
"""A session that nobody used for an hour is closed."""
SWEEP_S = 30.0
"""How often is looked for such sessions, and for those whose host has said good-bye."""

Key = tuple[str, str]
"""Whose token, and the MCP session's id."""


@dataclass
class _Held:
    """A session and when it was last used."""

    session: Session
    used_at: float


class SessionPool:
    """Sessions by MCP session. The least recently used one that is not at work makes room."""

    def __init__(
        self,
        new_session: Callable[[str | None], Session],
        *,
        most: int = MOST_SESSIONS,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`new_session` makes an empty one, and is told why the caller's last one is gone."""
        self._new = new_session
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._held: dict[Key, _Held] = {}
        self._calls: Counter[Key] = Counter()
        self._closed: dict[Key, str] = {}
        self._gone: deque[Key] = deque()
        self._lock = threading.RLock()

    def current(self) -> Session:
        """The session of the request that is being answered."""
        return self._hold(self._key()).session

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While a tool is called: the caller's session, where there is one, is not closed."""
        key = self._key()
        with self._lock:
            self._calls[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[key] -= 1
                if not self._calls[key]:
                    del self._calls[key]
                if key in self._held:
                    self._held[key].used_at = self._clock()

    @property
    def size(self) -> int:
        """Sessions that are open."""
        return len(self._held)

    def sweep(self) -> None:
        """Close what is idle, or whose host has gone."""
        with self._lock:
            over = self._over()
        _close(over)

    def close(self) -> None:
        """Close every session."""
        with self._lock:
            over = [self._take(key, "the server has ended") for key in list(self._held)]
        _close(over)

    @asynccontextmanager
    async def lifespan(self, _: FastMCP) -> AsyncIterator[None]:
        """Sweeps while the server runs, and closes everything with it."""

        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP_S)
                await asyncio.to_thread(self.sweep)

        sweeping = asyncio.create_task(sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            self.close()

    def _hold(self, key: Key) -> _Held:
        over: list[Session | None] = []
        with self._lock:
            held = self._held.get(key)
            if held is None:
                over = [*self._over(), self._make_room()]
                held = _Held(self._new(self._closed.pop(key, None)), self._clock())
                self._held[key] = held
                with suppress(RuntimeError):
                    weakref.finalize(get_context().session, self._gone.append, key)
            held.used_at = self._clock()
        _close(over)
        return held

    def _over(self) -> list[Session | None]:
        """Take out what is idle, or whose host has gone."""
        over = []
        while self._gone:
            over.append(self._take(self._gone.popleft(), "its host has gone"))
        now, minutes = self._clock(), round(self._idle_s / 60)
        for key, held in list(self._held.items()):
            if key not in self._calls and now - held.used_at > self._idle_s:
                why = f"your program was closed after {minutes} idle minutes"
                over.append(self._take(key, why))
        return over

    def _make_room(self) -> Session | None:
        """Take out the one that was used least lately, where there is no room for another."""
        if len(self._held) < self._most:
            return None
        idle = [key for key in self._held if key not in self._calls]
        if not idle:
            raise InputError(
                f"{self._most} other hosts are at work on this server, which is all it takes: "
                "call again in a minute"
            )
        oldest = min(idle, key=lambda key: self._held[key].used_at)
        return self._take(oldest, "your program was closed to make room for another host's")

    def _take(self, key: Key, why: str) -> Session | None:
        """Out of what is held; whoever holds the lock closes it after."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._closed[key] = why
        while len(self._closed) > 100 * self._most:
            self._closed.pop(next(iter(self._closed)))
        return held.session

    @staticmethod
    def _key() -> Key:
        token = get_access_token()
        return (token.client_id if token else "anyone", get_context().session_id)


def _close(sessions: list[Session | None]) -> None:
    """Folders and runners take a moment to go: not while others wait for the pool."""
    for session in sessions:
        if session is not None:
            session.close()
