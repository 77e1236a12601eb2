"""Times of one side, or of two against each other: ABBA blocks, noise, and the cross-checks."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from cudaops.executors.cuda.protocol import (
    BlockState,
    MeasureReply,
    MeasureTask,
    OutputWatch,
    Regime,
    RegimeTimes,
    SideTimes,
    TimingPolicy,
)
from cudaops.executors.cuda.runner.device_state import StateCache
from cudaops.executors.cuda.runner.driver import Driver, TaskRefused
from cudaops.executors.cuda.runner.host_time import LONG_US, SLOW_US, HostTime, HostTimes
from cudaops.executors.cuda.runner.sampling import (
    PLANS_BEFORE,
    Clock,
    Sampler,
    bench,
)
from cudaops.executors.cuda.runner.tracing import (
    ActivityMissing,
    KernelTime,
    KernelTimes,
    SeenKernels,
    seen_kernels,
)
from cudaops.executors.cuda.runner.watching import (
    LEAST_APART,
    MANY_BEFORE,
    DistinctResult,
    Watcher,
    keep_positions,
)

CALIBRATIONS = 5
CHAINED = 3
"""Launches in a row that show what a launch on its own results takes."""
LEAST_SHARE, MOST_SHARE = 0.5, 2.0
"""A launch on its own results may take between half and twice the time of one on restored memory
to count as the same work. Chosen: launch gaps move the time of a 2 us kernel by up to a third."""
SAME_SHARE, SAME_US = 0.1, 1.5
"""A launch on its own results takes the same time as one on restored memory where they differ by no
more: less than the clocks gate lets the host's clock and the events differ (`gates.clocks`)."""
GRAPH_SAMPLES = 5
"""How much longer a warm sample lasts where its launches are nodes of a graph: what the graph's own
start takes, some microseconds, is then little a launch."""
GAPS_A_BLOCK = 4
"""Samples of a kernel that does nothing after each block: twenty beside forty pairs, on a GPU that
is as busy as it was for these. None beside launches of `LONG_US`."""
LASTING_US = 10_000.0
"""Beside a launch as long it does not count the contents of the L2: to load all of it anew takes
some 20 us on an H200 and 75 us on a GeForce RTX 4090, by their data sheets."""
LASTING_SAMPLES = 2
SECONDS_US = 1_000_000.0
"""Of a launch that takes seconds every one counts: of one of 8 s (fk of a Monte Carlo program, an
H200, 2026-11-26) what is taken of a slow launch would have taken six minutes."""
MEDIAN_ERROR = 1.253 * 1.483
"""Standard error of a median times the root of the number of samples, over half the spread between
their quartiles: pi/2 under the root, and 1/0.6745. Normal distribution."""
SHORT_SHARE = 0.05
"""A launch is short where what is between two takes more than this share of its time: then the
kernels' own durations are taken as often as the samples. Chosen: what events say beyond it is noise
of the launching and no longer of the kernel."""
DISTURBED = 1.03
"""A block of a measurement that only ranks is left out where its median is so many times the least
of a block's: who else works on the GPU adds time and takes none away. Chosen: over what two calm
blocks differ by."""
TRACED_SHARE = 0.25
"""Of the seconds allowed for samples, what those durations may take as well."""


class Pace(NamedTuple):
    """How much is taken of each side where a launch of one of them is slow."""

    samples: int
    """In the regime that is wanted first."""
    other_samples: int
    """In the other, which is no other beside a launch as long: its times differ by far less than
    those of short ones."""
    apart: int
    """Least pairs apart, both regimes together: every other set of inputs must be seen."""
    before: int
    """Most launches before one apart."""
    cupti_launches: int
    """In each regime, whose durations CUPTI records."""


