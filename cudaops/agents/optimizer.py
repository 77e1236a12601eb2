"""Optimizer `recipes`: the next deterministic rewrite that has not been tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cudaops.agents.tools import Toolbox
from cudaops.domain.judgement import Attempt
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.domain.search import TransformationSearch
from cudaops.domain.workload import Workload
from cudaops.mcp_servers.sandbox import Tuned
from cudaops.recipes.registry import Favour, propose


class RewriteTarget(NamedTuple):
    """What is to be rewritten."""

    program: Program
    kernel: Kernel
    workloads: tuple[Workload, ...]


def propose_next(
    subject: RewriteTarget,
    verdict: Verdict,
    attempts: Sequence[Attempt],
    favour: Favour | None = None,
    *,
    allow_reassociation: bool = False,
) -> Rewrite | None:
    """The best proposal for this verdict; None where every pattern is exhausted or none applies.

    `attempts` is the anti-context: what was tried is never proposed again. Once something was
    kept, only what relieves the new verdict is worth trying: the rest lost to it already.
    `favour`: what earlier runs' memory says. `allow_reassociation`: as in the policy.
    """
    proposals = propose(
        subject.program,
        subject.kernel,
        subject.workloads,
        verdict,
        {attempt.source_id for attempt in attempts},
        relieving_only=any(attempt.judgement.outcome != "rejected" for attempt in attempts),
        favour=favour,
        allow_reassociation=allow_reassociation,
    )
    return next(iter(proposals), None)


async def search_transformations(
    toolbox: Toolbox,
    incumbent: Rewrite | None,
    subtype: str,
    limits: tuple[int, float],
    on_progress: Say,
    only: tuple[str, ...] = (),
) -> TransformationSearch:
    """Let the sandbox look for transformations of the author's kernel, or of a rewrite; `limits`:
    most trials, most seconds; `only`: among these. The same search is made once in a session."""
    arguments: dict[str, Any] = {
        "subtype": subtype, "max_trials": limits[0], "max_seconds": limits[1], "most": 3,
    }  # fmt: skip
    if only:
        arguments["only"] = list(only)
    if incumbent is not None:
        arguments |= {"source": incumbent.source, "tuned": incumbent.values()}
    tool = "search_transformations"
    return await toolbox.call("sandbox", tool, TransformationSearch, arguments, on_progress)


async def tune_rewrite(
    toolbox: Toolbox,
    rewrite: Rewrite,
    max_trials: int,
    max_seconds: float,
    on_progress: Say,
    must_beat_us: float | None = None,
) -> Tuned:
    """Let the sandbox search the rewrite's tune values; `must_beat_us` is the incumbent's time."""
    arguments = {
        "source": rewrite.source,
        "proposer": rewrite.proposer,
        "max_trials": max_trials,
        "max_seconds": max_seconds,
        "must_beat_us": must_beat_us,
    }
    return await toolbox.call("sandbox", "tune_rewrite", Tuned, arguments, on_progress)
