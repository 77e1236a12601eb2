"""Does the order in which threads run decide what the author's kernel computes?

A processor runs the lanes of a warp one after another. Legacy code counts on them running
together: lanes read what others have just written, with no barrier between them. So the launch is
run once more with the last thread first; where the result is another, the checker says which
accesses nothing puts in order. Where those are of lanes of one warp, the kernel is captured again
in lockstep. Where they are of warps or blocks, and the result still depends on them, there is no
right answer to judge by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    InLockstep,
    Misbehaved,
    Unit,
    UnorderedAccess,
)
from cudaops.domain.program import Program
from cudaops.domain.workload import (
    FLOATING,
    Allocation,
    OpaqueArgument,
    PointerArgument,
    Workload,
)
from cudaops.executors.arrays import stored
from cudaops.executors.base import InputSet
from cudaops.executors.compare import distance, is_zero, same_contents
from cudaops.executors.untrusted_files import remove
from cudaops.program.analysis.summary import facts_of_launch
from cudaops.program.clusters import authors_cluster, closed

if TYPE_CHECKING:
    from cudaops.executors.cpu.executor import CpuExecutor

Order = Literal["threads", "all"]
"""What begins with the last: the threads of every block, or the blocks as well."""

SAME_L2 = 1e-5
"""Relative L2 distance up to which two orders give the same: sums by atomics differ by rounding."""

MOST_S = 10.0
"""Limit of a run in another order. Where a kernel takes longer, nothing is found out."""

WAITS = re.compile(r"atomic|volatile|__threadfence|\basm\b|cooperative_groups|\bcuda::")
"""Without any of these no block can wait for another, and blocks may begin with the last."""

SAMPLED_THREADS = 1 << 14
"""Of the blocks that the checker looks at: enough to find the lines."""


class Ordering(NamedTuple):
    """What was found out."""

    lockstep: InLockstep | None = None
    unordered: tuple[UnorderedAccess, ...] = ()
    undecided: str = ""

    @property
    def fields(self) -> dict[str, object]:
        """As `Captured` keeps it."""
        return self._asdict()


def order_of(
    cpu: CpuExecutor, program: Program, captured: Captured, folder: Path, timeout_s: float
) -> Ordering:
    """Of the smallest workload of the instance that takes most time."""
    subject = _subject(program, captured, folder)
    if _exchanges_nothing(subject):
        return Ordering()
    if not _differs(cpu, subject, timeout_s) and not _is_zero(subject.workload):
        return Ordering()
    found = cpu.find_unordered(
        subject.unit,
        subject.workload,
        subject.folder,
        timeout_s,
        _sampled(subject),
        [a.index for a in subject.workload.allocations if a.before != a.after],
    )
    remove(subject.folder)
    if not found:
        return Ordering()  # atomics, in whatever order
    warps = [one for one in found if one.scope == "warp"]
    if not warps:
        differs = _differs(cpu, subject, timeout_s)
        return Ordering(None, found, _undecided(found)) if differs else Ordering()
    memory = "all" if any(one.space == "global" for one in warps) else "shared"
    how = InLockstep.model_validate({"kernel": captured.kernel, "memory": memory})
    return Ordering(how, found)


def order_in_lockstep(
    cpu: CpuExecutor,
    program: Program,
    captured: Captured,
    found: Ordering,
    folder: Path,
    timeout_s: float,
) -> Ordering:
    """The same of what was captured in lockstep: whether other warps or blocks decide as well."""
    others = tuple(one for one in found.unordered if one.scope != "warp")
    subject = _subject(program, captured, folder, found.lockstep)
    if others and _differs(cpu, subject, timeout_s):
        return found._replace(undecided=_undecided(others))
    return found._replace(unordered=tuple(o for o in found.unordered if o.scope == "warp"))


def captured_again(
    capture: Callable[[str | None, Path], CaptureOutcome], captured: Captured, folder: Path
) -> CaptureOutcome:
    """The same kernel captured by `capture`, in the place of what was captured before; that stays
    where it cannot be."""
    aside = folder.with_name(f"{folder.name}-lockstep")
    try:
        again = capture(captured.kernel, aside)
        if not isinstance(again, Captured):
            return again
        for old in captured.workloads:
            remove(Path(old.folder))
        moved = []
        for workload in again.workloads:
            target = folder.absolute() / Path(workload.folder).name
            Path(workload.folder).rename(target)
            moved.append(workload.model_copy(update={"folder": str(target)}))
        return again.model_copy(update={"workloads": tuple(moved)})
    finally:
        remove(aside)


def is_independent_of_thread_order(
    cpu: CpuExecutor,
    unit: Unit,
    workload: Workload,
    inputs: InputSet,
    outputs: Mapping[int, str],
    folder: Path,
    timeout_s: float,
) -> bool:
    """See `Executor.is_independent_of_thread_order`. False only where the last thread first gives
    another result on these inputs, and the same as was captured on the captured ones."""
    subject = _Subject(unit, workload, folder.absolute(), _order_for(unit.program))
    given = {index: Path(path) for index, path in outputs.items()}
    captured = {
        a.index: Path(workload.folder) / a.after for a in workload.allocations if a.index in given
    }
    moved = _differs(cpu, subject, timeout_s, given, inputs)
    return not moved or _differs(cpu, subject, timeout_s, captured) is not False


class _Subject(NamedTuple):
    unit: Unit
    workload: Workload
    folder: Path
    order: Order


def _subject(
    program: Program, captured: Captured, folder: Path, lockstep: InLockstep | None = None
) -> _Subject:
    callee = captured.workloads[0].callee
    same = [w for w in captured.workloads if w.callee == callee]
    workload = min(same, key=lambda w: w.grid.volume * w.block.volume)
    unit = Unit(program=program, kernel=captured.kernel, callee=callee, lockstep=lockstep)
    return _Subject(unit, workload, folder.absolute() / "order", _order_for(program))


def _exchanges_nothing(subject: _Subject) -> bool:
    """Whether the kernel's text says that no thread reads memory that the launch writes."""
    workload, program = subject.workload, subject.unit.program
    facts = facts_of_launch(program, program.kernel(subject.unit.kernel), workload)
    if facts is None or not facts.is_idempotent:
        return False
    pointers = [a.allocation for a in workload.arguments if isinstance(a, PointerArgument)]
    hidden = any(isinstance(a, OpaqueArgument) and a.pointers for a in workload.arguments)
    shares = any(access.space == "shared" for access in facts.accesses)
    return not hidden and not shares and len(set(pointers)) == len(pointers)


