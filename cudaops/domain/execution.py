"""What an executor gives back. Misbehaviour of untrusted code is a value."""

from __future__ import annotations

import statistics
from typing import Annotated, Literal

from pydantic import Field

from cudaops.domain.base import Dim3, Record, SourceLocation
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Argument, Workload

TimeSource = Literal["cuda_event", "cupti", "ncu", "modelled", "standin"]
"""`modelled`: computed from counts. `standin`: of kernels on this machine's processor in place of a
GPU, which says nothing of any GPU. The rest is measured."""

MEASURED: frozenset[TimeSource] = frozenset(("cuda_event", "cupti", "ncu"))
"""Sources on which something may be accepted."""

CLOCKS_BESIDE: dict[TimeSource, frozenset[TimeSource]] = {"cuda_event": frozenset(("cupti",))}
"""Which sources may time a launch where another one is what an executor times by: kernels too short
for CUDA events are timed by CUPTI."""

UNMEASURED_WORDS: dict[str, str] = {
    "modelled": "modelled for {device}",
    "standin": "of a stand-in for {device}, not of a GPU",
}
"""The qualifier of any number from the other sources."""


class UnorderedAccess(Record):
    """A data race: a read and a write of the same memory by two threads without synchronisation
    between them."""

    scope: Literal["warp", "block", "grid"]
    """Whether the two are lanes of one warp, of two warps of a block, or of two blocks."""
    space: Literal["shared", "global"]
    read: SourceLocation | None
    write: SourceLocation | None

    @property
    def line(self) -> str:
        """`k.cu:7 reads shared memory that another lane of the warp writes at k.cu:9`."""
        others = {"warp": "another lane of the warp", "block": "another warp"}
        who = others.get(self.scope, "another block")
        read, write = self.read or "an unknown line", self.write or "an unknown line"
        return f"{read} reads {self.space} memory that {who} writes at {write}"


class InLockstep(Record):
    """A kernel whose lanes read what other lanes of their warp wrote, with no barrier between them.

    Where a processor runs lanes one after another, it runs these together: each waits before an
    access until the others of its warp that will make it are there.
    """

    kernel: str
    """Unqualified name."""
    memory: Literal["shared", "all"]
    """Which accesses wait: those of shared memory, or of global memory too."""


class Unit(Record):
    """What is compiled: a program's kernel, or a rewrite of it, with launch entries."""

    program: Program
    kernel: str
    """Unqualified name of the baseline kernel."""
    callee: str
    """Baseline instance as launched, template arguments included."""
    rewrite: Rewrite | None = None
    """None: the baseline itself."""
    widened: bool = False
    """True: `float` (and narrower) compiled as `double`, the accuracy yardstick."""
    wide_doubles: bool = False
    """True where `widened`: and `double` as `long double`, on this machine's processor."""
    lockstep: InLockstep | None = None
    """How the baseline, and never a rewrite, must run where lanes run one after another."""


class KernelResources(Record):
    """What one compiled kernel takes of an SM, as `ptxas -v` reports it."""

    kernel: str
    """As its author wrote it, template arguments included."""
    sm_arch: str
    registers: int
    """A thread."""
    static_smem_bytes: int
    """A block."""
    stack_bytes: int
    """A thread: arrays and calls that did not fit into registers."""
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int
    """Kernel parameters and constants, bank 0."""


class Compiled(Record):
    """A unit that compiled."""

    kind: Literal["compiled"] = "compiled"
    key: str
    """Content address: the same key is the same source, flags and compiler."""
    folder: str
    """Where the executor keeps what it built."""
    unit: Unit
    command: str
    compiler: str
    """Name and version."""
    seconds: float
    cached: bool = False
    log: str = ""
    resources: tuple[KernelResources, ...] = ()
    """One a launch step of a rewrite, or the baseline's; empty where no ptxas was asked."""
    draft: bool = False
    """Built by a quicker compiler for the search; nothing is accepted on it."""


class Fault(Record):
    """Something untrusted code did wrong, and where."""

    message: str
    location: SourceLocation | None = None

    @property
    def placed(self) -> str:
        """The message in one line, behind its place where that is known."""
        return f"{self.location}: {self.message}" if self.location else self.message


class CompileFailed(Fault):
    """A unit the compiler refused."""

    kind: Literal["compile_failed"] = "compile_failed"
    message: str
    """The first error, in one line."""
    location: SourceLocation | None = None
    """In the author's file or in `candidate.cu` for a rewrite's own text."""
    log: str
    """Bounded to 16 KiB."""


