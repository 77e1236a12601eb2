"""The nineteen expert notes: whole, small, and of one shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaops.cuda.metrics import METRICS
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.errors import InputError
from cudaops.prompts.expert_notes import (
    MOST_FIRED,
    TRIGGERS,
    ExpertNote,
    all_notes,
    catalogue,
    read_note,
)
from cudaops.prompts.prompt import count_tokens
from tests.prompts.expert_document import DIFFERS, expert_notes_page

ROOT = Path(__file__).parents[2]
NOTES = all_notes()

NAMES = [
    "severe_memory_bound", "near_peak_compute", "huge_dram_traffic", "low_occupancy",
    "register_limited", "low_waves_per_sm", "high_waves_per_sm", "poor_coalescing", "low_l1_hit",
    "low_l2_hit", "smem_bank_conflicts", "stall_long_scoreboard", "stall_short_scoreboard",
    "stall_mio_throttle", "stall_math_pipe", "stall_barrier", "stall_wait", "stall_membar",
    "low_ipc",
]  # fmt: skip
"""In the order of the list that the notes follow."""

every_note = pytest.mark.parametrize("note", NOTES, ids=lambda note: note.id)


def ids(notes: tuple[ExpertNote, ...]) -> list[str]:
    return [note.id for note in notes]


def test_all_nineteen_are_there_in_order() -> None:
    assert ids(NOTES) == NAMES == list(TRIGGERS)
    folder = ROOT / "cudaops" / "prompts" / "expert"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.md" for n in NAMES)


@every_note
def test_structure_is_the_same(note: ExpertNote) -> None:
    headings = re.findall(r"^\*\*([^*]+)\*\*", note.text, re.MULTILINE)
    assert headings == ["Signal", "Root causes", "Fixes", "Anti-patterns"]
    assert note.text.startswith("**Signal** ")
    _, causes, fixes, anti = re.split(r"^\*\*[^*]+\*\*", note.text, flags=re.MULTILINE)[1:]
    for part in (causes, fixes):
        numbers = [int(n) for n in re.findall(r"^(\d)\. ", part, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 2
    assert "\nCheck: " in fixes
    assert all(line.startswith("- ") for line in anti.strip().splitlines())
    assert len(anti.strip().splitlines()) >= 1
    assert re.fullmatch(r"[ -~\n]+", note.text), "plain characters only"


@every_note
def test_size_is_bounded(note: ExpertNote) -> None:
    assert 150 <= count_tokens(note.text) <= 320
    assert max(map(len, note.signal.splitlines())) <= 130


def test_catalogue_and_the_longest_notes_leave_room_in_a_prompt() -> None:
    assert catalogue().split(", ") == list(NAMES)
    assert catalogue() == catalogue()
    assert count_tokens(catalogue()) < 200
    assert sum(sorted(count_tokens(note.text) for note in NOTES)[-MOST_FIRED:]) <= 1600


@every_note
def test_front_matter_says_what_the_triggers_say(note: ExpertNote) -> None:
    of_cues = {subtype for cue in TRIGGERS[note.id] for subtype in cue.subtypes}
    assert set(note.subtypes) == of_cues <= set(SUBTYPES)
    assert note.title
    assert note.sources
    assert all(len(source) > 10 for source in note.sources)


@every_note
def test_numbers_of_the_signal_are_thresholds(note: ExpertNote) -> None:
    allowed = {condition.threshold for cue in TRIGGERS[note.id] for condition in cue.conditions}
    for rule in RULES:
        if rule.subtype in note.subtypes:
            allowed |= {condition.threshold for condition in rule.conditions}
    if note.id == "poor_coalescing":
        allowed.add(32.0)  # bytes of a sector
    assert {float(n) for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", note.signal)} <= allowed


@every_note
def test_nothing_is_advised_that_a_rewrite_cannot_hold(note: ExpertNote) -> None:
    host = r"\bcuda[A-Z]\w+|<<<|\basm\b|cuBLAS|CUB|CUTLASS|Thrust|maxrregcount|cp\.async|nvcc"
    assert not re.search(host, note.text)


@every_note
def test_every_metric_and_every_note_that_a_text_names_exists(note: ExpertNote) -> None:
    assert set(re.findall(r"\b(?:sm|smsp|l1tex|lts|dram|gpu)__[\w.]+", note.text)) <= set(METRICS)
    kin = r"\b(?:stall|low|high|huge|near|poor|severe|register)_[a-z0-9_]+"
    assert set(re.findall(kin, note.text)) <= set(NAMES)


def test_the_page_is_current_and_compares_every_note() -> None:
    written = (ROOT / "docs" / "expert-notes.md").read_text("utf-8")
    assert written == expert_notes_page(), "python -m tests.prompts.expert_document"
    assert set(DIFFERS) == set(NAMES)


def test_a_note_is_read_by_its_id_and_an_unknown_one_names_the_nearest() -> None:
    assert read_note("stall_wait").title == "Fixed latency of dependent instructions"
    with pytest.raises(InputError, match=r"`stall-wait`; nearest: stall_wait, ") as caught:
        read_note("stall-wait")
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(InputError, match="nearest: "):
        read_note("")
