"""From a workload, a plan and inputs to a runner's tasks, and from its times to Measurements."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Measurement, TimedOutput, TimeSource, Timing, Unit
from cudaops.domain.rewrite import ResolvedPlan, Value
from cudaops.domain.workload import FLOATING, Allocation, GlobalState, Workload
from cudaops.executors.base import InputSet
from cudaops.executors.compare import same_contents
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.unit import (
    WIDENED_BY,
    captured_inputs,
    contents_before,
    variables_in,
    waits_for_grid,
)
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.protocol import (
    Buffer,
    MeasureReply,
    OutputWatch,
    PlannedLaunch,
    Regime,
    RegimeTimes,
    RunReply,
    RunTask,
    SeriesLaunch,
    Side,
    SideOutputs,
    TaskScratch,
    TimingPolicy,
    VariableImage,
)
from cudaops.program.analysis.summary import facts_of_launch

WIDE_SHARED_FACTOR = 2
"""Shared and scratch memory of a widened kernel, where the author's elements are `float`."""


class Dumps(NamedTuple):
    """Files that take memory contents after a run."""

    buffers: dict[int, str]
    variables: dict[str, str]


def dumps_of(workload: Workload, side: Side, folder: Path) -> Dumps:
    """One file for every allocation and captured variable in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder.absolute()
    return Dumps(
        {a.index: str(target / f"out{a.index}.bin") for a in workload.allocations},
        {g.name: str(target / f"{g.symbol}.bin") for g in side.globals},
    )


def outputs_of(launch: RunTask | SeriesLaunch, reply: RunReply, number: int = 0) -> dict[int, str]:
    """Where the contents after a launch stand: of what is unchanged in the file it came from.
    `number` counts the launches of a series from 0."""
    unchanged = reply.unchanged[number] if reply.unchanged else ()
    files = {b.index: b.file for b in launch.buffers if b.index in unchanged and b.file is not None}
    return {**launch.dumps, **files}


def series_launch(
    workload: Workload, inputs: InputSet, side: Side, folder: Path, widened: bool
) -> SeriesLaunch:
    """One launch of a series, whose results land in `folder`."""
    dumps = dumps_of(workload, side, folder)
    return SeriesLaunch(
        buffers=buffers_of(workload, inputs, widened=widened),
        scratch_fill=inputs.scratch_poison,
        shift_bytes=inputs.shift_bytes,
        keep_scratch=inputs.keep_scratch,
        dumps=dumps.buffers,
        global_dumps=dumps.variables,
    )


def side_of(
    module: Module,
    unit: Unit,
    workload: Workload,
    plan: ResolvedPlan,
    folder: Path,
    scratch_fill: int = InputSet.model_fields["scratch_poison"].default,
) -> Side:
    """The launches of a plan with this module's kernels; `folder` takes widened contents."""
    baseline = unit.rewrite is None or not plan.applicable
    wide = WIDE_SHARED_FACTOR if unit.widened else 1
    launches = tuple(
        PlannedLaunch(
            kernel=module.launchable(BASELINE_ENTRY if baseline else launch.step),
            grid=launch.grid,
            block=launch.block,
            dynamic_smem_bytes=launch.dynamic_smem_bytes * wide,
            values=tuple(_widened(v, workload) if unit.widened else v for v in launch.values),
            together=waits_for_grid(unit, plan, launch),
        )
        for launch in plan.launches
    )
    return Side(
        module=str(module.image),
        launches=launches,
        scratch=tuple(
            TaskScratch(name=name, size_bytes=size * wide, fill=scratch_fill)
            for name, size in plan.scratch_bytes.items()
        ),
        globals=_globals(module, unit, workload, folder),
        variables=tuple(module.variables.values()),
    )


def buffers_of(workload: Workload, inputs: InputSet, *, widened: bool) -> tuple[Buffer, ...]:
    """The workload's allocations with their contents."""
    return tuple(
        Buffer(
            index=a.index,
            name=_name(workload, a.index),
            read_only=a.role == "in",
            address=a.address,
            widened_by=WIDENED_BY.get(a.element, 1) if widened else 1,
            holds_pointers=a.holds_pointers,
            size_bytes=_bytes_in(a, a.size_bytes, widened),
            fill=inputs.poison.get(a.index),
            file=None
            if a.index in inputs.poison
            else str(Path(inputs.contents[a.index]).absolute()),
        )
        for a in workload.allocations
    )


def may_repeat(unit: Unit, workload: Workload) -> bool:
    """Whether the author's launch may run on what another one left. Not where integers that it
    changes may say where it writes, as the count does behind which results are appended: it would
    leave its buffer."""
    folder = Path(workload.folder)
    changes_integers = any(
        a.role == "inout" and a.element not in FLOATING for a in workload.allocations
    ) or any(
        g.element not in FLOATING and not same_contents(folder / g.before, folder / g.after)
        for g in workload.globals
    )
    if not changes_integers:
        return True
    facts = facts_of_launch(unit.program, unit.program.kernel(unit.kernel), workload)
    return facts is not None and facts.touches_the_same


def _name(workload: Workload, index: int) -> str:
    """The first parameter that points into the allocation."""
    return next((p.name for p in workload.pointers() if p.allocation == index), "")


def _bytes_in(allocation: Allocation, size_bytes: int, widened: bool) -> int:
    """What so many bytes of a buffer, from its start on, take."""
    if not widened:
        return size_bytes
    stride, wide_stride = allocation.structure_bytes, allocation.wide_structure_bytes
    if stride is not None and wide_stride is not None:
        return size_bytes // stride * wide_stride + size_bytes % stride
    return size_bytes * WIDENED_BY.get(allocation.element, 1)


