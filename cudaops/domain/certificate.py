"""Certificate: all that somebody else needs to check a Judgement again, and how to tell drift.

`contradictions` says what in it does not follow from its own gates and samples; a Confirmation,
what judging the rewrite again came to.

Paths are relative to the run folder and none names a place on the machine that wrote it; hashes
are SHA-256 in lower-case hex.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from pydantic import field_validator

from cudaops.domain.base import Dim3, Record
from cudaops.domain.execution import CLOCKS_BESIDE, TimeSource
from cudaops.domain.judge import MEASURABLE_SPEEDUP, TRITON_REQUIRED_MEASURED, judge
from cudaops.domain.judgement import Comparison, Gate, GateName, Judgement, Policy, Qualification
from cudaops.domain.options import ExecutorName, ProgramRun
from cudaops.domain.workload import Element, Role, RunRole

CERTIFICATE_NAME = "certificate.json"
CERTIFICATE_FORMAT = "cudaops-certificate/1"
"""Name and version of the file's format; another version is another format."""

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
    run: int = 0
    """Index into the runs of the program."""
    role: RunRole = "both"
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
    """Of the run that says which kernel matters."""
    runs: tuple[ProgramRun, ...] = ()
    """All of them where there are several."""
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


class CertifiedBuild(Record):
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
    """A reviewer's approval."""

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
    language: Literal["cuda", "triton"] = "cuda"
    """What the kernel is written in: other gates are required of Triton."""
    outcome: Literal["accepted", "provisional"]
    executor: ExecutorName
    time_source: TimeSource
    device: str
    sm_arch: str
    driver: str | None
    """Version of the GPU's driver; None on `cpu`."""
    sm_clock_mhz: tuple[float, float] | None
    """Lowest and highest clock between samples; None where it not available."""
    tools: dict[str, str]
    program: AuthorProgram
    candidate: CandidateIdentity
    files: tuple[FileHash, ...]
    """`best.cu` with its headers, `best.patch`, the candidate's text and the stored program,
    capture and options."""
    builds: tuple[CertifiedBuild, ...]
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


DECIDED: frozenset[GateName] = frozenset(("speedup", "remeasured"))
"""Gates that `judge` itself adds."""

RELATIVE = 1e-9
"""Another machine's logarithm may differ in the last digit; nothing that matters is as small."""


def contradictions(certificate: Certificate) -> tuple[str, ...]:
    """What in the certificate does not agree with the rest of it, one line each; empty is good.

    The judgement is made again, by this version's `judge`, from the gates and samples written.
    """
    return (*_statements(certificate), *_decision(certificate))


def leniencies(policy: Policy) -> tuple[str, ...]:
    """Where the policy asks for less than cudaops does by default; empty where it does not."""
    usual = Policy()
    found = []
    if policy.confidence < usual.confidence:
        found.append(f"confidence {policy.confidence:g} instead of {usual.confidence:g}")
    if policy.max_error_factor > usual.max_error_factor:
        found.append(f"error factor {policy.max_error_factor:g}, usual {usual.max_error_factor:g}")
    if policy.rtol_program > usual.rtol_program:
        found.append(f"printed numbers to {policy.rtol_program:g}, usual {usual.rtol_program:g}")
    if policy.allow_precision is not None:
        found.append(f"{policy.allow_precision} arithmetic is allowed")
    return tuple(found)


def judged_again(certificate: Certificate) -> Judgement:
    """The judgement that follows from what is written, whatever the certificate says it is."""
    gates = [g for g in certificate.judgement.gates if g.name not in DECIDED]
    return judge(
        gates,
        certificate.comparisons,
        certificate.policy.model_copy(update={"min_speedup": certificate.bar}),
        fresh=certificate.fresh,
        judged_before=certificate.judged_before,
        isolation=certificate.judgement.isolation,
        required=TRITON_REQUIRED_MEASURED if certificate.language == "triton" else None,
    )


