"""From a finished run's folder to its library."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.preload.hooks import check_platform
from cudaops.preload.library import write_library
from cudaops.preload.winner import build_winner, capability_of
from cudaops.sandbox.bench_state import read_state


class Preloaded(NamedTuple):
    """A library that was written."""

    callees: tuple[str, ...]
    """Instances of the author's kernel that it replaces."""
    title: str
    """Of the rewrite."""
    sm_arch: str
    notices: tuple[str, ...]


def preload_run(
    folder: Path, record: RunRecord, out: Path, sm_arch: str | None, builds: Path
) -> Preloaded:
    """Write the library of a run's rewrite.

    Args:
        folder: Of the run.
        record: What it found.
        out: The file to write.
        sm_arch: `sm_90`; None: what the run measured on.
        builds: Folder of compiled things.

    Raises InputError where the run kept no rewrite or names no GPU, or the rewrite cannot be used
    so; PrerequisiteError where this machine cannot make it.
    """
    if record.best is None:
        raise InputError(f"{folder} kept no rewrite ({record.outcome}: {record.reason})")
    arch = sm_arch or (record.sm_arch if record.executor == "cuda" else None)
    if arch is None:
        raise InputError(
            "the run was on the processor; say which GPU the library is for, as --arch sm_90"
        )
    capability_of(arch)
    check_platform()
    if not (folder / "state").is_dir():
        raise InputError(
            f"{folder} holds the record alone, not the captured program (state/); use the folder "
            "where the run was made"
        )
    program, captured, _ = read_state(folder)
    builder = GpuBuilder(builds, arch)
    try:
        winner = build_winner(program, captured.workloads, record.best, builder)
    finally:
        builder.close()
    write_library(winner, out)
    return Preloaded(
        callees=tuple(one.callee for one in winner.instances),
        title=record.best.title,
        sm_arch=winner.sm_arch,
        notices=_notices(record),
    )


def _notices(record: RunRecord) -> tuple[str, ...]:
    if record.outcome == "accepted":
        return ()
    return (f"the rewrite is {record.outcome}, not accepted: {record.reason}",)
