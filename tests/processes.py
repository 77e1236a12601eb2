"""Processes of ours that a test looks for."""

from __future__ import annotations

import psutil

_RUNNER = "cudaops.executors.cuda.runner"


def runners() -> set[int]:
    """Runners of a GPU's executor, or of its stand-in's, under this process."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if _RUNNER in process.cmdline():
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
