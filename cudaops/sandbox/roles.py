"""What a captured launch does with each of its buffers, found by running it again."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.workload import Allocation, Workload
from cudaops.errors import InputError
from cudaops.executors.arrays import stored
from cudaops.executors.base import Executor, InputSet
from cudaops.executors.compare import distance, holds_only, same_contents
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import before_path

REPRODUCTION_L2 = 1e-5
"""Atomic float sums may differ between two runs by rounding; a missed buffer by far more."""

ROLE_POISON = 0x5B
"""Byte that shows whether a launch overwrites a buffer; as f32 it is 6.2e16, as i32 1.5e9."""


def refine_roles(
    executor: Executor, baseline: Compiled, workload: Workload, folder: Path, timeout_s: float
) -> Workload:
    """Find which buffers the launch overwrites whatever stood there (`out`), by poisoning each.

    A buffer that keeps the poison untouched, and that the captured launch did not change either, is
    `in`; a buffer whose result depends on what stood there is `inout`.
    """
    plan = baseline_plan(workload)
    refined: list[Allocation] = []
    for allocation in workload.allocations:
        if allocation.role == "in":
            refined.append(allocation)
            continue
        contents = {a.index: str(before_path(workload, a)) for a in workload.allocations}
        inputs = InputSet(contents=contents, poison={allocation.index: ROLE_POISON})
        target = folder / f"role_{allocation.index}"
        ran = executor.run(
            baseline, workload, plan, inputs, target, wanted=(allocation.index,),
            timeout_s=timeout_s,
        )  # fmt: skip
        refined.append(_role_from(ran, workload, allocation))
    return workload.model_copy(update={"allocations": tuple(refined)})


def _role_from(ran: Ran | Misbehaved, workload: Workload, allocation: Allocation) -> Allocation:
    if isinstance(ran, Misbehaved):
        return allocation.model_copy(update={"role": "inout"})
    result = Path(ran.outputs[allocation.index])
    after = Path(workload.folder) / allocation.after
    if same_contents(result, after):
        return allocation.model_copy(update={"role": "out"})
    # A launch that adds little leaves a poison this large as it was: what it captured counts too.
    untouched = holds_only(result, ROLE_POISON, allocation.size_bytes)
    unchanged = same_contents(before_path(workload, allocation), after)
    return allocation.model_copy(update={"role": "in" if untouched and unchanged else "inout"})


def confirm_reproduces(
    executor: Executor, baseline: Compiled, workload: Workload, folder: Path, timeout_s: float
) -> None:
    """Run the baseline on its captured inputs and hold the result against the captured one.

    Raises InputError where they differ by more than rounding: the capture missed something the
    kernel reads, and nothing about this workload could be judged.
    """
    contents = {a.index: str(before_path(workload, a)) for a in workload.allocations}
    ran = executor.run(
        baseline,
        workload,
        baseline_plan(workload),
        InputSet(contents=contents),
        folder,
        timeout_s=timeout_s,
    )
    if isinstance(ran, Misbehaved):
        raise InputError(
            f"the captured launch of {workload.callee} does not run on its own ({ran.message}): "
            "the kernel reads memory that could not be captured"
        )
    for allocation in workload.allocations:
        captured = Path(workload.folder) / allocation.after
        if same_contents(ran.outputs[allocation.index], captured):
            continue
        again = stored(ran.outputs[allocation.index], allocation.element)
        gap = distance(again, stored(captured, allocation.element))
        if gap.relative_l2 > REPRODUCTION_L2 or gap.non_finite_mismatches:
            raise InputError(
                f"the captured launch of {workload.callee} gives another result when run again "
                f"(buffer {allocation.index}, relative difference {gap.relative_l2:.1e}): "
                "the kernel depends on memory or an order that could not be captured"
            )
