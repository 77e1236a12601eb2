"""RunRecord: what one run found, tried and decided, written as `run.json`.

And what it says while it is at it (`Progress`), and asks a person (`ReviewRequest`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cudaops.domain.base import Dim3, Record
from cudaops.domain.execution import TimeSource
from cudaops.domain.instructions import InstructionChange
from cudaops.domain.judgement import Attempt, Gate, Judgement, Policy, Qualification
from cudaops.domain.model_use import ModelUse
from cudaops.domain.options import (
    ClockControl,
    CompilerOptions,
    ExecutorName,
    LimitOptions,
    MemoryOptions,
    OptimizerChoice,
    ProgramOptions,
    ProjectOptions,
    ReferenceOptions,
    ResolvedExecutor,
    TrustOptions,
)
from cudaops.domain.performance_limit import Library, PerformanceLimit
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import SearchOptions, SearchSummary

AgentName = Literal[
    "intake", "supervisor", "profiler", "research", "optimizer", "sandbox", "verify", "review",
    "report",
]  # fmt: skip

IsolationChoice = Literal["auto", "S1", "S2", "S3", "off"]
"""How well what we did not write is confined. `auto`: as well as this machine can. `S1`: no better
than that. `S2`, `S3`: at least that, or nothing runs. `off`: not at all."""
Outcome = Literal["accepted", "provisional", "nothing_found", "failed"]


class RunOptions(
    ProgramOptions,
    CompilerOptions,
    ProjectOptions,
    ReferenceOptions,
    LimitOptions,
    TrustOptions,
    MemoryOptions,
):
    """What the user asked for, resolved; enough to resume."""

    source: str
    """Path of the main file, absolute; of the reference in Python where there is one."""
    working_folder: str = "."
    """Where the program runs and finds its files, absolute."""
    executor: ResolvedExecutor = "cpu"
    """`remote`: not yet known, a service will choose. Never in a record."""
    optimizer: OptimizerChoice = "recipes"
    """`auto`: the same, of a service's model. Never in a record."""
    model: str | None = None
    """Name of the model that proposes, `nvidia/...` or `provider:model`; None with `recipes`."""
    no_model: str | None = None
    """Why recipes alone propose although nobody declined a model; said once, when a run begins."""
    search: SearchOptions = SearchOptions()
    device: str = "A10"
    """Name of the device in `cudaops.cuda.devices`; empty on `cuda` until the GPU was asked."""
    sm_arch: str = "sm_86"
    """nvcc target; empty on `cuda` until the GPU was asked."""
    ncu_clock_control: ClockControl = "none"
    ncu_every_metric: bool = False
    policy: Policy = Policy()
    is_triton: bool = False
    """Whether `source` is a program in Python with Triton kernels."""
    out: str
    """The run folder, absolute."""

    @property
    def program_folder(self) -> Path:
        """Where the program runs and finds its files, absolute: of a problem its inputs, as they
        were drawn into the run folder."""
        if self.kernel_source is not None and not self.compiles_itself:
            return Path(self.out) / "problem"
        return Path(self.working_folder).absolute()

    @property
    def compiles_itself(self) -> bool:
        """Whether the program is one in Python that compiles its CUDA while it runs."""
        own = (self.kernel_source or ".py").endswith(".py") and not self.is_triton
        return own and self.source.endswith(".py")


class Event(Record):
    """One line of `events.jsonl`."""

    seq: int
    """Position in the file, from 0."""
    time: str
    """UTC, ISO 8601 with milliseconds."""
    stage: str
    """Graph node: `intake`, `profiler`, `optimizer`, ..."""
    agent: AgentName
    kind: Literal["started", "finished", "progress", "notice", "failed"]
    message: str
    """One line a person reads."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Numbers for machines; small."""


LESSON = "memory/"
"""What the `note` of a passage from memory begins with, before the kernel's name."""


class Citation(Record):
    """A passage that Research cites."""

    note: str
    """Identifier of the note: `l1-load-throughput`."""
    title: str
    heading: str
    """Section of the note."""
    text: str
    source: str
    """What the note itself cites."""
    score: float
    """Retrieval score; higher is nearer. Comparable within one search only."""


