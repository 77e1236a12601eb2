"""The correctness gates of one candidate on one run's workloads, cheapest first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.judgement import Gate, GateName, Policy
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Allocation, Workload
from cudaops.sandbox.executors.base import Check, Executor, InputSet
from cudaops.sandbox.verification.accuracy import (
    BufferAccuracy,
    buffer_accuracy,
    changed_inputs,
    exact_accuracy,
    parameter_name,
)
from cudaops.sandbox.verification.inputs import CaseKind
from cudaops.sandbox.verification.reference import Reference

REPEAT_POISONS = (0x00, 0xE7)
"""Fill of outputs and scratch in the two repeated runs: zeros, and a pattern that as f32 is
-2.2e24. With the 0xFF and 0x5A of the first runs that makes four different backgrounds."""

Accuracy = Callable[[Allocation, str, Ran, Reference, float], BufferAccuracy]


class Oracle(NamedTuple):
    """The references of one workload."""

    workload: Workload
    captured: Reference
    perturbed: Reference | None
    exact: Reference


class Subject(NamedTuple):
    """One candidate compiled and resolved for one workload."""

    compiled: Compiled
    plan: ResolvedPlan
    oracle: Oracle


class Verifier:
    """Runs a candidate on every case and compares."""

    def __init__(self, executor: Executor, policy: Policy, folder: Path, timeout_s: float) -> None:
        self._executor = executor
        self._policy = policy
        self._folder = folder
        self._timeout_s = timeout_s
        self._misbehaved: Misbehaved | None = None
        self._changed: list[str] = []
        self._input_checks = 0

    @property
    def misbehaved(self) -> Misbehaved | None:
        """What the candidate did, where a gate failed because of it."""
        return self._misbehaved

    def gates(self, subjects: Sequence[Subject]) -> Iterator[Gate]:
        """Every correctness gate as it is decided, up to the first that fails."""
        steps: tuple[Callable[[Sequence[Subject]], Gate], ...] = (
            self._checker,
            lambda s: self._case("correctness_captured", s, lambda o: o.captured, buffer_accuracy),
            lambda s: self._case("correctness_exact", s, lambda o: o.exact, exact_accuracy),
            lambda s: self._case(
                "correctness_perturbed", s, lambda o: o.perturbed, buffer_accuracy
            ),
            self._repeat,
            self._unchanged_inputs,
        )
        for step in steps:
            started = time.monotonic()
            gate = step(subjects)
            yield gate.model_copy(update={"seconds": time.monotonic() - started})
            if not gate.passed:
                return

    def _checker(self, subjects: Sequence[Subject]) -> Gate:
        """Bounds, races and divergent barriers, found by construction on the smallest workload."""
        subject = min(
            subjects, key=lambda s: s.oracle.workload.grid.volume * s.oracle.workload.block.volume
        )
        ran = self._run(subject, subject.oracle.captured.inputs, "checker", check="full")
        if isinstance(ran, Misbehaved):
            return self._failed("checker", ran)
        if ran.warnings:
            return self._failed("checker", ran.warnings[0])
        if ran.unchecked:
            reasons = "; ".join(one.line for one in ran.unchecked)
            return Gate(name="checker", passed=False, summary=reasons)
        summary = "no access out of bounds, no race on shared memory, no divergent barrier"
        if ran.checked:
            summary += f" ({ran.checked})"
        return Gate(name="checker", passed=True, summary=summary)

    def _case(
        self,
        name: GateName,
        subjects: Sequence[Subject],
        choose: Callable[[Oracle], Reference | None],
        accuracy: Accuracy,
    ) -> Gate:
        found: list[BufferAccuracy] = []
        kinds: set[CaseKind] = set()
        for subject in subjects:
            reference = choose(subject.oracle)
            if reference is None:
                text = (
                    "the baseline itself is not finite on any such inputs, so nothing was compared"
                )
                return Gate(name=name, passed=False, summary=text)
            ran = self._run(subject, reference.inputs, name)
            if isinstance(ran, Misbehaved):
                return self._failed(name, ran)
            kinds.add(reference.kind)
            found += self._compare(subject, ran, reference, accuracy)
        return _accuracy_gate(name, found, kinds)

    def _repeat(self, subjects: Sequence[Subject]) -> Gate:
        """Again, over other backgrounds in outputs and scratch: what was never written shows."""
        found: list[BufferAccuracy] = []
        for subject in subjects:
            reference = subject.oracle.captured
            for poison in REPEAT_POISONS:
                poisoned = dict.fromkeys(reference.inputs.poison, poison)
                inputs = reference.inputs.model_copy(
                    update={"poison": poisoned, "scratch_poison": poison}
                )
                ran = self._run(subject, inputs, f"repeat_{poison:02x}")
                if isinstance(ran, Misbehaved):
                    return self._failed("repeat", ran)
                found += self._compare(subject, ran, reference, buffer_accuracy)
        return _accuracy_gate("repeat", found, {"captured"})

    def _unchanged_inputs(self, subjects: Sequence[Subject]) -> Gate:
        if self._changed:
            names = ", ".join(sorted(set(self._changed)))
            return Gate(
                name="unchanged_inputs", passed=False, summary=f"wrote to its input {names}"
            )
        summary = "every input buffer holds what it held before"
        numbers = {"runs_checked": float(self._input_checks)}
        return Gate(
            name="unchanged_inputs", passed=self._input_checks > 0, summary=summary, numbers=numbers
        )

    def _compare(
        self, subject: Subject, ran: Ran, reference: Reference, accuracy: Accuracy
    ) -> Iterable[BufferAccuracy]:
        workload = subject.oracle.workload
        self._changed += changed_inputs(workload, ran, reference)
        self._input_checks += 1
        return [
            accuracy(a, parameter_name(workload, a), ran, reference, self._policy.max_error_factor)
            for a in workload.allocations
            if a.role != "in"
        ]

    def _run(
        self, subject: Subject, inputs: InputSet, name: str, check: Check = "none"
    ) -> Ran | Misbehaved:
        workload = subject.oracle.workload
        return self._executor.run(
            subject.compiled,
            workload,
            subject.plan,
            inputs,
            self._folder / workload.id / name,
            check=check,
            timeout_s=self._timeout_s,
        )

    def _failed(self, name: GateName, misbehaved: Misbehaved) -> Gate:
        self._misbehaved = misbehaved
        return Gate(name=name, passed=False, summary=misbehaved.placed)


def _accuracy_gate(
    name: GateName, found: Sequence[BufferAccuracy], kinds: Iterable[CaseKind]
) -> Gate:
    """One gate over all buffers of all workloads; no buffer at all is a failure."""
    if not found:
        return Gate(
            name=name, passed=False, summary="the kernel changes no buffer, so nothing was compared"
        )
    numbers: dict[str, float] = {}
    for accuracy in found:
        for key, value in accuracy.numbers.items():
            numbers[key] = max(value, numbers.get(key, value))
    worst = next((a for a in found if not a.passed), found[0])
    label = "/".join(sorted(kinds))
    return Gate(
        name=name,
        passed=all(a.passed for a in found),
        summary=f"{label} inputs: {worst.summary}",
        numbers=numbers,
    )
