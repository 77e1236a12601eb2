"""What a runner is told so that it looks at the results of timed launches."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from cudaops.domain.workload import Workload
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.unit import captured_inputs
from cudaops.executors.cuda.protocol import OutputWatch
from cudaops.executors.cuda.tasks import buffers_of

POISONS = range(1, 255)
"""Bytes that may fill an output before a timed launch. Not 0 and 0xFF: what programs and checks
leave there most often."""


def timed_inputs(workload: Workload, alternatives: Sequence[InputSet]) -> InputSet:
    """The captured inputs; what the alternatives say is overwritten holds a secret byte instead of
    what the program had there, which may be the right result of its launch before."""
    overwritten = alternatives[0].poison if alternatives else {}
    poison = {index: secrets.choice(POISONS) for index in overwritten}
    return captured_inputs(workload).model_copy(update={"poison": poison})


def watch_of(
    workload: Workload, alternatives: Sequence[InputSet], folder: Path | None
) -> OutputWatch | None:
    """A watch that leaves its dumps in the folder; None without one. Its seed is drawn anew."""
    if folder is None:
        return None
    return OutputWatch(
        folder=str(folder.absolute()),
        seed=secrets.randbits(62),
        alternatives=tuple(buffers_of(workload, one, widened=False) for one in alternatives),
    )
