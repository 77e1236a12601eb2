"""A memory file: what cudaops reads in it, and that everything else stays byte for byte."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cudaops.memory.document import (
    AVOID,
    INTRODUCTION,
    NOTES,
    PENDING,
    RESOLVED,
    TRIED,
    in_section,
    new_document,
    read_document,
    renamed,
    with_entry,
)
from cudaops.memory.lines import entry_line
from tests.memory.made import KEY, entry

_PIECES = st.lists(
    st.binary(max_size=12)
    | st.sampled_from(
        [
            b"---\n", b"name: k\n", b"## Tried\n", b"## Resolved\r\n", b"# title\n", b"\n", b"\r",
            b"my own words\n", b"- a | b\n", b"\xff\xfe\n", INTRODUCTION.encode() + b"\n",
            entry_line(entry(1)).encode() + b"\n", entry_line(entry(2)).encode() + b"\r\n",
        ]
    ),
    max_size=14,
)  # fmt: skip


@given(_PIECES, st.booleans())
@example([b"---\n", b"## Tried\n", b"---"], False)
def test_whatever_stands_in_a_file_stays_and_one_entry_is_added(
    pieces: list[bytes], fresh: bool
) -> None:
    data = (new_document(KEY).data if fresh else b"") + b"".join(pieces)
    before = read_document(data)
    assert before.data == data
    added = entry(9)
    after = with_entry(before, added)
    assert sorted(e.title for e in after.entries) == sorted(
        [*(e.title for e in before.entries), added.title]
    )
    assert [line for line in after.notes.splitlines() if line] == [
        line for line in before.notes.splitlines() if line
    ]
    rows = iter(after.data.split(b"\n"))
    assert all(row in rows for row in data.split(b"\n")), "every line is there, in its order"


def test_a_new_file_reads_as_its_key_and_nothing_else() -> None:
    document = new_document(KEY)
    assert document.key == KEY
    assert document.entries == ()
    assert document.notes == ""
    odd = KEY.model_copy(update={"name": "a\nb: |c ", "device_class": "sm_90a"})
    assert new_document(odd).key == odd


def test_entries_are_written_in_the_order_of_their_coming() -> None:
    document = new_document(KEY)
    for number in (1, 2, 3):
        document = with_entry(document, entry(number))
    assert [e.title[-1] for e in document.entries] == ["1", "2", "3"]
    assert document.notes == ""


def test_what_a_user_writes_anywhere_is_a_note() -> None:
    document = with_entry(new_document(KEY), entry(1))
    text = document.data.decode()
    text = text.replace("## Tried", "Shapes are always 1024.\n\n## Mine\n\nindeed\n\n## Tried")
    text += "the last line without an end"
    edited = with_entry(read_document(text.encode()), entry(2))
    assert (
        edited.notes
        == "Shapes are always 1024.\n\n## Mine\n\nindeed\n\nthe last line without an end"
    )
    assert [e.title[-1] for e in edited.entries] == ["1", "2"]
    assert edited.data.decode().startswith(text[: text.index("the last line")])


def test_a_damaged_entry_is_a_note_and_is_pointed_at() -> None:
    document = with_entry(with_entry(new_document(KEY), entry(1)), entry(2))
    damaged = document.data.replace(b"| provisional | 2.0x modelled | l1", b"| l1", 1)
    read = read_document(damaged)
    assert [e.title[-1] for e in read.entries] == ["2"]
    assert "tiling number 1" in read.notes
    ((number, line),) = read.suspicious
    assert damaged.decode().splitlines()[number - 1] == line


def test_bytes_that_are_no_text_are_a_note_with_replacements() -> None:
    document = read_document(new_document(KEY).data + b"caf\xe9\n")
    assert document.notes == "caf�"


def test_a_damaged_head_is_kept_and_gives_no_key() -> None:
    whole = new_document(KEY).data
    for damaged in (
        whole.replace(b"structure:", b"struct:"),
        whole.replace(b"---\n", b"", 1),
        whole.replace(b"device_class: sm_86\n", b""),
        whole.replace(b"---\n#", b"---\nwords\n#").replace(b"name: ", b"name "),
    ):
        document = read_document(damaged)
        assert document.key is None
        assert with_entry(document, entry()).entries == (entry(),)
    marked = read_document(b"\xef\xbb\xbf" + whole)
    assert marked.key == KEY, "a byte order mark does no harm"


def test_the_name_follows_the_kernel() -> None:
    document = with_entry(new_document(KEY), entry())
    after = renamed(document, "sgemm")
    key = after.key
    assert key is not None
    assert key.name == "sgemm"
    assert after.data == document.data.replace(b"name: naive_matmul", b"name: sgemm", 1)
    nameless = read_document(document.data.replace(b"name: naive_matmul\n", b""))
    assert renamed(nameless, "sgemm").header["name"] == "sgemm"
    assert renamed(document, "naive_matmul") is document


def test_sections_keep_their_order() -> None:
    document = new_document(KEY)
    for section in (PENDING, AVOID, NOTES, RESOLVED):
        document = in_section(document, section, [f"words of {section}"])
    headings = [line.text[3:] for line in document.lines if line.text.startswith("## ")]
    assert headings == [NOTES, RESOLVED, PENDING, AVOID, TRIED]
    again = in_section(document, NOTES, ["newer words"])
    assert again.data.decode().count("## Notes") == 1
    assert "## Notes\n\nnewer words\nwords of Notes\n" in again.data.decode()
