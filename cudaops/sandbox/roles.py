"""What a captured launch does with each of its buffers, found by running it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.workload import FLOATING, Allocation, Role, Workload
from cudaops.errors import InputError
from cudaops.executors.arrays import stored
from cudaops.executors.base import Check, Executor, InputSet
from cudaops.executors.compare import Distance, distance, holds_only, same_contents, same_rows
from cudaops.executors.untrusted_files import remove
from cudaops.program.analysis.facts import KernelFacts
from cudaops.program.analysis.summary import facts_of_launch
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import before_path

REPRODUCTION_L2 = 1e-5
"""Atomic float sums may differ between two runs by rounding; a missed buffer by far more."""

ROLE_POISONS = (0x5B, 0xFF, 0x00)
"""Bytes that show whether a launch overwrites a buffer; as f32 6.2e16, not a number and zero, as
i32 1.5e9, -1 and 0. What is multiplied by zero is read all the same, and only the second shows it;
what is compared with small numbers, as the number of a cluster is, only the third."""


def refine_roles(
    executor: Executor, baseline: Compiled, workload: Workload, folder: Path, timeout_s: float
) -> Workload:
    """Find which buffers the launch overwrites whatever stood there (`out`), by poisoning each.

    A buffer that keeps every poison untouched, and that the captured launch did not change either,
    is `in`, unless the text says that the kernel may write it: what is added there may be zero on
    these inputs, or lost beside the poison. A buffer whose result depends on what stood there is
    `inout`, and so is one whose contents another buffer's result depends on: a launch may exchange
    two, or empty one into another.
    """
    trial = _Trial(executor, baseline, workload, folder, timeout_s)
    kept = [a.role == "in" or a.holds_pointers for a in workload.allocations]
    refined = [
        a if keep else trial.refined(a) for a, keep in zip(workload.allocations, kept, strict=True)
    ]
    outs = [a for a in refined if a.role == "out"]
    written = [a for a in refined if a.role != "in"]
    if len(written) > 1 and outs and not trial.reproduces(written, outs):
        one = len(outs) == 1  # which was just tried
        read = {a.index for a in outs if one or not trial.reproduces(written, [a])}
        refined = [
            a.model_copy(update={"role": "inout"}) if a.index in read else a for a in refined
        ]
    return workload.model_copy(update={"allocations": tuple(refined)})


class _Trial(NamedTuple):
    """Launches of the baseline over poison."""

    executor: Executor
    baseline: Compiled
    workload: Workload
    folder: Path
    timeout_s: float

    def refined(self, allocation: Allocation) -> Allocation:
        """With the role that its own result says it has."""
        after = Path(self.workload.folder) / allocation.after
        unchanged = same_contents(before_path(self.workload, allocation), after)
        is_out = untouched = True
        # What nothing reads depends on no poison: one shows that all of it is written.
        for poison in ROLE_POISONS[:1] if self._is_unread(allocation) else ROLE_POISONS:
            ran = self._ran([allocation], [allocation], f"role_{allocation.index}", poison)
            if isinstance(ran, Misbehaved):
                return allocation.model_copy(update={"role": "inout"})
            result = Path(ran.outputs[allocation.index])
            is_out = is_out and same_contents(result, after)
            # A launch that adds little leaves a poison so large as it was: what it captured counts.
            untouched = untouched and holds_only(result, poison, allocation.size_bytes)
            if not is_out and not (untouched and unchanged):
                break
        role: Role = "out" if is_out else "inout"
        if not is_out and untouched and unchanged and not self._may_write(allocation):
            role = "in"
        return allocation.model_copy(update={"role": role})

    def _may_write(self, allocation: Allocation) -> bool:
        """Whether the text says so; not where it is not understood."""
        facts, names = self._facts(), self._names(allocation)
        return facts is not None and any(
            a.kind != "read" and a.space in ("global", "unknown") and a.array in {"", *names}
            for a in facts.accesses
        )

    def _is_unread(self, allocation: Allocation) -> bool:
        """Whether the text says so; not where it is not understood, or follows a pointer that is
        no argument."""
        facts, names = self._facts(), self._names(allocation)
        if facts is None or facts.calls or facts.unmodelled:
            return False
        arguments = {p.name for p in self.workload.pointers()}
        elsewhere = [a for a in facts.accesses if a.space not in ("shared", "local")]
        return all(a.array in arguments for a in elsewhere) and all(
            a.kind == "write" for a in elsewhere if a.array in names
        )

    def _facts(self) -> KernelFacts | None:
        unit = self.baseline.unit
        return facts_of_launch(unit.program, unit.program.kernel(unit.kernel), self.workload)

    def _names(self, allocation: Allocation) -> set[str]:
        """Parameters that point into it."""
        return {p.name for p in self.workload.pointers() if p.allocation == allocation.index}

    def reproduces(self, written: Sequence[Allocation], poisoned: Sequence[Allocation]) -> bool:
        """Whether all results are the captured ones, up to rounding, over poison in these."""
        name = f"results_{poisoned[0].index}"
        try:
            return all(
                isinstance(ran := self._ran(poisoned, written, name, poison), Ran)
                and all(self._is_captured(ran, a) for a in written)
                for poison in ROLE_POISONS
            )
        finally:
            remove(self.folder / name)

    def _is_captured(self, ran: Ran, allocation: Allocation) -> bool:
        gap = _gap(ran, self.workload, allocation)
        return gap is None or (allocation.element in FLOATING and not _is_another(gap))

    def _ran(
        self, poisoned: Sequence[Allocation], wanted: Sequence[Allocation], name: str, poison: int
    ) -> Ran | Misbehaved:
        contents = {a.index: str(before_path(self.workload, a)) for a in self.workload.allocations}
        fills = {a.index: poison for a in poisoned}
        return self.executor.run(
            self.baseline, self.workload, baseline_plan(self.workload),
            InputSet(contents=contents, poison=fills), self.folder / name,
            wanted=tuple(a.index for a in wanted), timeout_s=self.timeout_s,
        )  # fmt: skip


def confirm_reproduces(
    executor: Executor, baseline: Compiled, workload: Workload, folder: Path, timeout_s: float
) -> None:
    """Run the baseline on its captured inputs and hold the result against the captured one.

    Raises InputError where they differ by more than rounding and by more than the order of their
    elements: the capture missed something the kernel reads, and nothing about this workload could
    be judged.
    """
    contents = {a.index: str(before_path(workload, a)) for a in workload.allocations}

    def run(place: Path, check: Check = "none") -> Ran:
        ran = executor.run(
            baseline, workload, baseline_plan(workload), InputSet(contents=contents), place,
            check=check, timeout_s=timeout_s,
        )  # fmt: skip
        if not isinstance(ran, Misbehaved):
            return ran
        does = f"the captured launch of {workload.callee} does not run on its own ({ran.placed})"
        if ran.what == "out_of_bounds":
            raise InputError(
                f"{does}: the author's kernel is out of bounds, or follows a pointer that was not "
                "captured"
            )
        raise InputError(f"{does}: the kernel reads memory that could not be captured")

    ran = run(folder)
    for allocation in workload.allocations:
        after = Path(workload.folder) / allocation.after
        gap = _gap(ran, workload, allocation)
        if gap is None or not _is_another(gap):
            continue
        if not same_rows(allocation, ran.outputs[allocation.index], after):
            run(folder / "checked", "memory")  # what it reads beyond a buffer is its own fault
            again = _gap(run(folder / "again"), workload, allocation)
            raise InputError(_not_repeated(workload, allocation, gap, again))


def _not_repeated(
    workload: Workload, allocation: Allocation, gap: Distance, again: Distance | None
) -> str:
    """What it means that a launch left something else than was captured, `gap` and `again` apart
    from it."""
    name = workload.name_of(allocation)
    if again is None or again != gap:
        return (
            f"the author's kernel {workload.callee} gives another result each time it runs: "
            f"`{name}` differs by {gap.relative_l2:.1e} from one run of the same launch to the "
            "next (a race, or atomics whose order decides), so that no rewrite can be compared "
            "against it; `cudaops profile` says what limits it"
        )
    return (
        f"the captured launch of {workload.callee} gives another result when run again (`{name}`, "
        f"relative difference {gap.relative_l2:.1e}): the kernel depends on memory or an order "
        "that could not be captured"
    )


def _gap(ran: Ran, workload: Workload, allocation: Allocation) -> Distance | None:
    """How far a result is from the captured one; None where they are the same to the bit."""
    result, captured = ran.outputs[allocation.index], Path(workload.folder) / allocation.after
    if same_contents(result, captured):
        return None
    element = allocation.element
    return distance(stored(result, element), stored(captured, element))


def _is_another(gap: Distance) -> bool:
    """Whether it is more than rounding."""
    return not gap.relative_l2 <= REPRODUCTION_L2 or gap.non_finite_mismatches > 0
