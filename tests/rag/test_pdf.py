"""PDFs: text by page and outline; what is broken, too much or only pictures is refused."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.rag.documents import read_documents

PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R"
    b" /Resources << /Font << /F 5 0 R >> >> >>"
)
OUTLINE = """<< /Type /Outlines /First 7 0 R /Last 7 0 R /Count 1 >>"""
ENTRY = """<< /Title (Zebra stripes) /Parent 6 0 R /Dest [3 0 R /Fit] >>"""


def pdf(content: bytes, *, length: int | None = None) -> bytes:
    """One page with a compressed content stream, under one entry of an outline."""
    packed = zlib.compress(content, 9)
    stream = b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % (length or len(packed))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /Outlines 6 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        PAGE,
        stream + packed + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        OUTLINE.encode(),
        ENTRY.encode(),
    ]
    made, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        made
        + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
        + table
        + b"trailer << /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF"
        % (len(objects) + 1, len(made))
    )


def shown(text: str) -> bytes:
    return b"BT /F 12 Tf 50 700 Td (%b) Tj ET" % text.encode()


def test_pages_stand_under_the_outline(tmp_path: Path) -> None:
    (tmp_path / "guide.pdf").write_bytes(pdf(shown("Alternate lanes of a warp.")))
    (note,) = read_documents(tmp_path).notes
    (chunk,) = note.chunks()
    assert chunk[:2] == ("Zebra stripes, page 1", "Alternate lanes of a warp.")
    assert note.sources == (f"{tmp_path.name}, guide.pdf",)


def test_a_broken_pdf_is_refused_by_name(tmp_path: Path) -> None:
    whole = pdf(shown("text"))
    for name, data in {
        "cut.pdf": whole[:40],
        "noise.pdf": b"%PDF-1.7\n" + bytes(range(256)),
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=rf"{name} (is no PDF|holds no text)"):
            read_documents(tmp_path / name)


def test_a_page_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf(b"0 0 m 10 10 l S"))
    with pytest.raises(InputError, match=r"scan.pdf holds no text"):
        read_documents(tmp_path / "scan.pdf")


def test_a_bomb_ends_the_reader_and_nothing_else(tmp_path: Path) -> None:
    """512 MiB of spaces in 0.5 MB."""
    packer = zlib.compressobj(9)
    block = bytes(2**24).replace(b"\0", b" ")
    stream = b"".join(packer.compress(block) for _ in range(32)) + packer.flush()
    made = pdf(b"x").replace(zlib.compress(b"x", 9), stream)
    made = made.replace(b"/Length %d" % len(zlib.compress(b"x", 9)), b"/Length %d" % len(stream))
    (tmp_path / "bomb.pdf").write_bytes(made)
    (tmp_path / "fine.md").write_text("# Fine\n\nText.\n")
    read = read_documents(tmp_path)
    assert [note.title for note in read.notes] == ["Fine"]
    assert read.skipped[0].startswith("bomb.pdf is no PDF that can be read")
