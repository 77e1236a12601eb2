"""What the executor asks of a runner process and what it is answered: one JSON object a line.

The runner is trusted code in a process of its own: it holds the GPU's context, loads
what `executors.cuda.build` made, and launches it by plan. It never sees a reference result.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from cudaops.domain.base import Dim3, Record
from cudaops.domain.execution import MisbehaviourKind
from cudaops.domain.rewrite import Value

Regime = Literal["cold", "warm"]
"""State of the L2 cache before each timed launch. `cold`: twice the L2 was written just before.
`warm`: the same launch ran just before, on the same buffers."""


class DeviceFacts(Record):
    """What the driver says about the GPU that the runner holds."""

    real: bool
    """False: a stand-in that runs kernels on this machine's processor; its times mean nothing."""
    name: str
    """As the driver spells it: `NVIDIA H200`."""
    uuid: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block_optin: int
    max_sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    memory_bus_bits: int | None
    driver_version: str
    """Of the kernel driver, `580.159.04`; empty where NVML is not available."""
    cuda_version: str
    """Newest CUDA the driver speaks: `13.0`."""


class Launchable(Record):
    """A kernel in a built module."""

    entry: int
    """Step of the rewrite's plan; `BASELINE_ENTRY` for the baseline."""
    symbol: str
    """Mangled name in the cubin."""
    shown: str
    """As its author wrote it: `reg_matmul<64, 64>`."""
    parameter_types: tuple[str, ...]
    """C++ spelling after demangling, one a parameter: `float const*`, `int`, `Affine`."""


class Buffer(Record):
    """One allocation of the workload: its size and its contents before every launch."""

    index: int
    size_bytes: int
    file: str | None = None
    """Absolute path of a file of exactly that size."""
    fill: int | None = None
    """Byte that fills it instead; exactly one of `file` and `fill` is given."""
    name: str = ""
    """Parameter that points into it, for messages."""
    read_only: bool = False
    """The baseline leaves it as it is. Like every buffer it is restored before each sample, but not
    between the two launches of a warm sample, so that it stays in L2."""
    address: int | None = None
    """Where the program had it; None where no pointers in memory are followed."""
    widened_by: int = 1
    """Times that its elements are larger than the program's."""
    holds_pointers: bool = False
    """Addresses of buffers that are in its file are moved to where these lie."""


class TaskScratch(Record):
    """Temporary memory of a rewrite."""

    name: str
    size_bytes: int
    fill: int


class VariableImage(Record):
    """A `__constant__` or `__device__` variable that is set before every launch."""

    name: str
    """Qualified name in the program."""
    symbol: str
    """In the module."""
    size_bytes: int
    file: str


class PlannedLaunch(Record):
    """One kernel launch with everything evaluated."""

    kernel: Launchable
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    values: tuple[Value, ...]
    together: bool = False
    """Its blocks wait for each other, so that all of them have to be on the device at once."""


class Side(Record):
    """One plan, ready to be launched: a module and its launches in order."""

    module: str
    """Absolute path: a cubin, or what the stand-in runs."""
    launches: tuple[PlannedLaunch, ...]
    scratch: tuple[TaskScratch, ...] = ()
    globals: tuple[VariableImage, ...] = ()
    variables: tuple[str, ...] = ()
    """Symbols of every device variable of the module. Before each timed launch they hold again what
    they held after loading, so that no launch can leave anything behind for the next."""


class TimingPolicy(Record):
    """How times are taken."""

    warmups: int = 3
    """Launches of each side before any is timed."""
    samples: int = 40
    """Least number of timed samples a side and regime; an ABBA block gives two of each side."""
    samples_a_block: int = 8
    """Samples a side in one block, taken in the order A B B A A B B A ..."""
    redone_blocks: int = 10
    """Noisy blocks that may be taken again before the noise is accepted as it is."""
    noise_pct: float = 5.0
    """A block is noisy where half the spread between its quartiles exceeds this share of its
    median, on either side."""
    min_sample_us: float = 20.0
    """A launch shorter than this is repeated within a sample until the sample lasts as long
    (warm only: a cold launch is alone by its nature). Source: the resolution of CUDA events is
    about 0.5 us (CUDA Runtime API, cudaEventElapsedTime), so 20 us keep it under 3 %."""
    max_launches_a_sample: int = 200
    max_seconds: float = 20.0
    """No new block starts after this; fewer than `samples` is said, never hidden."""
    spin_up_ms: float = 100.0
    """Both sides run in turn for this long before anything is timed: clocks rise under load."""
    slope_ms: float = 2.0
    """What N launches take together, about, where the host's clock is asked; N is at least 4."""
    host_seconds: float = 2.0
    """How long the host's clock may be asked until its samples agree, which they do not at once
    where others use the GPU; 0: the least number of samples is taken as it is."""
    cupti_launches: int = 4
    """Launches whose kernel durations CUPTI records after every other time was taken; 0: none."""
    settled_pct: float | None = None
    """For one side that is only to be ranked. No further block is taken once the median is known to
    this share (its standard error, from the quartiles); nothing is taken that times are held
    against, neither gaps nor the host's clock; and of long launches as few as will do. None: all
    samples and cross-checks."""


