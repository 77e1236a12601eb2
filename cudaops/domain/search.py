"""Search: how candidates are looked for before one is put to the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.options import Strategy
from cudaops.domain.rewrite import Rewrite


class SearchOptions(Record):
    """How widely to look."""

    strategy: Strategy = "greedy"
    width: int = 4
    """Branches kept, and developed at once, in a round. Chosen, as the three below."""
    rounds: int = 3
    """Most rounds of a beam; branch has one."""
    branching: int = 2
    """Children of a branch that beats its parent."""
    min_improvement: float = 0.03
    """A beam ends where a round improves no family's best time by this share: less is as
    much as times differ from run to run."""
    seed: int = 0
    """Decides between equals, so that the same answers give the same search."""


class Order(Record):
    """One branch that is to be developed."""

    id: int
    """Position among all branches of the search, from 0."""
    round: int
    """From 0."""
    kind: Literal["recipe", "seed", "expand", "crossover"]
    """recipe: `rewrite` is there already. seed: a new hypothesis. expand: improve the one parent.
    crossover: join the two parents."""
    parents: tuple[int, ...] = ()
    """Ids of branches."""
    family: str | None = None
    """Wanted family; None for a crossover, which is of none."""
    hypothesis: int | None = None
    """seed: which of the search's hypotheses."""
    rewrite: Rewrite | None = None
    """recipe: what to try."""


class Branch(Record):
    """One branch that was developed."""

    order: Order
    family: str
    title: str
    rewrite: Rewrite | None
    """With its best tune values; None where nothing usable was written."""
    time_us: float | None
    """Draft time on the most expensive workload, outputs compared; None where it has none."""
    failure: str | None = None
    """Why it has no time, in one line."""
    configurations_tried: int = 0

    @property
    def id(self) -> int:
        """Position among all branches of the search."""
        return self.order.id


class StepShare(Record):
    """What one transformation of a sequence brings."""

    name: str
    setting: dict[str, int | str]
    factor: float | None
    """Time without it over time with it; None where the steps after it need it."""


class Transformed(Record):
    """One sequence of transformations of a kernel, and its result."""

    rewrite: Rewrite
    time_us: float
    """Weighted over what is timed, in the search's own clock."""
    steps: tuple[StepShare, ...]
    rerounds: bool = False
    """Whether its results may be rounded otherwise than the author's."""


class FoundSequence(Record):
    """One sequence of transformations that a search found."""

    time_us: float
    """By the clock of its search."""
    steps: tuple[StepShare, ...]


class TriedDraft(Record):
    """One sequence that a search tried."""

    title: str
    """Its steps in order, with settings."""
    time_us: float | None
    failure: str | None = None
    ends_us: tuple[float, float] | None = None
    """The time's interval at 95 %: a median's, or by the sampled blocks of a modelled time
    (`Measurement.sampled_us`); None where there is no more than one value."""


class SearchCost(Record):
    """What a search over transformations took."""

    trials: int
    """Drafts that were built and timed, or tried to be."""
    seconds: float
    parts: dict[str, float] = Field(default_factory=dict)
    """Seconds in which each part of it was at work: `writing drafts`, `building`, `waiting for the
    GPU`, `measuring`, `checking`. Parts overlap."""

    @property
    def line(self) -> str:
        """In one line."""
        rate = f" ({60 * self.trials / self.seconds:.0f} a minute)" if self.seconds > 0 else ""
        parts = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.parts.items() if spent)
        told = f"{self.trials} trials in {self.seconds:.1f} s{rate}"
        return f"{told}; by part, overlapping: {parts}" if parts else told


class SearchSummary(Record):
    """A search over transformations, as a run keeps it."""

    cost: SearchCost
    baseline_us: float
    """What the search began with, in the search's own clock."""
    stopped: str
    """Why it ended."""
    found: dict[str, FoundSequence] = Field(default_factory=dict)
    """By `Rewrite.source_id`."""


class TransformationSearch(Record):
    """What a search over transformations found."""

    found: tuple[Transformed, ...]
    """The fastest first, right on the captured inputs; empty where nothing gains."""
    baseline_us: float
    """What the search began with, by the same clock."""
    tried: tuple[TriedDraft, ...]
    stopped: str
    """Why it ended: `no step gains`, `trials`, `seconds`; or why it did not begin."""
    cost: SearchCost
    in_the_way: str = ""
    """What most transformations could not be made for; empty where each could."""

    @property
    def summary(self) -> SearchSummary:
        """What a run keeps of it."""
        found = {
            x.rewrite.source_id: FoundSequence(time_us=x.time_us, steps=x.steps) for x in self.found
        }
        return SearchSummary(
            cost=self.cost, baseline_us=self.baseline_us, stopped=self.stopped, found=found
        )