MisbehaviourKind = Literal[
    "crash", "timeout", "out_of_bounds", "shared_race", "global_race", "divergent_barrier",
    "guard_overwritten", "launch_refused", "uninitialised_read", "exit_code", "output_flood",
    "deadlock", "undefined_arithmetic", "not_measured",
]  # fmt: skip
"""`not_measured` alone is our own: the time model contradicted itself. The code is not to blame,
and cannot be judged by this measurement. `undefined_arithmetic`: a processor's result is not a
GPU's."""


WRITES_THE_SAME = "writes to the same shared memory"
"""What the checker says of threads that write one value to one place with no barrier between them:
which of them comes last makes no difference on these inputs."""


IN_NO_ORDER = ", and nothing puts the two in order: "
"""What the checker says of two accesses of global memory, ahead of what is done to which buffer."""


class Misbehaved(Fault):
    """A fault of the program or kernel. Not a failure of ours, but `not_measured`."""

    kind: Literal["misbehaved"] = "misbehaved"
    what: MisbehaviourKind
    message: str
    """One line that names the fault and, where known, the access."""
    location: SourceLocation | None = None
    log: str = ""

    @property
    def habit(self) -> str:
        """Of what the checker saw, what shows in no result by itself and is no fault where the
        author's kernel does it too; empty for everything else."""
        if self.what == "uninitialised_read" and "shared memory" in self.message:
            return "shared memory that is read before it is written"
        if self.what == "undefined_arithmetic":
            kind = "shifts" if "shifts" in self.message else "conversions"
            return f"{kind} that C++ leaves undefined"
        if self.what == "shared_race" and WRITES_THE_SAME in self.message:
            return "threads that write one value to one address of shared memory"
        if self.what == "global_race":
            return self.message.partition(IN_NO_ORDER)[2]
        return ""


class CheckerUnavailable(Record):
    """A checker that was asked for and could not do its work. Nobody's misbehaviour: what it would
    have found is not known, and the gate it belongs to fails."""

    kind: Literal["checker_unavailable"] = "checker_unavailable"
    checker: str
    """`compute-sanitizer racecheck`, `cpu checker (full)`."""
    problem: str
    remedy: str
    """What the user can type or change."""

    @property
    def line(self) -> str:
        """Who could not run, why, and what to do."""
        return f"{self.checker} could not run: {self.problem}; {self.remedy}"


class Ran(Record):
    """A plan that ran on one workload. Its outputs are files, one an allocation."""

    kind: Literal["ran"] = "ran"
    outputs: dict[int, str]
    """Allocation index to the absolute path of its contents afterwards."""
    global_outputs: dict[str, str] = Field(default_factory=dict)
    seconds: float
    """Wall time of the child process, start-up included."""
    warnings: tuple[Misbehaved, ...] = ()
    """Found by a checker but not fatal to the run (races, divergent barriers)."""
    unchecked: tuple[CheckerUnavailable, ...] = ()
    """Checks that were asked for and not made; without warnings this proves nothing then."""
    checked: str = ""
    """What was looked at and by whom, in one line; empty where no check was asked for."""


class LaunchCount(Record):
    """How often a program launched one kernel, and what it cost there."""

    kernel: str
    launches: int
    skipped: int
    """Launches proven to be a fixed point of memory and therefore not repeated."""
    seconds: float
    """The capturing executor's own clock, skipped launches counted at the mean of the others."""
    warm_ups: int = 0
    """Launches that do not count: outside of what the program times, where it times some."""
    warm_up_seconds: float = 0.0
    """What they cost."""
    is_timed: bool = False
    """Whether it is of what the program times of itself."""

    @property
    def counted_seconds(self) -> float:
        """What the launches that count cost."""
        return self.seconds - self.warm_up_seconds


class RecordedMemory(Record):
    """An allocation around one launch: digests of its contents, never the contents."""

    size_bytes: int
    before: str
    after: str


class RecordedLaunch(Record):
    """The first launch of one configuration of a kernel, whatever kernel that is."""

    kernel: str
    """Unqualified name."""
    callee: str
    """With template arguments, as in `Workload`."""
    site: int
    """`LaunchSite.index`."""
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    arguments: tuple[Argument, ...]
    """Named as in the kernel's definition; `allocation` is an index into `memory`."""
    read_only: tuple[bool, ...]
    """One an argument: a pointer to const."""
    memory: tuple[RecordedMemory, ...]
    launches: int
    """How often the program launched this configuration."""
    problem: str = ""
    """Why it cannot be followed; then nothing is said of arguments and memory."""


