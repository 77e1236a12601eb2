"""Performance limits that times and counts show: the roofline, or the overhead of a launch."""

from __future__ import annotations

from cudaops.cuda import metrics as ncu
from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import Device
from cudaops.cuda.roofline import floors
from cudaops.cuda.subtypes import Subtype
from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Profile, Verdict

NEAR_PCT = 90.0
"""Of the device's limit: what is nearer has less than 10 % of its time to lose. Judgement."""
BEYOND_PCT = 105.0
"""Nearer than a device can be: boost clocks exceed the published ones by a few percent, and beyond
that the counts are not believed."""
_BY_MEMORY: frozenset[Subtype] = frozenset({"near_peak", "dram_bandwidth"})
_BY_ARITHMETIC: frozenset[Subtype] = frozenset({"near_peak", "fma_pipe", "fp64_pipe"})
"""Verdicts that name no cause behind a busy unit: wasted bytes at full bandwidth are no end."""


def at_roofline(
    profile: Profile, verdict: Verdict, device: Device, buffer_bytes: int, *, warm: bool
) -> PerformanceLimit | None:
    """Within 10 % of the binding roofline. None where it is not, or not known.

    Bytes count once, however often the kernel moves them: no more than its buffers hold
    (`buffer_bytes`) and, where it finds the L2 `warm`, only what does not fit there.
    """
    line = verdict.roofline
    if line is None:
        return None
    least_bytes = min(line.dram_bytes, float(buffer_bytes))
    if warm:
        least_bytes = max(0.0, least_bytes - device.l2_bytes)
    memory_us = least_bytes / device.dram_bandwidth_gb_s * 1e-3
    arithmetic = [f for f in floors(profile, device) if f.resource in ("fp32", "fp64")]
    longest = max(arithmetic, key=lambda f: f.us, default=None)
    by_arithmetic = longest is not None and longest.us > memory_us
    floor_us = longest.us if longest is not None and by_arithmetic else memory_us
    near_pct = 100.0 * floor_us / profile.duration_us
    known: frozenset[Subtype] = _BY_ARITHMETIC if by_arithmetic else _BY_MEMORY
    if not NEAR_PCT <= near_pct <= BEYOND_PCT or verdict.subtype not in known:
        return None
    if by_arithmetic:
        needs = f"its {line.flops / 1e9:.3g} GFLOP at {line.peak_gflops:.0f} GFLOP/s"
    else:
        needs = f"{least_bytes / 1e6:.3g} MB at {device.dram_bandwidth_gb_s:.0f} GB/s"
    return PerformanceLimit(
        kind="roofline",
        says=(
            f"{profile.kernel} is at {near_pct:.0f} % of the "
            f"{'arithmetic' if by_arithmetic else 'memory bandwidth'} roofline: it takes "
            f"{profile.duration_us:.1f} us, and {needs} take {floor_us:.1f} us{_origin(profile)}"
        ),
        numbers={
            "taken_us": profile.duration_us, "floor_us": floor_us, "near_pct": near_pct,
        },
    )  # fmt: skip


def _origin(profile: Profile) -> str:
    if profile.source == "modelled":
        return f" ({UNMEASURED_WORDS['modelled'].format(device=profile.device)})"
    return " (the time measured, counts modelled)" if profile.source == "mixed" else ""


def load_latency_us(profile: Profile, device: Device, *, warm: bool) -> float:
    """What one load takes that a kernel waits for, where it has loads: from L2 where the kernel
    finds it `warm`, else from memory; 0 without loads, and where they were not counted."""
    if not profile.get(ncu.GLOBAL_LD_INST):
        return 0.0
    times = microarchitecture(device.compute_capability)
    return device.cycles_to_us(times.l2_latency if warm else times.dram_latency)


def as_short_as_a_launch(
    profile: Profile, taken_us: float, launch_us: float, load_us: float, bar: float, launches: int,
    provenance: str,
) -> PerformanceLimit | None:  # fmt: skip
    """So short that one which does nothing but wait for one load would not be 10 % faster, or would
    not reach the bar.

    `taken_us`, `launch_us`: of the kernel and of one that does nothing, launched in the same way.
    `launches`: of the kernel in one run of the program. `provenance`: as `Measurement.provenance`.
    """
    floor_us = launch_us + load_us
    if launch_us <= 0 or taken_us >= max(bar, 100.0 / NEAR_PCT) * floor_us:
        return None
    saved_us = (launches - 1) * launch_us
    merged = "the program launches it once, so that there is nothing to merge"
    if launches > 1:
        merged = (
            f"the program launches it {launches:,} times: one launch for all would save up to "
            f"{launches - 1:,} x {launch_us:.2f} us = {saved_us:,.1f} us"
        )
    load = f" and one load {load_us:.2f} us" if load_us else ""
    return PerformanceLimit(
        kind="launch_bound",
        says=(
            f"{profile.kernel} takes {taken_us:.2f} us, an empty kernel {launch_us:.2f} us{load}, "
            f"so that no rewrite can be more than {taken_us / floor_us:.2f}x as fast; "
            f"{merged}{provenance}"
        ),
        numbers={
            "taken_us": taken_us, "launch_us": launch_us, "load_us": load_us,
            "launches": float(launches), "saved_by_merging_us": saved_us,
        },
    )  # fmt: skip
