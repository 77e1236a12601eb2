"""A line of a memory file gives back every field as it went in, or counts as the user's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.memory import MemoryEntry
from cudaops.memory.lines import (
    avoided_line,
    entry_line,
    escaped,
    meant_as_ours,
    read_avoided,
    read_entry,
    unescaped,
)
from cudaops.memory.records import Avoided
from tests.memory.made import any_entry, entry

AWKWARD = st.text(alphabet="ab |\\\n\r\t\x00\x1b\u2028\u00a0- x", max_size=12)


@given(any_entry() | any_entry(AWKWARD))
def test_an_entry_comes_back_whole_from_one_printable_line(made: MemoryEntry) -> None:
    line = entry_line(made)
    assert line.isprintable()
    assert read_entry(line) == made
    assert read_entry(line.rstrip()) == made, "editors strip spaces at the end of a line"
    assert read_avoided(line) is None


@given(st.text(max_size=20) | AWKWARD)
def test_any_text_comes_back_from_a_field(text: str) -> None:
    field = escaped(text)
    assert field.isprintable()
    assert field == field.strip()
    assert unescaped(field) == text


def test_half_a_surrogate_pair_is_replaced_because_no_file_can_hold_it() -> None:
    assert unescaped(escaped("a\ud800")) == "a\ufffd"


@given(
    st.builds(
        Avoided,
        subtype=AWKWARD,
        family=AWKWARD,
        gate=st.sampled_from([None, "speedup", "compile"]),
        measured=st.booleans(),
        source_ids=st.lists(AWKWARD.filter(bool), max_size=4).map(tuple),
        lesson=AWKWARD,
    )
)
def test_a_group_comes_back_whole(group: Avoided) -> None:
    line = avoided_line(group)
    assert line.isprintable()
    assert read_avoided(line) == group
    assert read_entry(line) is None


def test_the_form_is_the_documented_one() -> None:
    made = entry(7, title="a | b", outcome="rejected", lesson="two\nlines")
    assert entry_line(made) == (
        "- 2026-11-20T08:00:07Z | rejected | 0.9x modelled | l1_load_throughput | tiling"
        r" | a \| b | by llm:nvidia/nemotron | run naive_matmul/20261120T080000Z"
        r" | source 000000000007 | gate speedup | two\nlines"
    )
    never_timed = entry(speedup=None, time_source=None)
    assert "| untimed |" in entry_line(never_timed)
    assert read_entry(entry_line(never_timed)) == never_timed


def test_spaces_that_a_person_adds_or_takes_do_not_matter() -> None:
    made = entry()
    line = entry_line(made)
    assert read_entry(line.replace(" | ", "|")) == made
    assert read_entry(line.replace(" | ", "   |  ")) == made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" | provisional | ", " | fine | "),
        ("2.0x", "2.0"),
        ("2.0x", "fastx"),
        ("modelled", "guessed"),
        ("gate -", "gate speeding"),
        ("gate -", "-"),
        ("by llm", "llm"),
        ("| tiling |", "| til\\qing |"),
        ("lesson 1", "lesson \\"),
        ("lesson 1", "lesson | 1"),
        ("lesson 1", "\\ud800"),
        ("lesson 1", "\\U0fffffff"),
        (" | tiling ", ""),
        ("- 2026", "2026"),
        ("- 2026", "* 2026"),
    ],
)
def test_a_damaged_line_is_none_of_ours(old: str, new: str) -> None:
    line = entry_line(entry())
    damaged = line.replace(old, new, 1)
    assert damaged != line
    assert read_entry(damaged) is None


@given(st.text(max_size=60) | AWKWARD.map(lambda text: f"- {text}"))
def test_no_text_is_too_odd_to_be_looked_at(text: str) -> None:
    line = text.replace("\n", " ")
    assert read_entry(line) is None
    read_avoided(line)
    meant_as_ours(line)
