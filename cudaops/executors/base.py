"""The seam between cudaops and a place where kernels run. One contract, two executors.

Every method takes and returns records. What the code under test does wrong comes back as
`CompileFailed` or `Misbehaved`; only a fault of the executor itself raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    Compiled,
    CompileFailed,
    InLockstep,
    Measurement,
    Misbehaved,
    ProgramOutcome,
    Ran,
    TimeSource,
    Unit,
)
from cudaops.domain.instructions import KernelInstructions
from cudaops.domain.judgement import IsolationLevel
from cudaops.domain.options import ExecutorName, WarmUps
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload

Rounding = Literal["nearest", "up", "down"]
Check = Literal["none", "memory", "full"]
"""`none`: guard bands only. `memory`: every access checked against the allocations.
`full`: memory, races on shared memory and divergent barriers, with source lines."""


class InputSet(Record):
    """Memory contents before a run."""

    contents: dict[int, str]
    """Allocation index to the absolute path of a file of exactly its size. Under `widened` contents
    are doubles: twice the size for f32, four times for f16 and bf16. Under `wide_doubles` those of
    f64 are `long double`, of 16 bytes each."""
    poison: dict[int, int] = Field(default_factory=dict)
    """Allocation index to the byte (0-255) that fills it instead; wins over `contents`."""
    scratch_poison: int = 0xA5
    """Byte that fills every scratch buffer."""
    shift_bytes: int = 0
    """How far behind their usual place all buffers begin; a multiple of 256, so that what a kernel
    may assume of `cudaMalloc`'s alignment holds. Only a series looks at it."""
    keep_scratch: bool = False
    """Scratch memory holds what the launch before left in it, as memory from the pool of the
    author's program may, and not `scratch_poison`. Only in a series, at the same `shift_bytes`."""


class Trial(NamedTuple):
    """One launch of many: arguments, sizes and contents of its own."""

    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet


OVERFLOW = "signed integer overflow"


class Tried(NamedTuple):
    """Outcome of a trial."""

    outcome: Ran | Misbehaved
    accesses: int | None = None
    """Of global memory; None where nobody counted."""
    reached_bytes: Mapping[int, int] = {}
    """Allocation to the end of the farthest access, from its begin; without those that were not
    touched."""
    leaves_state: bool = False
    """Whether a variable of the rewrite's own holds something else afterwards than before."""
    overflows: bool = False
    """Whether a signed integer ran over, under a check of `full`. C++ leaves that undefined."""

    @property
    def habits(self) -> frozenset[str]:
        """What the checker saw that is no fault where the author's kernel does it too."""
        warnings = self.outcome.warnings if isinstance(self.outcome, Ran) else ()
        found = {w.habit for w in warnings if w.habit}
        return frozenset(found | {OVERFLOW} if self.overflows else found)

    @property
    def races(self) -> frozenset[str]:
        """Of `habits` those that are races on global memory."""
        warnings = self.outcome.warnings if isinstance(self.outcome, Ran) else ()
        return frozenset(w.habit for w in warnings if w.what == "global_race" and w.habit)


class Branches(NamedTuple):
    """Ways that conditions went: two of an `if`, two of each operand of `&&`."""

    taken: int
    total: int
    missed_lines: tuple[int, ...]
    """Lines with a way that no trial took, ascending."""


