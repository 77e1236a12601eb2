"""Where PostgreSQL is: the server of `DATABASE_URL`, else the embedded one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType

import psycopg

from cudaops.errors import KnowledgeUnavailable
from cudaops.rag.embedded import EmbeddedServer, socket_path_fits

CONNECT_TIMEOUT_S = 5
"""How long a given server may take to accept a connection."""

UNSET_REMEDY = "check DATABASE_URL, or unset it to use the embedded server"


class Database:
    """A PostgreSQL server that answered when this was made; `conninfo` leads to it."""

    def __init__(self, conninfo: str, embedded: EmbeddedServer | None = None) -> None:
        self.conninfo = conninfo
        self._embedded = embedded

    @property
    def where(self) -> str:
        """A line for people: `embedded in FOLDER` or the server's address without its password."""
        if self._embedded is not None:
            return f"embedded in {self._embedded.folder}"
        return describe(self.conninfo)

    @property
    def remedy(self) -> str:
        """What a user can do when this server stops answering."""
        if self._embedded is not None:
            return f"try again; its log is {self._embedded.log}"
        return UNSET_REMEDY

    def close(self) -> None:
        """Let go of an embedded server; the last process to do so stops it."""
        if self._embedded is not None:
            self._embedded.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_database(database_url: str | None, data_folder: Path | None = None) -> Database:
    """The server of `database_url`, else an embedded one with its data under `data_folder`.

    `data_folder` None means `default_data_folder()`.

    Raises:
        KnowledgeUnavailable: neither can be reached; within 5 s for a given server that refuses
            and 20 s for the embedded one.
    """
    if database_url:
        try:
            with psycopg.connect(database_url, connect_timeout=CONNECT_TIMEOUT_S):
                return Database(database_url)
        except psycopg.Error as error:
            raise KnowledgeUnavailable(
                f"the PostgreSQL server {describe(database_url)} cannot be reached:"
                f" {first_line(error)}",
                UNSET_REMEDY,
            ) from error
    server = EmbeddedServer.start(data_folder or default_data_folder())
    return Database(server.conninfo, server)


def default_data_folder() -> Path:
    """Where the embedded server keeps its data unless the user says otherwise.

    The platform's cache folder; `/var/tmp/cudaops-UID` for root, whose home PostgreSQL's own user
    must not be able to enter, and for a cache folder too deep for a socket's path.

    Raises:
        KnowledgeUnavailable: somebody else owns that folder in `/var/tmp`.
    """
    import platformdirs

    folder = Path(platformdirs.user_cache_path("cudaops")) / "knowledge"
    if os.geteuid() != 0 and socket_path_fits(folder):
        return folder
    return _own_folder(Path("/var/tmp") / f"cudaops-{os.geteuid()}") / "knowledge"


def _own_folder(folder: Path) -> Path:
    """Create `folder`, or make sure that nobody else made it: `/var/tmp` is open to all."""
    remedy = "remove it, or set DATABASE_URL"
    try:
        folder.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise KnowledgeUnavailable(
            f"{folder} cannot be created: {error.strerror}", remedy
        ) from error
    found = folder.lstat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or writable:
        raise KnowledgeUnavailable(f"{folder} belongs to or can be changed by another user", remedy)
    return folder


def describe(conninfo: str) -> str:
    """The address in a connection string, with no secret in it."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.Error:
        return "of DATABASE_URL"
    host = parts.get("host") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}".rstrip("/")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for one-line messages."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
