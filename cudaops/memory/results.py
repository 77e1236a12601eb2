"""What is known of one kernel, which of several results decides, and what families brought.

Nothing here reads or writes: the rows come from `store`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from cudaops.domain.base import Record
from cudaops.domain.execution import MEASURED
from cudaops.domain.judgement import GateName
from cudaops.domain.memory import KernelKey, MemoryEntry, Pattern

Key = TypeVar("Key", bound=Hashable)

WRONG: frozenset[GateName] = frozenset(
    {
        "checker", "correctness_captured", "correctness_exact", "correctness_perturbed", "repeat",
        "timed_outputs", "unchanged_inputs", "whole_program", "correctness_domain",
    }
)  # fmt: skip
"""Gates that say that a rewrite computes something else. No earlier time outweighs that."""

KEPT = 12
"""Entries that stay whole, the newest: as many as a prompt shows of them (`MEMORY_TOKENS` at some
100 tokens a line), four runs of three candidates."""
MOST = 2 * KEPT
"""Entries beyond which the older ones are put together."""

PRIOR_SAVING = 0.5
"""Share of the time that a family is expected to save while nothing is known of it: as one that
doubles the speed. Weighs as one try. So high that a small success does not outrank what nobody has
tried yet: the recipes' own order is by what they usually gain."""
UNMEASURED_WEIGHT = 0.5
"""What a result counts for beside a measured one where its time was modelled."""
FOREIGN_WEIGHT = 0.5
"""What a result on another class of device counts for beside one on this class."""


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
    """Oldest first; before those, best first, what paid among those that were put together."""
    avoided: tuple[Avoided, ...] = ()
    """Rejected ones that were put together; older than all `entries` that stay whole."""
    notes: str = ""
    """The user's own words, the newest note first."""

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
    """None where it was put together with others."""

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


def put_together(memory: KernelMemory, keep: int | None = None) -> KernelMemory:
    """The same memory, short: all but the newest `keep` entries put together.

    Of the older ones stays what paid, one entry a rewrite, accepted ones first and best first; what
    was rejected is counted by verdict, family and gate, so that patterns come out the same. Without
    `keep`: KEPT where there are more than MOST, else all; never those without a date, of which
    nothing more was known when they were imported.
    """
    entries = memory.entries
    if keep is None:
        keep = KEPT if len(entries) > MOST else len(entries)
    first = max(len(entries) - keep, sum(not e.date for e in entries))
    old, whole = entries[:first], entries[first:]
    if not old:
        return memory
    last = decided(results(memory.avoided, old), _by_rewrite).values()
    paid = [r.entry for r in last if r.paid and r.entry is not None]
    paid.sort(key=lambda e: (e.outcome != "accepted", -(e.speedup or 0.0)))
    avoided = _counted(r for r in last if not r.paid)
    return memory.model_copy(update={"entries": (*paid, *whole), "avoided": avoided})


def aggregate(
    memories: Iterable[KernelMemory], subtype: str | None = None, device_class: str | None = None
) -> tuple[Pattern, ...]:
    """One pattern for each verdict subtype, family and class of device; most promising first.

    A rewrite counts once for each kernel and subtype, with the result that decides (`decided`).
    Speedups are of measured times alone where any that paid was measured.
    """
    found: dict[tuple[str, str, str], list[Result]] = {}
    for memory in memories:
        here = memory.key.device_class
        if device_class is not None and here != device_class:
            continue
        last = decided(results(memory.avoided, memory.entries), _by_rewrite)
        for result in last.values():
            if subtype is None or result.subtype == subtype:
                found.setdefault((result.subtype, result.family, here), []).append(result)
    patterns = [_pattern(*key, members) for key, members in found.items()]
    return tuple(sorted(patterns, key=_order))


def share_saved(speedup: float | None) -> float:
    """Share of the baseline's time that a speedup saves, 0 to 1; 0 where it saves none."""
    if speedup is None or not math.isfinite(speedup) or speedup <= 1.0:
        return 0.0
    return 1.0 - 1.0 / speedup


def expected_saving(patterns: Sequence[Pattern], device_class: str | None = None) -> float:
    """Share of the time, 0 to 1, that the next try of these patterns' family may save.

    The mean over tries, one imagined try of PRIOR_SAVING among them; without patterns that alone.
    Tries without a measured success and those on another class than `device_class` weigh less.
    """
    gained, weight = PRIOR_SAVING, 1.0
    for pattern in patterns:
        each = 1.0 if pattern.measured else UNMEASURED_WEIGHT
        if device_class is not None and pattern.device_class != device_class:
            each *= FOREIGN_WEIGHT
        gained += each * pattern.paid * share_saved(pattern.median_speedup)
        weight += each * pattern.tried
    return gained / weight


def _by_rewrite(result: Result) -> tuple[str, str, str]:
    return result.subtype, result.family, result.source_id


def _counted(rejected: Iterable[Result]) -> tuple[Avoided, ...]:
    """By verdict and family, the gate that stopped most first."""
    groups: dict[tuple[str, str, GateName | None, bool], list[Result]] = {}
    for r in rejected:
        groups.setdefault((r.subtype, r.family, r.gate, r.measured), []).append(r)
    ordered = sorted(groups.items(), key=lambda g: (*g[0][:2], -len(g[1]), str(g[0][2]), g[0][3]))
    return tuple(
        Avoided(
            subtype=subtype,
            family=family,
            gate=gate,
            measured=measured,
            source_ids=tuple(r.source_id for r in members),
            lesson=members[-1].lesson,
        )
        for (subtype, family, gate, measured), members in ordered
    )


def _pattern(subtype: str, family: str, device_class: str, found: Sequence[Result]) -> Pattern:
    paid = [r for r in found if r.paid]
    measured = [r for r in paid if r.measured]
    speedups = [
        r.speedup for r in measured or paid if r.speedup is not None and math.isfinite(r.speedup)
    ]
    return Pattern(
        subtype=subtype,
        family=family,
        device_class=device_class,
        tried=len(found),
        paid=len(paid),
        best_speedup=max(speedups, default=None),
        median_speedup=statistics.median(speedups) if speedups else None,
        measured=len(measured),
    )


def _order(pattern: Pattern) -> tuple[float, int, str, str, str]:
    return (
        -expected_saving([pattern]),
        -pattern.tried,
        pattern.subtype,
        pattern.family,
        pattern.device_class,
    )