class OutputWatch(Record):
    """What a runner needs to look at the results of timed launches, and to hand them out."""

    folder: str
    """Absolute; takes the dumps and is created."""
    seed: int
    """Secret: draws which samples are looked at, and where launches on other inputs stand."""
    alternatives: tuple[tuple[Buffer, ...], ...] = ()
    """Other contents of the same buffers. A buffer with `fill` is one that a launch overwrites
    whatever stood there: it is left as it is where inputs are exchanged between launches."""
    most_kept: int = 8
    """Distinct results a side and set of inputs whose contents are kept; fewer where large."""


class RunTask(Record):
    """Launch one side once and return the buffers it left."""

    op: Literal["run"] = "run"
    side: Side
    buffers: tuple[Buffer, ...]
    guards: bool = True
    """Guard bands around every allocation, checked afterwards. Off under a memory checker, which
    must see the true ends."""
    shared_fill: int | None = None
    """Byte that all shared memory holds before each launch; None: whatever was left there."""
    dumps: dict[int, str]
    """Allocation index to the file that takes its contents."""
    global_dumps: dict[str, str] = Field(default_factory=dict)


class SeriesLaunch(Record):
    """Memory contents before one launch of a series, and where its results go."""

    buffers: tuple[Buffer, ...]
    scratch_fill: int
    shift_bytes: int = 0
    """How far behind their usual place all buffers begin; a multiple of 256. Equal to that of the
    launch before: the same addresses; else everything is allocated anew."""
    keep_scratch: bool = False
    """Scratch memory holds what the launch before, at the same addresses, left in it."""
    dumps: dict[int, str]
    """Allocation index to the file that takes its contents."""
    global_dumps: dict[str, str] = Field(default_factory=dict)


class SeriesTask(Record):
    """Launch one side once for every set of inputs, its module loaded once. The task's variables
    are set before each launch, those of the module's own never again."""

    op: Literal["series"] = "series"
    side: Side
    launches: tuple[SeriesLaunch, ...]


class MeasureTask(Record):
    """Time one side, or two against each other."""

    op: Literal["measure"] = "measure"
    sides: tuple[Side, ...]
    """One, or baseline and candidate."""
    buffers: tuple[Buffer, ...]
    """Restored before every sample."""
    regimes: tuple[Regime, ...] = ("cold", "warm")
    policy: TimingPolicy = TimingPolicy()
    watch: OutputWatch | None = None
    """None: nobody looks at what timed launches write, and nothing may be accepted on it."""
    repeats: bool = True
    """Whether a launch may run on what another one left."""
    keep: bool = False
    """The buffers and their contents stay on the device for the next task that has the same.
    For searches: nothing may be accepted on it."""

    @property
    def is_hint(self) -> bool:
        """Whether its times only rank."""
        return self.policy.settled_pct is not None


class ProfileTask(Record):
    """Launch one side with one of its launches inside of a profiler range; run under ncu."""

    op: Literal["profile"] = "profile"
    side: Side
    buffers: tuple[Buffer, ...]
    launch: int
    """Index of the launch that is looked at."""
    turn_folder: str | None = None
    """Where the runner waits to be alone on the GPU for that launch (`turns`); None: it is."""


class ReleaseTask(Record):
    """Give back what earlier tasks left on the device. Answered like a probe."""

    op: Literal["release"] = "release"


class ProbeTask(Record):
    """Whether the GPU still works: allocate, copy there and back, compare."""

    op: Literal["probe"] = "probe"


Task = Annotated[
    RunTask | SeriesTask | MeasureTask | ProfileTask | ProbeTask | ReleaseTask,
    Field(discriminator="op"),
]


class FaultReply(Record):
    """The launched code did something wrong."""

    kind: Literal["fault"] = "fault"
    what: MisbehaviourKind
    message: str
    """One line, kernels and parameters by their names."""
    error: str = ""
    """The driver's name of it: `CUDA_ERROR_ILLEGAL_ADDRESS`."""
    sticky: bool = False
    """The context is lost: the runner ends after this reply and a new one must be started."""


