"""Certificate: all that somebody else needs to check a Judgement again, and how to tell drift.

Paths are relative to the run folder and none names a place on the machine that wrote it; hashes
are SHA-256 in lower-case hex.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import field_validator

from cudaops.domain.base import Dim3, Record
from cudaops.domain.execution import TimeSource
from cudaops.domain.judgement import Comparison, GateName, Judgement, Policy
from cudaops.domain.qualification import Qualification
from cudaops.domain.workload import Element, Role

CERTIFICATE_FORMAT = "cudaops-certificate/1"
"""Name and version of the file's format; another version is another format."""

ExecutorName = Literal["cpu", "cuda"]
ProbeKind = Literal["signed", "exact", "captured"]
"""`signed`: multiples of 2**-23 from -1 to 1 in every floating buffer. `exact`: integers from -3 to
3. `captured`: what the program itself put there, for kernels without a floating buffer."""


class FileHash(Record):
    """One file as it was when the certificate was written."""

    path: str
    """POSIX, relative to the run folder; of the author's files, relative to their own root."""
    sha256: str

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError("a path that leaves the run folder")
        return path


class BufferHash(Record):
    """One allocation of a captured launch."""

    index: int
    size_bytes: int
    element: Element
    role: Role
    before: FileHash
    """Contents before the author's launch."""
    after: FileHash
    """Contents after it."""


class GlobalHash(Record):
    """One `__constant__` or `__device__` variable around a captured launch."""

    name: str
    size_bytes: int
    before: FileHash
    after: FileHash


class WorkloadIdentity(Record):
    """One captured launch, recognisable without its contents."""

    id: str
    callee: str
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    launches: int
    time_share: float
    buffers: tuple[BufferHash, ...]
    globals: tuple[GlobalHash, ...] = ()

    @property
    def files(self) -> tuple[FileHash, ...]:
        """Every captured content, each file once."""
        held: tuple[BufferHash | GlobalHash, ...] = (*self.buffers, *self.globals)
        return tuple({f.path: f for one in held for f in (one.before, one.after)}.values())


class AuthorProgram(Record):
    """What the author wrote and how it was started."""

    main: str
    """Path of the main file; it is the first of `files`."""
    kernel: str
    callee: str
    argv: tuple[str, ...]
    files: tuple[FileHash, ...]
    """Main file and quoted headers, over their text in UTF-8."""


class CandidateIdentity(Record):
    """The rewrite that was judged."""

    id: str
    """`Rewrite.id`: the first 12 hex digits over source and tuned values."""
    iteration: int
    proposer: str
    title: str
    source_sha256: str
    """Of the device source with its directives, as in `iterations/NN/candidate.cu`."""
    tuned: dict[str, int]
    preprocessed_sha256: str | None
    """Of its own text after preprocessing; None where the evaluation did not say."""


class Build(Record):
    """One unit that ran while the candidate was judged."""

    what: Literal["baseline", "widened", "candidate"]
    key: str
    """`Compiled.key`: content address over source, flags and compiler."""
    image: str | None
    """Name of the file that was loaded or run: `unit.cubin` on a GPU, `unit` on `cpu`."""
    image_sha256: str | None
    """None where the executor keeps no such file."""
    command: str
    """Folders of the machine are written `<cache>` and `<cudaops>`."""
    compiler: str


class AnchorOutput(Record):
    """What the baseline left in one allocation on one probe."""

    index: int
    sha256: str | None
    """None where two runs of the same build on the same inputs differ."""
    exact: bool = False
    """Every correct compiler and every order of summation gives these bits: all values are integers
    that the type holds exactly, or the kernel touches nothing but integers."""


class Anchor(Record):
    """The baseline on one fixed, public probe: whether the oracle is still the same elsewhere."""

    workload: str
    probe: ProbeKind
    seed: int
    inputs_sha256: str
    """Over the contents of all allocations before the launch, in order of their index."""
    outputs: tuple[AnchorOutput, ...]
    """Empty where the baseline did not run to its end on this probe."""
    problem: str | None = None
    """Why there are no outputs."""
    executor: ExecutorName
    sm_arch: str
    """Empty on `cpu`, whose code does not depend on it."""
    compiler: str


class Release(Record):
    """A person's yes, where one was asked."""

    gates: tuple[GateName, ...]
    """Those quarantined, which the yes lets pass; empty where nothing was."""
    summary: str
    """The `review` gate's own line: who decided, and what."""


class Certificate(Record):
    """The evidence behind one accepted or provisional rewrite."""

    run_id: str
    date: str
    """UTC, ISO 8601: when the run began."""
    cudaops_version: str
    outcome: Literal["accepted", "provisional"]
    executor: ExecutorName
    time_source: TimeSource
    device: str
    sm_arch: str
    driver: str | None
    """Version of the GPU's driver; None on `cpu`."""
    sm_clock_mhz: tuple[float, float] | None
    """Lowest and highest clock between samples; None where it could not be asked."""
    tools: dict[str, str]
    program: AuthorProgram
    candidate: CandidateIdentity
    files: tuple[FileHash, ...]
    """`best.cu` with its headers, `best.patch`, the candidate's text and the stored program,
    capture and options."""
    builds: tuple[Build, ...]
    workloads: tuple[WorkloadIdentity, ...]
    policy: Policy
    """As stated before the run."""
    bar: float
    """Speedup that this candidate had to reach: the policy's, or more where it had to beat an
    earlier rewrite of the same run."""
    timeout_seconds: float
    seed: int
    """Of the secret inputs, revealed now that the run is over."""
    judgement: Judgement
    comparisons: tuple[Comparison, ...]
    """Raw samples of the first measurement."""
    fresh: tuple[Comparison, ...]
    """Raw samples of the second, on which a measured time is accepted."""
    judged_before: int
    """Candidates of the same run that were put to the decision before."""
    review: Release | None = None
    """None where no person was asked."""
    qualification: Qualification | None = None
    """What the oracle of this program is able to see; None where it was not qualified."""
    anchors: tuple[Anchor, ...]
