"""Which kernel takes most time on the device, where the processor's clock alone does not say.

What a kernel takes on this machine's processor and on a GPU differ: a barrier costs a processor
much, a strided access nothing. Kernels that take a good part of the hottest one's time here are
captured for their times alone and put through the time model.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Captured, Compiled, Measurement, Unit
from cudaops.domain.options import ProgramRun, WarmUps
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.base import Executor
from cudaops.executors.untrusted_files import remove
from cudaops.program.plans import baseline_plan
from cudaops.program.splice import can_be_replaced

SHARE = 0.05
"""Of the hottest kernel's seconds: with less a kernel is no contender. Chosen: twelve times as
many were seen where the model has the same time for both."""
MOST = 3
"""Rivals that are looked at, those with most seconds."""
MOST_RUN_S = 10.0
"""A program that takes longer is not run again for it."""
CLEARLY = 1.1
"""By how much the model must find a contender slower."""


class HottestKernel(NamedTuple):
    """The kernel with most time by the model, and what both say."""

    kernel: str
    notice: str


def hottest_by_model(
    executor: Executor, program: Program, run: ProgramRun, captured: Captured, folder: Path,
    timeout_s: float, warm_ups: WarmUps,
) -> HottestKernel | None:  # fmt: skip
    """A contender that takes clearly more time on the device than the captured one; None if none
    does, or where too little is known to say so.

    Args:
        executor: One whose times are modelled.
        program: The author's.
        run: Its run that was captured.
        captured: The kernel with most seconds.
        folder: Where contenders are captured; gone afterwards.
        timeout_s: For each step.
        warm_ups: As in `Executor.capture`.
    """
    names = contenders(program, captured)
    if not names or captured.seconds > MOST_RUN_S:
        return None
    own = _modelled_us(executor, program, captured, timeout_s)
    if own is None:
        return None
    times: dict[str, float] = {}
    for name in names:
        try:
            found = executor.capture(
                program, name, run.argv, folder, timeout_s, whole=False, warm_ups=warm_ups
            )
            if isinstance(found, Captured) and found.workloads:
                time = _modelled_us(executor, program, found, timeout_s)
                times |= {name: time} if time is not None else {}
        except InputError:
            continue
        finally:
            remove(folder)
    best = max(times, key=lambda name: times[name], default=None)
    if best is None or times[best] < CLEARLY * own:
        return None
    notice = (
        f"{best} is optimized: its launches take {times[best]:.3g} us by the model of "
        f"{executor.device}, those of {captured.kernel} {own:.3g} us, though it takes longer on "
        "this machine's processor; --kernel chooses another"
    )
    return HottestKernel(best, notice)


def contenders(program: Program, captured: Captured) -> list[str]:
    """Kernels that may take more time on the device than the captured one, hottest first."""
    known = {kernel.name for kernel in program.kernels}
    target = next((c for c in captured.counts if c.kernel == captured.kernel), None)
    if target is None:
        return []
    return [
        c.kernel
        for c in captured.counts
        if c.kernel in known - {target.kernel}
        and c.is_timed == target.is_timed
        and c.counted_seconds >= SHARE * target.counted_seconds
        and can_be_replaced(program, c.kernel)
    ][:MOST]


def _modelled_us(
    executor: Executor, program: Program, captured: Captured, timeout_s: float
) -> float | None:
    """All launches of a kernel, from its hottest configuration and that one's share of them."""
    hottest = max(captured.workloads, key=lambda w: w.time_share)
    unit = Unit(program=program, kernel=captured.kernel, callee=hottest.callee)
    compiled = executor.compile(unit)
    if not isinstance(compiled, Compiled) or hottest.time_share <= 0:
        return None
    measured = executor.measure(compiled, hottest, baseline_plan(hottest), timeout_s=timeout_s)
    if not isinstance(measured, Measurement):
        return None
    return measured.median_us * hottest.launches / hottest.time_share
