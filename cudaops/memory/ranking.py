"""In which order recipes are worth trying, as far as memory knows."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.memory import Pattern
from cudaops.domain.rewrite import Rewrite
from cudaops.memory.patterns import PRIOR_SAVING, expected_saving, share_saved
from cudaops.memory.records import KernelMemory, Result, decided, results


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


def _recipe(result: Result) -> str:
    """The recipe that proposed it; empty where none did, or nobody knows any more."""
    proposer = result.entry.proposer if result.entry else ""
    return proposer if proposer.startswith("recipe:") else ""


def _favour(result: Result) -> float:
    """In [1, 2) for what paid, in [-2, -1) for what did not; the faster the more."""
    return (1.0 if result.paid else -2.0) + share_saved(result.speedup)
