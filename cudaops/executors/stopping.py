"""Cancellation: a flag that stops every child process of a piece of work.

Whoever starts long work in a thread sets a `Stop` for it with `stopping`; threads that are started
with a copy of the context (anyio's, asyncio's) see it. Once it is set, `run_bounded` and the GPU
runner kill what they wait for and raise `Stopped`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from cudaops.errors import CudaOpsError

Result = TypeVar("Result")


class Stopped(CudaOpsError):
    """Somebody asked for the work to end; what it was about has not misbehaved."""

    def __init__(self) -> None:
        super().__init__("stopped: it was cancelled; call again for a result")


class Stop:
    """A request to end one piece of work. Work inside of other work ends with it."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._around = _STOP.get()
        self._tell: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def ask(self) -> None:
        """End it, from any thread."""
        self._asked.set()
        with self._lock:
            told, self._tell = self._tell, []
        for tell in told:
            tell()

    @property
    def asked(self) -> bool:
        """Whether it is to end."""
        return self._asked.is_set() or (self._around is not None and self._around.asked)

    def on_ask(self, tell: Callable[[], None]) -> None:
        """Call `tell` when it or what is around it is asked to end, at once where that was so."""
        if self._around is not None:
            self._around.on_ask(tell)
        with self._lock:
            if not self._asked.is_set():
                self._tell.append(tell)
                return
        tell()


_STOP: ContextVar[Stop | None] = ContextVar("cudaops_stop", default=None)


def current_stop() -> Stop | None:
    """That of the work this is part of; None where nobody can ask for an end."""
    return _STOP.get()


@contextmanager
def stopping(stop: Stop) -> Iterator[None]:
    """Make it that of everything started inside."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


def raise_if_stopped() -> None:
    """Raise Stopped where the work this is part of is to end."""
    stop = _STOP.get()
    if stop is not None and stop.asked:
        raise Stopped


def in_background(work: Callable[[], object]) -> Callable[[], None]:
    """Begin what will be needed. What goes wrong now is said when it is asked for.

    Returns what stops it, and waits until it has stopped.
    """
    stop = Stop()

    def run() -> None:
        with suppress(CudaOpsError, OSError), stopping(stop):
            work()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True)
    thread.start()

    def end() -> None:
        stop.ask()
        thread.join()

    return end


class Once:
    """Results that are made once, by whoever asks first; others wait.

    A failure is everyone's who waits, and is tried again by who asks later. That a maker was
    stopped is none: who waits makes it then.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """What `make` gives. Raises what it raised for whoever made it."""
        while True:
            with self._lock:
                future: Future[Result] | None = self._made.get(key)
                is_first = future is None
                if future is None:
                    future = self._made[key] = Future()
            if is_first:
                return self._make(key, future, make)
            try:
                return future.result()
            except Stopped:
                raise_if_stopped()

    def has(self, key: Hashable) -> bool:
        """Whether it is there already."""
        with self._lock:
            future = self._made.get(key)
        return future is not None and future.done()

    def _make(self, key: Hashable, future: Future[Result], make: Callable[[], Result]) -> Result:
        try:
            made = make()
        except BaseException as problem:
            with self._lock:
                del self._made[key]
            future.set_exception(problem)
            raise
        future.set_result(made)
        return made


class Ahead:
    """Work begun in the background that is ended together."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    def begin(self, work: Callable[[], object]) -> None:
        """See `in_background`."""
        self._ends.append(in_background(work))

    def end(self) -> None:
        """Stop what nobody waits for any more, and wait until it has stopped."""
        while self._ends:
            self._ends.pop()()


class Meanwhile(Generic[Result]):
    """Work that goes on in the background while something else is done."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._made: Future[Result] = Future()

        def run() -> None:
            try:
                self._made.set_result(work())
            except BaseException as problem:
                self._made.set_exception(problem)
                raise

        self.end = in_background(run)
        """Stops it where nobody wants its result any more."""

    def result(self) -> Result:
        """Waits for it. Raises what the work raised."""
        return self._made.result()


async def stoppable(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, cancelled where the stop that it is part of is asked for.

    Raises Stopped then, whatever the cancelled work raised.
    """
    stop = current_stop()
    if stop is None:
        return await work
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

    def cancel() -> None:
        if not task.cancelling():
            task.cancel()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has ended, and the work with it
            loop.call_soon_threadsafe(cancel)

    stop.on_ask(tell)
    try:
        return await task
    except BaseException:
        if stop.asked:
            raise Stopped from None
        raise
