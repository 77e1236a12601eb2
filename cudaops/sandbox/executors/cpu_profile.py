"""Modelled time and metrics of a plan: sampled blocks run here, time played for a named device.

`docs/model.md` says how it works and how far from measured times it is.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cudaops.cuda.devices import Device
from cudaops.cuda.devices import device as device_named
from cudaops.cuda.microarch import microarchitecture
from cudaops.cuda.modelled_metrics import Modelled, modelled_metrics
from cudaops.cuda.occupancy import occupancy
from cudaops.cuda.sm_program import Costs
from cudaops.cuda.timing import Estimate, estimate
from cudaops.cuda.work import KernelWork, Mix
from cudaops.domain.execution import Compiled, Measurement, Misbehaved, Unit
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import ResolvedLaunch, ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.sandbox.executors.cpu_counting import Sample, sample
from cudaops.sandbox.executors.cpu_flow import Node
from cudaops.sandbox.executors.cpu_gimple import Function
from cudaops.sandbox.executors.cpu_hot_lines import hot_lines
from cudaops.sandbox.executors.cpu_instructions import Translator
from cudaops.sandbox.executors.cpu_phases import Sampled, operations, shape
from cudaops.sandbox.executors.cpu_registers import registers_per_thread, shared_bytes
from cudaops.sandbox.executors.cpu_sampling import Trace, finder, sampled_blocks, sites_of
from cudaops.sandbox.executors.cpu_traffic import traffic

if TYPE_CHECKING:
    from cudaops.sandbox.executors.cpu import CpuExecutor

SEED = 2
"""Of the random blocks in the sample."""

KEPT = 256
"""Launches whose look is kept in memory."""

__all__ = ["Look", "examine", "measure", "profile"]


class Look(NamedTuple):
    """One launch of a plan, looked at."""

    modelled: Modelled
    trace: Trace
    kernel: str
    notes: tuple[str, ...]

    @property
    def duration_us(self) -> float:
        """Modelled time of the launch."""
        return self.modelled.estimate.duration_us


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
        notes = (f"the longest of {len(looks)} launches, which take {total:.1f} us together", *notes)
    return Profile(
        kernel=top.kernel,
        device=executor.device,
        workload=workload.id,
        source="modelled",
        duration_us=top.modelled.estimate.kernel_us,
        metrics=modelled_metrics(top.modelled),
        hot_lines=hot_lines(top.modelled, workload_files(top)),
        notes=notes,
    )
