"""Memory as one run uses it: a snapshot at its start and the order of recipes that follows, its
results at their time, trouble once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.judgement import Attempt
from cudaops.domain.memory import KernelKey, MemoryEntry, Pattern
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import LESSON, Citation
from cudaops.errors import EnvironmentFailure
from cudaops.memory.results import (
    PRIOR_SAVING,
    KernelMemory,
    Result,
    decided,
    expected_saving,
    results,
    share_saved,
)
from cudaops.memory.store import MemoryStore
from cudaops.memory.texts import CountTokens, estimated_tokens, patterns_text, prompt_text

MEMORY_TOKENS = 1200
"""Most of a prompt for what is known of the kernel: some 12 results at 100 tokens (measured: 77 and
120 for a rejected and a tuned one by wordllama's Llama tokenizer, 2026-11-20)."""
LESSONS = 2
"""Passages of memory that follow those of the knowledge base."""
PATTERN_TOKENS = 400
"""Most of a prompt for what paid on any kernel: some 9 patterns at 42 tokens (measured so too)."""


class Ranking(Record):
    """A call gives one rewrite's favour: from 1 where it paid for this very kernel before, to -1
    and below where it was rejected for it, between the two what its family brought against this
    verdict elsewhere; 0 where nothing is known."""

    by_source: dict[str, float] = Field(default_factory=dict)
    """By `Rewrite.source_id`."""
    by_recipe: dict[str, float] = Field(default_factory=dict)
    """By `Rewrite.proposer`: a recipe writes another text once the kernel's names have changed."""
    by_family: dict[str, float] = Field(default_factory=dict)

    def __call__(self, rewrite: Rewrite, family: str) -> float:
        """The favour of a rewrite of this family; more is better."""
        for known, key in (
            (self.by_source, rewrite.source_id),
            (self.by_recipe, rewrite.proposer),
            (self.by_family, family),
        ):
            if key in known:
                return known[key]
        return 0.0


def ranking(memory: KernelMemory, patterns: Iterable[Pattern], subtype: str) -> Ranking:
    """The ranking for this kernel while `subtype` limits it.

    Patterns of other classes of device count less than those of this kernel's.
    """
    found = list(results(memory.avoided, memory.entries))
    by_source = decided(found, lambda r: r.source_id)
    by_recipe = decided((r for r in found if _recipe(r)), _recipe)
    families: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        if pattern.subtype == subtype:
            families.setdefault(pattern.family, []).append(pattern)
    return Ranking(
        by_source={key: _favour(result) for key, result in by_source.items()},
        by_recipe={key: _favour(result) for key, result in by_recipe.items()},
        by_family={
            family: expected_saving(tries, memory.key.device_class) - PRIOR_SAVING
            for family, tries in families.items()
        },
    )


class MemorySnapshot(Record):
    """What was known when a run began; it stays so until the run's end, also when resumed."""

    memory: KernelMemory
    patterns: tuple[Pattern, ...] = ()
    """Of this class of device first, each part most promising first."""
    lessons: tuple[Citation, ...] = ()
    """Of other kernels: what was accepted against each verdict; `title` is its subtype."""
    notice: str | None = None
    """Why nothing is known although memory is switched on; None where that is not so."""

    def ranking(self, subtype: str) -> Ranking:
        """The order of recipes while `subtype` limits the kernel."""
        return ranking(self.memory, self.patterns, subtype)

    def lessons_on(self, subtype: str) -> tuple[Citation, ...]:
        """Passages on what was accepted for other kernels that `subtype` limited."""
        return tuple(each for each in self.lessons if each.title == subtype)

    def memory_text(self, count: CountTokens = estimated_tokens) -> str:
        """What is known of the kernel, for a prompt."""
        return prompt_text(self.memory, MEMORY_TOKENS, count)

    def patterns_text(self, count: CountTokens = estimated_tokens) -> str:
        """What paid elsewhere, for a prompt."""
        return patterns_text(self.patterns, PATTERN_TOKENS, count)


class RunMemory:
    """Memory of one run. Nothing here raises because of the folder: the run goes on without."""

    def __init__(
        self, folder: Path | None, key: KernelKey, snapshot: MemorySnapshot | None = None
    ) -> None:
        """`folder` None: memory is switched off. `snapshot`: of the run that is resumed."""
        self._memory = MemoryStore(folder) if folder is not None else None
        self._key = key
        self._said = False
        self.snapshot = snapshot or self._taken()

    def keep(self, entry: MemoryEntry) -> str | None:
        """Record a result; the notice where that fails for the first time."""
        if self._memory is None or self._said:
            return None
        try:
            self._memory.record(self._key, entry)
        except EnvironmentFailure as error:
            return self._notice(error)
        return None

    def _taken(self) -> MemorySnapshot:
        nothing = MemorySnapshot(memory=KernelMemory(key=self._key))
        if self._memory is None:
            return nothing
        try:
            known, patterns = self._memory.recall(self._key), self._memory.patterns()
            lessons = lessons_of(self._memory.kernels(), self._key)
        except EnvironmentFailure as error:
            return nothing.model_copy(update={"notice": self._notice(error)})
        here = self._key.device_class
        ordered = sorted(patterns, key=lambda pattern: pattern.device_class != here)
        return MemorySnapshot(memory=known, patterns=tuple(ordered), lessons=lessons)

    def _notice(self, error: EnvironmentFailure) -> str:
        self._said = True
        return f"{error.problem}; the run continues without memory ({error.remedy})"


def lessons_of(kernels: Iterable[KernelMemory], own: KernelKey) -> tuple[Citation, ...]:
    """Of each subtype the `LESSONS` best measured rewrites that were accepted for other kernels."""
    found = sorted(
        (
            (entry.speedup or 0.0, memory.key, entry)
            for memory in kernels
            if memory.key.structure != own.structure
            for result in decided(results((), memory.entries), lambda r: r.source_id).values()
            if (entry := result.entry) and entry.outcome == "accepted" and result.measured
        ),
        key=lambda each: (-each[0], each[1].name, each[2].source_id),
    )
    of: Counter[str] = Counter()
    kept: list[Citation] = []
    for speedup, key, entry in found:
        of[entry.subtype] += 1
        if of[entry.subtype] <= LESSONS:
            kept.append(
                Citation(
                    note=LESSON + key.name, title=entry.subtype, heading=entry.title,
                    text=f"{entry.family}, {speedup:.2f}x on {key.device_class}: {entry.lesson}",
                    source=f"run {entry.run_id}, {entry.date[:10]}", score=0.0,
                )
            )  # fmt: skip
    return tuple(kept)


def entry_again(
    attempt: Attempt, known: Iterable[KernelMemory], *, subtype: str, run_id: str, date: str
) -> MemoryEntry | None:
    """What is kept of a rewrite that was judged again.

    It is filed where its last result stands, so that the two decide together what was learnt. Where
    `known` holds none it goes under `subtype` and the attempt's own family. None where it teaches
    nothing (`entry_of`).

    Args:
        attempt: The new judgement.
        known: Memories to look in for an earlier result; the first that has one counts.
        subtype: Of the verdict that limited the author's kernel.
        run_id: Of the run that proposed the rewrite.
        date: UTC, ISO 8601.
    """
    entry = entry_of(attempt, subtype=subtype, run_id=run_id, date=date)
    for memory in known if entry else ():
        found = results(memory.avoided, memory.entries)
        earlier = [r for r in found if r.source_id == attempt.source_id]
        if earlier:
            filed = {"subtype": earlier[-1].subtype, "family": earlier[-1].family}
            return entry.model_copy(update=filed) if entry else None
    return entry


def entry_of(attempt: Attempt, *, subtype: str, run_id: str, date: str) -> MemoryEntry | None:
    """What is kept of a judged attempt. `subtype`: of the verdict that it was to relieve; `date`:
    UTC, ISO 8601.

    None where it teaches nothing: a stand-in's times say nothing of any GPU.
    """
    judgement = attempt.judgement
    if judgement.time_source == "standin":
        return None
    failed = next((gate.name for gate in judgement.gates if not gate.passed), None)
    return MemoryEntry(
        date=date,
        run_id=run_id,
        subtype=subtype,
        family=attempt.family or "other",
        title=attempt.title,
        proposer=attempt.proposer,
        outcome=judgement.outcome,
        speedup=judgement.speedup,
        time_source=judgement.time_source,
        source_id=attempt.source_id,
        gate=failed if judgement.outcome == "rejected" else None,
        lesson=attempt.lesson,
    )


def _recipe(result: Result) -> str:
    """The recipe that proposed it; empty where none did, or nobody knows any more."""
    proposer = result.entry.proposer if result.entry else ""
    return proposer if proposer.startswith("recipe:") else ""


def _favour(result: Result) -> float:
    """In [1, 2) for what paid, in [-2, -1) for what did not; the faster the more."""
    return (1.0 if result.paid else -2.0) + share_saved(result.speedup)
