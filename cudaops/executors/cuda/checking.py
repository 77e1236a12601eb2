"""What `Executor.run(check=...)` means on a GPU, and who finds the line of a fault that has none.

The plan has already run whole on the GPU between guard bands. `memory`: every block, in the `cpu`
executor's checker or under memcheck. `full`: that, and every launch again in the `cpu` executor's
checker, which is exact by construction and names both lines of a race, over a sample of blocks.
Shared memory belongs to one block, so no race, divergent barrier or unwritten read needs a second
block to be seen; what a sample misses is a fault that only certain blocks have. Where the source
does not run on a processor (inline PTX), racecheck, synccheck and initcheck look at the whole plan
instead. Who cannot run says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from cudaops.domain.execution import CheckerUnavailable, Misbehaved, MisbehaviourKind
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.check_launches import Subject
from cudaops.executors.cuda.cpu_checks import Checked, Level, Look, look_on_cpu
from cudaops.executors.cuda.sanitizer import (
    INSTALL,
    Looked,
    Sanitizer,
    TaskCommand,
    Tool,
    names_for,
)
from cudaops.executors.cuda.sanitizer_faults import UNNAMED, Blamed

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

    def check(self, subject: Subject, level: Level) -> Checked:
        """Look at a plan that ran to its end. Each checker has `subject.timeout_s` seconds."""
        found = self._memory(subject)
        if found.fault is not None or level == "memory":
            return found
        return found.joined(self._full(subject))

    def named(self, subject: Subject, fault: Misbehaved) -> Misbehaved:
        """The same fault with its line, where one of the checkers finds an access that explains it.

        Cheapest first: a sample on the processor, memcheck, all blocks on the processor.
        """
        if fault.what == "timeout":
            return self._deadlock(subject) or fault
        if fault.location is not None or fault.what not in UNPLACED:
            return fault
        some = Look("memory", min(PROBE_S, subject.timeout_s), seed=self._seed)
        ways: tuple[Callable[[], Checked], ...] = (
            lambda: look_on_cpu(self._cpu, subject, some),
            lambda: self._memcheck(subject),
            lambda: look_on_cpu(self._cpu, subject, some._replace(sample=False)),
        )
        for way in ways:
            found = way().fault
            if found is not None and found.location is not None:
                return found
        return fault

    def _deadlock(self, subject: Subject) -> Misbehaved | None:
        """A kernel that waits for itself never ends on a GPU; the processor's scheduler sees why.
        One that merely never ends takes all the time it is given there as well."""
        look = Look("memory", min(DEADLOCK_S, subject.timeout_s), seed=self._seed)
        found = look_on_cpu(self._cpu, subject, look).fault
        return found if found is not None and found.what == "deadlock" else None

    def _memory(self, subject: Subject) -> Checked:
        """Every block. On the processor where that is quick, as for a launch of some 10^9
        accesses; under memcheck, which starts slowly and then runs on the GPU, for a larger one."""
        quick = min(self._cpu_first_s, subject.timeout_s)
        if quick > 0:
            on_cpu = look_on_cpu(self._cpu, subject, Look("memory", quick, sample=False))
            if on_cpu.found or not on_cpu.unchecked:
                return on_cpu
        by_tool = self._memcheck(subject)
        if not by_tool.unchecked:
            return by_tool
        on_cpu = look_on_cpu(self._cpu, subject, Look("memory", subject.timeout_s, sample=False))
        if on_cpu.found or not on_cpu.unchecked:
            return on_cpu
        return on_cpu._replace(unchecked=by_tool.unchecked + on_cpu.unchecked)

    def _full(self, subject: Subject) -> Checked:
        on_cpu = look_on_cpu(self._cpu, subject, Look("full", subject.timeout_s, seed=self._seed))
        if on_cpu.found or not on_cpu.unchecked:
            return on_cpu
        by_tools = Checked()
        for tool in RACE_TOOLS:
            by_tools = by_tools.joined(self._race_tool(subject, tool))
        if by_tools.found or not by_tools.unchecked:
            return by_tools
        return by_tools._replace(unchecked=on_cpu.unchecked + by_tools.unchecked)

    def _race_tool(self, subject: Subject, tool: Tool) -> Checked:
        looked = self._look(subject, tool)
        if isinstance(looked, CheckerUnavailable):
            return Checked(unchecked=(looked,))
        warnings = tuple(f.misbehaved for f in looked.found)
        return Checked(warnings=warnings, summary=_summary(looked))

    def _memcheck(self, subject: Subject) -> Checked:
        looked = self._look(subject, "memcheck")
        if isinstance(looked, CheckerUnavailable):
            return Checked(unchecked=(looked,))
        if not looked.found:
            return Checked(summary=_summary(looked))
        return Checked(self._in_cpu_words(subject, looked.found[0]), summary=_summary(looked))

    def _look(self, subject: Subject, tool: Tool) -> Looked | CheckerUnavailable:
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

    def _in_cpu_words(self, subject: Subject, found: Blamed) -> Misbehaved:
        """The same access as the processor's checker names it, where it finds it in that block.

        It knows the allocation's name, which memcheck's output does not tell of two of one size.
        """
        said = found.misbehaved
        if said.what != "out_of_bounds" or UNNAMED not in said.message:
            return said
        look = Look("memory", PROBE_S, seed=self._seed, blamed=found.block)
        again = look_on_cpu(self._cpu, subject, look).fault
        if again is None or (again.what, again.location) != (said.what, said.location):
            return said
        return again


def _summary(looked: Looked) -> str:
    return f"{looked.tool} over the whole plan, {looked.seconds:.1f} s"
