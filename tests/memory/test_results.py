"""A long memory put together: what stays, and that patterns do not notice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.memory import MemoryEntry
from cudaops.memory.results import KEPT, MOST, KernelMemory, aggregate, put_together
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


def known(*entries: MemoryEntry) -> KernelMemory:
    return KernelMemory(key=KEY, entries=entries)


@given(st.lists(_FEW, max_size=30), st.integers(0, 8), st.lists(_FEW, max_size=8))
def test_patterns_are_the_same_before_and_after(
    entries: list[MemoryEntry], keep: int, later: list[MemoryEntry]
) -> None:
    long = known(*entries)
    short = put_together(long, keep)
    assert aggregate([short]) == aggregate([long])
    assert short.entries[max(0, len(short.entries) - keep) :] == tuple(
        entries[max(0, len(entries) - keep) :]
    )
    both = known(*entries, *later)
    again = put_together(short.model_copy(update={"entries": (*short.entries, *later)}), keep)
    assert aggregate([again]) == aggregate([both]) == aggregate([put_together(both, keep)])


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
    short = put_together(known(*old, entry(7)), keep=1)
    assert [(e.outcome, e.speedup) for e in short.entries] == [
        ("accepted", 4.0), ("accepted", 1.5), ("provisional", 3.0), ("provisional", 2.0)
    ]  # fmt: skip
    fusion, tiling = short.avoided
    assert (fusion.family, fusion.gate, fusion.lesson) == ("fusion", "compile", "lesson 6")
    assert (tiling.gate, tiling.measured, tiling.lesson) == ("speedup", False, "slower than ever")
    assert tiling.source_ids == ("000000000004", "000000000005")


def test_what_was_confirmed_or_refuted_is_pending_no_more() -> None:
    confirmed = entry(1, outcome="accepted", speedup=1.9, time_source="cuda_event")
    refuted = entry(2, outcome="rejected", time_source="cuda_event")
    first = put_together(known(entry(1), entry(2)), keep=0)
    assert first.entries == (entry(1), entry(2))
    assert first.avoided == ()
    second = put_together(known(entry(1), entry(2), confirmed, refuted), keep=0)
    assert second.entries == (confirmed,)
    assert [group.source_ids for group in second.avoided] == [(entry(2).source_id,)]
    assert second.avoided[0].measured


def test_it_is_time_beyond_the_limit_and_not_before() -> None:
    entries = [entry(n, outcome="rejected") for n in range(MOST + 1)]
    assert put_together(known(*entries[1:])) == known(*entries[1:])
    short = put_together(known(*entries))
    assert short.entries == tuple(entries[-KEPT:])
    assert len(short.avoided[0].source_ids) == MOST + 1 - KEPT
