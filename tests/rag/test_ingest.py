"""What a user adds: documents in, everything else refused with the file's name."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.rag.documents import MAX_FILE_BYTES, read_documents
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge


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
    assert len(read_documents(folder).notes) == 3


def test_ids_of_folders_with_one_name_differ(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "notes").mkdir(parents=True)
        (tmp_path / parent / "notes" / "x.txt").write_text("text")
    ids = {read_documents(tmp_path / parent / "notes").notes[0].id for parent in ("a", "b")}
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
    with pytest.raises(InputError, match=r"holds no document"):
        read_documents(tmp_path)


def test_a_bad_file_is_skipped_and_said(mine: Knowledge, folder: Path) -> None:
    mine.add(folder)
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    report = mine.add(folder)
    assert report.unchanged == 3
    assert report.skipped == ("bad.txt is not UTF-8 text (byte 0): convert it first",)


PRODUCTION = """#include <cuda.h>
namespace lib {
// Root mean square norm of a row: a warp a row.
template <int N>
__global__ void __launch_bounds__(256) rms_norm_rows(const float* x, float* y) {
    if (x[0] > 0) { y[0] = "}"[0]; }
}
struct Params { int n; };
inline __device__ float halve(float v) { return 0.5f * v; }
}  // namespace lib
"""


def test_code_is_cut_by_function_and_kernel(tmp_path: Path) -> None:
    (tmp_path / "norm.cuh").write_text(PRODUCTION)
    (tmp_path / "mod.py").write_text("import x\n\n# Adds.\ndef add(a):\n    return a\n")
    norm, mod = (read_documents(tmp_path).notes[i].chunks() for i in (1, 0))
    by_heading = {chunk.heading: chunk.body for chunk in (*norm, *mod)}
    assert "mean square" in by_heading["kernel rms_norm_rows (rms norm rows)"]
    assert by_heading["kernel rms_norm_rows (rms norm rows)"].endswith("}\n```")
    assert "halve" in by_heading["device function halve"]
    assert "struct Params" not in by_heading["device function halve"]
    assert "# Adds." in by_heading["add"]


def test_pages_and_restructured_text_have_sections(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<html><script>var x = 1;</script><h2>Tiles</h2><p>Load &amp; wait.</p><pre>a\n b</pre>"
    )
    (tmp_path / "b.rst").write_text("Warps\n=====\n\nThirty-two lanes.\n")
    html, rst = (note.chunks() for note in read_documents(tmp_path).notes)
    assert [(c.heading, c.body) for c in html] == [("Tiles", "Load & wait.\n\n```\na\n b\n```")]
    assert [(c.heading, c.body) for c in rst] == [("Warps", "Thirty-two lanes.")]


def test_a_production_kernel_is_cited_for_a_verdict(mine: Knowledge, tmp_path: Path) -> None:
    source = tmp_path / "flashinfer"
    source.mkdir()
    (source / "norm.cuh").write_text(PRODUCTION)
    mine.add(source)
    (added,) = (each for each in mine.sources() if each.origin == str(source))
    assert (added.kind, added.weight, added.notes) == ("flashinfer", 1.0, 1)
    found = mine.search("dram bandwidth. Kernel: rms_norm_rows", 5, "dram_bandwidth")
    assert found[0].note == "dram-bandwidth"
    assert "kernel rms_norm_rows (rms norm rows)" in [citation.heading for citation in found[:3]]
    assert mine.remove(str(source)) == 1
    assert all("rms_norm" not in c.heading for c in mine.search("rms_norm_rows", 5))
    with pytest.raises(InputError, match="nothing was added"):
        mine.remove(str(source))


def zipped(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, entries: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(("pack", "name"), [(zipped, "vllm-1.0.whl"), (tarred, "vllm.tar.gz")])
def test_archives_are_opened(
    pack: Callable[[Path, dict[str, bytes]], Path], name: str, tmp_path: Path
) -> None:
    made = pack(tmp_path / name, {"a/k.cu": PRODUCTION.encode(), "a/x.bin": b"x", "b.md": b"# B"})
    found = read_documents(made)
    assert [note.title for note in found.notes] == ["a/k.cu", "B"]
    assert {note.source for note in found.notes} == {"vllm"}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_hostile_archives_are_refused_by_name(
    pack: Callable[[Path, dict[str, bytes]], Path], tmp_path: Path
) -> None:
    name = "evil.zip" if pack is zipped else "evil.tar.gz"
    for entry in ("../out.md", "/etc/out.md"):
        with pytest.raises(InputError, match=r"evil.*leads out of it"):
            read_documents(pack(tmp_path / name, {entry: b"x"}))
    bomb = pack(tmp_path / name, {f"{i}.md": bytes(2**20) for i in range(220)})
    with pytest.raises(InputError, match=r"evil.*unpacked"):
        read_documents(bomb)
    (tmp_path / name).write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"evil.*no archive"):
        read_documents(tmp_path / name)


def test_an_unknown_note(mine: Knowledge) -> None:
    with pytest.raises(InputError, match="no note 'nope'"):
        mine.read("nope")
