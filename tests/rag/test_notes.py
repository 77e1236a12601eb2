"""Front matter and chunks."""

from __future__ import annotations

import pytest

from cudaops.errors import InputError
from cudaops.rag.notes import CHUNK_CHARACTERS, CHUNK_LIMIT, Note, parse_note

FRONT = """---
id: a-note
title: A note: with a colon
kind: technique
subtypes: [fma_pipe, near_peak]
sources:
- A guide, "Section one"
- Another guide
---
"""


def note(body: str) -> Note:
    return parse_note(FRONT + body, origin="builtin", name="a.md")


def test_front_matter() -> None:
    read = note("Text.\n")
    assert (read.id, read.kind, read.title) == ("a-note", "technique", "A note: with a colon")
    assert read.subtypes == ("fma_pipe", "near_peak")
    assert read.sources == ('A guide, "Section one"', "Another guide")
    assert read.body == "Text.\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no front matter", "lacks id, title, kind, sources"),
        ("---\nid: x\ntitle: t\nkind: technique\n---\n", "lacks sources"),
        ("---\nid: x\ntitle: t\nkind: poem\nsources: [s]\n---\n", "kind must be one of"),
        ("---\nid: x\n%%%\n---\n", "a.md:3: front matter"),
    ],
)
def test_wrong_front_matter_names_file_and_fault(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"a\.md") as caught:
        parse_note(text, origin="builtin", name="a.md")
    assert says in str(caught.value)


def test_a_users_document_cannot_take_the_place_of_a_builtin_note() -> None:
    read = parse_note(FRONT + "Text.", origin="/x", name="a.md", otherwise_id="x-1/a.md")
    assert (read.id, read.kind) == ("x-1/a.md", "document")


def test_chunks_follow_headings_and_not_comments_in_code() -> None:
    body = "Before.\n\n## One\nFirst.\n\n```\n# not a heading\n\ncode\n```\n\n## Two\nSecond.\n"
    assert [(c.heading, c.body) for c in note(body).chunks()] == [
        ("A note: with a colon", "Before."),
        ("One", "First.\n\n```\n# not a heading\n\ncode\n```"),
        ("Two", "Second."),
    ]


def test_chunks_are_bounded_and_lose_nothing() -> None:
    paragraphs = [f"p{i} " + "word " * 150 for i in range(20)]
    monster = "x" * (3 * CHUNK_LIMIT)
    chunks = note("\n\n".join([*paragraphs, monster])).chunks()
    assert all(len(c.body) <= CHUNK_LIMIT for c in chunks)
    assert sum(len(c.body) <= CHUNK_CHARACTERS for c in chunks) >= len(chunks) - 3
    together = "".join(c.body for c in chunks)
    assert together.count("x") >= len(monster)
    assert all(f"p{i} " in together for i in range(20))


def test_hash_changes_with_text_and_with_front_matter() -> None:
    one = note("Text.")
    assert one.sha256 == note("Text.").sha256
    assert len({one.sha256, note("Other.").sha256, one._replace(tags=("new",)).sha256}) == 3
