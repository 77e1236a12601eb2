"""The real API on a real port: uvicorn with our protocol in a thread, on a real database."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import httpx

from cudaops.domain.base import Record
from cudaops.service.auth import ServiceOptions
from cudaops.service.records import Artefact, JobEvent, JobStatus, Problem, Scope
from cudaops.service.routes_artefacts import Renderer
from cudaops.service.server import Server, address_of, bind, build_app
from cudaops.service.store import Store

T = TypeVar("T")
DEADLINE_S = 60.0
"""For whatever is waited for, on a loaded machine."""
SOURCE = "__global__ void k(float* x) { x[0] = 1; }\nint main() { return 0; }\n"


class Api:
    """A running API; `ask` talks to its store as a worker or an operator would."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self.address = address
        self._loop = loop
        self._store = store
        self.http = httpx.Client(base_url=address, timeout=DEADLINE_S)

    def ask(self, what: Callable[[Store], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await what(self._store)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(DEADLINE_S)

    def token(self, name: str, scope: Scope, days: int | None = None) -> dict[str, str]:
        """Headers of a new token."""
        made = self.ask(lambda store: store.add_token(name, scope, days))
        return {"Authorization": f"Bearer {made}"}

    def submit(self, kind: str = "compile", **fields: Any) -> UUID:
        headers = fields.pop("headers", {})
        answer = self.http.post(f"/{kind}", json={"source": SOURCE, **fields}, headers=headers)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    def work(
        self,
        id: UUID,
        status: JobStatus = "succeeded",
        *,
        result: Record | None = None,
        problem: Problem | None = None,
        says: Sequence[str] = (),
        leaves: dict[str, tuple[str, bytes]] | None = None,
    ) -> None:
        """What a worker does with a job, without running anything."""

        async def worked(store: Store) -> None:
            claim = await store.claim(id, "w", 60)
            assert claim is not None
            await store.add_events(id, claim.lease, [event(message) for message in says])
            files = [
                (
                    Artefact(
                        name=name, media_type=media_type, size_bytes=len(content),
                        sha256=hashlib.sha256(content).hexdigest(),
                    ),
                    content,
                )
                for name, (media_type, content) in (leaves or {}).items()
            ]  # fmt: skip
            assert await store.end(
                id, claim.lease, status, result=result, problem=problem, artefacts=files
            )

        self.ask(worked)

    def raw(self, sent: bytes) -> bytes:
        """Everything that comes back for these bytes until the service closes."""
        with self.connect() as connection:
            connection.sendall(sent)
            return read_all(connection)

    def connect(self) -> socket.socket:
        port = int(self.address.rpartition(":")[2])
        return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


def read_all(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def event(message: str) -> JobEvent:
    return JobEvent(
        seq=0, time="2026-11-22T00:00:00.000Z", attempt=1, stage="sandbox", agent="sandbox",
        kind="progress", message=message,
    )  # fmt: skip


@contextmanager
def running(
    conninfo: str,
    options: ServiceOptions | None = None,
    *,
    renderer: Renderer | None = None,
    max_queued: int = 10_000,
) -> Iterator[Api]:
    """Serves until the block ends; what the server itself raises fails the test."""
    listening = bind("127.0.0.1", 0)
    started: Any = threading.Event()
    state: dict[str, Any] = {}

    async def serve() -> None:
        store = await Store.open(conninfo, max_queued=max_queued)
        try:
            app = build_app(
                store,
                options or open_to_all(),
                renderer=renderer,
            )
            server = Server(app, options or open_to_all())
            state.update(loop=asyncio.get_running_loop(), store=store, server=server)
            started.set()
            await server.serve([listening])
        finally:
            await store.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001  handed to the test
            state["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=run, name="api")
    thread.start()
    assert started.wait(DEADLINE_S)
    if "error" in state:
        raise state["error"]
    api = Api(address_of(listening), state["loop"], state["store"])
    try:
        yield api
    finally:
        api.http.close()
        state["server"].should_exit = True
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    if "error" in state:
        raise state["error"]


def open_to_all(**fields: Any) -> ServiceOptions:
    """As `cudaops serve` on loopback without a token, without limits of rate."""
    return ServiceOptions.model_validate(
        {
            "version": "0", "tokens": "once_one_exists", "reads_per_minute": 0,
            "submits_per_minute": 0, **fields,
        }
    )  # fmt: skip
