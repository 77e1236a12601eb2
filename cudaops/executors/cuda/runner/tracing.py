"""What a tracer saw of the kernels of a sample, held against what was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol


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

    durations_us: tuple[float, ...]
    """Of the last plan of each sample, all its kernels added."""
    foreign: frozenset[str]
    """Kernels that no plan has."""
    miscounted: str
    """What was counted instead of the plan's kernels in most samples; empty where they were. A
    record that a flush did not give yet costs one sample, and no verdict."""

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
    durations: list[float] = []
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
            continue
        known = Counter(k.symbol for k in mine)
        if known.keys() <= set(symbols) and known != Counter(list(symbols) * plans):
            problems.append("it recorded other kernels of the plan than were launched")
            continue
        durations.append(sum(k.duration_us for k in mine[-len(symbols) :]))
    most = len(problems) > len(samples) // 2
    return SeenKernels(tuple(durations), frozenset(foreign), problems[0] if most else "")
