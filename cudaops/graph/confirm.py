"""`cudaops confirm`: a certified rewrite judged again, here and with new secret inputs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops import __version__
from cudaops.certify.envelope import seal
from cudaops.certify.keys import Signer
from cudaops.domain.certificate import (
    CERTIFICATE_NAME,
    CONFIRMATION_FORMAT,
    AnchorCheck,
    Confirmation,
    SpeedupCheck,
    compare_anchors,
    compare_speedups,
)
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import MEASURED
from cudaops.domain.judgement import Gate, Judgement
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.untrusted_files import remove
from cudaops.gates.evaluate import evaluate
from cudaops.graph.certificate import (
    Certified,
    CertifiedRun,
    Decided,
    best_files,
    build_certificate,
    signing_key,
    without_counts,
    write_signed,
)
from cudaops.graph.events import EventLog, OnEvent, utc_now
from cudaops.graph.folder import check_space, write_whole
from cudaops.graph.remembering import remember_again
from cudaops.graph.services import make_executor, warm, with_found_device
from cudaops.sandbox.anchors import anchors_of_run
from cudaops.sandbox.bench_state import read_state
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

CONFIRMATIONS = "confirmations"
CONFIRMATION_NAME = "confirmation.json"


class ConfirmationResult(NamedTuple):
    """Its result and where it was written."""

    confirmation: Confirmation
    folder: Path


def confirm_run(
    certified: Certified, options: RunOptions, on_event: OnEvent, settings: Settings
) -> ConfirmationResult:
    """Judge again and write `confirmations/TIME/confirmation.json`.

    Where time is measured now, was modelled before and the rewrite holds, an accepted certificate
    is written beside it. What held or failed is added to memory; what drifted is neither.

    Args:
        certified: The opened run folder.
        options: Where to run: executor, device, architecture, working folder.
        on_event: Takes every line of progress.
        settings: Cache, signing key and memory.

    Raises InputError where the author's program cannot be judged here, EnvironmentFailure where
    this machine cannot; nothing is left behind then.
    """
    executor = make_executor(options, settings)
    try:
        return _confirmed(certified, options, executor, on_event, settings)
    finally:
        close_executor(executor)


def _confirmed(
    certified: Certified,
    options: RunOptions,
    executor: Executor,
    on_event: OnEvent,
    settings: Settings,
) -> ConfirmationResult:
    with _new_folder(certified.folder) as folder:
        events = EventLog(folder / "events.jsonl", on_event)
        bench = _bench(certified, with_found_device(options, executor), executor, folder)
        _same_files(certified, bench)
        warm(bench)
        confirmation, decided = _judged(certified, bench, events)
        run = CertifiedRun(confirmation.run_id, confirmation.date, bench.policy)
        modelled = certified.certificate.time_source not in MEASURED
        if confirmation.result == "holds" and modelled and bench.executor.time_source in MEASURED:
            certificate = build_certificate(run, bench, decided, certified.folder)
            write_signed(
                folder / CERTIFICATE_NAME, certificate, certified.folder, settings.signing_key
            )
        signer = signing_key(settings.signing_key, certified.folder)
        sealed = seal(CONFIRMATION_FORMAT, confirmation, signer)
        write_whole(folder / CONFIRMATION_NAME, sealed.decode("ascii"))
        bench.ahead.end()
        for name in ("work", "state"):
            remove(folder / name)
    if confirmation.result != "drifted":
        ours = isinstance(signer, Signer) and signer.fingerprint == certified.signer
        notice = remember_again(certified, decided, bench, options, settings, ours=ours)
        if notice is not None:
            events.emit("verify", "verify", "notice", notice)
    return ConfirmationResult(confirmation, folder)


def _bench(
    certified: Certified, options: RunOptions, executor: Executor, folder: Path
) -> Workbench:
    """The run's program and capture with a new secret seed, working in `folder`.

    The captured contents are those of this folder, also where that of the run they were copied
    from is still there.
    """
    certificate = certified.certificate
    program, captured, _ = read_state(certified.folder)
    captured = captured.with_workloads(
        lambda w: w.model_copy(
            update={"folder": str(certified.folder / "workloads" / Path(w.folder).name)}
        )
    )
    return Workbench(
        program,
        captured,
        executor,
        certificate.policy.model_copy(update={"seed": None}),
        folder,
        sm_arch=options.sm_arch,
        timeout_s=certificate.timeout_seconds,
    )


def _same_files(certified: Certified, bench: Workbench) -> None:
    """What a user takes from the folder must be what is judged here: the author's program with the
    certified candidate in it. A signature does not say that; anybody can sign anything."""
    hashes = {file.path: file.sha256 for file in certified.certificate.files}
    for name, digest in best_files(bench, certified.rewrite).items():
        if hashes.get(name) != digest:
            raise InputError(
                f"{certified.folder / name} is not the author's program with the certified "
                "candidate in it"
            )


def _judged(
    certified: Certified, bench: Workbench, events: EventLog
) -> tuple[Confirmation, Decided]:
    certificate, rewrite = certified.certificate, certified.rewrite

    say = events.announcing("sandbox", "sandbox")
    events.emit("sandbox", "sandbox", "started", f"judging {rewrite.title} again")
    evaluation = evaluate(bench, rewrite, bench.policy.min_speedup, say)
    evaluation = _with_release(evaluation, certified)
    judgement = evaluation.judged(bench.policy)
    say("reference run: the certificate's probes")
    anchors = compare_anchors(certificate.anchors, anchors_of_run(bench))
    speedup = compare_speedups(certificate, bench.executor.device, judgement)
    result, reason = _result(judgement, anchors, speedup)
    events.emit("sandbox", "sandbox", "finished", f"{result}: {reason}")
    decided = Decided(rewrite, evaluation, judgement, certificate.candidate.iteration)
    confirmation = Confirmation(
        run_id=certificate.run_id,
        date=utc_now(),
        cudaops_version=__version__,
        certificate_sha256=certified.sha256,
        certificate_signer=certified.signer,
        result=result,
        reason=reason,
        executor=bench.executor.name,
        time_source=bench.executor.time_source,
        device=bench.executor.device,
        sm_arch=bench.sm_arch,
        tools=dict(bench.executor.tools()),
        seed=bench.seed,
        judgement=judgement,
        comparisons=without_counts(evaluation.comparisons),
        fresh=without_counts(evaluation.fresh),
        anchors=anchors,
        speedup=speedup,
        notices=certified.notices,
    )
    return confirmation, decided


def _with_release(evaluation: Evaluation, certified: Certified) -> Evaluation:
    """A person's yes counts again, for no more than it released then."""
    review = certified.certificate.review
    held = {gate.name for gate in evaluation.gates if gate.quarantined}
    if review is None or not held <= set(review.gates):
        return evaluation
    gate = Gate(name="review", passed=True, summary=f"as in the certificate: {review.summary}")
    return evaluation.model_copy(update={"gates": (*evaluation.gates, gate)})


