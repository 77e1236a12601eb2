"""Long tools: their work runs in a thread, and a host that cancels the call ends it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from cudaops.errors import CudaOpsError
from cudaops.mcp_servers.payloads import ErrorPayload
from cudaops.sandbox.stopping import Stop, stopping

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_thread(body: Callable[Arguments, Result]) -> Callable[Arguments, Awaitable[Result]]:
    """A tool from its body, which may take long and may wait for child processes.

    On `notifications/cancelled`, or when the host goes away, the answer is dropped at once and the
    thread is asked to stop: its children are killed within `cudaops.sandbox.isolation.watch.LOOK_S`
    seconds, and it ends where it next looks. One of our own errors comes out without the frames
    it was raised in.
    """

    @functools.wraps(body)
    async def tool(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        stop = Stop()
        try:
            with stopping(stop):
                return await anyio.to_thread.run_sync(
                    functools.partial(_said, body, *args, **kwargs), abandon_on_cancel=True
                )
        except anyio.get_cancelled_exc_class():
            stop.ask()
            raise

    return tool


def _said(
    body: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """What the body gives. The error of a thread ends up in a cycle with the future that it is
    handed over in: with its frames, an open program and its runners would live until the garbage
    collector comes by."""
    try:
        return body(*args, **kwargs)
    except CudaOpsError as error:
        said = ErrorPayload.of(error).exception()
    raise said
