"""Judgement: accepted, provisional or rejected, with every gate's numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved, TimeSource

GateName = Literal[
    "hygiene", "compile", "checker", "correctness_captured", "correctness_perturbed",
    "correctness_exact", "unchanged_inputs", "repeat", "physical_floor", "speedup",
    "nvcc_compile", "whole_program", "clocks",
]  # fmt: skip


class Gate(Record):
    """One check of a candidate. A gate that could not run has failed."""

    name: GateName
    passed: bool
    summary: str
    """One line a person reads: what was compared and what came out."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """Every number the outcome rests on, thresholds included, units in the names."""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """Name, outcome and summary in one line."""
        return f"{self.name} {'passed' if self.passed else 'FAILED'}: {self.summary}"


class Comparison(Record):
    """Baseline and candidate timed on one workload by the same clock."""

    workload: str
    weight: float
    """Share of the kernel's time that this workload stands for."""
    baseline: Measurement
    candidate: Measurement


class Policy(Record):
    """What a candidate must reach. Stated before the run, kept in the record."""

    min_speedup: float = 1.2
    """Baseline time over candidate time. Source: the bar of the run in seed document 000."""
    confidence: float = 0.95
    """Level of the interval whose lower end must exceed the bar, for measured times."""
    max_error_factor: float = 4.0
    """How many times the baseline's own relative L2 error against the widened run a candidate may
    have. A sum in another order stays within small factors; TF32 is ~1000 times less exact."""
    rtol_program: float = 1e-3
    """Relative tolerance on numbers the whole program prints. Source: seed document 000."""
    seed: int | None = None
    """Fixes the perturbed inputs for tests; None draws a secret seed."""


class Judgement(Record):
    """The decision about one candidate."""

    outcome: Literal["accepted", "provisional", "rejected"]
    reason: str
    """The gate that decided, in one line."""
    gates: tuple[Gate, ...]
    speedup: float | None = None
    """Weighted over workloads; None where no time was taken."""
    speedup_low: float | None = None
    """Lower end of the confidence interval; None for a modelled time, which has none."""
    speedup_high: float | None = None
    time_source: TimeSource | None = None

    def gate(self, name: GateName) -> Gate | None:
        """The gate of this name, None where an earlier one ended the judgement."""
        return next((g for g in self.gates if g.name == name), None)


class Attempt(Record):
    """One candidate that was tried, kept as anti-context for the next."""

    iteration: int
    """1-based."""
    rewrite_id: str
    """`Rewrite.id` of the configuration that was judged."""
    source_id: str
    """`Rewrite.source_id`: what must not be proposed again."""
    title: str
    proposer: str
    tuned: dict[str, int] = Field(default_factory=dict)
    judgement: Judgement
    failure: CompileFailed | Misbehaved | None = None
    baseline_us: float | None = None
    candidate_us: float | None = None
    configurations_tried: int = 1
    lesson: str
    """One line for the next attempt: what not to repeat."""
