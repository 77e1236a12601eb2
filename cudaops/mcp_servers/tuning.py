"""Tuning a rewrite: the tuner over this bench, and what comes of it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, ParamSpec, TypeVar

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PlanError
from cudaops.recipes.registry import refusal, seeds
from cudaops.recipes.tuner import Trial, tune
from cudaops.sandbox.evaluate import Say
from cudaops.sandbox.stopping import raise_if_stopped
from cudaops.sandbox.workbench import Workbench

FINALISTS = 3
"""Drafts that are built and timed again by the compiler that has the last word."""
TUNER_WORKERS = 2
"""Compiles of two configurations overlap; more would only queue on a two-core machine."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TrialResult(Record):
    """One configuration the tuner tried."""

    values: dict[str, int]
    time_us: float | None
    failure: str | None


class Tuned(Record):
    """The tuner's result."""

    best: dict[str, int] | None
    """None where no configuration compiled and ran."""
    time_us: float | None
    stopped: str
    """Why it ended: `no neighbour is better`, `trials`, `seconds`, `far behind`."""
    trials: tuple[TrialResult, ...]


class Limits(NamedTuple):
    """When a search ends."""

    max_trials: int
    max_seconds: float
    must_beat_us: float | None


def tune_values(bench: Workbench, rewrite: Rewrite, limits: Limits, say: Say) -> Tuned:
    """Search the @tune values by time on the most expensive workload."""
    workload = bench.workloads[0]

    def trial(candidate: Rewrite) -> Trial:
        raise_if_stopped()
        try:
            measured = bench.measure(candidate, workload, draft=True)
        except PlanError as error:
            return Trial(candidate.values(), None, f"launch plan: {error}")
        if isinstance(measured, Measurement):
            values = ", ".join(f"{name}={value}" for name, value in candidate.values().items())
            say(f"tried {values}: {measured.median_us:.1f} us{measured.provenance}")
            return Trial(candidate.values(), measured.median_us, None)
        assert isinstance(measured, Misbehaved | CompileFailed)
        return Trial(candidate.values(), None, measured.message)

    found = tune(
        rewrite,
        _here(trial),
        feasible=lambda candidate: refusal(candidate, bench.kernel, bench.workloads),
        max_trials=limits.max_trials,
        workers=TUNER_WORKERS,
        max_seconds=limits.max_seconds,
        must_beat_us=limits.must_beat_us,
        seeds=seeds(rewrite),
    )
    best, best_us = found.best, found.best_us
    if bench.executor.name != "cpu" and found.stopped != "far behind":
        best, best_us = _by_final_compiler(bench, rewrite, found.trials, say)
    return Tuned(
        best=None if best is None else best.values(),
        time_us=best_us,
        stopped=found.stopped,
        trials=tuple(
            TrialResult(values=dict(t.values), time_us=t.time_us, failure=t.failure)
            for t in found.trials
        ),
    )


def _by_final_compiler(
    bench: Workbench, rewrite: Rewrite, trials: Sequence[Trial], say: Say
) -> tuple[Rewrite | None, float | None]:
    """The best of the best drafts by what will be judged: NVRTC and nvcc allocate registers
    differently, so the order of a search may not survive."""
    timed = [(t.time_us, t.values) for t in trials if t.time_us is not None]
    ranked = sorted(timed, key=lambda pair: pair[0])[:FINALISTS]
    finalists = [rewrite.tuned_with(dict(values)) for _, values in ranked]
    best: tuple[Rewrite | None, float | None] = (None, None)
    with ThreadPoolExecutor(max_workers=FINALISTS) as pool:
        list(pool.map(_here(bench.compile), finalists))
    for candidate in finalists:
        measured = bench.measure(candidate, bench.workloads[0])
        if isinstance(measured, Measurement) and (best[1] is None or measured.median_us < best[1]):
            best = (candidate, measured.median_us)
            say(f"built by nvcc, {measured.median_us:.1f} us{measured.provenance}")
    return best


def _here(body: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same in a thread of a pool, which does not know by itself whose work it does."""
    context = contextvars.copy_context()

    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return context.copy().run(body, *args, **kwargs)

    return run
