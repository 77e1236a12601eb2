"""What a search develops next: a pure function of what was developed so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import Branch, Order, SearchOptions
from cudaops.search.selection import (
    alive,
    children_of,
    has_room,
    is_winner,
    kept,
    last_round,
    next_pair,
    ranking,
    retired,
    share,
    through,
    times_by_family,
)


class Seed(NamedTuple):
    """A starting point: a recipe's rewrite, or a hypothesis without code."""

    family: str
    rewrite: Rewrite | None = None
    hypothesis: int | None = None
    """Position among the hypotheses of the search, where there is no rewrite."""


class Supply(NamedTuple):
    """What a search can draw on."""

    seeds: tuple[Seed, ...]
    """Most promising first, used ones included."""
    can_write: bool
    """Whether somebody can improve and join branches, and write hypotheses."""
    can_plan: bool
    """Whether somebody can be asked for hypotheses of other families."""


class RoundDraft:
    """The orders of one round as they are filled in."""

    def __init__(
        self,
        options: SearchOptions,
        branches: Sequence[Branch],
        incumbent_us: float | None,
        supply: Supply,
    ) -> None:
        self._options = options
        self._branches = branches
        self._incumbent_us = incumbent_us
        self._supply = supply
        self._round = last_round(branches) + 1
        self._beam = kept(options, branches)
        self._living = alive(branches)
        self._counts: Counter[str] = Counter()
        self.out = retired(branches)
        self.orders: list[Order] = []

    def fill(self) -> int:
        """Join, begin anew where families are missing, improve, and begin anew with what is left.
        Gives how many new families are missing that no seed is there for."""
        if not self._branches:
            self._sow(self._seeds(), self._options.width)
            return 0
        missing = self._missing()
        if self._supply.can_write:
            self._cross()
        found = self._sow(self._new_families(), missing)
        if self._supply.can_write:
            self._improve()
        self._sow(self._seeds(), self._options.width)
        return min(missing - found, self._options.width - len(self.orders))

    def _missing(self) -> int:
        """Families to begin anew before any other is refined: as many as a beam of different ones
        lacks, or a whole round where there is nothing to refine."""
        if not self._winners():
            return self._options.width
        return max(0, share(self._options.width) - len(self._living))

    def _winners(self) -> list[Branch]:
        return [b for b in self._beam if is_winner(b, self._branches, self._incumbent_us)]

    def _add(self, order: Order) -> bool:
        """Keep it where there is a place for one more of its family; what joins two is of none."""
        width, family = self._options.width, order.family
        if len(self.orders) >= width:
            return False
        if family is not None:
            if not has_room(self._counts, family, width, self._others()):
                return False
            self._counts[family] += 1
        self.orders.append(order)
        return True

    def _others(self) -> frozenset[str]:
        """Families that a place could go to: those in the search, and those still to begin."""
        return self._living | {s.family for s in self._unused()} - self.out

    def _order(self, **fields: object) -> Order:
        number = len(self._branches) + len(self.orders)
        return Order.model_validate({"id": number, "round": self._round, **fields})

    def _cross(self) -> None:
        pair = next_pair(self._beam, self._branches)
        if pair is None:
            return
        self._add(self._order(kind="crossover", parents=(pair[0].id, pair[1].id)))

    def _improve(self) -> None:
        """Half of the round for the best winners, the other half by families, those that got the
        least so far first, so that a late starter has its turn. Whoever has a turn gets all of its
        `branching` children that there are places for."""
        winners = self._winners()
        half = len(self.orders) + share(self._options.width - len(self.orders))
        for branch in winners:
            while len(self.orders) < half and self._refine(branch):
                pass
        calls = Counter(b.order.family or b.family for b in self._branches)
        waiting = [*self._begun(), *winners]
        while waiting:
            branch = min(waiting, key=lambda b: calls[b.family] + self._counts[b.family])
            waiting.remove(branch)
            while self._refine(branch):
                pass

    def _begun(self) -> list[Branch]:
        """Refined before, in the beam or no longer, and not as often as they may be."""
        return [
            b
            for b in ranking(self._branches, self._options.seed)
            if b.family in self._living
            and 0 < children_of(b, self._branches) < self._options.branching
        ]

    def _refine(self, branch: Branch) -> bool:
        """One more child, where it may have one and there is a place."""
        parents = (branch.id,)
        ordered = sum(o.kind == "expand" and o.parents == parents for o in self.orders)
        if children_of(branch, self._branches) + ordered >= self._options.branching:
            return False
        return self._add(self._order(kind="expand", parents=parents, family=branch.family))

    def _sow(self, seeds: Iterable[Seed], most: int) -> int:
        """Begin with up to `most` of these; how many there were places for."""
        begun = 0
        for seed in seeds:
            if begun == most:
                break
            kind = "seed" if seed.rewrite is None else "recipe"
            fields = {"hypothesis": seed.hypothesis, "rewrite": seed.rewrite}
            begun += self._add(self._order(kind=kind, family=seed.family, **fields))
        return begun

    def _seeds(self) -> Iterator[Seed]:
        """Unused ones of no retired family: one of each new family, then of those that were begun
        in vain, then the rest."""
        unused = [s for s in self._unused() if s.family not in self.out]
        first = list(_one_of_each(unused, self._touched()))
        in_vain = [s for s in unused if s not in first and s.family not in self._living]
        yield from first
        yield from in_vain
        yield from (s for s in unused if s not in first and s not in in_vain)

    def _new_families(self) -> Iterator[Seed]:
        return _one_of_each(self._unused(), self._touched())

    def _touched(self) -> set[str]:
        """Families that were begun, by name of what was wanted and of the result of it."""
        asked = {b.order.family for b in self._branches if b.order.family is not None}
        return asked | {b.family for b in self._branches} | set(self._counts)

    def _unused(self) -> list[Seed]:
        texts = {b.order.rewrite.source_id for b in self._branches if b.order.rewrite}
        texts |= {o.rewrite.source_id for o in self.orders if o.rewrite}
        used = {b.order.hypothesis for b in self._branches if b.order.kind == "seed"}
        used |= {o.hypothesis for o in self.orders if o.kind == "seed"}
        return [
            s
            for s in self._supply.seeds
            if (s.hypothesis not in used if s.rewrite is None else s.rewrite.source_id not in texts)
        ]


def _one_of_each(seeds: Iterable[Seed], known: set[str]) -> Iterator[Seed]:
    seen = set(known)
    for seed in seeds:
        if seed.family not in seen:
            seen.add(seed.family)
            yield seed


OrderKind = Literal["recipe", "seed", "expand", "crossover"]
WORDS: dict[OrderKind, str] = {
    "recipe": "from recipes",
    "seed": "new hypotheses",
    "expand": "refined",
    "crossover": "joined",
}


class Round(NamedTuple):
    """The next round."""

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
    draft = RoundDraft(options, branches, incumbent_us, supply)
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
