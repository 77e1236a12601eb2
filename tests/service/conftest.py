"""One real PostgreSQL for the session; an empty database in it, and a store on that, a test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cudaops.rag.embedded import EmbeddedServer
from cudaops.service.store import Store
from tests.service.remote_service import RemoteService

_numbers = count()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio`, and async fixtures, run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The embedded server, in a folder that its own account may enter."""
    folder = Path(tempfile.mkdtemp(prefix="cudaops-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    started = EmbeddedServer.start(folder)
    with psycopg.connect(started.conninfo, autocommit=True) as connection:
        # Nobody needs these databases after a crash, and the end of a server writes them all out.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield started
    started.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def conninfo(server: EmbeddedServer) -> str:
    """Connection string of an empty database; it goes with the server. Works as DATABASE_URL."""
    return _fresh(server)


@pytest.fixture
async def store(conninfo: str, anyio_backend: str) -> AsyncIterator[Store]:
    """A store on an empty database; for tests marked `anyio`."""
    opened = await Store.open(conninfo)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def new_database(server: EmbeddedServer) -> Callable[[], str]:
    """Makes an empty database; its connection string. For fixtures that last longer than a test."""
    return lambda: _fresh(server)


def _fresh(server: EmbeddedServer) -> str:
    name = f"service_{next(_numbers)}"
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_conninfo(server.conninfo, dbname=name)


@pytest.fixture(scope="session")
def remote_service(
    server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteService]:
    """A service for `--executor remote`, on loopback without tokens, with a worker on `cpu`."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE DATABASE remote_service")
    conninfo = make_conninfo(server.conninfo, dbname="remote_service")
    cache = Path(os.environ["CUDAOPS_CACHE"])
    service = RemoteService(conninfo, tmp_path_factory.mktemp("remote_service"), cache)
    try:
        service.start()
        yield service
    finally:
        service.stop()
