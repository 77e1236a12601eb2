"""What the graph keeps of a search: the round under way and every branch that was explored."""

from __future__ import annotations

from cudaops.domain.base import Record
from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import Branch, Order
from cudaops.graph.state import State
from cudaops.graph.view import attempts_of, kept_us
from cudaops.mcp_servers.sandbox import TrialResult
from cudaops.recipes.registry import family_of
from cudaops.sandbox.workbench import Workbench
from cudaops.search.draft import Seed, Supply


class Task(Record):
    """One order with all that is needed to carry it out."""

    order: Order
    hypothesis: Hypothesis | None = None
    """What is to be written; None for a recipe's, and where the planner had none left."""
    profile: Profile | None = None
    """Of the branch that is to be improved; None: as the run's."""
    verdict: Verdict | None = None
    """On `profile`."""


class Explored(Record):
    """One branch with what the judge and later rounds need beside it."""

    search: int
    """Which search of the run, from 1."""
    branch: Branch
    hypothesis: Hypothesis | None = None
    trials: tuple[TrialResult, ...] = ()
    """What the tuner tried."""
    baseline_us: float | None = None
    """The author's kernel by the clock of the branch's time; None where none was taken."""
    unavailable: tuple[str, str] | None = None
    """Problem and remedy where the model could not be reached."""


class Search(Record):
    """One search: what it may draw on and how far it is."""

    number: int = 1
    """Position among the searches of the run, from 1."""
    recipes: tuple[Rewrite, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """All that were planned in it."""
    tasks: tuple[Task, ...] = ()
    """The round under way."""
    stop: str | None = None
    """Why no further round follows; None while it goes on."""
    judged: int = 0
    """How many of its branches were put to the judge."""

    def supply(self, *, can_write: bool, can_plan: bool) -> Supply:
        """Recipes and hypotheses in turn, so that neither takes every place."""
        recipes = [Seed(family_of(r) or "other", rewrite=r) for r in self.recipes]
        planned = [Seed(h.family, hypothesis=i) for i, h in enumerate(self.hypotheses)]
        turns = max(len(recipes), len(planned))
        mixed = [
            seed
            for turn in range(turns)
            for seed in (*recipes[turn : turn + 1], *planned[turn : turn + 1])
            if can_write or seed.rewrite is not None
        ]
        return Supply(tuple(mixed), can_write, can_plan and can_write)


def search_of(state: State) -> Search:
    """The search under way; an empty one before the first."""
    raw = state.get("search")
    return Search.model_validate(raw) if raw else Search(number=0)


def explored_of(state: State, search: int | None = None) -> tuple[Explored, ...]:
    """Every branch of one search, or of all, in order."""
    explored = [Explored.model_validate(e) for e in state.get("explored", [])]
    wanted = [e for e in explored if search is None or e.search == search]
    return tuple(sorted(wanted, key=lambda e: (e.search, e.branch.id)))


def incumbent_us(state: State) -> float | None:
    """Time that a new branch has to beat: of the best rewrite so far, else of the author's kernel;
    None where neither was timed."""
    best = kept_us(state)
    if best is not None:
        return best
    return next((e.baseline_us for e in explored_of(state) if e.baseline_us is not None), None)


def known_texts(state: State) -> dict[str, str]:
    """`Rewrite.source_id` of all that was judged or explored, with where that was."""
    known = {a.source_id: f"attempt {a.iteration}" for a in attempts_of(state)}
    for one in explored_of(state):
        if one.branch.rewrite is not None:
            label = f"branch {one.branch.id} of search {one.search}"
            known.setdefault(one.branch.rewrite.source_id, label)
    return known


def microseconds(time_us: float | None, bench: Workbench) -> str:
    """A branch's time for people, with where it comes from (design D5)."""
    words = UNMEASURED_WORDS.get(bench.executor.time_source)
    source = "" if words is None else f" ({words.format(device=bench.executor.device)})"
    return "no time" if time_us is None else f"{time_us:.1f} us{source}"