def orders_of(unit: Unit) -> Order:
    """The same of the kernels of a unit, a rewrite's own text included."""
    if unit.rewrite is not None and WAITS.search(unit.rewrite.source):
        return "threads"
    return _order_for(unit.program)


def _order_for(program: Program) -> Order:
    """Blocks begin with the last where none can wait for another."""
    return "threads" if any(WAITS.search(file.text) for file in program.files) else "all"


def _undecided(found: Sequence[UnorderedAccess]) -> str:
    lines = "; ".join(one.line for one in found if one.scope != "warp")
    return f"its result depends on the order in which warps or blocks run: {lines}"


def _differs(
    cpu: CpuExecutor,
    subject: _Subject,
    timeout_s: float,
    expected: Mapping[int, Path] | None = None,
    inputs: InputSet | None = None,
) -> bool | None:
    """Whether another order gives another result than `expected`, by allocation; None where it does
    not end in a while. Without them: on the captured inputs, than all that was captured."""
    workload, limit = subject.workload, min(timeout_s, MOST_S)
    if expected is None:
        expected = {a.index: Path(workload.folder) / a.after for a in workload.allocations}
    ran = cpu.run_ordered(subject.unit, workload, subject.folder, limit, subject.order, inputs)
    differs = None if isinstance(ran, Misbehaved) else any(
        not _same(a, expected[a.index], Path(ran.outputs[a.index]))
        for a in workload.allocations
        if a.index in expected
    )  # fmt: skip
    remove(subject.folder)
    return differs


def _same(allocation: Allocation, first: Path, second: Path) -> bool:
    """Equal, or of floating values as near as another order of summation leaves them."""
    if same_contents(first, second):
        return True
    element = allocation.element
    if element not in FLOATING:
        return False
    gap = distance(stored(second, element), stored(first, element))
    return gap.relative_l2 <= SAME_L2 and not gap.non_finite_mismatches


def _is_zero(workload: Workload) -> bool:
    """Whether the launch left zeros only, which says nothing of any order."""
    folder = Path(workload.folder)
    changed = [a for a in workload.allocations if a.before != a.after]
    return all(is_zero(stored(folder / a.after, a.element)) for a in changed)


def _sampled(subject: _Subject) -> tuple[int, ...] | None:
    """Blocks that the checker looks at; None: all. Neighbours first, others spread behind them."""
    workload, unit = subject.workload, subject.unit
    blocks = workload.grid.volume
    most = max(2, SAMPLED_THREADS // workload.block.volume)
    if blocks <= most:
        return None
    spread = np.linspace(0, blocks - 1, most // 2).astype(int).tolist()
    cluster = authors_cluster(unit.program, unit.program.kernel(unit.kernel))
    return closed(sorted({*range(most - most // 2), *spread}), workload.grid, cluster)
