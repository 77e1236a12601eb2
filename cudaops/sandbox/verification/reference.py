"""The oracle: the author's own kernel, and the same kernel in double as its yardstick (D3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.workload import FLOATING, Allocation, Workload
from cudaops.errors import InputError
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.executors.base import Executor, InputSet
from cudaops.sandbox.verification.arrays import read_array
from cudaops.sandbox.verification.compare import distance, non_finite
from cudaops.sandbox.verification.inputs import (
    EXACT_KINDS,
    PERTURBED_KINDS,
    CaseKind,
    before_path,
    build_case,
    can_widen,
    has_floating_input,
    widen,
)

NO_YARDSTICK_WANTED = "not made for the exact case"

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

    A buffer that keeps the poison untouched while nothing else changes is `in`; a buffer whose
    result depends on what stood there is `inout`.
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
    if result == (Path(workload.folder) / allocation.after).read_bytes():
        return allocation.model_copy(update={"role": "out"})
    untouched = result == bytes([ROLE_POISON]) * allocation.size_bytes
    return allocation.model_copy(update={"role": "in" if untouched else "inout"})


class ReferenceBuilder:
    """Runs the baseline on every case of one workload."""

    def __init__(
        self,
        executor: Executor,
        baseline: Baseline,
        workload: Workload,
        folder: Path,
        timeout_s: float,
    ) -> None:
        self._executor = executor
        self._baseline = baseline
        self._workload = workload
        self._folder = folder
        self._timeout_s = timeout_s
        self._plan = baseline_plan(workload)

    def captured(self) -> Reference:
        """The case the program itself ran; the baseline's result is the captured one."""
        inputs = build_case(self._workload, "captured", 0, self._folder / "captured", 0xFF)
        outputs = self._captured_outputs()
        return self._with_wide("captured", inputs, outputs)

    def perturbed(self, seed: int) -> Reference | None:
        """The first perturbed case on which the baseline itself stays finite; None without one."""
        kinds: Sequence[CaseKind] = (
            PERTURBED_KINDS if has_floating_input(self._workload) else ("permuted",)
        )
        for kind in kinds:
            inputs = build_case(self._workload, kind, seed, self._folder / kind, 0x5A)
            outputs = self._run_baseline(kind, inputs)
            if outputs is not None and self._finite(outputs):
                return self._with_wide(kind, inputs, outputs)
        return None

    def exact(self, seed: int) -> Reference:
        """Small integers in every floating buffer; the captured case where no such inputs suit."""
        kinds: Sequence[CaseKind] = EXACT_KINDS if has_floating_input(self._workload) else ()
        for kind in kinds:
            inputs = build_case(self._workload, kind, seed, self._folder / kind, 0xC3)
            outputs = self._run_baseline(kind, inputs)
            if outputs is not None and self._finite(outputs):
                return Reference(kind, inputs, outputs, None, NO_YARDSTICK_WANTED)
        inputs = build_case(self._workload, "captured", seed, self._folder / "exact", 0xC3)
        return Reference("captured", inputs, self._captured_outputs(), None, NO_YARDSTICK_WANTED)

    def _run_baseline(self, name: str, inputs: InputSet) -> dict[int, str] | None:
        target = self._folder / name / "baseline"
        ran = self._executor.run(
            self._baseline.plain,
            self._workload,
            self._plan,
            inputs,
            target,
            timeout_s=self._timeout_s,
        )
        return None if isinstance(ran, Misbehaved) else ran.outputs

    def _finite(self, outputs: dict[int, str]) -> bool:
        """Whether the baseline is not finite in more places than on the captured inputs, where
        infinities may be meant (a mask)."""
        captured = self._captured_outputs()
        return all(
            non_finite(read_array(outputs[a.index], a.element))
            <= non_finite(read_array(captured[a.index], a.element))
            for a in self._workload.allocations
            if a.element in FLOATING and a.role != "in"
        )

    def _captured_outputs(self) -> dict[int, str]:
        folder = Path(self._workload.folder)
        return {a.index: str(folder / a.after) for a in self._workload.allocations}

    def _with_wide(self, kind: CaseKind, inputs: InputSet, outputs: dict[int, str]) -> Reference:
        if self._baseline.widened is None:
            return Reference(kind, inputs, outputs, None, self._baseline.wide_problem)
        if not can_widen(self._workload):
            problem = "a buffer or argument is a structure, whose widened layout is unknown"
            return Reference(kind, inputs, outputs, None, problem)
        wide_inputs = widen(self._workload, inputs, self._folder / kind)
        target = self._folder / kind / "widened"
        ran = self._executor.run(
            self._baseline.widened,
            self._workload,
            self._plan,
            wide_inputs,
            target,
            timeout_s=self._timeout_s,
        )
        if isinstance(ran, Misbehaved):
            return Reference(
                kind, inputs, outputs, None, f"the widened baseline failed: {ran.message}"
            )
        return Reference(kind, inputs, outputs, ran.outputs)


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
