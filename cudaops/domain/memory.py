"""What earlier runs learnt, about one kernel and across kernels."""

from __future__ import annotations

from typing import Literal

from cudaops.domain.base import Record
from cudaops.domain.execution import TimeSource
from cudaops.domain.judgement import GateName


class KernelKey(Record):
    """Which kernel a memory is about: its structure and the class of device, not its file."""

    structure: str
    """16 hex digits over the kernel's and its device functions' tokens, names and layout aside."""
    device_class: str
    """`sm_86`."""
    name: str
    """The kernel's name where it was last seen; for people, no part of the key."""


class MemoryEntry(Record):
    """One candidate that was judged in some run."""

    date: str
    """UTC, ISO 8601, to the second."""
    run_id: str
    subtype: str
    """Of the verdict that it was to relieve."""
    family: str
    """`cudaops.domain.hypothesis.Family`."""
    title: str
    proposer: str
    outcome: Literal["accepted", "provisional", "rejected"]
    speedup: float | None
    """Over the author's kernel; None where no time was measured."""
    time_source: TimeSource | None = None
    source_id: str
    """`Rewrite.source_id`."""
    gate: GateName | None = None
    """Gate that stopped it; None where none did."""
    lesson: str
    """One line."""


class Pattern(Record):
    """What one family of strategies brought against one subtype, over all kernels."""

    subtype: str
    family: str
    device_class: str
    tried: int
    paid: int
    """Accepted or provisional."""
    best_speedup: float | None
    median_speedup: float | None
    """Of those that paid; with `best_speedup` of the measured ones alone where there is any."""
    measured: int = 0
    """Of those that paid, how many by a measured time."""
