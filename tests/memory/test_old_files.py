"""Markdown files of cudaops before SQLite, as it wrote them, are imported once.

`tests/data/memory_files` was written by that cudaops (1a184ce), with what it read in them beside.
One file was edited by hand since: its head is damaged, and it has notes that look like entries.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cudaops.errors import EnvironmentFailure
from cudaops.memory.old_files import read_old_files
from cudaops.memory.store import Memory
from tests.memory.made import KEY, entry

WRITTEN = Path(__file__).parents[1] / "data" / "memory_files"
LINE = (
    r"- 2026-11-20T08:00:07Z | rejected | 0.9x modelled | l1_load_throughput | tiling"
    r" | a \| b | by llm:nvidia/nemotron | run naive_matmul/20261120T080000Z"
    r" | source 000000000007 | gate speedup | two\nlines"
)
HEAD = "---\nstructure: 0123456789abcdef\ndevice_class: sm_86\nname: naive_matmul\n---\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "memory"))


def read(folder: Path, text: str, name: str = "k.md") -> Path:
    kernels = folder / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (kernels / name).write_text(text, "utf-8")
    return kernels


def test_all_that_stood_there_is_in_the_database(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    memory = Memory(folder)
    found = {m.key.name: m.model_dump(mode="json") for m in memory.kernels()}
    assert found == {m["key"]["name"]: m for m in expected["kernels"]}
    assert [p.model_dump(mode="json") for p in memory.patterns()] == expected["patterns"]
    assert not memory.file.exists(), "reading makes nothing"
    memory.note(KEY, "mine")
    assert memory.file.exists()
    expected["kernels"][0]["notes"] = "mine\n" + expected["kernels"][0]["notes"]
    found = {m.key.name: m.model_dump(mode="json") for m in memory.kernels()}
    assert found == {m["key"]["name"]: m for m in expected["kernels"]}


def test_it_happens_once_and_the_files_stay(folder: Path) -> None:
    before = {p: p.read_bytes() for p in (folder / "kernels").iterdir()}
    memory = Memory(folder)
    memory.record(KEY, entry(99))
    count = sum(len(m.entries) for m in memory.kernels())
    assert len(memory.kernels()) == 3
    assert memory.forget(KEY) == 1
    read(folder, HEAD + LINE, "later.md")
    assert len(memory.kernels()) == 2
    assert sum(len(m.entries) for m in memory.kernels()) < count
    assert {p: p.read_bytes() for p in before} == before


def test_one_that_cannot_be_read_stops_the_import_and_nothing_is_lost(folder: Path) -> None:
    kernels = (folder / "kernels").rename(folder / "aside")
    (folder / "kernels").write_text("a file in its place")
    with pytest.raises(EnvironmentFailure, match="Not a directory"):
        Memory(folder).kernels()
    (folder / "kernels").unlink()
    kernels.rename(folder / "kernels")
    assert len(Memory(folder).kernels()) == 3


def test_a_line_as_it_was_documented(tmp_path: Path) -> None:
    (known,) = read_old_files(read(tmp_path, HEAD + "# naive_matmul on sm_86\n\n" + LINE + " \r\n"))
    assert known.key == KEY
    assert known.notes == ""
    assert known.entries == (entry(7, title="a | b", outcome="rejected", lesson="two\nlines"),)
    close = LINE.replace(" | ", "|")
    assert next(read_old_files(read(tmp_path, HEAD + close))).entries == known.entries


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" | rejected | ", " | fine | "),
        ("0.9x", "0.9"),
        ("0.9x", "fastx"),
        ("modelled", "guessed"),
        ("gate speedup", "gate speeding"),
        ("gate speedup", "-"),
        ("by llm", "llm"),
        ("| tiling |", "| til\\qing |"),
        ("lines", "lines \\"),
        ("lines", "lines | 1"),
        ("lines", "\\ud800"),
        ("lines", "\\U0fffffff"),
        (" | tiling ", ""),
        ("- 2026", "2026"),
        ("- 2026", "* 2026"),
    ],
)
def test_a_damaged_line_is_a_note(old: str, new: str, tmp_path: Path) -> None:
    damaged = LINE.replace(old, new, 1)
    assert damaged != LINE
    (known,) = read_old_files(read(tmp_path, HEAD + damaged))
    assert known.entries == ()
    assert known.notes == damaged


def test_whose_a_file_is(tmp_path: Path) -> None:
    body = "## Tried\n\n" + LINE + "\n"
    damaged = HEAD.replace("structure", "form")
    for text in (damaged + body, HEAD.replace("---\n", "", 1) + body, body, ""):
        kernels = read(tmp_path, text)
        assert list(read_old_files(kernels)) == [], "nobody can say what it is about"
        (kernels / "k.md").rename(kernels / "naive_matmul-0123456789abcdef-sm_86.md")
        (known,) = read_old_files(kernels)
        assert known.key == KEY
        assert len(known.entries) == ("Tried" in text)
        (kernels / "naive_matmul-0123456789abcdef-sm_86.md").unlink()
    (known,) = read_old_files(read(tmp_path, "\ufeff" + HEAD + body))
    assert known.key == KEY, "a byte order mark does no harm"


def test_bytes_that_are_no_text_are_a_note_with_replacements(tmp_path: Path) -> None:
    kernels = read(tmp_path, HEAD)
    with (kernels / "k.md").open("ab") as file:
        file.write(b"caf\xe9\r\n")
    assert next(read_old_files(kernels)).notes == "caf\ufffd"


def test_two_files_of_one_kernel_become_one(tmp_path: Path) -> None:
    for number, name in ((1, "b.md"), (7, "a.md")):
        read(tmp_path, HEAD + LINE.replace("lines", f"lines {number}") + f"\nnote {number}\n", name)
    known = Memory(tmp_path).recall(KEY)
    assert [e.lesson[-1] for e in known.entries] == ["7", "1"]
    assert known.notes == "note 1\nnote 7"


def test_other_things_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    kernels = read(tmp_path, HEAD + LINE)
    (kernels / "notes.txt").write_text("x")
    (kernels / "folder.md").mkdir()
    (kernels / "link.md").symlink_to(kernels / "nowhere.md")
    assert len(list(read_old_files(kernels))) == 1
