"""Common code around every tool: hints for the host, a thread that can be stopped, and what
it tells on its way."""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, ParamSpec, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from fastmcp import Context
from mcp.types import ToolAnnotations
from pydantic.fields import FieldInfo

from cudaops.domain.options import as_parameter, flattened
from cudaops.domain.run import Progress, Say
from cudaops.errors import CudaOpsError
from cudaops.executors.stopping import Stop, stopping
from cudaops.mcp_servers.payloads import ErrorPayload, progress_notification

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Level = Literal["info", "warning"]


def reads(title: str) -> ToolAnnotations:
    """It changes nothing, and the same call gives the same answer."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=True,
        destructiveHint=False,
        idempotentHint=True,
        openWorldHint=False,
    )


def works(title: str, *, idempotent: bool = True) -> ToolAnnotations:
    """It compiles or runs something, confined, and writes only into folders of cudaops' own."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=False,
        destructiveHint=False,
        idempotentHint=idempotent,
        openWorldHint=False,
    )


def reaches_out(title: str) -> ToolAnnotations:
    """It may download a package, and replaces what came from there before."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=False,
        destructiveHint=True,
        idempotentHint=True,
        openWorldHint=True,
    )


def replaces(title: str) -> ToolAnnotations:
    """It takes the place of something the session held: the open program and what was judged."""
    return ToolAnnotations(
        title=title,
        readOnlyHint=False,
        destructiveHint=True,
        idempotentHint=True,
        openWorldHint=False,
    )


def with_options(body: Callable[..., Result]) -> Callable[..., Result]:
    """A tool's body whose keyword `options` takes a model, with a parameter for each option."""
    return flattened(body, _parameter)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """`argv` is no word of MCP hosts."""
    return as_parameter(name, field).replace(name="arguments" if name == "argv" else name)


def in_thread(body: Callable[Arguments, Result]) -> Callable[Arguments, Awaitable[Result]]:
    """A tool from its body, which may take long and may wait for child processes.

    On `notifications/cancelled`, or when the host goes away, the answer is dropped at once and the
    thread is asked to stop: its children are killed within the `LOOK_S` seconds of
    `executors.isolation.watch`, and it ends where it next looks. One of our own errors comes out
    without the frames it was raised in.
    """

    @functools.wraps(body)
    async def tool(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        stop = Stop()
        try:
            with stopping(stop):
                return await anyio.to_thread.run_sync(
                    functools.partial(_without_frames, body, *args, **kwargs),
                    abandon_on_cancel=True,
                )
        except anyio.get_cancelled_exc_class():
            stop.ask()
            raise

    return tool


def in_this_context(body: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same in a thread of a pool, which does not know by itself whose work it does."""
    context = contextvars.copy_context()

    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return context.copy().run(body, *args, **kwargs)

    return run


def _without_frames(
    body: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """What the body gives. The error of a thread ends up in a cycle with the future that it is
    handed over in: with its frames, an open program and its runners would live until the garbage
    collector comes by."""
    try:
        return body(*args, **kwargs)
    except CudaOpsError as error:
        bare = ErrorPayload.of(error).exception()
    raise bare


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
