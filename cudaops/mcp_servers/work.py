"""Long tools: their work runs in a thread, and a host that cancels the call ends it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from cudaops.sandbox.stopping import Stop, stopping

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_thread(body: Callable[Arguments, Result]) -> Callable[Arguments, Awaitable[Result]]:
    """A tool from its body, which may take long and may wait for child processes.

    On `notifications/cancelled`, or when the host goes away, the answer is dropped at once and the
    thread is asked to stop: its children are killed within `cudaops.sandbox.isolation.watch.LOOK_S`
    seconds, and it ends where it next looks.
    """

    @functools.wraps(body)
    async def tool(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        stop = Stop()
        try:
            with stopping(stop):
                return await anyio.to_thread.run_sync(
                    functools.partial(body, *args, **kwargs), abandon_on_cancel=True
                )
        except anyio.get_cancelled_exc_class():
            stop.ask()
            raise

    return tool
