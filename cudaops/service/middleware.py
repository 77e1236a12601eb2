"""What every request meets before a route and every answer after it: its id, log line, metrics and
span; closed headers; limits on how much comes, how slowly, and from where.

Pure ASGI: no body is buffered, no stream is held up.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudaops.service import logs, tracing
from cudaops.service.auth import Authenticator, ServiceOptions
from cudaops.service.operation import Metrics
from cudaops.service.problems import Refused

# Bodies too large or too slow: refused while they come, not after.

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
            raise _too_slow(f"no data for {self._options.stall_seconds:g} s") from None
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


# What every request meets first and every answer last: where from, how large, which headers.

MAX_ADDRESS_BYTES = 8192
MAX_HEADERS, MAX_HEADER_BYTES = 100, 32 << 10
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ALWAYS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer that does not set its own."""

_log = logging.getLogger("cudaops.service")


class Boundary:
    """The outer edge: closed headers, a limit of requests at once, and no answer but ours."""

    def __init__(
        self, app: ASGIApp, *, options: ServiceOptions, authenticator: Authenticator
    ) -> None:
        self._app = app
        self._options = options
        self._authenticator = authenticator
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websocket is spoken here
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def send_closed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._open += 1
        try:
            await self._admit(scope)
            await self._app(scope, receive, send_closed)
        except Refused as refused:
            if started:
                raise
            await refused.answer()(scope, receive, send_closed)
        except Exception:
            if started:
                raise
            _log.exception("unexpected")
            fault = Refused("fault", "this is a fault of cudaops; its log says more")
            await fault.answer()(scope, receive, send_closed)
        finally:
            self._open -= 1

    async def _admit(self, scope: Scope) -> None:
        """Raises Refused where the request is not even looked at."""
        if self._open > self._options.max_requests:
            raise Refused("busy", "too many requests at once; try again", headers=_soon())
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_ADDRESS_BYTES:
            raise Refused("address-too-long", f"at most {MAX_ADDRESS_BYTES} bytes")
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if len(scope["headers"]) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise Refused(
                "headers-too-large", f"at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes"
            )
        if "\x00" in scope["path"]:
            raise Refused("not-found", "no such address; /docs lists them")
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy might see the end of this request elsewhere (RFC 9112, section 6.1).
            raise Refused("malformed-request", "send one length", headers={"Connection": "close"})
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Refused(
                "media-type",
                "send the body uncompressed, without Content-Encoding",
                headers={"Accept-Encoding": "identity"},
            )
        host = headers.get("host", "")
        if not is_loopback_host(host) and not await self._authenticator.asks():
            raise Refused(
                "foreign-host", "a service without tokens answers to 127.0.0.1 and localhost alone"
            )
        origin = headers.get("origin")
        if (
            scope["method"] not in SAFE
            and origin is not None
            and not self._own(origin, scope, host)
        ):
            raise Refused(
                "foreign-origin", "use the service's own page, or a program that sends no Origin"
            )

    def _own(self, origin: str, scope: Scope, host: str) -> bool:
        allowed = {f"{scope['scheme']}://{host}".lower()}
        if self._options.public_url is not None:
            allowed.add(self._options.public_url.rstrip("/").lower())
        return origin.lower() in allowed


def _soon() -> dict[str, str]:
    return {"Retry-After": "2"}


def is_loopback_host(host: str) -> bool:
    """Whether a `Host` header names this very machine: a page of elsewhere cannot have it so."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


# What is seen of every request: its id, one line of log, metrics by route, a span.

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLIENT_LEFT = 499
"""Said of a request whose client went before an answer began. Source: nginx's convention."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds: a line of log only where they fail."""


class ObserveRequests:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        seen: dict[str, Any] = {"status": CLIENT_LEFT, "stream": False}

        async def send_seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                out["X-Request-ID"] = request_id
                seen["status"] = message["status"]
                seen["stream"] = out.get("content-type", "").startswith("text/event-stream")
            await send(message)

        begun = time.monotonic()
        with (
            logs.bound(request_id=request_id),
            tracing.request(scope["method"], headers.get("traceparent")) as span,
        ):
            try:
                await self._app(scope, receive, send_seen)
            except Exception:
                seen["status"] = 500 if seen["status"] == CLIENT_LEFT else seen["status"]
                raise
            finally:
                self._tell(scope, span, seen, time.monotonic() - begun)

    def _tell(
        self, scope: Scope, span: tracing.Traced, seen: dict[str, Any], seconds: float
    ) -> None:
        method, route, status = scope["method"], template(scope), int(seen["status"])
        job = _job(scope)
        span.name(f"{method} {route or 'unmatched'}")
        span.note(
            http__request__method=method, http__route=route,
            http__response__status_code=status, cudaops__job=job,
        )  # fmt: skip
        if status >= 500:
            span.failed(f"answered {status}")
        if self._metrics is not None:
            self._metrics.request(method, route, status, None if seen["stream"] else seconds)
        if route not in PROBES or status >= 400:
            with logs.bound(job=job):
                actor = scope["state"].get("actor")
                logs.access(method, route or "unmatched", status, 1000 * seconds, actor)


def template(scope: Scope) -> str | None:
    """The route's path with its parameters' names, `/jobs/{id}`; `/static/*` for what is mounted;
    None where nothing matched: what strangers ask for is no label."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    mounted = scope.get("root_path", "")[len(scope.get("app_root_path", "")) :]
    return f"{mounted}/*" if mounted else None


def _job(scope: Scope) -> str | None:
    """The job that the path names, as a field of its own."""
    named = str(scope.get("path_params", {}).get("id", ""))
    try:
        return str(UUID(named))
    except ValueError:
        return None
