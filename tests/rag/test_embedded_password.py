"""Nobody gets into the embedded server for having reached its socket."""

from __future__ import annotations

import logging
import os
import stat
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cudaops.rag import embedded
from cudaops.rag.embedded import EmbeddedServer
from cudaops.rag.postgres_programs import (
    Programs,
    password_file,
    read_password,
    trusts,
    write_rules,
)
from cudaops.rag.server import Database, describe
from tests.rag.test_embedded import answers, hold, release


def refused(conninfo: str, password: str = "") -> bool:
    """Whether a connection fails for want of a (good) password, within the moment that a reload of
    the rules takes."""
    parts = {k: v for k, v in conninfo_to_dict(conninfo).items() if k != "password"}
    if password:
        parts["password"] = password
    given = make_conninfo("", **parts, passfile="/dev/null")
    for _ in range(50):
        try:
            psycopg.connect(given).close()
        except psycopg.OperationalError as error:
            return "password" in str(error)
        time.sleep(0.05)
    return False


def make_trusting(folder: Path) -> Path:
    """A data folder as it was made before there were passwords."""
    server = EmbeddedServer.start(folder)
    (pgdata,) = folder.glob("pgdata-*")
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres PASSWORD NULL")
        connection.execute("CREATE TABLE kept AS SELECT 42 AS value")
    server.close()
    write_rules(pgdata, "trust")
    password_file(pgdata).unlink()
    return pgdata


def is_kept(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.conninfo) as connection:
        return connection.execute("SELECT value FROM kept").fetchone() == (42,)


def test_it_asks_for_a_password_that_its_owner_alone_reads(
    open_folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server = EmbeddedServer.start(open_folder)
    (pgdata,) = open_folder.glob("pgdata-*")
    secret = read_password(pgdata)
    assert secret is not None
    assert len(secret) >= 40
    found = password_file(pgdata).stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, os.geteuid())
    assert answers(server)
    assert refused(server.conninfo)
    assert refused(server.conninfo, "another")
    database = Database(server.conninfo, server)
    said = capfd.readouterr()
    shown = (describe(server.conninfo), database.where, database.remedy, caplog.text, *said)
    assert not any(secret in text for text in shown)
    assert secret not in server.log.read_text("utf-8")
    server.close()
    assert not list(open_folder.glob("cudaops-initdb-*"))


def test_another_process_joins_with_it(open_folder: Path) -> None:
    other = hold(open_folder)
    server = EmbeddedServer.start(open_folder)
    assert answers(server)
    release(other)
    server.close()


def test_a_folder_that_trusted_everybody_does_no_longer(open_folder: Path) -> None:
    pgdata = make_trusting(open_folder)
    server = EmbeddedServer.start(open_folder)
    assert not trusts(pgdata)
    assert is_kept(server)
    assert refused(server.conninfo)
    server.close()
    again = EmbeddedServer.start(open_folder)
    assert is_kept(again)
    again.close()


def test_nor_does_a_running_one(open_folder: Path) -> None:
    """Started by an older cudaops, whose own connections last."""
    pgdata = make_trusting(open_folder)
    programs = Programs.locate(open_folder)
    programs.start(pgdata, time.monotonic() + 20)
    with psycopg.connect(embedded._conninfo(pgdata)) as older:
        server = EmbeddedServer.start(open_folder)
        assert is_kept(server)
        assert refused(server.conninfo)
        assert older.execute("SELECT 1").fetchone() == (1,)
    server.close()


@pytest.mark.parametrize("running", [False, True])
def test_a_lost_password_is_made_anew(open_folder: Path, running: bool) -> None:
    pgdata = make_trusting(open_folder)
    first = EmbeddedServer.start(open_folder)
    before = read_password(pgdata)
    if not running:
        first.close()
    password_file(pgdata).unlink()
    server = EmbeddedServer.start(open_folder)
    assert read_password(pgdata) not in (None, before)
    assert is_kept(server)
    assert refused(server.conninfo)
    first.close()
    server.close()
