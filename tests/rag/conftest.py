"""One real PostgreSQL for the session, a fresh database in it for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cudaops.rag.embedded import EmbeddedServer
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.server import Database
from cudaops.rag.store import Store

_numbers = count()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own is closed, and root's server is not root."""
    folder = _open_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    folder = _open_folder()
    started = EmbeddedServer.start(folder)
    yield started
    started.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database_url(server: EmbeddedServer) -> str:
    """Connection string of an empty database; it goes with the server."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_conninfo(server.conninfo, dbname=name)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = Store(Database(database_url))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture(scope="session")
def knowledge(server: EmbeddedServer, embedder: WordLlamaEmbedder) -> Iterator[Knowledge]:
    """The built-in corpus, ingested once; read only."""
    opened = Knowledge.open(database_url=server.conninfo, data_folder=None, embedder=embedder)
    yield opened
    opened.close()


def _open_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cudaops-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    return folder
