"""Finds good values for a Rewrite's tune names by measuring some of them.

Deterministic: seeds first, best guess first; then from the best found so far to its neighbours (one
name one value up or down, then two names at once) until none is better or the budget is spent.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from cudaops.domain.judgement import TIE
from cudaops.domain.rewrite import Rewrite

ENOUGH_TRIALS = 4
FAR_BEHIND = 2.0
"""A search gives up where the best of its first trials takes this many times what it must beat.
Chosen: the first trials are the recipe's best guesses; in the runs under benchmarks/results the
search gained a factor of 1.1 over them, in README's transcript 1.3."""

Values = Mapping[str, int]


@dataclass(frozen=True)
class TunerTrial:
    """One setting of the tune names and its result."""

    values: Mapping[str, int]
    time_us: float | None
    """None where there is none: see `failure`."""
    failure: str | None = None
    """Why it has no time: infeasible, did not compile, misbehaved, computes something else."""
    measured: bool = True
    """False: refused before anything was compiled."""
    sampled_us: tuple[float, float] | None = None
    """As in `Measurement`."""

    def may_equal(self, fastest: TunerTrial) -> bool:
        """Whether its time counts as that of the fastest: by `TIE`, or their ends overlap."""
        if self.time_us is None or fastest.time_us is None:
            return False
        high_us = max(fastest.time_us * (1 + TIE), (fastest.sampled_us or (0.0, 0.0))[1])
        low_us = self.time_us if self.sampled_us is None else self.sampled_us[0]
        return low_us <= high_us


@dataclass(frozen=True)
class TuneResult:
    """What tuning found."""

    best: Rewrite | None
    """The rewrite with its best values set; None where no setting has a time."""
    best_us: float | None
    trials: tuple[TunerTrial, ...]
    """In the order in which they were chosen."""
    stopped: str
    """Why it ended: `no neighbour is better`, `trials`, `seconds`, `far behind`."""
    seconds: float


@dataclass
class _Search:
    """What is known so far."""

    rewrite: Rewrite
    evaluate: Callable[[Rewrite], TunerTrial]
    feasible: Callable[[Rewrite], str | None]
    max_trials: int
    deadline: float
    trials: dict[tuple[tuple[str, int], ...], TunerTrial] = field(default_factory=dict)
    measured: int = 0
    stopped: str = ""
    must_beat_us: float | None = None

    def try_all(self, settings: Iterable[Values], pool: ThreadPoolExecutor, width: int) -> None:
        """Measure those not known yet, `width` at a time, within the budget."""
        for batch in _batches(self._fresh(settings), width):
            if time.monotonic() >= self.deadline:
                self.stopped = "seconds"
                return
            allowed = batch[: self.max_trials - self.measured]
            self.measured += len(allowed)
            for rewrite, trial in zip(allowed, pool.map(self.evaluate, allowed), strict=True):
                self.trials[_key(rewrite.values())] = trial
            if self.measured >= self.max_trials:
                self.stopped = "trials"
                return
            if self._far_behind():
                self.stopped = "far behind"
                return

    def _far_behind(self) -> bool:
        best = self.best()
        if self.must_beat_us is None or self.measured < ENOUGH_TRIALS or best is None:
            return False
        return best.time_us is not None and best.time_us > FAR_BEHIND * self.must_beat_us

    def best(self) -> TunerTrial | None:
        """The fastest; among equals the one with fewer resources, then the earlier."""
        timed = [t for t in self.trials.values() if t.time_us is not None]
        if not timed:
            return None
        fastest = min(timed, key=lambda t: t.time_us or 0.0)
        equal = [t for t in timed if t.may_equal(fastest)]
        return min(equal, key=lambda t: _product(t.values))

    def _fresh(self, settings: Iterable[Values]) -> Iterator[Rewrite]:
        """Feasible settings not tried yet; the others are noted with their reason."""
        for values in settings:
            rewrite = self.rewrite.tuned_with(dict(values))
            key = _key(rewrite.values())
            if key in self.trials:
                continue
            reason = self.feasible(rewrite)
            if reason is None:
                yield rewrite
            else:
                self.trials[key] = TunerTrial(rewrite.values(), None, reason, measured=False)


def tune(
    rewrite: Rewrite,
    evaluate: Callable[[Rewrite], TunerTrial],
    *,
    feasible: Callable[[Rewrite], str | None],
    max_trials: int,
    workers: int,
    max_seconds: float = float("inf"),
    must_beat_us: float | None = None,
    seeds: Sequence[Values] = ({},),
) -> TuneResult:
    """Search the tune names of `rewrite`.

    Args:
        evaluate: Compiles and times one setting; called from up to `workers` threads at once.
        feasible: Says why a setting cannot work before it is compiled; costs no trial.
        max_trials: Most settings to evaluate.
        max_seconds: No evaluation starts after this long; those under way are awaited.
        must_beat_us: Time of what is known to work; a search that is far behind it gives up.
        seeds: Settings to begin with, best guess first; names left out have their first value.
    """
    started = time.monotonic()
    search = _Search(rewrite, evaluate, feasible, max_trials, started + max_seconds)
    search.must_beat_us = must_beat_us
    with ThreadPoolExecutor(max_workers=workers) as pool:
        search.try_all([*seeds, {}], pool, workers)
        _descend(search, pool, workers)
    found = search.best()
    return TuneResult(
        best=None if found is None else rewrite.tuned_with(dict(found.values)),
        best_us=None if found is None else found.time_us,
        trials=tuple(search.trials.values()),
        stopped=search.stopped or "no neighbour is better",
        seconds=time.monotonic() - started,
    )


def _descend(search: _Search, pool: ThreadPoolExecutor, workers: int) -> None:
    """Walk to better neighbours until there is none."""
    steps = _ladders(search.rewrite)
    while not search.stopped and (here := search.best()) is not None:
        for distance in (1, 2):
            search.try_all(_neighbours(here.values, steps, distance), pool, workers)
            if search.stopped or search.best() != here:
                break
        if search.best() == here:
            return


def _ladders(rewrite: Rewrite) -> dict[str, tuple[int, ...]]:
    """Each name's values in order of size."""
    return {t.name: tuple(sorted(set(t.values))) for t in rewrite.plan.tune}


def _neighbours(
    here: Values, ladders: Mapping[str, tuple[int, ...]], distance: int
) -> Iterator[Values]:
    """Settings in which exactly `distance` names stand one step up or down."""
    for names in itertools.combinations(ladders, distance):
        for moves in itertools.product((1, -1), repeat=distance):
            changed = dict(here)
            for name, move in zip(names, moves, strict=True):
                ladder = ladders[name]
                at = ladder.index(here[name]) + move
                if not 0 <= at < len(ladder):
                    break
                changed[name] = ladder[at]
            else:
                yield changed


def _batches(items: Iterator[Rewrite], size: int) -> Iterator[list[Rewrite]]:
    seen: set[str] = set()
    batch: list[Rewrite] = []
    for item in items:
        if item.id in seen:
            continue
        seen.add(item.id)
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _key(values: Values) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(values.items()))


def _product(values: Values) -> int:
    product = 1
    for value in values.values():
        product *= value
    return product
