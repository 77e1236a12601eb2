"""Who writes candidates: a model, or nobody but the recipes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.judgement import Attempt
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import ResearchFindings
from cudaops.domain.search import Branch
from cudaops.domain.workload import Workload


class RunView(NamedTuple):
    """The state of a run as those who propose see it."""

    program: Program
    kernel: Kernel
    workloads: tuple[Workload, ...]
    profile: Profile
    """Of the incumbent; of the author's kernel where there is none."""
    verdict: Verdict
    """On `profile`."""
    research: ResearchFindings | None
    incumbent: Rewrite | None
    attempts: tuple[Attempt, ...]
    """Everything judged so far: anti-context."""
    explored: tuple[Branch, ...] = ()
    """Branches of the search under way: anti-context too."""
    sources: tuple[tuple[str, str], ...] = ()
    """Label (`attempt 2`) and text of every rewrite so far: none is written twice."""
    bar: float = 1.0
    """Speedup over the author's kernel from which on a rewrite is kept."""
    author: Profile | None = None
    """Of the author's kernel; None: `profile` is."""
    refused: Profile | None = None
    """Of the newest candidate, where it was not kept and was timed."""
    waiting: tuple[Hypothesis, ...] = ()
    """Planned before the newest candidate was judged, and not written yet."""


class Plan(NamedTuple):
    """What a developer names as worth trying."""

    hypotheses: tuple[Hypothesis, ...]
    """Most promising first."""
    nothing: str = ""
    """Why nothing is, in its own words; empty where it did not say so."""


class Written(NamedTuple):
    """Result of one hypothesis."""

    rewrite: Rewrite | None
    """None where no usable answer came within the limits."""
    family: str
    problem: str | None = None
    """Why there is no rewrite, in one line; also what its compiler still says, where it does not
    compile after the last fix."""


class Developer(Protocol):
    """Proposes and writes candidates. A model that is out of reach or out of money raises
    `cudaops.errors.ModelUnavailable`: recipes go on then."""

    async def plan(self, view: RunView, wanted: int, scope: str) -> Plan:
        """Up to `wanted` hypotheses, most promising first, of different families where it can.

        `scope` names iteration and branch in the journal of calls: `01`, `02/b3`.
        """

    async def write(
        self,
        view: RunView,
        hypothesis: Hypothesis,
        scope: str,
        parents: tuple[Rewrite, ...] = (),
    ) -> Written:
        """One rewrite of one hypothesis, compiled and fixed within bounds.

        `parents`: one rewrite to improve, or two to join; none: from the incumbent or the author's
        kernel.
        """
