"""Task qualification: is the oracle able to tell wrong from right on this very program?

Once a program, before any candidate. Wrong results made from the baseline's own go through the
comparison that candidates go through; one that no reference refuses makes the oracle weak.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cudaops.domain.judgement import Control, ControlName, OutputStatistics, Policy, Qualification
from cudaops.domain.workload import FLOATING
from cudaops.sandbox.verification.accuracy import parameter_name
from cudaops.sandbox.verification.controls import (
    MAKERS,
    OPERANDS,
    Maker,
    copy_of,
    noise_of,
    words,
)
from cudaops.sandbox.verification.operands import (
    Rerun,
    operand_controls,
    rerun_refusal,
    smallest,
)
from cudaops.sandbox.verification.output_statistics import output_statistics
from cudaops.sandbox.verification.reference import Oracle
from cudaops.sandbox.verification.scenes import Case, Stage, cases_of, same, stages

MIN_INPUT_SETS = 5
"""With fewer a result may be right on all of them by chance of their shape. Source: the gate stack
of the project's catalogue of tricks (five sets or more)."""

MIN_CHANGED_SHARE = 0.1
"""Below this share of elements that differ between any two input sets, most of the output is the
same whatever the inputs. Chosen: a causal mask leaves half constant, a padded border less."""


def qualify(oracles: Sequence[Oracle], policy: Policy, rerun: Rerun | None = None) -> Qualification:
    """Hold every control against every reference of every workload.

    With `rerun` the baseline itself runs again, on inputs rounded to narrower types too; without it
    no kernel runs. Buffers of more than 2^18 elements are sampled.
    """
    started = time.monotonic()
    cases = cases_of(oracles)
    buffers = _output_names(oracles)
    controls: list[Control] = []
    statistics: list[OutputStatistics] = []
    refusals: list[str] = []
    for buffer in buffers:
        held = stages(cases, buffer)
        controls += _controls(held, buffer, policy, with_noise=rerun is None)
        statistics.append(output_statistics(held, buffer))
        refusals += _refusals_of_the_baseline(held, policy)
    if rerun is not None:
        controls += operand_controls(smallest(cases), buffers, policy, rerun)
        refusals += rerun_refusal(smallest(cases), policy, rerun) if rerun.again else []
    problem = _yardstick_problem(cases)
    input_sets = min(len(oracle.references) for oracle in oracles)
    return Qualification(
        controls=tuple(controls),
        statistics=tuple(statistics),
        input_sets=input_sets,
        yardstick=problem is None,
        yardstick_problem=problem,
        baseline_passes=not refusals,
        operands_run=rerun is not None,
        weak=_weak(controls, statistics, input_sets, refusals),
        seconds=time.monotonic() - started,
    )


def _output_names(oracles: Sequence[Oracle]) -> tuple[str, ...]:
    names = [
        parameter_name(oracle.workload, a)
        for oracle in oracles
        for a in oracle.workload.allocations
        if a.role != "in"
    ]
    return tuple(dict.fromkeys(names))


def _controls(
    held: Sequence[Stage], buffer: str, policy: Policy, *, with_noise: bool
) -> list[Control]:
    makers: list[tuple[ControlName, Maker]] = list(MAKERS.items())
    if with_noise:
        makers += [(name, noise_of(kind)) for kind, name in OPERANDS.items()]
    found = [_control(held, buffer, name, maker, policy) for name, maker in makers]
    copied = dict.fromkeys(name for stage in held for name in stage.scene.inputs)
    for name in copied:
        control = _control(held, buffer, "input_copied", copy_of(name), policy)
        found.append(control.model_copy(update={"of": name}))
    if not copied:
        why = "no input of this size and type"
        found.append(Control(name="input_copied", buffer=buffer, outcome="not_applicable", why=why))
    return found


def _control(
    held: Sequence[Stage], buffer: str, name: ControlName, maker: Maker, policy: Policy
) -> Control:
    """The first reference that refuses it, or what the last comparison said."""
    why, applied, told_apart = "", False, False
    for stage in held:
        made = maker(stage.scene, policy)
        if isinstance(made, str):
            why = why if applied else made
            continue
        applied = True
        accuracy = stage.accuracy(made, policy)
        if not accuracy.passed:
            return Control(
                name=name,
                buffer=buffer,
                outcome="caught",
                caught_by=stage.case.label,
                why=accuracy.summary,
            )
        told_apart = told_apart or not same(made, stage.scene.right)
        why = f"{stage.case.label}: {accuracy.summary}"
    if applied and not told_apart:
        why = "it is the right result on every input set"
    outcome = "missed" if applied else "not_applicable"
    return Control.model_validate({"name": name, "buffer": buffer, "outcome": outcome, "why": why})


def _refusals_of_the_baseline(held: Sequence[Stage], policy: Policy) -> list[str]:
    """What is said of the baseline's own result, where that does not pass."""
    found = [(stage, stage.accuracy(stage.scene.right, policy)) for stage in held]
    return [f"{stage.case.label}: {one.summary}" for stage, one in found if not one.passed]


def _yardstick_problem(cases: Sequence[Case]) -> str | None:
    """Why some workload with floating results has no run in double; None where all have one."""
    for oracle in {id(case.oracle): case.oracle for case in cases}.values():
        references = [case.reference for case in cases if case.oracle is oracle]
        floating = any(a.element in FLOATING for a in oracle.workload.allocations if a.role != "in")
        if floating and all(reference.wide_outputs is None for reference in references):
            return f"{oracle.workload.id}: {oracle.captured.wide_problem}"
    return None


def _weak(
    controls: Sequence[Control],
    statistics: Sequence[OutputStatistics],
    input_sets: int,
    refusals: Sequence[str],
) -> tuple[str, ...]:
    """One sentence for each thing that cannot be seen."""
    found = [
        f"{c.buffer}: {words(c.name)}{c.of and f' ({c.of})'} passes on every input set ({c.why})"
        for c in controls
        if c.outcome == "missed"
    ]
    for one in statistics:
        if one.changed_share is not None and one.changed_share < MIN_CHANGED_SHARE:
            text = "does not depend on the inputs"
            if one.changed_share > 0.0:
                text = f"changes with the inputs in {one.changed_share:.1%} of its elements only"
            found.append(f"{one.buffer} {text}")
    if not statistics:
        found.append("the kernel changes no buffer")
    if input_sets < MIN_INPUT_SETS:
        found.append(f"only {input_sets} different input sets, {MIN_INPUT_SETS} are wanted")
    found += [f"the baseline's own result is refused ({why})" for why in refusals[:1]]
    return tuple(found)
