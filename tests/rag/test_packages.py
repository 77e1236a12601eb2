"""Packages of an index as sources: real pip, a local index over HTTP."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.rag.documents import read_documents
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.packages import RECOMMENDED, downloaded, is_package, origin_of

METADATA = "Metadata-Version: 2.1\nName: cutlass-zebra\nVersion: {}\nLicense: BSD-3-Clause\n"
KERNEL = "// Stripes.\n__global__ void zebraGemmKernel(float* x) {{ x[0] = {}; }}\n"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def wheel(folder: Path, version: str) -> None:
    made = folder / f"cutlass_zebra-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("zebra/include/gemm.cuh", KERNEL.format(version[0]))
        archive.writestr("zebra/generated/huge.cu", "// generated\n")
        archive.writestr("zebra/flashinfer/norm.cuh", KERNEL.format(7))
        info = f"cutlass_zebra-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", METADATA.format(version))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cutlass-zebra"
    folder.mkdir()
    wheel(folder, "1.0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield folder
    server.shutdown()
    server.server_close()


def test_a_package_is_added_replaced_and_removed(
    index: Path, database_url: str, embedder: WordLlamaEmbedder
) -> None:
    mine = Knowledge.open(database_url=database_url, data_folder=None, embedder=embedder)
    said: list[tuple[int, int]] = []
    first = mine.add("pypi:cutlass_zebra", progress=lambda *n: said.append(n))
    assert (first.origin, first.written, first.licence) == ("pypi:cutlass-zebra", 3, "BSD-3-Clause")
    assert said == [(first.embedded_chunks, first.embedded_chunks)]
    kinds = {each.kind: each for each in mine.sources() if each.origin == first.origin}
    assert {kind: each.notes for kind, each in kinds.items()} == {"cutlass": 2, "flashinfer": 1}
    assert {each.licence for each in kinds.values()} == {"BSD-3-Clause"}
    found = mine.search("zebra gemm kernel", 5, kind="cutlass")[0]
    assert found.heading == "kernel zebraGemmKernel (zebra gemm kernel)"
    assert found.source == (
        "cutlass_zebra-1.0-py3-none-any.whl, zebra/include/gemm.cuh (BSD-3-Clause)"
    )
    wheel(index, "2.0")
    again = mine.add("pypi:cutlass-zebra", only=("zebra/include/**",))
    assert (again.written, again.removed) == (1, 2)
    # Notes that answer come first; of three passages one shows how it is done.
    assert any("x[0] = 2" in found.text for found in mine.search("zebra gemm kernel", 3))
    assert mine.add("pypi:cutlass-zebra==1.0", only=("**/gemm.cuh",)).written == 1
    assert mine.remove("pypi:cutlass-zebra") == 1
    mine.close()


def test_what_pip_says_is_said(index: Path) -> None:
    with (
        pytest.raises(InputError, match=r"pypi:no-such-zebra cannot.*No matching distribution"),
        downloaded("pypi:no-such-zebra"),
    ):
        pass


@pytest.mark.parametrize("text", ["pypi:", "pypi:--index-url=x", "pypi:a b", "pypi:a @ file:///x"])
def test_only_a_name_is_a_name(text: str) -> None:
    assert is_package(text)
    with pytest.raises(InputError, match="names no package"):
        origin_of(text)


def test_a_source_distribution_is_never_built(index: Path) -> None:
    (index / "cutlass-zebra-9.0.tar.gz").write_bytes(b"a setup.py that must not run")
    with downloaded("pypi:cutlass-zebra") as got:
        assert got.name == "cutlass_zebra-1.0-py3-none-any.whl"


def test_globs_choose_a_part(index: Path) -> None:
    made = index / "cutlass_zebra-1.0-py3-none-any.whl"
    titles = [note.title for note in read_documents(made, only=("zebra/*/gemm.cuh",)).notes]
    assert titles == ["zebra/include/gemm.cuh"]
    with pytest.raises(InputError, match=r"no document under none/\*\*"):
        read_documents(made, only=("none/**",))
    assert all(each.only for each in RECOMMENDED)
