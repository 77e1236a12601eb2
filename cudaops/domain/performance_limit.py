"""Where there is nothing to gain: what shows it of a kernel, and who else does its work."""

from __future__ import annotations

from typing import Literal

from cudaops.domain.base import Record

PerformanceLimitKind = Literal["roofline", "launch_bound", "atomic_order"]
"""`roofline`: within 10 % of what the device needs for arithmetic and bytes. `launch_bound`: as
short as a launch. `atomic_order`: limited by atomics whose order its results hold."""


class PerformanceLimit(Record):
    """Why a kernel cannot be made faster, as far as the record shows it."""

    kind: PerformanceLimitKind
    says: str
    """One sentence with the numbers and where they come from."""
    numbers: dict[str, float]
    """What it rests on, units in the names."""


class Library(Record):
    """A library's function that does the whole job of a kernel."""

    name: str
    """`cublasSgemm of cuBLAS`."""
    job: str
    """What the kernel was understood to do: `a matrix product (NN)`."""
    time_ms: float | None = None
    """Of one call on the most expensive workload, by the record's `time_source`; None: not
    timed."""
    l2_regime: Literal["cold", "warm"] | None = None
    """State of the L2 in which it was timed: that in which the program runs the kernel."""
    difference: float | None = None
    """Relative L2 error of its result against what the author's kernel left."""
    not_timed: str = ""
    """Why it was not timed although there is a GPU, in one line."""
