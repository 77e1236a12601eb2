"""The gates of every candidate, as they were reached."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.judgement import Attempt, Gate
from cudaops.domain.run import RunRecord
from cudaops.reports.content import GateRow, clock_of, gate_rows
from cudaops.reports.quantities import Clock, one_line, times_faster


class Row(NamedTuple):
    """One gate."""

    gate: GateRow
    seconds: str


class Candidate(NamedTuple):
    """One candidate's way through the gates."""

    iteration: int
    title: str
    proposer: str
    outcome: str
    speedup: str
    reason: str
    lesson: str
    isolation: str
    passed: str
    """`15 of 15 gates passed`."""
    rows: list[Row]
    failure: str
    """What the compiler or the checker printed; empty where neither complained."""
    kept: bool


class GatesView(NamedTuple):
    """Candidates in order, and the gates of a judgement that stands for none of them."""

    candidates: list[Candidate]
    alone: list[Row]
    """Of `cudaops verify`, which keeps no attempts."""


def view(record: RunRecord) -> GatesView:
    """Every gate of every candidate with its numbers."""
    candidates = [_candidate(attempt, record) for attempt in record.attempts]
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    alone = [] if candidates else _rows(gates, clock_of(record))
    return GatesView(candidates, alone)


def _candidate(attempt: Attempt, record: RunRecord) -> Candidate:
    judgement = attempt.judgement
    clock = Clock(judgement.time_source or record.time_source, record.device)
    passed = sum(gate.passed for gate in judgement.gates)
    failure = attempt.failure
    log = getattr(failure, "log", "") or (failure.placed if failure is not None else "")
    return Candidate(
        attempt.iteration,
        one_line(attempt.title, 120),
        one_line(attempt.proposer, 120),
        judgement.outcome,
        times_faster(judgement.speedup, clock),
        one_line(judgement.reason),
        one_line(attempt.lesson),
        judgement.isolation or "it never ran",
        f"{passed} of {len(judgement.gates)} gates passed",
        _rows(judgement.gates, clock),
        log,
        judgement.outcome != "rejected",
    )


def _rows(gates: tuple[Gate, ...], clock: Clock) -> list[Row]:
    seconds = [f"{g.seconds:.2f} s" if g.seconds >= 0.01 else "< 0.01 s" for g in gates]
    return [Row(row, taken) for row, taken in zip(gate_rows(gates, clock), seconds, strict=True)]
