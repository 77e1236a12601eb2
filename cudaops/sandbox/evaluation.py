"""What the sandbox found out about one candidate, before anybody judges it."""

from __future__ import annotations

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Misbehaved
from cudaops.domain.judgement import Comparison, Gate, IsolationLevel
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite


class Evaluation(Record):
    """Gates and times of one candidate; `cudaops.domain.judge.judge` decides from them."""

    rewrite: Rewrite
    gates: tuple[Gate, ...]
    comparisons: tuple[Comparison, ...] = ()
    fresh: tuple[Comparison, ...] = ()
    """Measured again after every other gate had passed: what decides where time is measured."""
    judged_before: int = 0
    """Candidates of this program that were put to the decision before this one."""
    preprocessed_sha256: str | None = None
    """Of the candidate's own text after preprocessing; None where that gate was not reached."""
    isolation: IsolationLevel | None = None
    failure: CompileFailed | Misbehaved | None = None
    """What the candidate did wrong, where a gate failed because of it."""
    profile: Profile | None = None
    """Of the candidate on the most expensive workload; None where it was not timed."""