SLOW = Pace(12, 4, LEAST_APART, MANY_BEFORE[-1], 2)
"""From `SLOW_US` on. Chosen: more than the ten that an interval is given for (`domain.judge`).
Forty of both regimes took most of a minute for a launch of 0.3 s (two H100s, 2026-11-25), and
others waited meanwhile. Where it is only to be ranked one sample will do."""
SECONDS = Pace(10, 2, 2, 1, 1)
"""From `SECONDS_US` on: no fewer than those ten, and what a spread in the other regime needs."""


class Repetition(NamedTuple):
    """How often a launch is repeated within a warm sample, and whether that changes its work."""

    launches: int
    restored: bool
    """Whether the host's clock is asked for launches on restored memory, as single warm samples
    are. Not where a sample repeats its launch, or where a repeated launch takes the same time."""
    notice: str | None = None


def measure(
    driver: Driver,
    task: MeasureTask,
    *,
    activity: KernelTimes | None = None,
    clock: Clock = time.perf_counter,
    kept: StateCache | None = None,
) -> MeasureReply:
    """Take the task's times. `kept` takes what the task wants kept. Raises KernelFault,
    TaskRefused or DriverError."""
    if not task.sides:
        raise TaskRefused("there is nothing to time in the task", "report it")
    started = clock()
    with bench(driver, task, clock, kept) as ready:
        return _Measurement(ready, task, activity, clock, started).take()