def _statements(certificate: Certificate) -> Iterator[str]:
    policy, judgement = certificate.policy, certificate.judgement
    if certificate.outcome != judgement.outcome:
        yield f"outcome is {certificate.outcome}, the judgement's is {judgement.outcome}"
    if certificate.time_source != judgement.time_source:
        yield f"time is {certificate.time_source}, the judgement's is {judgement.time_source}"
    if certificate.bar < policy.min_speedup:
        yield f"the threshold was {certificate.bar:g}x, the policy says {policy.min_speedup:g}x"
    if policy.seed is not None and policy.seed != certificate.seed:
        yield "the seed is not the one that the policy fixes"
    names = [gate.name for gate in judgement.gates]
    if len(names) != len(set(names)):
        yield "a gate is listed twice"
    known = {w.id for w in certificate.workloads}
    for comparison in (*certificate.comparisons, *certificate.fresh):
        yield from _measured_things(certificate, comparison, known)
    yield from _roles(certificate)
    if certificate.program.main != certificate.program.files[0].path:
        yield "the main file is not the first of the author's files"
    if stray := {a.workload for a in certificate.anchors} - known:
        yield f"anchors of workloads that are not there: {', '.join(sorted(stray))}"
    yield from _released(certificate)


def _roles(certificate: Certificate) -> Iterator[str]:
    """What is timed and what is judged: on a GPU nothing is timed that is not judged as well."""
    roles = {w.id: w.role for w in certificate.workloads}
    if not set(roles.values()) & {"judged", "both"}:
        yield "no workload is one on which the candidate was judged"
    if certificate.time_source != "modelled" and "timed" in roles.values():
        yield "a workload was timed on a device and not judged"
    timed = {c.workload for c in (*certificate.comparisons, *certificate.fresh)}
    if untimed := sorted(w for w in timed if roles.get(w) == "judged"):
        yield f"times of {', '.join(untimed)}, on which nothing was to be timed"


def _measured_things(
    certificate: Certificate, comparison: Comparison, known: set[str]
) -> Iterator[str]:
    if comparison.workload not in known:
        yield f"times of {comparison.workload}, which is no workload here"
    clocks = CLOCKS_BESIDE.get(certificate.time_source, frozenset()) | {certificate.time_source}
    if comparison.baseline.source != comparison.candidate.source:
        yield f"times of {comparison.workload} are by two clocks"
    for side in (comparison.baseline, comparison.candidate):
        if side.source not in clocks or side.device != certificate.device:
            yield (
                f"times of {comparison.workload} are {side.source} for {side.device}, the "
                f"certificate's are {certificate.time_source} for {certificate.device}"
            )


def _released(certificate: Certificate) -> Iterator[str]:
    quarantined = tuple(g.name for g in certificate.judgement.gates if g.quarantined)
    released = certificate.review.gates if certificate.review else ()
    if set(quarantined) != set(released):
        yield (
            f"quarantined: {', '.join(quarantined) or 'nothing'}; "
            f"released: {', '.join(released) or 'nothing'}"
        )


def _decision(certificate: Certificate) -> Iterator[str]:
    written, again = certificate.judgement, judged_again(certificate)
    if written.outcome != again.outcome:
        yield (
            f"the judgement says {written.outcome}; from its gates and samples follows "
            f"{again.outcome}: {again.reason}"
        )
        return
    for name in ("speedup", "speedup_low", "speedup_high"):
        said, follows = getattr(written, name), getattr(again, name)
        if not _close(said, follows):
            yield f"{name} is {said}, from the samples follows {follows}"
    yield from _decided_gates(written.gates, again.gates)


def _decided_gates(written: Sequence[Gate], again: Sequence[Gate]) -> Iterator[str]:
    said = {g.name: g for g in written if g.name in DECIDED}
    follows = {g.name: g for g in again if g.name in DECIDED}
    if list(said) != list(follows):
        yield f"decided by {', '.join(said)}; from the samples follows {', '.join(follows)}"
        return
    for name, gate in said.items():
        other = follows[name]
        same = gate.passed == other.passed and gate.numbers.keys() == other.numbers.keys()
        if not same or any(not _close(v, other.numbers[k]) for k, v in gate.numbers.items()):
            yield f"the gate {name} is not what follows from the samples"


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or math.isclose(one, other, rel_tol=RELATIVE)


CONFIRMATION_FORMAT = "cudaops-confirmation/1"


class AnchorCheck(Record):
    """One anchor of the certificate beside the same probe run now."""

    workload: str
    probe: ProbeKind
    result: Literal["equal", "differs", "not_compared"]
    detail: str
    """Which allocation differs, under which compilers, or why nothing was compared."""


class SpeedupCheck(Record):
    """The certificate's speedup beside the new one."""

    result: Literal["covered", "differs", "not_compared"]
    detail: str


