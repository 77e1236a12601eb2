"""What a long tool call says on its way: progress notifications, and log messages for what stays
true afterwards."""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Callable
from typing import Any, Literal

import anyio.from_thread
import anyio.lowlevel
from fastmcp import Context

from cudaops.domain.progress import Progress, Say
from cudaops.mcp_servers.payloads import progress_notification

Level = Literal["info", "warning"]


def progress(context: Context, total: int | None = None) -> Say:
    """How a tool that runs in a worker thread says what it is doing. Call it in that thread; what
    it gives may be called from any. `total`: lines expected, where that is known."""
    numbers = itertools.count(1)
    send = _sender()

    def say(progress: Progress) -> None:
        number = next(numbers)
        whole = None if total is None else max(total, number)
        send(lambda: _report(context, progress, number, whole))

    return say


async def _report(context: Context, progress: Progress, number: int, total: int | None) -> None:
    """`Context.report_progress` takes no `_meta`."""
    request = context.request_context
    if request is None or request.meta is None or request.meta.progressToken is None:
        return
    notification = progress_notification(progress, request.meta, number, total)
    await context.session.send_notification(notification, related_request_id=context.request_id)


def log(context: Context) -> Callable[[Level, str], None]:
    """The same for lines that a host should keep: MCP log messages."""
    send = _sender()

    def note(level: Level, line: str) -> None:
        send(lambda: context.log(line, level=level, logger_name="cudaops"))

    return note


def _sender() -> Callable[[Callable[[], Any]], None]:
    """Runs a coroutine function in the server's event loop, from whichever thread."""
    loop = anyio.from_thread.run_sync(anyio.lowlevel.current_token)
    request = contextvars.copy_context()  # which request this is; other threads do not know

    def send(what: Callable[[], Any]) -> None:
        request.copy().run(lambda: anyio.from_thread.run(what, token=loop))

    return send
