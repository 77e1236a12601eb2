"""Every built-in note is whole, sourced, and speaks of things that exist."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from benchmarks.knowledge import questions
from cudaops.cuda.architectures import ARCHITECTURES
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.rag.house import house_notes
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.notes import CHUNK_LIMIT, Note, builtin_notes

NOTES = builtin_notes()

ASKED = Path(str(files("cudaops.rag").joinpath("corpus", "asked.toml")))

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
    assert any(re.search(r"\w+\.\w+(/\S+)+", source) for source in note.sources)
    assert note.kind != "bottleneck" or note.id.replace("-", "_") == note.subtypes[0]
    if note.kind == "reference":
        return
    headings = re.findall(r"^## (.+)$", note.body, re.MULTILINE)
    assert headings == (BOTTLENECK_HEADINGS if note.kind == "bottleneck" else TECHNIQUE_HEADINGS)
    assert "```" in note.body
    assert 30 <= len(note.body.splitlines()) <= 90
    assert all(0 < len(chunk.body) <= CHUNK_LIMIT for chunk in note.chunks())


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.id)
def test_every_metric_named_exists(note: Note) -> None:
    named = set(METRIC.findall(note.body))
    assert not named - set(METRICS)
    assert named or note.kind == "reference"


@pytest.mark.parametrize(
    "note", [note for note in NOTES if note.kind == "reference"], ids=lambda note: note.id
)
def test_a_reference_answers_a_question_a_section(note: Note) -> None:
    """A section is one passage: what is cited stands by itself."""
    headings = re.findall(r"^## (.+)$", note.body, re.MULTILINE)
    assert 3 <= len(headings) == len(set(headings))
    assert [chunk.heading for chunk in note.chunks()] == headings
    assert len(note.body.splitlines()) <= 90


def test_what_people_ask_stands_at_sections_that_exist() -> None:
    for note in NOTES:
        assert set(note.asked) <= {chunk.heading for chunk in note.chunks()}, note.id
    assert sum(len(note.asked) for note in NOTES) >= 150
    assert set(tomllib.loads(ASKED.read_text("utf-8"))) <= {note.id for note in NOTES}


def test_what_people_ask_is_not_what_the_benchmark_asks() -> None:
    """No line is a question of it, nor all but in a word of ten."""
    lines = [
        set(words(line)) for note in NOTES for a in note.asked.values() for line in a.split("\n")
    ]
    for question in questions():
        asked = set(words(question.text))
        assert not any(len(asked & line) > 0.8 * len(asked | line) for line in lines), question.text


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def test_gains_name_transformations_and_results_that_exist() -> None:
    root = Path(__file__).parents[2]
    known = set(re.findall(r"^## (\w+)$", (root / "docs/transformations.md").read_text(), re.M))
    for line in ASKED.with_name("gains.tsv").read_text("utf-8").splitlines()[1:]:
        by, _, _, gpu, folder = line.split("\t")
        assert set(by.split(", ")) <= known
        assert gpu in (root / "benchmarks/results" / folder / "README.md").read_text()


def test_limits_of_an_sm_are_those_of_the_device_table() -> None:
    (note,) = (note for note in NOTES if note.id == "sm-limits")
    warps, _, shared, rates = (chunk.body for chunk in note.chunks())
    rows = [
        (capability, [int(cell) for cell in re.findall(r"(?<=\| )\d+(?= (?:\||$))", line)], table)
        for table in (warps, shared, rates)
        for line in table.splitlines()
        for capability in re.findall(r"\d+\.\d", line.split("|")[1] if line.startswith("|") else "")
    ]
    assert len(rows) == 7 + 7 + 6
    for capability, numbers, table in rows:
        major, minor = capability.split(".")
        sm = ARCHITECTURES[int(major), int(minor)]
        expected = {
            warps: [sm.max_warps_per_sm, sm.max_threads_per_sm, sm.max_blocks_per_sm],
            shared: [
                sm.l1_shared_bytes_per_sm >> 10,
                sm.shared_bytes_per_sm >> 10,
                sm.shared_bytes_per_block_optin >> 10,
            ],
            rates: [
                sm.fp32_lanes_per_sm, sm.int32_lanes_per_sm, sm.fp64_lanes_per_sm,
                sm.sfu_lanes_per_sm,
            ],
        }[table]  # fmt: skip
        assert numbers == expected, capability


def test_every_device_is_a_passage_with_its_numbers_and_source() -> None:
    note = house_notes()[0]
    for chunk, device in zip(note.chunks(), DEVICES.values(), strict=True):
        assert chunk.heading.startswith(f"{device.name}: ")
        assert f"{device.sm_count} SMs" in chunk.body
        assert f" {device.dram_bandwidth_gb_s:.0f} GB/s" in chunk.body
        assert chunk.body.endswith(f"Source: {device.source}")


@pytest.mark.parametrize(
    ("question", "note", "said"),
    [
        ("what does thread coarsening do to code", "transformations", "__global__"),
        ("shared memory per SM on sm_90", "architectures", "228 KB"),
        ("dram_bandwidth threshold", "rules", ">= 80"),
        ("@tune, @scratch and @requires directives", "launch-plans", "@scratch"),
        ("how many SMs does an L4 have", "devices", "58 SMs"),
        ("measured gain of atomics_private on bincount", "gains", "bincount: 43.8x, H100"),
    ],
)
def test_what_the_house_knows_is_found(
    knowledge: Knowledge, question: str, note: str, said: str
) -> None:
    first = knowledge.search(question)[0]
    assert first.note == note
    assert said in first.text
