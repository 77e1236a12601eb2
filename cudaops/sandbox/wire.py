"""What goes between the `remote` executor and a service: calls, replies, references to contents.

A file's contents never stand in a record: where a record names a file, the SHA-256 of its contents
stands on the wire, and the contents go apart, once. Neither side believes a path of the other.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from cudaops.domain.base import Record
from cudaops.domain.execution import (
    Captured,
    CompileFailed,
    KernelResources,
    Measurement,
    Misbehaved,
    ProgramRan,
    Ran,
    TimeSource,
)
from cudaops.domain.judgement import IsolationLevel, Precision
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.sandbox.executors.base import Check, InputSet
from cudaops.sandbox.executors.elsewhere import ObjectLook, TextView

PROTOCOL = 1
"""Raised whenever the two sides would misunderstand each other; they must have the same one."""

MAX_TIMEOUT_S = 600.0
"""Longest limit a call may ask for, as for jobs."""
MAX_REFERENCES = 4096
"""Most contents one call or question may name."""

Reference = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of contents, in hex."""
Seconds = Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)]
Argument = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00]*$")]
Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$",
                      max_length=200),
]  # fmt: skip
Machinery = Literal["cpu", "cuda"]


class Place(Record):
    """Where a call is to run, and whose time it takes."""

    executor: Machinery
    device: Annotated[str, StringConstraints(max_length=100, pattern=r"^[^\x00-\x1f]*$")]
    """On `cpu` the device whose time is modelled; on `cuda` the name of the GPU that must do it."""
    sm_arch: Annotated[str, StringConstraints(pattern=r"^(sm_\d{2,3}[af]?)?$")] = ""
    """nvcc target; empty: the GPU's own."""

    @property
    def target(self) -> str:
        """Which workers can do it: `cpu`, `cuda:NVIDIA H200`."""
        return "cpu" if self.executor == "cpu" else f"cuda:{self.device}"


class OnUnit(Record):
    """A call about one unit."""

    unit: Reference
    """A `Unit` as JSON."""
    draft: bool = False


class OnWorkload(OnUnit):
    """A call that launches one."""

    workload: Workload
    """`folder` empty, references in place of file names."""
    plan: ResolvedPlan
    timeout_s: Seconds


class Describe(Record):
    """Ask for the executor's properties."""

    method: Literal["describe"] = "describe"


class Compile(OnUnit):
    """`Executor.compile`."""

    method: Literal["compile"] = "compile"


class Run(OnWorkload):
    """`Executor.run`."""

    method: Literal["run"] = "run"
    inputs: InputSet
    check: Check = "none"


class RunSeries(OnWorkload):
    """`Executor.run_series`."""

    method: Literal["run_series"] = "run_series"
    series: Annotated[tuple[InputSet, ...], Field(max_length=1024)]


class Measure(OnWorkload):
    """`Executor.measure`."""

    method: Literal["measure"] = "measure"
    samples: Annotated[int, Field(ge=1, le=10_000)] = 1


class MeasurePair(OnWorkload):
    """`Executor.measure_pair`; `unit` is the candidate's."""

    method: Literal["measure_pair"] = "measure_pair"
    baseline: Reference
    baseline_draft: bool = False
    alternatives: Annotated[tuple[InputSet, ...], Field(max_length=64)] = ()
    watched: bool = False
    """Whether what the timed launches wrote is to be kept."""


class ProfileLaunch(OnWorkload):
    """`Executor.profile`."""

    method: Literal["profile"] = "profile"


class Capture(Record):
    """`Executor.capture`."""

    method: Literal["capture"] = "capture"
    program: Reference
    """A `Program` as JSON."""
    kernel: Name | None = None
    argv: Annotated[tuple[Argument, ...], Field(max_length=100)] = ()
    timeout_s: Seconds


class RunProgram(Record):
    """`Executor.run_program`."""

    method: Literal["run_program"] = "run_program"
    program: Reference
    argv: Annotated[tuple[Argument, ...], Field(max_length=100)] = ()
    timeout_s: Seconds


