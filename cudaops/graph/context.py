"""What nodes use but state does not hold: services, given to the graph at each invocation; and the
state as those who propose see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudaops.agents.developer import Developer, RunView
from cudaops.domain.judgement import Attempt
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import ResearchFindings, RunOptions
from cudaops.domain.search import Branch
from cudaops.graph.events import EventLog
from cudaops.graph.folder import CANDIDATE, iteration_folder
from cudaops.graph.state import State
from cudaops.memory.run_memory import RunMemory
from cudaops.sandbox.workbench import Workbench

if TYPE_CHECKING:
    from cudaops.agents.tools import Toolbox

SEARCH_TRIALS = 10
SEARCH_SECONDS = 2.5
"""How much more a search over transformations may take than the tune values of one rewrite. Chosen:
a round over all transformations is some 40 trials, which take half a second each where times are
measured, and two to three rounds bring what there is."""

IMPROVEMENT = 1.02
"""A later rewrite must beat the incumbent by this factor. Chosen: two runs of one kernel differ
by less."""


PROBES = 12
"""Trials of a search where the author's kernel is at its limit from the start. Chosen: the first
settings of the transformations that are remedies; what is there shows in them."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Services of one run."""

    options: RunOptions
    bench: Workbench
    toolbox: Toolbox
    events: EventLog
    developer: Developer | None = None
    """Who writes candidates beside the recipes; None without a model."""
    memory: RunMemory | None = None
    """What earlier runs learnt; None where nobody looks."""
    deadline: float = float("inf")
    """By `time.monotonic`: nothing further begins after it. Infinite without a budget."""
    interrupted: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop: no further stage begins then."""
    keep: Callable[[State], None] = lambda state: None
    """Writes the results of a state that stands, so that whatever ends the run leaves them."""
    max_tune_seconds: float = 30.0
    """Time the tuner may take for one rewrite."""

    @property
    def search_limits(self) -> tuple[int, float]:
        """Trials and seconds that a search over transformations may take: some times what one
        rewrite's tune values may, and no more than is left."""
        trials = SEARCH_TRIALS * self.options.max_trials
        seconds = SEARCH_SECONDS * self.max_tune_seconds
        return trials, max(1.0, min(seconds, self.deadline - time.monotonic()))

    def out_of_time(self) -> str | None:
        """Why no further stage may begin: `--budget-minutes` are over. None while there is time."""
        if time.monotonic() < self.deadline:
            return None
        return f"the budget of {self.options.budget_minutes:g} minutes is used up"


def end_of_state(state: State) -> PerformanceLimit | None:
    """Why what the run stands on cannot be made faster; None where it may be."""
    raw = state.get("end")
    return PerformanceLimit.model_validate(raw) if raw else None


def why_nothing(state: State) -> str:
    """Why a run kept nothing, in one sentence."""
    reason, end = state.get("reason", "no attempt was made"), end_of_state(state)
    if end is None:
        return f"no rewrite reached the threshold: {reason}"
    order = end.kind == "atomic_order"
    return f"{'order of atomics' if order else 'nothing to gain'}: {end.says}; {reason}"


def attempts_of(state: State) -> tuple[Attempt, ...]:
    """The attempts so far as records."""
    return tuple(Attempt.model_validate(a) for a in state.get("attempts", []))


def incumbent_of(state: State) -> Rewrite | None:
    """The best rewrite so far; None while the baseline leads."""
    incumbent = state.get("incumbent")
    return Rewrite.model_validate(incumbent["rewrite"]) if incumbent else None


def kept_us(state: State) -> float | None:
    """Time of the best rewrite so far on the most expensive workload, by the clock that times
    rewrites in a search; None while the baseline leads."""
    kept = [a for a in attempts_of(state) if a.judgement.outcome != "rejected"]
    if not kept:
        return None
    best = kept[-1]
    return best.candidate_launched_us or next(
        (time.candidate_us for time in best.times), best.candidate_us
    )


def speedup_of(state: State) -> float:
    """How much faster than the author's kernel the best rewrite is; 1 while there is none."""
    incumbent = state.get("incumbent")
    return float(incumbent["judgement"]["speedup"]) if incumbent else 1.0


def bar_of(state: State, context: Context) -> float:
    """The speedup over the baseline that the proposal must reach: the user's, or the incumbent's
    and a little more."""
    bar = context.options.policy.min_speedup
    return max(bar, speedup_of(state) * IMPROVEMENT) if state.get("incumbent") else bar


def view_of(state: State, context: Context, explored: Iterable[Branch] = ()) -> RunView:
    """What a developer is shown. `explored`: branches of the search under way."""
    bench = context.bench
    attempts, branches = attempts_of(state), tuple(explored)
    research = state.get("research")
    written = [(f"branch {b.id}", b.rewrite.source) for b in branches if b.rewrite is not None]
    return RunView(
        program=bench.program,
        kernel=bench.kernel,
        workloads=bench.workloads,
        profile=Profile.model_validate(state["profile"]),
        verdict=Verdict.model_validate(state["verdict"]),
        research=ResearchFindings.model_validate(research) if research else None,
        incumbent=incumbent_of(state),
        attempts=attempts,
        explored=branches,
        sources=(*_sources(bench.folder, attempts), *written),
        bar=bar_of(state, context),
        author=Profile.model_validate(state["baseline_profile"]),
        refused=_refused(state, attempts),
    )


def _refused(state: State, attempts: tuple[Attempt, ...]) -> Profile | None:
    """The newest candidate's profile, where it was not kept and has one."""
    if not attempts or attempts[-1].judgement.outcome != "rejected":
        return None
    raw = state.get("evaluation", {}).get("profile")
    return Profile.model_validate(raw) if raw else None


def _sources(folder: Path, attempts: tuple[Attempt, ...]) -> tuple[tuple[str, str], ...]:
    """Label and text of every candidate that was judged, from the run folder."""
    return tuple(
        (
            f"attempt {attempt.iteration}",
            (iteration_folder(folder, attempt.iteration) / CANDIDATE).read_text("utf-8"),
        )
        for attempt in attempts
    )
