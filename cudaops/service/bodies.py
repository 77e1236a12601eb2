"""Bodies too large or too slow: refused while they come, not after."""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudaops.service.options import ServiceOptions
from cudaops.service.problems import Refused

DRAIN_BYTES = 32 << 20
DRAIN_S = 2.0
"""How much of a body that is too large is still read: a client that is busy sending sees no answer
where the connection is simply closed. Source: RFC 9112 section 9.6 on closing in stages."""


class BodyLimits:
    """Wraps `receive`, so that whoever reads the body meets the limits."""

    def __init__(self, app: ASGIApp, *, options: ServiceOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        body = _Body(receive, self._options)
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._options.max_body_bytes:
            if "expect" not in headers:
                await body.drain()
            raise body.too_large()
        await self._app(scope, body.receive, send)


class _Body:
    """One request's body as it comes."""

    def __init__(self, receive: Receive, options: ServiceOptions) -> None:
        self._receive = receive
        self._options = options
        self._complete = False
        self._seen = 0
        self._window_bytes = 0
        self._window_s = 0.0
        """Waited for the client; our own work in between does not count against it."""

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._options.stall_seconds):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow(f"nothing came for {self._options.stall_seconds:g} s") from None
        if message["type"] != "http.request":
            self._complete = True
            return message
        self._complete = not message.get("more_body", False)
        self._count(len(message.get("body", b"")), time.monotonic() - began)
        if self._seen > self._options.max_body_bytes:
            await self.drain()
            raise self.too_large()
        return message

    def _count(self, size: int, waited_s: float) -> None:
        options = self._options
        self._seen += size
        self._window_bytes += size
        self._window_s += waited_s
        if self._complete or self._window_s < options.slow_window_seconds:
            return
        if self._window_bytes < options.min_body_bytes_per_second * self._window_s:
            raise _too_slow(f"less than {options.min_body_bytes_per_second} bytes a second")
        self._window_bytes, self._window_s = 0, 0.0

    async def drain(self) -> None:
        """Read on for a moment and forget it."""
        thrown_away = 0
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self._complete and thrown_away < DRAIN_BYTES:
                    message = await self._receive()
                    thrown_away += len(message.get("body", b""))
                    self._complete = not message.get("more_body", False)
        except TimeoutError:
            return

    def too_large(self) -> Refused:
        return Refused(
            "too-large",
            f"a body may have {self._options.max_body_bytes} bytes; send the source and its own"
            " headers alone",
            headers={"Connection": "close"},
        )


def _too_slow(why: str) -> Refused:
    return Refused("slow-request", f"{why}; send it again", headers={"Connection": "close"})
