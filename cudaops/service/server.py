"""One API process: the FastAPI application, uvicorn with our own limits around it, its workers
beside it, from an open database to the last answer.

The application talks to the database alone: nothing is run here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import Depends, FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cudaops.domain.address import is_loopback
from cudaops.domain.base import Record
from cudaops.errors import InputError
from cudaops.service import problems
from cudaops.service.auth import Authenticator, ServiceOptions, address_key, require
from cudaops.service.context import Service
from cudaops.service.job_process import ended_within, signal_on_parents_death
from cudaops.service.middleware import BodyLimits, Boundary, ObserveRequests
from cudaops.service.operation import Metrics, build_operation_router, readiness
from cudaops.service.pages import add_pages, install_openapi
from cudaops.service.problems import MEDIA_TYPE, Refused
from cudaops.service.routes_artefacts import HtmlReports, Renderer, build_artefacts_router
from cudaops.service.routes_batches import router as batches_router
from cudaops.service.routes_confirm import build_confirm_router
from cudaops.service.routes_jobs import build_submit_router
from cudaops.service.routes_jobs import router as jobs_router
from cudaops.service.store import Store, open_store
from cudaops.settings import Settings

# The API as one FastAPI application. It talks to the database alone: nothing is run here.


def build_app(
    store: Store,
    options: ServiceOptions,
    *,
    metrics: Metrics | None = None,
    renderer: Renderer | None = None,
) -> FastAPI:
    """The application on an open store.

    Args:
        store: stays the caller's to close.
        options: limits, and whether tokens are asked for.
        metrics: what /metrics shows; None: one of this store.
        renderer: makes reports; None: there is no /jobs/{id}/report.
    """
    metrics = metrics or Metrics(store, options.version)
    authenticator = Authenticator(store, options)
    service = Service(store, options, authenticator, metrics)

    app = FastAPI(
        title="cudaops", version=options.version,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    problems.install(app)
    app.include_router(build_submit_router())
    app.include_router(build_confirm_router())
    app.include_router(jobs_router)
    app.include_router(build_artefacts_router(renderer))
    app.include_router(batches_router)
    app.include_router(
        build_operation_router(store, metrics, options, dependencies=[Depends(require("read"))])
    )
    add_pages(app, with_report=renderer is not None)
    install_openapi(app)
    app.add_middleware(BodyLimits, options=options)
    app.add_middleware(Boundary, options=options, authenticator=authenticator)
    app.add_middleware(ObserveRequests, metrics=metrics)
    return app


# Worker processes beside the API: started again when they die, stopped orderly with it.

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before a worker that died is started again; doubled each time, until one has lived a minute."""
LIVED_S = 60.0
STOP_S = 20.0
"""How long a worker may take to give its job back before it is killed."""

_log = logging.getLogger("cudaops.supervisor")


@contextlib.asynccontextmanager
async def supervised(commands: Sequence[Sequence[str]]) -> AsyncIterator[None]:
    """Keeps one process of each command alive within the block, and stops them at its end."""
    stopping = asyncio.Event()
    keepers = [asyncio.create_task(_keep(command, stopping)) for command in commands]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.gather(*keepers)


