"""Modelled time and metrics of a plan: sampled blocks run here, time played for a named device.

`docs/model.md` says how it works and how far from measured times it is.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from cudaops.cuda.devices import device as device_named
from cudaops.cuda.timing import modelled_metrics
from cudaops.domain.execution import Compiled, Measurement, Misbehaved, Unit
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import ResolvedLaunch, ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.executors.cpu.counting import Sample, sample
from cudaops.executors.cpu.hot_lines import hot_lines
from cudaops.executors.cpu.look import Look, look_at
from cudaops.timemodel.sampling import sampled_blocks

if TYPE_CHECKING:
    from cudaops.executors.cpu.executor import CpuExecutor

SEED = 2
"""Of the random blocks in the sample."""

KEPT = 64
"""Samples kept in memory: the same launch modelled for another device costs no run."""

_kept: OrderedDict[tuple[object, ...], Sample] = OrderedDict()
_lock = threading.Lock()


def measure(
    executor: CpuExecutor, compiled: Compiled, workload: Workload, plan: ResolvedPlan, *,
    samples: int = 1, timeout_s: float = 120.0,
) -> Measurement | Misbehaved:  # fmt: skip
    """Modelled time of all launches of the plan together.

    One sample whatever `samples` says: the model is deterministic, repeating it adds nothing.
    """
    looks = _all(executor, compiled.unit, workload, plan, timeout_s)
    if isinstance(looks, Misbehaved):
        return looks
    return Measurement(
        source="modelled",
        device=executor.device,
        samples_us=(sum(look.duration_us for look in looks),),
        workload=workload.id,
        profile=_profile(executor, workload, looks),
    )


def profile(
    executor: CpuExecutor, compiled: Compiled, workload: Workload, plan: ResolvedPlan, *,
    timeout_s: float = 120.0,
) -> Profile | Misbehaved:  # fmt: skip
    """Modelled metrics of the launch of the plan that takes longest."""
    looks = _all(executor, compiled.unit, workload, plan, timeout_s)
    return looks if isinstance(looks, Misbehaved) else _profile(executor, workload, looks)


def _profile(executor: CpuExecutor, workload: Workload, looks: list[Look]) -> Profile:
    top = max(looks, key=lambda look: look.duration_us)
    notes = top.notes
    if len(looks) > 1:
        total = sum(look.duration_us for look in looks)
        notes = (
            f"the longest of {len(looks)} launches, which take {total:.1f} us together",
            *notes,
        )
    return Profile(
        kernel=top.kernel,
        device=executor.device,
        workload=workload.id,
        source="modelled",
        duration_us=top.modelled.estimate.kernel_us,
        metrics=modelled_metrics(top.modelled),
        hot_lines=hot_lines(top),
        notes=notes,
    )


def _all(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan, timeout_s: float
) -> list[Look] | Misbehaved:
    looks: list[Look] = []
    for launch in plan.launches:
        taken = _sampled(executor, unit, workload, plan, launch, timeout_s)
        if isinstance(taken, Misbehaved):
            return taken
        sizes = {a.index: a.size_bytes for a in workload.allocations}
        sizes |= {-2 - n: size for n, size in enumerate(plan.scratch_bytes.values())}
        kernel = _kernel(unit, plan, launch)
        bounded = _has_launch_bounds(unit, plan)
        look = look_at(
            taken,
            unit,
            kernel,
            launch,
            sizes,
            device_named(executor.device),
            bounded=bounded,
            rewritten=unit.rewrite is not None and plan.applicable,
        )
        if isinstance(look, Misbehaved):
            return look
        looks.append(look)
    return looks


def _sampled(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    launch: ResolvedLaunch, timeout_s: float,
) -> Sample | Misbehaved:  # fmt: skip
    """The sample of one launch, kept by everything it depends on."""
    rewrite = unit.rewrite.id if unit.rewrite else ""
    key = (
        unit.program.sha256, unit.callee, rewrite, workload.folder, workload.id,
        launch.model_dump_json(), plan.applicable,
    )  # fmt: skip
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    alone = plan.model_copy(update={"launches": (launch,)})
    blocks = sampled_blocks(launch.grid, SEED)
    taken = sample(executor, unit, workload, alone, blocks, timeout_s)
    if not isinstance(taken, Misbehaved):
        with _lock:
            _kept[key] = taken
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
    return taken


def _kernel(unit: Unit, plan: ResolvedPlan, launch: ResolvedLaunch) -> str:
    """The launched expression: a step of the rewrite, or the baseline."""
    if unit.rewrite is not None and plan.applicable:
        return unit.rewrite.plan.launches[launch.step].kernel
    return unit.callee


def _has_launch_bounds(unit: Unit, plan: ResolvedPlan) -> bool:
    if unit.rewrite is not None and plan.applicable:
        return re.search(r"__launch_bounds__", unit.rewrite.source) is not None
    return unit.program.kernel(unit.kernel).launch_bounds is not None