class ResearchFindings(Record):
    """Passages of the corpus about the verdict."""

    query: str
    summary: str
    citations: tuple[Citation, ...] = ()
    digest: str = ""
    """What they come to for the kernel by a model, each sentence with the notes it rests on; empty
    where none was asked or no sentence named one."""
    degraded: str | None = None
    """Why there are no citations: corpus empty, database cannot start. None where all is well."""
    searched_with: str | None = None
    """The models that ordered the passages: embedding and reranking."""


class ProfileSummary(Record):
    """The `profile` part of the record."""

    verdict: str
    subtype: str
    metrics_parsed: int
    baseline: Profile
    verdict_detail: Verdict
    best: Profile | None = None
    """Profile of the accepted rewrite."""
    best_verdict: Verdict | None = None


class RegimeSummary(Record):
    """Medians of baseline and candidate with the L2 in one state."""

    baseline_ms: float
    candidate_ms: float
    speedup: float


class TimingSummary(Record):
    """How the times of the shown candidate were measured, on the most expensive workload."""

    regime: Literal["cold", "warm"]
    """State of the L2 in which the program itself runs the kernel: the bar is on this one."""
    cold: RegimeSummary | None
    warm: RegimeSummary | None
    cupti: RegimeSummary | None
    """By CUPTI's activity records, where CUPTI is there."""
    launched: RegimeSummary | None = None
    """Where the kernels' own time by CUPTI decides: what a launch takes as the program makes it,
    by the host's clock where it finds the L2 warm, else by CUDA events."""
    samples: int
    """Pairs of samples in the deciding regime."""
    blocks_redone: int
    sm_clock_mhz: tuple[float, float] | None
    """Lowest and highest between blocks of samples; None where it not available."""
    temperature_c: tuple[float, float] | None
    notices: tuple[str, ...] = ()


class VerifySummary(Record):
    """The `verify` part of the record; names as in the source write-up's raw run record."""

    compile_ok: bool
    correctness: Literal["match", "mismatch", "not_reached"]
    baseline_kernel_ms: float | None
    candidate_kernel_ms: float | None
    speedup: float | None
    iteration_accepted: int | None
    max_iterations: int
    accept_threshold: float
    gates: tuple[Gate, ...] = ()
    timing: TimingSummary | None = None
    """None for modelled times."""


MOST_ACCESSES = 40
"""Places of a kernel that are told of; of one with more, those that write, and its first reads."""


class AccessSummary(Record):
    """One place of a kernel's text that touches memory, as read from the text (not measured)."""

    kind: Literal["read", "write", "atomic"]
    array: str
    """Parameter, field or variable, and the element's field: `bodies.x`; `?` where unknown."""
    space: Literal["global", "shared", "local", "module", "unknown"]
    """`module`: a `__device__` or `__constant__` variable."""
    element: str
    """Type that is touched: `float4` for a vector access."""
    index: str
    """In elements. `at.x` stands for `blockIdx.x * blockDim.x + threadIdx.x`."""
    step: str
    """Between neighbouring threads of x: `same`, `adjacent`, `4096 B apart`, or by which array."""
    loops: tuple[str, ...] = ()
    """Around it, outermost first: trips in the hottest launch, and how far it moves in each."""
    is_conditional: bool = False
    """Under an `if`, or after one that leaves."""
    line: int | None = None


class ValueSummary(Record):
    """Contents of one captured buffer, as far as it was looked at."""

    workload: str
    allocation: int
    is_result: bool = False
    """After the author's kernel, where it changed something; else before it."""
    elements: int
    looked_at: int
    """Elements that these numbers are of: all, or blocks spread evenly."""
    least: float | None
    greatest: float | None
    """Finite ones; None where there are none."""
    zero_share: float
    """0-1, of those looked at."""
    non_finite_share: float = 0.0
    distinct: int | None = None
    """Different values; None: more than `sandbox.values.MOST_DISTINCT`."""
    order: Literal["ascending", "descending", "constant"] | None = None
    """Of neighbours that were looked at, equal ones allowed; None: neither."""