async def _keep(command: Sequence[str], stopping: asyncio.Event) -> None:
    pause_s = FIRST_PAUSE_S
    while not stopping.is_set():
        began = time.monotonic()
        try:
            process = await _start(command)
        except OSError as problem:  # no process, no memory: there may be some again
            _log.error("a worker cannot be started: %s", problem)
        else:
            if await _first(process.wait(), stopping.wait()):
                await _stop(process)
                return
            _log.warning("worker ended with %s; starting another", process.returncode)
        lived = time.monotonic() - began > LIVED_S
        pause_s = FIRST_PAUSE_S if lived else min(2 * pause_s, LONGEST_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()


async def _start(command: Sequence[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        # Ctrl-C in a terminal goes to all of its group: only we tell a worker to stop.
        start_new_session=True,
        preexec_fn=_tied,
    )
    _log.info("worker started", extra={"pid": process.pid})
    return process


def _tied() -> None:
    """In the child: where the service is killed, the worker is asked to stop."""
    signal_on_parents_death(signal.SIGTERM)


async def _first(*waits: object) -> bool:
    """Whether the second one was done when the first of them was."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return bool(tasks[1].done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if not await ended_within(process, STOP_S):
        _log.error("worker %s did not stop in %g s and was killed", process.pid, STOP_S)


# uvicorn with our own limits: how long a client may take, how many may come, how it ends.

MAX_HEAD_BYTES = 32 << 10
"""Request line and headers together."""
IDLE_S = 30
"""How long a connection may stay open between two requests."""
DRAIN_S = 10
"""How long requests in progress may take to end once the service stops."""
BACKLOG = 1024


def protocol_of(options: ServiceOptions) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 with a limit on the time for headers and on connections."""
    connections = _Connections(options.max_connections)

    class Protocol(H11Protocol):
        """Closes connections that do not come to the point."""

        _head: asyncio.TimerHandle | None = None
        _rest: asyncio.TimerHandle | None = None
        _from: str

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._from = address_key(self.client[0] if self.client else None)
            if not connections.admit(self._from):
                transport.abort()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._head)
            _cancel(self._rest)
            connections.leave(self._from)
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY:
                # Answered before the body was through: the rest is thrown away, but not for ever.
                self._rest = self.loop.call_later(options.stall_seconds, self.transport.abort)

        def send_400_response(self, msg: str) -> None:
            if self._at_work():
                self.transport.abort()
                return
            self.transport.write(_unreadable())
            self.transport.close()

        def _watch(self) -> None:
            """From a request's first byte to the end of its headers a deadline runs."""
            if self.conn.their_state is not h11.SEND_BODY:
                _cancel(self._rest)
            if self.conn.their_state is not h11.IDLE or self._at_work():
                _cancel(self._head)
                self._head = None
            elif self._head is None:
                self._head = self.loop.call_later(options.stall_seconds, self.transport.close)

        def _at_work(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

    return Protocol


def _unreadable() -> bytes:
    refused = Refused("malformed-request", "the request cannot be read as HTTP/1.1")
    body = refused.problem.model_dump_json(exclude_none=True).encode()
    return (
        b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: "
        + MEDIA_TYPE.encode()
        + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
        + body
    )


class _Connections:
    """How many there are: in all, and half as many from one address, so that no single client shuts
    the others out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        """Count one more, until `leave`; whether it may stay."""
        self._of[address] += 1
        return self._of.total() <= self._most and self._of[address] <= -(-self._most // 2)

    def leave(self, address: str) -> None:
        """One that was counted has gone."""
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class Server(uvicorn.Server):
    """Ends streams before it waits for requests to end; leaves signals' consequences to us."""

    def __init__(self, app: FastAPI, options: ServiceOptions) -> None:
        config = uvicorn.Config(
            app,
            http=protocol_of(options),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=DRAIN_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        super().__init__(config)
        self._service: Service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.closing.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT drain. uvicorn raises them again afterwards; a service that was asked
        to stop and did is no error."""
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (ValueError, RuntimeError):  # not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at a second signal, without waiting for anybody."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it on, an answer
    # whose head and body are written apart waits 40 ms for a delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{host} port {port} cannot be had ({why}); choose --host or --port"
        ) from None
    listening.set_inheritable(False)
    return listening


def address_of(listening: socket.socket) -> str:
    """`http://host:port` of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def raise_file_limit() -> None:
    """A connection is a file: take as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65536)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# One API process with its workers, from an open database to the last answer.

POOL_SIZE = 12
"""Connections to the database: statements take milliseconds, so few serve many clients."""
READY_WITHIN_S = 60.0
"""How long the first worker may take to say that it is there; after that we say so and go on."""


class ListenAddress(Record):
    """Where to listen."""

    host: str = "127.0.0.1"
    """Name or address of this machine; `0.0.0.0` for all of its addresses."""
    port: int = 8080
    """0: any that is free."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


async def serve(
    settings: Settings,
    place: ListenAddress,
    options: ServiceOptions,
    workers: Sequence[Sequence[str]],
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; then end the streams, the requests, and the workers.

    Args:
        settings: where the database is.
        place: where to listen.
        options: `tokens` is chosen here: asked for, but on loopback only once one exists.
        workers: command line of each worker process to keep alive.
        announce: takes one line, once jobs can be done.

    Raises:
        InputError: the address cannot be had, or others could connect and there is no token.
        ServiceUnavailable: the database cannot be reached.
    """
    raise_file_limit()
    listening = bind("127.0.0.1" if place.host == "localhost" else place.host, place.port)
    with contextlib.closing(listening):
        store = await open_store(settings, pool_size=POOL_SIZE)
        try:
            await _raise_if_open_to_others(store, place, options)
            app = build_app(store, options, renderer=HtmlReports())
            server = Server(app, options)
            async with supervised(workers):
                serving = asyncio.create_task(server.serve([listening]))
                ready = asyncio.create_task(
                    _announce(store, bool(workers), address_of(listening), app, announce)
                )
                try:
                    await serving
                finally:
                    ready.cancel()
                    await asyncio.gather(ready, return_exceptions=True)
        finally:
            await store.close()


async def _raise_if_open_to_others(
    store: Store, place: ListenAddress, options: ServiceOptions
) -> None:
    if place.loopback or options.admin_token is not None or await store.tokens():
        return
    raise InputError(
        f"--host {place.host} accepts remote connections without a token: first"
        " `cudaops token add NAME --scope run`, or set CUDAOPS_ADMIN_TOKEN"
    )


async def _announce(
    store: Store, with_workers: bool, address: str, app: FastAPI, announce: Callable[[str], None]
) -> None:
    missing = await _not_ready(store) if with_workers else None
    asks = await app.state.service.authenticator.asks()
    tokens = "asks for tokens" if asks else "asks for no token (loopback, and none exists)"
    announce(f"cudaops serves {address} and {tokens}" + (f"; {missing}" if missing else ""))


async def _not_ready(store: Store) -> str | None:
    """Waits for a worker. What is still missing, where none came in time."""
    found: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_WITHIN_S):
            while isinstance(found := await readiness(store), str):
                await asyncio.sleep(0.2)
    return found if isinstance(found, str) else None
