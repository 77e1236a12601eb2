"""References that timed launches are compared with."""

from __future__ import annotations

from cudaops.sandbox.oracle import Oracle, Reference

MOST_ALTERNATIVES = 2
"""Sets of inputs beside the captured ones that are launched between samples. Each takes device
memory of the size of its inputs, and one more comparison a side."""
LARGE_BYTES = 64 * 1024**2
"""A workload that writes more has one: a comparison of so much takes seconds."""


def timed_references(oracle: Oracle) -> tuple[Reference, ...]:
    """What timed launches are compared with, in the order of `TimedOutput.inputs`: the captured
    inputs, then those of `Executor.measure_pair`'s `alternatives`.

    A set on which the baseline leaves places unwritten is none of them: what stood there before a
    timed launch is not what stood there when the reference was made.
    """
    written = sum(a.size_bytes for a in oracle.workload.allocations if a.role != "in")
    alternatives = MOST_ALTERNATIVES if written <= LARGE_BYTES else 1
    whole = [one for one in oracle.perturbed if not one.unwritten]
    return (oracle.captured, *whole[:alternatives])
