"""From a runner's times to Measurements."""

from __future__ import annotations

from cudaops.domain.execution import Measurement, TimedOutput, TimeSource, Timing
from cudaops.domain.workload import Workload
from cudaops.executors.cuda.protocol import (
    MeasureReply,
    Regime,
    RegimeTimes,
    SideOutputs,
    TimingPolicy,
)

SEARCH = TimingPolicy(samples=10, redone_blocks=2, spin_up_ms=20.0, cupti_launches=0)
"""How a configuration is timed during the search: enough to rank by, nothing is accepted on it."""
NOBODY_LOOKED = SideOutputs(results=(), looked_at=0, taken=0, not_kept=0)


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
    outputs = reply.outputs[side] if reply.outputs else NOBODY_LOOKED
    return Timing(
        regime=ruling.regime,
        cold_us=cold.sides[side].samples_us if cold else (),
        warm_us=warm.sides[side].samples_us if warm else (),
        launches_a_sample=ruling.sides[side].launches_a_sample,
        launches_a_plan=ruling.sides[side].launches_a_plan,
        host_slope_us=slopes[0] if slopes else None,
        cupti_us=ruling.sides[side].cupti_us,
        cupti_problem=ruling.sides[side].cupti_problem,
        event_overhead_us=ruling.event_overhead_us,
        sm_clock_mhz=tuple(b.sm_clock_mhz for b in kept if b.sm_clock_mhz is not None),
        temperature_c=tuple(b.temperature_c for b in kept if b.temperature_c is not None),
        blocks_redone=redone,
        timed_outputs=tuple(
            TimedOutput(
                inputs=one.inputs, files=one.files, cold=one.cold, warm=one.warm, apart=one.apart
            )
            for one in outputs.results
        ),
        outputs_looked_at=outputs.looked_at,
        outputs_taken=outputs.taken,
        outputs_not_kept=outputs.not_kept,
        apart_us=ruling.sides[side].apart_us,
        looking_seconds=reply.looking_s,
        notices=reply.notices,
    )
