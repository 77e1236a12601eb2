"""What is known of one kernel on one class of device, and which of several results decides."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from cudaops.domain.base import Record
from cudaops.domain.execution import MEASURED
from cudaops.domain.judgement import GateName
from cudaops.domain.memory import KernelKey, MemoryEntry

Key = TypeVar("Key", bound=Hashable)

WRONG: frozenset[GateName] = frozenset(
    {
        "checker", "correctness_captured", "correctness_exact", "correctness_perturbed", "repeat",
        "timed_outputs", "unchanged_inputs", "whole_program",
    }
)  # fmt: skip
"""Gates that say that a rewrite computes something else. No earlier time outweighs that."""


class Avoided(Record):
    """Rejected candidates of one family that one gate stopped, in place of their entries."""

    subtype: str
    family: str
    gate: GateName | None = None
    measured: bool = False
    """Whether the times behind it were measured."""
    source_ids: tuple[str, ...]
    """`Rewrite.source_id` of each, oldest first."""
    lesson: str
    """Of the last one."""


class KernelMemory(Record):
    """Everything remembered of one kernel on one class of device."""

    key: KernelKey
    entries: tuple[MemoryEntry, ...] = ()
    """Oldest first; of those that compaction settled, only what paid."""
    avoided: tuple[Avoided, ...] = ()
    """Rejected ones that compaction put together; older than all `entries` that are not settled."""
    notes: str = ""
    """Whatever else stands in the file: the user's own words, or an entry that cannot be read."""

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        return not (self.entries or self.avoided or self.notes)


class Result(NamedTuple):
    """One rewrite's result as ranking and patterns see it."""

    subtype: str
    family: str
    source_id: str
    paid: bool
    """Accepted or provisional."""
    measured: bool
    gate: GateName | None
    lesson: str
    entry: MemoryEntry | None = None
    """None where compaction put it together with others."""

    @property
    def speedup(self) -> float | None:
        """Over the author's kernel; None where it is not known."""
        return self.entry.speedup if self.entry else None


def results(avoided: Iterable[Avoided], entries: Iterable[MemoryEntry]) -> Iterator[Result]:
    """Every result, oldest first. Stand-in times say nothing of any GPU and are left out."""
    for a in avoided:
        for source_id in a.source_ids:
            yield Result(a.subtype, a.family, source_id, False, a.measured, a.gate, a.lesson)
    for e in entries:
        if e.time_source != "standin":
            paid, measured = e.outcome != "rejected", e.time_source in MEASURED
            yield Result(e.subtype, e.family, e.source_id, paid, measured, e.gate, e.lesson, e)


def decided(found: Iterable[Result], by: Callable[[Result], Key]) -> dict[Key, Result]:
    """One result for each key, in the order in which the keys were first seen.

    A measured result outweighs one that is modelled or was never timed, whichever came first;
    among equals the later one decides, and over any earlier one that it computes something else.
    """
    kept: dict[Key, Result] = {}
    for result in found:
        key = by(result)
        earlier = kept.get(key)
        if earlier is None or result.measured >= earlier.measured or result.gate in WRONG:
            kept[key] = result
    return kept
