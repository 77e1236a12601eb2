"""Supervisor: what happens next, from the state of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudaops.domain.judgement import Attempt
from cudaops.domain.profile import Verdict

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
) -> Decision:
    """Profile the incumbent for its next bottleneck, or finish.

    Finishes when the iterations or the minutes are used up or when the incumbent is at the device's
    limits. `out_of_time`: why nothing further may begin; None while there is time.
    """
    used = len(attempts)
    if out_of_time is not None and used:
        return Decision("finish", out_of_time)
    if used >= max_iterations:
        return Decision("finish", f"{used} of {max_iterations} iterations used")
    if used == 0:
        return Decision("profile", "profile the author's kernel")
    if verdict is not None and verdict.bottleneck_class == "near_peak":
        return Decision("finish", f"nothing left to gain: {verdict.summary}")
    return Decision("profile", "look for the next bottleneck of the best rewrite so far")
