"""The gate of physics: nothing is faster than its work over what the device can do."""

from __future__ import annotations

import time

from cudaops.cuda.devices import Device, device
from cudaops.cuda.roofline import dram_bytes, least_us
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.profile import Profile
from cudaops.domain.workload import Workload

TOLERANCE = 0.95
"""A time may undercut the physical floor by this factor before it is called impossible: boost
clocks exceed the published ones by a few percent."""


def floor_gate(
    profile: Profile | Misbehaved | CompileFailed | None,
    comparison: Comparison,
    workload: Workload,
) -> Gate:
    """Operations over the peak, or bytes over the bandwidth, whichever takes longer.

    Bytes that fit in L2 may stay there between two launches, so only what exceeds it counts. A
    kernel whose work is not known fails.
    """
    started = time.monotonic()
    if not isinstance(profile, Profile):
        why = "it was not profiled" if profile is None else profile.placed
        return _gate(started, False, f"no counts to compute the floor from: {why}", {})
    where = device(comparison.candidate.device)
    moved = dram_bytes(profile)
    buffers = sum(a.size_bytes for a in workload.allocations)
    cold_bytes = max(0.0, min(moved or 0.0, buffers) - where.l2_bytes)
    boost = _boost(comparison.candidate, where)
    floor_us = None if moved is None else least_us(profile, where, cold_bytes, boost)
    if floor_us is None:
        return _gate(started, False, "flops or bytes of the kernel are unknown", {})
    taken = comparison.candidate.median_us
    text = f"{taken:.1f} us against a floor of {floor_us:.1f} us{comparison.candidate.provenance}"
    numbers = {"candidate_us": taken, "floor_us": floor_us}
    return _gate(started, taken >= floor_us * TOLERANCE, text, numbers)


def _boost(measured: Measurement, where: Device) -> float:
    """How far above the published clock the SMs ran meanwhile; many cards do, by 10 % and more."""
    seen = measured.timing.sm_clock_mhz if measured.timing is not None else ()
    return max([1.0, *(clock / where.sm_clock_mhz for clock in seen)])


def _gate(started: float, passed: bool, summary: str, numbers: dict[str, float]) -> Gate:
    return Gate(
        name="physical_floor",
        passed=passed,
        summary=summary,
        numbers=numbers,
        seconds=time.monotonic() - started,
    )