class LaunchNumbers(Record):
    """A launch of the target by its geometry and the numbers that it was given."""

    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    sizes_bytes: tuple[int, ...]
    """Of the allocations that it reaches, in order of first mention."""
    numbers: dict[str, int | float]
    """Scalar arguments by name."""


class Captured(Record):
    """A program that ran, with the launches of its target recorded."""

    kind: Literal["captured"] = "captured"
    kernel: str
    """Unqualified name of the target: the one asked for, else the one with most time."""
    workloads: tuple[Workload, ...]
    """Most expensive first, covering 90 % of the kernel's time, at most 5, and 2 of large launches
    that are alike; then one of each further template instance."""
    counts: tuple[LaunchCount, ...]
    stdout: str
    stderr: str
    exit_code: int
    seconds: float
    kernel_ms: float | None = None
    """`KERNEL_MS: x` from stderr where the program prints it; never part of a verdict."""
    recorded: tuple[RecordedLaunch, ...] = ()
    """Configurations of every kernel that was recorded, in the order of their first launches."""
    others: tuple[LaunchNumbers, ...] = ()
    """Further configurations of the target, whose contents were not kept."""
    cut: tuple[str, ...] = ()
    """Kernels of which not every block was executed, where only times were wanted."""
    beyond: tuple[str, ...] = ()
    """Accesses outside of an allocation that were allowed, where only times were wanted: a line
    each."""
    alike: int = 0
    """Configurations of large launches that are no workloads, since two like them are."""
    stopped: bool = False
    """It took longer than it may and was ended: launches and times are those until then."""
    paused: bool = False
    """It launched nothing more for a while, and what came after was not waited for."""
    passed_over: tuple[str, ...] = ()
    """Why kernels with more time are not the target: a line each."""
    lockstep: InLockstep | None = None
    """Not None: this kernel ran in lockstep when it was captured."""
    unordered: tuple[UnorderedAccess, ...] = ()
    """Why it did, or why its results are no reference; empty where their order decides nothing."""
    undecided: str = ""
    """Why its results are no reference; empty where they are one."""


class Replaced(Record):
    """What a preloaded library counted in one run, over all processes of the program."""

    by_rewrite: int
    """Launches."""
    by_author: int
    """Launches of the same kernel that were left to it."""
    reason: str = ""
    """Why the first of those was."""


class ProgramRan(Record):
    """A whole program that ran to its end, for comparison of outputs."""

    kind: Literal["program_ran"] = "program_ran"
    stdout: str
    stderr: str
    exit_code: int
    seconds: float
    kernel_ms: float | None = None
    paused: bool = False
    """What it printed and took until it launched nothing more (`Captured.paused`): its end was not
    reached in time."""
    replaced: Replaced | None = None
    """Of an application with a rewrite in it: how often that was launched."""


class TimedOutput(Record):
    """One distinct result of timed launches, kept for comparison with the reference."""

    inputs: int
    """0: the captured inputs; n: the n-th set that the measurement was given beside them."""
    files: dict[int, str]
    """Allocation index to the absolute path of what the launch left there."""
    cold: tuple[int, ...] = ()
    warm: tuple[int, ...] = ()
    """Positions, among the samples of each regime, of those that ended with this result."""
    apart: int = 0
    """Samples beside those that did: on other inputs, or of a block that was taken again."""

    @property
    def samples(self) -> int:
        """How many samples ended with it."""
        return len(self.cold) + len(self.warm) + self.apart


STEADY_SHARE, STEADY_US = 0.15, 1.0
"""Samples by the host's clock agree where they differ by no more than this share of a launch's time
and this much a launch: as far as `gates.clocks` lets the host's clock and the events differ."""


