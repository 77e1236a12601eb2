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

from cudaops.sandbox.evaluate import Say

Level = Literal["info", "warning"]


def progress(context: Context, total: int | None = None) -> Say:
    """How a tool that runs in a worker thread says what it is doing. Call it in that thread; what
    it gives may be called from any. `total`: lines expected, where that is known."""
    numbers = itertools.count(1)
    send = _sender()

    def say(line: str) -> None:
        number = next(numbers)
        whole = None if total is None else max(total, number)
        send(lambda: context.report_progress(number, whole, line))

    return say


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
