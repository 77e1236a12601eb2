"""uvicorn with our own limits: how long a client may take, how many may come, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cudaops.errors import InputError
from cudaops.service.context import Service
from cudaops.service.options import ServiceOptions
from cudaops.service.problems import MEDIA_TYPE, Refused
from cudaops.service.rates import address_key

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
