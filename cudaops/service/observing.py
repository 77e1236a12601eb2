"""What is seen of every request: its id, one line of log, metrics by route, a span.

Pure ASGI, around everything else: what any inner layer refuses is seen too.
"""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import UUID, uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudaops.service import logs, tracing
from cudaops.service.metrics import Metrics

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
