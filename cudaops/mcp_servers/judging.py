"""Judging a rewrite of the open program: the gates, the decision, and that it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.judgement import Judgement
from cudaops.domain.rewrite import Rewrite
from cudaops.mcp_servers.progress import Level
from cudaops.mcp_servers.session import Decision, Opened
from cudaops.sandbox.evaluate import Say, evaluate
from cudaops.sandbox.evaluation import Evaluation

MinSpeedup = Annotated[
    float | None, Field(gt=0, description="Bar; null keeps the run's. It can only be raised.")
]


class Judged(Record):
    """Evaluation and the judgement drawn from it."""

    rewrite_id: str = ""
    """What `accept_rewrite` knows the rewrite by, with these tune values."""
    evaluation: Evaluation
    judgement: Judgement


def judged(
    opened: Opened,
    rewrite: Rewrite,
    min_speedup: float | None,
    say: Say,
    note: Callable[[Level, str], None],
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
    return Judged(rewrite_id=rewrite.id, evaluation=evaluation, judgement=judgement)
