"""What a search develops next: a pure function of what was developed so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudaops.domain.search import Branch, Order, SearchOptions
from cudaops.search.draft import Draft, Supply
from cudaops.search.families import alive, last_round, through, times_by_family

OrderKind = Literal["recipe", "seed", "expand", "crossover"]
WORDS: dict[OrderKind, str] = {
    "recipe": "from recipes",
    "seed": "new hypotheses",
    "expand": "refined",
    "crossover": "joined",
}


class Round(NamedTuple):
    """What comes next."""

    orders: tuple[Order, ...]
    """At most `width`; none where the search is over, or waits for hypotheses."""
    stop: str | None
    """Why the search is over, in one line; None where it goes on."""
    note: str
    """What the round does, in one line."""
    wanted: int = 0
    """Hypotheses of new families to ask the planner for first: plan the round again with them."""


def plan_round(
    options: SearchOptions,
    branches: Sequence[Branch],
    incumbent_us: float | None,
    supply: Supply,
) -> Round:
    """The next round of a `branch` or `beam` search, or why there is none.

    Args:
        branches: All that were developed in this search, whatever came of them.
        incumbent_us: Time that a first branch must beat to earn children; None: any time does.

    Raises ValueError for `greedy`, which has no rounds.
    """
    if options.strategy == "greedy":
        raise ValueError("a greedy search has no rounds to plan")
    draft = Draft(options, branches, incumbent_us, supply)
    over = _why_over(options, branches, incumbent_us)
    if over is not None:
        return Round((), over, over)
    wanted = draft.fill()
    if wanted and supply.can_plan:
        return Round((), None, f"{wanted} hypotheses of other families are wanted", wanted)
    if not draft.orders:
        nothing = "nothing was proposed" if not branches else "nothing is left to develop"
        return Round((), nothing, nothing)
    return Round(tuple(draft.orders), None, _note(draft.orders, draft.out))


def _why_over(
    options: SearchOptions, branches: Sequence[Branch], incumbent_us: float | None
) -> str | None:
    done = last_round(branches) + 1
    if not done:
        return None
    if options.strategy == "branch":
        return "the one round of this strategy is done"
    if done >= options.rounds:
        return f"all {options.rounds} rounds are done"
    if done > 1 and not _progress(options, branches, incumbent_us):
        least = options.min_improvement * 100
        return f"round {done - 1} improved no family in the search by {least:g} %"
    return None


def _progress(
    options: SearchOptions, branches: Sequence[Branch], incumbent_us: float | None
) -> bool:
    """Whether the last round brought some living family forward, one that was new over the
    incumbent.

    Not the leader alone: a family that is kept beside it is kept because it may overtake.
    """
    before = times_by_family(through(branches, last_round(branches) - 1))
    if not before:
        return True  # nothing had a time yet: there is nothing to improve on
    now, living = times_by_family(branches), alive(branches)
    for family in living:
        old = before.get(family, incumbent_us)
        if old is None or now[family] < old * (1 - options.min_improvement):
            return True
    return False


def _note(orders: Sequence[Order], out: frozenset[str]) -> str:
    counts = Counter(order.kind for order in orders)
    said = ", ".join(f"{counts[kind]} {word}" for kind, word in WORDS.items() if counts[kind])
    given_up = f"; given up: {', '.join(sorted(out))}" if out else ""
    return f"round {orders[0].round}: {said}{given_up}"
