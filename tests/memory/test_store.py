"""The folder of memory files: what is found again, and what a person's edits do to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.memory.compaction import KEPT, MOST
from cudaops.memory.document import read_document, with_entry
from cudaops.memory.store import Memory
from tests.memory.made import KEY, entry


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "memory")


def only_file(memory: Memory) -> Path:
    (path,) = (memory.folder / "kernels").glob("*.md")
    return path


def test_a_folder_that_is_not_there_is_empty_and_reading_does_not_make_it(memory: Memory) -> None:
    assert memory.recall(KEY).empty
    assert memory.kernels() == ()
    assert memory.patterns() == ()
    assert memory.forget() == 0
    memory.compact(KEY)
    assert not memory.folder.exists()


def test_what_is_recorded_is_recalled(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(2, outcome="rejected"))
    assert memory.recall(KEY).entries == (entry(1), entry(2, outcome="rejected"))
    assert only_file(memory).name == "naive_matmul-0123456789abcdef-sm_86.md"
    for private in (only_file(memory).parent, only_file(memory)):
        assert private.stat().st_mode & 0o077 == 0, "nobody else's business"


def test_structure_and_class_of_device_are_the_key_and_the_name_is_not(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    for other in ({"device_class": "sm_90"}, {"structure": "f" * 16}):
        assert memory.recall(KEY.model_copy(update=other)).empty
    renamed = KEY.model_copy(update={"name": "sgemm"})
    assert memory.recall(renamed).entries == (entry(1),)
    memory.record(renamed, entry(2))
    (remembered,) = memory.kernels()
    assert remembered.key.name == "sgemm", "where it was last seen"


def test_a_name_that_no_file_can_have(memory: Memory) -> None:
    odd = KEY.model_copy(update={"name": "../../a::b<int>\n" + "x" * 300})
    memory.record(odd, entry(1))
    assert only_file(memory).parent == memory.folder / "kernels"
    assert memory.kernels()[0].key == odd


def test_the_same_result_is_not_written_twice(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    memory.record(KEY, entry(1, date="2026-11-21T08:00:00Z"))
    assert memory.recall(KEY).entries == (entry(1),)
    memory.record(KEY, entry(1, run_id="another"))
    assert len(memory.recall(KEY).entries) == 2


def test_edits_between_two_writes_are_kept(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    path = only_file(memory)
    text = path.read_text("utf-8").replace("lesson 1", "what I think").replace(
        "## Tried", "It runs at night.\n\n## Tried"
    )  # fmt: skip
    path.write_text(text, "utf-8")
    memory.record(KEY, entry(2))
    known = memory.recall(KEY)
    assert [e.lesson for e in known.entries] == ["what I think", "lesson 2"]
    assert known.notes == "It runs at night."
    assert path.read_text("utf-8").startswith(text)


def test_a_file_is_found_by_its_head_or_else_by_its_name(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    path = only_file(memory)
    moved = path.rename(path.with_name("matmul.md"))
    assert memory.recall(KEY).entries == (entry(1),)
    memory.record(KEY, entry(2))
    assert only_file(memory) == moved
    headless = moved.read_bytes().replace(b"structure:", b"form:")
    moved.write_bytes(headless)
    assert memory.kernels() == (), "nobody can say what it is about"
    moved.rename(path)
    assert len(memory.recall(KEY).entries) == 2
    memory.record(KEY, entry(3))
    assert len(memory.recall(KEY).entries) == 3


def test_two_files_of_one_kernel_are_read_together(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    path = only_file(memory)
    path.with_name("z.md").write_bytes(path.read_bytes().replace(b"number 1", b"number 7"))
    assert [e.title[-1] for e in memory.recall(KEY).entries] == ["1", "7"]


def test_other_things_in_the_folder_do_no_harm(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    kernels = memory.folder / "kernels"
    (kernels / "README.md").write_text("what I keep here\n")
    (kernels / "notes.txt").write_text("x")
    (kernels / "folder.md").mkdir()
    (kernels / "link.md").symlink_to(kernels / "nowhere.md")
    assert len(memory.kernels()) == 1


def test_a_link_stays_a_link(memory: Memory, tmp_path: Path) -> None:
    memory.record(KEY, entry(1))
    path, elsewhere = only_file(memory), tmp_path / "mine.md"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    memory.record(KEY, entry(2))
    assert path.is_symlink()
    assert b"number 2" in elsewhere.read_bytes()


def test_a_long_memory_is_compacted_as_it_is_written(memory: Memory) -> None:
    for number in range(MOST + 1):
        memory.record(KEY, entry(number, outcome="rejected"))
    (remembered,) = memory.kernels()
    assert len(remembered.document.whole) == KEPT
    known = memory.recall(KEY)
    assert sum(len(g.source_ids) for g in known.avoided) == MOST + 1 - KEPT
    assert memory.patterns()[0].tried == MOST + 1
    memory.compact(KEY, keep=0)
    assert memory.recall(KEY).entries == ()
    assert memory.patterns()[0].tried == MOST + 1


def test_notes(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    memory.note(KEY, "first")
    memory.note(KEY, "second\nin two lines")
    assert memory.recall(KEY).notes == "second\nin two lines\nfirst"
    line = only_file(memory).read_text("utf-8").splitlines()[-1]
    for refused in ("", "  \n", line):
        with pytest.raises(InputError, match="a note needs words"):
            memory.note(KEY, refused)


def test_an_edit_keeps_what_a_run_added_meanwhile(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    path = only_file(memory)
    before = path.read_bytes()
    memory.record(KEY, entry(2))
    memory.replace(path, before, before.replace(b"lesson 1", b"edited"))
    assert [e.lesson for e in memory.recall(KEY).entries] == ["edited", "lesson 2"]


def test_an_edit_does_not_overwrite_another_persons(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    path = only_file(memory)
    before = path.read_bytes()
    memory.note(KEY, "theirs")
    with pytest.raises(InputError, match=r"changed by somebody else; your text is .*\.edited"):
        memory.replace(path, before, before + b"mine\n")
    assert memory.recall(KEY).notes == "theirs"
    assert path.with_suffix(".edited").read_bytes() == before + b"mine\n"
    assert len(memory.kernels()) == 1


def test_forgetting(memory: Memory) -> None:
    other = KEY.model_copy(update={"device_class": "sm_90"})
    for key in (KEY, other):
        memory.record(key, entry(1))
        memory.record(key, entry(2))
    assert memory.forget_entry(KEY, entry(1).source_id) == 1
    assert memory.forget_entry(KEY, "nothing like it") == 0
    assert memory.recall(KEY).entries == (entry(2),)
    assert len(memory.recall(other).entries) == 2
    assert memory.forget(KEY) == 1
    assert memory.recall(KEY).empty
    assert memory.forget() == 1
    assert memory.kernels() == ()


def test_one_rewrite_is_forgotten_out_of_a_group_too(memory: Memory) -> None:
    for number in (1, 2):
        memory.record(KEY, entry(number, outcome="rejected"))
    memory.compact(KEY, keep=0)
    assert memory.forget_entry(KEY, entry(1).source_id) == 1
    assert memory.recall(KEY).avoided[0].source_ids == (entry(2).source_id,)
    assert memory.forget_entry(KEY, entry(2).source_id) == 1
    assert memory.recall(KEY).empty


def test_the_file_is_what_the_document_says(memory: Memory) -> None:
    memory.record(KEY, entry(1))
    document = read_document(only_file(memory).read_bytes())
    memory.record(KEY, entry(2))
    assert only_file(memory).read_bytes() == with_entry(document, entry(2)).data
