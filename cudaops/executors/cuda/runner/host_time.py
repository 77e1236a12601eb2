"""Time of a launch by the host's clock: 2N launches less N, each from an idle GPU to an idle one.

Another process that uses the GPU takes it for milliseconds at a time. Such a slice falls into one
series of launches and not into the next, and it only ever adds. So there are several samples of N
and of 2N launches, of both sides and of the kernel that does nothing, in an order that is drawn
anew for every round, and the smallest of each counts. It is believed where the two next to it are
the same (`HostTime.error_us`); until then more rounds are taken, for as long as
`TimingPolicy.host_seconds` allows.

That the smallest counts helps no candidate that hides work from the events (another stream, another
time). Between an idle GPU and an idle GPU the host sees all work of the process, so what is hidden
is in every sample, and in 2N launches twice as often as in N. To be missing in the smallest and
in those next to it, it must not be done at all in whole series of launches; and where a launch does
nothing in some series and not in others, those of which the results are looked at are among them,
since neither the order nor the place of a series is known beforehand. For N alone to look longer
than it is, which would make the difference small, it must be so in every sample of N.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from cudaops.executors.cuda.protocol import TimingPolicy
from cudaops.executors.cuda.runner.sampling import LEAST_FILLS_BEFORE_MANY, Clock, Sampler

LEAST_N, MOST_N = 4, 64
ROUNDS = 5
"""Least samples of N and of 2N launches."""
ALIKE = 3
"""So many smallest samples must be the same for the smallest to be believed. Chosen: one may be an
accident, and on a GPU half of which is someone else's a few of ten series are undisturbed."""
SETTLED_SHARE, SETTLED_US = 0.05, 0.25
"""They are where they differ by no more than this share of a launch's time and this much a launch.
Chosen: a third of what the clocks gate lets host and events differ (`gates.clocks`)."""
LONG_US = 1000.0
"""A launch longer than this is timed or calibrated once: its spread is small against it."""
SLOW_US = 100_000.0
"""Of one longer than this N is 1: what is between launches is nothing beside it."""


class HostTime(NamedTuple):
    """Of one launch of a plan, or of the kernel that does nothing."""

    us: float
    """Not above 0 where samples of N took longer than those of 2N."""
    error_us: float | None
    """By how much the smallest samples differ, a launch; None where there is one alone."""


class _Series:
    """Samples of N and of 2N launches of one side, or of nothing."""

    def __init__(self, take: Callable[[int], float], launches: int, launch_us: float) -> None:
        self.take = take
        """Microseconds of so many launches."""
        self.launches = launches
        self.launch_us = launch_us
        self.samples: dict[int, list[float]] = {launches: [], 2 * launches: []}

    @property
    def taken(self) -> int:
        return len(self.samples[self.launches])

    @property
    def round_us(self) -> float:
        """About what one more sample of each takes."""
        return sum(min(found) for found in self.samples.values())

    @property
    def enough(self) -> bool:
        return self.taken >= (1 if self.launch_us >= LONG_US else ROUNDS)

    @property
    def settled(self) -> bool:
        error = self.time.error_us
        return error is None or error <= SETTLED_SHARE * self.launch_us + SETTLED_US

    @property
    def time(self) -> HostTime:
        once, twice = (sorted(found)[:ALIKE] for found in self.samples.values())
        error = (once[-1] - once[0] + twice[-1] - twice[0]) / self.launches
        us = (twice[0] - once[0]) / self.launches
        return HostTime(us, error if len(once) > 1 else None)


class HostTimes:
    """Host-clock times of every side and of an empty kernel."""

    def __init__(
        self,
        bench: Sampler,
        policy: TimingPolicy,
        launch_us: Sequence[float],
        clock: Clock,
        draw: random.Random,
        *,
        restored: bool,
    ) -> None:
        """`draw` gives the order of samples."""
        self.bench = bench
        self.draw = draw
        self.policy = policy
        self.clock = clock
        self._sides = [
            self._of_side(side, us, restored=restored) for side, us in enumerate(launch_us)
        ]
        self._nothing: _Series | None = None
        if bench.empty_host_us(MOST_N, LEAST_FILLS_BEFORE_MANY) is not None:
            self._nothing = _Series(self._nothing_us, MOST_N, 0.0)

    def take(self) -> None:
        """Samples until all have enough; then until all are settled, or the time is over."""
        begun = self.clock()
        series = [one for side in self._sides for one in side]
        series += [self._nothing] if self._nothing else []
        while unfinished := [one for one in series if not one.enough]:
            self._round(unfinished)
        round_us = sum(one.round_us for one in series)
        until = begun + self.policy.host_seconds - round_us * 1e-6
        while not all(one.settled for one in series) and self.clock() < until:
            self._round(series)

    def of_side(self, side: int) -> HostTime:
        """Of a launch of its plan; without what putting everything back takes, where that is
        done before each."""
        first, *rest = (series.time for series in self._sides[side])
        us = first.us - sum(other.us for other in rest)
        errors = [time.error_us for time in (first, *rest) if time.error_us is not None]
        return HostTime(us, sum(errors) if errors else None)

    def of_nothing(self) -> HostTime | None:
        """Of a kernel that does nothing; None: there is none."""
        if self._nothing is None:
            return None
        us, error = self._nothing.time
        return HostTime(max(0.0, us), error)

    def _of_side(self, side: int, launch_us: float, *, restored: bool) -> list[_Series]:
        """Its launches; and what is put back before them without them, if anything is."""
        wanted = math.ceil(self.policy.slope_ms * 1e3 / max(launch_us, 1e-3))
        launches = min(MOST_N, max(1 if launch_us >= SLOW_US else LEAST_N, wanted))
        ahead = LEAST_FILLS_BEFORE_MANY
        if launch_us < LONG_US:
            ahead = self.bench.slope_ahead(side, 2 * launches, restored=restored)

        def take(count: int, *, launching: bool) -> float:
            return self.bench.host_us(
                side,
                count,
                ahead=ahead,
                restored=restored,
                launching=launching,
                preceded=launch_us < SLOW_US,
            )

        kinds = (True, False) if restored else (True,)
        return [_Series(partial(take, launching=kind), launches, launch_us) for kind in kinds]

    def _nothing_us(self, launches: int) -> float:
        us = self.bench.empty_host_us(launches, LEAST_FILLS_BEFORE_MANY)
        assert us is not None
        return us

    def _round(self, series: Sequence[_Series]) -> None:
        """One more sample of N and of 2N launches of each, in an order that nobody knows."""
        turns = [(one, launches) for one in series for launches in one.samples]
        self.draw.shuffle(turns)
        for one, launches in turns:
            one.samples[launches].append(one.take(launches))
