"""From records that name files to records that name contents, and back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cudaops.domain.base import Record
from cudaops.domain.execution import Captured, Measurement, Ran
from cudaops.domain.workload import Workload
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.wire import (
    Call,
    MeasurePair,
    OnWorkload,
    Pair,
    Reply,
    Run,
    RunSeries,
    SeriesRan,
)

_REFERENCE = re.compile(r"[0-9a-f]{64}")
Swap = Callable[[str], str]
"""From what stands for a file on one side to what stands for it on the other."""


def swap_inputs(inputs: InputSet, swap: Swap) -> InputSet:
    """The set with every file that it needs swapped; poisoned buffers need none."""
    files = {i: swap(p) for i, p in inputs.contents.items() if i not in inputs.poison}
    return inputs.model_copy(update={"contents": files})


def swap_workload(workload: Workload, swap: Swap, folder: str = "") -> Workload:
    """The workload with its file names swapped, in `folder`."""
    names = ("before", "after")

    def swapped(one: Record) -> Record:
        return one.model_copy(update={name: swap(getattr(one, name)) for name in names})

    return workload.model_copy(
        update={
            "folder": folder,
            "allocations": tuple(swapped(a) for a in workload.allocations),
            "globals": tuple(swapped(g) for g in workload.globals),
        }
    )


def swap_ran(ran: Ran, swap: Swap) -> Ran:
    """The outcome with its output files swapped."""
    return ran.model_copy(
        update={
            "outputs": {i: swap(p) for i, p in ran.outputs.items()},
            "global_outputs": {n: swap(p) for n, p in ran.global_outputs.items()},
        }
    )


def swap_measurement(measured: Measurement, swap: Swap) -> Measurement:
    """The measurement with the results of its timed launches swapped."""
    timing = measured.timing
    if timing is None or not timing.timed_outputs:
        return measured
    outputs = tuple(
        one.model_copy(update={"files": {i: swap(p) for i, p in one.files.items()}})
        for one in timing.timed_outputs
    )
    changed = timing.model_copy(update={"timed_outputs": outputs})
    return measured.model_copy(update={"timing": changed})


def contents_of(call: Call) -> Iterator[str]:
    """Every reference in a call. Raises ValueError where something else stands in its place."""
    for name in ("unit", "baseline", "program"):
        if hasattr(call, name):
            yield getattr(call, name)
    found: list[str] = []

    def note(reference: str) -> str:
        found.append(reference)
        return reference

    if isinstance(call, OnWorkload):
        swap_workload(call.workload, note)
    for inputs in input_sets(call):
        swap_inputs(inputs, note)
    for reference in found:
        if not _REFERENCE.fullmatch(reference):
            raise ValueError("a file is named where a SHA-256 must stand")
        yield reference


def input_sets(call: Call) -> tuple[InputSet, ...]:
    """All that a call runs on."""
    if isinstance(call, Run):
        return (call.inputs,)
    if isinstance(call, RunSeries):
        return call.series
    return call.alternatives if isinstance(call, MeasurePair) else ()


def swap_reply(reply: Reply, swap: Swap) -> Reply:
    """The reply with every file that it names swapped; a workload's by their whole path."""
    if isinstance(reply, Ran):
        return swap_ran(reply, swap)
    if isinstance(reply, SeriesRan):
        launches = tuple(swap_ran(one, swap) for one in reply.launches)
        return reply.model_copy(update={"launches": launches})
    if isinstance(reply, Measurement):
        return swap_measurement(reply, swap)
    if isinstance(reply, Pair):
        sides = {"baseline": reply.baseline, "candidate": reply.candidate}
        return reply.model_copy(
            update={name: swap_measurement(side, swap) for name, side in sides.items()}
        )
    if isinstance(reply, Captured):
        return reply.model_copy(
            update={"workloads": tuple(_by_path(one, swap) for one in reply.workloads)}
        )
    return reply


def _by_path(workload: Workload, swap: Swap) -> Workload:
    folder = Path(workload.folder)
    return swap_workload(workload, lambda name: swap(str(folder / name)))


def sha256_of(path: Path) -> str:
    """What a file's contents are called on the wire."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