def _widened(value: Value, workload: Workload) -> Value:
    """Offsets in bytes grow with what they step over."""
    if value.kind == "raw":
        moved = (_widened(p.to, workload) for p in value.pointers)
        placed = zip(value.pointers, moved, strict=True)
        pointers = tuple(p.model_copy(update={"to": to}) for p, to in placed)
        return value.model_copy(update={"pointers": pointers})
    if value.kind != "buffer" or value.offset_bytes == 0:
        return value
    if value.allocation is None:
        return value.model_copy(update={"offset_bytes": value.offset_bytes * WIDE_SHARED_FACTOR})
    allocation = next(a for a in workload.allocations if a.index == value.allocation)
    update = {"offset_bytes": _bytes_in(allocation, value.offset_bytes, True)}
    return value.model_copy(update=update)


def _globals(
    module: Module, unit: Unit, workload: Workload, folder: Path
) -> tuple[VariableImage, ...]:
    """Variables that the module has; one that no kernel of it uses was left out by nvcc."""
    known = [s for s in variables_in(unit, workload) if s.name in module.variables]
    return tuple(
        _global(module.variables[state.name], unit, workload, state, folder / f"wide{number}.bin")
        for number, state in enumerate(known)
    )


def _global(
    symbol: str, unit: Unit, workload: Workload, state: GlobalState, wide: Path
) -> VariableImage:
    before = contents_before(unit, workload, state, wide)
    return VariableImage(
        name=state.name, symbol=symbol, size_bytes=before.stat().st_size, file=str(before)
    )


POISONS = range(1, 255)
"""Bytes that may fill an output before a timed launch. Not 0 and 0xFF: what programs and checks
leave there most often."""


def timed_inputs(workload: Workload, alternatives: Sequence[InputSet]) -> InputSet:
    """The captured inputs; what the alternatives say is overwritten holds a secret byte instead of
    what the program had there, which may be the right result of its launch before."""
    overwritten = alternatives[0].poison if alternatives else {}
    poison = {index: secrets.choice(POISONS) for index in overwritten}
    return captured_inputs(workload).model_copy(update={"poison": poison})


def watch_of(
    workload: Workload, alternatives: Sequence[InputSet], folder: Path | None
) -> OutputWatch | None:
    """A watch that leaves its dumps in the folder; None without one. Its seed is drawn anew."""
    if folder is None:
        return None
    return OutputWatch(
        folder=str(folder.absolute()),
        seed=secrets.randbits(62),
        alternatives=tuple(buffers_of(workload, one, widened=False) for one in alternatives),
    )


SEARCH = TimingPolicy(
    warmups=1,
    samples=24,
    samples_a_block=8,
    redone_blocks=0,
    max_seconds=2.0,
    spin_up_ms=20.0,
    cupti_launches=0,
    settled_pct=1.0,
)
"""How a configuration is timed during the search: enough to rank by, nothing is accepted on it."""
THOROUGH = TimingPolicy(samples=160, redone_blocks=40, max_seconds=30.0)
"""How a pair is timed that the usual 40 samples left undecided: an interval of half the width."""
NOT_WATCHED = SideOutputs(results=(), looked_at=0, taken=0, not_kept=0)


def measurements(
    reply: MeasureReply,
    workload: Workload,
    device: str,
    source: TimeSource,
) -> tuple[Measurement, ...]:
    """One Measurement a side, in the regime in which the program itself runs the kernel: short
    launches by their kernels' own durations, where CUPTI gave those of every side."""
    by_regime = {times.regime: times for times in reply.regimes}
    ruling = by_regime.get(workload.l2_regime) or reply.regimes[0]
    own = source == "cuda_event" and all(side.kernel_us for side in ruling.sides)
    return tuple(
        Measurement(
            source="cupti" if own else source,
            device=device,
            samples_us=times.kernel_us if own else times.samples_us,
            workload=workload.id,
            timing=_timing(reply, by_regime, ruling, side).model_copy(
                update={"launched_us": times.samples_us if own else ()}
            ),
        )
        for side, times in enumerate(ruling.sides)
    )


def _timing(
    reply: MeasureReply, by_regime: dict[Regime, RegimeTimes], ruling: RegimeTimes, side: int
) -> Timing:
    kept = [b for times in reply.regimes for b in times.blocks if not b.redone]
    redone = sum(b.redone for times in reply.regimes for b in times.blocks)
    cold, warm = by_regime.get("cold"), by_regime.get("warm")
    outputs = reply.outputs[side] if reply.outputs else NOT_WATCHED
    return Timing(
        regime=ruling.regime,
        cold_us=cold.sides[side].samples_us if cold else (),
        warm_us=warm.sides[side].samples_us if warm else (),
        launches_a_sample=ruling.sides[side].launches_a_sample,
        launches_a_plan=ruling.sides[side].launches_a_plan,
        host_slope_us=warm.sides[side].slope_us if warm else None,
        host_error_us=warm.sides[side].slope_error_us if warm else None,
        cupti_us=ruling.sides[side].cupti_us,
        cupti_problem=ruling.sides[side].cupti_problem,
        event_overhead_us=ruling.event_overhead_us,
        in_graph=warm.in_graph if warm else False,
        gap_us=ruling.gap_us,
        warm_gap_us=warm.gap_us if warm else None,
        host_gap_us=reply.host_gap_us,
        host_gap_error_us=reply.host_gap_error_us,
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