class Prepare(Record):
    """`Executor.prepare`."""

    method: Literal["prepare"] = "prepare"
    program: Reference


class Texts(OnUnit):
    """`LooksElsewhere.texts`."""

    method: Literal["texts"] = "texts"
    sm_arch: Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}[af]?$")]


class ObjectLooks(OnUnit):
    """`LooksElsewhere.object_looks`."""

    method: Literal["object_looks"] = "object_looks"
    baseline: Reference
    sm_arch: Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}[af]?$")]
    allowed: Precision | None = None


Call = (
    Describe | Compile | Run | RunSeries | Measure | MeasurePair | ProfileLaunch | Capture
    | RunProgram | Prepare | Texts | ObjectLooks
)  # fmt: skip


class CallRequest(Record):
    """One call of an executor's method."""

    place: Place
    call: Annotated[Call, Field(discriminator="method")]


class Description(Record):
    """What an executor says of itself."""

    kind: Literal["description"] = "description"
    device: str
    sm_arch: str = ""
    time_source: TimeSource
    isolation: IsolationLevel
    tools: dict[str, str] = Field(default_factory=dict)
    device_row: dict[str, object] | None = None
    """Row of a device that cudaops' own table has not."""


class Built(Record):
    """`Compiled` without what belongs to the machine that compiled."""

    kind: Literal["built"] = "built"
    key: str
    command: str
    compiler: str
    seconds: float
    cached: bool
    log: str = ""
    resources: tuple[KernelResources, ...] = ()
    draft: bool = False
    image: str | None = None
    """Name of the file that runs."""
    image_sha256: Reference | None = None


class SeriesRan(Record):
    """Every launch of a series, in order."""

    kind: Literal["series"] = "series"
    launches: tuple[Ran, ...]


class Pair(Record):
    """Baseline and candidate timed side by side."""

    kind: Literal["pair"] = "pair"
    baseline: Measurement
    candidate: Measurement


class Profiled(Record):
    """Metrics of a launch."""

    kind: Literal["profiled"] = "profiled"
    profile: Profile


class Prepared(Record):
    """Nothing came of it that anyone waits for."""

    kind: Literal["prepared"] = "prepared"


class Seen(Record):
    """What compilers make of a unit."""

    kind: Literal["seen"] = "seen"
    texts: tuple[TextView, ...] = ()
    objects: tuple[ObjectLook, ...] = ()


class NotSeen(Record):
    """There was nothing to look at."""

    kind: Literal["not_seen"] = "not_seen"
    problem: str
    refused: bool = False
    """The preprocessor did not take the text."""


Reply = Annotated[
    Description | Built | CompileFailed | Misbehaved | Ran | SeriesRan | Measurement | Pair
    | Profiled | Captured | ProgramRan | Prepared | Seen | NotSeen,
    Field(discriminator="kind"),
]  # fmt: skip
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


ProblemKind = Literal["input", "value", "prerequisite", "sandbox", "fault", "lost", "abandoned"]


class CallProblem(Record):
    """Why a call has no reply: nothing that the code under test did."""

    kind: ProblemKind
    """`input`: InputError. `value`: ValueError. `prerequisite`, `sandbox`: the environment there.
    `fault`: cudaops there is at fault. `lost`: its runner ended twice over it. `abandoned`: nobody
    asked for it for a while."""
    problem: str
    remedy: str = ""


class CallState(Record):
    """A call as the service knows it."""

    status: Literal["queued", "running", "ended"]
    reply: Reply | None = None
    problem: CallProblem | None = None
    attempts: int = 0


class Question(Record):
    """Which of these contents are not there?"""

    sha256: Annotated[tuple[Reference, ...], Field(max_length=MAX_REFERENCES)]


class Missing(Record):
    """Contents that are not there."""

    missing: tuple[Reference, ...]


class Offer(Record):
    """What a service can do for executors elsewhere."""

    version: str
    """Of cudaops there."""
    protocol: int
    places: tuple[Place, ...]
    """What its workers offer now; a `cpu` place takes any known device."""
