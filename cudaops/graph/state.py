"""State of the graph: plain JSON, so that any checkpointer can keep it."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

Json = dict[str, Any]


def add_seconds(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """Reducer: seconds by stage add up over iterations."""
    return {stage: old.get(stage, 0.0) + new.get(stage, 0.0) for stage in (*old, *new)}


class State(TypedDict, total=False):
    """Shared state of one run; every value is a record dumped to JSON."""

    decision: str
    """`profile` or `finish`: what the supervisor decided."""
    reason: str
    """Why the run went where it went last, in one sentence."""
    profile: Json
    """Profile of the incumbent."""
    verdict: Json
    """Verdict on the incumbent."""
    baseline_profile: Json
    baseline_verdict: Json
    end: Json | None
    """Why the incumbent, or the author's kernel, cannot be made faster; None where it may be."""
    research: Json
    """What the knowledge base says about `verdict`."""
    digests: dict[str, str]
    """What a model made of the passages, by verdict and passages: asked once for each."""
    baseline_research: Json
    hypotheses: list[Json]
    """What a model planned for `verdict` and nobody has written yet, most promising first."""
    planned_at: int
    """Candidates that had been judged when `hypotheses` were planned: after another one they are
    planned anew."""
    hypothesis: Json | None
    """The one that `proposal` follows; None for a recipe's."""
    nothing_left: str
    """Why the planner said that nothing more is worth trying, while what leads is polished."""
    mends: int
    """How often the present hypothesis was sent back after a gate."""
    model_out: str | None
    """Why the model is not asked any more, for the rest of the run; None where it is."""
    proposal: Json | None
    """Rewrite under test; None where the optimizer has nothing left to propose."""
    trials: list[Json]
    """What the tuner tried for the proposal; empty where there was nothing to tune."""
    evaluation: Json
    judgement: Json
    attempts: Annotated[list[Json], operator.add]
    """Anti-context: every candidate with its reason; append-only."""
    incumbent: Json | None
    """Best rewrite so far with its judgement and the iteration that found it."""
    search: Json
    """The search under way (`graph.branches.Search`); absent where the strategy is greedy."""
    explored: Annotated[list[Json], operator.add]
    """Every branch of every search (`graph.branches.Explored`); append-only."""
    transformations: Annotated[list[Json], operator.add]
    """Every search over transformations (`domain.search.SearchSummary`); append-only."""
    task: Json
    """What one branch is to do (`graph.branches.Task`); only in what that branch is sent."""
    notices: Annotated[list[str], operator.add]
    seconds_by_stage: Annotated[dict[str, float], add_seconds]