class Executor(Protocol):
    """A place where kernels compile and run."""

    program_folder: Path | None
    """Where whole programs run and find their files; None: the working folder."""

    @property
    def cache(self) -> Path:
        """The cache (`cudaops.storage`) of what is compiled here."""

    @property
    def name(self) -> ExecutorName:
        """Which one it is."""

    @property
    def device(self) -> str:
        """Name in `cudaops.cuda.devices`: the device whose time is measured or modelled."""

    @property
    def time_source(self) -> TimeSource:
        """Clock of every time it gives."""

    @property
    def isolation(self) -> IsolationLevel:
        """How well untrusted code is confined here: the lowest level over the phases in which any
        of it runs on this machine's processor. Raises SandboxUnavailable: not as well as wanted."""

    @property
    def processor(self) -> Executor:
        """The executor that drawn inputs are tried on: this one, or one that runs the same sources
        on this machine's processor."""

    def check_available(self) -> None:
        """Raise PrerequisiteError with a remedy where this executor cannot work here."""

    def open_project(
        self,
        folder: Path,
        source: Path | None,
        command: str,
        executable: str | None,
        *,
        compiles: bool = True,
    ) -> Program:
        """Build a copy of the project in `folder` by its author's command, and read the CUDA file
        `source`, or the first that includes it, as the build compiles it; None: all of them as one
        program, to be run and no more.

        `executable`: which program of it is run; None where it creates one. `compiles` False: what
        the build asks of its compilers is noted and their objects are left empty, for a build that
        runs nothing of what it makes. Raises InputError where the build fails, does not compile the
        file, or cannot be done here.
        """

    def capture(
        self,
        program: Program,
        kernel: str | None,
        argv: tuple[str, ...],
        folder: Path,
        timeout_s: float,
        *,
        whole: bool = True,
        whole_s: float = 0.0,
        launch_s: float = 0.0,
        warm_ups: WarmUps = "auto",
    ) -> CaptureOutcome:
        """Run the whole program once and record the target's launches under `folder`.

        `kernel` None chooses the kernel with most time. `argv` excludes the program's name.
        `whole` False: only times are wanted, so not every block of every launch need be executed,
        nor the program run to its end (`Captured.cut`, `Captured.stopped`). Its time begins with
        its first launch then, for which `launch_s` are waited; for its first `whole_s` everything
        is executed all the same. Where kernels run on a GPU a program that launches nothing more
        for a while is not waited for (`Captured.paused`).
        `warm_ups`: whether launches outside of what the program times count.
        Raises InputError where `kernel` is not launched or the program launches nothing.
        """

    def as_reference(
        self,
        program: Program,
        kernel: str | None,
        found: Captured | Misbehaved,
        argv: tuple[str, ...],
        folder: Path,
        timeout_s: float,
        *,
        warm_ups: WarmUps = "auto",
    ) -> CaptureOutcome:
        """What `capture` found of the author's program, made fit to judge others by.

        Where kernels do not run on a GPU, the order of threads may decide what they compute: then
        it is captured again in lockstep, or `Captured.undecided` says why there is no right result.
        So is a program that says by its exit code that its results are wrong. `kernel`, `argv`,
        `folder`, `timeout_s` and `warm_ups` are those of the capture, which was of the `whole`
        program.
        """

    def is_independent_of_thread_order(
        self,
        unit: Unit,
        workload: Workload,
        inputs: InputSet,
        outputs: Mapping[int, str],
        folder: Path,
        timeout_s: float,
    ) -> bool:
        """Whether the author's kernel leaves these results on these inputs whichever of its threads
        comes last. True too where that cannot be found out. `folder` is created and removed.
        """

    def run_program(
        self,
        program: Program,
        argv: tuple[str, ...],
        timeout_s: float,
        *,
        lockstep: InLockstep | None = None,
        output: Path | None = None,
        until_pause: bool = False,
        clock_rate: float = 1.0,
    ) -> ProgramOutcome:
        """Run the whole program as its author would, for its outputs.

        `lockstep`: what its capture found (`Captured.lockstep`). `output`: a folder that it may
        write to beside its view, and that stays. `until_pause`: only as far as a capture of it
        that paused (`Captured.paused`). `clock_rate`: how many times as fast as they are the clocks
        go that it reads; where times are taken and not modelled they go as they are.
        """

    def prepare(self, program: Program) -> None:
        """Begin to build a whole program that will be run soon, where that saves time."""

    def compile(self, unit: Unit, *, draft: bool = False) -> Compiled | CompileFailed:
        """Compile a baseline or a rewrite. Cached by content.

        `draft` allows a quicker compiler, for searches: nothing is accepted on what it built.
        """

    def run(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: InputSet,
        folder: Path,
        *,
        check: Check = "none",
        wanted: Collection[int] | None = None,
        timeout_s: float = 60.0,
    ) -> Ran | Misbehaved:
        """Run a plan once on one workload; outputs land under `folder` (created).

        `wanted`: the allocations whose contents afterwards are in `Ran.outputs`; None: all.
        An `in` allocation that holds what it held before may be there as the file of its inputs.
        """

    def run_series(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: Sequence[InputSet],
        folder: Path,
        *,
        timeout_s: float = 60.0,
    ) -> tuple[Ran, ...] | Misbehaved:
        """Run the plan once for every input set, in this order, in one process and one module.

        The module is loaded once, so what a kernel keeps in its own variables stays from launch to
        launch; only the variables that the workload captured are set again. Before each launch
        buffers and scratch memory are filled anew: at the same addresses where `shift_bytes` is
        that of the launch before, else newly allocated, that many bytes behind their usual place.
        Scratch memory alone may stay as the launch before left it (`keep_scratch`).
        Guard bands are checked after each. Outputs land in `folder`/launch_00, launch_01, ...; what
        goes wrong says in which launch. `timeout_s` is for the whole series.

        Raises ValueError for no input set, for a `shift_bytes` that is no multiple of 256, and for
        `keep_scratch` where no launch at the same place came before.
        """

    def run_trials(
        self,
        compiled: Compiled,
        trials: Sequence[Trial],
        folder: Path,
        *,
        check: Check = "none",
        last_first: bool = False,
        rounding: Rounding = "nearest",
        most_accesses: int | None = None,
        limit_s: float = 2.0,
        timeout_s: float = 60.0,
    ) -> tuple[Tried, ...]:
        """Every trial once, each whatever the others did; outputs land in `folder`/launch_00,
        launch_01, ...

        `last_first`: threads of a block begin with the last, and blocks too where none can wait for
        another. `rounding`: of what a processor computes in floating point. `most_accesses` of
        global memory end a checked launch, as `limit_s` seconds of the processor do; what is not
        reached in `timeout_s` is a `timeout` as well.
        """

    def branches(
        self,
        compiled: Compiled,
        trials: Sequence[Trial],
        counted: Callable[[str, int], bool],
        folder: Path,
        timeout_s: float = 60.0,
    ) -> Branches | None:
        """Which ways the conditions on the lines that `counted` (file, line) wants take on trials
        that all end; None where nobody can count them."""

    def measure(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        timeout_s: float = 120.0,
    ) -> Measurement | Misbehaved:
        """Time of the plan on the workload's captured inputs, all launches of the plan together."""

    def measure_pair(
        self,
        baseline: Compiled,
        candidate: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        ranked: bool = False,
        thorough: bool = False,
        alternatives: Sequence[InputSet] = (),
        folder: Path | None = None,
        timeout_s: float = 120.0,
    ) -> tuple[Measurement, Measurement] | Misbehaved:
        """Baseline and candidate (whose plan is given) timed side by side on the captured inputs.

        Samples of the two are paired by position. Misbehaviour is the candidate's. `ranked`: as few
        as tell which of them is clearly faster; nothing may be accepted on them. `thorough`:
        several times as many as else, where those left it open.

        `folder` (created): what the timed launches wrote is looked at, and every distinct result
        is kept there (`Timing.timed_outputs`). Launches on `alternatives`, other contents of the
        same buffers, are at secret places between the samples then: their results are kept too,
        their times are not among the samples. A buffer that the first of them poisons is one that
        the launch overwrites: it holds a secret byte before every launch. Where time is not taken,
        both are passed over.
        """

    def profile(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        every_metric: bool = False,
        timeout_s: float = 120.0,
    ) -> Profile | Misbehaved:
        """Metrics of the plan's dominant launch on the workload's captured inputs: those that a
        verdict is drawn from, or every one that can be had, which may take longer."""

    def instructions(self, compiled: Compiled) -> tuple[KernelInstructions, ...] | str:
        """The unit's own kernels as machine instructions; a line that says why where they are not
        known."""

    def tools(self) -> Mapping[str, str]:
        """Name and version of every tool used, for certificates."""


@runtime_checkable
class Closes(Protocol):
    """An executor that keeps something: runners on a GPU, connections to a service."""

    def close(self) -> None:
        """End it. Twice is fine; nothing can be asked of the executor afterwards."""


def close_executor(executor: Executor) -> None:
    """End what the executor keeps, where it keeps anything."""
    if isinstance(executor, Closes):
        executor.close()
