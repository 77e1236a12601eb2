"""The signed certificate of a run folder: written of a finished judgement, and opened to be judged
again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import cudaops
from cudaops import __version__
from cudaops.certify.check import PROGRAM_FILE, check_envelope, digest, first_problem
from cudaops.certify.envelope import Envelope, open_envelope, seal
from cudaops.certify.keys import NoKey, Signer, find_or_make_key
from cudaops.domain.certificate import (
    CERTIFICATE_FORMAT,
    CERTIFICATE_NAME,
    AuthorProgram,
    BufferHash,
    CandidateIdentity,
    Certificate,
    CertifiedBuild,
    FileHash,
    GlobalHash,
    Release,
    WorkloadIdentity,
    leniencies,
)
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import Compiled
from cudaops.domain.judgement import Comparison, Judgement, Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunRecord
from cudaops.domain.workload import Workload
from cudaops.errors import InputError, PlanError, SandboxUnavailable
from cudaops.executors.cpu.build import EXECUTABLE
from cudaops.executors.cuda.build import IMAGE
from cudaops.graph.folder import best_texts, taken_home, write_whole
from cudaops.graph.state import State
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.anchors import anchors_of_run
from cudaops.sandbox.bench_state import TREE
from cudaops.sandbox.workbench import Workbench

STORED = (PROGRAM_FILE, "state/captured.json", "state/options.json", TREE)
"""What a confirmation works from, beside the certificate."""


class CertifiedRun(NamedTuple):
    """What a certificate says of the run as a whole."""

    id: str
    date: str
    """UTC, ISO 8601: when it began."""
    policy: Policy
    """As stated before it."""


class Decided(NamedTuple):
    """One rewrite that was not rejected, with all that led there."""

    rewrite: Rewrite
    evaluation: Evaluation
    judgement: Judgement
    iteration: int

    @classmethod
    def of(cls, state: State) -> Decided | None:
        """The incumbent of a finished run; None where there is none."""
        incumbent = state.get("incumbent")
        if not incumbent:
            return None
        return cls(
            Rewrite.model_validate(incumbent["rewrite"]),
            Evaluation.model_validate(incumbent["evaluation"]),
            Judgement.model_validate(incumbent["judgement"]),
            incumbent["iteration"],
        )


def write_certificate(
    folder: Path,
    record: RunRecord,
    bench: Workbench,
    state: State,
    key: Path | None,
) -> str | None:
    """Write `certificate.json`; why it is not signed, None where it is.

    Call it when everything else but `run.json` and `report.md` is in the folder. `key` is the
    path of the key to sign with, None for the user's own.

    Raises ValueError where the run has no best rewrite.
    """
    decided = Decided.of(state)
    if decided is None:
        raise ValueError("a rejected candidate gets no certificate")
    run = CertifiedRun(record.run_id, record.date, record.options.policy)
    certificate = build_certificate(run, bench, decided, folder)
    return write_signed(folder / CERTIFICATE_NAME, certificate, folder, key)


def write_signed(path: Path, certificate: Certificate, run: Path, key: Path | None) -> str | None:
    """Sign and write a certificate; why it is not signed, None where it is."""
    signer = signing_key(key, run)
    write_whole(path, seal(CERTIFICATE_FORMAT, certificate, signer).decode("ascii"))
    return signer.reason if isinstance(signer, NoKey) else None


def signing_key(key: Path | None, run: Path) -> Signer | NoKey:
    """The key, made on first use and never inside of a run folder."""
    return find_or_make_key(key, avoid=(run,))


def build_certificate(
    run: CertifiedRun, bench: Workbench, decided: Decided, folder: Path
) -> Certificate:
    """The certificate of one rewrite, from the open workbench and the files in the run folder.

    Runs the baseline on the anchors' probes. Raises SandboxUnavailable where what compiled before
    does not compile now, or a file of the run folder is gone.
    """
    rewrite, evaluation, judgement, iteration = decided
    tools = dict(bench.executor.tools())
    builds = _builds(bench, rewrite)
    candidate = f"iterations/{iteration:02d}/candidate.cu"
    return Certificate(
        run_id=run.id,
        date=run.date,
        cudaops_version=__version__,
        outcome="accepted" if judgement.outcome == "accepted" else "provisional",
        executor=bench.executor.name,
        time_source=bench.executor.time_source,
        device=bench.executor.device,
        sm_arch=bench.sm_arch,
        driver=tools.get("driver"),
        sm_clock_mhz=clocks_of((*evaluation.comparisons, *evaluation.fresh)),
        tools=tools,
        program=_program(bench),
        candidate=CandidateIdentity(
            id=rewrite.id,
            iteration=iteration,
            proposer=rewrite.proposer,
            title=rewrite.title,
            source_sha256=_text_digest(rewrite.source),
            tuned=rewrite.values(),
            preprocessed_sha256=evaluation.preprocessed_sha256,
        ),
        files=tuple(_file_hashes(folder, (*best_files(bench, rewrite), candidate, *STORED))),
        builds=builds,
        workloads=tuple(_workload(w) for w in bench.workloads_of(rewrite)),
        policy=run.policy,
        bar=bar_of(judgement, run.policy),
        timeout_seconds=bench.timeout_s,
        seed=bench.seed,
        judgement=judgement,
        comparisons=without_counts(evaluation.comparisons),
        fresh=without_counts(evaluation.fresh),
        judged_before=evaluation.judged_before,
        review=_release(judgement),
        qualification=evaluation.qualification,
        anchors=anchors_of_run(bench),
    )


def best_files(bench: Workbench, rewrite: Rewrite) -> dict[str, str]:
    """Path in the run folder to SHA-256 of every file that a user takes from the run, as the
    author's program and the rewrite give them."""
    taken = taken_home(bench.program, bench.spliced(rewrite))
    texts = {**best_texts(taken.program), "best.patch": taken.patch}
    return {name: _text_digest(text) for name, text in texts.items()}