def _result(
    judgement: Judgement, anchors: Sequence[AnchorCheck], speedup: SpeedupCheck
) -> tuple[Literal["holds", "drifted", "fails"], str]:
    if judgement.outcome == "rejected":
        return "fails", judgement.reason
    moved = next((a for a in anchors if a.result == "differs"), None)
    if moved is not None:
        return "drifted", f"anchor {moved.workload}/{moved.probe}: {moved.detail}"
    if speedup.result == "differs":
        return "drifted", f"speedup: {speedup.detail}"
    return "holds", f"{judgement.outcome}, {judgement.reason}"


@contextlib.contextmanager
def _new_folder(run: Path) -> Iterator[Path]:
    """`confirmations/TIME`, made now; where this fails nothing of it stays."""
    check_space(run, lambda path: shutil.disk_usage(path).free)
    base = run / CONFIRMATIONS
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (stamp, *(f"{stamp}-{n}" for n in range(2, 100)))
    folder = next(base / name for name in names if not (base / name).exists())
    try:
        (folder / "state").mkdir(parents=True)
    except OSError as error:
        remedy = "copy the run folder to a writable place and confirm the copy"
        raise SandboxUnavailable(f"cannot write to {run}: {error.strerror}", remedy) from error
    try:
        yield folder
    except BaseException:
        remove(folder)
        with contextlib.suppress(OSError):  # earlier confirmations stay
            base.rmdir()
        raise