class Confirmation(Record):
    """A rewrite judged again."""

    run_id: str
    date: str
    """UTC, ISO 8601."""
    cudaops_version: str
    certificate_sha256: str
    """Of the certificate's file."""
    certificate_signer: str | None
    """Fingerprint of the key that signed it; None: it is not signed."""
    result: Literal["holds", "drifted", "fails"]
    reason: str
    """One line: the gate that failed, or what drifted with its numbers."""
    executor: ExecutorName
    time_source: TimeSource
    device: str
    sm_arch: str
    tools: dict[str, str]
    seed: int
    """Of this time's secret inputs."""
    judgement: Judgement
    comparisons: tuple[Comparison, ...]
    fresh: tuple[Comparison, ...]
    anchors: tuple[AnchorCheck, ...]
    speedup: SpeedupCheck
    notices: tuple[str, ...] = ()


def compare_anchors(then: tuple[Anchor, ...], now: tuple[Anchor, ...]) -> tuple[AnchorCheck, ...]:
    """Each anchor of the certificate beside today's of the same workload and probe."""
    today = {(a.workload, a.probe): a for a in now}
    return tuple(_compare_anchor(a, today.get((a.workload, a.probe))) for a in then)


def _compare_anchor(then: Anchor, now: Anchor | None) -> AnchorCheck:
    def said(result: Literal["equal", "differs", "not_compared"], detail: str) -> AnchorCheck:
        return AnchorCheck(workload=then.workload, probe=then.probe, result=result, detail=detail)

    if not then.outputs:
        return said("not_compared", f"none was recorded: {then.problem}")
    if now is None or not now.outputs:
        problem = "this probe was not run" if now is None else now.problem
        return said("differs", f"recorded by {then.compiler}, and now: {problem}")
    if now.inputs_sha256 != then.inputs_sha256 or now.seed != then.seed:
        return said("differs", "the probe's inputs are not those of the certificate")
    today = {o.index: o for o in now.outputs}
    same_place = then.executor == now.executor
    compared = 0
    for output in then.outputs:
        other = today.get(output.index)
        if output.sha256 is None or not (same_place or output.exact):
            continue
        if other is None or other.sha256 is None:
            return said("differs", f"allocation {output.index} is not the same in two runs now")
        if other.sha256 != output.sha256:
            return said(
                "differs",
                f"allocation {output.index} is {output.sha256[:12]} by {_where(then)} "
                f"and {other.sha256[:12]} by {_where(now)}",
            )
        compared += 1
    if compared:
        return said("equal", f"{compared} of {len(then.outputs)} allocations compared")
    why = (
        "two runs of the baseline differ from each other"
        if same_place
        else f"recorded by {_where(then)}, whose rounding may differ from that of {_where(now)}"
    )
    return said("not_compared", why)


def _where(anchor: Anchor) -> str:
    return " ".join(word for word in (anchor.compiler, anchor.sm_arch) if word)


def compare_speedups(certificate: Certificate, device: str, judgement: Judgement) -> SpeedupCheck:
    """Whether the intervals of the two speedups overlap, 2 % of either side allowed.

    Two builds of one kernel differ by as much (`MEASURABLE_SPEEDUP`). Where a modelled
    time has no interval its value stands for both ends.
    """
    then = _interval(certificate.judgement)
    now = _interval(judgement)
    if then is None or now is None:
        return SpeedupCheck(result="not_compared", detail="no time was measured")
    if (certificate.time_source, certificate.device) != (judgement.time_source, device):
        detail = (
            f"{_shown(then)} {certificate.time_source} for {certificate.device}, "
            f"{_shown(now)} {judgement.time_source} on {device}: not the same thing"
        )
        return SpeedupCheck(result="not_compared", detail=detail)
    apart = now[1] * MEASURABLE_SPEEDUP < then[0] or now[0] > then[1] * MEASURABLE_SPEEDUP
    return SpeedupCheck(
        result="differs" if apart else "covered",
        detail=f"{_shown(then)} in the certificate, {_shown(now)} now",
    )


def _interval(judgement: Judgement) -> tuple[float, float] | None:
    if judgement.speedup is None:
        return None
    if judgement.speedup_low is None or judgement.speedup_high is None:
        return judgement.speedup, judgement.speedup
    return judgement.speedup_low, judgement.speedup_high


def _shown(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.3f}x" if low == high else f"{low:.3f}-{high:.3f}x"
