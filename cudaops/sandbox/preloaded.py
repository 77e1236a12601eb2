"""The author's application with a rewrite in it: a library that is loaded into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.preload.library import LIBRARY, library_key, write_library
from cudaops.preload.winner import build_winner
from cudaops.storage import Facts, entry_of, make_once


def preloaded(
    program: Program,
    workloads: Sequence[Workload],
    rewrite: Rewrite,
    spliced: Program,
    cache: Path,
    sm_arch: str,
) -> Program:
    """`spliced` with the library of the rewrite, which is built for `sm_arch` and kept in `cache`.

    `program` and `workloads` are the author's and what was captured of it. Raises InputError where
    the rewrite cannot be used so, PrerequisiteError where this machine cannot make a library.
    """
    assert spliced.application is not None, "asked of applications alone"
    builder = GpuBuilder(cache, sm_arch)
    try:
        winner = build_winner(program, workloads, rewrite, builder)
    finally:
        builder.close()
    entry = entry_of(cache.absolute(), "preload", *library_key(winner))

    def make(folder: Path) -> Facts:
        write_library(winner, folder / LIBRARY)
        return {}

    make_once(entry, {}, make)
    application = spliced.application.model_copy(update={"library": str(entry.folder / LIBRARY)})
    return spliced.model_copy(update={"application": application})
