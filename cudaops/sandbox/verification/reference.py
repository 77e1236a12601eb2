"""References: what the author's own kernel gives, and the same kernel in double beside it (D3)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.workload import Allocation, Workload
from cudaops.errors import InputError
from cudaops.executors.base import Executor, InputSet
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.verification.arrays import read_array
from cudaops.sandbox.verification.compare import distance
from cudaops.sandbox.verification.inputs import CaseKind, before_path

REPRODUCTION_L2 = 1e-5
"""Atomic float sums may differ between two runs by rounding; a missed buffer by far more."""

ROLE_POISON = 0x5B
"""Byte that shows whether a launch overwrites a buffer; as f32 it is 6.2e16, as i32 1.5e9."""


class Reference(NamedTuple):
    """The right answer for one case."""

    kind: CaseKind
    inputs: InputSet
    outputs: dict[int, str]
    """Baseline results: allocation index to file."""
    wide_outputs: dict[int, str] | None
    """Results of the widened baseline; None where it could not run, and `wide_problem` says why."""
    wide_problem: str | None = None
    unwritten: bool = False
    """Some of an `out` buffer may not have been written: it holds what filled it before. Such a
    case is the same under another fill only where the candidate leaves the same places."""


class LeftOut(NamedTuple):
    """A case that was not made, or not used."""

    kind: CaseKind
    why: str


class Oracle(NamedTuple):
    """The references of one workload."""

    workload: Workload
    captured: Reference
    perturbed: tuple[Reference, ...]
    """Empty where the baseline bears no other inputs; the captured case once more where it reads
    nothing that could hold something else."""
    exact: Reference
    """The captured case once more where no exact inputs suit."""
    left_out: tuple[LeftOut, ...] = ()
    seed: int = 0
    """Secret: draws the order of launches."""

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every case once, the captured one first."""
        exact = () if self.exact.kind == "captured" else (self.exact,)
        others = (one for one in self.perturbed if one.kind != "captured")
        return (self.captured, *exact, *others)


class Baseline(NamedTuple):
    """The baseline as compiled for one workload."""

    plain: Compiled
    widened: Compiled | None
    wide_problem: str | None
    """Why there is no widened build; None where there is one."""


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
        ran = executor.run(baseline, workload, plan, inputs, target, timeout_s=timeout_s)
        refined.append(_role_from(ran, workload, allocation))
    return workload.model_copy(update={"allocations": tuple(refined)})


def _role_from(ran: Ran | Misbehaved, workload: Workload, allocation: Allocation) -> Allocation:
    if isinstance(ran, Misbehaved):
        return allocation.model_copy(update={"role": "inout"})
    result = Path(ran.outputs[allocation.index]).read_bytes()
    after = (Path(workload.folder) / allocation.after).read_bytes()
    if result == after:
        return allocation.model_copy(update={"role": "out"})
    # A launch that adds little leaves a poison this large as it was: what it captured counts too.
    untouched = result == bytes([ROLE_POISON]) * allocation.size_bytes
    unchanged = before_path(workload, allocation).read_bytes() == after
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
        captured = read_array(Path(workload.folder) / allocation.after, allocation.element)
        again = read_array(ran.outputs[allocation.index], allocation.element)
        gap = distance(again, captured)
        if gap.relative_l2 > REPRODUCTION_L2 or gap.non_finite_mismatches:
            raise InputError(
                f"the captured launch of {workload.callee} gives another result when run again "
                f"(buffer {allocation.index}, relative difference {gap.relative_l2:.1e}): "
                "the kernel depends on memory or an order that could not be captured"
            )
