"""The database: what is found again, and what happens where it is damaged or another's."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cudaops.domain.memory import MemoryEntry
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.memory.results import KEPT, MOST
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, any_entry, entry

AWKWARD = st.text(alphabet="ab |\\\n\r\t\x00\x1b\u2028\u00a0- x", max_size=12)


@pytest.fixture
def memory(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "memory")


def test_a_folder_that_is_not_there_is_empty_and_reading_does_not_make_it(
    memory: MemoryStore,
) -> None:
    assert memory.recall(KEY).empty
    assert memory.kernels() == ()
    assert memory.patterns() == ()
    assert memory.forget() == 0
    assert memory.forget_notes(KEY) == 0
    assert not memory.folder.exists()


def test_what_is_recorded_is_recalled(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(2, outcome="rejected"))
    assert memory.recall(KEY).entries == (entry(1), entry(2, outcome="rejected"))
    for private in (memory.folder, memory.file):
        assert private.stat().st_mode & 0o077 == 0, "nobody else's business"


@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=any_entry() | any_entry(AWKWARD))
def test_any_entry_comes_back_whole(memory: MemoryStore, made: MemoryEntry) -> None:
    made = made.model_copy(update={"date": "2026-11-20T08:00:00Z"})
    memory.forget()
    memory.record(KEY, made)
    assert memory.recall(KEY).entries == (made,)


def test_half_a_surrogate_pair_is_replaced_because_no_file_can_hold_it(memory: MemoryStore) -> None:
    odd = KEY.model_copy(update={"name": "a\ud800"})
    memory.record(odd, entry(1, lesson="b\udfff"))
    memory.note(odd, "c\ud800")
    (known,) = memory.kernels()
    assert (known.key.name, known.entries[0].lesson, known.notes) == ("a?", "b?", "c?")


def test_structure_and_class_of_device_are_the_key_and_the_name_is_not(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    for other in ({"device_class": "sm_90"}, {"structure": "f" * 16}):
        assert memory.recall(KEY.model_copy(update=other)).empty
    renamed = KEY.model_copy(update={"name": "../../a::b<int>\n" + "x" * 300})
    assert memory.recall(renamed).entries == (entry(1),)
    memory.record(renamed, entry(2))
    (known,) = memory.kernels()
    assert known.key == renamed, "named as it was last seen"


def test_the_same_result_is_not_written_twice(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(1, date="2026-11-21T08:00:00Z"))
    assert memory.recall(KEY).entries == (entry(1),)
    memory.record(KEY, entry(1, run_id="another"))
    assert len(memory.recall(KEY).entries) == 2


def test_a_long_one_is_shown_short_and_patterns_do_not_notice(memory: MemoryStore) -> None:
    for number in range(MOST + 1):
        memory.record(KEY, entry(number, outcome="rejected"))
    known = memory.recall(KEY)
    assert len(known.entries) == KEPT
    assert sum(len(g.source_ids) for g in known.avoided) == MOST + 1 - KEPT
    assert memory.patterns()[0].tried == MOST + 1


def test_notes(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    memory.note(KEY, "first")
    memory.note(KEY, " second\nin two lines\n")
    assert memory.recall(KEY).notes == "second\nin two lines\nfirst"
    for refused in ("", "  \n"):
        with pytest.raises(InputError, match="a note needs text"):
            memory.note(KEY, refused)
    assert memory.forget_notes(KEY) == 2
    assert memory.recall(KEY).notes == ""
    assert memory.recall(KEY).entries == (entry(1),)


def test_forgetting(memory: MemoryStore) -> None:
    other = KEY.model_copy(update={"device_class": "sm_90"})
    for key in (KEY, other):
        memory.record(key, entry(1, lesson="do not tell anybody"))
        memory.record(key, entry(2))
    assert memory.forget_results(KEY, entry(1).source_id) == 1
    assert memory.forget_results(KEY, "nothing like it") == 0
    assert memory.recall(KEY).entries == (entry(2),)
    assert len(memory.recall(other).entries) == 2
    assert memory.forget(KEY) == 1
    assert memory.recall(KEY).empty
    assert memory.forget() == 1
    assert memory.kernels() == ()
    assert b"do not tell anybody" not in memory.file.read_bytes()


def test_a_rewrite_that_was_put_together_is_forgotten_too(memory: MemoryStore) -> None:
    for number in range(MOST + 1):
        memory.record(KEY, entry(number, outcome="rejected"))
    assert entry(1).source_id in memory.recall(KEY).avoided[0].source_ids
    assert memory.forget_results(KEY, entry(1).source_id) == 1
    known = memory.recall(KEY)
    assert len(known.entries) == MOST
    assert entry(1).source_id not in {e.source_id for e in known.entries}


def test_a_kernel_of_which_nothing_is_left_is_not_known(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    memory.forget_results(KEY, entry(1).source_id)
    assert memory.kernels() == ()


def test_what_another_version_knew_is_left_out_and_stays(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(2))
    with sqlite3.connect(memory.file) as db:
        db.execute("UPDATE result SET gate = 'of tomorrow' WHERE id = 1")
    assert memory.recall(KEY).entries == (entry(2),)
    memory.record(KEY, entry(3))
    with sqlite3.connect(memory.file) as db:
        assert db.execute("SELECT count(*) FROM result").fetchone() == (3,)


def refused(memory: MemoryStore) -> str:
    """What both a reader and a writer are told; the file stays as it is."""
    before = memory.file.read_bytes()
    told = set()
    for use in (memory.kernels, memory.forget, lambda: memory.record(KEY, entry(1))):
        with pytest.raises(EnvironmentFailure) as caught:
            use()
        told.add(f"{caught.value.problem}; {caught.value.remedy}")
    assert memory.file.read_bytes() == before
    (one,) = told
    assert len(one.splitlines()) == 1
    assert str(memory.file) in one
    assert "CUDAOPS_MEMORY" in one
    return one


def test_what_is_no_database_is_not_touched(memory: MemoryStore) -> None:
    memory.folder.mkdir()
    memory.file.write_text("somebody's own words, " * 100)
    assert "move it away" in refused(memory)


def test_another_programs_database_is_not_touched(memory: MemoryStore) -> None:
    memory.folder.mkdir()
    db = sqlite3.connect(memory.file)
    db.execute("CREATE TABLE mine (a)")
    db.commit()
    db.close()
    assert "belongs to another program; move it away" in refused(memory)


def test_a_later_versions_database_is_not_touched(memory: MemoryStore) -> None:
    memory.record(KEY, entry(1))
    with sqlite3.connect(memory.file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "version 99; update cudaops" in refused(memory)


def test_a_damaged_database_is_not_touched(memory: MemoryStore) -> None:
    for number in range(200):
        memory.record(KEY, entry(number, lesson="x" * 300))
    size = memory.file.stat().st_size
    with memory.file.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    assert "malformed; move it away" in refused(memory)
    memory.file.rename(memory.folder / "aside")
    memory.record(KEY, entry(1))
    assert memory.recall(KEY).entries == (entry(1),)


_READER = """
import os, sys
from pathlib import Path
from cudaops.errors import EnvironmentFailure
from cudaops.memory.store import MemoryStore
from tests.memory.made import KEY, entry
if os.geteuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
memory = MemoryStore(Path(sys.argv[1]))
print(len(memory.recall(KEY).entries))
try:
    memory.record(KEY, entry(2))
except EnvironmentFailure as error:
    print(error.problem)
"""


def test_what_may_only_be_read_is_read(cache: Path) -> None:
    folder = cache / "read only"  # other accounts may enter the cache, and not pytest's folders
    MemoryStore(folder).record(KEY, entry(1))
    (folder / "memory.sqlite").chmod(0o444)
    folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", _READER, str(folder)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "1"
    assert "Permission denied" in second
