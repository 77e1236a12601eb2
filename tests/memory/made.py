"""Entries as runs write them, and strategies that make any entry there can be."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from cudaops.domain.execution import TimeSource
from cudaops.domain.judgement import GateName
from cudaops.domain.memory import KernelKey, MemoryEntry

KEY = KernelKey(structure="0123456789abcdef", device_class="sm_86", name="naive_matmul")


def entry(number: int = 1, **changed: Any) -> MemoryEntry:
    """A provisional result of a rewrite of its own."""
    values: dict[str, Any] = {
        "date": f"2026-11-20T08:00:{number % 60:02d}Z",
        "run_id": "naive_matmul/20261120T080000Z",
        "subtype": "l1_load_throughput",
        "family": "tiling",
        "title": f"tiling number {number}",
        "proposer": "llm:nvidia/nemotron",
        "outcome": "provisional",
        "speedup": 2.0,
        "time_source": "modelled",
        "source_id": f"{number:012x}",
        "lesson": f"lesson {number}",
    }
    if changed.get("outcome") == "rejected":
        values |= {"gate": "speedup", "speedup": 0.9}
    return MemoryEntry(**values | changed)


def any_entry(text: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[MemoryEntry]:
    """Entries with anything in their fields; `text` for those that are free text."""
    text = st.text(max_size=30) if text is None else text
    return st.builds(
        MemoryEntry,
        date=text,
        run_id=text,
        subtype=text,
        family=text,
        title=text,
        proposer=text,
        outcome=st.sampled_from(["accepted", "provisional", "rejected"]),
        speedup=st.none() | st.floats(allow_nan=False),
        time_source=st.none() | st.sampled_from(get_args(TimeSource)),
        source_id=text,
        gate=st.none() | st.sampled_from(get_args(GateName)),
        lesson=text,
    )
