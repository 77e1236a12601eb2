"""Kernel durations from CUPTI's activity records, through NVIDIA's `cupti-python`.

A tracer slows launches down, so it is switched on for a few launches after every other time was
taken, and off again. Where it cannot be had, a measurement says so and goes without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from cudaops.executors.cuda.runner.tracing import ActivityMissing, KernelTime

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

    def record(self, work: Callable[[], None]) -> tuple[KernelTime, ...]:
        """See `KernelTimes`."""
        cupti = self._loaded()
        kind = cupti.ActivityKind.CONCURRENT_KERNEL
        self._seen.clear()
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

    def _ask(self, call: Callable[[], Any]) -> None:
        """CUPTI says what is wrong with its own error, its loader with several: none of them may
        cost a measurement whose other times were taken."""
        try:
            call()
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
            if ended:  # a forced flush also gives kernels whose end is not known yet
                duration = KernelTime(str(one.name), (one.end - one.start) * 1e-3)
                self._seen.append((int(one.start), duration))


def _buffer_requested() -> tuple[int, int]:
    """Size of a new buffer, and how many records it may hold (0: as many as fit)."""
    return BUFFER_BYTES, 0
