"""What the service takes and gives: requests with an example of each, jobs and their results.

OpenAPI shows these. The examples run as they stand: a test sends every one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from cudaops.domain.base import Record, SourceLocation
from cudaops.domain.batch import BatchRow
from cudaops.domain.execution import (
    Compiled,
    CompileFailed,
    KernelResources,
    Misbehaved,
    ProgramRan,
)
from cudaops.domain.judgement import Comparison
from cudaops.domain.options import (
    BatchOptions,
    BeamOptions,
    JudgeOptions,
    LimitOptions,
    LocalExecutor,
    OptimizerOptions,
    PlaceOptions,
    ProgramOptions,
    StrategyOptions,
)
from cudaops.domain.run import ProfileSummary, RunRecord

# What the service takes and gives: requests, jobs and their results. OpenAPI shows these.

MAX_TEXT_CHARS = 400_000
"""Longest source text, in characters; as the MCP tools have it. The longest file of the corpora in
docs/ is shorter by far."""
MAX_FILES = 64
"""Most local headers of one program."""

MAX_PROGRAMS = 50
"""Most programs of one batch over HTTP: fewer than the new jobs that one token has a minute."""

JobKind = Literal["compile", "run", "profile", "verify", "benchmark", "optimize"]
JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
ENDED: frozenset[JobStatus] = frozenset({"succeeded", "failed", "cancelled"})
Scope = Literal["read", "run", "admin"]
"""What a token allows, each more than the one before: see jobs; start and cancel them; everybody's
jobs and tokens."""
SCOPES: tuple[Scope, ...] = ("read", "run", "admin")

_NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS, pattern=_NO_NUL)]
SourcePath = Annotated[
    str,
    StringConstraints(
        pattern=r"^(?:[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}/){0,8}[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$",
        max_length=300,
    ),
]
"""Relative POSIX path below the program's folder. No part begins with a dot, so that `..` cannot
be said."""

Identifier = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$",
                           max_length=200)
]  # fmt: skip


class ProgramRequest(ProgramOptions, PlaceOptions):
    """A CUDA program and where to run it."""

    source: Text
    """The `.cu` file's text, as its author wrote it."""
    filename: SourcePath = "program.cu"
    """Name of the file; names the results. With a folder in front where its headers lie beside
    that: `src/program.cu` with `include/tile.cuh`."""
    files: dict[SourcePath, Text] = Field(
        default_factory=dict,
        max_length=MAX_FILES,
        # pydantic writes the keys' pattern alone, which lets other names through.
        json_schema_extra={"additionalProperties": False, "propertyNames": {"maxLength": 300}},
    )
    """Local headers that it includes with quotes: relative path to text."""
    kernel: Identifier | None = None
    """Kernel to work on (default: the one with most time)."""
    executor: LocalExecutor = "auto"
    """`cpu`: this service's processor, times modelled. `cuda`: its GPU. `auto`: a GPU where there
    is one."""
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 120.0
    """Seconds for one run of the program or a candidate."""


class CompileRequest(ProgramRequest):
    """Compile the program's kernel, or a rewrite of it."""

    candidate: Text | None = None
    """A rewrite: device source with `@launch` directives; null: the author's kernel."""


class RunRequest(ProgramRequest):
    """Run the whole program once."""


class ProfileRequest(ProgramRequest):
    """Say what limits the kernel."""


class VerifyRequest(ProgramRequest, JudgeOptions):
    """Judge a rewrite: same function, same precision, faster."""

    candidate: Text
    """Device source with `@launch` directives, or a whole program."""


class BenchmarkRequest(ProgramRequest):
    """Time the kernel and a rewrite; no judgement."""

    candidate: Text | None = None
    """Device source with `@launch` directives; null: the author's kernel alone."""


class OptimizeRequest(
    ProgramRequest, JudgeOptions, OptimizerOptions, StrategyOptions, BeamOptions, LimitOptions
):
    """The main job: profile, diagnose, rewrite, verify."""


class BatchDefaults(BatchOptions):
    """Options of every program of a batch that does not say otherwise itself."""

    executor: LocalExecutor = "auto"
    """`cpu`: this service's processor, times modelled. `cuda`: its GPU. `auto`: a GPU where there
    is one."""
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 120.0
    """Seconds for one run of the program or a candidate."""


