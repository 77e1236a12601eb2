"""What a user adds: documents in, everything else refused with the file's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.notes import MAX_FILE_BYTES, read_documents


@pytest.fixture
def mine(database_url: str, embedder: WordLlamaEmbedder) -> Iterator[Knowledge]:
    opened = Knowledge.open(database_url=database_url, data_folder=None, embedder=embedder)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "zebra.md").write_text(
        "# Zebra kernels\n\n## Stripes\nZebra stripes alternate lanes.\n"
    )
    (tmp_path / "plain.txt").write_text("Quagga notes on warp specialisation.\n")
    (tmp_path / "kernel.cu").write_text("__global__ void okapi(float* x) { x[0] = 1.0f; }\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "secret.md").write_text("no")
    return tmp_path


def test_a_folder_is_found_again(mine: Knowledge, folder: Path) -> None:
    report = mine.add(folder)
    assert (report.written, report.removed, report.unchanged) == (3, 0, 0)
    assert report.embedded_chunks == 3
    assert mine.search("zebra stripes", 1)[0].heading == "Stripes"
    assert mine.search("quagga", 1)[0].note.endswith("/plain.txt")
    found = mine.search("okapi", 1)[0]
    assert mine.read(found.note).kind == "document"
    assert mine.status().origins[str(folder)] == 3


def test_adding_again_replaces(mine: Knowledge, folder: Path) -> None:
    mine.add(folder)
    (folder / "plain.txt").unlink()
    (folder / "kernel.cu").write_text("__global__ void tapir(float* x) {}\n")
    report = mine.add(folder)
    assert (report.unchanged, report.written, report.removed) == (1, 1, 1)
    assert "tapir" in mine.search("tapir", 1)[0].text
    assert len(mine.status().origins) == 2


def test_one_file(mine: Knowledge, folder: Path) -> None:
    assert mine.add(folder / "plain.txt").written == 1


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "link.md").symlink_to("/etc/hostname")
    (folder / "loop").symlink_to(folder)
    assert len(read_documents(folder)[1]) == 3


def test_ids_of_folders_with_one_name_differ(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "notes").mkdir(parents=True)
        (tmp_path / parent / "notes" / "x.txt").write_text("text")
    ids = {read_documents(tmp_path / parent / "notes")[1][0].id for parent in ("a", "b")}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("big.txt", b"x" * (MAX_FILE_BYTES + 1), "larger than 1024 KiB"),
        ("latin.txt", "Größe".encode("latin-1"), "not UTF-8 text"),
        ("binary.cu", b"a\0b", "zero byte"),
        ("empty.md", b"\n", "holds no text"),
        ("data.csv", b"1,2", "not a document"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=name) as caught:
        read_documents(tmp_path / name)
    assert says in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_documents(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no \.md"):
        read_documents(tmp_path)


def test_a_bad_file_leaves_the_knowledge_as_it_was(mine: Knowledge, folder: Path) -> None:
    mine.add(folder)
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bad\.txt"):
        mine.add(folder)
    assert mine.status().origins[str(folder)] == 3


def test_an_unknown_note(mine: Knowledge) -> None:
    with pytest.raises(InputError, match="no note 'nope'"):
        mine.read("nope")