class _Measurement:
    """One MeasureTask on its bench."""

    def __init__(
        self,
        ready: Sampler,
        task: MeasureTask,
        activity: KernelTimes | None,
        clock: Clock,
        started: float,
    ) -> None:
        self.bench = ready
        self.policy: TimingPolicy = task.policy
        self.wanted: tuple[Regime, ...] = task.regimes
        self.sides = range(len(task.sides))
        self.activity = activity
        self.clock = clock
        self.started = started
        self.notices: list[str] = []
        self.overhead_us = 0.0
        self.watcher = _watcher(ready, task.watch, len(self.sides))
        self.quick = task.is_hint
        """Only to be ranked: see `TimingPolicy.settled_pct`."""
        self.first_us: list[float] = []
        """What the first timed launch of each side took."""
        self.repeats = task.repeats
        self.overwritten = all(b.fill is not None for b in task.buffers if not b.read_only)
        """Whether many launches leave what one leaves: what it reads, it does not write."""

    def take(self) -> MeasureReply:
        self._warm_up()
        self.overhead_us = self.bench.state.pair_us
        repetition = Repetition(1, restored=not self.repeats)
        if (
            self.repeats
            and "warm" in self.wanted
            and self.bench.driver.facts.real
            and not self._is_single()
        ):
            repetition = self._repetition()
        if repetition.notice is not None:
            self.notices.append(repetition.notice)
        begun = self.clock()
        share = self.policy.max_seconds / max(1, len(self.wanted))
        times = [
            self._regime(regime, repetition, begun + share * number)
            for number, regime in enumerate(self.wanted, start=1)
        ]
        times, nothing = self._with_host(times, repetition)
        for side in self.sides:
            self.bench.check_guards(side)
        times = self._with_activity(times)
        self._say_what_is_missing(times)
        return MeasureReply(
            regimes=tuple(times),
            seconds=self.clock() - self.started,
            outputs=self.watcher.outputs() if self.watcher else (),
            host_gap_us=nothing.us if nothing else None,
            host_gap_error_us=nothing.error_us if nothing else None,
            looking_s=self._looking(),
            notices=tuple(self.notices),
        )

    def _warm_up(self) -> None:
        spun = self.policy.spin_up_ms * 1e-3
        until = self.clock() + spun
        for side in self.sides:
            us = self.bench.once(side)
            slow = us >= SLOW_US
            self.first_us.append(us if slow else self.bench.sample(side, "cold"))
            for _ in range(0 if self.quick or slow else self.policy.warmups - 1):
                self.bench.once(side)
        if not self.quick:
            until = self.clock() + (0.0 if self._is_slow() else spun)
        while self.clock() < until:
            for side in self.sides:
                self.bench.sample(side, "cold")

    def _is_slow(self) -> bool:
        """Whether a launch of either side takes so long that few samples must do."""
        return max(self.first_us) >= SLOW_US

    def _pace(self) -> Pace | None:
        """What is taken of a slow launch; None of any other."""
        if not self._is_slow():
            return None
        return SECONDS if max(self.first_us) >= SECONDS_US else SLOW

    def _is_single(self) -> bool:
        """Whether every sample is one launch, whatever else could be made of it."""
        return self._is_slow() or (self.quick and self.first_us[0] >= LONG_US)

    def _repetition(self) -> Repetition:
        """How many launches make a warm sample: as many for one side as for the other."""
        self.bench.plan_ahead("warm", 1)
        shortest, same, gaps = math.inf, True, []
        for side in self.sides:
            alone = self.bench.sample(side, "warm")
            if self.quick and alone >= 2 * self.policy.min_sample_us:
                return Repetition(1, restored=False)
            if side == 0:
                self.bench.plan_ahead("warm", CHAINED)
            count = CALIBRATIONS if alone < LONG_US else 1
            alone = statistics.median(self.bench.sample(side, "warm") for _ in range(count))
            chain = statistics.median(
                self.bench.sample(side, "warm", CHAINED) for _ in range(count)
            )
            again = (chain - alone) / (CHAINED - 1)
            first = max(0.0, alone - self.overhead_us)
            if not LEAST_SHARE * first <= again <= MOST_SHARE * alone:
                shown = self.bench.sides[side].loaded.shown
                return Repetition(
                    1,
                    restored=True,
                    notice=f"{shown} takes {again:.1f} us on its own results and {first:.1f} us on "
                    "restored memory: every warm sample is one launch on restored memory",
                )
            shortest = min(shortest, again)
            gaps.append(alone - again)
            same = same and abs(again - alone) <= SAME_SHARE * alone + SAME_US
        if shortest >= self.policy.min_sample_us:
            return Repetition(1, restored=not same)
        wanted_us = self.policy.min_sample_us * (GRAPH_SAMPLES if self.bench.has_graphs else 1)
        needed = math.ceil(wanted_us / max(shortest, 1e-3))
        launches = min(self.policy.max_launches_a_sample, needed)
        if max(gaps) - min(gaps) > SAME_SHARE * shortest + SAME_US:
            text = "one side gains more than the other where its launch is repeated on its own "
            text += "results: every warm sample is one launch on restored memory"
            return Repetition(1, restored=True, notice=text)
        return Repetition(max(1, launches), restored=launches <= 1 and not same)

    def _regime(self, regime: Regime, repetition: Repetition, deadline: float) -> RegimeTimes:
        launches = repetition.launches if regime == "warm" else 1
        in_graph = launches > 1 and self.bench.has_graphs
        gaps: list[float] = []
        for number in () if self._is_single() else {launches, 1} if self.watcher else {launches}:
            self.bench.plan_ahead(regime, number)
        apart: list[list[float]] = [[] for _ in self.sides]
        kept: list[list[float]] = [[] for _ in self.sides]
        if self.quick and self._is_slow():
            kept = [[us] for us in self.first_us]
        states: list[BlockState] = []
        redone = 0
        wanted = self._samples(regime)
        while len(kept[0]) < wanted:
            late = self.clock() - self._looking() >= deadline
            if late and kept[0]:
                break
            first = len(states) % len(self.sides)
            block, seen = self._block(regime, launches, first, apart, in_graph=in_graph)
            gaps += self._gaps(block, regime, launches, in_graph=in_graph)
            noise = max(noise_pct(samples) for samples in block)
            again = noise > self.policy.noise_pct and redone < self.policy.redone_blocks
            again = again and not late
            states.append(self._state(noise, again))
            if again:
                redone += 1
                continue
            for samples, new, results in zip(kept, block, seen, strict=True):
                keep_positions(regime, len(samples), results)
                samples.extend(new)
            if self.quick and all(
                self._is_settled(self._calm(samples, regime)) for samples in kept
            ):
                break
        # Both regimes are one beside a slow launch: what stands apart is shared out to them.
        pace = self._pace()
        least = pace.apart // len(self.wanted) if pace else LEAST_APART
        while self.watcher and len(apart[0]) < least:
            self._apart(regime, self.sides, launches, apart)
        if len(kept[0]) < wanted and not self.quick:
            self.notices.append(
                f"{regime}: {len(kept[0])} samples instead of {wanted} in the time "
                f"allowed ({self.policy.max_seconds:g} s for all)"
            )
        sides = tuple(
            SideTimes(
                samples_us=tuple(self._calm(samples, regime)),
                launches_a_sample=launches,
                launches_a_plan=len(self.bench.sides[side].loaded.prepared),
                apart_us=tuple(others),
            )
            for side, (samples, others) in enumerate(zip(kept, apart, strict=True))
        )
        return RegimeTimes(
            regime=regime,
            sides=sides,
            blocks=tuple(states),
            event_overhead_us=self.overhead_us,
            in_graph=in_graph,
            gap_us=statistics.median(gaps) if gaps else None,
        )

    def _gaps(
        self, block: Sequence[Sequence[float]], regime: Regime, launches: int, *, in_graph: bool
    ) -> list[float]:
        """What a kernel that does nothing takes after a block of samples that are not long."""
        if self.quick or min(us for samples in block for us in samples) >= LONG_US:
            return []
        near = not self._is_slow()
        taken = [
            self.bench.gap_us(regime, launches, in_graph=in_graph, preceded=near)
            for _ in range(GAPS_A_BLOCK)
        ]
        return [us for us in taken if us is not None]

    def _block(
        self,
        regime: Regime,
        launches: int,
        first: int,
        apart: list[list[float]],
        *,
        in_graph: bool,
    ) -> tuple[list[list[float]], list[list[DistinctResult | None]]]:
        """Samples of every side in the order A B B A A B B A ..., `first` being A; their results.

        Launches on other inputs are between pairs, by chance; their times go to `apart`.
        """
        found: list[list[float]] = [[] for _ in self.sides]
        seen: list[list[DistinctResult | None]] = [[] for _ in self.sides]
        order = [*self.sides][first:] + [*self.sides][:first]
        pairs = self._samples_a_block(regime)
        looks = self.watcher.looks(pairs) if self.watcher else frozenset()
        for pair in range(pairs):
            rare = self._pace() is SECONDS
            if self.watcher and self.watcher.apart_is_due(self.policy.samples, rare=rare):
                self._apart(regime, order, launches, apart)
            for side in order:
                lasting = (self.quick or self._is_slow()) and self.first_us[side] >= LASTING_US
                us = self.bench.sample(
                    side, regime, launches, in_graph=in_graph, preceded=not lasting
                )
                found[side].append(us / launches)
                seen[side].append(self._result(side, launches, looking=pair in looks))
            order.reverse()
        return found, seen

    def _samples(self, regime: Regime) -> int:
        """Of each side in this regime: as the policy says; of a slow launch as few as will do."""
        if (pace := self._pace()) is None:
            return self.policy.samples
        if self.quick:
            return 1
        few = pace.samples if regime == self.wanted[0] else pace.other_samples
        return min(self.policy.samples, few)

    def _samples_a_block(self, regime: Regime) -> int:
        """As the policy says; two of a lasting launch that is only to be ranked, and of a slow one
        all at once."""
        if self._is_slow():
            return self._samples(regime)
        lasting = self.quick and self.first_us[0] >= LASTING_US
        return LASTING_SAMPLES if lasting else max(1, self.policy.samples_a_block)

    def _calm(self, samples: Sequence[float], regime: Regime) -> Sequence[float]:
        """Where only a rank is wanted, those of blocks that nobody else on the GPU disturbed."""
        return calm(samples, self._samples_a_block(regime)) if self.quick else samples

    def _is_settled(self, samples: Sequence[float]) -> bool:
        wanted = self.policy.settled_pct
        error = MEDIAN_ERROR * noise_pct(samples) / math.sqrt(len(samples))
        return wanted is not None and error <= wanted

    def _looking(self) -> float:
        """Seconds of looking at results, which are no part of the time allowed for samples."""
        return self.watcher.seconds if self.watcher else 0.0

    def _result(self, side: int, launches: int, *, looking: bool) -> DistinctResult | None:
        """What a sample left; None where nobody looks, or nobody can say what would be right."""
        if self.watcher is None:
            return None
        self.watcher.count(side)
        comparable = launches == 1 or self.overwritten
        return self.watcher.look(side, 0) if looking and comparable else None

    def _apart(
        self, regime: Regime, order: Sequence[int], launches: int, times: list[list[float]]
    ) -> None:
        """A launch of every side on other inputs; on the captured ones too where the results of
        repeated launches cannot be looked at."""
        assert self.watcher is not None
        comparable = launches == 1 or self.overwritten
        inputs = self.watcher.inputs_apart(captured_too=not comparable)
        before = min((self._pace() or SLOW).before, self.watcher.launches_before())
        before = before if self.repeats else 0
        for side in order:
            times[side].append(self.bench.apart(side, regime, inputs, before))
            self.watcher.count(side)
            self.watcher.look(side, inputs)

    def _state(self, noise: float, again: bool) -> BlockState:
        driver = self.bench.driver
        return BlockState(
            sm_clock_mhz=driver.sm_clock_mhz(),
            temperature_c=driver.temperature_c(),
            noise_pct=noise,
            redone=again,
        )

    def _with_host(
        self, times: list[RegimeTimes], repetition: Repetition
    ) -> tuple[list[RegimeTimes], HostTime | None]:
        """What the host's clock says of warm launches; and of a kernel that does nothing."""
        warm = next((one for one in times if one.regime == "warm"), None)
        if warm is None or self.quick:
            return times, None
        medians = [statistics.median(side.samples_us) for side in warm.sides]
        draw = self.watcher.draw if self.watcher else random.SystemRandom()
        host = HostTimes(
            self.bench, self.policy, medians, self.clock, draw, restored=repetition.restored
        )
        host.take()
        sides = []
        for number, taken in enumerate(warm.sides):
            us, error = host.of_side(number)
            if us <= 0:
                shown = self.bench.sides[number].loaded.shown
                self.notices.append(f"{shown}: the host's clock gives no slope ({us:.2f} us)")
            found = {"slope_us": us if us > 0 else None, "slope_error_us": error}
            sides.append(taken.model_copy(update=found))
        timed = warm.model_copy(update={"sides": tuple(sides)})
        return [timed if one is warm else one for one in times], host.of_nothing()

    def _with_activity(self, times: list[RegimeTimes]) -> list[RegimeTimes]:
        """The last thing that is done: a tracer costs time, and may go on doing so."""
        if self.policy.cupti_launches < 1:
            return times
        if self.activity is None:
            self.notices.append("no kernel durations by CUPTI: it is not loaded")
            return times
        try:
            return [self._traced(one, self.activity) for one in times]
        except ActivityMissing as problem:
            self.notices.append(f"no kernel durations by CUPTI: {problem}")
            return times

    def _traced(self, times: RegimeTimes, activity: KernelTimes) -> RegimeTimes:
        """With the durations of every side's kernels, or why a side has none."""
        pace = self._pace()
        plans = 1 if pace else 1 + PLANS_BEFORE[times.regime]
        short = _is_short(times) and not pace
        wanted = self.policy.samples if short else self.policy.cupti_launches
        wanted = min(wanted, pace.cupti_launches) if pace else wanted
        records = self._records(times.regime, activity, wanted)
        seen = []
        for side, samples in zip(self.sides, records, strict=True):
            prepared = self.bench.sides[side].loaded.prepared
            seen.append(seen_kernels(samples, [p.planned.kernel.symbol for p in prepared], plans))
        common = frozenset.intersection(*(one.foreign for one in seen))
        paired = _paired(seen) if short and not any(one.problem(common) for one in seen) else None
        sides = []
        for side, (taken, one) in enumerate(zip(times.sides, seen, strict=True)):
            problem = one.problem(common)
            if problem:
                shown = self.bench.sides[side].loaded.shown
                self.notices.append(f"{times.regime}: no durations by CUPTI of {shown}: {problem}")
            durations = () if problem else one.durations_us
            update = {
                "cupti_us": durations,
                "cupti_problem": problem,
                "kernel_us": paired[side] if paired else (),
            }
            sides.append(taken.model_copy(update=update))
        return times.model_copy(update={"sides": tuple(sides)})

    def _records(
        self, regime: Regime, activity: KernelTimes, wanted: int
    ) -> list[list[tuple[KernelTime, ...]]]:
        """So many samples of every side as the tracer saw them, in the order A B B A A B B A."""
        found: list[list[tuple[KernelTime, ...]]] = [[] for _ in self.sides]
        until = self.clock() + TRACED_SHARE * self.policy.max_seconds
        order = [*self.sides]
        while len(found[0]) < wanted:
            if len(found[0]) >= self.policy.cupti_launches and self.clock() >= until:
                break
            for side in order:
                preceded = not self._is_slow()
                work = partial(_discard_sample, self.bench, side, regime, preceded=preceded)
                found[side].append(activity.record(work))
            order.reverse()
        return found

    def _say_what_is_missing(self, times: Sequence[RegimeTimes]) -> None:
        states = [state for one in times for state in one.blocks]
        if any(s.sm_clock_mhz is None for s in states):
            self.notices.append("the SM clock is not known: NVML is not available")
        if self.bench.driver.facts.l2_bytes <= 0:
            self.notices.append("the size of the L2 is not known: it was not written over")
        if left := self.bench.without_copy:
            names = ", ".join(left)
            self.notices.append(f"no memory for a copy of {names}: restored from the host")


