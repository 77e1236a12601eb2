"""From a runner's times to Measurements."""

from __future__ import annotations

from cudaops.domain.execution import Measurement, TimeSource, Timing
from cudaops.domain.workload import Workload
from cudaops.sandbox.gpu.protocol import MeasureReply, Regime, RegimeTimes, TimingPolicy

SEARCH = TimingPolicy(samples=10, redone_blocks=2, spin_up_ms=20.0, cupti_launches=0)
"""How a configuration is timed during the search: enough to rank by, nothing is accepted on it."""


def measurements(
    reply: MeasureReply,
    workload: Workload,
    device: str,
    source: TimeSource,
) -> tuple[Measurement, ...]:
    """One Measurement a side, in the regime in which the program itself runs the kernel."""
    by_regime = {times.regime: times for times in reply.regimes}
    ruling = by_regime.get(workload.l2_regime) or reply.regimes[0]
    return tuple(
        Measurement(
            source=source,
            device=device,
            samples_us=times.samples_us,
            workload=workload.id,
            timing=_timing(reply, by_regime, ruling, side),
        )
        for side, times in enumerate(ruling.sides)
    )


def _timing(
    reply: MeasureReply, by_regime: dict[Regime, RegimeTimes], ruling: RegimeTimes, side: int
) -> Timing:
    kept = [b for times in reply.regimes for b in times.blocks if not b.redone]
    redone = sum(b.redone for times in reply.regimes for b in times.blocks)
    cold, warm = by_regime.get("cold"), by_regime.get("warm")
    slopes = [t.sides[side].slope_us for t in reply.regimes if t.sides[side].slope_us is not None]
    return Timing(
        regime=ruling.regime,
        cold_us=cold.sides[side].samples_us if cold else (),
        warm_us=warm.sides[side].samples_us if warm else (),
        launches_a_sample=ruling.sides[side].launches_a_sample,
        host_slope_us=slopes[0] if slopes else None,
        cupti_us=ruling.sides[side].cupti_us,
        event_overhead_us=ruling.event_overhead_us,
        sm_clock_mhz=tuple(b.sm_clock_mhz for b in kept if b.sm_clock_mhz is not None),
        temperature_c=tuple(b.temperature_c for b in kept if b.temperature_c is not None),
        blocks_redone=redone,
        notices=reply.notices,
    )