class LaunchConfiguration(Record):
    """One workload that is timed, as the program launches it."""

    workload: str
    callee: str
    grid: Dim3
    block: Dim3
    scalars: str = ""
    """Scalar arguments in which it differs from the other workloads: `n = 4096`."""
    launches: int
    """In one run of the program."""


class ProgramSummary(Record):
    """The author's program and what was captured of it."""

    source_sha256: str
    kernel: str
    callee: str
    launches: int
    workloads: int
    timed: tuple[LaunchConfiguration, ...] = ()
    """The most expensive first; empty in records of before."""
    program_seconds: float | None = None
    """Wall time of one whole run of the author's program; None where it was not run on a GPU."""
    kernel_seconds: float | None = None
    """All launches of the kernel in one run of the program, by CUDA events."""
    kernel_share_pct: float | None = None
    """`kernel_seconds` of `program_seconds`: what a faster kernel can save at most."""
    best_program_seconds: float | None = None
    """The same of the program with the best rewrite in it."""
    reported_kernel_ms: float | None = None
    """`KERNEL_MS` as the program prints it; emulated clocks mean nothing and are left out."""
    accesses: tuple[AccessSummary, ...] = ()
    """What the kernel does with memory; empty where it could not be read."""
    reference: Literal["function", "kernelbench"] | None = None
    """Form of the reference in Python whose result it computes; None where there is none."""
    limits: tuple[str, ...] = ()


class ApproximateCost(Record):
    """US dollars that a run cost; None where a price or the provider's count of tokens is missing,
    or where nothing of the kind was used. Its name is that of the source write-up's record."""

    gpu: float | None = None
    """The whole run's time at `gpu_usd_per_hour`; on `cuda` only."""
    gpu_usd_per_hour: float | None = None
    """`CUDAOPS_GPU_PRICE` as it was in the run."""
    model_tokens: float | None = None
    """`model.cost_usd`."""
    total: float | None = None
    """Of what was used; None where a part of it has no price."""
    per_accepted_percent: float | None = None
    """`total` for each percent by which an accepted rewrite is faster: 100 at a speedup of 2.0.
    None where nothing was accepted; a modelled speedup never is."""


class RawProfile(Record):
    """Profile of the baseline. Percentages are 0-100; None where the metric is unknown."""

    verdict: str
    sm_throughput_pct: float | None
    l1_throughput_pct: float | None
    dram_throughput_pct: float | None
    l1_hit_rate_pct: float | None
    achieved_occupancy_pct: float | None
    metrics_parsed: int


class RawVerify(Record):
    """Verification of the best candidate, or of the last one if none was accepted."""

    compile_ok: bool
    correctness: Literal["match", "mismatch", "not_reached"]
    baseline_kernel_ms: float | None
    candidate_kernel_ms: float | None
    speedup: float | None
    iteration_accepted: int | None
    max_iterations: int
    accept_threshold: float


class RawCost(Record):
    """US dollars; None where nothing was used or a price is unknown."""

    gpu: float | None = None
    nim_tokens: float | None = None
    """Tokens of the language model, of any provider."""


class RawRunRecord(Record):
    """The run under the field names of the source write-up's raw run record."""

    date: str
    """UTC, ISO 8601."""
    gpu: str
    """`H200 (sm_90a)`; `A10 (sm_86, modelled)` without a GPU."""
    provider: str | None
    """Manufacturer of the machine by its DMI table, which names the cloud on an instance; None
    where it is unknown."""
    kernel: str | None
    profile: RawProfile | None
    verify: RawVerify
    loop_time_seconds: float
    cost_usd_approx: RawCost


