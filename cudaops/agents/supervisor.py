"""Supervisor: what an attempt was and what it teaches, and from the state of the run what happens
next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judge import mean_times_us
from cudaops.domain.judgement import Attempt, Judgement, TunedSetting, WorkloadTime
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Verdict
from cudaops.domain.rewrite import Rewrite

Next = Literal["profile", "finish"]


class Decision(NamedTuple):
    """Where to go and why."""

    next: Next
    reason: str


def decide(
    attempts: Sequence[Attempt],
    verdict: Verdict | None,
    max_iterations: int,
    out_of_time: str | None = None,
    end: PerformanceLimit | None = None,
) -> Decision:
    """Profile the incumbent for its next bottleneck, or finish.

    Finishes when the iterations or the minutes are used up or when the incumbent is at the device's
    limits. `out_of_time`: why nothing further may begin; None while there is time. `end`: why what
    the run stands on cannot be made faster.
    """
    used = len(attempts)
    if out_of_time is not None and used:
        return Decision("finish", out_of_time)
    if used >= max_iterations:
        return Decision("finish", f"{used} of {max_iterations} iterations used")
    if used == 0:
        return Decision("profile", "profile the author's kernel")
    if end is not None:
        return Decision("finish", "no candidate was faster")
    if verdict is not None and verdict.bottleneck_class == "near_peak":
        return Decision("finish", f"nothing left to gain: {verdict.summary}")
    return Decision("profile", "look for the next bottleneck of the best rewrite so far")


def attempt_of(
    evaluation: Evaluation,
    judgement: Judgement,
    iteration: int,
    configurations_tried: int = 1,
    *,
    family: str | None = None,
    settings: tuple[TunedSetting, ...] = (),
    expected_speedup: float | None = None,
) -> Attempt:
    """The attempt as it is kept: anti-context for the next one. `iteration` counts from 1."""
    rewrite = evaluation.rewrite
    decisive, profile = evaluation.decisive, evaluation.profile
    baseline_us, candidate_us = mean_times_us(decisive) if decisive else (None, None)
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
        baseline_us=baseline_us,
        candidate_us=candidate_us,
        times=tuple(
            WorkloadTime(
                workload=c.workload,
                share=c.weight,
                baseline_us=c.baseline.median_us,
                candidate_us=c.candidate.median_us,
            )
            for c in decisive
        ),
        candidate_launched_us=decisive[0].candidate.events_us if decisive else None,
        configurations_tried=configurations_tried,
        settings=settings,
        expected_speedup=expected_speedup,
        limited_by=diagnose(profile, device(profile.device)).summary if profile else "",
        lesson=lesson_of(rewrite, judgement),
    )


def lesson_of(rewrite: Rewrite, judgement: Judgement) -> str:
    """One line for the anti-context: what was tried and why it must not be tried again."""
    values = ", ".join(f"{name}={value}" for name, value in rewrite.values().items())
    tried = f"{rewrite.title} ({values})" if values else rewrite.title
    if judgement.outcome == "rejected":
        return f"do not repeat {tried}: {judgement.reason}"
    return f"{tried}: {judgement.reason}; continue from it"
