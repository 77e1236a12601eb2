"""What the doctor says: rungs, and what one check found."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cudaops.domain.base import Record

Status = Literal["ok", "missing", "failed", "skipped"]
ExecutorName = Literal["cpu", "cuda"]


class Rung(Record):
    """One thing a machine can or cannot do."""

    name: str
    needed: bool
    """True: `cudaops run` cannot work without it. False: it works, with less."""
    needed_by: tuple[ExecutorName, ...] = ()
    """Executors that cannot work without it."""
    status: Status
    """`missing`: not there. `failed`: there, and it does not work, or not as it should. `skipped`:
    not tried, because a rung below it is not ok."""
    detail: str
    remedy: str | None = None
    """What to type or change; None where nothing needs to be."""
    blocked_by: tuple[str, ...] = ()
    """Of a skipped rung: the rungs to mend first."""
    seconds: float = 0.0


class Examination(Record):
    """All rungs of this machine."""

    cudaops_version: str
    ready: bool
    """Whether everything that `cudaops run` needs is there, on the cpu executor."""
    executors: tuple[ExecutorName, ...] = ()
    """Executors that have everything they need."""
    rungs: tuple[Rung, ...]


class Finding(NamedTuple):
    """What one check found."""

    status: Status
    detail: str
    remedy: str | None = None


def ok(detail: str) -> Finding:
    """It works."""
    return Finding("ok", detail)


def missing(detail: str, remedy: str | None = None) -> Finding:
    """It is not there."""
    return Finding("missing", detail, remedy)


def failed(detail: str, remedy: str | None = None) -> Finding:
    """It is there, and it does not work, or not as it should."""
    return Finding("failed", detail, remedy)