def noise_pct(samples: Sequence[float]) -> float:
    """Half the spread between the quartiles, in percent of the median."""
    median = statistics.median(samples)
    if len(samples) < 2 or median <= 0:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return 100.0 * (high - low) / 2 / median


def calm(samples: Sequence[float], samples_a_block: int) -> list[float]:
    """Samples of the blocks whose median is near the least one's; see DISTURBED."""
    blocks = [samples[i : i + samples_a_block] for i in range(0, len(samples), samples_a_block)]
    most = DISTURBED * min((statistics.median(b) for b in blocks), default=0.0)
    return [us for block in blocks if statistics.median(block) <= most for us in block]


def _is_short(times: RegimeTimes) -> bool:
    """Whether what is between two launches is a part of either side's time that counts."""
    gap = times.gap_us
    return gap is not None and any(
        gap * side.launches_a_plan > SHORT_SHARE * statistics.median(side.samples_us)
        for side in times.sides
    )


def _paired(seen: Sequence[SeenKernels]) -> list[tuple[float, ...]]:
    """Durations of the samples in which every side's kernels were counted right."""
    rows = [
        tuple(us for us in row if us is not None)
        for row in zip(*(one.each_us for one in seen), strict=True)
        if None not in row
    ]
    return [tuple(row[side] for row in rows) for side in range(len(seen))]


def _watcher(ready: Sampler, watch: OutputWatch | None, sides: int) -> Watcher | None:
    if watch is None:
        return None
    return Watcher(ready.driver, ready.memory, watch, ready.written, sides, ready.clock)


def _discard_sample(ready: Sampler, side: int, regime: Regime, *, preceded: bool) -> None:
    """A sample that is taken for what a tracer sees of it."""
    ready.sample(side, regime, preceded=preceded)
