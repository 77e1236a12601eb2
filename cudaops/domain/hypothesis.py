"""Hypothesis: what a planner thinks would help, before anybody has written it."""

from __future__ import annotations

from typing import Literal, get_args

from cudaops.domain.base import Record

Family = Literal[
    "tiling", "coalescing", "vector_loads", "launch_geometry", "occupancy", "unrolling",
    "async_copy", "reduction", "split_work", "fusion", "tensor_cores", "algorithm", "other",
]  # fmt: skip
"""Strategies that a search keeps apart. tiling: reuse in shared memory or registers. coalescing:
another order of accesses. split_work: one result from several blocks. fusion: fewer passes over
memory. algorithm: fewer operations."""

FAMILIES: tuple[Family, ...] = get_args(Family)


class Hypothesis(Record):
    """One thing to try."""

    family: Family
    title: str
    """A few words: `register tiling with vector loads`."""
    why: str
    """The reason, in terms of the verdict's evidence."""
    steps: tuple[str, ...] = ()
    """What the coder is to do, in order."""
    transformation: str = ""
    """Name of a transformation of cudaops that does it; empty where a coder is to write."""
    expected_speedup: float | None = None
    """The planner's guess, baseline time over candidate time; decides nothing."""
