"""The servers as a host meets them: a process on stdio, or uvicorn on a loopback port."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastmcp import FastMCP
from mcp import StdioServerParameters

from cudaops.domain.judgement import Policy
from cudaops.graph.hosted import Hosting
from cudaops.graph.resolve_options import target
from cudaops.graph.toolbox import open_knowledge
from cudaops.mcp_servers.http import Verify, build_mcp_app
from cudaops.mcp_servers.servers import build_server
from cudaops.mcp_servers.sessions import SessionProvider
from cudaops.settings import load_settings

EXPLOITS = Path(__file__).parents[1] / "exploits"
MM = (EXPLOITS / "mm.cu").read_text("utf-8")
TILES = (EXPLOITS / "honest" / "shared_tiles.cu").read_text("utf-8")
ENDLESS = MM.replace("int main() {", "int main() { for (volatile int i = 0;; ++i) {}", 1)
SERVERS = ("profiler", "knowledge", "sandbox", "all")


def hosting(runs: Path, *, strangers: bool, min_speedup: float = 0.5) -> Hosting:
    """At a bar that tiles of a 64 x 64 product pass: they are right, and slower than 1x."""
    settings = load_settings().model_copy(update={"runs": runs})
    return Hosting(
        settings=settings,
        where=target("A10", None),
        policy=Policy(min_speedup=min_speedup, seed=7),
        strangers=strangers,
    )


def server_of(name: str, seat: SessionProvider, host: Hosting) -> FastMCP:
    """As `cudaops mcp` builds it."""
    return build_server(
        name,
        seat,
        lambda: open_knowledge(host.settings),
        write_run=host.write_run,
        optimize=host.optimize,
    )


def on_stdio(server: str, runs: Path, *options: str) -> StdioServerParameters:
    """`python -m cudaops mcp SERVER` with the environment of these tests."""
    root = str(Path(__file__).parents[2])
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "cudaops", "mcp", server, *options],
        env={**os.environ, "CUDAOPS_RUNS": str(runs), "PYTHONPATH": root},
        cwd=str(runs.parent),
    )


class Address(NamedTuple):
    """Where a server listens."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextmanager
def over_http(server: FastMCP, verify: Verify | None = None) -> Iterator[Address]:
    """The server on a loopback port of its own."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    app: Any = build_mcp_app(server, path="/mcp", verify=verify)
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        yield Address(listening.getsockname()[1])
    finally:
        running.should_exit = running.force_exit = True
        thread.join(60)
        listening.close()


async def text_of_run(
    call: Callable[..., Awaitable[dict[str, Any]]], run_id: str, part: str
) -> str:
    """One of a run's files, read piece by piece. `call` is given the tool's name and arguments."""
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        piece = await call("read_run", run_id=run_id, part=part, offset=offset)
        pieces.append(piece["text"])
        offset = piece["next_offset"]
    return "".join(pieces)
