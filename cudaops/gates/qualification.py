"""Task qualification: is the oracle able to tell wrong from right on this very program?

Once a program, before any candidate. Wrong results made from the baseline's own go through the
comparison that candidates go through; one that no reference refuses makes the oracle weak.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Misbehaved, Ran
from cudaops.domain.judgement import Control, ControlName, OutputStatistics, Policy, Qualification
from cudaops.domain.workload import FLOATING, Workload
from cudaops.executors.arrays import Array, element_count, stored
from cudaops.executors.base import InputSet
from cudaops.gates.negative_controls import (
    MAKERS,
    OPERANDS,
    Case,
    Maker,
    SampledOutput,
    cases_of,
    copy_of,
    described,
    noise_of,
    same,
    sampled_outputs,
)
from cudaops.gates.operands import (
    Rerun,
    operand_controls,
    rerun_refusal,
    smallest,
)
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.oracle import Oracle
from cudaops.sandbox.workbench import Workbench

MIN_INPUT_SETS = 5
"""With fewer a result may be right on all of them by chance of their shape. Source: the gate stack
of the project's catalogue of tricks (five sets or more)."""

MIN_CHANGED_SHARE = 0.1
"""Below this share of elements that differ between any two input sets, most of the output is the
same whatever the inputs. Chosen: a causal mask leaves half constant, a padded border less."""

MOST_THREADS = 2**18
"""A launch of more threads is not run again on rounded inputs where a processor runs it: one of
2^20 with a loop of 1024 takes 2 s on two cores (examples/naive_matmul.cu, EPYC, 2026-11-20). The
errors are then noise of the size that rounded inputs give, which the record says."""


def qualification_of(bench: Workbench) -> Qualification:
    """Mutants, compared with the references of every workload; kept on the bench.

    Raises InputError where the author's kernel does not run.
    """
    return bench.once.get("qualification", lambda: _qualified(bench))


def _qualified(bench: Workbench) -> Qualification:
    oracles = [bench.oracle(workload) for workload in bench.judged]
    folder = bench.folder / "work" / "qualification"
    threads = min(w.grid.volume * w.block.volume for w in bench.judged)
    # A processor gives the same result every time; a GPU's atomics may not.
    on_gpu = not bench.models_time
    rerun: Rerun | None = Rerun(folder, lambda *asked: _again(bench, *asked), again=on_gpu)
    if not on_gpu and threads > MOST_THREADS:
        rerun = None
    found = qualify(oracles, bench.policy, rerun)
    bench.discard(folder.name)
    return found


def _again(bench: Workbench, oracle: Oracle, inputs: InputSet, folder: Path) -> Ran | Misbehaved:
    workload = oracle.workload
    return bench.executor.run(
        bench.compiled_baseline(workload),
        workload,
        baseline_plan(workload),
        inputs,
        folder,
        timeout_s=bench.timeout_s,
    )


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
        outputs = sampled_outputs(cases, buffer)
        controls += _controls(outputs, buffer, policy, with_noise=rerun is None)
        statistics.append(output_statistics(outputs, buffer))
        refusals += _refusals_of_the_baseline(outputs, policy)
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
    names = (oracle.workload.name_of(a) for oracle in oracles for a in oracle.results)
    return tuple(dict.fromkeys(names))


def _controls(
    outputs: Sequence[SampledOutput], buffer: str, policy: Policy, *, with_noise: bool
) -> list[Control]:
    makers: list[tuple[ControlName, Maker]] = list(MAKERS.items())
    if with_noise:
        makers += [(name, noise_of(kind)) for kind, name in OPERANDS.items()]
    found = [_control(outputs, buffer, name, maker, policy) for name, maker in makers]
    copied = dict.fromkeys(name for output in outputs for name in output.samples.inputs)
    for name in copied:
        control = _control(outputs, buffer, "input_copied", copy_of(name), policy)
        found.append(control.model_copy(update={"of": name}))
    if not copied:
        why = "no input of this size and type"
        found.append(Control(name="input_copied", buffer=buffer, outcome="not_applicable", why=why))
    return found