class RefusedReply(Record):
    """The runner cannot do what it is asked: our mistake or the machine's, not the kernel's."""

    kind: Literal["refused"] = "refused"
    problem: str
    remedy: str
    no_room: bool = False
    """The device had not enough free memory."""


class RunReply(Record):
    """The launches ended and the dumps are written."""

    kind: Literal["ran"] = "ran"
    launch_us: tuple[float, ...]
    unchanged: tuple[tuple[int, ...], ...] = ()
    """Of each launch of a series, or of the one run: allocations that nobody may write to and that
    hold every byte of the file they were filled from. Nothing is written for these."""
    """Time of each launch of the plan, one sample, for orientation; of a series all, in order."""


class BlockState(Record):
    """The GPU around one ABBA block."""

    sm_clock_mhz: float | None
    temperature_c: float | None
    noise_pct: float
    redone: bool
    """Taken again because of its noise; its samples are not among the samples."""


class SideTimes(Record):
    """Times of one side in one regime."""

    samples_us: tuple[float, ...]
    """One a sample, all launches of the plan together, divided by the launches a sample. Paired
    by position with the other side's: both members of a pair stood side by side in their block."""
    launches_a_sample: int
    launches_a_plan: int = 1
    """Kernels that one launch of the plan starts."""
    slope_us: float | None = None
    """Host-clock time of 2N launches less that of N, over N: what events cannot forge. Warm."""
    slope_error_us: float | None = None
    """By how much the smallest of these samples differ, a launch; None: there is one of each."""
    cupti_us: tuple[float, ...] = ()
    """Durations CUPTI's activity records give for some launches, all kernels of the plan added."""
    cupti_problem: str = ""
    """Why CUPTI gave no duration for this side although it recorded: other kernels than planned."""
    kernel_us: tuple[float, ...] = ()
    """Of short launches: CUPTI's durations of as many as there are samples, paired by position with
    the other side's; empty where a launch is long against what is between two, or CUPTI gave
    no durations of both sides."""
    apart_us: tuple[float, ...] = ()
    """Times of the launches on other inputs, one launch each; not among the samples."""


class RegimeTimes(Record):
    """Both sides in one regime."""

    regime: Regime
    sides: tuple[SideTimes, ...]
    blocks: tuple[BlockState, ...]
    event_overhead_us: float
    """Median of an event pair with nothing between; not subtracted."""
    in_graph: bool = False
    """The launches of a sample are nodes of one CUDA graph."""
    gap_us: float | None = None
    """What a kernel that does nothing takes in the same samples, a launch: median; not subtracted.
    None: there is none."""


class TimedResult(Record):
    """One distinct result of timed launches and the samples that ended with it."""

    inputs: int
    """0: the task's buffers; n: the n-th of the alternatives, counted from 1."""
    files: dict[int, str]
    """Allocation index to the file with what the launch left there."""
    cold: tuple[int, ...] = ()
    warm: tuple[int, ...] = ()
    """Positions among the samples of each regime."""
    apart: int = 0
    """Samples that are not among those: on other inputs, or of a block that was taken again."""


class SideOutputs(Record):
    """What was seen of the results of one side."""

    results: tuple[TimedResult, ...]
    looked_at: int
    """Samples whose buffers were read, those apart included."""
    taken: int
    """Samples in all, those apart included."""
    not_kept: int
    """Of those looked at: ended with a result that was not kept, there being too many."""


class MeasureReply(Record):
    """Times were taken."""

    kind: Literal["measured"] = "measured"
    regimes: tuple[RegimeTimes, ...]
    seconds: float
    outputs: tuple[SideOutputs, ...] = ()
    """One a side where the task has a watch."""
    host_gap_us: float | None = None
    """Of a kernel that does nothing, what `SideTimes.slope_us` is of a plan."""
    host_gap_error_us: float | None = None
    """Of it, what `SideTimes.slope_error_us` is of a plan."""
    looking_s: float = 0.0
    """Of `seconds`: reading results, comparing and writing them."""
    notices: tuple[str, ...] = ()
    """What was not available: no NVML, no CUPTI, fewer samples than asked for."""


class ProfileReply(Record):
    """The launches ran, one of them inside of the range."""

    kind: Literal["profiled"] = "profiled"
    launch_us: tuple[float, ...]


class ProbeReply(Record):
    """The GPU works."""

    kind: Literal["healthy"] = "healthy"
    facts: DeviceFacts
    free_bytes: int


Reply = Annotated[
    FaultReply | RefusedReply | RunReply | MeasureReply | ProfileReply | ProbeReply,
    Field(discriminator="kind"),
]

TASK: TypeAdapter[Task] = TypeAdapter(Task)
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)