class BatchRequest(Record):
    """Several programs, or kernels of one, to be optimised; a job each."""

    programs: Annotated[tuple[OptimizeRequest, ...], Field(min_length=1, max_length=MAX_PROGRAMS)]
    """Each as `POST /optimize` takes it."""
    options: BatchDefaults = BatchDefaults()
    """Of all of them; what a program says itself goes first."""

    @property
    def requests(self) -> tuple[OptimizeRequest, ...]:
        """One for each job."""
        shared = self.options.model_dump(exclude_unset=True)
        return tuple(
            OptimizeRequest.model_validate({**shared, **program.model_dump(exclude_unset=True)})
            for program in self.programs
        )


JobRequest = (
    CompileRequest | RunRequest | ProfileRequest | VerifyRequest | BenchmarkRequest
    | OptimizeRequest
)  # fmt: skip
REQUESTS: dict[JobKind, type[ProgramRequest]] = {
    "compile": CompileRequest,
    "run": RunRequest,
    "profile": ProfileRequest,
    "verify": VerifyRequest,
    "benchmark": BenchmarkRequest,
    "optimize": OptimizeRequest,
}


class CompileResult(Record):
    """Whether it compiled. What the compiler refused is a result, not an error of the job."""

    ok: bool
    message: str
    """The compiler's name, or its first error in one line."""
    location: SourceLocation | None = None
    log: str = ""
    """Compiler output, bounded to 16 KiB."""
    seconds: float | None = None
    cached: bool = False
    resources: tuple[KernelResources, ...] = ()


class RunResult(Record):
    """What a whole program did."""

    outcome: Annotated[ProgramRan | CompileFailed | Misbehaved, Field(discriminator="kind")]


class BenchmarkResult(Record):
    """Times on every captured workload, most expensive first."""

    kernel: str
    comparisons: tuple[Comparison, ...] = ()
    """Baseline and candidate; without a candidate the baseline stands on both sides."""
    speedup: float | None = None
    """Weighted over workloads; null without a candidate, or where it could not be timed."""
    provenance: str = ""
    """Suffix for these numbers: ` (modelled for A10)`; empty where measured."""
    failure: Annotated[CompileFailed | Misbehaved, Field(discriminator="kind")] | None = None
    """Of the candidate."""


JobResult = RunRecord | ProfileSummary | BenchmarkResult | RunResult | CompileResult
RESULTS: dict[JobKind, type[Record]] = {
    "compile": CompileResult,
    "run": RunResult,
    "profile": ProfileSummary,
    "verify": RunRecord,
    "benchmark": BenchmarkResult,
    "optimize": RunRecord,
}


class Problem(Record):
    """Problem details (RFC 9457): every error of the service, and why a job failed."""

    type: str = "about:blank"
    """`about:blank`, or `urn:cudaops:problem:NAME`, which docs/service.md lists."""
    title: str
    """What is the matter, the same for every occurrence."""
    status: int
    """HTTP status; for a failed job the one it would have had: 422 wrong input, 500 a fault of
    cudaops, 503 infrastructure."""
    detail: str = ""
    """This occurrence, in one line that says what to do."""
    instance: str | None = None
    """The job or request it is about."""


class Artefact(Record):
    """A file that a job left."""

    name: str
    """Path below the run folder: `best.cu`, `iterations/01/candidate.cu`."""
    media_type: str
    size_bytes: int
    sha256: str


class JobSummary(Record):
    """A job without its result."""

    id: UUID
    kind: JobKind
    status: JobStatus
    filename: str
    kernel: str | None = None
    """As asked for."""
    executor: LocalExecutor
    """As asked for; the result says where it ran."""
    owner: str
    """Name of the token that started it; `anyone` where the service asks for none."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: int = 0
    """How often a worker took it up; more than 1 where one died over it."""
    worker: str | None = None
    outcome: str | None = None
    """Of a run record: accepted, provisional, nothing_found, failed."""
    run_id: str | None = None
    problem: Problem | None = None
    """Why it failed; null otherwise."""
    waiting_for: str | None = None
    """Of a queued job: what is not there and has to come first; null where it only waits for its
    turn."""


class Job(JobSummary):
    """A job with its result."""

    result: JobResult | None = None
    """Null until it has succeeded."""
    artefacts: tuple[Artefact, ...] = ()


class JobEvent(Record):
    """One line of what a job is doing; the id of a server-sent event is `seq`."""

    seq: int
    """From 1, without gaps, over all attempts."""
    time: str
    """UTC, ISO 8601 with milliseconds."""
    attempt: int
    stage: str
    agent: str
    kind: Literal["started", "finished", "progress", "notice", "failed", "status"]
    """`status`: the job's own; `message` is the new status then."""
    message: str
    data: dict[str, object] = Field(default_factory=dict)


