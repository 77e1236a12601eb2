"""What every request meets first and every answer last: where from, how large, which headers.

Pure ASGI: no body is buffered, no stream is held up.
"""

from __future__ import annotations

import logging
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudaops.service.auth import Doorkeeper
from cudaops.service.options import ServiceOptions
from cudaops.service.problems import Refused

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

    def __init__(self, app: ASGIApp, *, options: ServiceOptions, doorkeeper: Doorkeeper) -> None:
        self._app = app
        self._options = options
        self._doorkeeper = doorkeeper
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
            raise Refused("not-found", "nothing is here; /docs lists what is")
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
        if not is_loopback_host(host) and not await self._doorkeeper.asks():
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
