"""What long work tells while it is at it: plain lines, and records that a line is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudaops.domain.base import Record
from cudaops.domain.judgement import Gate


class TriedConfiguration(Record):
    """A configuration of a rewrite that the tuner measured."""

    values: dict[str, int]
    """By `@tune` name."""
    time_us: float
    """Median of the most expensive workload."""
    provenance: str
    """What must stand behind the time: ` (modelled for A10)`; empty where measured."""

    @property
    def line(self) -> str:
        """Values and time in one line."""
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"tried {values}: {self.time_us:.1f} us{self.provenance}"


Progress = str | Gate | TriedConfiguration
Say = Callable[[Progress], None]
"""Is told what is going on, every gate's outcome among it."""


def line_of(progress: Progress) -> str:
    """What a person reads of it."""
    return progress if isinstance(progress, str) else progress.line


def event_data(progress: Progress) -> dict[str, Any]:
    """What an event's `data` says of it: a configuration with its time, rounded to 0.1 us, or a
    gate's outcome. Empty for a plain line."""
    match progress:
        case TriedConfiguration():
            return {"values": progress.values, "time_us": round(progress.time_us, 1)}
        case Gate():
            held = "quarantined" if progress.quarantined else "failed"
            return {"gate": progress.name, "outcome": "passed" if progress.passed else held}
    return {}