def compile_result(outcome: Compiled | CompileFailed) -> CompileResult:
    """A compiler's outcome without what belongs to the service's own machine."""
    if isinstance(outcome, CompileFailed):
        return CompileResult(
            ok=False, message=outcome.message, location=outcome.location, log=outcome.log
        )
    return CompileResult(
        ok=True,
        message=outcome.compiler,
        log=outcome.log,
        seconds=outcome.seconds,
        cached=outcome.cached,
        resources=outcome.resources,
    )


def batch_row(job: JobSummary, figures: Mapping[str, Any] | None, report: str) -> BatchRow:
    """What a batch says of a job. `figures`: of its run record, where it has one, and with them
    where its report is."""
    fields: dict[str, Any] = {
        "program": job.filename, "kernel": job.kernel, "job": job.id,
        "status": "ended" if job.status in ENDED else job.status,
        "reason": job.waiting_for or "",
    }  # fmt: skip
    if job.status == "cancelled":
        fields |= {"outcome": "cancelled", "reason": "it was cancelled"}
    elif job.status == "failed":
        wrong = job.problem is not None and job.problem.status == 422
        fields["outcome"] = "wrong_input" if wrong else "failed"
        fields["reason"] = job.problem.detail if job.problem else ""
    elif figures is not None:
        fields |= {**figures, "report": report}
    return BatchRow.model_validate(fields)


# Requests that the OpenAPI page shows. They run as they stand: a test sends every one.

PROGRAM = """\
#include <cstdio>
#include <cuda_runtime.h>

__global__ void matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = sum;
}

int main() {
    const int N = 384;
    float *A, *B, *C;
    cudaMallocManaged(&A, N * N * sizeof(float));
    cudaMallocManaged(&B, N * N * sizeof(float));
    cudaMallocManaged(&C, N * N * sizeof(float));
    for (int i = 0; i < N * N; ++i) {
        A[i] = (i % 13) * 0.125f;
        B[i] = (i % 7) * 0.25f;
    }
    matmul<<<dim3(N / 16, N / 16), dim3(16, 16)>>>(A, B, C, N);
    cudaDeviceSynchronize();
    std::printf("%.3f %.3f\\n", C[0], C[N * N - 1]);
    return 0;
}
"""
"""A matrix product as one would first write it, small enough to be done in seconds."""

REWRITE = """\
// @launch four_rows grid=(ceil_div(N,32), ceil_div(N,32)) block=(32,8) args=(A, B, C, N)
__global__ void four_rows(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 32 + threadIdx.y;
    const int col = blockIdx.x * 32 + threadIdx.x;
    if (col >= N) return;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < N; ++k) {
        const float b = B[k * N + col];
        for (int i = 0; i < 4; ++i) {
            if (row + 8 * i < N) sum[i] += A[(row + 8 * i) * N + k] * b;
        }
    }
    for (int i = 0; i < 4; ++i) {
        if (row + 8 * i < N) C[(row + 8 * i) * N + col] = sum[i];
    }
}
"""
"""The same product, four rows a thread: device source with a launch directive."""

_PROGRAM = {"source": PROGRAM, "filename": "matmul.cu", "executor": "cpu"}


def _example(summary: str, **fields: Any) -> dict[str, Any]:
    return {"summary": summary, "value": {**_PROGRAM, **fields}}


EXAMPLES: dict[JobKind, dict[str, dict[str, Any]]] = {
    "compile": {
        "kernel": _example("The author's kernel"),
        "rewrite": _example("A rewrite of it", candidate=REWRITE),
    },
    "run": {"program": _example("The whole program", timeout_seconds=60)},
    "profile": {
        "kernel": _example("A named kernel, for a named device", kernel="matmul", device="A10")
    },
    "verify": {
        "rewrite": _example(
            "A rewrite that must be 1.1 times as fast", candidate=REWRITE, min_speedup=1.1
        )
    },
    "benchmark": {"rewrite": _example("Both, side by side", candidate=REWRITE)},
    "optimize": {
        "recipes": _example("One candidate, without a model", optimizer="recipes", max_iterations=1)
    },
}
"""By kind and name, as OpenAPI's `examples`."""

BATCH_EXAMPLE = {
    "summary": "Two bars for one program",
    "value": {
        "programs": [_PROGRAM, {**_PROGRAM, "filename": "twice.cu", "min_speedup": 2.0}],
        "options": {"optimizer": "recipes", "max_iterations": 1},
    },
}
"""Runs as it stands, too."""
