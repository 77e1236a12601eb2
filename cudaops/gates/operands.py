"""The baseline run on rounded inputs: what a silent drop of precision really does to a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Misbehaved, Ran
from cudaops.domain.judgement import Control, Policy
from cudaops.domain.workload import FLOATING, Allocation, Workload
from cudaops.executors.arrays import Array, changed, stored, write_array
from cudaops.executors.base import InputSet
from cudaops.gates.accuracy import (
    BufferAccuracy,
    buffer_accuracy,
    exact_accuracy,
)
from cudaops.gates.negative_controls import (
    ELEMENT_BITS,
    NARROW_BITS,
    OPERANDS,
    Case,
    no_less_exact,
)
from cudaops.sandbox.oracle import Oracle
from cudaops.sandbox.precision import as_fp16, rounded
from cudaops.sandbox.shared_variables import with_variables

ROUNDED_ONCE = ("f32", "tf32", "bf16", "e4m3")
"""Types whose mantissas differ, most exact first; fp16 has that of tf32, and is not run again."""


class Rerun(NamedTuple):
    """How the baseline is run again."""

    folder: Path
    """Where inputs and outputs may be put; the caller removes it."""
    run: Callable[[Oracle, InputSet, Path], Ran | Misbehaved]
    """Launches the baseline of this workload; outputs land under the folder given."""
    again: bool = True
    """Whether the baseline also runs once more on the captured inputs: needless where every run
    is the same, as on the `cpu` executor."""


def smallest(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases of the workload with fewest threads."""
    least = min(cases, key=lambda c: _threads(c.oracle.workload)).oracle
    return tuple(case for case in cases if case.oracle is least)


def _threads(workload: Workload) -> int:
    return workload.grid.volume * workload.block.volume


def rerun_refusal(cases: Sequence[Case], policy: Policy, rerun: Rerun) -> list[str]:
    """What is said of the baseline run once more on the captured inputs, where that fails."""
    case = cases[0]
    ran = rerun.run(case.oracle, case.reference.inputs, rerun.folder / "again")
    if isinstance(ran, Misbehaved):
        return [f"{case.label}: {ran.placed}"]
    found = _accuracies(case, ran, policy).values()
    return [f"{case.label}: {one.summary}" for one in found if not one.passed]


def operand_controls(
    cases: Sequence[Case], buffers: Sequence[str], policy: Policy, rerun: Rerun
) -> list[Control]:
    """Run the smallest workload's baseline on inputs rounded to each narrower type.

    Most exact type first; what refuses it refuses the less exact ones, which are not run then.
    Small integers are the same in every type, so the exact case is left out.
    """
    cases = sorted((c for c in cases if not c.exact), key=lambda c: c.reference.kind == "captured")
    found: list[Control] = []
    caught: dict[str, Control] = {}
    for kind in ROUNDED_ONCE:
        problem = _no_operands(cases[0].oracle.workload, kind, policy)
        made = []
        for buffer in buffers:
            if problem is not None:
                made.append(_control(kind, buffer, "not_applicable", None, problem))
            elif buffer in caught:
                first = caught[buffer]
                than = first.name.removeprefix("operands_")
                why = f"lower precision than {than}, which is refused"
                made.append(_control(kind, buffer, "caught", first.caught_by, why))
        left = [b for b in buffers if all(c.buffer != b for c in made)]
        made += _run_rounded(cases, kind, left, policy, rerun)
        caught |= {c.buffer: c for c in made if c.outcome == "caught" and c.buffer not in caught}
        found += made
        if kind == "tf32":
            found += [_as_fp16(control) for control in made]
    return found


def _as_fp16(control: Control) -> Control:
    why = control.why if control.outcome == "not_applicable" else "the mantissa of tf32"
    return control.model_copy(update={"name": OPERANDS["fp16"], "why": why})


def _no_operands(workload: Workload, kind: str, policy: Policy) -> str | None:
    """Why no floating input could be rounded to this type."""
    elements = {a.element for a in _operands(workload)}
    if not elements:
        return "no floating input"
    widest = max(elements, key=lambda element: ELEMENT_BITS[element])
    return no_less_exact(kind, widest, policy)


def _operands(workload: Workload) -> list[Allocation]:
    return [a for a in workload.allocations if a.element in FLOATING and a.role != "out"]


def _run_rounded(
    cases: Sequence[Case], kind: str, buffers: Sequence[str], policy: Policy, rerun: Rerun
) -> list[Control]:
    """Every buffer's control, on the first reference that refuses it."""
    caught: dict[str, Control] = {}
    why = dict.fromkeys(buffers, "the baseline does not run on rounded inputs")
    for case in cases:
        left = [buffer for buffer in buffers if buffer not in caught]
        if not left:
            break
        folder = rerun.folder / f"{kind}_{case.label.replace(' ', '_')}"
        inputs = _rounded_inputs(case, kind, folder / "inputs")
        ran = rerun.run(case.oracle, inputs, folder)
        if isinstance(ran, Misbehaved):
            continue
        for buffer, accuracy in _accuracies(case, ran, policy).items():
            why[buffer] = f"{case.label}: {accuracy.summary}"
            if buffer in left and not accuracy.passed:
                caught[buffer] = _control(kind, buffer, "caught", case.label, accuracy.summary)
    return [caught.get(b) or _control(kind, b, "missed", None, why[b]) for b in buffers]


def _control(kind: str, buffer: str, outcome: str, by: str | None, why: str) -> Control:
    return Control.model_validate(
        {
            "name": OPERANDS[kind],
            "buffer": buffer,
            "outcome": outcome,
            "caught_by": by,
            "why": why,
        }
    )


def _rounded_inputs(case: Case, kind: str, folder: Path) -> InputSet:
    folder.mkdir(parents=True, exist_ok=True)
    contents = dict(case.reference.inputs.contents)
    for allocation in _operands(case.oracle.workload):
        if NARROW_BITS[kind] >= ELEMENT_BITS[allocation.element]:
            continue
        values = stored(contents[allocation.index], allocation.element)
        path = folder / f"in_{allocation.index}.bin"
        write_array(path, changed(values, partial(_as, kind)), allocation.element)
        contents[allocation.index] = str(path)
    return case.reference.inputs.model_copy(update={"contents": contents})


def _as(kind: str, values: Array) -> Array:
    doubles = values.astype(np.float64)
    return as_fp16(doubles) if kind == "fp16" else rounded(doubles, NARROW_BITS[kind])


def _accuracies(case: Case, ran: Ran, policy: Policy) -> dict[str, BufferAccuracy]:
    name_of, left = case.oracle.workload.name_of, with_variables(ran, case.oracle.variables)
    judge = exact_accuracy if case.exact else buffer_accuracy
    return {
        name_of(a): judge(a, name_of(a), left, case.reference, policy) for a in case.oracle.results
    }
