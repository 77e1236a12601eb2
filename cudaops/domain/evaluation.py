"""What the sandbox found out about one candidate, before anybody judges it."""

from __future__ import annotations

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Misbehaved
from cudaops.domain.judge import judge
from cudaops.domain.judgement import (
    Comparison,
    Gate,
    IsolationLevel,
    Judgement,
    Policy,
    Qualification,
)
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
    referenced: bool = False
    """Whether a reference in Python says what is right."""
    qualification: Qualification | None = None
    """What this program's oracle can see; None where the candidate did not get that far."""
    failure: CompileFailed | Misbehaved | None = None
    """What the candidate did wrong, where a gate failed because of it."""
    profile: Profile | None = None
    """Of the candidate on the most expensive workload; None where it was not timed."""

    @property
    def decisive(self) -> tuple[Comparison, ...]:
        """The times that a judgement rests on: the fresh ones where there are any."""
        return self.fresh or self.comparisons

    @property
    def timed(self) -> Comparison | None:
        """Of those the one on the most expensive workload; None where no time was measured."""
        return next(iter(self.decisive), None)

    def judged(self, policy: Policy, *, released: bool = False) -> Judgement:
        """What `judge` says of it. `released`: as if a person had released what is quarantined."""
        return judge(
            self.gates,
            self.comparisons,
            policy,
            fresh=self.fresh,
            judged_before=self.judged_before,
            released=released,
            isolation=self.isolation,
            referenced=self.referenced,
        )