class Timing(Record):
    """How measured samples were taken, and what else was seen meanwhile."""

    regime: Literal["cold", "warm"]
    """State of the L2 before each sample; the regime in which the program itself runs."""
    cold_us: tuple[float, ...] = ()
    warm_us: tuple[float, ...] = ()
    """Samples of both regimes; those of `regime` are the measurement's own."""
    launches_a_sample: int = 1
    launches_a_plan: int = 1
    """Kernels that one launch of the plan starts."""
    host_slope_us: float | None = None
    """Time of a warm launch by the host's clock, from N and 2N launches; None: not taken."""
    host_error_us: float | None = None
    """By how much its smallest samples differ, a launch; None: there is one of each."""
    cupti_us: tuple[float, ...] = ()
    """Kernel durations in `regime` by CUPTI's activity records; empty where CUPTI is not there."""
    cupti_problem: str = ""
    """Why CUPTI gave none for this side although it recorded: other kernels than planned."""
    event_overhead_us: float | None = None
    launched_us: tuple[float, ...] = ()
    """Of short launches, whose samples are their kernels' own durations by CUPTI: the samples by
    events, which hold what a launch takes as well. Empty where the samples are by events."""
    in_graph: bool = False
    """Warm samples that repeat their launch do so in one CUDA graph."""
    gap_us: float | None = None
    """What a kernel that does nothing takes, launched in the same way, in `regime`; None: not
    known."""
    warm_gap_us: float | None = None
    """The same in warm samples."""
    host_gap_us: float | None = None
    """The same by the host's clock, launched back to back as in `host_slope_us`."""
    host_gap_error_us: float | None = None
    """Of it, what `host_error_us` is of the plan."""
    sm_clock_mhz: tuple[float, ...] = ()
    """One a block of samples."""
    temperature_c: tuple[float, ...] = ()
    blocks_redone: int = 0
    timed_outputs: tuple[TimedOutput, ...] = ()
    """What timed launches wrote; empty where nobody looked."""
    outputs_looked_at: int = 0
    """Samples of both regimes whose results were looked at, those apart included."""
    outputs_taken: int = 0
    """Samples of both regimes, those apart included; 0 where nobody looked."""
    outputs_not_kept: int = 0
    """Of those looked at: with a result that was not kept, there being too many distinct ones."""
    apart_us: tuple[float, ...] = ()
    """Times in `regime` of launches on the other sets of inputs, at secret places between the
    samples; never among them."""
    looking_seconds: float = 0.0
    """What looking at the results of this and the other side took."""
    notices: tuple[str, ...] = ()

    @property
    def host_is_steady(self) -> bool:
        """Whether samples by the host's clock agree so far that their time can be believed. They
        do not where others have used the GPU for a part of them."""
        if self.host_error_us is None or not self.warm_us:
            return True
        return self.host_error_us <= STEADY_SHARE * statistics.median(self.warm_us) + STEADY_US


class Measurement(Record):
    """Samples of the time of one plan on one workload."""

    kind: Literal["measurement"] = "measurement"
    source: TimeSource
    device: str
    samples_us: tuple[float, ...]
    """One a timed launch (all launches of the plan together), in order."""
    workload: str
    profile: Profile | None = None
    """The counts behind a modelled time; None for a measured one."""
    timing: Timing | None = None
    """How a measured time was taken; None for a modelled one."""
    sampled_us: tuple[float, float] | None = None
    """Lower and upper end of a modelled time, by how much the work of the sampled blocks differs,
    at 95 %; None where they do alike or all of them ran, and for a measured time."""

    @property
    def ends_us(self) -> tuple[float, float]:
        """`sampled_us`; the time itself where there is none."""
        return self.sampled_us or (self.median_us, self.median_us)

    @property
    def median_us(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_us)

    @property
    def events_us(self) -> float:
        """Median by CUDA events, also where the samples are the kernels' own durations."""
        launched = self.timing.launched_us if self.timing is not None else ()
        return statistics.median(launched or self.samples_us)

    @property
    def back_to_back_us(self) -> float | None:
        """As a program takes it that launches it again and again: by the host's clock where the
        program finds the L2 warm, else by events. None where only the kernel's time is known, and
        where others used the GPU too much for the host's clock to tell."""
        if self.timing is None:
            return None
        if self.timing.regime == "warm":
            return self.timing.host_slope_us if self.timing.host_is_steady else None
        return self.events_us

    @property
    def provenance(self) -> str:
        """The qualifier of any number drawn from this: ` (modelled for A10)`, or nothing."""
        words = UNMEASURED_WORDS.get(self.source)
        return "" if words is None else f" ({words.format(device=self.device)})"

    @property
    def provenance_of_time(self) -> str:
        """The same behind this time alone: ` (modelled for A10, 5.2 to 7.9 us by the sampled
        blocks)`."""
        if self.sampled_us is None:
            return self.provenance
        low_us, high_us = self.sampled_us
        told = f", {low_us:.1f} to {high_us:.1f} us by the sampled blocks)"
        return self.provenance.removesuffix(")") + told


CompileOutcome = Annotated[Compiled | CompileFailed, Field(discriminator="kind")]
CaptureOutcome = Annotated[Captured | CompileFailed | Misbehaved, Field(discriminator="kind")]
ProgramOutcome = Annotated[ProgramRan | CompileFailed | Misbehaved, Field(discriminator="kind")]
