"""The `cpu` executor's checker over the launches of a plan that ran on a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudaops.cuda.sanitizer_report import Index
from cudaops.domain.base import Dim3
from cudaops.domain.execution import (
    CheckerUnavailable,
    CompileFailed,
    Misbehaved,
    MisbehaviourKind,
)
from cudaops.errors import EnvironmentFailure
from cudaops.executors.cpu.build import as_compiled, build_unit
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.check_launches import Single, Subject, sampled_blocks, single_launches

Level = Literal["memory", "full"]

PROVEN: frozenset[MisbehaviourKind] = frozenset(
    ("out_of_bounds", "shared_race", "divergent_barrier", "uninitialised_read", "deadlock")
)
"""What the processor's checker finds counts on a GPU too. The rest does not: a slow run there is no
endless one here, a division by zero that ends a process there is none on a GPU, and the limits of a
launch are the GPU's own to judge."""
_REMEDY = "have compute-sanitizer on this machine"


class Sample(NamedTuple):
    """How much of a launch was looked at."""

    kernel: str
    blocks: int
    of: int

    def __str__(self) -> str:
        part = "all" if self.blocks == self.of else f"{self.blocks} of"
        return f"{part} {self.of} blocks of {self.kernel}"


class Checked(NamedTuple):
    """What came out of a check."""

    fault: Misbehaved | None = None
    """What ends the run."""
    warnings: tuple[Misbehaved, ...] = ()
    unchecked: tuple[CheckerUnavailable, ...] = ()
    """Not empty: finding nothing proves nothing."""
    summary: str = ""
    """Who looked at how much, with times."""

    @property
    def found(self) -> bool:
        """Something is wrong with the candidate."""
        return self.fault is not None or bool(self.warnings)

    def joined(self, later: Checked) -> Checked:
        """Both, the first fault winning."""
        summary = "; ".join(s for s in (self.summary, later.summary) if s)
        return Checked(
            self.fault or later.fault,
            self.warnings + later.warnings,
            self.unchecked + later.unchecked,
            summary,
        )


class Look(NamedTuple):
    """What the processor is asked to look at."""

    level: Level
    seconds: float
    """For all launches together, builds included."""
    sample: bool = True
    """False: every block."""
    seed: int = 0
    blamed: Index | None = None
    """A block that joins the sample."""


def look_on_cpu(cpu: CpuExecutor, subject: Subject, look: Look) -> Checked:
    """Every launch in order, up to the first that is fatal or cannot run there."""
    started = time.monotonic()
    built = build_unit(cpu.cache, subject.unit, "checked")
    if isinstance(built, CompileFailed):
        return _not_run(look, f"it does not compile there: {built.placed}")
    compiled = as_compiled(built, subject.unit)
    whole = Checked()
    samples: list[Sample] = []
    for single in single_launches(subject):
        if isinstance(single, Misbehaved):
            return whole.joined(Checked(single))
        left = max(look.seconds - (time.monotonic() - started), 0.1)
        folder = subject.folder / f"cpu-{look.level}{single.number}"
        only = _blocks(single, look)
        try:
            ran = cpu.run(
                compiled, single.workload, single.plan, single.inputs, folder,
                check=look.level, timeout_s=left, blocks=only,
            )  # fmt: skip
        except EnvironmentFailure as problem:
            return whole.joined(_not_run(look, problem.problem, problem.remedy))
        if isinstance(ran, Misbehaved):
            return whole.joined(_ended(look, ran))
        whole = whole.joined(Checked(warnings=ran.warnings))
        samples.append(_sample(subject, single, only))
    took = time.monotonic() - started
    looked = ", ".join(str(s) for s in samples)
    return whole._replace(summary=f"cpu checker ({look.level}): {looked}, {took:.1f} s")


def _blocks(single: Single, look: Look) -> tuple[int, ...] | None:
    (launch,) = single.plan.launches
    if not look.sample:
        return None
    chosen = sampled_blocks(launch.grid, launch.block.volume, look.seed)
    if chosen is None or look.blamed is None or not _within(look.blamed, launch.grid):
        return chosen
    x, y, z = look.blamed
    return tuple(sorted({*chosen, (z * launch.grid.y + y) * launch.grid.x + x}))


def _within(block: Index, grid: Dim3) -> bool:
    return block[0] < grid.x and block[1] < grid.y and block[2] < grid.z


def _sample(subject: Subject, single: Single, only: Sequence[int] | None) -> Sample:
    volume = single.plan.launches[0].grid.volume
    shown = subject.task.side.launches[single.number].kernel.shown
    return Sample(shown, volume if only is None else len(only), volume)


def _ended(look: Look, ran: Misbehaved) -> Checked:
    """A launch that did not come to its end on the processor."""
    if ran.what in PROVEN:
        return Checked(ran)
    if ran.what == "timeout":
        return _not_run(look, f"did not finish within {look.seconds:g} s")
    return _not_run(look, f"the kernel does not run there: {ran.placed}")


def _not_run(look: Look, problem: str, remedy: str = _REMEDY) -> Checked:
    name = f"cpu checker ({look.level})"
    return Checked(unchecked=(CheckerUnavailable(checker=name, problem=problem, remedy=remedy),))
