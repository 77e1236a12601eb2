"""Where time went: overlapping work counts once, and what no tool did is ours."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cudaops.executors.ledger import (
    LEDGER,
    Ledger,
    WorkInterval,
    seconds_by_tool,
    tool_of,
    union_seconds,
)
from cudaops.executors.process import run_bounded


def test_overlap_counts_once() -> None:
    work = [WorkInterval("nvcc", 0, 4), WorkInterval("nvcc", 3, 5), WorkInterval("ncu", 4, 6)]
    assert union_seconds(work) == 6
    assert seconds_by_tool(work, 10) == {"ncu": 2.0, "nvcc": 5.0, "cudaops itself": 4.0}


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), max_size=12))
def test_the_union_is_never_more_than_the_sum_or_less_than_the_longest(
    spans: list[tuple[float, float]],
) -> None:
    work = [WorkInterval("t", start, start + length) for start, length in spans]
    lengths = [i.end - i.start for i in work]
    assert max(lengths, default=0.0) - 1e-9 <= union_seconds(work) <= sum(lengths) + 1e-9


def test_only_what_came_after_is_told() -> None:
    ledger = Ledger()
    ledger.add("nvcc", 1.0, 3.0)
    ledger.add("ncu", 4.0, 6.0)
    assert ledger.since(3.5) == (WorkInterval("ncu", 4.0, 6.0),)
    assert ledger.since(2.0)[0] == WorkInterval("nvcc", 2.0, 3.0)


def test_a_child_is_noted_as_its_tool(tmp_path: Path) -> None:
    before = len(LEDGER.since(0.0))
    run_bounded(["true"], cwd=tmp_path, timeout_s=10, tool="program")
    assert [i.tool for i in LEDGER.since(0.0)[before:]] == ["program"]
    assert tool_of(["/usr/local/cuda/bin/nvcc", "-V"]) == "nvcc"
    assert tool_of(["something"]) == "other tools"
