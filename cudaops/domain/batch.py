"""A batch: programs that are jobs of one service, and one table of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from cudaops.domain.base import Record
from cudaops.domain.execution import TimeSource
from cudaops.domain.run import Outcome, RunRecord

RowStatus = Literal["queued", "running", "ended"]
RowOutcome = Literal[Outcome, "wrong_input", "cancelled"]
"""`wrong_input`: the program, or what was asked for it, is wrong: it does not compile, has no
kernel. `failed`: it could not be done for what broke, which is no fault of the program."""

BROKEN: frozenset[RowOutcome] = frozenset({"failed", "cancelled"})
"""Outcomes that say nothing of the program."""


class BatchRow(Record):
    """One program of a batch, and its result."""

    program: str
    """Its file, as it was named."""
    kernel: str | None = None
    """As asked for; the one that was worked on where a run got as far as that."""
    job: UUID | None = None
    """Null where it was wrong before there was a job of it."""
    status: RowStatus = "queued"
    outcome: RowOutcome | None = None
    """Null until it has ended."""
    reason: str = ""
    """Why it ended so, in one line."""
    speedup: float | None = None
    """Of what was accepted or is provisional; null otherwise."""
    speedup_low: float | None = None
    """Lower end of the interval: `Judgement.speedup_low`."""
    speedup_high: float | None = None
    """Upper end; null also where there are too few samples to bound it."""
    time_source: TimeSource | None = None
    """Where the times behind the speedup come from."""
    device: str | None = None
    """Whose times they are."""
    report: str | None = None
    """Where its report for people is, seen from the batch; null where there is none."""


class Batch(Record):
    """Programs with their results so far, in the order in which they were given."""

    id: UUID
    created_at: datetime
    counts: dict[RowOutcome | RowStatus, int]
    """Rows by outcome, those that have not ended by status; what none has is left out."""
    rows: tuple[BatchRow, ...]

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return all(row.status == "ended" for row in self.rows)

    @property
    def broken(self) -> int:
        """How many ended for what is no fault of the program."""
        return sum(row.outcome in BROKEN for row in self.rows)


def batch_of(id: UUID, created_at: datetime, rows: Iterable[BatchRow]) -> Batch:
    """The batch with these rows, counted."""
    given = tuple(rows)
    return Batch(
        id=id,
        created_at=created_at,
        counts=dict(Counter(row.outcome or row.status for row in given)),
        rows=given,
    )


def figures_of(record: RunRecord) -> dict[str, Any]:
    """What a row says of a finished run, by the row's fields."""
    found: dict[str, Any] = {
        "kernel": record.program.kernel if record.program else record.options.kernel,
        "outcome": record.outcome,
        "reason": record.reason,
    }
    if record.outcome in ("accepted", "provisional"):
        found |= {
            "speedup": record.verify.speedup,
            "speedup_low": record.judgement.speedup_low if record.judgement else None,
            "speedup_high": record.judgement.speedup_high if record.judgement else None,
            "time_source": record.time_source,
            "device": record.device,
        }
    return found
