"""The gate of physics: nothing is faster than its work over what the device can do."""

from __future__ import annotations

import time

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import Device, device
from cudaops.cuda.roofline import dram_bytes, least_us
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.profile import Profile
from cudaops.domain.workload import Workload
from cudaops.timemodel.launch import REMEDY

TOLERANCE = 0.95
"""A time may undercut the physical floor by this factor before it is called impossible: boost
clocks exceed the published ones by a few percent."""


def floor_gate(
    profile: Profile | Misbehaved | CompileFailed | None,
    comparison: Comparison,
    workload: Workload,
) -> Gate:
    """Operations over the peak, or bytes over the bandwidth, whichever takes longer.

    Where the time is of warm launches, bytes that fit in L2 may have stayed there from the launch
    before, so only what exceeds it counts. Of cold ones all that is read comes from memory. A
    kernel whose work is not known fails.

    A modelled time below the floor is a failed measurement: both are the model's own, so that it
    has contradicted itself. The gate fails and says so.
    """
    started = time.monotonic()
    if not isinstance(profile, Profile):
        why = "it was not profiled" if profile is None else profile.placed
        return _gate(started, False, f"no counts for the roofline minimum: {why}", {})
    where = device(comparison.candidate.device)
    least_bytes = _least_bytes(profile, comparison.candidate, workload, where)
    boost = _boost(comparison.candidate, where)
    floor_us = None if least_bytes is None else least_us(profile, where, least_bytes, boost)
    if floor_us is None:
        return _gate(started, False, "flops or bytes of the kernel are unknown", {})
    taken = comparison.candidate.median_us
    text = f"{taken:.1f} us, roofline minimum {floor_us:.1f} us{comparison.candidate.provenance}"
    numbers = {"candidate_us": taken, "floor_us": floor_us}
    passed = taken >= floor_us * TOLERANCE
    if not passed and comparison.candidate.source == "modelled":
        text = (
            f"not measured: the time model is below its own roofline for {profile.kernel}: {text}"
        )
        text += f"; {REMEDY}"
    return _gate(started, passed, text, numbers)


def _least_bytes(
    profile: Profile, measured: Measurement, workload: Workload, where: Device
) -> float | None:
    """Bytes that every launch timed had to move to or from memory; None where not known."""
    moved = dram_bytes(profile)
    if moved is None:
        return None
    buffers = workload.size_bytes
    beyond_l2 = max(0.0, min(moved, buffers) - where.l2_bytes)
    read = profile.get(ncu.DRAM_READ_BYTES)
    timing = measured.timing
    # Of several kernels, a later one may find in L2 what an earlier one left there.
    if timing is None or timing.regime == "warm" or timing.launches_a_plan > 1 or read is None:
        return beyond_l2
    return max(beyond_l2, min(read, buffers))


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
