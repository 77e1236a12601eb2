"""Review: what a person is shown before anything is accepted, and what they answer."""

from __future__ import annotations

from cudaops.domain.base import Record
from cudaops.domain.execution import TimeSource


class ReviewRequest(Record):
    """A candidate that passed every gate, or only lacks what a person may release."""

    title: str
    proposer: str
    why: str
    """The proposer's own reason."""
    outcome: str
    """What it becomes on a yes: `accepted` or `provisional`."""
    reason: str
    """Speedup, bar and interval in one line."""
    speedup: float | None
    time_source: TimeSource | None
    gates: tuple[str, ...]
    """Every gate in one line."""
    quarantined: tuple[str, ...]
    """The gates that a yes releases, each with what to look at."""
    patch: str
    """Unified diff against the author's program."""


class ReviewAnswer(Record):
    """Yes or no, and whose."""

    accept: bool
    by: str
    """Who answered: the account's name, or what a program gives."""
    note: str = ""
    """Why, in their words; kept in the certificate and told to the next attempt."""


class AwaitsReview(Exception):
    """A run stands still until somebody answers; resuming it asks again."""

    def __init__(self, request: ReviewRequest) -> None:
        super().__init__(f"{request.title} waits for a yes or no")
        self.request = request