def bar_of(judgement: Judgement, policy: Policy) -> float:
    """What the speedup was held to, as the gate that judged it says."""
    gate = judgement.gate("speedup")
    assert gate is not None, "this gate is required"
    return max(gate.numbers["min_speedup"], policy.min_speedup)


def _release(judgement: Judgement) -> Release | None:
    review = judgement.gate("review")
    if review is None:
        return None
    held = tuple(g.name for g in judgement.gates if g.quarantined)
    return Release(gates=held, summary=review.summary)


def without_counts(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The samples without the counts behind a modelled time."""
    return tuple(
        c.model_copy(
            update={
                "baseline": c.baseline.model_copy(update={"profile": None}),
                "candidate": c.candidate.model_copy(update={"profile": None}),
            }
        )
        for c in comparisons
    )


def clocks_of(comparisons: Sequence[Comparison]) -> tuple[float, float] | None:
    """Lowest and highest SM clock between samples, MHz; None where it is not known."""
    sides = [side.timing for c in comparisons for side in (c.baseline, c.candidate)]
    seen = [mhz for timing in sides if timing is not None for mhz in timing.sm_clock_mhz]
    return (min(seen), max(seen)) if seen else None


def _program(bench: Workbench) -> AuthorProgram:
    return AuthorProgram(
        main=bench.program.main_path,
        kernel=bench.kernel.full_names[1],
        callee=bench.callee,
        argv=bench.captured.timed.run.argv,
        runs=runs if len(runs := tuple(one.run for one in bench.captured.runs)) > 1 else (),
        files=tuple(
            FileHash(path=f.path, sha256=_text_digest(f.text)) for f in bench.program.files
        ),
    )


def _builds(bench: Workbench, rewrite: Rewrite) -> tuple[CertifiedBuild, ...]:
    """The units that ran, from the cache; the widened one where it compiles."""
    widened = bench.baseline(bench.workloads[0]).widened
    builds = [_build("baseline", _compiled(bench, None))]
    if widened is not None:
        builds.append(_build("widened", widened))
    return (*builds, _build("candidate", _compiled(bench, rewrite)))


def _compiled(bench: Workbench, rewrite: Rewrite | None) -> Compiled:
    compiled = bench.compile(rewrite)
    if isinstance(compiled, Compiled):
        return compiled
    raise SandboxUnavailable(
        f"a cached compilation cannot be repeated: {compiled.placed}",
        "delete the cache folder and run again",
    )


def _build(what: str, compiled: Compiled) -> CertifiedBuild:
    folder = Path(compiled.folder)
    image = next((folder / n for n in (IMAGE, EXECUTABLE) if (folder / n).is_file()), None)
    package = str(Path(cudaops.__file__).parent)
    command = compiled.command.replace(package, "<cudaops>").replace(str(folder), ".")
    return CertifiedBuild.model_validate(
        {
            "what": what,
            "key": compiled.key,
            "image": None if image is None else image.name,
            "image_sha256": None if image is None else digest(image),
            "command": command.replace(str(folder.parent), "<cache>"),
            "compiler": compiled.compiler,
        }
    )


def _workload(workload: Workload) -> WorkloadIdentity:
    folder = Path(workload.folder)

    def content(name: str) -> FileHash:
        path = f"workloads/{folder.name}/{name}"
        return FileHash(path=path, sha256=_digest(folder / name))

    return WorkloadIdentity(
        id=workload.id,
        callee=workload.callee,
        grid=workload.grid,
        block=workload.block,
        dynamic_smem_bytes=workload.dynamic_smem_bytes,
        launches=workload.launches,
        time_share=workload.time_share,
        run=workload.run,
        role=workload.role,
        buffers=tuple(
            BufferHash(
                index=a.index,
                size_bytes=a.size_bytes,
                element=a.element,
                role=a.role,
                before=content(a.before),
                after=content(a.after),
            )
            for a in workload.allocations
        ),
        globals=tuple(
            GlobalHash(
                name=g.name,
                size_bytes=g.size_bytes,
                before=content(g.before),
                after=content(g.after),
            )
            for g in workload.globals
        ),
    )


def _file_hashes(folder: Path, names: Sequence[str]) -> Iterator[FileHash]:
    """Of those that are there: `verify` stores no options."""
    for name in names:
        found = digest(folder / name)
        if found is not None:
            yield FileHash(path=name, sha256=found)


def _digest(path: Path) -> str:
    found = digest(path)
    if found is None:
        raise SandboxUnavailable(f"{path} no longer exists", "run again")
    return found


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Certified(NamedTuple):
    """A run folder whose files are those that its certificate names."""

    folder: Path
    certificate: Certificate
    sha256: str
    """Of the certificate's file."""
    signer: str | None
    """Fingerprint of its key; None where it is not signed."""
    rewrite: Rewrite
    notices: tuple[str, ...]


def open_certified(folder: Path, own: str | None) -> Certified:
    """Read a run's certificate and hold the folder's files to it. `own`: this machine's key.

    Raises InputError, in one line, where there is none, where it was altered or where a file is
    missing or differs.
    """
    path = folder / CERTIFICATE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {CERTIFICATE_NAME}: no run kept a rewrite there"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    envelope = open_envelope(data, str(path))
    certificate = envelope.record
    if not isinstance(certificate, Certificate):
        raise InputError(f"{path} is a {envelope.format}, not a certificate")
    if envelope.state == "altered":
        raise InputError(f"{path} was altered: {envelope.why}")
    if certificate.language == "triton":
        kept = f"{folder}/iterations/{certificate.candidate.iteration:02d}/candidate.py"
        raise InputError(
            f"{folder} is a Triton run, which cannot be confirmed; judge it again with "
            f"`cudaops verify {certificate.program.main} {kept}`"
        )
    items = check_envelope(envelope, folder)
    unsigned = envelope.state == "unsigned"
    problem = first_problem([i for i in items if not (unsigned and i.name == "signature")])
    if problem is not None:
        raise InputError(f"{folder} differs from its certificate: {problem.line}")
    lacking = next((i.name for i in items if i.state == "absent"), None)
    if lacking is not None:
        raise InputError(f"{folder} is incomplete: {lacking} is missing")
    digest = hashlib.sha256(data).hexdigest()
    rewrite = _rewrite(folder, certificate)
    notices = (*_signature_notices(envelope, own), *_policy_notices(certificate))
    return Certified(folder, certificate, digest, envelope.signer, rewrite, notices)


def _signature_notices(envelope: Envelope, own: str | None) -> tuple[str, ...]:
    if envelope.state == "unsigned":
        return (f"the certificate is not signed: {envelope.why}",)
    if envelope.signer != own:
        return (f"the certificate is signed by {envelope.signer}, which is not this machine's key",)
    return ()


def _policy_notices(certificate: Certificate) -> tuple[str, ...]:
    lenient = leniencies(certificate.policy)
    return (f"the certificate's policy is lenient: {'; '.join(lenient)}",) if lenient else ()


def _rewrite(folder: Path, certificate: Certificate) -> Rewrite:
    """The candidate from its own text, plan included, which the certificate's hash covers."""
    known = certificate.candidate
    path = folder / "iterations" / f"{known.iteration:02d}" / "candidate.cu"
    try:
        text = path.read_bytes().decode("utf-8")
        rewrite = make_rewrite(text, known.proposer, known.title, "certified")
    except (OSError, UnicodeDecodeError, PlanError) as error:
        raise InputError(f"{path} is no candidate: {error}") from error
    rewrite = rewrite.tuned_with(known.tuned)
    if rewrite.id != known.id:
        raise InputError(f"{path} with the certificate's tuned values is not {known.id}")
    return rewrite