def _control(
    outputs: Sequence[SampledOutput], buffer: str, name: ControlName, maker: Maker, policy: Policy
) -> Control:
    """The first reference that refuses it, or what the last comparison said."""
    why, applied, told_apart = "", False, False
    for output in outputs:
        made = maker(output.samples, policy)
        if isinstance(made, str):
            why = why if applied else made
            continue
        applied = True
        accuracy = output.accuracy(made, policy)
        if not accuracy.passed:
            return Control(
                name=name,
                buffer=buffer,
                outcome="caught",
                caught_by=output.case.label,
                why=accuracy.summary,
            )
        told_apart = told_apart or not same(made, output.samples.right)
        why = f"{output.case.label}: {accuracy.summary}"
    if applied and not told_apart:
        why = "it is the right result on every input set"
    outcome = "missed" if applied else "not_applicable"
    return Control.model_validate({"name": name, "buffer": buffer, "outcome": outcome, "why": why})


def _refusals_of_the_baseline(outputs: Sequence[SampledOutput], policy: Policy) -> list[str]:
    """What is said of the baseline's own result, where that does not pass."""
    found = [(output, output.accuracy(output.samples.right, policy)) for output in outputs]
    return [f"{output.case.label}: {one.summary}" for output, one in found if not one.passed]


def _yardstick_problem(cases: Sequence[Case]) -> str | None:
    """Why some workload with floating results has no wider run; None where all have one."""
    for oracle in {id(case.oracle): case.oracle for case in cases}.values():
        references = [case.reference for case in cases if case.oracle is oracle]
        floating = any(a.element in FLOATING for a in oracle.workload.allocations if a.role != "in")
        if floating and not any(reference.wide_outputs for reference in references):
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
        f"{c.buffer}: {described(c.name)}{c.of and f' ({c.of})'} passes on every input set "
        f"({c.why})"
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


class _Line(NamedTuple):
    name: str
    length: int


def output_statistics(outputs: Sequence[SampledOutput], buffer: str) -> OutputStatistics:
    """Of one output on the captured inputs of the most expensive workload."""
    first = outputs[0]
    right = first.samples.right
    finite = right[np.isfinite(right)].astype(np.float64)
    some = finite.size > 0
    return OutputStatistics(
        buffer=buffer,
        elements=element_count(first.allocation.size_bytes, first.allocation.element),
        sampled=right.size,
        least=float(finite.min()) if some else None,
        greatest=float(finite.max()) if some else None,
        mean=float(finite.mean()) if some else None,
        std=float(finite.std()) if some else None,
        finite_share=finite.size / right.size if right.size else 0.0,
        constant_along=tuple(_constant_lines(first)),
        changed_share=_changed_share([s for s in outputs if s.case.oracle is first.case.oracle]),
    )


def _constant_lines(output: SampledOutput) -> Iterator[str]:
    """Rows and columns, of lengths that are scalar arguments, along which nothing changes."""
    allocation = output.allocation
    values = stored(output.case.reference.outputs[allocation.index], allocation.element)
    head = values.read(0, min(values.size, output.limit))
    for line in _lengths(output.case.oracle.workload, head.size):
        rows = head[: head.size - head.size % line.length].reshape(-1, line.length)
        if _constant(rows, rows[:, :1]):
            yield f"rows of {line.name} = {line.length}"
        if _constant(rows, rows[:1, :]):
            yield f"columns under rows of {line.name} = {line.length}"


def _lengths(workload: Workload, size: int) -> list[_Line]:
    found = {
        int(a.value): a.name
        for a in reversed(workload.arguments)
        if a.kind == "scalar" and isinstance(a.value, int) and 1 < a.value <= size // 2
    }
    return [_Line(name, length) for length, name in found.items()]


def _constant(rows: Array, one: Array) -> bool:
    return bool(np.all((rows == one) | ((rows != rows) & (one != one))))


def _changed_share(outputs: Sequence[SampledOutput]) -> float | None:
    """Share of elements that differ between any two references: none has another's inputs."""
    changed = None
    for a, b in combinations(outputs, 2):
        x, y = a.samples.right, b.samples.right
        differ = ~((x == y) | ((x != x) & (y != y)))
        changed = differ if changed is None else changed | differ
    return None if changed is None or not changed.size else float(changed.mean())
