"""Verify: what an attempt was, and what it teaches the next one."""

from __future__ import annotations

from cudaops.domain.judgement import Attempt, Judgement
from cudaops.domain.rewrite import Rewrite
from cudaops.sandbox.evaluation import Evaluation


def attempt_of(
    evaluation: Evaluation,
    judgement: Judgement,
    iteration: int,
    configurations_tried: int = 1,
    *,
    family: str | None = None,
) -> Attempt:
    """The attempt as it is kept: anti-context for the next one. `iteration` counts from 1."""
    rewrite = evaluation.rewrite
    timed = evaluation.timed
    return Attempt(
        iteration=iteration,
        rewrite_id=rewrite.id,
        source_id=rewrite.source_id,
        title=rewrite.title,
        proposer=rewrite.proposer,
        family=family,
        tuned=rewrite.values(),
        judgement=judgement,
        failure=evaluation.failure,
        baseline_us=timed.baseline.median_us if timed else None,
        candidate_us=timed.candidate.median_us if timed else None,
        configurations_tried=configurations_tried,
        lesson=lesson_of(rewrite, judgement),
    )


def lesson_of(rewrite: Rewrite, judgement: Judgement) -> str:
    """One line for the anti-context: what was tried and why it must not be tried again."""
    values = ", ".join(f"{name}={value}" for name, value in rewrite.values().items())
    tried = f"{rewrite.title} ({values})" if values else rewrite.title
    if judgement.outcome == "rejected":
        return f"do not repeat {tried}: {judgement.reason}"
    return f"{tried} works: {judgement.reason}; build on it"
