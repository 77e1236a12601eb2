"""A long memory made short: what stays, and that patterns do not notice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.memory import MemoryEntry
from cudaops.memory.compaction import KEPT, MOST, compacted, is_long
from cudaops.memory.document import (
    AVOID,
    PENDING,
    RESOLVED,
    TRIED,
    Document,
    new_document,
    read_document,
    with_entry,
)
from cudaops.memory.patterns import aggregate
from tests.memory.made import KEY, entry

_FEW = st.builds(
    entry,
    st.integers(1, 6),
    subtype=st.sampled_from(["dram_bandwidth", "stall_barrier"]),
    family=st.sampled_from(["tiling", "fusion"]),
    outcome=st.sampled_from(["accepted", "provisional", "rejected"]),
    gate=st.sampled_from([None, "speedup", "compile"]),
    time_source=st.sampled_from([None, "cuda_event", "modelled", "standin"]),
    speedup=st.none() | st.sampled_from([0.5, 1.3, 2.0, 7.5]),
)


def _document(entries: list[MemoryEntry]) -> Document:
    document = new_document(KEY)
    for made in entries:
        document = with_entry(document, made)
    return document


def _sections(document: Document) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in document.lines:
        if line.content is not None:
            found.setdefault(line.section, []).append(line.text)
    return found


@given(st.lists(_FEW, max_size=30), st.integers(0, 8), st.lists(_FEW, max_size=8))
def test_patterns_are_the_same_before_and_after(
    entries: list[MemoryEntry], keep: int, later: list[MemoryEntry]
) -> None:
    document = _document(entries)
    short = compacted(document, keep)
    assert aggregate([short.memory(KEY)]) == aggregate([document.memory(KEY)])
    assert short.whole == document.whole[max(0, len(entries) - keep) :]
    assert compacted(short, keep).data == short.data
    for made in later:
        document, short = with_entry(document, made), with_entry(short, made)
    again = compacted(short, keep)
    assert aggregate([again.memory(KEY)]) == aggregate([document.memory(KEY)])


def test_what_paid_is_kept_best_first_and_what_did_not_is_counted() -> None:
    old = [
        entry(1, outcome="accepted", speedup=1.5, time_source="cuda_event"),
        entry(2, outcome="accepted", speedup=4.0, time_source="cuda_event"),
        entry(3, speedup=3.0),
        entry(4, outcome="rejected", lesson="slower"),
        entry(5, outcome="rejected", lesson="still slower"),
        entry(5, outcome="rejected", lesson="slower than ever"),
        entry(6, outcome="rejected", gate="compile", family="fusion"),
    ]
    short = compacted(_document([*old, entry(7)]), keep=1)
    found = _sections(short)
    assert list(found) == [RESOLVED, PENDING, AVOID, TRIED]
    assert [line.split(" | ")[2] for line in found[RESOLVED]] == [
        "4.0x cuda_event", "1.5x cuda_event"
    ]  # fmt: skip
    assert len(found[PENDING]) == 1
    assert found[AVOID] == [
        (
            "- avoid 1x | l1_load_throughput | fusion | gate compile | unmeasured"
            " | sources 000000000006 | lesson 6"
        ),
        (
            "- avoid 2x | l1_load_throughput | tiling | gate speedup | unmeasured"
            " | sources 000000000004 000000000005 | slower than ever"
        ),
    ]
    assert len(found[TRIED]) == 1


def test_what_was_confirmed_moves_from_pending_to_resolved() -> None:
    first = compacted(_document([entry(1), entry(2)]), keep=0)
    assert list(_sections(first)) == [PENDING]
    confirmed = entry(1, outcome="accepted", speedup=1.9, time_source="cuda_event")
    refuted = entry(2, outcome="rejected", time_source="cuda_event")
    second = compacted(with_entry(with_entry(first, confirmed), refuted), keep=0)
    assert second.entries == (confirmed,)
    assert [group.source_ids for group in second.avoided] == [(entry(2).source_id,)]
    assert second.avoided[0].measured


def test_the_users_lines_stay_where_they_are() -> None:
    document = _document([entry(n, outcome="rejected") for n in range(1, 5)])
    text = document.data.decode().replace("## Tried", "mine\n\n## Tried") + "the end"
    text = text.replace(" | tiling number 3 | ", " tiling number 3 ")
    short = compacted(read_document(text.encode()), keep=1)
    own = [line for line in short.notes.splitlines() if line]
    assert own[0] == "mine"
    assert "tiling number 3" in own[1], "a damaged entry is the user's and is not compacted away"
    assert own[2:] == ["the end"]
    assert short.data.startswith(text[: text.index("mine")].encode())


def test_it_is_time_beyond_the_limit_and_not_before() -> None:
    document = _document([entry(n, outcome="rejected") for n in range(1, MOST + 1)])
    assert not is_long(document)
    document = with_entry(document, entry(99))
    assert is_long(document)
    short = compacted(document)
    assert len(short.whole) == KEPT
    assert not is_long(short)
