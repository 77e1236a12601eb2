"""Kernel durations as a tracer saw them, compared with what was planned; CUPTI is the tracer.

A tracer slows launches down, so it is switched on for a few launches after every other time was
taken, and off again. Where it cannot be had, a measurement says so and goes without.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol


class ActivityMissing(Exception):
    """Kernel durations cannot be recorded; `str()` says why."""


class KernelTime(NamedTuple):
    """Duration of one kernel as a tracer saw it."""

    symbol: str
    duration_us: float


class KernelTimes(Protocol):
    """Something that records the duration of every kernel that runs while it listens."""

    def record(self, work: Callable[[], None]) -> tuple[KernelTime, ...]:
        """Do the work, which ends with an idle GPU; its kernels in the order of their start.

        Raises ActivityMissing.
        """


class SeenKernels(NamedTuple):
    """Some samples of one side as a tracer saw them."""

    each_us: tuple[float | None, ...]
    """Of the last plan of each sample, all its kernels added; None where they were miscounted."""
    foreign: frozenset[str]
    """Kernels that no plan has."""
    miscounted: str
    """What was counted instead of the plan's kernels in most samples; empty where they were. A
    record that a flush did not give yet costs one sample, and no verdict."""

    @property
    def durations_us(self) -> tuple[float, ...]:
        """Of those samples whose kernels were the plan's."""
        return tuple(us for us in self.each_us if us is not None)

    def problem(self, expected: Collection[str] = ()) -> str:
        """Why these durations are not those of the plan; empty where they are.

        `expected`: kernels beside the plan's that are of the bench's own making.
        """
        others = sorted(self.foreign - set(expected))
        if others:
            return f"it recorded {others[0]} too, which the plan does not launch"
        return self.miscounted


def seen_kernels(
    samples: Sequence[Sequence[KernelTime]], symbols: Sequence[str], plans: int
) -> SeenKernels:
    """Samples of `plans` launches of a plan with kernels of these names.

    A tracer that spells every name in its own way is taken at its count: then none is foreign.
    """
    durations: list[float | None] = []
    foreign: set[str] = set()
    problems: list[str] = []
    for seen in samples:
        mine = [k for k in seen if k.symbol in symbols]
        if mine:
            foreign |= {k.symbol for k in seen} - set(symbols)
        else:
            mine = list(seen)
        if len(mine) != plans * len(symbols):
            problems.append(f"it recorded {len(mine)} kernels instead of {plans * len(symbols)}")
            durations.append(None)
            continue
        known = Counter(k.symbol for k in mine)
        if known.keys() <= set(symbols) and known != Counter(list(symbols) * plans):
            problems.append("it recorded other kernels of the plan than were launched")
            durations.append(None)
            continue
        durations.append(sum(k.duration_us for k in mine[-len(symbols) :]))
    most = len(problems) > len(samples) // 2
    return SeenKernels(tuple(durations), frozenset(foreign), problems[0] if most else "")


BUFFER_BYTES = 1 << 20
"""For activity records. A kernel's takes a few hundred bytes."""
INSTALL = "python -m pip install 'cudaops[cuda]'"
_FORCED = 1
"""Flush also what is not full yet. Source: CUPTI, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED."""


class CuptiTimes:
    """Implements `KernelTimes`. Loads CUPTI when it is first asked."""

    def __init__(self) -> None:
        self._cupti: Any = None
        self._registered = False
        self._seen: list[tuple[int, KernelTime]] = []
        self._since_ns = 0
        """What began earlier is of work before this one, whose record a flush did not give yet: of
        a rewrite with several instances it may be another kernel's."""

    def record(self, work: Callable[[], None]) -> tuple[KernelTime, ...]:
        """See `KernelTimes`."""
        cupti = self._loaded()
        kind = cupti.ActivityKind.CONCURRENT_KERNEL
        self._seen.clear()
        self._since_ns = int(self._ask(cupti.get_timestamp))
        self._ask(lambda: cupti.activity_enable(kind))
        try:
            work()
            self._ask(lambda: cupti.activity_flush_all(_FORCED))
        except BaseException:
            with contextlib.suppress(ActivityMissing):  # what happened rules
                self._ask(lambda: cupti.activity_disable(kind))
            raise
        self._ask(lambda: cupti.activity_disable(kind))
        return tuple(kernel for _, kernel in sorted(self._seen))

    def _ask(self, call: Callable[[], Any]) -> Any:
        """CUPTI says what is wrong with its own error, its loader with several: none of them may
        cost a measurement whose other times were taken."""
        try:
            return call()
        except Exception as problem:
            said = " ".join(f"{type(problem).__name__}: {problem}".split())
            raise ActivityMissing(said) from problem

    def _loaded(self) -> Any:
        if self._registered:
            return self._cupti
        try:
            from cupti import cupti
        except ImportError as problem:
            raise ActivityMissing(f"no cupti-python ({problem}); {INSTALL}") from problem
        except Exception as problem:
            raise ActivityMissing(f"cupti-python cannot be loaded: {problem}") from problem
        self._cupti = cupti
        callbacks = (_buffer_requested, self._buffer_completed)
        self._ask(lambda: cupti.activity_register_callbacks(*callbacks))
        self._registered = True
        return cupti

    def _buffer_completed(self, activities: list[Any]) -> None:
        for one in activities:
            ended = one.kind == self._cupti.ActivityKind.CONCURRENT_KERNEL and one.end > one.start
            # A forced flush also gives kernels whose end is not known yet.
            if ended and one.start >= self._since_ns:
                duration = KernelTime(str(one.name), (one.end - one.start) * 1e-3)
                self._seen.append((int(one.start), duration))


def _buffer_requested() -> tuple[int, int]:
    """Size of a new buffer, and how many records it may hold (0: as many as fit)."""
    return BUFFER_BYTES, 0
