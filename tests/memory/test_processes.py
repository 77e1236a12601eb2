"""Several processes at one memory, processes that die, and folders that will not take it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from cudaops.errors import EnvironmentFailure
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, entry

_WRITER = """
import sys
from pathlib import Path
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, entry
memory = MemoryStore(Path(sys.argv[1]), wait_s=120)
first, count = int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + count):
    memory.record(KEY, entry(number, outcome="rejected"))
    print(number, flush=True)
"""


def _writer(folder: Path, first: int, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), str(first), str(count)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, first, 30) for first in (0, 1000)]
    for writer in writers:
        _go(writer)
    for writer in writers:
        writer.communicate(timeout=200)
        assert writer.returncode == 0
    known = MemoryStore(tmp_path).recall(KEY)
    with sqlite3.connect(MemoryStore(tmp_path).file) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    ids = [i for group in known.avoided for i in group.source_ids]
    ids += [e.source_id for e in known.entries]
    assert sorted(ids) == sorted(entry(n).source_id for n in [*range(30), *range(1000, 1030)])
    assert known.notes == ""


def test_a_killed_writer_leaves_whole_entries_and_no_lock(tmp_path: Path) -> None:
    writer = _writer(tmp_path, 0, 100_000)
    _go(writer)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    written, _ = writer.communicate(timeout=60)
    said = 5 + len(written.splitlines())
    memory = MemoryStore(tmp_path, wait_s=60)
    known = memory.recall(KEY)
    found = sum(len(g.source_ids) for g in known.avoided) + len(known.entries)
    assert said <= found <= said + 1, "what it had said to be written, and at most one more"
    assert known.notes == ""
    memory.record(KEY, entry(200_000))
    assert [path.name for path in tmp_path.iterdir()] == ["memory.sqlite"], "nothing is left"


def test_a_writer_that_holds_the_lock_is_waited_for_and_then_named(tmp_path: Path) -> None:
    memory = MemoryStore(tmp_path, wait_s=0.1)
    memory.note(KEY, "made")
    other = sqlite3.connect(memory.file, isolation_level=None)
    with closing(other):
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(EnvironmentFailure, match="another process has kept"):
            memory.record(KEY, entry(1))
        assert time.monotonic() - started >= 0.1
        assert memory.recall(KEY).notes == "made", "reading needs no lock"
    memory.record(KEY, entry(1))


_FULL = """
import resource, signal, sys
from pathlib import Path
from cudaops.errors import EnvironmentFailure
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    MemoryStore(Path(sys.argv[1])).record(KEY, entry(2))
except EnvironmentFailure as error:
    print(error.problem)
"""


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    memory = MemoryStore(tmp_path)
    memory.record(KEY, entry(1))
    assert f"memory: {memory.file}: " in _said(_FULL, tmp_path)
    assert memory.recall(KEY).entries == (entry(1),)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    memory = MemoryStore(tmp_path / "taken")
    with pytest.raises(EnvironmentFailure, match="CUDAOPS_MEMORY") as caught:
        memory.record(KEY, entry(1))
    assert str(tmp_path / "taken") in caught.value.problem


_OUTSIDER = """
import os, sys
from pathlib import Path
from cudaops.errors import EnvironmentFailure
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, entry
memory = MemoryStore(Path(sys.argv[1]))
if os.geteuid() == 0:  # root may enter everything
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for attempt in (lambda: memory.recall(KEY), lambda: memory.record(KEY, entry(2))):
    try:
        attempt()
    except EnvironmentFailure as error:
        print(error.problem)
"""


def test_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    memory = MemoryStore(tmp_path / "memory")
    memory.record(KEY, entry(1))
    memory.folder.chmod(0)
    try:
        said = _said(_OUTSIDER, memory.folder)
    finally:
        memory.folder.chmod(0o700)
    assert said.count("Permission denied") == 2
    assert memory.recall(KEY).entries == (entry(1),)


def _said(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout
