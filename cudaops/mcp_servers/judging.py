"""Judging a rewrite of the open program: the gates, the decision, and that it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Misbehaved
from cudaops.domain.judgement import Judgement
from cudaops.domain.progress import Say
from cudaops.domain.rewrite import Rewrite
from cudaops.mcp_servers.progress import Level
from cudaops.mcp_servers.session import Decision, Opened
from cudaops.sandbox.evaluate import evaluate
from cudaops.sandbox.evaluation import Evaluation

MinSpeedup = Annotated[
    float | None, Field(gt=0, description="Bar; null keeps the run's. It can only be raised.")
]


Everything = Annotated[
    bool,
    Field(
        description="Also every sample, the candidate's profile and all the gates saw: up to some "
        "hundred thousand characters, more than a host shows its model."
    ),
]


class Judged(Record):
    """The decision about a rewrite and what it rests on."""

    rewrite_id: str
    """What `accept_rewrite` knows the rewrite by, with these tune values."""
    judgement: Judgement
    baseline_us: float | None = None
    """Median time of the author's kernel on its most expensive workload; None: none was taken."""
    candidate_us: float | None = None
    """The rewrite's on the same."""
    provenance: str = ""
    """What must stand behind each time: ` (modelled for A10)`."""
    failure: CompileFailed | Misbehaved | None = None
    """What the rewrite did wrong, where a gate failed because of it."""
    evaluation: Evaluation | None = None
    """All of it, where `everything` was asked for."""


def judged(
    opened: Opened,
    rewrite: Rewrite,
    min_speedup: float | None,
    say: Say,
    note: Callable[[Level, str], None],
    *,
    everything: bool,
) -> Judged:
    """Evaluate and decide, and keep the decision. The bar can be raised by a client, never
    lowered."""
    bench, decided = opened
    policy = bench.policy
    if min_speedup is not None:
        policy = policy.model_copy(update={"min_speedup": max(min_speedup, policy.min_speedup)})
    evaluation = evaluate(bench, rewrite, policy.min_speedup, say)
    # Where a person is to decide, that comes after this.
    unreviewed = policy.model_copy(update={"review": False})
    judgement = evaluation.judged(unreviewed)
    decided[rewrite.id] = Decision(evaluation, judgement)
    note("info", f"{rewrite.title}: {judgement.outcome}, {judgement.reason}")
    timed = evaluation.timed
    return Judged(
        rewrite_id=rewrite.id,
        judgement=judgement,
        baseline_us=timed.baseline.median_us if timed else None,
        candidate_us=timed.candidate.median_us if timed else None,
        provenance=timed.candidate.provenance if timed else "",
        failure=evaluation.failure,
        evaluation=evaluation if everything else None,
    )
