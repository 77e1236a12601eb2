"""One API process with its workers, from an open database to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from fastapi import FastAPI

from cudaops.domain.address import is_loopback
from cudaops.domain.base import Record
from cudaops.errors import InputError
from cudaops.service.app import build_app
from cudaops.service.health import readiness
from cudaops.service.options import ServiceOptions
from cudaops.service.rendering import HtmlReports
from cudaops.service.server import Server, address_of, bind, raise_file_limit
from cudaops.service.store import Store, open_store
from cudaops.service.supervisor import supervised
from cudaops.settings import Settings

POOL_SIZE = 12
"""Connections to the database: statements take milliseconds, so few serve many clients."""
READY_WITHIN_S = 60.0
"""How long the first worker may take to say that it is there; after that we say so and go on."""


class Place(Record):
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
    place: Place,
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


async def _raise_if_open_to_others(store: Store, place: Place, options: ServiceOptions) -> None:
    if place.loopback or options.admin_token is not None or await store.tokens():
        return
    raise InputError(
        f"--host {place.host} lets others connect, and there is no token: first"
        " `cudaops token add NAME --scope run`, or set CUDAOPS_ADMIN_TOKEN"
    )


async def _announce(
    store: Store, with_workers: bool, address: str, app: FastAPI, announce: Callable[[str], None]
) -> None:
    missing = await _not_ready(store) if with_workers else None
    asks = await app.state.service.doorkeeper.asks()
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