class RunRecord(Record):
    """One run of the main job."""

    run_id: str
    date: str
    """UTC, ISO 8601."""
    cudaops_version: str
    outcome: Outcome
    reason: str
    """Why it ended as it did, in one sentence."""
    ended: bool = True
    """False: the results so far, written when a rewrite was accepted; something ended the run."""
    executor: ExecutorName
    time_source: TimeSource
    device: str
    sm_arch: str
    device_row: dict[str, Any] | None = None
    """Row of a device that cudaops' own table has not; None where it has it."""
    options: RunOptions
    program: ProgramSummary | None = None
    profile: ProfileSummary | None = None
    end: PerformanceLimit | None = None
    """Why the best rewrite, or the author's kernel where there is none, cannot be made faster; None
    where the record does not show it."""
    library: Library | None = None
    """That does the kernel's whole job; None where none is known to. It was not timed."""
    research: ResearchFindings | None = None
    verify: VerifySummary
    best: Rewrite | None = None
    judgement: Judgement | None = None
    """Of the best candidate; None where none was accepted."""
    qualification: Qualification | None = None
    """What the oracle can see on this program; None if it was not measured."""
    attempts: tuple[Attempt, ...] = ()
    transformations: tuple[SearchSummary, ...] = ()
    """Searches over transformations, in order."""
    instructions: InstructionChange | None = None
    """What changed in SASS, where something was kept and built for a GPU."""
    model: ModelUse | None = None
    """What was asked of a language model; None where none was asked."""
    cost_usd_approx: ApproximateCost | None = None
    """None where the run used neither a GPU nor a language model."""
    raw: RawRunRecord | None = None
    """Summary under the write-up's field names; None in older records."""
    notices: tuple[str, ...] = ()
    """What was degraded or left out, in plain words."""
    seconds_by_stage: dict[str, float] = Field(default_factory=dict)
    seconds_by_tool: dict[str, float] = Field(default_factory=dict)
    """Time in which each tool worked (nvcc, ncu, the program, runners on the GPU), and `cudaops
    itself`, in which none did. Tools that work at once are each counted whole."""
    loop_time_seconds: float
    tools: dict[str, str] = Field(default_factory=dict)


class TriedConfiguration(Record):
    """A configuration of a rewrite that the tuner measured."""

    values: dict[str, int]
    """By `@tune` name."""
    time_us: float
    """Median of the most expensive workload."""
    provenance: str
    """The qualifier of the time: ` (modelled for A10)`; empty where measured."""

    @property
    def line(self) -> str:
        """Values and time in one line."""
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"tried {values}: {self.time_us:.1f} us{self.provenance}"


Progress = str | Gate | TriedConfiguration
Say = Callable[[Progress], None]
"""Is told what is going on, every gate's outcome among it."""


def line_of(progress: Progress) -> str:
    """What a person reads of it."""
    return progress if isinstance(progress, str) else progress.line


def event_data(progress: Progress) -> dict[str, Any]:
    """What an event's `data` says of it: a configuration with its time, rounded to 0.1 us, or a
    gate's outcome. Empty for a plain line."""
    match progress:
        case TriedConfiguration():
            return {"values": progress.values, "time_us": round(progress.time_us, 1)}
        case Gate():
            held = "quarantined" if progress.quarantined else "failed"
            return {"gate": progress.name, "outcome": "passed" if progress.passed else held}
    return {}


class ReviewRequest(Record):
    """A candidate that passed every gate, or only lacks what a person may release."""

    title: str
    proposer: str
    why: str
    """The proposer's own reason."""
    outcome: str
    """What it becomes on a yes: `accepted` or `provisional`."""
    reason: str
    """Speedup, bar and interval in one line."""
    speedup: float | None
    time_source: TimeSource | None
    gates: tuple[str, ...]
    """Every gate in one line."""
    quarantined: tuple[str, ...]
    """The gates that a yes releases, each with what to look at."""
    patch: str
    """Unified diff against the author's program."""


class ReviewAnswer(Record):
    """Yes or no, and whose."""

    accept: bool
    by: str
    """Who answered: the account's name, or what a program gives."""
    note: str = ""
    """Why, in their words; kept in the certificate and told to the next attempt."""


class AwaitsReview(Exception):
    """The run waits for a reviewer's answer; resuming it asks again."""

    def __init__(self, request: ReviewRequest) -> None:
        super().__init__(f"{request.title} waits for a yes or no")
        self.request = request
