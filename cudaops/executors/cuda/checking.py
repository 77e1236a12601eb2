"""What `Executor.run(check=...)` means on a GPU, and who finds the line of a fault that has none.

The plan has already run whole on the GPU between guard bands. `memory`: every block, in the `cpu`
executor's checker or under memcheck. `full`: that, and every launch again in the `cpu` executor's
checker, which is exact by construction and names both lines of a race, over a sample of blocks.
Shared memory belongs to one block, so no race, divergent barrier or unwritten read needs a second
block to be seen; what a sample misses is a fault that only certain blocks have. Where the source
does not run on a processor (inline PTX), racecheck, synccheck and initcheck look at the whole plan
instead; for an initcheck that knows no shared memory the plan runs over two fillings of it. Who
cannot run says so. A checker sees each launch of a plan alone.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.cuda.sanitizer_report import Index
from cudaops.domain.base import Dim3
from cudaops.domain.execution import (
    CheckerUnavailable,
    CompileFailed,
    Misbehaved,
    MisbehaviourKind,
    Unit,
)
from cudaops.domain.rewrite import BufferValue, ResolvedLaunch, ResolvedPlan, Value
from cudaops.domain.workload import Allocation, PointerArgument, Workload
from cudaops.errors import EnvironmentFailure
from cudaops.executors.base import InputSet
from cudaops.executors.compare import same_contents
from cudaops.executors.cpu.build import as_compiled, build_unit
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.unit import launched_cluster
from cudaops.executors.cuda.protocol import Buffer, Reply, RunReply, RunTask
from cudaops.executors.cuda.sanitizer import (
    INSTALL,
    UNNAMED,
    Sanitizer,
    SanitizerFault,
    SanitizerRun,
    TaskCommand,
    Tool,
    names_for,
)
from cudaops.executors.cuda.session import expected
from cudaops.executors.cuda.tasks import outputs_of
from cudaops.program.clusters import blocks_of, cluster_grid, cluster_number

UNPLACED: frozenset[MisbehaviourKind] = frozenset(("crash", "out_of_bounds", "guard_overwritten"))
"""Faults that an access can explain."""
RACE_TOOLS: tuple[Tool, ...] = ("racecheck", "synccheck", "initcheck")
DEADLOCK_S = 5.0
"""For telling a deadlock from a kernel that is only endless."""
CPU_FIRST_S = 5.0
"""About what memcheck takes for a small program. Source: 3.3 s for a 1024x1024 product on an H200
(compute-sanitizer --tool memcheck, CUDA 13.0, 2026-11-20), process start included."""
PROBE_S = 20.0
"""For the line of a fault that is already known: a better message, not a better verdict."""


class GpuChecker:
    """Policy over two checkers."""

    def __init__(
        self,
        cpu: CpuExecutor,
        sanitizer: Sanitizer | None,
        command: TaskCommand,
        seed: int = 0,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        cpu_first_s: float = CPU_FIRST_S,
    ) -> None:
        """A checker for the runners that `command` starts.

        Args:
            cpu: Whose device has the limits of the GPU.
            sanitizer: None where there is none, or nothing it could look at (a stand-in).
            command: A runner for one task.
            seed: Draws the sampled blocks; a secret one leaves a candidate nothing to prepare for.
            turn: Held while a sanitizer uses the GPU.
            cpu_first_s: How long the processor may look at all blocks before memcheck does.
        """
        self._cpu = cpu
        self._sanitizer = sanitizer
        self._command = command
        self._seed = seed
        self._turn = turn
        self._cpu_first_s = cpu_first_s
        self._too_large: set[tuple[str, ...]] = set()
        """Plans that the processor did not look at whole in that time: on other inputs it is not
        asked first again."""

    def check(self, subject: CheckedPlan, level: Level) -> CheckReport:
        """Look at a plan that ran to its end. Each checker has `subject.timeout_s` seconds."""
        found = self._memory(subject)
        if found.fault is not None or level == "memory":
            return found
        return found.joined(self._full(subject))

    def named(self, subject: CheckedPlan, fault: Misbehaved) -> Misbehaved:
        """The same fault with its line, where one of the checkers finds an access that explains it.

        Cheapest first: a sample on the processor, memcheck, all blocks on the processor.
        """
        if fault.what == "timeout":
            return self._deadlock(subject) or fault
        if fault.location is not None or fault.what not in UNPLACED:
            return fault
        some = CpuCheck("memory", min(PROBE_S, subject.timeout_s), seed=self._seed)
        ways: tuple[Callable[[], CheckReport], ...] = (
            lambda: check_on_cpu(self._cpu, subject, some),
            lambda: self._memcheck(subject),
            lambda: check_on_cpu(self._cpu, subject, some._replace(sample=False)),
        )
        for way in ways:
            found = way().fault
            if found is not None and found.location is not None:
                return found
        return fault

    def _deadlock(self, subject: CheckedPlan) -> Misbehaved | None:
        """A kernel that waits for itself never ends on a GPU; the processor's scheduler sees why.
        One that merely never ends takes all the time it is given there as well."""
        wanted = CpuCheck("memory", min(DEADLOCK_S, subject.timeout_s), seed=self._seed)
        found = check_on_cpu(self._cpu, subject, wanted).fault
        return found if found is not None and found.what == "deadlock" else None

    def _memory(self, subject: CheckedPlan) -> CheckReport:
        """Every block. On the processor where that is quick, as for a launch of some 10^9
        accesses; under memcheck, which starts slowly and then runs on the GPU, for a larger one."""
        quick = min(self._cpu_first_s, subject.timeout_s)
        if quick > 0 and _plan_key(subject) not in self._too_large:
            on_cpu = check_on_cpu(self._cpu, subject, CpuCheck("memory", quick, sample=False))
            if on_cpu.found or not on_cpu.unchecked:
                return on_cpu
            self._too_large.add(_plan_key(subject))
        by_tool = self._memcheck(subject)
        if not by_tool.unchecked:
            return by_tool
        on_cpu = check_on_cpu(
            self._cpu, subject, CpuCheck("memory", subject.timeout_s, sample=False)
        )
        if on_cpu.found or not on_cpu.unchecked:
            return on_cpu
        return on_cpu._replace(unchecked=by_tool.unchecked + on_cpu.unchecked)

    def _full(self, subject: CheckedPlan) -> CheckReport:
        on_cpu = check_on_cpu(
            self._cpu, subject, CpuCheck("full", subject.timeout_s, seed=self._seed)
        )
        if on_cpu.found or not on_cpu.unchecked:
            return on_cpu
        by_tools = CheckReport()
        for tool in RACE_TOOLS:
            by_tools = by_tools.joined(self._race_tool(subject, tool))
        if by_tools.found or not by_tools.unchecked:
            return by_tools
        return by_tools._replace(unchecked=on_cpu.unchecked + by_tools.unchecked)

    def _race_tool(self, subject: CheckedPlan, tool: Tool) -> CheckReport:
        if tool == "initcheck" and self._sanitizer is not None:
            lacking = self._sanitizer.lacks(tool)
            if lacking is not None:
                return filled_shared(subject, lacking)
        run = self._look(subject, tool)
        if isinstance(run, CheckerUnavailable):
            return CheckReport(unchecked=(run,))
        warnings = tuple(f.misbehaved for f in run.found)
        return CheckReport(warnings=warnings, summary=_summary(run))

    def _memcheck(self, subject: CheckedPlan) -> CheckReport:
        run = self._look(subject, "memcheck")
        if isinstance(run, CheckerUnavailable):
            return CheckReport(unchecked=(run,))
        if not run.found:
            return CheckReport(summary=_summary(run))
        return CheckReport(self._in_cpu_words(subject, run.found[0]), summary=_summary(run))

    def _look(self, subject: CheckedPlan, tool: Tool) -> SanitizerRun | CheckerUnavailable:
        if self._sanitizer is None:
            return CheckerUnavailable(
                checker=f"compute-sanitizer {tool}", problem="it is not there", remedy=INSTALL
            )
        files = [f.path for f in subject.unit.program.files]
        called = {p.allocation: p.name for p in reversed([*subject.workload.pointers()])}
        names = names_for(subject.task, called, files)
        with self._turn():
            return self._sanitizer.look(
                tool, subject.task, names, self._command, subject.folder, subject.timeout_s
            )

    def _in_cpu_words(self, subject: CheckedPlan, found: SanitizerFault) -> Misbehaved:
        """The same access as the processor's checker names it, where it finds it in that block.

        It knows the allocation's name, which memcheck's output does not tell of two of one size.
        """
        said = found.misbehaved
        if said.what != "out_of_bounds" or UNNAMED not in said.message:
            return said
        wanted = CpuCheck("memory", PROBE_S, seed=self._seed, blamed=found.block)
        again = check_on_cpu(self._cpu, subject, wanted).fault
        if again is None or (again.what, again.location) != (said.what, said.location):
            return said
        return again


def _summary(run: SanitizerRun) -> str:
    missed = f" ({run.missed})" if run.missed else ""
    return f"{run.tool} over the whole plan, {run.seconds:.1f} s{missed}"


SHARED_FILLS = (0x00, 0x00, 0xFF)
"""What shared memory holds before each run of the plan: twice the same, to see whether results
differ by themselves, and not-a-number in every format."""


def filled_shared(subject: CheckedPlan, lacking: str) -> CheckReport:
    """In place of initcheck: whether results depend on what stood in shared memory. `lacking`: why
    that tool cannot look."""
    started = time.monotonic()
    results: list[dict[int, str]] = []
    for number, byte in enumerate(SHARED_FILLS):
        folder = subject.folder.absolute() / f"shared{number}"
        folder.mkdir(parents=True, exist_ok=True)
        dumps = {index: str(folder / f"{index}.bin") for index in subject.task.dumps}
        update = {"shared_fill": byte, "dumps": dumps, "global_dumps": {}}
        try:
            task = subject.task.model_copy(update=update)
            ran = expected(subject.launch(task, subject.timeout_s), RunReply)
        except EnvironmentFailure as problem:
            text = f"{lacking}, and in its place: {problem.problem}"
            remedy = "install a newer one"
            unavailable = CheckerUnavailable(
                checker="compute-sanitizer initcheck", problem=text, remedy=remedy
            )
            return CheckReport(unchecked=(unavailable,))
        if isinstance(ran, Misbehaved):
            return CheckReport(ran)
        results.append(outputs_of(task, ran))
    took = f"{time.monotonic() - started:.1f} s"
    way = f"shared memory filled with 00 and ff before the plan, {took}, in place of initcheck"
    first, again, other = results
    if not _same_files(first, again):
        return CheckReport(
            summary=f"{way} ({lacking}): results differ by themselves from run to run"
        )
    if _same_files(first, other):
        return CheckReport(summary=f"{way} ({lacking}): the same results")
    said = "its results depend on uninitialized shared memory"
    return CheckReport(warnings=(Misbehaved(what="uninitialised_read", message=said),), summary=way)


def _same_files(one: Mapping[int, str], other: Mapping[int, str]) -> bool:
    return all(same_contents(one[index], other[index]) for index in one)


SAMPLE_THREADS = 16 * 1024
"""Threads of a launch that are looked at; a smaller launch is looked at whole. That is 64 blocks of
256: 27 that are at corners, edges and in the middle, which are looked at however large they are,
and 37 drawn. A fault that one block in ten has is missed by those 37 once in fifty times."""

Launch = Callable[[RunTask, float], Reply | Misbehaved]
"""Does a task in a runner."""


class CheckedPlan(NamedTuple):
    """A plan on one workload, as the executor ran it."""

    unit: Unit
    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet
    task: RunTask
    """The same, as the runner was told."""
    launch: Launch
    folder: Path
    timeout_s: float


class Single(NamedTuple):
    """One launch alone, with the memory that the launches before it left."""

    number: int
    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet


def single_launches(subject: CheckedPlan) -> Iterator[Single | Misbehaved]:
    """Every launch of the plan in order. A launch that fails on the way ends the sequence.

    Of a plan with several, scratch buffers become allocations of the workload, so that what an
    earlier launch wrote to them is there. Earlier launches run whole, on the GPU.
    """
    if len(subject.plan.launches) == 1:
        yield Single(0, subject.workload, subject.plan, subject.inputs)
        return
    numbers = _scratch_numbers(subject)
    workload = _with_scratch(subject, numbers)
    for number, launch in enumerate(subject.plan.launches):
        alone = subject.plan.model_copy(
            update={"launches": (_without_scratch(launch, numbers),), "scratch_bytes": {}}
        )
        if number == 0:
            fills = dict.fromkeys(numbers.values(), subject.inputs.scratch_poison)
            poison = {**subject.inputs.poison, **fills}
            yield Single(0, workload, alone, subject.inputs.model_copy(update={"poison": poison}))
            continue
        state = _state_before(number, subject, numbers)
        if isinstance(state, Misbehaved):
            yield state
            return
        contents, variables = state
        held = tuple(
            g.model_copy(update={"before": variables.get(g.name, g.before)})
            for g in workload.globals
        )
        yield Single(
            number,
            workload.model_copy(update={"globals": held}),
            alone,
            InputSet(contents=contents, scratch_poison=subject.inputs.scratch_poison),
        )


def sampled_blocks(grid: Dim3, threads_a_block: int, seed: int) -> tuple[int, ...] | None:
    """Linear indices in ascending order; None for all.

    First, middle and last along every axis in every combination, then others drawn with `seed`
    until `SAMPLE_THREADS` are reached. The same arguments give the same blocks.
    """
    marks = [sorted({0, n // 2, n - 1}) for n in (grid.x, grid.y, grid.z)]
    chosen = {(z * grid.y + y) * grid.x + x for x, y, z in itertools.product(*marks)}
    room = max(SAMPLE_THREADS // max(threads_a_block, 1), len(chosen))
    if grid.volume <= room:
        return None
    draw = random.Random(f"{seed} {grid}")
    while len(chosen) < room:
        chosen.add(draw.randrange(grid.volume))
    return tuple(sorted(chosen))


def _state_before(
    number: int, subject: CheckedPlan, numbers: dict[str, int]
) -> tuple[dict[int, str], dict[str, str]] | Misbehaved:
    """Files with the contents of allocations and variables after the launches before this one."""
    folder = subject.folder.absolute() / f"before{number}"
    folder.mkdir(parents=True, exist_ok=True)
    task, side = subject.task, subject.task.side
    buffers = task.buffers + tuple(
        Buffer(index=numbers[s.name], size_bytes=s.size_bytes, fill=s.fill) for s in side.scratch
    )
    launches = tuple(
        one.model_copy(update={"values": _values(one.values, numbers)})
        for one in side.launches[:number]
    )
    prefix = task.model_copy(
        update={
            "side": side.model_copy(update={"launches": launches, "scratch": ()}),
            "buffers": buffers,
            "dumps": {b.index: str(folder / f"{b.index}.bin") for b in buffers},
            "global_dumps": {
                g.name: str(folder / f"global{n}.bin") for n, g in enumerate(side.globals)
            },
        }
    )
    reply = expected(subject.launch(prefix, subject.timeout_s), RunReply)
    if isinstance(reply, Misbehaved):
        return reply
    return outputs_of(prefix, reply), dict(prefix.global_dumps)


def _scratch_numbers(subject: CheckedPlan) -> dict[str, int]:
    first = max((a.index for a in subject.workload.allocations), default=-1) + 1
    return {name: first + n for n, name in enumerate(subject.plan.scratch_bytes)}


def _with_scratch(subject: CheckedPlan, numbers: dict[str, int]) -> Workload:
    sizes = subject.plan.scratch_bytes
    allocations = tuple(
        Allocation(
            index=number, size_bytes=sizes[name], element="opaque", role="out", before="", after=""
        )
        for name, number in numbers.items()
    )
    named = tuple(
        PointerArgument(name=name, element="opaque", allocation=number)
        for name, number in numbers.items()
    )
    workload = subject.workload
    return workload.model_copy(
        update={
            "allocations": workload.allocations + allocations,
            "arguments": workload.arguments + named,
        }
    )


def _without_scratch(launch: ResolvedLaunch, numbers: dict[str, int]) -> ResolvedLaunch:
    return launch.model_copy(update={"values": _values(launch.values, numbers)})


def _values(values: tuple[Value, ...], numbers: dict[str, int]) -> tuple[Value, ...]:
    return tuple(
        BufferValue(allocation=numbers[v.scratch], offset_bytes=v.offset_bytes)
        if isinstance(v, BufferValue) and v.scratch is not None
        else v
        for v in values
    )


Level = Literal["memory", "full"]

PROVEN: frozenset[MisbehaviourKind] = frozenset(
    (
        "out_of_bounds", "shared_race", "global_race", "divergent_barrier", "uninitialised_read",
        "deadlock",
    )
)  # fmt: skip
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


class CheckReport(NamedTuple):
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

    def joined(self, later: CheckReport) -> CheckReport:
        """Both, the first fault winning."""
        summary = "; ".join(s for s in (self.summary, later.summary) if s)
        return CheckReport(
            self.fault or later.fault,
            self.warnings + later.warnings,
            self.unchecked + later.unchecked,
            summary,
        )


class CpuCheck(NamedTuple):
    """A launch to check on the processor."""

    level: Level
    seconds: float
    """For all launches together, builds included."""
    sample: bool = True
    """False: every block."""
    seed: int = 0
    blamed: Index | None = None
    """A block that joins the sample."""


def _plan_key(subject: CheckedPlan) -> tuple[str, ...]:
    """The same for one kernel or rewrite on one workload, whatever its inputs."""
    unit = subject.unit
    rewrite = "" if unit.rewrite is None else unit.rewrite.id
    return subject.workload.folder, unit.callee, rewrite, str(unit.widened)


def check_on_cpu(cpu: CpuExecutor, subject: CheckedPlan, wanted: CpuCheck) -> CheckReport:
    """Every launch in order, up to the first that is fatal or cannot run there."""
    started = time.monotonic()
    built = build_unit(cpu.cache, subject.unit, "checked")
    if isinstance(built, CompileFailed):
        return _not_run(wanted, f"it does not compile there: {built.placed}")
    compiled = as_compiled(built, subject.unit)
    whole = CheckReport()
    samples: list[Sample] = []
    for single in single_launches(subject):
        if isinstance(single, Misbehaved):
            return whole.joined(CheckReport(single))
        left = max(wanted.seconds - (time.monotonic() - started), 0.1)
        folder = subject.folder / f"cpu-{wanted.level}{single.number}"
        only = _blocks(subject.unit, single, wanted)
        try:
            ran = cpu.run(
                compiled, single.workload, single.plan, single.inputs, folder,
                check=wanted.level, wanted=(), timeout_s=left, blocks=only,
            )  # fmt: skip
        except EnvironmentFailure as problem:
            return whole.joined(_not_run(wanted, problem.problem, problem.remedy))
        if isinstance(ran, Misbehaved):
            return whole.joined(_ended(wanted, ran))
        whole = whole.joined(CheckReport(warnings=ran.warnings))
        samples.append(_sample(subject, single, only))
    took = time.monotonic() - started
    looked = ", ".join(str(s) for s in samples)
    return whole._replace(summary=f"cpu checker ({wanted.level}): {looked}, {took:.1f} s")


def _blocks(unit: Unit, single: Single, wanted: CpuCheck) -> tuple[int, ...] | None:
    (launch,) = single.plan.launches
    if not wanted.sample:
        return None
    cluster = launched_cluster(unit, single.plan, launch) or Dim3()
    threads = launch.block.volume * cluster.volume
    chosen = sampled_blocks(cluster_grid(launch.grid, cluster), threads, wanted.seed)
    if chosen is None:
        return None
    if wanted.blamed is not None and _within(wanted.blamed, launch.grid):
        x, y, z = wanted.blamed
        block = (z * launch.grid.y + y) * launch.grid.x + x
        chosen = (*chosen, cluster_number(block, launch.grid, cluster))
    whole = (block for number in chosen for block in blocks_of(number, launch.grid, cluster))
    return tuple(sorted(set(whole)))


def _within(block: Index, grid: Dim3) -> bool:
    return block[0] < grid.x and block[1] < grid.y and block[2] < grid.z


def _sample(subject: CheckedPlan, single: Single, only: Sequence[int] | None) -> Sample:
    volume = single.plan.launches[0].grid.volume
    shown = subject.task.side.launches[single.number].kernel.shown
    return Sample(shown, volume if only is None else len(only), volume)


def _ended(wanted: CpuCheck, ran: Misbehaved) -> CheckReport:
    """A launch that did not come to its end on the processor."""
    if ran.what in PROVEN:
        return CheckReport(ran)
    if ran.what == "timeout":
        return _not_run(wanted, f"did not finish within {wanted.seconds:g} s")
    return _not_run(wanted, f"the kernel does not run there: {ran.placed}")


def _not_run(wanted: CpuCheck, problem: str, remedy: str = _REMEDY) -> CheckReport:
    name = f"cpu checker ({wanted.level})"
    return CheckReport(
        unchecked=(CheckerUnavailable(checker=name, problem=problem, remedy=remedy),)
    )
