"""Every built-in note is whole, sourced, and speaks of things that exist."""

from __future__ import annotations

import re

import pytest

from cudaops.cuda.metrics import METRICS
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.rag.notes import CHUNK_LIMIT, Note, builtin_notes

NOTES = builtin_notes()

METRIC = re.compile(
    r"\b(?:sm|smsp|l1tex|lts|dram|gpu|gpc|launch|derived|lrc)__[\w.]*\w|\bmemory_l\d\w+"
)

BOTTLENECK_HEADINGS = [
    "How to recognise it",
    "Why it happens",
    "What relieves it",
    "How to check that it worked",
    "What it costs, and when not to",
]

TECHNIQUE_HEADINGS = ["When to use it", "How it works", "What to watch", "What to expect", "Limits"]


def test_every_subtype_has_exactly_one_page() -> None:
    pages = sorted(s for note in NOTES if note.kind == "bottleneck" for s in note.subtypes)
    assert pages == sorted(SUBTYPES)


def test_ids_are_unique() -> None:
    assert len({note.id for note in NOTES}) == len(NOTES)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.id)
def test_note_is_whole(note: Note) -> None:
    assert set(note.subtypes) <= set(SUBTYPES)
    assert note.sources
    assert note.kind == "technique" or note.id.replace("-", "_") == note.subtypes[0]
    headings = re.findall(r"^## (.+)$", note.body, re.MULTILINE)
    assert headings == (BOTTLENECK_HEADINGS if note.kind == "bottleneck" else TECHNIQUE_HEADINGS)
    assert "```" in note.body
    assert 30 <= len(note.body.splitlines()) <= 90
    assert all(0 < len(chunk.body) <= CHUNK_LIMIT for chunk in note.chunks())


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.id)
def test_every_metric_named_exists(note: Note) -> None:
    named = set(METRIC.findall(note.body))
    assert not named - set(METRICS)
    assert named
