"""Progress of a long tool call, as MCP progress notifications."""

from __future__ import annotations

import contextvars
import itertools

import anyio.from_thread
import anyio.lowlevel
from fastmcp import Context

from cudaops.sandbox.evaluate import Say


def progress(context: Context) -> Say:
    """How a tool that runs in a worker thread says what it is doing. Call it in that thread; what
    it gives may be called from any."""
    loop = anyio.from_thread.run_sync(anyio.lowlevel.current_token)
    numbers = itertools.count(1)

    request = contextvars.copy_context()  # which request this is; other threads do not know

    def say(line: str) -> None:
        def report() -> None:
            anyio.from_thread.run(context.report_progress, next(numbers), None, line, token=loop)

        request.copy().run(report)

    return say
