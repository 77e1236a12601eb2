"""What this machine can do; each check does the thing itself."""

from __future__ import annotations

from collections.abc import Callable

from cudaops import __version__
from cudaops.doctor import gpu, launch, prerequisites, profiler, services, toolkit
from cudaops.doctor.ladder import Examination, PlannedCheck, Rung, climb, table
from cudaops.doctor.machine import Machine, ThisMachine
from cudaops.domain.options import ExecutorName
from cudaops.settings import Settings

__all__ = ["LADDER", "Examination", "Rung", "examine", "table"]

LADDER: tuple[PlannedCheck, ...] = (
    *prerequisites.STEPS,
    *gpu.STEPS,
    *toolkit.STEPS,
    *launch.STEPS,
    *profiler.STEPS,
    *services.STEPS,
)
"""From the bottom up: a check needs only checks before it."""


def examine(
    settings: Settings,
    machine: Machine | None = None,
    said: Callable[[Rung], None] = lambda rung: None,
) -> Examination:
    """Try every rung, in the order of the ladder. `said` hears of each as it is done."""
    rungs = []
    for rung in climb(LADDER, machine or ThisMachine(), settings):
        rungs.append(rung)
        said(rung)
    executors: tuple[ExecutorName, ...] = ("cpu", "cuda")
    able = tuple(
        name for name in executors if all(r.status == "ok" for r in rungs if name in r.needed_by)
    )
    return Examination(
        cudaops_version=__version__, ready="cpu" in able, executors=able, rungs=tuple(rungs)
    )
